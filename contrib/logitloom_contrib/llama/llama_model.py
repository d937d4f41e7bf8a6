"""The Llama forward pass, written once against an array API namespace.

Every row of a batch is a sequence of its own: it has its own length, its tokens stand left-aligned in the
key-value cache, and nothing that a row computes depends on the other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Backend, Vocabulary
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import ModelError
from logitloom_contrib.llama.gguf_file import file_vocabulary
from logitloom_contrib.llama.kv_cache import Buffers, KVCache, KVLayout
from logitloom_contrib.llama.weights import FileWeights, LayerWeights, LlamaConfig, LlamaWeights, random_weights

if TYPE_CHECKING:
    from logitloom_contrib.llama.tokenizer import LlamaTokenizer

__all__ = ["LlamaModel", "random_model"]

#: Most new tokens (rows x positions) of one pass; more go in several, which bounds the memory of attention.
_TOKENS_PER_PASS = 512

#: Largest number of tokens that are multiplied by a weight matrix one at a time.
_FEW_ROWS = 8

#: Takes the new keys and values of a layer, ``[rows, kv_heads, n, head_dim]`` each, and returns all those to attend to.
_Store = Callable[[Array, Array], tuple[Array, Array]]


class _Placement(NamedTuple):
    """Where new tokens go in buffers that cannot be written into.

    Attributes:
        fresh: ``[rows, 1, capacity, 1] bool``: slots that a new token takes.
        source: ``[rows, 1, capacity, 1]``: the index of this token among the row's new tokens.
    """

    fresh: Array
    source: Array


class LlamaModel:
    """A Llama model on one backend: the decoding loop's model adapter.

    Args:
        config: sizes and constants.
        weights: host weights. Each is asked for and uploaded once; on NumPy the model computes with these arrays
            themselves.
        backend: array library and device.
        dtype: array API name of the weights' and logits' dtype: ``float32``, ``float16`` or ``bfloat16``.
            Norms, softmax and rotary angles are computed in float32 whatever it is.
        path: the GGUF file that vocabulary and tokenizer are read from when they are asked for.
        in_place: whether new keys and values are written into the cache's buffers; by default where the
            library's arrays can be assigned to. Else buffers are replaced, and the pass is compiled.

    Raises:
        ModelError: if the backend's library lacks the dtype.

    Example:
        >>> model = random_model("numpy")
        >>> logits, cache = model.forward(np.array([[1, 2, 3]], dtype=np.int32), model.empty_cache(1))
        >>> logits.shape, cache.lengths.tolist()
        ((1, 64), [3])

    References:
        Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023;
        Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021;
        Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models", 2023;
        Shazeer, "GLU Variants Improve Transformer", 2020.
    """

    def __init__(
        self,
        config: LlamaConfig,
        weights: LlamaWeights | FileWeights,
        backend: Backend,
        dtype: str = "float32",
        *,
        path: str | None = None,
        in_place: bool | None = None,
    ) -> None:
        if not hasattr(backend.xp, dtype):
            raise ModelError(f"The backend {backend.name!r} has no dtype {dtype!r}. Use float32, or another backend.")
        self.config, self.backend, self.dtype, self.path = config, backend, dtype, path
        self.vocab_size, self.max_length = config.vocab_size, config.max_length

        def on_device(host: NDArray[np.float32]) -> Array:
            # NumPy computes with the weights themselves, which nothing writes into.
            return backend.cast(host if backend.name == "numpy" else backend.asarray(host), dtype)

        self._embedding, self._norm = on_device(weights.embedding), on_device(weights.norm)
        head = weights.head
        self._head = self._embedding if head is None else on_device(head)
        del head
        cos, sin = _rotary_tables(config, weights.rope_factors)
        self._cos, self._sin = on_device(cos), on_device(sin)
        self._layers = [LayerWeights(*(on_device(part) for part in layer)) for layer in weights.layers]

        self._in_place = backend.assignable if in_place is None else in_place
        c = config
        self._layout = KVLayout(backend, dtype, c.layers, c.kv_heads, c.head_dim, c.max_length, self._in_place)
        self._prepare()

    def _prepare(self) -> None:
        # Compiled piece by piece: all layers share one compiled function, so compiling is quick.
        prepare = self.backend.compile if not self._in_place else lambda function: function
        # Methods of a model without weights: those of the model itself would keep its weights in a reference cycle.
        bare = object.__new__(LlamaModel)
        bare.config, bare.backend, bare.dtype = self.config, self.backend, self.dtype
        self._run_begin, self._run_end = prepare(bare._begin), prepare(bare._end)
        self._run_place, self._run_layer = prepare(bare._place), prepare(bare._replacing_layer)

    def __getstate__(self) -> dict[str, Any]:
        """All but the compiled functions, which are compiled again in the other process."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_run_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __repr__(self) -> str:
        c = self.config
        return f"LlamaModel({c.layers} layers, dim={c.dim}, vocab={c.vocab_size}, {self.dtype} on {self.backend!r})"

    @cached_property
    def tokenizer(self) -> LlamaTokenizer:
        """The tokenizer in the model's file.

        Raises:
            ModelError: if the model has no file, or its tokenizer is of a kind that cannot be built.
        """
        from logitloom_contrib.llama.tokenizer import LlamaTokenizer

        return LlamaTokenizer.from_gguf(self._origin("tokenizer"))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary in the model's file.

        Raises:
            ModelError: if the model has no file.
            VocabularyError: if no tokenizer reader knows the file.
        """
        return file_vocabulary(self._origin("vocabulary"))

    def _origin(self, what: str) -> str:
        if self.path is None:
            raise ModelError(f"This model was not loaded from a file, so it has no {what}.")
        return self.path

    def first_layers(self, layers: int) -> LlamaModel:
        """The model cut off after its first layers: it shares the weights and has caches of its own.

        Args:
            layers: how many layers it keeps, at least 1.

        Raises:
            ModelError: if the model has fewer.
        """
        if not 1 <= layers <= self.config.layers:
            raise ModelError(
                f"A model of {self.config.layers} layers cannot be cut to {layers}. Give a number from 1 to "
                f"{self.config.layers}."
            )
        c = replace(self.config, layers=layers)
        cut = object.__new__(LlamaModel)
        cut.__dict__.update(self.__dict__)
        cut.config, cut._layers = c, self._layers[:layers]
        cut._layout = KVLayout(self.backend, self.dtype, layers, c.kv_heads, c.head_dim, c.max_length, self._in_place)
        return cut

    def empty_cache(self, rows: int) -> KVCache:
        """A cache of ``rows`` rows without tokens."""
        return KVCache.empty(self._layout, rows)

    def cache_from_host(self, arrays: Mapping[str, NDArray[np.floating[Any]]], lengths: NDArray[np.integer]) -> KVCache:
        """A cache on this model's backend, with the arrays that ``KVCache.to_host`` returned.

        Raises:
            ModelError: if the arrays do not fit this model.
        """
        return KVCache.from_host(self._layout, arrays, lengths)

    def forward(
        self, tokens: NDArray[np.int32], cache: KVCache, *, all_positions: bool = False
    ) -> tuple[Array, KVCache]:
        """Append tokens to the rows and return the logits after them.

        Args:
            tokens: ``[rows, n]`` host integers; rows with fewer new tokens are filled with -1 at the right
                (a row may have none).
            cache: keys and values of the rows so far; the cache stays valid and unchanged.
            all_positions: return the logits after every new token instead of the last one of each row.

        Returns:
            ``[rows, vocab]`` logits in the model's dtype, after each row's last new token (undefined for a row
            without any), or ``[rows, n, vocab]`` (undefined where ``tokens`` is -1); and the new cache.

        Raises:
            ModelError: if a row would exceed ``max_length``, an id is out of range, or the shape is wrong.
        """
        tokens = np.asarray(tokens)
        counts = self._checked_counts(tokens, cache)
        rows, n = tokens.shape
        if not rows or not n:
            return self._zeros(*((rows, n) if all_positions else (rows,)), self.vocab_size), cache
        hidden, cache = self._pass(tokens, cache)
        if all_positions:
            return self._run_end(hidden, self._norm, self._head)[:, :n, :], cache
        return self._run_end(self._last(hidden, counts), self._norm, self._head)[:, 0, :], cache

    def forward_hidden(self, tokens: NDArray[np.int32], cache: KVCache) -> tuple[Array, Array, KVCache]:
        """Append tokens to the rows, and return the hidden states that the output head reads, too.

        Args:
            tokens: as for :meth:`forward`.
            cache: keys and values of the rows so far; the cache stays valid and unchanged.

        Returns:
            ``[rows, vocab]`` logits after each row's last new token; ``[rows, n, dim]`` hidden states after the final
            norm, in the model's dtype, undefined where ``tokens`` is -1; and the new cache.

        Raises:
            ModelError: as :meth:`forward` does.

        Example:
            >>> model = random_model("numpy", dim=32)
            >>> tokens = np.array([[1, 2, 3]], dtype=np.int32)
            >>> logits, hidden, cache = model.forward_hidden(tokens, model.empty_cache(1))
            >>> logits.shape, hidden.shape
            ((1, 64), (1, 3, 32))
        """
        tokens = np.asarray(tokens)
        counts = self._checked_counts(tokens, cache)
        rows, n = tokens.shape
        if not rows or not n:
            return self._zeros(rows, self.vocab_size), self._zeros(rows, n, self.config.dim), cache
        hidden, cache = self._pass(tokens, cache)
        logits = self._run_end(self._last(hidden, counts), self._norm, self._head)[:, 0, :]
        return logits, self._rms_norm(hidden, self._norm)[:, :n, :], cache

    def _zeros(self, *shape: int) -> Array:
        return self.backend.cast(self.backend.asarray(np.zeros(shape, dtype=np.float32)), self.dtype)

    # -- host side -----------------------------------------------------------------------------------

    def _checked_counts(self, tokens: NDArray[np.int32], cache: KVCache) -> NDArray[np.int32]:
        """``[rows]``: new tokens of each row, after checking them."""
        if tokens.ndim != 2 or tokens.shape[0] != cache.row_count():
            raise ModelError(
                f"forward got tokens of shape {list(tokens.shape)} for a cache of {cache.row_count()} rows; they must "
                f"be [rows, n]."
            )
        if tokens.dtype.kind not in "iu":
            raise ModelError(f"forward got tokens of dtype {tokens.dtype}; they must be integers.")
        real = tokens >= 0
        counts: NDArray[np.int32] = real.sum(axis=1, dtype=np.int32)
        if tokens.size and (tokens.min() < -1 or tokens.max() >= self.vocab_size):
            row, column = np.argwhere((tokens < -1) | (tokens >= self.vocab_size))[0]
            raise ModelError(
                f"forward got the token {tokens[row, column]} in row {row} at position {column}; ids are 0 to "
                f"{self.vocab_size - 1}, and -1 stands for none."
            )
        if (real != (np.arange(tokens.shape[1]) < counts[:, None])).any():
            raise ModelError("forward got a token to the right of a -1; rows are filled with -1 at the right only.")
        total = cache.lengths + counts
        if (total > self.max_length).any():
            row = int(np.argmax(total))
            raise ModelError(
                f"Row {row} would hold {total[row]} tokens; this model takes at most {self.max_length}. Shorten the "
                f"prompt, or generate fewer tokens."
            )
        return counts

    def _pass(self, tokens: NDArray[np.int32], cache: KVCache) -> tuple[Array, KVCache]:
        """Hidden states ``[rows, n or more, dim]`` before the final norm, and the new cache."""
        width = max(1, _TOKENS_PER_PASS // tokens.shape[0])
        passes = []
        for start in range(0, tokens.shape[1], width):
            hidden, cache = self._extend(tokens[:, start : start + width], cache)
            passes.append(hidden)
        return passes[0] if len(passes) == 1 else self.backend.xp.concat(passes, axis=1), cache

    def _last(self, hidden: Array, counts: NDArray[np.int32]) -> Array:
        """``[rows, 1, dim]``: of hidden states ``[rows, n, dim]`` those of each row's last new token."""
        rows, n, dim = hidden.shape
        if n == 1:
            return hidden
        last = np.arange(rows) * n + np.maximum(counts - 1, 0)
        flat = self.backend.xp.reshape(hidden, (-1, dim))
        return self.backend.take_rows(flat, last.astype(np.int32))[:, None, :]

    def _extend(self, tokens: NDArray[np.int32], cache: KVCache) -> tuple[Array, KVCache]:
        """One pass over a few columns: hidden states ``[rows, n or more, dim]``, and the new cache."""
        counts = (tokens >= 0).sum(axis=1, dtype=np.int32)
        lengths, buffers = cache.lengths, cache.room(counts)
        if self._in_place:
            hidden = self._write_pass(tokens, lengths, counts, buffers)
        else:
            hidden, buffers = self._replace_pass(tokens, lengths, counts, buffers)
        return hidden, KVCache(self._layout, buffers, lengths + counts)

    def _write_pass(
        self, tokens: NDArray[np.int32], lengths: NDArray[np.int32], counts: NDArray[np.int32], buffers: Buffers
    ) -> Array:
        backend, layers = self.backend, self.config.layers
        n = tokens.shape[1]
        aligned = bool((lengths == lengths[0]).all() and (counts == n).all())
        span = int((lengths + counts).max())
        write = _aligned_writer(int(lengths[0]), n) if aligned else _ragged_writer(backend, tokens, lengths)
        ids, positions = self._upload(tokens, lengths)
        # A single new token of aligned rows attends to all slots, so no mask is needed.
        slots = None if aligned and n == 1 else backend.arange(span)
        x, cos, sin, hidden = self._run_begin(ids, positions, slots, self._embedding, self._cos, self._sin)

        def store(keys: Array, values: Array, new_keys: Array, new_values: Array) -> tuple[Array, Array]:
            write(keys, new_keys)
            write(values, new_values)
            return keys[:, :, :span], values[:, :, :span]

        for i, layer in enumerate(self._layers):
            keys, values = buffers.arrays[i], buffers.arrays[layers + i]
            x = self._layer(x, layer, cos, sin, hidden, partial(store, keys, values))
        return x

    def _replace_pass(
        self, tokens: NDArray[np.int32], lengths: NDArray[np.int32], counts: NDArray[np.int32], buffers: Buffers
    ) -> tuple[Array, Buffers]:
        backend, layers = self.backend, self.config.layers
        rows, n = tokens.shape
        padded = np.full((rows, 1 << (n - 1).bit_length()), -1, dtype=np.int32)
        padded[:, :n] = tokens
        ids, positions = self._upload(padded, lengths)
        slots = backend.arange(buffers.capacity)
        x, cos, sin, hidden = self._run_begin(ids, positions, slots, self._embedding, self._cos, self._sin)
        placement = self._run_place(positions, backend.asarray(counts), slots)
        keys: list[Array] = []
        values: list[Array] = []
        for i, layer in enumerate(self._layers):
            old = buffers.arrays[i], buffers.arrays[layers + i]
            x, new_keys, new_values = self._run_layer(x, layer, cos, sin, hidden, *old, placement)
            keys.append(new_keys)
            values.append(new_values)
        return x[:, :n, :], Buffers(keys + values, buffers.capacity, rows)

    def _upload(self, tokens: NDArray[np.int32], lengths: NDArray[np.int32]) -> tuple[Array, Array]:
        """Ids and positions, ``[rows, n] int32`` each, valid also where there is no token."""
        positions = np.minimum(lengths[:, None] + np.arange(tokens.shape[1]), self.max_length - 1)
        return (
            self.backend.asarray(np.maximum(tokens, 0).astype(np.int32)),
            self.backend.asarray(positions.astype(np.int32)),
        )

    # -- the pass itself: pure functions of arrays ---------------------------------------------------

    def _begin(
        self, ids: Array, positions: Array, slots: Array | None, embedding: Array, cos: Array, sin: Array
    ) -> tuple[Array, Array, Array, Array | None]:
        """Embeddings ``[rows, n, dim]``, rotations ``[rows, n, 1, head_dim]``, and what attention must not see.

        The last, ``[rows, 1, 1, n, slots] bool``, marks later positions of the row; that hides free slots too,
        because they stand behind all tokens.
        """
        xp = self.backend.xp
        rows, n = ids.shape
        flat = xp.reshape(positions, (-1,))
        hidden = None if slots is None else slots > positions[:, None, None, :, None]
        return (
            xp.reshape(xp.take(embedding, xp.reshape(ids, (-1,)), axis=0), (rows, n, -1)),
            xp.reshape(xp.take(cos, flat, axis=0), (rows, n, 1, -1)),
            xp.reshape(xp.take(sin, flat, axis=0), (rows, n, 1, -1)),
            hidden,
        )

    def _layer(self, x: Array, w: LayerWeights, cos: Array, sin: Array, hidden: Array | None, store: _Store) -> Array:
        """One block: ``x + attention(norm(x))``, then ``x + swiglu(norm(x))``; ``x: [rows, n, dim]``."""
        backend, xp, c = self.backend, self.backend.xp, self.config
        rows, n, _ = x.shape
        shared = c.heads // c.kv_heads
        rotated = c.heads + c.kv_heads

        heads = xp.reshape(self._linear(self._rms_norm(x, w.attention_norm), w.qkv), (rows, n, -1, c.head_dim))
        turned = self._rotate(heads[:, :, :rotated, :], cos, sin)
        queries = turned[:, :, : c.heads, :] * c.head_dim**-0.5
        new_keys = xp.permute_dims(turned[:, :, c.heads :, :], (0, 2, 1, 3))
        new_values = xp.permute_dims(heads[:, :, rotated:, :], (0, 2, 1, 3))
        keys, values = store(new_keys, new_values)
        span = keys.shape[2]

        # The queries that share a key head are stacked, so that keys and values need not be repeated.
        queries = xp.permute_dims(xp.reshape(queries, (rows, n, c.kv_heads, shared, c.head_dim)), (0, 2, 3, 1, 4))
        queries = xp.reshape(queries, (rows, c.kv_heads, shared * n, c.head_dim))
        scores = queries @ xp.permute_dims(keys, (0, 1, 3, 2))
        if hidden is not None:
            scores = xp.reshape(scores, (rows, c.kv_heads, shared, n, span))
            scores = backend.masked_fill(scores, hidden, NEG_INF, donate=True)
            scores = xp.reshape(scores, (rows, c.kv_heads, shared * n, span))
        mixed = backend.cast(backend.softmax(scores), self.dtype) @ values
        mixed = xp.permute_dims(xp.reshape(mixed, (rows, c.kv_heads, shared, n, c.head_dim)), (0, 3, 1, 2, 4))
        x = x + self._linear(xp.reshape(mixed, (rows, n, -1)), w.attention_output)

        both = self._linear(self._rms_norm(x, w.feed_forward_norm), w.gate_up)
        gate, up = both[:, :, : c.hidden], both[:, :, c.hidden :]
        # sigmoid(g) = (1 + tanh(g / 2)) / 2 overflows nowhere
        return x + self._linear(gate * (xp.tanh(gate * 0.5) * 0.5 + 0.5) * up, w.down)

    def _replacing_layer(
        self,
        x: Array,
        w: LayerWeights,
        cos: Array,
        sin: Array,
        hidden: Array,
        keys: Array,
        values: Array,
        placement: _Placement,
    ) -> tuple[Array, Array, Array]:
        """One block: its output, and its buffers with the new keys and values."""
        xp = self.backend.xp
        kept: list[Array] = []

        def store(*new: Array) -> tuple[Array, Array]:
            for old, fresh in zip((keys, values), new, strict=True):
                spread = fresh if fresh.shape[2] == 1 else xp.take_along_axis(fresh, placement.source, axis=2)
                kept.append(xp.where(placement.fresh, spread, old))
            return kept[0], kept[1]

        x = self._layer(x, w, cos, sin, hidden, store)
        return x, kept[0], kept[1]

    def _place(self, positions: Array, counts: Array, slots: Array) -> _Placement:
        xp = self.backend.xp
        offset = slots[None, :] - positions[:, :1]
        fresh = (offset >= 0) & (offset < counts[:, None])
        source = xp.where(fresh, offset, xp.zeros_like(offset))
        return _Placement(fresh[:, None, :, None], source[:, None, :, None])

    def _end(self, x: Array, norm: Array, head: Array) -> Array:
        """Logits ``[rows, n, vocab]`` of hidden states ``[rows, n, dim]``."""
        return self._linear(self._rms_norm(x, norm), head)

    def _linear(self, x: Array, weight: Array) -> Array:
        """``x @ weight.T`` for ``x: [rows, n, in]`` and ``weight: [out, in]``."""
        rows, n, width = x.shape
        xp = self.backend.xp
        weight = xp.permute_dims(weight, (1, 0))
        # NumPy multiplies a matrix and a few vectors fastest one by one, by a factor of three for two tokens of a row;
        # other libraries take both forms for the same.
        if n == 1 and rows <= _FEW_ROWS:
            return x @ weight
        if rows * n <= _FEW_ROWS and self.backend.name == "numpy":
            return xp.reshape(xp.reshape(x, (rows * n, 1, width)) @ weight, (rows, n, -1))
        if rows == 1:
            return x @ weight
        return xp.reshape(xp.reshape(x, (rows * n, width)) @ weight, (rows, n, -1))

    def _rms_norm(self, x: Array, weight: Array) -> Array:
        """``x / sqrt(mean(x^2) + eps) * weight``."""
        backend, xp = self.backend, self.backend.xp
        wide = backend.cast(x, "float32")
        scale = xp.sqrt(xp.mean(wide * wide, axis=-1, keepdims=True) + self.config.rms_eps)
        return backend.cast(wide / scale, self.dtype) * weight

    def _rotate(self, heads: Array, cos: Array, sin: Array) -> Array:
        """``heads: [rows, n, h, head_dim]`` with dimensions ``i`` and ``i + head_dim / 2`` turned by their angle."""
        half = self.config.head_dim // 2
        swapped = self.backend.xp.concat([heads[..., half:], heads[..., :half]], axis=-1)
        return heads * cos + swapped * sin


