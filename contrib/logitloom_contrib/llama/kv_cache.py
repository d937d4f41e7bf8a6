"""Keys and values of the tokens that each row has seen: shared buffers behind immutable caches."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Backend
from logitloom.errors import ModelError

__all__ = ["KVCache", "KVLayout"]

_SMALLEST_CAPACITY = 64


class KVLayout:
    """The properties that all caches of one model share.

    Args:
        backend: where the buffers live.
        dtype: their array API dtype name.
        layers: pairs of buffers (keys, values) per cache.
        kv_heads: heads per buffer.
        head_dim: width of a head.
        max_length: most tokens in a row.
        in_place: whether the model writes into the buffers; else the model replaces the buffers.
    """

    def __init__(
        self, backend: Backend, dtype: str, layers: int, kv_heads: int, head_dim: int, max_length: int, in_place: bool
    ) -> None:
        self.backend, self.dtype, self.layers = backend, dtype, layers
        self.kv_heads, self.head_dim, self.max_length = kv_heads, head_dim, max_length
        self.in_place = in_place

        def take_all(arrays: Sequence[Array], index: Array) -> list[Array]:
            return [backend.take_rows(array, index) for array in arrays]

        # Where every change is a new array, one compiled call replaces a dispatch per buffer.
        self.take_all: Callable[[Sequence[Array], Array], list[Array]] = (
            take_all if in_place else backend.compile(take_all)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        sizes = self.layers, self.kv_heads, self.head_dim, self.max_length
        return KVLayout, (self.backend, self.dtype, *sizes, self.in_place)

    def zeros(self, rows: int, length: int) -> Array:
        """``[rows, kv_heads, length, head_dim]``. Zeros, not garbage: masked slots still meet a weight of 0."""
        host = np.zeros((rows, self.kv_heads, length, self.head_dim), dtype=np.float32)
        return self.backend.cast(self.backend.asarray(host), self.dtype)

    def capacity_for(self, length: int) -> int:
        """Powers of two, so that growing copies each token once on average and compiled shapes are few."""
        capacity = _SMALLEST_CAPACITY
        while capacity < length:
            capacity *= 2
        return min(capacity, self.max_length)


class Buffers:
    """The arrays behind one or several caches, and how far each row of them is in use.

    Attributes:
        arrays: keys of every layer, then values of every layer: ``[rows, kv_heads, capacity, head_dim]`` each;
            empty while the capacity is 0.
        capacity: tokens a row has room for.
        written: ``[rows]``: no living cache reads a row beyond this slot.
    """

    __slots__ = ("arrays", "capacity", "holders", "written")

    def __init__(self, arrays: list[Array], capacity: int, rows: int) -> None:
        self.arrays, self.capacity = arrays, capacity
        self.written: NDArray[np.int32] = np.zeros(rows, dtype=np.int32)
        self.holders: weakref.WeakSet[KVCache] = weakref.WeakSet()

    def free_beyond(self, lengths: NDArray[np.int32], rows: NDArray[np.bool_]) -> bool:
        """Whether the marked rows may be overwritten from ``lengths`` on, because no living cache reads there."""
        if not ((self.written > lengths) & rows).any():
            return True
        # The record only grows; caches that were dropped meanwhile (a rejected draft's) free their slots.
        self.written = np.max([cache.lengths for cache in self.holders], axis=0)
        return not ((self.written > lengths) & rows).any()


class KVCache:
    """Keys and values of independent rows of different lengths, left-aligned: immutable to its holder.

    Caches share buffers. Appending to the newest cache of a buffer writes behind its tokens, which no older
    cache reads; appending to an older cache copies the buffer first. Cropping changes the lengths alone. Made by
    ``LlamaModel.empty_cache`` and ``LlamaModel.forward``.

    Args:
        layout: sizes and backend.
        buffers: the arrays, possibly shared.
        lengths: ``[rows]`` host integers.
    """

    __slots__ = ("__weakref__", "_buffers", "_layout", "_lengths")

    def __init__(self, layout: KVLayout, buffers: Buffers, lengths: NDArray[np.int32]) -> None:
        self._layout, self._buffers = layout, buffers
        self._lengths: NDArray[np.int32] = np.asarray(lengths, dtype=np.int32)
        self._lengths.flags.writeable = False
        buffers.written = np.maximum(buffers.written, self._lengths)
        buffers.holders.add(self)

    @classmethod
    def empty(cls, layout: KVLayout, rows: int) -> KVCache:
        """A cache without tokens; buffers are allocated when the first ones come."""
        return cls(layout, Buffers([], 0, rows), np.zeros(rows, dtype=np.int32))

    def __repr__(self) -> str:
        return f"KVCache(lengths={self._lengths.tolist()}, capacity={self.capacity})"

    @property
    def lengths(self) -> NDArray[np.int32]:
        """``[rows]`` host integers: how many tokens of each row the cache holds."""
        return self._lengths

    @property
    def capacity(self) -> int:
        """Tokens for which each row has room before the buffers grow."""
        return self._buffers.capacity

    def row_count(self) -> int:
        """Number of rows."""
        return len(self._lengths)

    def take_rows(self, index: Any) -> KVCache:
        """Rows ``index`` (host integers; may repeat or be left out); the cache itself if nothing moves.

        Raises:
            ModelError: if an index is negative or beyond the rows.
        """
        host = np.asarray(index, dtype=np.int32).reshape(-1)
        rows = self.row_count()
        if len(host) == rows and (host == np.arange(rows)).all():
            return self
        outside = host[(host < 0) | (host >= rows)]
        if len(outside):
            raise ModelError(f"Row {outside[0]} was asked of a key-value cache with {rows} rows (0 to {rows - 1}).")
        lengths = self._lengths[host]
        if not lengths.any():
            return KVCache.empty(self._layout, len(host))
        layout = self._layout
        arrays = layout.take_all(self._buffers.arrays, layout.backend.asarray(host))
        return KVCache(layout, Buffers(list(arrays), self.capacity, len(host)), lengths)

    def concat_rows(self, others: Sequence[Any]) -> KVCache:
        """The rows of this cache, followed by the rows of the others (caches of the same model).

        Raises:
            ModelError: if a cache belongs to another model.
        """
        caches: list[KVCache] = [self, *others]
        if any(cache._layout is not self._layout for cache in caches):
            raise ModelError("Rows of key-value caches can be joined only if one model made all of them.")
        caches = [cache for cache in caches if cache.row_count()]
        if len(caches) <= 1:
            return caches[0] if caches else self
        lengths = np.concatenate([cache.lengths for cache in caches])
        if not lengths.any():
            return KVCache.empty(self._layout, len(lengths))
        capacity = max(cache.capacity for cache in caches)
        parts = [cache._resized(capacity) for cache in caches]
        joined = [self._layout.backend.concat_rows(arrays) for arrays in zip(*parts, strict=True)]
        return KVCache(self._layout, Buffers(joined, capacity, len(lengths)), lengths)

    def crop(self, lengths: NDArray[np.int32] | Sequence[int]) -> KVCache:
        """Each row shortened to ``lengths[row]`` tokens. The buffers stay as they are.

        Raises:
            ModelError: if there is not one length per row, or a length is negative or above the row's current length.
        """
        wanted = np.array(lengths, dtype=np.int32)
        if wanted.shape != self._lengths.shape:
            raise ModelError(
                f"crop got lengths of shape {list(wanted.shape)} for {self.row_count()} rows; give one per row."
            )
        for row in np.flatnonzero((wanted < 0) | (wanted > self._lengths)):
            raise ModelError(
                f"Row {row} of the key-value cache holds {self._lengths[row]} tokens and cannot be cropped to "
                f"{wanted[row]}; crop only shortens."
            )
        return KVCache(self._layout, self._buffers, wanted)

    # -- for files -----------------------------------------------------------------------------------

    def to_host(self) -> dict[str, NDArray[np.floating[Any]]]:
        """Keys and values of every layer as ``[rows, kv_heads, longest, head_dim]``, zeros where a row is shorter.

        float16 stays float16; every other dtype becomes float32, which represents bfloat16 exactly.
        """
        layout = self._layout
        longest = int(self._lengths.max(initial=0))
        used = (np.arange(longest) < self._lengths[:, None])[:, None, :, None]
        host = "float16" if layout.dtype == "float16" else "float32"
        found: dict[str, NDArray[np.floating[Any]]] = {}
        for i, array in enumerate(self._buffers.arrays):
            name = f"{'keys' if i < layout.layers else 'values'}.{i % layout.layers}"
            part = layout.backend.to_numpy(array[:, :, :longest, :]).astype(host)
            found[name] = np.where(used, part, np.zeros((), dtype=host))
        return found

    @classmethod
    def from_host(cls, layout: KVLayout, arrays: Mapping[str, NDArray[Any]], lengths: NDArray[Any]) -> KVCache:
        """The cache that :meth:`to_host` told, on the layout's backend.

        Raises:
            ModelError: if the arrays have another number of layers, or other sizes, than the model.
        """
        rows = len(lengths)
        if not lengths.any():
            return cls.empty(layout, rows)
        names = [f"{kind}.{i}" for kind in ("keys", "values") for i in range(layout.layers)]
        shape = (rows, layout.kv_heads, int(lengths.max()), layout.head_dim)
        found = {name: array.shape for name, array in arrays.items()}
        if found != dict.fromkeys(names, shape) or shape[2] > layout.max_length:
            raise ModelError(
                f"A key-value cache of {len(found) // 2} layers and shape {next(iter(found.values()), None)} does not "
                f"fit this model, which needs {layout.layers} layers and {shape}, at most {layout.max_length} tokens "
                f"long. It was made by another model."
            )
        capacity = layout.capacity_for(shape[2])
        room = ((0, 0), (0, 0), (0, capacity - shape[2]), (0, 0))
        uploaded = [
            layout.backend.cast(layout.backend.asarray(np.pad(arrays[name], room)), layout.dtype) for name in names
        ]
        return cls(layout, Buffers(uploaded, capacity, rows), lengths)

    # -- for the model -------------------------------------------------------------------------------

    def room(self, counts: NDArray[np.int32]) -> Buffers:
        """Buffers with this cache's tokens, followed by room that may be overwritten.

        Args:
            counts: ``[rows]`` tokens to append to each row.
        """
        needed = int((self._lengths + counts).max(initial=0))
        rows = self.row_count()
        if needed > self.capacity:
            capacity = self._layout.capacity_for(needed)
            return Buffers(self._resized(capacity), capacity, rows)
        if self._layout.in_place and not self._buffers.free_beyond(self._lengths, counts > 0):
            everything = self._layout.backend.asarray(np.arange(rows, dtype=np.int32))
            return Buffers(list(self._layout.take_all(self._buffers.arrays, everything)), self.capacity, rows)
        return self._buffers

    def _resized(self, capacity: int) -> list[Array]:
        layout, rows = self._layout, self.row_count()
        if capacity == self.capacity:
            return self._buffers.arrays
        if not self.capacity:
            if layout.in_place:
                return [layout.zeros(rows, capacity) for _ in range(2 * layout.layers)]
            return [layout.zeros(rows, capacity)] * (2 * layout.layers)
        more = layout.zeros(rows, capacity - self.capacity)
        return [layout.backend.xp.concat([array, more], axis=2) for array in self._buffers.arrays]
