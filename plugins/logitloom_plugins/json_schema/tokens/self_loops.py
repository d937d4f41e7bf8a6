"""Where a walk of tokens need not look: what would leave the usual path of a string's content.

From every state one step is usual: where its largest class of ASCII characters leads. For a path of 1, 2, 4, ... steps
it is known which characters leave it anywhere, so a subtree of tokens without them is allowed as a whole. Where any
text may follow, as with patterns that only decide what a string is, so is every subtree of plain characters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.above_ascii import EVERYTHING, marks_above_ascii
from logitloom.automata.row_walk import Paths, ascii_columns, followed, usual_steps
from logitloom.automata.trie import MALFORMED
from logitloom.masks.kernels import host_kernels
from logitloom_plugins.json_schema.structure.string_states import KeySite, Site, StringStates
from logitloom_plugins.json_schema.values.moore_machine import Labelled
from logitloom_plugins.json_schema.values.strings import FREE_FOREVER, Content

__all__ = ["LEVELS", "MANY_STATES", "ContentPaths", "UsualPaths"]

#: Steps are followed up to two to the power of this many less one.
LEVELS: Final = 7
#: Characters that never stand for themselves in a string: as bits of the ASCII characters 0-63 and 64-127.
LOW_SPECIAL: Final = np.uint64((1 << 32) - 1 | 1 << ord('"'))
HIGH_SPECIAL: Final = np.uint64(1 << (ord("\\") - 64))
_ALL: Final = ~np.uint64(0)
_PLAIN: Final = np.uint8(MALFORMED)
_MOST_STATES: Final = 20_000
#: Automata of more states are looked at part by part, each of so many states at least.
MANY_STATES: Final = 384
_NEAR: Final = 256
#: Rounds in search of states that most characters lead from one to another, and how many characters are most.
_ROUNDS: Final = 6
_MOST_CHARACTERS: Final = 64
#: The level at which two ways of knowing what leaves a path are compared.
_COMPARED: Final = 3


class Leaving(NamedTuple):
    """``[states, LEVELS + 1]``: which characters leave the path, as bits, and which other contents (``marks``).

    ``together``: ``[states]``, whether the path is not the usual one but any through the states of ``inside``.
    """

    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    marks: NDArray[np.uint8]
    together: NDArray[np.bool_]
    inside: NDArray[np.bool_]


def leaving(
    targets: NDArray[np.int32], byte_class: NDArray[np.uint8], escapes: str, counts: bool, alone: bool = False
) -> Leaving:
    """What leaves the usual paths of a content.

    Args:
        targets: ``[states, classes]``, next states, -1 for none.
        byte_class: ``[256]``.
        escapes: how characters may be written.
        counts: whether there are bounds on the length.
        alone: whether each state is only asked for its own usual path.
    """
    states = len(targets)
    ascii_part = ascii_columns(byte_class[:128].tobytes())
    source = np.ascontiguousarray(targets)
    if counts:
        # With bounds on the length only a state that can be stayed in is sure to live, as long as there is room.
        source = np.where(source == np.arange(states)[:, None], source, np.int32(-1))
    usual = usual_steps(source, *ascii_part[:2])
    given = np.full(states, EVERYTHING) if escapes == "ascii" else marks_above_ascii(targets, byte_class, usual)
    found = followed(host_kernels(), source, ascii_part, usual, given, LEVELS - 1)
    low, high, marks = found
    levels = Leaving(
        _by_state(low, states) | LOW_SPECIAL,
        _by_state(high, states) | HIGH_SPECIAL,
        _by_state(marks, states),
        *np.zeros((2, states), dtype=bool),
    )
    if not alone:
        inside, low_outside, high_outside = together(targets, byte_class)
        better = inside & (
            _excluded(low_outside, high_outside) < _excluded(levels.low[:, _COMPARED], levels.high[:, _COMPARED])
        )
        if better.any():
            levels.low[better], levels.high[better] = low_outside, high_outside
            levels.marks[better] = EVERYTHING if escapes == "ascii" else marks_together(targets, byte_class, inside)
        levels.together[:], levels.inside[:] = better, inside
    return levels


def _by_state(levels: NDArray[Any], states: int) -> NDArray[Any]:
    """``[states, LEVELS + 1]`` from what is known level by level, with one more state in each."""
    return np.ascontiguousarray(levels.reshape(LEVELS + 1, states + 1).T[:states])


def together(
    targets: NDArray[np.int32], byte_class: NDArray[np.uint8]
) -> tuple[NDArray[np.bool_], np.uint64, np.uint64]:
    """States that most characters lead from one to another, and which characters do not.

    Where a pattern tells much apart but forbids little, as ``.*`` beside anything does, texts of the other characters
    go on whatever they are.

    Returns:
        ``[states] bool``, and the characters that do not, as two words of ASCII.
    """
    columns, sizes, bits = ascii_columns(byte_class[:128].tobytes())
    table = targets[:, columns]
    inside: NDArray[Any] = np.asarray((table >= 0) @ sizes >= _MOST_CHARACTERS)
    for _ in range(_ROUNDS):
        stays = np.append(inside, False)[table]
        left: NDArray[Any] = np.asarray(inside & (stays @ sizes >= _MOST_CHARACTERS))
        if np.array_equal(left, inside):
            break
        inside = left
    stays = np.append(inside, False)[table[inside]].all(axis=0)
    low, high = (np.bitwise_or.reduce(word[~stays], initial=np.uint64(0)) for word in bits)
    return inside, low | LOW_SPECIAL, high | HIGH_SPECIAL


def marks_together(targets: NDArray[np.int32], byte_class: NDArray[np.uint8], inside: NDArray[np.bool_]) -> np.uint8:
    """The same for characters above ASCII, and other contents."""
    # One state stands for all of them, so that it does not matter which of them a character leads to.
    one = np.int32(inside.argmax())
    merged = np.where(np.append(inside, False)[targets], one, targets)
    marks = marks_above_ascii(merged, byte_class, np.where(inside, one, np.int32(-1)))
    return np.uint8(np.bitwise_or.reduce(marks[inside]))


def _excluded(low: Any, high: Any) -> NDArray[np.uint8]:
    """How many ASCII characters are in two words."""
    found: NDArray[np.uint8] = np.bitwise_count(low) + np.bitwise_count(high)
    return found


class ContentPaths:
    """What leaves the usual paths of a string, by the states of its content.

    Args:
        content: what the string holds.
        following: ``[states, classes]``, next states where it can be completed, -1 for none.
        escapes: how characters may be written.

    Of an automaton of many states only those are looked at that are near to where somebody walks.

    Attributes:
        paths: all but ``row_of_height``, which depends on a trie.
        together, inside: ``[states]``, from which states any path is taken that does not leave which; only where the
            whole automaton is looked at.
    """

    def __init__(self, content: Content, following: NDArray[np.int32], escapes: str) -> None:
        labelled = content.labelled
        states = labelled.states
        self._content = content
        self._following = following
        self._escapes = escapes
        self._central: NDArray[np.bool_] | None = None
        if states <= MANY_STATES and not all(labelled.narrow):
            self._found = leaving(following, labelled.byte_class, escapes, content.counts)
        else:
            nowhere = np.zeros(states, dtype=bool)
            self._found = Leaving(*_leaving_all(states), nowhere, nowhere)
            self._central = nowhere.copy() if states > MANY_STATES else None
        low, high, marks, self.together, self.inside = self._found
        none = np.zeros(0, dtype=np.int64)
        self.paths = Paths(low.ravel(), high.ravel(), marks.ravel(), none, states, LEVELS + 1)

    def around(self, place: int) -> None:
        """See to it that what is near to a state is known."""
        if self._central is None or self._central[place] or self._content.labelled.narrow[place]:
            return
        table = self._following
        # One more place for being lost.
        number = np.full(len(table) + 1, -1, dtype=np.int32)
        ring = np.array([place])
        rings = []
        found = 0
        while len(ring) and found < _NEAR:
            number[ring] = np.arange(found, found + len(ring))
            found += len(ring)
            rings.append(ring)
            reached = np.zeros(len(number), dtype=bool)
            reached[table[ring]] = True
            reached[-1] = False
            ring = np.flatnonzero(reached & (number < 0))
        near = np.concatenate(rings)
        # What is further away counts as lost.
        content = self._content
        part = leaving(
            number[table[near]], content.labelled.byte_class, self._escapes, content.counts, alone=content.counts
        )
        self._found.low[near], self._found.high[near], self._found.marks[near] = part[:3]
        self._central[np.concatenate(rings[: (len(rings) + 1) // 2])] = True


class UsualPaths:
    """What must not occur below a node for all that is below it to be allowed, by the number of the machine's state.

    Args:
        strings: the machine's states inside strings.
        apart: of which kinds of strings nothing need be known.
    """

    def __init__(self, strings: StringStates, apart: Callable[[Site], bool] = lambda site: False) -> None:
        self._strings = strings
        self._apart = apart
        self._sites: dict[Site, Leaving | None] = {}
        self._names: dict[tuple[Labelled, bytes], Leaving | None] = {}
        self._known = 0
        self._low, self._high, self._marks = _leaving_all(64)

    def learn(self, states: list[Any]) -> None:
        """Take in the states of the machine that have come since the last call."""
        # One more stands for states that are not known.
        more = len(states) + 1 - len(self._low)
        if more > 0:
            fresh = _leaving_all(max(more, len(self._low)))
            self._low, self._high, self._marks = (
                np.append(part, rows, axis=0)
                for part, rows in zip((self._low, self._high, self._marks), fresh, strict=True)
            )
        # By how many levels are sure: most states inside strings are alike, and arrays are slow to write one by one.
        plain: dict[int, list[int]] = {}
        for number in range(self._known, len(states)):
            state = states[number]
            if state[0] != "text":
                continue
            _, site, place, count = state
            # Between the bytes of a character nobody is on a path.
            if self._apart(site) or not site.content.labelled.boundaries[place]:
                continue
            if isinstance(site, KeySite) and site.in_tree(place):
                continue
            characters = self._strings.free(states[number])
            if characters:
                plain.setdefault(_levels_within(characters, LEVELS + 1), []).append(number)
            elif not site.content.free:
                found = self._leaving(site)
                if found is None:
                    continue
                level = _levels_within(site.content.room(place, count), LEVELS + 1)
                self._low[number, :level] = found.low[place, :level]
                self._high[number, :level] = found.high[place, :level]
                self._marks[number, :level] = found.marks[place, :level]
        for level, numbers in plain.items():
            self._low[numbers, :level], self._high[numbers, :level] = LOW_SPECIAL, HIGH_SPECIAL
            self._marks[numbers, :level] = _PLAIN
        self._known = len(states)

    def _leaving(self, site: Site) -> Leaving | None:
        if site not in self._sites:
            self._sites[site] = self._find_leaving(site)
        return self._sites[site]

    def _find_leaving(self, site: Site) -> Leaving | None:
        content, escapes = site.content, self._strings.escapes
        labelled = content.labelled
        if labelled.states > _MOST_STATES or all(labelled.narrow) or (isinstance(site, KeySite) and site.plain):
            return None
        if not isinstance(site, KeySite):
            return leaving(labelled.next, labelled.byte_class, escapes, content.counts, alone=content.counts)
        living = site.living()
        # Names that may come are often the same at other places.
        key = (labelled, living.tobytes())
        if key not in self._names:
            self._names[key] = leaving(labelled.among(living), labelled.byte_class, escapes, counts=False)
        return self._names[key]

    def of(self, level_of: NDArray[np.int64]) -> Paths:
        """What is known, for a trie.

        Args:
            level_of: by the height of a subtree, from :func:`logitloom.automata.row_walk.levels_of`.
        """
        low, high, marks = self._low.ravel(), self._high.ravel(), self._marks.ravel()
        return Paths(low, high, marks, level_of, len(self._low) - 1, LEVELS + 1)


def _leaving_all(states: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Of some states, that everything leaves their paths."""
    shape = (states, LEVELS + 1)
    return np.full(shape, _ALL), np.full(shape, _ALL), np.full(shape, EVERYTHING)


def _levels_within(characters: int, most: int) -> int:
    """How many levels are sure of no more than some characters; the last one is sure of any number."""
    if characters >= FREE_FOREVER:
        return most
    return min(max(characters, 0).bit_length(), LEVELS)
