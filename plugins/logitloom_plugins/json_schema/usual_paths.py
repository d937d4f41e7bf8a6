"""Where a walk of tokens need not look: what would leave the usual path of a string's content.

From every state one step is usual: where its largest class of ASCII characters leads. For a path of 1, 2, 4, ... steps
it is known which characters leave it anywhere, so a subtree of tokens without them is allowed as a whole. Where any
text may follow, as with patterns that only decide what a string is, so is every subtree of plain characters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.row_walk import ascii_columns
from logitloom.automata.trie import MALFORMED
from logitloom_plugins.json_schema.string_states import KeySite, Site

__all__ = ["HIGH_SPECIAL", "LOW_SPECIAL", "UsualPaths"]

#: Steps are followed up to two to the power of this many less one.
LEVELS: Final = 7
#: Characters that never stand for themselves in a string: as bits of the ASCII characters 0-63 and 64-127.
LOW_SPECIAL: Final = np.uint64((1 << 32) - 1 | 1 << ord('"'))
HIGH_SPECIAL: Final = np.uint64(1 << (ord("\\") - 64))
_ALL: Final = ~np.uint64(0)
_MOST_STATES: Final = 20_000
_VARIOUS: Final = -2
_ROUNDS: Final = 6

Common = Callable[[NDArray[Any]], NDArray[Any]]
_CEILING_LOG2: Final = np.array([0, 0, *[(n - 1).bit_length() for n in range(2, (1 << (LEVELS - 1)) + 1)]])


class Leaving(NamedTuple):
    """``[LEVELS, states]``: which characters leave the usual path; ``above``: whether some above ASCII do.

    ``total``: ``[states]``, whether any text may follow.
    """

    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    above: NDArray[np.bool_]
    total: NDArray[np.bool_]


def leaving(site: Site, escapes: str) -> Leaving | None:
    """What leaves the usual paths of a site; ``None`` if that is not worth knowing."""
    labelled = site.content.labelled
    states = labelled.states
    if states > _MOST_STATES or all(labelled.narrow):
        return None
    targets = labelled.next
    if isinstance(site, KeySite):
        living = np.array([bool(bits & site.mask) for bits in site.below], dtype=bool)
        targets = np.where((targets >= 0) & living[targets], targets, -1)
    byte_class = labelled.byte_class
    columns, sizes, bits = ascii_columns(byte_class[:128].tobytes())
    table = targets[:, columns]
    best = np.where(table >= 0, sizes, -1).argmax(axis=1)
    usual = table[np.arange(states), best]
    if site.content.counts:
        # With bounds on the length only a state that can be stayed in is sure to live, as long as there is room.
        usual = np.where(usual == np.arange(states), usual, -1)
    leaves = (table != usual[:, None]) | (table < 0)
    none = np.uint64(0)
    # The last state stands for being lost.
    low = np.append(np.bitwise_or.reduce(np.where(leaves, bits[0], none), axis=1) | LOW_SPECIAL, _ALL)
    high = np.append(np.bitwise_or.reduce(np.where(leaves, bits[1], none), axis=1) | HIGH_SPECIAL, _ALL)
    above = np.ones(states + 1, dtype=bool)
    if escapes != "ascii" and not isinstance(site, KeySite):
        itself = np.arange(states)
        above[:states] = (usual < 0) | (_beyond_ascii(targets, byte_class, itself, -1, _same) != usual)
    there = np.append(np.where(usual < 0, states, usual), states)
    rows: list[Any] = [(low, high, above)]
    for _ in range(LEVELS - 1):
        low, high, above = low | low[there], high | high[there], above | above[there]
        rows.append((low, high, above))
        there = there[there]
    low, high, above = [np.stack(part)[:, :states] for part in zip(*rows, strict=True)]
    free = np.zeros(states, dtype=bool) if escapes == "ascii" or site.content.counts else total(targets, byte_class)
    return Leaving(low, high, above, free)


def _beyond_ascii(
    targets: NDArray[np.int32], byte_class: NDArray[np.uint8], reached: NDArray[Any], lost: Any, common: Common
) -> NDArray[Any]:
    """Per state what all characters above ASCII have in common, given what is so for each state they lead to.

    Args:
        targets: ``[states, classes]``, -1 for none.
        byte_class: ``[256]``.
        reached: ``[states]``.
        lost: the same for no state.
        common: what the columns of an array have in common.
    """
    classes, end = byte_class.tobytes(), np.array([lost])

    def after(reached: NDArray[Any], low: int, high: int) -> NDArray[Any]:
        known = np.concatenate((reached, end))
        return common(known.take(targets.take(_columns(classes, low, high), axis=1)))

    one = after(reached, 0x80, 0xBF)
    two = after(one, 0x80, 0xBF)
    three = after(two, 0x80, 0xBF)
    # Leads with the bytes that may follow: neither overlong forms, nor surrogates, nor beyond U+10FFFF.
    leads = [
        after(one, 0xC2, 0xDF),
        after(after(one, 0xA0, 0xBF), 0xE0, 0xE0),
        after(two, 0xE1, 0xEC),
        after(after(one, 0x80, 0x9F), 0xED, 0xED),
        after(two, 0xEE, 0xEF),
        after(after(two, 0x90, 0xBF), 0xF0, 0xF0),
        after(three, 0xF1, 0xF3),
        after(after(two, 0x80, 0x8F), 0xF4, 0xF4),
    ]
    return common(np.stack(leads, axis=1))


@lru_cache(maxsize=512)
def _columns(byte_class: bytes, low: int, high: int) -> NDArray[np.uint8]:
    """The columns of a range of bytes."""
    return np.unique(np.frombuffer(byte_class, dtype=np.uint8)[low : high + 1])


def _same(each: NDArray[Any]) -> NDArray[Any]:
    return np.where((each == each[:, :1]).all(axis=1), each[:, 0], _VARIOUS)


def _all(each: NDArray[Any]) -> NDArray[Any]:
    result: NDArray[np.bool_] = np.logical_and.reduce(each, axis=1)
    return result


def total(targets: NDArray[np.int32], byte_class: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Per state whether any text may follow, of whatever characters that stand for themselves.

    It is the largest set of states that no character leads out of; where that is long to find, none.
    """
    plain = np.unique(byte_class[[byte for byte in range(0x20, 0x80) if byte not in b'"\\']])
    found: NDArray[np.bool_] = np.ones(len(targets), dtype=bool)
    for _ in range(_ROUNDS):
        staying = _all(np.append(found, False)[targets[:, plain]])
        following: NDArray[np.bool_] = staying & _beyond_ascii(targets, byte_class, found, False, _all)
        if not following.any() or (following == found).all():
            return following
        found = following
    return np.zeros(len(targets), dtype=bool)


