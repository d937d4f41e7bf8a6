"""Catalogues: large sets of items, which are texts or lists of token ids, with a small memory overhead per item.

The sorted items are concatenated in one array. Items with a common prefix are an interval of the sorted list, so a
state is ``(first, last, depth)``: the items ``first`` to ``last - 1``, which have the ``depth`` symbols read so far as
their prefix. A transition is a binary search in the column ``depth``. No trie is built.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.errors import OptionError

__all__ = ["Catalogue", "Interval"]

Interval = tuple[int, int, int]
"""First item, the item after the last one, and the number of symbols read so far."""


class Catalogue:
    """Distinct items in sorted order; immutable.

    Args:
        symbols: ``[total] uint8`` (bytes of texts) or ``int32`` (token ids), the concatenated items.
        offsets: ``[items + 1]`` unsigned integers, the index at which each item begins, and the total.

    Example:
        >>> rows = Catalogue.of_ids([[7, 1], [7, 2, 2], [9]])
        >>> len(rows), rows.item(1), rows.nbytes
        (3, [7, 2, 2], 40)
        >>> rows.step((0, 3, 0), 7), rows.following((0, 2, 1)).tolist()
        ((0, 2, 1), [1, 2])
    """

    def __init__(self, symbols: NDArray[Any], offsets: NDArray[Any]) -> None:
        self.symbols, self.offsets = symbols, offsets
        for array in (symbols, offsets):
            array.setflags(write=False)
        # Single entries are read faster from memory views than from arrays.
        self._symbols, self._offsets = symbols.data, offsets.data

    @classmethod
    def of_texts(cls, texts: Iterable[str | bytes]) -> Catalogue:
        """The catalogue of texts, which may be unsorted and repeated.

        Raises:
            OptionError: if there are no texts, or a text has a lone surrogate.
        """
        try:
            items = [text.encode() if isinstance(text, str) else bytes(text) for text in texts]
        except UnicodeEncodeError as error:
            raise OptionError(f"A text of a catalogue holds half a surrogate pair: {error.object!r:.100}.") from error
        return cls._of_items(items, "u1")

    @classmethod
    def of_ids(cls, rows: NDArray[Any] | Iterable[Sequence[int]]) -> Catalogue:
        """The catalogue of lists of token ids, or of an array ``[items, length]``, which may be unsorted and repeated.

        Raises:
            OptionError: if there are no lists, or an id is not an integer from 0 to 2**31 - 1.
        """
        if isinstance(rows, np.ndarray) and rows.ndim == 2:
            lengths, flat = np.full(len(rows), rows.shape[1], dtype=np.int64), rows.ravel()
        else:
            listed = list(rows)
            lengths = np.fromiter(map(len, listed), dtype=np.int64, count=len(listed))
            flat = np.fromiter((i for row in listed for i in row), dtype=np.int64, count=int(lengths.sum()))
        wrong = flat[(flat < 0) | (flat > np.iinfo(np.int32).max)] if flat.dtype.kind in "iu" else flat[:1]
        if len(wrong):
            raise OptionError(f"A catalogue of token ids holds {wrong[0]!s}; ids are integers from 0 to 2**31 - 1.")
        # Byte strings of big-endian integers have the same order as the integers.
        content, ends = flat.astype(">u4").tobytes(), (4 * lengths.cumsum()).tolist()
        return cls._of_items([content[a:b] for a, b in zip([0, *ends], ends, strict=False)], ">u4")

    @classmethod
    def _of_items(cls, items: list[bytes], kind: str) -> Catalogue:
        if not items:
            raise OptionError("A catalogue needs at least one item, and was given none.")
        items = sorted(set(items))
        symbols = np.frombuffer(b"".join(items), dtype=kind)
        width = symbols.itemsize
        offsets = np.zeros(len(items) + 1, dtype=np.uint32 if len(symbols) < 1 << 32 else np.uint64)
        offsets[1:] = np.fromiter(map(len, items), dtype=np.int64, count=len(items)).cumsum() // width
        return cls(symbols.astype(np.uint8 if width == 1 else np.int32), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Catalogue({len(self)} {'lists of ids' if self.holds_ids else 'texts'}, {self.nbytes} bytes)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalogue) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Any, ...]:
        return Catalogue, (self.symbols, self.offsets)

    @property
    def holds_ids(self) -> bool:
        """Whether the items are lists of token ids instead of texts."""
        return self.symbols.dtype != np.uint8

    @property
    def nbytes(self) -> int:
        """Size in memory, in bytes."""
        return self.symbols.nbytes + self.offsets.nbytes

    @cached_property
    def fingerprint(self) -> bytes:
        """A hash of the items."""
        digest = hashlib.blake2b(digest_size=16, person=b"catalogue")
        digest.update(repr((self.holds_ids, len(self), self.offsets.itemsize)).encode())
        digest.update(self._offsets)
        digest.update(self._symbols)
        return digest.digest()

    def item(self, index: int) -> list[int]:
        """The symbols of the item with an index in the sorted list."""
        return self.symbols[self._offsets[index] : self._offsets[index + 1]].tolist()  # type: ignore[no-any-return]

    def rest(self, index: int, depth: int) -> NDArray[Any]:
        """The symbols of an item from ``depth`` on."""
        return self.symbols[self._offsets[index] + depth : self._offsets[index + 1]]

    def lengths(self, first: int, last: int) -> NDArray[np.int64]:
        """``[last - first] int64``: the number of symbols of each item of an interval."""
        return np.diff(self.offsets[first : last + 1].astype(np.int64))

    def search(
        self, first: NDArray[np.int64], last: NDArray[np.int64], depth: int, symbols: NDArray[Any], *, right: bool
    ) -> NDArray[np.int64]:
        """``numpy.searchsorted`` for many symbols at once, each within the column ``depth`` of its own interval.

        Args:
            first, last: ``[n] int64``, the intervals; their items are longer than ``depth``.
            depth: the column.
            symbols: ``[n]``, the symbol to find in each interval.
            right: whether the result is the index after equal symbols (otherwise the index of the first of them).
        """
        first, last = first.copy(), last.copy()
        open_ = (first < last).nonzero()[0]
        while len(open_):
            middle = (first[open_] + last[open_]) // 2
            found = self.symbols.take(self.offsets.take(middle).astype(np.int64) + depth)
            before = found <= symbols[open_] if right else found < symbols[open_]
            first[open_[before]] = middle[before] + 1
            last[open_[~before]] = middle[~before]
            open_ = open_[first[open_] < last[open_]]
        return first

    # --- intervals ------------------------------------------------------------------------------------------------

    def ends(self, state: Interval) -> bool:
        """Whether an item is complete; then it is the first of its interval, because shorter items come first."""
        first, _, depth = state
        return self._offsets[first + 1] - self._offsets[first] == depth

    def step(self, state: Interval, symbol: int) -> Interval | None:
        """The interval after one more symbol; ``None`` if no item continues with it."""
        first, last, depth = state
        symbols, offsets = self._symbols, self._offsets
        first += offsets[first + 1] - offsets[first] == depth
        if last - first > 1:

            def column(item: int) -> int:
                return symbols[offsets[item] + depth]

            items = range(len(self))
            first = bisect_left(items, symbol, first, last, key=column)
            last = bisect_right(items, symbol, first, last, key=column)
        elif first < last and symbols[offsets[first] + depth] != symbol:
            return None
        return (first, last, depth + 1) if first < last else None

    def groups(self, state: Interval) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The distinct next symbols ``[n]``, sorted, and the first item of each, then the end: ``[n + 1] int64``."""
        first, last, depth = state
        first += self.ends(state)
        column = self.symbols.take(self.offsets[first:last].astype(np.int64) + depth)
        begins = np.append(column[:1] == column[:1], column[1:] != column[:-1]).nonzero()[0]
        return column.take(begins), np.append(begins, last - first) + first

    def following(self, state: Interval) -> NDArray[Any]:
        """``[n]``: the distinct next symbols, sorted."""
        return self.groups(state)[0]
