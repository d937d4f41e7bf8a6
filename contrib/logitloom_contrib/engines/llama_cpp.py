"""llama-cpp-python: a chain as a logits processor, and a stopping criterion through which its errors surface.

The library calls processors from C. An exception there is printed and forgotten, and generation goes on without the
constraint; so the processor keeps it and lets the text end, and the stopping criterion, which is called from Python,
raises it. Checked against the protocol, not against the library itself.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.chain import Chain
from logitloom.engines import RowTracker, bind
from logitloom.errors import NeedsNotMet

__all__ = ["LlamaCppProcessor", "to_llama_cpp"]

GIVES: Final = frozenset({"prompt", "length", "history"})
ENGINE: Final = "llama-cpp-python"


def to_llama_cpp(
    chain: Chain, model: Any = None, tokenizer: Any = None, *, seed: int = 0, max_length: int | None = None
) -> LlamaCppProcessor:
    """A chain for ``Llama.create_completion``: use :meth:`LlamaCppProcessor.complete`.

    Args:
        chain: the processors.
        model: the ``llama_cpp.Llama`` that will generate.
        tokenizer: any tokenizer, for processors that need a vocabulary; default: the chain's.
        seed: of processors that draw random numbers.
        max_length: most tokens of a row, if a chain that keeps history should allocate it at once.

    Raises:
        NeedsNotMet: the chain needs what the library does not give, or the model has a draft model, with which the
            library shows processors ids that are no prefix of the text.
        ChainIncomplete: options are missing.
    """
    if getattr(model, "draft_model", None) is not None:
        raise NeedsNotMet(
            f"{ENGINE} shows logits processors unverified drafts when it has a draft_model, so a chain would follow "
            f"tokens that are not part of the text. Make the Llama without draft_model."
        )
    chain = bind(chain, ENGINE, GIVES, tokenizer=tokenizer)
    return LlamaCppProcessor(chain, model, seed, max_length)


class LlamaCppProcessor:
    """A chain for llama-cpp-python; made by :func:`to_llama_cpp`.

    Pass it as a member of ``logits_processor``, and its method :meth:`stopping` as a member of
    ``stopping_criteria``: without the second, an error would end the text and be lost.
    """

    def __init__(self, chain: Chain, model: Any, seed: int, max_length: int | None) -> None:
        self.chain, self._model = chain, model
        eos = chain.vocabulary.eos if chain.vocabulary is not None else ()
        self._eos = list(eos) or ([int(model.token_eos())] if hasattr(model, "token_eos") else [])
        self._tracker = RowTracker(chain, eos=self._eos, seed=seed, max_length=max_length)
        self._error: Exception | None = None

    def __call__(self, input_ids: NDArray[np.int32], scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Process scores ``[vocab]``, a strided view of the library's memory, after ids ``[length]``."""
        if self._error is None:
            try:
                logits = np.ascontiguousarray(scores)[None]
                processed: NDArray[np.float32] = self._tracker.process(logits, np.asarray(input_ids)[None])[0]
                return processed
            except Exception as error:  # raised by stopping(), since the library would swallow it here
                self._error = error
        ended = np.full(scores.shape, -np.inf, dtype=np.float32)
        ended[self._eos or [int(np.argmax(scores))]] = 0.0
        return ended

    def stopping(self, input_ids: Any, logits: Any) -> bool:
        """The stopping criterion: never stops, but raises what went wrong in the processor.

        Raises:
            Exception: what :meth:`__call__` caught.
        """
        del input_ids, logits
        self.raise_error()
        return False

    def raise_error(self) -> None:
        """Raise what went wrong in the processor, if something did, and forget it.

        Raises:
            Exception: what :meth:`__call__` caught.
        """
        error, self._error = self._error, None
        if error is not None:
            self._tracker.forget()
            raise error

    def complete(self, prompt: Any, **options: Any) -> Any:
        """``Llama.create_completion`` with this chain.

        Args:
            prompt, options: those of ``create_completion``.

        Raises:
            NeedsNotMet: with ``logit_bias``, which makes the library drop all logits processors; or without a model.
            Exception: what went wrong in the chain.
        """
        if self._model is None:
            raise NeedsNotMet("No model is bound: give to_llama_cpp(chain, model=...).")
        if options.get("logit_bias"):
            raise NeedsNotMet(
                f"{ENGINE} drops all logits processors when logit_bias is given. Put the processor 'logit_bias' into "
                f"the chain instead."
            )
        for name, own in (("logits_processor", self), ("stopping_criteria", self.stopping)):
            kind = _list_type(name)
            options[name] = kind([own, *(options.get(name) or ())])
        result = self._model.create_completion(prompt, **options)
        self.raise_error()
        return result


def _list_type(name: str) -> Any:
    """The library's own list type, which calls each member."""
    library = importlib.import_module("llama_cpp")
    return library.LogitsProcessorList if name == "logits_processor" else library.StoppingCriteriaList
