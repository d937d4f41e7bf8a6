"""ONNX Runtime GenAI: a chain between a generator's logits and its next token, and models inside logitloom's own loop.

The library has no logits processors; its generator gives the logits of a step and takes them back. Errors of the chain
are raised where it is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Chain
from logitloom.engines import WrittenText, bind, written_text
from logitloom.errors import NeedsNotMet
from logitloom_contrib.engines._adapted_model import adapted
from logitloom_contrib.engines._copies import MadeAnew
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
    eos: Sequence[int] = (),
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
        eos: ids that end a text, as the model's ``genai_config.json`` has them; default: those of the vocabulary.
        padding: the id on the left of shorter prompts of a batch and behind ended rows; default: the first of ``eos``.
        seed: of processors that draw random numbers.
        max_length: most tokens of a row, if a chain that keeps history should allocate it at once.

    Raises:
        NeedsNotMet: the chain needs what the library does not give, or the model is none.
        ChainIncomplete: options are missing.
    """
    chain = bind(chain, ENGINE, GIVES, tokenizer=tokenizer, model=model)
    own = adapted(chain, model, ENGINE, lambda native: OnnxGenAiModel(native, tokenizer=tokenizer))
    ends = tuple(dict.fromkeys([*eos, *(chain.vocabulary.eos if chain.vocabulary is not None else ())]))
    if padding is None and ends:
        padding = ends[0]
    return OnnxGenAiProcessor(chain, getattr(model, "model", model), own, ends, padding, seed, max_length)


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
        self._tracker = RowTracker(
            chain,
            eos=eos,
            padding=() if padding is None else (padding,),
            seed=seed,
            max_length=max_length,
            context={} if adapter is None else {"model": adapter},
        )

    def _made_of(self) -> tuple[Any, ...]:
        return self.chain, self._model, self._adapter, self._eos, self._padding, self._seed, self._max_length

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.chain!r}>"

    def __call__(self, generator: Any) -> None:
        """Process the logits of a generator's next step.

        Args:
            generator: an ``onnxruntime_genai.Generator`` that has read its prompt.

        Raises:
            IllegalToken, NoLegalToken: what is wrong with a row.
        """
        given = np.array(generator.get_logits(), dtype=np.float32)
        logits = given.reshape(-1, given.shape[-1])
        rows = [np.asarray(generator.get_sequence(row)) for row in range(len(logits))]
        ids, starts = right_aligned(self._without_padding(rows))
        beams = bool((logits <= 0).all())  # beams are ranked by log-probabilities
        processed = self._tracker.process(logits, ids, starts, tentative=lambda: beams)
        generator.set_logits(np.ascontiguousarray(processed).reshape(given.shape))

    def generate(self, prompts: Sequence[Sequence[int]], **search: Any) -> list[WrittenText]:
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
        if search.get("num_beams", 1) > 1:
            raise NeedsNotMet(
                f"{ENGINE} gives the sequences of its beams only when it is done, so a chain cannot follow them. Use "
                f"BeamSearch in logitloom's own loop: Generator(OnnxGenAiModel(model), chain, BeamSearch(...))."
            )
        library = importlib.import_module("onnxruntime_genai")
        texts = []
        for prompt in prompts:
            params = library.GeneratorParams(self._model)
            params.set_search_options(**{"do_sample": False, **search, "batch_size": 1})
            generator = library.Generator(self._model, params)
            generator.append_tokens(np.asarray(prompt, dtype=np.int32))
            tokens: list[int] = []
            longest = search.get("max_length")
            # The new prompt may be the beginning of a text that is remembered.
            self._tracker.forget()
            self._tracker.max_new_tokens = None if longest is None else max(int(longest) - len(prompt), 0)
            while not generator.is_done():
                self(generator)
                generator.generate_next_token()
                tokens.append(int(generator.get_next_tokens()[0]))
            texts.append(written_text(self.chain, tokens, prompt=prompt, eos=self._eos))
        return texts

    def _without_padding(self, rows: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """The rows without the padding on their left: at least one row of a batch has none."""
        if self._padding is None or len(rows) == 1 or not len(rows[0]):
            return rows
        padded = [int(np.argmax(row != self._padding)) for row in rows]
        return [row[at - min(padded) :] for row, at in zip(rows, padded, strict=True)]
