"""llama-cpp-python: a chain as a logits processor, a stopping criterion through which its errors surface, and models.

The library calls processors from C. An exception there is printed and forgotten, and generation goes on without the
constraint. So the processor keeps the exception and ends the text, and the next call from Python raises it: the
stopping criterion if there is one, else the ``Llama`` itself. The criterion also notices that the processor was not
called at all: the library drops processors when ``logit_bias`` is given. :meth:`LlamaCppProcessor.complete` applies
both.
"""

from __future__ import annotations

import functools
import importlib
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from logitloom import Chain, Processor
from logitloom.chain.links import Link
from logitloom.engines import bind, stop_strings
from logitloom.errors import InvalidContext, LogitloomError, NeedsNotMet, NoLegalToken
from logitloom_contrib.engines._copies import MadeAnew
from logitloom_contrib.engines._given import number, token_ids, told
from logitloom_contrib.engines._llama_cpp_answers import StopKeeper
from logitloom_contrib.engines._llama_cpp_model import LlamaCppModel
from logitloom_contrib.engines._llama_cpp_sampling import Bias, Sampling, armed, bias_of, sampling
from logitloom_contrib.row_tracking import RowTracker

__all__ = ["LlamaCppModel", "LlamaCppProcessor", "to_llama_cpp"]

GIVES: Final = frozenset({"prompt", "length", "history", "every_step"})
ENGINE: Final = "llama-cpp-python"
#: The library's default where ``max_tokens`` is not given; None is as many as fit.
MOST_TOKENS: Final[dict[str, int | None]] = {"create_completion": 16, "create_chat_completion": None}


#: The processor of each chain that was given to the library without its adapter.
_DIRECT: Final[weakref.WeakKeyDictionary[Chain, LlamaCppProcessor]] = weakref.WeakKeyDictionary()


def direct_call(chain: Chain, given: tuple[Any, ...], more: dict[str, Any]) -> Any:
    """See :class:`logitloom.engines.DirectCall`. The library swallows errors, so the adapter takes the call."""
    if more or [(type(each), getattr(each, "ndim", -1)) for each in given] != [(np.ndarray, 1)] * 2:
        return None
    processor = _DIRECT.get(chain)
    if processor is None:
        try:
            processor = to_llama_cpp(chain)
        except LogitloomError as error:
            # The library would swallow an error that is raised here; the adapter can raise it.
            processor = to_llama_cpp(chain.part([Link("refused", None, None, processor=_Refused(error))]))
        _DIRECT[chain] = processor
    return processor(*given)


class _Refused(Processor):
    """A processor that raises."""

    def __init__(self, error: LogitloomError) -> None:
        self._error = error

    def process(self, logits: Any, state: Any, context: Any) -> NoReturn:
        """Raise."""
        raise self._error


def to_llama_cpp(
    chain: Chain, model: Any = None, tokenizer: Any = None, *, seed: int = 0, max_length: int | None = None
) -> LlamaCppProcessor:
    """A chain for ``Llama.create_completion``: use :meth:`LlamaCppProcessor.complete`.

    Args:
        chain: the processors.
        model: the ``llama_cpp.Llama`` that will generate; for processors that run a model (guidance) the ``Llama`` gets
            a second context. For guidance a model adapter will do instead.
        tokenizer: any tokenizer, for processors that need a vocabulary; default: the chain's, or that of the model's
            file.
        seed: of processors that draw random numbers.
        max_length: most tokens of a row, if a chain that keeps history should allocate it at once.

    Raises:
        NeedsNotMet: the chain needs what the library does not give, or the model is none.
        InvalidContext: an argument is of the wrong kind.
        ChainIncomplete: options are missing.
    """
    seed, max_length = number(seed, "seed") or 0, number(max_length, "max_length")
    adapter = model if hasattr(model, "empty_cache") else None
    if model is not None and adapter is None and (isinstance(model, type) or not hasattr(model, "create_completion")):
        raise NeedsNotMet(f"{ENGINE} was given {told(model)} as model. Give the Llama that generates.")
    if isinstance(chain, Chain):
        if "model" in chain.needs and model is not None and adapter is None:
            adapter = LlamaCppModel(model, tokenizer=tokenizer)
        if tokenizer is None and chain.vocabulary is None and "vocabulary" in chain.needs:
            tokenizer = getattr(model, "model_path", None)
    chain = bind(chain, ENGINE, GIVES, tokenizer=tokenizer, model=adapter)
    return LlamaCppProcessor(chain, model, adapter if "model" in chain.needs else None, seed, max_length)


