"""The remembered calls of an engine: the rows of each call, and the chain's state after them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import Array, ChainState, Context
from logitloom.rows import tree as row_state
from logitloom_contrib.row_tracking.call_snapshot import CallSnapshot, Ids

__all__ = ["Call", "CallMatch", "Generation", "RowOrigin", "started"]

#: The largest number of remembered calls of a generation, with or without their states.
_MOST_CALLS: Final = 8192
#: The largest number of remembered calls if a row that is not found can be replayed. A search through more calls would
#: cost more than a replay.
_MOST_MIXED_CALLS: Final = 256
_ROWS: Final = np.arange(256)
_ZEROS: Final = np.zeros_like(_ROWS)


class RowOrigin(NamedTuple):
    """The origin of a row; with the row's ids, enough to make its state again."""

    prompt: tuple[int, ...]
    seed: int


class Call:
    """One call of the engine: its rows, and the chain's state after them (None after the state was dropped).

    Attributes:
        origin: per row its origin.
        ended: rows that ended (end-of-sequence, padding); their state stays the state before the end.
        dead: rows that accepted a token which the chain forbade: losing beams, draft tokens about to be rejected.
        nbytes: bytes of the state.
        fixed: whether ``nbytes`` depends on the number of rows only.
    """

    __slots__ = ("_fed", "_plain", "asked", "dead", "ended", "fixed", "generation", "nbytes", "origin", "state")

    def __init__(
        self,
        generation: Generation,
        asked: CallSnapshot,
        state: ChainState | None,
        origin: list[RowOrigin],
        fed: NDArray[np.int64] | None,
        ended: NDArray[np.bool_],
        dead: NDArray[np.bool_],
    ) -> None:
        self.generation, self.asked, self.state = generation, asked, state
        self.origin, self._fed, self.ended, self.dead = origin, fed, ended, dead
        self.nbytes, self.fixed = 0, False
        self._plain: bool | None = None

    @property
    def fed(self) -> NDArray[np.int64]:
        """Per row how many of its ids the state has seen, prompt included."""
        return self.asked.lengths if self._fed is None else self._fed

    @property
    def plain(self) -> bool:
        """Whether no row of a finished call ended or died: then every row's state has seen all of the row's ids."""
        if self._plain is None:
            special = self.ended.any() or self.dead.any()
            self._plain = not special and bool((self.fed == self.asked.lengths).all())
        return self._plain

    def one_token_more(self, asked: CallSnapshot, state: ChainState, origin: list[RowOrigin]) -> Call:
        """The call after this plain one, if every row gained a token and stayed as plain.

        The number and the order of the rows may differ from this call's; ``origin`` holds the origins of the new rows.
        """
        no = self.dead if len(origin) == len(self.origin) else np.zeros(len(origin), dtype=np.bool_)
        after = Call(self.generation, asked, state, origin, None, no, no)
        after._plain = True
        return after

    @classmethod
    def continuing(cls, match: CallMatch, asked: CallSnapshot) -> Call:
        """A call whose rows continue the rows of a match; the state of the call is set later."""
        columns = (match.gather(name) for name in ("fed", "ended", "dead"))
        return cls(match.calls[0].generation, asked, None, match.origins(), *columns)

    def began_with(self, prompt_lengths: Sequence[int]) -> bool:
        """Whether the rows have prompts of these lengths."""
        return [len(origin.prompt) for origin in self.origin] == list(prompt_lengths)


class CallMatch(NamedTuple):
    """The earlier row that each row ``i`` of a call continues: row ``rows[i]`` of ``calls[which[i]]``."""

    calls: list[Call]
    which: NDArray[np.int64]
    rows: NDArray[np.int64]
    #: The one earlier call whose rows are continued position by position, if there is such a call.
    grown: Call | None = None
    #: The rows of the new call, where they had to be read for the match.
    asked: CallSnapshot | None = None

    @classmethod
    def in_place(cls, call: Call) -> CallMatch:
        """Each row continues the row at the same position of ``call``."""
        rows = len(call.fed)
        return (
            cls([call], _ZEROS[:rows], _ROWS[:rows], call)
            if rows <= len(_ROWS)
            else cls([call], np.zeros(rows, dtype=np.int64), np.arange(rows), call)
        )

    def gather(self, name: str) -> NDArray[Any]:
        """An attribute of the rows' earlier calls, row by row; a copy."""
        if self.grown is not None:
            column: NDArray[Any] = getattr(self.grown, name)
            return column.copy()
        if len(self.calls) == 1:
            chosen: NDArray[Any] = getattr(self.calls[0], name)[self.rows]
            return chosen
        columns = [getattr(call, name) for call in self.calls]
        together: NDArray[Any] = np.concatenate(columns)[self.positions()]
        return together

    def positions(self) -> NDArray[np.int64]:
        """Where each row is among the rows of all the calls, one call after the other."""
        if len(self.calls) == 1:
            return self.rows
        offsets = np.cumsum([0] + [len(call.fed) for call in self.calls])
        return offsets[self.which] + self.rows

    def origins(self) -> list[RowOrigin]:
        """The origin of each row."""
        if self.grown is not None:
            return self.grown.origin
        calls = self.calls
        if len(calls) == 1:
            origin = calls[0].origin
            return [origin[r] for r in self.rows.tolist()]
        return [calls[w].origin[r] for w, r in zip(self.which.tolist(), self.rows.tolist(), strict=True)]


