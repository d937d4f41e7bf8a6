"""ONNX Runtime GenAI: a chain between a generator's logits and its next token, and models inside logitloom's own loop.

The library has no logits processors; its generator gives the logits of a step and takes them back. Errors of the chain
are raised where it is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from logitloom import Chain
from logitloom.engines import WrittenText, bind, written_text
from logitloom.errors import NeedsNotMet
from logitloom_contrib.engines._adapted_model import adapted
from logitloom_contrib.engines._copies import MadeAnew
from logitloom_contrib.engines._given import beginnings, number, read_from, token_ids
from logitloom_contrib.engines._onnx_genai_model import OnnxGenAiModel
from logitloom_contrib.row_tracking import RowTracker, right_aligned

__all__ = ["OnnxGenAiModel", "OnnxGenAiProcessor", "to_onnx_genai"]

GIVES: Final = frozenset({"prompt", "length", "history"})
ENGINE: Final = "ONNX Runtime GenAI"


def to_onnx_genai(
    chain: Chain,
    model: Any = None,
    tokenizer: Any = None,
    *,
    eos: Sequence[int] | None = None,
    padding: int | None = None,
    seed: int = 0,
    max_length: int | None = None,
) -> OnnxGenAiProcessor:
    """A chain for generators of ONNX Runtime GenAI.

    Args:
        chain: the processors.
        model: the ``onnxruntime_genai.Model`` that generates, or a model adapter: for
            :meth:`OnnxGenAiProcessor.generate`, and for processors that run a model (guidance).
        tokenizer: any tokenizer that logitloom reads (the library's own shows no bytes): that of the same model in
            tokenizers or transformers, or its file; default: the chain's vocabulary.
        eos: ids that end a text, besides the end ids of the vocabulary; default: the end ids of the model's
            ``genai_config.json``.
        padding: the id on the left of shorter prompts of a batch and behind ended rows; default: the first of ``eos``.
        seed: of processors that draw random numbers.
        max_length: most tokens of a row, if a chain that keeps history should allocate it at once.

    Raises:
        NeedsNotMet: the chain needs what the library does not give, or the model is none.
        InvalidContext: an argument is of the wrong kind.
        ChainIncomplete: options are missing.
    """
    padding, max_length, seed = number(padding, "padding"), number(max_length, "max_length"), number(seed, "seed") or 0
    chain = bind(chain, ENGINE, GIVES, tokenizer=tokenizer, model=model)
    own = adapted(chain, model, ENGINE, lambda native: OnnxGenAiModel(native, tokenizer=tokenizer))
    native, words = getattr(model, "model", model), chain.vocabulary
    ends = _ends(native) if eos is None else token_ids(eos, "eos")
    if words is not None:
        # A model may have ids that its tokenizer does not know.
        ends = tuple(dict.fromkeys([*(end for end in ends if eos is not None or end < words.size), *words.eos]))
        if ends != words.eos:
            chain = chain.configure(tokenizer=words.with_eos(ends))
    if padding is None and ends:
        padding = ends[0]
    return OnnxGenAiProcessor(chain, native, own, ends, padding, seed, max_length)


def _ends(model: Any) -> tuple[int, ...]:
    """The ids with which the library ends the texts of a model; none if it does not tell."""
    if not type(model).__module__.startswith("onnxruntime_genai"):
        return ()
    try:
        return tuple(importlib.import_module("onnxruntime_genai").Tokenizer(model).eos_token_ids)
    except RuntimeError:  # the folder has no tokenizer, or one that the library does not know
        return ()


class OnnxGenAiProcessor(MadeAnew):
    """A chain for ONNX Runtime GenAI; made by :func:`to_onnx_genai`.

    Call it with a generator before each ``generate_next_token``; or use :meth:`generate`. One object serves any number
    of generators, one after the other or in turn.
    """

    def __init__(
        self,
        chain: Chain,
        model: Any,
        adapter: Any,
        eos: tuple[int, ...],
        padding: int | None,
        seed: int,
        max_length: int | None,
    ) -> None:
        self.chain, self._model, self._eos, self._padding = chain, model, eos, padding
        self._adapter, self._seed, self._max_length = adapter, seed, max_length
        #: Generator -> its row tracker: a text of one generator is no prompt of another generator.
        self._trackers: WeakKeyDictionary[Any, RowTracker] = WeakKeyDictionary()

    def __call__(self, generator: Any) -> None:
        """Process the logits of a generator's next step.

        Args:
            generator: an ``onnxruntime_genai.Generator`` that has read its prompt.

        Raises:
            IllegalToken, NoLegalToken: what is wrong with a row.
            ModelError: it is no generator.
        """
        given = np.array(read_from(generator, lambda it: it.get_logits(), ENGINE, "generator"), dtype=np.float32)
        logits = given.reshape(-1, given.shape[-1])
        rows = [np.asarray(generator.get_sequence(row)) for row in range(len(logits))]
        ids, starts = right_aligned(self._without_padding(rows))
        beams = bool((logits <= 0).all())  # beams are ranked by log-probabilities
        tracker = self._trackers.get(generator)
        if tracker is None:
            tracker = self._trackers[generator] = self._new_tracker()
        processed = tracker.process(logits, ids, starts, tentative=lambda: beams)
        generator.set_logits(np.ascontiguousarray(processed).reshape(given.shape))

    def generate(self, prompts: Iterable[Sequence[int]], **search: Any) -> list[WrittenText]:
        """Texts of some prompts, one after the other.

        Args:
            prompts: ids.
            search: options of ``GeneratorParams.set_search_options`` (``max_length``, ``do_sample``, ...).

        Raises:
            NeedsNotMet: without a model, or with beams, because the library gives the logits of beams before it ranks
            them.
        """
        if self._model is None:
            raise NeedsNotMet("No model is bound: give to_onnx_genai(chain, model=...).")
        if (number(search.get("num_beams"), "num_beams") or 1) > 1:
            raise NeedsNotMet(
                f"{ENGINE} gives the sequences of its beams only when it is done, so a chain cannot follow them. Use "
                f"BeamSearch in logitloom's own loop: Generator(OnnxGenAiModel(model), chain, BeamSearch(...))."
            )
        library = importlib.import_module("onnxruntime_genai")
        texts = []
        several = isinstance(prompts, Iterable) and not isinstance(prompts, type)
        for prompt in [token_ids(each, "prompts") for each in (prompts if several else [prompts])]:
            params = read_from(self._model, library.GeneratorParams, ENGINE)
            params.set_search_options(**{"do_sample": False, **search, "batch_size": 1})
            generator = library.Generator(self._model, params)
            generator.append_tokens(np.asarray(prompt, dtype=np.int32))
            tokens: list[int] = []
            longest = int(params.get_search_options()["max_length"])
            self._trackers[generator] = self._new_tracker(max(longest - len(prompt), 0))
            while not generator.is_done():
                self(generator)
                generator.generate_next_token()
                tokens.append(int(generator.get_next_tokens()[0]))
            texts.append(written_text(self.chain, tokens, prompt=prompt, eos=self._eos))
        return texts

    def _new_tracker(self, most: int | None = None) -> RowTracker:
        """A tracker of rows that generate at most ``most`` tokens."""
        return RowTracker(
            self.chain,
            eos=self._eos,
            padding=() if self._padding is None else (self._padding,),
            seed=self._seed,
            max_length=self._max_length,
            max_new_tokens=most,
            context={} if self._adapter is None else {"model": self._adapter},
        )

    def _without_padding(self, rows: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """The rows without the padding on their left: at least one row of a batch has none."""
        if self._padding is None or len(rows) == 1 or not len(rows[0]):
            return rows
        padded = beginnings(np.stack(rows) != self._padding)
        return [row[at:] for row, at in zip(rows, padded - padded.min(), strict=True)]