class UsualPaths:
    """The usual paths of all sites of a machine, by the number of the machine's state.

    Args:
        escapes: how characters may be written.
    """

    def __init__(self, escapes: str) -> None:
        self._escapes = escapes
        self._base: dict[Site, tuple[int, int]] = {}
        self._low = np.zeros(0, dtype=np.uint64)
        self._high = np.zeros(0, dtype=np.uint64)
        self._above = np.zeros(0, dtype=bool)
        self._total = np.zeros(0, dtype=bool)
        self._place = np.full(64, -1, dtype=np.int64)
        self._stride = np.zeros(64, dtype=np.int64)
        self._room = np.zeros(64, dtype=np.int64)
        self._known = 0

    def learn(self, states: list[Any]) -> None:
        """Take in the states of the machine that have come since the last call."""
        if len(states) > len(self._place):
            more = max(len(states), 2 * len(self._place)) - len(self._place)
            self._place = np.append(self._place, np.full(more, -1, dtype=np.int64))
            self._stride = np.append(self._stride, np.zeros(more, dtype=np.int64))
            self._room = np.append(self._room, np.zeros(more, dtype=np.int64))
        for number in range(self._known, len(states)):
            state = states[number]
            if state[0] != "text" or state[1].content.free:
                continue
            _, site, place, count = state
            base, stride = self._base_of(site)
            if base >= 0:
                self._place[number], self._stride[number] = base + place, stride
                self._room[number] = site.content.room(place, count)
        self._known = len(states)

    def _base_of(self, site: Site) -> tuple[int, int]:
        known = self._base.get(site)
        if known is None:
            found = None if isinstance(site, KeySite) and site.plain else leaving(site, self._escapes)
            known = self._base[site] = (-1, 0) if found is None else (len(self._low), found.low.shape[1])
            if found is not None:
                self._low = np.append(self._low, found.low.ravel())
                self._high = np.append(self._high, found.high.ravel())
                self._above = np.append(self._above, found.above.ravel())
                self._total = np.append(self._total, np.tile(found.total, LEVELS))
        return known

    def reads_on(self, trie: Any, nodes: NDArray[Any], states: NDArray[np.int32]) -> NDArray[np.bool_] | None:
        """For each node whether all below keeps to the usual path of its state; ``None`` if for none."""
        place = self._place.take(states)
        asked = (place >= 0).nonzero()[0]
        if not len(asked):
            return None
        of, height = nodes.take(asked), trie.height.take(nodes.take(asked)).astype(np.int64)
        level = _CEILING_LOG2[np.minimum(height, len(_CEILING_LOG2) - 1)]
        fits = (height < len(_CEILING_LOG2)) & (height <= self._room.take(states.take(asked)))
        place = place.take(asked)
        special = (trie.low.take(of) & LOW_SPECIAL) | (trie.high.take(of) & HIGH_SPECIAL)
        marks = trie.marks.take(of)
        well_formed = marks & MALFORMED == 0
        anything = self._total.take(place) & (special == 0) & well_formed
        place = place + level * self._stride.take(states.take(asked))
        outside = (trie.low.take(of) & self._low.take(place)) | (trie.high.take(of) & self._high.take(place))
        fits &= (outside == 0) & well_formed & ((marks == 0) | ~self._above.take(place))
        fits |= anything
        if not fits.any():
            return None
        done = np.zeros(len(nodes), dtype=bool)
        done[asked] = fits
        return done