class Generation:
    """Rows that began in the same call, or all rows of an engine that mixes rows: their origins, and the remembered
    calls.

    Args:
        origins: those of the first call; None if the engine mixes rows and tells their prompts.
        base: the context of each step.

    Attributes:
        origins: the origins in the first call.
        base: the context of each step, before tokens are accepted.
        calls: the remembered calls, the newest last.
        returned: the logits returned for the newest call, which tell whether a next token was forbidden.
        moved: whether rows have changed order or gone back: true for beam search and speculation, false for plain
            decoding.
        spare: a buffer of ids that no call needs any more.
    """

    __slots__ = (
        "_held", "_held_bytes", "_most_calls", "_row_bytes", "base", "calls", "moved", "origins", "returned", "spare"
    )  # fmt: skip

    def __init__(self, origins: list[RowOrigin] | None, base: Context) -> None:
        self.origins, self.base = origins or [], base
        self._most_calls = _MOST_MIXED_CALLS if origins is None else _MOST_CALLS
        self.calls: list[Call] = []
        self.returned: Array | None = None
        self.moved = False
        self.spare: Ids | None = None
        # The calls that still have their state, the bytes of these states, and the bytes of all remembered ids.
        self._held: deque[Call] = deque()
        self._held_bytes = 0
        self._row_bytes = 0

    def note_moves(self, match: CallMatch, asked: CallSnapshot) -> None:
        """Note whether rows change order with a call."""
        newest = self.calls[-1]
        if match.grown is not newest:
            same = len(match.calls) == 1 and match.calls[0] is newest and len(asked.starts) == len(newest.fed)
            self.moved = self.moved or not (same and bool((match.rows == np.arange(len(match.rows))).all()))

    def thin_out(self, match: CallMatch, asked: CallSnapshot) -> None:
        """Let the newest call drop its ids, if each new row is a row of that call with one token more."""
        if match.grown is not None or len(match.calls) > 1 or not self.calls or match.calls[0] is not self.calls[-1]:
            return
        newest = self.calls[-1].asked
        if (asked.lengths == newest.lengths[match.rows] + 1).all():
            asked.came_from(newest, match.rows)
            spare = newest.give_up_ids()
            if spare is not None:
                self.spare = spare
                self._row_bytes += newest.nbytes - spare.nbytes

    def take_spare(self) -> Ids | None:
        """The buffer that no call needs, if there is one; the caller owns the buffer from then on."""
        spare, self.spare = self.spare, None
        return spare

    def remember(self, call: Call, states: int, state_bytes: int) -> None:
        """Remember a call as the newest, with its state; see :meth:`hold` for the bounds, which ids have as well."""
        if not self.calls or call.asked.owned_alone:
            self._row_bytes += call.asked.nbytes
        self.calls.append(call)
        self.hold(call, states, state_bytes)
        if self._row_bytes > state_bytes or len(self.calls) > self._most_calls:
            self._trim()

    def hold(self, call: Call, states: int, state_bytes: int) -> None:
        """Keep the state of a call; drop the oldest ones beyond the bounds, the newest never."""
        held = self._held
        newest = held[-1] if held else None
        if newest is not None and newest.fixed and len(newest.origin) == len(call.origin):
            call.nbytes, call.fixed = newest.nbytes, True
        else:
            call.nbytes, call.fixed = _nbytes(call.state)
        held.append(call)
        self._held_bytes += call.nbytes
        while len(held) > 1 and (len(held) > states or self._held_bytes > state_bytes):
            oldest = held.popleft()
            oldest.state = None
            self._held_bytes -= oldest.nbytes

    def drop_states(self) -> None:
        """Forget all states; the rows stay known, and are replayed when they are needed."""
        for call in self._held:
            call.state = None
        self._held.clear()
        self._held_bytes = 0

    def _trim(self) -> None:
        """Forget the older half of the calls."""
        calls = self.calls
        del calls[: len(calls) // 2]
        blocks = {call.asked.shared: call.asked.nbytes for call in calls}
        self._row_bytes = sum(blocks.values())
        while self._held and self._held[0] is not calls[0] and self._held[0] not in calls:
            self._held_bytes -= self._held.popleft().nbytes


def started(base: Context, origins: Sequence[RowOrigin]) -> Context:
    """The context of a start of rows with these origins."""
    return base.with_fields(
        batch=len(origins),
        prompt=tuple(origin.prompt for origin in origins),
        seed=tuple(origin.seed for origin in origins),
    )


def _nbytes(state: Any) -> tuple[int, bool]:
    leaves = [leaf for _, leaf in row_state.leaves(state)]
    fixed = not any(row_state.is_row_leaf(leaf) for leaf in leaves)
    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in leaves), fixed
