"""Models of ONNX Runtime GenAI as model adapters of logitloom's own loop."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Backend
from logitloom.host.registry import load_backend
from logitloom_contrib.engines._column_cache import check_tokens
from logitloom_contrib.engines._given import number, read_from
from logitloom_contrib.engines._stored_beginnings import PrefixCache

__all__ = ["OnnxGenAiModel"]


class _OnnxSequence:
    """A sequence inside a generator of the library, which owns its keys and values."""

    __slots__ = ("generator", "ids")

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self.ids: list[int] = []


class OnnxGenAiModel:
    """A model of ONNX Runtime GenAI: the decoding loop's model adapter.

    Each row is a generator of the library with a batch of one. Greedy decoding, sampling and guidance read each token
    once; beams and rejected drafts read a row again where it parts from another.

    Args:
        model: the ``onnxruntime_genai.Model``.
        max_length: most tokens of a row; keys and values of so many are allocated per row. Default: the value in the
            model's own search options.
        tokenizer: kept as ``tokenizer`` for callers that want text.

    Raises:
        ModelError: the model is none of the library.
        InvalidContext: ``max_length`` is no whole number.
    """

    def __init__(self, model: Any, *, max_length: int | None = None, tokenizer: Any = None) -> None:
        self._library = importlib.import_module("onnxruntime_genai")
        self.model, self.tokenizer = model, tokenizer
        told = read_from(model, self._library.GeneratorParams, "ONNX Runtime GenAI").get_search_options()
        self.max_length = number(max_length, "max_length") or int(told["max_length"])
        self.backend: Backend = load_backend("numpy")
        probe = _OnnxSequence(self._generator())
        self.vocab_size = int(self._read(probe, [0]).shape[-1])

    def _generator(self) -> Any:
        params = self._library.GeneratorParams(self.model)
        params.set_search_options(max_length=self.max_length, batch_size=1, num_beams=1, do_sample=False)
        return self._library.Generator(self.model, params)

    def _read(self, stored: _OnnxSequence, ids: Sequence[int]) -> NDArray[np.float32]:
        """Append ids to a sequence; the logits ``[vocab]`` after the last one."""
        stored.generator.append_tokens(np.asarray(ids, dtype=np.int32))
        stored.ids.extend(ids)
        return np.array(stored.generator.get_logits(), dtype=np.float32).reshape(-1)

    def empty_cache(self, rows: int) -> PrefixCache[_OnnxSequence]:
        """A cache of ``rows`` rows without tokens."""
        return PrefixCache([(None, 0)] * rows)

    def forward(
        self, tokens: NDArray[np.int32], cache: PrefixCache[_OnnxSequence], *, all_positions: bool = False
    ) -> tuple[Array, PrefixCache[_OnnxSequence]]:
        """Append tokens to the rows; see :class:`logitloom.generation.model.ModelAdapter`."""
        host = np.asarray(tokens)
        check_tokens(host, cache, self.vocab_size, self.max_length)
        out = np.zeros((*host.shape, self.vocab_size) if all_positions else (len(host), self.vocab_size), np.float32)
        rows = []
        for row, (stored, length) in enumerate(cache.rows):
            positions = np.flatnonzero(host[row] >= 0)
            new = host[row, positions].tolist()
            if new:
                if stored is None or len(stored.ids) != length:
                    begun = [] if stored is None else stored.ids[:length]
                    stored = _OnnxSequence(self._generator())
                    if begun:
                        self._read(stored, begun)
                # The library keeps the logits of the last token alone.
                for position, part in zip(positions.tolist(), new, strict=True) if all_positions else [(-1, new)]:
                    line = self._read(stored, [part] if all_positions else part)
                    out[(row, position) if all_positions else row] = line
            rows.append((stored, length + len(new)))
        return out, PrefixCache(rows)