def _rotary_tables(
    config: LlamaConfig, factors: NDArray[np.float32] | None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosines, and sines with the sign that the first half takes: ``[max_length, head_dim]`` each."""
    half = config.head_dim // 2
    frequency = config.rope_base ** (-np.arange(half, dtype=np.float64) / half) / config.rope_scale
    if factors is not None:
        frequency = frequency / factors
    angle = np.arange(config.max_length, dtype=np.float64)[:, None] * frequency
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    return np.concatenate([cos, cos], axis=1), np.concatenate([-sin, sin], axis=1)


def _aligned_writer(start: int, n: int) -> Callable[[Array, Array], None]:
    def write(buffer: Array, new: Array) -> None:
        buffer[:, :, start : start + n] = new

    return write


def _ragged_writer(
    backend: Backend, tokens: NDArray[np.int32], lengths: NDArray[np.int32]
) -> Callable[[Array, Array], None]:
    """Writes each row's tokens behind its own, and nothing for the padding."""
    row, column = np.nonzero(tokens >= 0)
    rows, columns = backend.asarray(row.astype(np.int32)), backend.asarray(column.astype(np.int32))
    targets = backend.asarray((lengths[row] + column).astype(np.int32))

    def write(buffer: Array, new: Array) -> None:
        buffer[rows, :, targets] = new[rows, :, columns]

    return write


def random_model(
    backend: Backend | str = "numpy",
    seed: int = 0,
    *,
    vocab: int = 64,
    layers: int = 2,
    dim: int = 32,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    max_length: int = 512,
    dtype: str = "float32",
    tied: bool = True,
    in_place: bool | None = None,
) -> LlamaModel:
    """A tiny model with random weights, for tests: the same on every backend for one seed.

    Args:
        backend: a backend, or the name of one.
        seed: of the weights.
        vocab: width of the logits.
        layers: number of blocks.
        dim: width of the residual stream; ``heads`` divides it, evenly twice.
        hidden: inner width of the feed-forward network.
        heads: query heads.
        kv_heads: key and value heads; divides ``heads``.
        max_length: most tokens in a row.
        dtype: array API name.
        tied: whether the embedding serves as the output head.
        in_place: as for :class:`LlamaModel`.

    Example:
        >>> random_model("numpy", vocab=10).vocab_size
        10
    """
    if isinstance(backend, str):
        from logitloom.host.registry import load_backend

        backend = load_backend(backend)
    config = LlamaConfig(vocab, layers, dim, hidden, heads, kv_heads, dim // heads, max_length)
    return LlamaModel(config, random_weights(config, seed, tied=tied), backend, dtype, in_place=in_place)
