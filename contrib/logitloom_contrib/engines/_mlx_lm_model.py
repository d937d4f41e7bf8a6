"""Models of mlx-lm as model adapters of logitloom's own loop."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import KVCache, make_prompt_cache
from numpy.typing import NDArray

from logitloom import Array, Backend
from logitloom.errors import ModelError
from logitloom.host.registry import load_backend
from logitloom_contrib.engines._column_cache import ColumnCache, check_tokens
from logitloom_contrib.engines._given import read_from

__all__ = ["MlxModel"]


class _Layer:
    """The interface of a cache that a layer of an mlx-lm model uses: earlier keys and values, positions, and a mask."""

    def __init__(self, held: tuple[Array, Array] | None, offset: Array, mask: Array) -> None:
        self.keys: Array = held[0] if held is not None else None
        self.values: Array = held[1] if held is not None else None
        self.offset, self._mask = offset, mask

    def update_and_fetch(self, keys: Array, values: Array) -> tuple[Array, Array]:
        """Earlier and new keys and values."""
        if self.keys is not None:
            keys, values = mx.concatenate([self.keys, keys], axis=2), mx.concatenate([self.values, values], axis=2)
        self.keys, self.values = keys, values
        return keys, values

    def make_mask(self, n: int, return_array: bool = False, window_size: int | None = None) -> Array:
        """``[rows, 1, n, width] bool``: the columns that each new token attends to."""
        del n, return_array, window_size
        return self._mask


class MlxModel:
    """A model of mlx-lm: the decoding loop's model adapter.

    Args:
        model: the first value that ``mlx_lm.load`` returns.
        tokenizer: kept as ``tokenizer`` for callers that want text.
        max_length: most tokens of a row; default: the value in the model's arguments.

    Raises:
        ModelError: for models whose caches cannot be cropped anywhere (sliding windows, recurrent states).
    """

    def __init__(self, model: Any, tokenizer: Any = None, max_length: int | None = None) -> None:
        kinds = {type(layer).__name__ for layer in read_from(model, make_prompt_cache, "mlx-lm")}
        if kinds != {KVCache.__name__}:
            raise ModelError(
                f"{type(model).__module__} keeps caches of the types {sorted(kinds)}; logitloom's loop needs full "
                f"attention in all layers, because rejected drafts are cropped from the cache."
            )
        self.model, self.tokenizer = model, tokenizer
        self.backend: Backend = load_backend("mlx")
        self._layers = len(model.layers)
        self.vocab_size = int(model(mx.array([[0]])).shape[-1])
        declared = getattr(model.args, "max_position_embeddings", None)
        self.max_length = int(max_length or declared or 1 << 30)

    def empty_cache(self, rows: int) -> ColumnCache:
        """A cache of ``rows`` rows without tokens."""
        return ColumnCache.empty(self.backend, rows)

    def forward(
        self, tokens: NDArray[np.int32], cache: ColumnCache, *, all_positions: bool = False
    ) -> tuple[Array, ColumnCache]:
        """Append tokens to the rows; see :class:`logitloom.generation.model.ModelAdapter`."""
        host = np.asarray(tokens)
        check_tokens(host, cache, self.vocab_size, self.max_length)
        rows, n = host.shape
        given = host >= 0
        used = np.concatenate([cache.used, given], axis=1)
        before = used.shape[1] - n
        seen = np.arange(used.shape[1])[None, :] <= before + np.arange(n)[:, None]
        mask = used[:, None, :] & seen[None]
        # A position without a single token to attend to attends to all: its softmax must be defined.
        mask |= ~mask.any(axis=2, keepdims=True)
        native_mask, offset = mx.array(mask[:, None]), mx.array(cache.lengths)
        held = cache.layers or (None,) * self._layers
        layers = [_Layer(layer, offset, native_mask) for layer in held]
        logits = self.model(mx.array(np.where(given, host, 0)), cache=layers)
        after = ColumnCache(self.backend, tuple((layer.keys, layer.values) for layer in layers), used)
        if not all_positions:
            last = np.maximum(given.sum(axis=1) - 1, 0)
            logits = logits[mx.arange(rows), mx.array(last)]
        return logits, after
