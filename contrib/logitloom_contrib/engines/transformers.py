"""Hugging Face transformers: a chain inside ``generate``, and causal models inside logitloom's own loop.

``generate`` calls its processors with all ids of all rows, prompts and left padding included, and tells neither which
row a beam came from nor when drafts were rejected. :class:`~logitloom_contrib.row_tracking.RowTracker` recovers both.
"""

from __future__ import annotations

import copy
import sys
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LogitsProcessorList, StoppingCriteria

from logitloom import Chain, backend_of
from logitloom.arrays.backend import NEG_INF
from logitloom.engines import WrittenText, bind, written_text
from logitloom.errors import InvalidContext, NeedsNotMet
from logitloom.generation import Sampled, heal
from logitloom.generation.sampled import sampled
from logitloom.host.registry import read_vocabulary
from logitloom_contrib.engines._adapted_model import adapted
from logitloom_contrib.engines._copies import MadeAnew
from logitloom_contrib.engines._given import beginnings, number, rows_of_ids, token_ids, told
from logitloom_contrib.engines._transformers_model import TransformersModel
from logitloom_contrib.row_tracking import RowTracker, right_aligned

__all__ = ["TransformersModel", "TransformersProcessor", "to_transformers"]

#: The values that ``generate`` gives to processors.
GIVES: Final = frozenset({"prompt", "length", "history", "every_step"})
ENGINE: Final = "transformers' generate"
#: The module that holds ``generate``.
_GENERATION: Final = "transformers.generation.utils"
#: The module that drafts with an assistant.
_DRAFTING: Final = "transformers.generation.candidate_generator"
#: Most tokens of a request where neither chain nor model say.
_LONGEST: Final = 1 << 15


def direct_call(chain: Any, given: tuple[Any, ...], more: dict[str, Any]) -> None:
    """See :class:`logitloom.engines.DirectCall`."""
    if given and type(given[0]).__module__.partition(".")[0] == "torch":
        raise NeedsNotMet(
            f"{chain!r} was given to transformers as if it were one of its processors. "
            f"Give to_transformers(chain, model, tokenizer) of {__name__} instead."
        )


def to_transformers(
    chain: Chain,
    model: Any = None,
    tokenizer: Any = None,
    *,
    eos: Sequence[int] | None = None,
    padding: int | None = None,
    seed: int = 0,
    max_length: int | None = None,
) -> TransformersProcessor:
    """A chain as the ``logits_processor`` of ``generate``: greedy, sampling, beams, drafts; for any number of calls.

    Pass the result, ``model.generate(..., logits_processor=processor)``, or a list with it. Each call of ``generate``
    keeps its rows apart from the rows of all other calls, also where its prompt is a beginning of earlier output. For
    continuous batches there are :meth:`TransformersProcessor.generate_batch` and
    :meth:`~TransformersProcessor.continuous_batch`.

    Args:
        chain: the processors.
        model: the transformers model that will generate: for its end-of-sequence and padding ids, and for processors
            that run a model (guidance). Or a logitloom model adapter.
        tokenizer: any tokenizer, for processors that need a vocabulary; default: the chain's.
        eos: ids that end a row, and the texts of the chain; default: those at which the running ``generate`` ends rows,
            else those of the vocabulary.
        padding: an id that fills rows, besides those with which the tokenizer and the running ``generate`` fill rows;
            without any, the first of ``eos``. Rows that begin with such an id, more often than any other row of the
            batch, are taken to be left-padded.
        seed: of processors that draw random numbers.
        max_length: most tokens of a row, if a chain that keeps history should allocate it at once.

    Returns:
        A ``LogitsProcessorList``.

    Raises:
        NeedsNotMet: the chain needs a value that ``generate`` does not give, the model is none, or ``generate`` would
            not call the chain.
        ChainIncomplete: options are missing.
        InvalidContext: ids, a length or the seed are no whole numbers.
    """
    if model is not None and not any(hasattr(model, name) for name in ("config", "generation_config", "empty_cache")):
        raise NeedsNotMet(f"{ENGINE} was given {told(model)} as model. Give the model that generates.")
    padding, max_length, seed = number(padding, "padding"), number(max_length, "max_length"), number(seed, "seed") or 0
    config = getattr(model, "generation_config", None)
    if config is not None:
        _require_called(config.cache_implementation)
    chain = bind(chain, ENGINE, GIVES, tokenizer=tokenizer, model=model)
    own = adapted(chain, model, ENGINE, lambda native: TransformersModel(native, tokenizer))
    fills = _ids((padding, getattr(tokenizer, "pad_token_id", None)))
    given = None if eos is None else token_ids(eos, "eos")
    return TransformersProcessor(_Binding(chain, given, fills, seed, max_length, own), model)