class LlamaCppProcessor(MadeAnew):
    """A chain for llama-cpp-python; made by :func:`to_llama_cpp`.

    Use :meth:`complete` and :meth:`chat`. Or pass the object as ``logits_processor``, by itself or in a list, and its
    method :meth:`stopping` as a member of ``stopping_criteria``: this method notices when the chain is not called.
    """

    def __init__(self, chain: Chain, model: Any, adapter: Any, seed: int, max_length: int | None) -> None:
        self.chain, self._model, self._adapter = chain, model, adapter
        self._seed, self._max_length = seed, max_length
        eos = chain.vocabulary.eos if chain.vocabulary is not None else ()
        self._eos = list(eos) or ([int(model.token_eos())] if hasattr(model, "token_eos") else [])
        self._error: Exception | None = None
        #: Takes back what makes the ``Llama`` raise the error.
        self._disarm: Callable[[], None] | None = None
        #: Number of ids of the last call, and whether there was a call since the stopping criterion was last asked.
        self._asked, self._called = 0, False
        #: Whether there was none either before the criterion was asked the last time, as after the end of a text.
        self._missed = True
        #: The limit of tokens and the seed that :meth:`complete` and :meth:`chat` set for their text.
        self._most: int | None = None
        self._text_seed = seed
        #: The library's sampler of a text -> the text's rows: what one text has is no prompt of another.
        self._texts: weakref.WeakKeyDictionary[Any, RowTracker] = weakref.WeakKeyDictionary()
        #: The rows of calls whose sampler is unknown.
        self._others = self._new_tracker(None)

    def _new_tracker(self, most: int | None) -> RowTracker:
        return RowTracker(
            self.chain,
            eos=self._eos,
            seed=self._text_seed,
            max_length=self._max_length,
            max_new_tokens=most,
            context={} if self._adapter is None else {"model": self._adapter},
        )

    def __iter__(self) -> Iterator[LlamaCppProcessor]:
        """The library iterates over ``logits_processor``: one processor is a list of itself."""
        yield self

    def extend(self, more: Iterable[Any]) -> list[Any]:
        """The library extends ``logits_processor`` by its ``logit_bias``, and uses the returned list."""
        return [self, *more]

    def __call__(self, input_ids: NDArray[np.int32], scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Process scores ``[vocab]``, a strided view of the library's memory, after ids ``[length]``."""
        at = sampling(sys._getframe(1))
        ids = np.asarray(input_ids)[: at.text]
        self._asked, self._called = len(ids), True
        if self._error is None:
            try:
                if at.own_grammar:
                    raise _beside_the_chain("grammar")
                _require_whole_text(at, len(ids))
                logits = np.ascontiguousarray(scores)[None]
                processed: NDArray[np.float32] = self._tracker_of(at, len(ids)).process(logits, ids[None])[0]
                return processed
            except Exception as error:  # raised from Python, since the library would swallow it here
                self._keep(error, at.llama)
        if at.own_grammar:
            return np.array(scores)  # the library aborts where its grammar is left without a token
        return self._ended(scores)

    def _tracker_of(self, at: Sampling, length: int) -> RowTracker:
        """The row tracker of the text that is sampled; a text without a tracker begins at this length."""
        if at.sampler is None:
            return self._others
        tracker = self._texts.get(at.sampler)
        if tracker is None:
            room = at.room(length)
            tracker = self._texts[at.sampler] = self._new_tracker(room if self._most is None else min(room, self._most))
        return tracker

    def _keep(self, error: Exception, llama: Any) -> None:
        """Keep an error until it can be raised from Python."""
        self._error = error
        self._disarm = None if llama is None else armed(llama, self.raise_error)

    def _ended(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores that end the text."""
        ended = np.full(scores.shape, -np.inf, dtype=np.float32)
        ended[self._eos or [int(np.argmax(scores))]] = 0.0
        return ended

    def stopping(self, input_ids: Any, logits: Any) -> bool:
        """The stopping criterion: never stops, but raises what went wrong in the processor.

        Raises:
            NeedsNotMet: the processor was not called before the first token, or with ids that are not the text.
            Exception: the exception that :meth:`__call__` caught.
        """
        del logits
        called, missed = self._called, self._missed
        self._called, self._missed = False, not called
        if called and self._asked != len(input_ids):
            self._error = NeedsNotMet(
                f"{ENGINE} showed the chain {self._asked} ids where the text has {len(input_ids)}: with a draft model "
                f"it shows unverified drafts as if they were text. Use a Llama without draft_model."
            )
        if not called and missed:
            self._error = NeedsNotMet(
                f"{ENGINE} did not call the chain. It drops all logits processors when logit_bias is given: use the "
                f"processor's complete(prompt, ...), which applies both, or put the processor 'logit_bias' into the "
                f"chain."
            )
        self.raise_error()
        return False

    def raise_error(self) -> None:
        """Raise and forget the error that the processor kept, if there is such an error.

        Raises:
            Exception: the exception that :meth:`__call__` caught.
        """
        error, self._error = self._error, None
        if self._disarm is not None:
            self._disarm()
            self._disarm = None
        if error is not None:
            self._called, self._missed = False, True
            self._others.forget()
            raise error

    def complete(self, prompt: Any, **options: Any) -> Any:
        """``Llama.create_completion`` with this chain; also with ``logit_bias``, a draft model, and ``stream=True``.

        Args:
            prompt, options: those of ``create_completion``.

        Raises:
            NeedsNotMet: without a model, or with ``grammar`` or ``response_format`` beside the chain.
            InvalidContext: an option is of the wrong kind, or ``logit_bias`` names an id that the model has not.
            NoLegalToken: the chain and the other processors leave no token.
            Exception: the exception of the chain.
        """
        if not isinstance(prompt, str):
            prompt = list(token_ids(prompt, "prompt"))
        kind = _library().StoppingCriteriaList
        options["stopping_criteria"] = kind([self.stopping, *_listed(options, "stopping_criteria")])
        return self._run("create_completion", prompt, options)

    def chat(self, messages: Any, **options: Any) -> Any:
        """``Llama.create_chat_completion`` with this chain, likewise.

        The library takes no stopping criterion there: an error ends the answer and is raised then.

        Args:
            messages, options: those of ``create_chat_completion``.

        Raises:
            NeedsNotMet: without a model, or with ``grammar`` or ``response_format`` beside the chain.
            InvalidContext: an option is of the wrong kind, or ``logit_bias`` names an id that the model has not.
            NoLegalToken: the chain and the other processors leave no token.
            Exception: the exception of the chain.
        """
        return self._run("create_chat_completion", messages, options)

    def _run(self, method: str, given: Any, options: dict[str, Any]) -> Any:
        if not hasattr(self._model, method):
            raise NeedsNotMet("No Llama is bound: give to_llama_cpp(chain, model=...).")
        _refuse_grammars(options)
        most = number(options.get("max_tokens", MOST_TOKENS[method]), "max_tokens")
        bias = bias_of(options.pop("logit_bias", None), int(self._model.n_vocab()))
        last = functools.partial(self._last, bias)
        options["logits_processor"] = _library().LogitsProcessorList(
            [self, *_listed(options, "logits_processor"), last]
        )
        own = options.get("stop")
        stop = [*([own] if isinstance(own, str) else _listed(options, "stop", "texts")), *stop_strings(self.chain)]
        if stop:
            options["stop"] = stop
        keeper = StopKeeper(stop_strings(self.chain, kept=True), len(given) if options.get("echo") else 0)
        seed = number(options.get("seed"), "seed")
        limits = self._limited(most if most is not None and most > 0 else None, seed)
        if options.get("stream"):
            return self._streamed(method, given, options, keeper, limits)
        with limits:
            result = getattr(self._model, method)(given, **options)
        self.raise_error()
        return keeper.cut_answer(result)

    def _streamed(
        self, method: str, given: Any, options: dict[str, Any], keeper: StopKeeper, limits: AbstractContextManager[None]
    ) -> Iterator[Any]:
        with limits:
            yield from map(keeper.cut_answer, getattr(self._model, method)(given, **options))
        self.raise_error()

    @contextmanager
    def _limited(self, most: int | None, seed: int | None) -> Iterator[None]:
        """Within the block, a text begins that has a limit and a seed of its own."""
        self._called, self._missed = False, True
        self._most, self._text_seed = most, self._seed if seed is None else seed
        self._others = self._new_tracker(most)
        try:
            yield
        finally:
            self._most, self._text_seed = None, self._seed
            self._others = self._new_tracker(None)

    def _last(self, bias: Bias, input_ids: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """The last processor of a call: the library's ``logit_bias``, and whether all of them leave a token."""
        scores = scores.copy()
        scores[bias.tokens] += bias.added
        if self._error is None and not (scores > -np.inf).any():
            others = ", ".join(self.chain.labels)
            self._keep(
                NoLegalToken(
                    f"No token is legal for the chain ({others}) together with the logit_bias, min_tokens or "
                    f"logits_processor of the call, after {len(input_ids)} ids. Loosen one of them."
                ),
                sampling(sys._getframe(1)).llama,
            )
            return self._ended(scores)
        return scores


def _require_whole_text(at: Sampling, shown: int) -> None:
    """Raise if the library shows the beginning of a text alone."""
    if at.text is not None and shown < at.text:
        context = at.llama.n_ctx()
        raise NeedsNotMet(
            f"{ENGINE} shows {shown} ids of a text that has {at.text}: it stores as many as n_ctx of the Llama says, "
            f"which llama.cpp rounded up to {context}. Make the Llama with n_ctx={context}."
        )


def _listed(options: dict[str, Any], name: str, wanted: str = "functions") -> list[Any]:
    """An option that is a list of functions or of texts, or None."""
    value = options.get(name)
    if value is None:
        return []
    plain = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | type)
    members = list(value) if plain else [value]
    if not plain or not all(callable(each) if wanted == "functions" else isinstance(each, str) for each in members):
        raise InvalidContext(f"The argument {name!r} must be a list of {wanted}, but is {told(value)}.")
    return members


def _refuse_grammars(options: dict[str, Any]) -> None:
    """Raise if the library would follow a grammar of its own beside the chain."""
    form = options.get("response_format")
    plain = form is None or (isinstance(form, dict) and form.get("type", "text") == "text")
    given = "grammar" if options.get("grammar") is not None else None if plain else "response_format"
    if given is not None:
        raise _beside_the_chain(given)


def _beside_the_chain(given: str) -> NeedsNotMet:
    return NeedsNotMet(
        f"{ENGINE} cannot follow {given!r} and a chain at once: it aborts the process where the two have no token "
        f"in common. Put the constraint into the chain ('json', 'grammar'), or leave out the chain."
    )


def _library() -> Any:
    """The library, whose own list types call each member."""
    return importlib.import_module("llama_cpp")
