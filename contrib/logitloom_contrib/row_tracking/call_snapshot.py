"""The token ids of all rows of one engine call, and the search for a later row among them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["CallSnapshot", "Ids"]

#: ``[rows, width]`` integers on the host, right-aligned.
Ids = NDArray[Any]

#: How many ids at the end of a row enter its fingerprint. The row's length stands before them.
_TAIL: Final = 8
_FINGERPRINT: Final = np.dtype((np.void, 8 * (1 + _TAIL)))
_SMALLEST_CAPACITY: Final = 64
#: Maximum number of calls between a snapshot that dropped its ids and the nearest snapshot that has its ids.
_MOST_AWAY: Final = 32
#: How many ids one comparison covers.
_AT_A_TIME: Final = 8192


class _Block:
    """A buffer of ids that consecutive calls share. Each call reads the buffer up to its own width."""

    __slots__ = ("data", "filled")

    def __init__(self, ids: Ids, capacity: int, spare: Ids | None = None) -> None:
        rows, width = ids.shape
        if spare is not None and len(spare) == rows and spare.shape[1] >= width and spare.dtype == ids.dtype:
            self.data = spare
        else:
            self.data = np.empty((rows, capacity), dtype=ids.dtype)
        self.data[:, :width] = ids
        self.filled = width


class _Parents(NamedTuple):
    """The rows of a call, stored as rows of an earlier call with one token appended to each."""

    before: CallSnapshot
    #: ``[rows]``: the row of ``before`` that each row continues.
    rows: NDArray[np.int64]
    #: ``[rows]``.
    tokens: NDArray[Any]
    #: The number of calls on the way to a snapshot that has all of its ids.
    away: int


class CallSnapshot:
    """The rows of one call. A snapshot is immutable.

    Rows that grew in place share a buffer with the earlier calls, so a call stores only its new ids. A call whose rows
    moved drops its ids as soon as a newer call exists. Such a call keeps the source row of each row and the appended
    token, and rebuilds the ids when they are read again.

    Args:
        ids: ``[rows, width]`` host integers, right-aligned; copied.
        starts: ``[rows]``: where each row begins.
        before: the snapshot whose rows the new rows continue position by position, if there is one.
        spare: a buffer that may be used.

    Attributes:
        owned_alone: whether the buffer was made for these rows.
    """

    __slots__ = (
        "_block", "_fingerprints", "_index", "_lengths", "_parents", "_sizes", "owned_alone", "starts", "width"
    )  # fmt: skip

    def __init__(
        self, ids: Ids, starts: NDArray[np.int64], before: CallSnapshot | None = None, spare: Ids | None = None
    ) -> None:
        self.width = ids.shape[1]
        self.starts = starts
        self._lengths: NDArray[np.int64] | None = None
        self._fingerprints: list[bytes] | None = None
        self._index: dict[bytes, list[int]] | None = None
        self._sizes: list[int] | None = None
        self._parents: _Parents | None = None
        block = before._block if before is not None else None
        if block is None or before is None or block.filled != before.width or self.width > block.data.shape[1]:
            # Rows that moved will move again more often than not: little room is made for them to grow.
            room = self.width + _SMALLEST_CAPACITY if before is None else max(_SMALLEST_CAPACITY, 2 * self.width)
            self._block: _Block | None = _Block(ids, room, spare)
            self.owned_alone = True
            return
        block.data[:, before.width : self.width] = ids[:, before.width :]
        block.filled = self.width
        self._block = block
        self.owned_alone = False

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``[rows]``: how many ids each row has."""
        if self._lengths is None:
            self._lengths = self.width - self.starts
        return self._lengths

    @property
    def ids(self) -> Ids:
        """``[rows, width]``; entries before a row's start do not belong to the row."""
        if self._block is None:
            return self._put_together(np.arange(len(self.starts)))
        return self._block.data[:, : self.width]

    @property
    def nbytes(self) -> int:
        """Bytes of the ids; for a buffer, which calls may share, the bytes of the whole buffer."""
        return 3 * self.starts.nbytes if self._block is None else self._block.data.nbytes

    @property
    def shared(self) -> int:
        """A number that is equal for snapshots that share a buffer."""
        return id(self if self._block is None else self._block)

    def row(self, row: int) -> NDArray[Any]:
        """The ids of one row."""
        ids = self._put_together(np.asarray([row]))[0] if self._block is None else self._block.data[row]
        own: NDArray[Any] = ids[self.starts[row] : self.width]
        return own

    def give_up_ids(self) -> Ids | None:
        """The buffer, for another use, if this snapshot can rebuild its ids; no other snapshot may have grown in the
        buffer.
        """
        block = self._block
        if self._parents is None or block is None:
            return None
        self.fingerprints()  # not to be put together for these
        self._block = None
        return block.data

    def came_from(self, before: CallSnapshot, rows: NDArray[np.int64]) -> None:
        """Record that the rows of this snapshot are rows ``rows`` of ``before``, each with one token more."""
        away = 1 if before._parents is None else before._parents.away + 1
        if away <= _MOST_AWAY and self.owned_alone:
            self._parents = _Parents(before, rows, self.ids[:, -1].copy(), away)

    def _put_together(self, rows: NDArray[np.int64]) -> Ids:
        """The ids of some rows, ``[rows, width]``, of a call that gave them up."""
        source, tokens = self, []
        while source._block is None:
            assert source._parents is not None
            tokens.append(source._parents.tokens[rows])
            rows, source = source._parents.rows[rows], source._parents.before
        end = self.width - len(tokens)
        kept = min(end, source.width)
        ids = np.full((len(rows), self.width), -1, dtype=source.ids.dtype)
        ids[:, end - kept : end] = source.ids[rows, source.width - kept :]
        for position, column in enumerate(reversed(tokens), end):
            ids[:, position] = column
        return ids

    def grew_into(self, ids: Ids, starts: NDArray[np.int64]) -> bool:
        """Whether every row of ``ids`` is the row at the same position here and one token more, or no token more."""
        if ids.shape[0] != len(self.starts) or not 0 <= ids.shape[1] - self.width <= 1:
            return False
        return self._continued_by(ids, starts)

    def gained_one(self, ids: Ids, starts: NDArray[np.int64]) -> bool:
        """Whether every row of ``ids`` is the row at the same position here and one token more."""
        return ids.shape == (len(self.starts), self.width + 1) and self._continued_by(ids, starts)

    def _continued_by(self, ids: Ids, starts: NDArray[np.int64]) -> bool:
        """Whether as many rows, at least as long, begin with the rows here and begin at the same positions."""
        # Counting what differs is the fastest of NumPy's ways to compare a few ids.
        if not (starts is self.starts or not np.count_nonzero(starts != self.starts)):
            return False
        at, own = self.width, self.ids
        if len(own) == 1 and own.dtype == ids.dtype:
            return ids.tobytes().startswith(own.tobytes())  # one row lies in one piece
        if own.size > _AT_A_TIME and np.count_nonzero(ids[:, at - 1] != own[:, -1]):
            return False  # rows that moved mostly differ in their last ids already
        return not np.count_nonzero(ids[:, :at] != own)

    def find(self, row: NDArray[Any], position: int, reach: int) -> int | None:
        """The longest row here that ``row`` continues by at most ``reach`` tokens; of equals the one at ``position``.

        A fingerprint of length and last ids finds candidates; every id of a candidate is then compared.
        """
        for length in self._distinct_lengths():
            if not len(row) - reach <= length <= len(row):
                continue
            candidates = self._indexed().get(_fingerprint(row[:length]))
            if candidates is None:
                continue
            found = [i for i in candidates if np.array_equal(self.row(i), row[:length])]
            if found:
                return position if position in found else found[0]
        return None

    def find_each(self, rows: CallSnapshot, reach: NDArray[np.int64]) -> NDArray[np.int64]:
        """The results of :meth:`find` for all ``rows`` at once; -1 where only :meth:`find` itself can decide.

        All rows at once: a look-up each, and one comparison of all ids with those of the rows found.

        Args:
            rows: as many as asked at a time.
            reach: ``[rows]``: how many tokens each may have gained.

        Returns:
            ``[rows]``: -1 where :meth:`find` has to be asked.
        """
        found = np.full(len(rows.starts), -1, dtype=np.int64)
        undecided = np.ones(len(found), dtype=np.bool_)
        for gained in (0, 1):
            if gained > rows.width or (gained == 0 and set(self._distinct_lengths()).isdisjoint(rows.lengths.tolist())):
                continue
            index = self._indexed()
            chosen = np.asarray([
                -1 if known is None else position if position in known else known[0]
                for position, known in enumerate(map(index.get, rows.fingerprints(gained)))
            ])  # fmt: skip
            positions = np.flatnonzero(undecided & (chosen >= 0) & (reach >= gained))
            if len(positions):
                candidates = chosen[positions]
                found[positions] = np.where(self._equal(rows, positions, candidates, gained), candidates, -1)
                # If this candidate differs, another row with the same key may be equal, so a shorter candidate decides
                # nothing.
                undecided[positions] = False
        return found

    def _equal(
        self, rows: CallSnapshot, positions: NDArray[np.int64], candidates: NDArray[np.int64], gained: int
    ) -> NDArray[np.bool_]:
        """Whether rows ``candidates`` here are ``rows`` at ``positions`` without the last ids; they are as long."""
        end, lengths = rows.width - gained, self.lengths[candidates]
        longest, shortest = int(lengths.max()), int(lengths.min())
        equal = np.empty(len(positions), dtype=np.bool_)
        begin, first = end - longest, self.width - longest
        all_rows = len(positions) == len(rows.starts)
        # A few rows at a time, so that the copies stay in the cache.
        step = max(_AT_A_TIME // max(longest, 1), 1)
        for at in range(0, len(positions), step):
            some = slice(at, at + step)
            theirs = rows.ids[some if all_rows else positions[some], begin:end]
            same = theirs == self.ids[candidates[some], first:]
            if shortest < longest:
                same |= np.arange(longest)[None, :] < (longest - lengths[some])[:, None]
            same.all(axis=1, out=equal[some])
        return equal

    def fingerprints(self, gained: int = 0) -> list[bytes]:
        """Length and last ids of every row without its last ``gained`` ids."""
        if gained == 0 and self._fingerprints is not None:
            return self._fingerprints
        end = self.width - gained
        first = max(end - _TAIL, 0)
        told = np.full((len(self.starts), 1 + _TAIL), -1, dtype=np.int64)
        told[:, 0] = end - self.starts
        tail = told[:, 1 + _TAIL - (end - first) :]
        tail[...] = self.ids[:, first:end]
        if int(self.starts.max(initial=0)) > first:
            tail[np.arange(first, end)[None, :] < self.starts[:, None]] = -1
        made: list[bytes] = told.view(_FINGERPRINT)[:, 0].tolist()
        if gained == 0:
            self._fingerprints = made
        return made

    def _distinct_lengths(self) -> list[int]:
        """The lengths that rows here have, the longest first."""
        if self._sizes is None:
            self._sizes = sorted(set(self.lengths.tolist()), reverse=True)
        return self._sizes

    def _indexed(self) -> dict[bytes, list[int]]:
        if self._index is None:
            self._index = {}
            for i, fingerprint in enumerate(self.fingerprints()):
                self._index.setdefault(fingerprint, []).append(i)
        return self._index


def _fingerprint(row: NDArray[Any]) -> bytes:
    told = np.full(1 + _TAIL, -1, dtype=np.int64)
    told[0] = len(row)
    if len(row):
        told[-min(len(row), _TAIL) :] = row[-_TAIL:]
    return told.tobytes()