class _Binding:
    """The values that all generations with one processor share.

    Args:
        chain: the processors.
        eos: ids that end a row; None: those that ``generate`` tells, else those of the vocabulary.
        padding: ids that fill rows, besides those that ``generate`` tells.
        seed: of processors that draw random numbers.
        max_length: most tokens of a row, None if unknown.
        model: the adapter of the model, None if there is none.
    """

    def __init__(
        self,
        chain: Chain,
        eos: tuple[int, ...] | None,
        padding: tuple[int, ...],
        seed: int,
        max_length: int | None,
        model: Any,
    ) -> None:
        self.chain, self.seed, self.max_length = chain, seed, max_length
        self.context = {} if model is None else {"model": model}
        self._given = eos, padding
        self.eos, self.padding = eos or (), padding
        #: The bindings of generations, by ids that end rows and ids that fill rows.
        self._within: dict[tuple[tuple[int, ...], tuple[int, ...]], _Binding] = {}

    def of_chain(self, chain: Chain) -> _Binding:
        """The same values with another chain."""
        made = copy.copy(self)
        made.chain, made._within = chain, {}
        return made

    def within(self, config: Any) -> _Binding:
        """The binding of generations with this config: texts of the chain end where ``generate`` ends rows."""
        words = None if self.chain.vocabulary is None else read_vocabulary(self.chain.vocabulary)
        usual = () if words is None else words.eos
        eos, padding = self._given
        if eos is None:
            eos = _told_by(config, "eos") or usual
        eos = (*(token for token in usual if token in eos), *(token for token in eos if token not in usual))
        padding = tuple(dict.fromkeys((*padding, *_told_by(config, "pad")))) or eos[:1]
        if (eos, padding) not in self._within:
            chain = self.chain
            known = tuple(token for token in eos if words is not None and token < words.size)
            if words is not None and known and known != usual:
                chain = chain.configure(tokenizer=words.with_eos(known))
            made = self.of_chain(chain)
            made.eos, made.padding = eos, padding
            self._within[eos, padding] = made
        return self._within[eos, padding]

    def tracker(self) -> RowTracker:
        return RowTracker(
            self.chain,
            eos=self.eos,
            padding=self.padding,
            seed=self.seed,
            max_length=self.max_length,
            context=self.context,
        )


class _CallRows(MadeAnew):
    """The processor of one call of ``generate``, or of several calls, which are distinguished by their token ids."""

    def __init__(self, binding: _Binding, max_length: int | None = None) -> None:
        self.chain, self.padding = binding.chain, binding.padding
        self.tracker = binding.tracker()
        #: The number of tokens at which ``generate`` stops, prompts and padding included, until the first call.
        self._max_length = max_length
        #: Whether it is still to be found out if a beam search calls, whose hypotheses the chain may end.
        self._watches_beams = any(hasattr(link.processor, "text_end") for link in binding.chain.links)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if not isinstance(input_ids, torch.Tensor) or not isinstance(scores, torch.Tensor):
            raise InvalidContext(
                f"{ENGINE} passes ids and scores as tensors, but they are {told(input_ids)} and {told(scores)}. For "
                f"arrays of another library call chain.process."
            )
        if _drafts_in_other_tokens(sys._getframe(1)):
            return scores
        if self._watches_beams:
            self._watches_beams = False
            criteria = _criteria_of_beams(sys._getframe(1))
            if criteria is not None:
                criteria.append(_TextEnds(self))
        if self._max_length is not None:
            self.tracker.max_new_tokens = self._max_length - int(input_ids.shape[1])
            self._max_length = None
        ids = (input_ids if input_ids.is_cpu else input_ids.cpu()).numpy()

        def tentative() -> bool:
            decoding = {frame.f_code.co_name for frame in _frames_of_generate(sys._getframe(1))}
            # Drafts are verified with one slice of a larger tensor per position.
            sliced = scores.untyped_storage().nbytes() > scores.numel() * scores.element_size()
            if "_assisted_decoding" in decoding:
                return sliced or "_sample" in decoding  # of the assistant
            # Beams have log-probabilities, also in searches that are not those of the library.
            return "_sample" not in decoding and (sliced or bool((scores <= 0).all()))

        starts = _starts(ids, self.padding)
        out: torch.Tensor = self.tracker.process(scores, ids, starts, tentative=tentative)
        return out


