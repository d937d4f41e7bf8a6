"""Finding the earlier row that each row of a call continues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom_contrib.row_tracking.call_snapshot import CallSnapshot, Ids
from logitloom_contrib.row_tracking.calls import Call, CallMatch, Generation

__all__ = ["match_separately", "match_together"]

#: Least number of rows for which one joint look-up costs less than a look-up per row.
_MANY: Final = 3


def match_together(
    generations: Iterable[Generation], ids: Ids, starts: NDArray[np.int64], reach: int
) -> CallMatch | None:
    """The earlier rows that the rows of a call continue, if all these earlier rows belong to one generation.

    Args:
        generations: the newest first.
        ids: ``[rows, width]``, right-aligned.
        starts: ``[rows]``: where each row begins.
        reach: most tokens a row may have gained.

    Returns:
        None if the rows are the prompts of a new generation: also when the same prompts come again.
    """
    known = list(generations)
    for generation in known:
        newest = generation.calls[-1]
        if newest.asked.grew_into(ids, starts):
            if newest is generation.calls[0] and ids.shape[1] == newest.asked.width:
                return None  # the same prompts again
            return CallMatch.in_place(newest)
    asked = CallSnapshot(ids, starts, spare=known[0].take_spare() if known else None)
    most = np.full(len(ids), reach, dtype=np.int64)
    for generation in known:
        found = _match_within(generation, asked, most)
        if found is not None:
            return found
    return None


def _match_within(generation: Generation, asked: CallSnapshot, reach: NDArray[np.int64]) -> CallMatch | None:
    newest = generation.calls[-1]
    found = _found_at_once(newest, asked, reach)
    if (found >= 0).all():
        match = CallMatch([newest], np.zeros(len(found), dtype=np.int64), found, asked=asked)
    else:
        calls: list[Call] = []
        which = np.zeros(len(found), dtype=np.int64)
        for position, (at, most) in enumerate(zip(found.tolist(), reach.tolist(), strict=True)):
            source = newest
            if at < 0:
                row = asked.row(position)
                for source in reversed(generation.calls):
                    again = source.asked.find(row, position, most)
                    if again is not None:
                        break
                else:
                    return None
                found[position] = again
            if source not in calls:
                calls.append(source)
            which[position] = calls.index(source)
        match = CallMatch(calls, which, found, asked=asked)
    origins = generation.origins
    if len(found) == len(origins) and all(
        at == position and length == len(origins[position].prompt)
        for position, (at, length) in enumerate(zip(found.tolist(), asked.lengths.tolist(), strict=True))
    ):
        return None  # the same prompts again: a new generation
    return match


def _found_at_once(call: Call, asked: CallSnapshot, reach: NDArray[np.int64]) -> NDArray[np.int64]:
    """Per asked row, the row of a call that it continues, or -1; all -1 if the rows are too few for a joint search."""
    if len(reach) < _MANY:
        return np.full(len(reach), -1, dtype=np.int64)
    return call.asked.find_each(asked, reach)


def match_separately(
    generation: Generation, asked: CallSnapshot, prompt_lengths: Sequence[int], begun: Callable[[list[int]], Call]
) -> CallMatch:
    """The earlier row that each row continues, found row by row, for an engine that tells prompt lengths.

    Args:
        generation: the remembered calls of the engine's rows.
        asked: the rows of a call.
        prompt_lengths: the number of each row's ids that are its prompt; a remembered row has the same number.
        begun: makes a call of new rows, given by their positions in ``asked``.
    """
    reach = asked.lengths - np.asarray(prompt_lengths, dtype=np.int64)
    if not generation.calls:
        new = list(range(len(reach)))
        return CallMatch([begun(new)], np.zeros(len(new), dtype=np.int64), np.asarray(new), asked=asked)
    newest = generation.calls[-1]
    found = _found_at_once(newest, asked, reach)
    calls: list[Call] = []
    which, new = np.zeros(len(found), dtype=np.int64), []
    for position, (at, most, prompt_length) in enumerate(
        zip(found.tolist(), reach.tolist(), prompt_lengths, strict=True)
    ):
        source: Call | None = newest
        if at < 0 or len(newest.origin[at].prompt) != prompt_length:
            source, row = None, asked.row(position)
            for call in reversed(generation.calls):
                again = call.asked.find(row, position, most)
                if again is not None and len(call.origin[again].prompt) == prompt_length:
                    source, found[position] = call, again
                    break
        if source is None:
            found[position] = len(new)
            new.append(position)
            continue
        if source is not newest:
            generation.moved = True  # a row that goes back
        if source not in calls:
            calls.append(source)
        which[position] = calls.index(source)
    if new:
        which[new] = len(calls)
        calls.append(begun(new))
    return CallMatch(calls, which, found, asked=asked)
