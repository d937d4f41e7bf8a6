"""Causal models of Hugging Face transformers as model adapters of logitloom's own loop."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from logitloom import Array, Backend
from logitloom.errors import ModelError
from logitloom.host.registry import load_backend
from logitloom_contrib.engines._column_cache import ColumnCache, check_tokens
from logitloom_contrib.engines._given import read_from

__all__ = ["TransformersModel"]

#: Layer types whose cache holds every token.
_FULL_ATTENTION = frozenset({"full_attention"})


class TransformersModel:
    """A causal model of transformers: the decoding loop's model adapter.

    Args:
        model: a ``...ForCausalLM`` whose layers all attend to every earlier token.
        tokenizer: kept as ``tokenizer`` for callers that want text.

    Raises:
        ModelError: for what is no model of transformers, for encoder-decoder models, and for layers whose cache cannot
            be cropped (sliding windows, recurrent states).
    """

    def __init__(self, model: Any, tokenizer: Any = None) -> None:
        config = read_from(model, lambda given: given.config.get_text_config(decoder=True), "transformers")
        name = type(model).__name__
        if getattr(config, "is_encoder_decoder", False):
            raise ModelError(f"{name} is an encoder-decoder model; logitloom's loop runs decoders only.")
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds - _FULL_ATTENTION or not getattr(model, "_supports_cache_class", True):
            raise ModelError(
                f"{name} has layers of the types {sorted(kinds)}; logitloom's loop needs full attention in all of "
                f"them, because rejected drafts are cropped from the cache. Use model.generate with to_transformers."
            )
        self.model, self.tokenizer = model, tokenizer
        self.backend: Backend = load_backend("torch").at(model.device)
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        self.max_length = int(getattr(config, "max_position_embeddings", None) or 1 << 30)
        parameters = inspect.signature(model.forward).parameters
        self._keeps = "logits_to_keep" in parameters
        #: The name of the model's argument for the cache: ``cache`` since transformers 5.24.
        self._cache = "cache" if "cache" in parameters else "past_key_values"

    def empty_cache(self, rows: int) -> ColumnCache:
        """A cache of ``rows`` rows without tokens."""
        return ColumnCache.empty(self.backend, rows)

    def forward(
        self, tokens: NDArray[np.int32], cache: ColumnCache, *, all_positions: bool = False
    ) -> tuple[Array, ColumnCache]:
        """Append tokens to the rows; see :class:`logitloom.generation.model.ModelAdapter`."""
        out, logits, after = self._pass(tokens, cache, all_positions=all_positions)
        del out
        return logits, after

    def forward_hidden(self, tokens: NDArray[np.int32], cache: ColumnCache) -> tuple[Array, Array, ColumnCache]:
        """Append tokens to the rows; see :class:`logitloom.generation.model.HiddenStateModel`."""
        out, logits, after = self._pass(tokens, cache, output_hidden_states=True)
        return logits, out.hidden_states[-1], after

    def _pass(
        self, tokens: NDArray[np.int32], cache: ColumnCache, *, all_positions: bool = False, **more: Any
    ) -> tuple[Any, Array, ColumnCache]:
        """The model's output, the logits of the requested positions, and the new cache."""
        host = np.asarray(tokens)
        rows, n = host.shape
        given = host >= 0
        counts = given.sum(axis=1)
        check_tokens(host, cache, self.vocab_size, self.max_length)
        used = np.concatenate([cache.used, given], axis=1)
        attended = used.copy()
        # A row without a single token attends to something, or its softmax would be undefined.
        attended[~used.any(axis=1), used.shape[1] - n :] = True
        positions = np.minimum(cache.lengths[:, None] + np.arange(n), self.max_length - 1)
        last = np.maximum(counts - 1, 0)
        kept, index = np.unique(last, return_inverse=True)
        selects = self._keeps and not all_positions
        if selects:
            more["logits_to_keep"] = self._upload(kept)
        with torch.no_grad():
            out = self.model(
                input_ids=self._upload(np.where(given, host, 0)),
                attention_mask=self._upload(attended),
                position_ids=self._upload(positions),
                use_cache=True,
                **{self._cache: _filled(cache)},
                **more,
            )
        layers = getattr(out, self._cache).layers
        after = ColumnCache(self.backend, tuple((layer.keys, layer.values) for layer in layers), used)
        logits = out.logits
        if not all_positions:
            if logits.shape[1] > 1:
                logits = logits[self._upload(np.arange(rows)), self._upload(index if selects else last)]
            else:
                logits = logits[:, 0]
        return out, logits, after

    def _upload(self, host: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(host, dtype=np.int64)).to(self.model.device)


def _filled(cache: ColumnCache) -> DynamicCache:
    """A cache of transformers with the tensors of a :class:`ColumnCache`; transformers replaces the tensors and never
    changes them.
    """
    native = DynamicCache()
    for keys, values in cache.layers:
        layer = DynamicLayer()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        native.layers.append(layer)
    return native