class _TextEnds(StoppingCriteria):  # type: ignore[misc]
    """Ends the hypotheses of a beam search where the chain ends their texts, as ``stop_strings`` do.

    Without this criterion a hypothesis would end one step later, with end-of-sequence. The score of the hypothesis
    would then hold the model's log-probability of end-of-sequence there.
    """

    def __init__(self, rows: _CallRows) -> None:
        self._rows = rows

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Per candidate ``[rows, length]``, each a hypothesis of the last step with one token more, whether it ends."""
        ids = (input_ids if input_ids.is_cpu else input_ids.cpu()).numpy()
        ended = self._rows.tracker.text_ends(ids, _starts(ids, self._rows.padding))
        return torch.as_tensor(ended, device=input_ids.device)


class TransformersProcessor(MadeAnew, LogitsProcessorList):  # type: ignore[misc]
    """A chain for ``generate``; made by :func:`to_transformers`.

    ``generate`` copies the list it is given. Each copy of the list gets its own member, so that calls of ``generate``
    share only the chain, whether they run in sequence, interleaved or in threads. As a member of another list, the
    processor is told apart by the copy that it is called from.
    """

    def __init__(self, binding: _Binding, model: Any, lost: Mapping[tuple[int, ...], int] | None = None) -> None:
        self._binding, self._model = binding, model
        #: The binding of the newest generation, and before the first one that of the model's own config.
        self._newest = binding.within(getattr(model, "generation_config", None))
        #: Per shortened prompt how many bytes it has lost (token healing).
        self._lost = lost or {}
        #: Per list that the processor is called from: the list, and its rows. By identity, as lists have no hash.
        self._of_list: dict[int, tuple[weakref.ref[Any], _CallRows]] = {}
        self._shared = _CallRows(self._newest)
        #: How many times a call of ``generate`` took its member.
        self._taken = 0
        super().__init__([self._shared])
        _refuse_continuous_batches()

    def __iter__(self) -> Iterator[_CallRows]:
        self._taken += 1
        yield self._rows_of_call(sys._getframe(1))

    def _rows_of_call(self, frame: Any) -> _CallRows:
        """The rows of the ``generate`` that a call comes from."""
        config = _config_of(frame)
        if config is not None:
            self._newest = self._binding.within(config)
        return _CallRows(self._newest, getattr(config, "max_length", None))

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Process scores ``[rows, vocab]`` after ids ``[rows, length]``, as a member of a list or by itself."""
        caller = sys._getframe(1)
        listed = caller.f_locals.get("self") if caller.f_code is LogitsProcessorList.__call__.__code__ else None
        if listed is None:
            return self._shared(input_ids, scores)
        known = self._of_list.get(id(listed))
        if known is None or known[0]() is not listed:
            # An assistant's texts continue the texts of the generation that verifies its drafts.
            listed = _assisted_list(caller) or listed
            key = id(listed)
            known = self._of_list.get(key)
            if known is None or known[0]() is not listed:
                gone = weakref.ref(listed, lambda _: self._of_list.pop(key, None))
                known = gone, self._rows_of_call(caller)
                self._of_list[key] = known
        return known[1](input_ids, scores)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def chain(self) -> Chain:  # type: ignore[override]
        """The chain that is called."""
        return self._newest.chain

    def generate(self, *inputs: Any, **options: Any) -> Any:
        """``model.generate`` with this processor; an error where ``generate`` would silently leave the processor out.

        Args:
            inputs, options: those of ``generate``, without ``logits_processor``.

        Raises:
            NeedsNotMet: with other processors; with the paged cache (continuous batching), which calls no processors;
                if ``generate`` left the processor out for another reason; or without a model.
        """
        model = self._bound_model()
        if options.pop("logits_processor", None):
            raise NeedsNotMet(
                "This method passes its own processor to generate as logits_processor, and the call names others. Call "
                "model.generate(..., logits_processor=[processor, ...]) instead."
            )
        config = options.get("generation_config") or model.generation_config
        _require_called(options.get("cache_implementation", config.cache_implementation))
        before = self._taken
        out = model.generate(*inputs, logits_processor=self, **options)
        if self._taken == before:
            raise NeedsNotMet(
                f"{ENGINE} did not look at the logits processor it was given, so the chain did not run on what it "
                f"returned. Another way of decoding was chosen by its options or by the model's generation config."
            )
        return out

    def heal(self, input_ids: Any, attention_mask: Any = None) -> tuple[TransformersProcessor, dict[str, torch.Tensor]]:
        """Token healing: shortened prompts, and the processor that makes ``generate`` write the removed text.

        :meth:`texts` of that processor are the texts behind the whole prompts.

        Args:
            input_ids: ids ``[rows, length]``, padded on the left.
            attention_mask: as for ``generate``; default: all ids behind the padding.

        Returns:
            The processor, and ``input_ids`` and ``attention_mask`` for ``generate``.

        Raises:
            GenerationError: as :func:`logitloom.generation.heal`; two prompts may not differ in the lost tokens alone.
        """
        rows = rows_of_ids(input_ids, "input_ids")
        starts = _starts(rows, self._newest.padding)
        if attention_mask is not None:
            given = rows_of_ids(attention_mask, "attention_mask")
            if given.shape != rows.shape:
                raise InvalidContext(f"The ids have the shape {rows.shape}, and their attention mask {given.shape}.")
            starts = beginnings(given)
        first = [0] * len(rows) if starts is None else starts.tolist()
        healed = heal(self._binding.chain, [row[at:].tolist() for row, at in zip(rows, first, strict=True)])
        lost = {tuple(prompt): len(text) for prompt, text in zip(healed.prompts, healed.texts, strict=True)}
        ids, begins = right_aligned(healed.prompts)
        mask = np.arange(ids.shape[1]) >= begins[:, None]
        ids[~mask] = next(iter(self._newest.padding), 0)
        device = getattr(input_ids, "device", None)
        inputs = {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
        tensors = {name: torch.as_tensor(array, device=device) for name, array in inputs.items()}
        return TransformersProcessor(self._binding.of_chain(healed.chain), self._model, lost), tensors

    def texts(self, sequences: Any, prompt_length: int) -> list[WrittenText]:
        """The texts that ``generate`` returned, and why each ended, as in logitloom's own loop.

        A stop string that does not belong to the text is left out. Rows end, and are filled, as in the newest call of
        ``generate`` with this processor.

        Args:
            sequences: what ``generate`` returned: ids ``[rows, length]``, prompts and padding included, or with
                ``return_dict_in_generate=True`` the object that has them.
            prompt_length: how many of each row's ids are its prompt, padded.

        Raises:
            InvalidContext: these are no ids, the prompt is longer than the rows, or the chain does not allow what
                follows it.
        """
        rows = rows_of_ids(getattr(sequences, "sequences", sequences), "sequences")
        length = number(prompt_length, "prompt_length")
        if length is None or not 0 <= length <= rows.shape[1]:
            raise InvalidContext(
                f"The argument 'prompt_length' must be the number of ids of a padded prompt, at most {rows.shape[1]}, "
                f"but is {length}. Give input_ids.shape[1]."
            )
        starts = _starts(rows[:, :length], self._newest.padding)
        first = [0] * len(rows) if starts is None else starts.tolist()
        found = []
        for row, at in zip(rows, first, strict=True):
            prompt, written = row[at:length].tolist(), self._written(row[length:].tolist(), len(rows))
            skip = self._lost.get(tuple(prompt), 0)
            try:
                found.append(written_text(self.chain, written, prompt=prompt, eos=self._newest.eos, skip=skip))
            except InvalidContext as error:
                raise InvalidContext(
                    f"{error} The argument 'prompt_length' is {length}: give input_ids.shape[1]."
                ) from error
        return found

    def sampled(self, generated: Any) -> list[tuple[Sampled, ...]]:
        """The distribution of each new token: per row the records of logitloom's own loop, end-of-sequence included.

        Padding has no record. Where end-of-sequence is the padding, and the chain allows it, a row that ``generate``
        ended for a reason of its own is taken to end with end-of-sequence.

        A record describes the distribution from which ``generate`` chose: after the chain and the processors that
        ``generate`` itself adds. A token that a constraint forces is described like any other; ``generate`` runs the
        model for it.

        Args:
            generated: what ``generate`` returned for greedy decoding or sampling, called with
                ``return_dict_in_generate=True, output_scores=True, output_logits=True``.

        Raises:
            NeedsNotMet: if scores or logits are missing, or beams changed rows between the steps.
        """
        scores, logits = (getattr(generated, name, None) for name in ("scores", "logits"))
        if scores is None or logits is None or getattr(generated, "beam_indices", None) is not None:
            raise NeedsNotMet(
                f"{ENGINE} returned no scores and logits of rows that stay in place, so what tokens were chosen from "
                f"is unknown. Call it with return_dict_in_generate=True, output_scores=True and output_logits=True, "
                f"and without beams."
            )
        rows = generated.sequences[:, -len(scores) :].tolist()
        lengths = [len(self._written(row, len(rows))) for row in rows]
        found: list[list[Sampled]] = [[] for _ in rows]
        for step, (before, after) in enumerate(zip(logits, scores, strict=True)):
            backend, tokens = backend_of(after), [row[step] for row in rows]
            chosen = backend.asarray([[token] for token in tokens], dtype="int32")
            logprobs = backend.to_numpy(backend.log_probability(after, chosen))[:, 0].tolist()
            told = sampled(backend, before, after, tokens, logprobs)
            for line, each in zip(found, told, strict=True):
                line.append(each)
        # End-of-sequence that the chain forbids is padding: a token of probability 0 is not chosen.
        return [
            tuple(each for each in line[:length] if each.logprob > NEG_INF)
            for line, length in zip(found, lengths, strict=True)
        ]

    def _written(self, row: list[int], rows: int) -> list[int]:
        """The new tokens of one of ``rows`` rows, end-of-sequence included, without the padding behind them."""
        eos, padding = self._newest.eos, self._newest.padding
        length = next((place + 1 for place, token in enumerate(row) if token in eos), len(row))
        # Without end-of-sequence, padding follows where ``generate`` ended the row for a reason of its own.
        while rows > 1 and length and row[length - 1] in padding and row[length - 1] not in eos:
            length -= 1
        return row[:length]

    def generate_batch(
        self, inputs: Sequence[Sequence[int]], *, max_new_tokens: int | None = None, **options: Any
    ) -> dict[str, Any]:
        """``model.generate_batch``, continuous batching, with this chain in every request.

        Args:
            inputs: prompts, as ids.
            max_new_tokens: as in ``generate_batch``.
            options: those of :meth:`continuous_batch`.

        Returns:
            Request id -> ``GenerationOutput``, in the order of the prompts; the error of a request is its ``error``.

        Raises:
            NeedsNotMet: as in :meth:`continuous_batch`, or if the batch ended before its requests did.
        """
        with self.continuous_batch(**options) as manager:
            names = manager.add_requests([list(ids) for ids in inputs], max_new_tokens=max_new_tokens)
            more = [f"__child#{i}" for i in range(manager.num_return_sequences - 1)]
            wanted = [name + part for name in names for part in (*more, "")]
            found: dict[str, Any] = {}
            while len(found) < len(wanted):
                result = manager.get_result(timeout=1)
                if result is not None and result.is_finished():
                    found[result.request_id] = result
                elif result is None and not manager.is_running():
                    raise NeedsNotMet(
                        f"transformers' continuous batch ended after {len(found)} of {len(wanted)} texts: "
                        f"{manager.background_thread_status.fatal_error!r}."
                    )
        return {name: found[name] for name in wanted}

    def continuous_batch(self, **options: Any) -> AbstractContextManager[Any]:
        """A started ``ContinuousBatchingManager`` whose requests have this chain, or a chain of their own.

        ``manager.add_request(ids, logitloom=chain)`` gives a request its own chain: a chain, or its document as plain
        data or JSON; None for none.

        Args:
            options: those of ``model.init_continuous_batching``.

        Returns:
            A context manager.

        Raises:
            NeedsNotMet: without a model; with a chain that runs a model; or, on entering, if the options ask for
                recorded graphs, steps that are sent ahead, or compiled code, in which no chain runs.
        """
        from logitloom_contrib.engines._transformers_batching import BatchedChains, batch_with, bind_batched

        model = self._bound_model()
        binding = self._binding.within(options.get("generation_config") or model.generation_config)
        config = getattr(model.config, "max_position_embeddings", None)
        longest = binding.max_length or config or _LONGEST
        chain = bind_batched(binding.chain)
        return batch_with(
            model, BatchedChains(chain, chain.vocabulary, binding.eos, binding.seed, int(longest)), options
        )

    def _bound_model(self) -> Any:
        if not hasattr(self._model, "generate"):
            raise NeedsNotMet("No transformers model is bound: give to_transformers(chain, model=...).")
        return self._model


def _frames_of_generate(frame: Any) -> Iterator[Any]:
    """The frames of the module of ``generate`` that a call comes from, from the innermost outwards."""
    while frame is not None:
        if frame.f_globals.get("__name__") == _GENERATION:
            yield frame
        frame = frame.f_back


def _config_of(frame: Any) -> Any:
    """The generation config of the calling ``generate``; None if no caller is ``generate``.

    If an assistant's ``generate`` runs inside the ``generate`` that it drafts for, the outer ``generate`` counts.
    """
    found = None
    for each in _frames_of_generate(frame):
        found = each.f_locals.get("generation_config", found)
    return found


def _criteria_of_beams(frame: Any) -> Any:
    """The stopping criteria of the beam search that a call comes from, None if it comes from none."""
    for each in _frames_of_generate(frame):
        if each.f_code.co_name == "_beam_search":
            return each.f_locals.get("stopping_criteria")
        if each.f_code.co_name == "generate":
            return None
    return None


def _drafts_in_other_tokens(frame: Any) -> bool:
    """Whether a call comes from an assistant with a tokenizer of its own: its ids mean other texts to the chain."""
    while frame is not None:
        if frame.f_globals.get("__name__") == _DRAFTING:
            return hasattr(frame.f_locals.get("self"), "assistant_tokenizer")
        frame = frame.f_back
    return False


def _assisted_list(frame: Any) -> Any:
    """The processors of the assisted generation that a call comes from, None if it comes from none."""
    for each in _frames_of_generate(frame):
        if each.f_code.co_name == "_assisted_decoding":
            return each.f_locals.get("logits_processor")
    return None


def _refuse_continuous_batches() -> None:
    """See :func:`~logitloom_contrib.engines._transformers_batching.refuse_where_ignored`."""
    try:
        from logitloom_contrib.engines._transformers_batching import refuse_where_ignored
    except ImportError:
        return  # a release of transformers without continuous batching: nothing is ignored
    refuse_where_ignored(_holds_chain)


def _holds_chain(given: Any) -> bool:
    kinds = (TransformersProcessor, _CallRows, Chain)
    return isinstance(given, kinds) or (isinstance(given, list) and any(isinstance(each, kinds) for each in given))


def _require_called(cache_implementation: str | None) -> None:
    if cache_implementation == "paged":
        raise NeedsNotMet(
            "transformers ignores logits processors with cache_implementation='paged' (continuous batching), so the "
            "chain would silently not run. Use the processor's generate_batch(inputs, ...), or another cache."
        )


def _told_by(config: Any, kind: str) -> tuple[int, ...]:
    """The ids that end rows (``eos``) or fill them (``pad``), as a generation config tells."""
    running = getattr(config, f"_{kind}_token_tensor", None)
    return _ids(getattr(config, f"{kind}_token_id", None) if running is None else running.tolist())


def _ids(value: Any) -> tuple[int, ...]:
    listed = value if isinstance(value, (list, tuple)) else (value,)
    return tuple(int(token) for token in listed if token is not None and int(token) >= 0)


def _starts(ids: NDArray[Any], padding: Collection[int]) -> NDArray[np.int64] | None:
    """Where each row's own ids begin, behind padding on the left; None if no row is padded.

    At least one row of a batch is not padded. Ids with which every row begins belong to the rows: the
    beginning-of-sequence token may be the padding token.
    """
    rows, width = ids.shape
    if not width or rows == 1 or set(padding).isdisjoint(ids[:, 0].tolist()):
        return None
    starts = beginnings(np.isin(ids, list(padding), invert=True))
    starts -= starts.min()
    return starts
