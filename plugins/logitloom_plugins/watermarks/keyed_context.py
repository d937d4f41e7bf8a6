"""A keyed hash of the last tokens of each row, and which contexts a row has used already: row state of a fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from logitloom import Array, Backend, Context
from logitloom.arrays import rng
from logitloom_plugins.occurrences import Recent, recent, slide

__all__ = ["KeyedContext", "advance", "first_grams", "hashes", "seeds_of", "start", "unmarked_yet"]

#: Earlier contexts of a row that are remembered.
_HISTORY: Final = 1024
#: Marks an entry of the history that is not filled yet.
_EMPTY: Final = -(1 << 31)


class KeyedContext(NamedTuple):
    """State: a row tree.

    Attributes:
        recent: the last tokens of each row, its prompt's included.
        used: ``[rows, 1024] int32``, hashes of contexts that tokens were chosen after, newest first.
    """

    recent: Recent
    used: Array


def start(context: Context, width: int) -> KeyedContext:
    """The end of the prompt, and no contexts."""
    used = np.full((context.batch, _HISTORY), _EMPTY, dtype=np.int32)
    return KeyedContext(recent(context, True, width), context.backend.asarray(used))


def advance(state: KeyedContext, context: Context, key: int) -> KeyedContext:
    """The state after the newly accepted tokens, each of which was chosen after a context."""
    if context.tokens is None:
        return state
    xp, tokens = context.backend.xp, context.backend.cast(context.tokens, "int32")
    for column in range(tokens.shape[1]):
        token = tokens[:, column : column + 1]
        seeds = seeds_of(state.recent.tokens, key, xp)[:, None]
        longer = xp.concat([seeds, state.used[:, :-1]], axis=1)
        used = xp.where(token >= 0, longer, state.used)
        state = KeyedContext(slide(state.recent, context.with_fields(tokens=token)), used)
    return state


def unmarked_yet(state: KeyedContext, seeds: Array, backend: Backend) -> Array:
    """``[rows] bool``: rows that have a whole context, after which no token was chosen before."""
    xp = backend.xp
    again = xp.any(state.used == seeds[:, None], axis=-1)
    return xp.logical_and(xp.all(state.recent.tokens >= 0, axis=-1), xp.logical_not(again))


def seeds_of(tokens: Array, key: int, xp: object) -> Array:
    """``[rows] int32`` from the last tokens, ``[rows, width]``."""
    seeds = tokens[:, 0] * 0 + rng.fold(key)
    for column in range(tokens.shape[1]):
        seeds = rng.folded(xp, seeds, tokens[:, column])
    return seeds


def hashes(seeds: Array, ids: Array, xp: object) -> Array:
    """A number for each id after a context, int32: different ids have different numbers, so they order the ids."""
    return rng.folded(xp, seeds, ids)


def first_grams(ids: Sequence[int], width: int) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    """``[n, width + 1] int32``: each context of a text with the token that follows it for the first time."""
    found: dict[tuple[int, ...], int] = {}
    for first in range(len(ids) - width):
        found.setdefault(tuple(ids[first : first + width]), ids[first + width])
    return np.asarray([(*before, token) for before, token in found.items()], dtype=np.int32).reshape(-1, width + 1)
