"""Tables for compiled walks inside strings: the content's own automaton, not rows made one by one.

String values have them, and names where patterns decide about them. Bytes that may stand for themselves lead where they
lead in the automaton; the characters are counted beside its states, as
:meth:`logitloom.masks.kernels.HostKernels.walk` does it. What the closing quote and a backslash lead to is worked out
where a token has one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom_plugins.json_schema.structure.machine import DEAD, Machine
from logitloom_plugins.json_schema.structure.string_states import KeySite, Site
from logitloom_plugins.json_schema.tokens.self_loops import MANY_STATES, ContentPaths
from logitloom_plugins.json_schema.values.strings import FREE_FOREVER, Content

__all__ = ["ContentTable", "ContentTables", "Counting"]

#: Numbers of characters times states, of which it is known for each whether a text can be completed.
_MOST_COUNTED: Final = 1 << 16
_MOST_COUNTED_ONCE: Final = 1 << 19
_MOST_TABLES: Final = 32
_QUOTE: Final = -2
_BACKSLASH: Final = -3


Automaton = tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.uint8]]
Counting = tuple[int, NDArray[np.uint8], NDArray[np.bool_], NDArray[np.int32], NDArray[np.bool_]]
#: A content's automaton, what leaves its usual paths, and where it stands between two characters.
Table = tuple[Automaton, ContentPaths, NDArray[np.uint8]]

#: What all machines share, so many of them.
_MOST_SHARED: Final = 128
_SHARED: Final[dict[Any, Table]] = {}
_SHARED_LOCK: Final = threading.Lock()


@dataclass(frozen=True, eq=False, slots=True)
class ContentTable:
    """One kind of string, with lengths from ``first`` on.

    Attributes:
        automaton, counting: for a compiled walk.
        paths: what leaves the usual paths.
    """

    machine: Machine
    site: Site
    first: int
    automaton: Automaton
    paths: ContentPaths
    counting: Counting

    def code(self, code: int) -> int:
        """What the machine says for a code of the walk."""
        state, kind = divmod(_QUOTE - code, 2)
        count, place = divmod(state, self.counting[0])
        if kind == 0:
            return self.site.end(place, self.first + count)
        return self.machine.strings.escape(self.site, place, self.first + count)


class ContentTables:
    """The tables of one machine.

    Args:
        machine: the automaton over bytes.
        longest: characters of the longest word that a walk may read.
    """

    def __init__(self, machine: Machine, longest: int) -> None:
        self._machine = machine
        self._longest = longest
        self._has: dict[Site, bool] = {}
        self._automata: dict[Any, Table] = {}
        self._tables: dict[tuple[Site, int, int], ContentTable] = {}

    def covers(self, state: int) -> bool:
        """Whether a state of the machine is in some table."""
        kind = self._machine.states[state]
        return kind[0] == "text" and self.has(kind[1])

    def has(self, site: Site) -> bool:
        """Whether there are tables of a kind of string."""
        known = self._has.get(site)
        if known is None:
            content = site.content
            if isinstance(site, KeySite):
                # Names that are told by their text alone are a tree beside the automaton of all texts.
                known = not site.plain
            else:
                known = not content.counts or self._in_one_word(content) * content.labelled.states <= _MOST_COUNTED_ONCE
            self._has[site] = known
        return known

    def _in_one_word(self, content: Content) -> int:
        """How many numbers of characters one word may go through."""
        return min(content.lengths, self._longest + 1)

    def find(self, state: int) -> tuple[ContentTable, int]:
        """The table in which a state of the machine is, and its number there."""
        _, site, place, count = self._machine.states[state]
        places = site.content.labelled.states
        first, counts = 0, site.content.lengths
        if counts * places > _MOST_COUNTED and counts > 1:
            # From here on, as far as one word goes.
            first, counts = count, min(counts - count, self._in_one_word(site.content))
        table = self._tables.get((site, first, counts))
        if table is None:
            if len(self._tables) >= _MOST_TABLES:
                del self._tables[next(iter(self._tables))]
            table = self._tables[site, first, counts] = self._made(site, first, counts)
        table.paths.around(place)
        return table, (count - first) * places + place

    def _made(self, site: Site, first: int, counts: int) -> ContentTable:
        content = site.content
        automaton, paths, steps = self._automaton(site)
        living = content.living(first, counts)
        rooms = content.rooms(first, counts)
        if content.counts and paths.together.any():
            # A path may come to any of the states inside, and must be alive there.
            alive = np.asarray(living[:, paths.inside].all(axis=1))
            rooms[:, paths.together] = _as_long_as(alive, content.most is None)[:, None]
        counting = (
            *(content.labelled.states, steps if content.counts else np.zeros_like(steps)),
            *(np.ascontiguousarray(living).ravel(), np.minimum(rooms, FREE_FOREVER).astype(np.int32).ravel()),
            # Whoever stays in a state has as much room as there is; elsewhere other states may have more.
            ~paths.together,
        )
        return ContentTable(self._machine, site, first, automaton, paths, counting)

    def _automaton(self, site: Site) -> Table:
        """The content's automaton, what leaves its usual paths, and where it stands between two characters."""
        living = site.living() if isinstance(site, KeySite) else None
        # Names that may come are often the same at other places.
        key = site if living is None else (site.content.labelled, living.tobytes())
        known = self._automata.get(key)
        if known is None:
            labelled = site.content.labelled
            following = labelled.next if living is None else labelled.among(living)
            known = self._automata[key] = _shared_table(site.content, following, self._machine.strings.escapes)
        return known


def _shared_table(content: Content, following: NDArray[np.int32], escapes: str) -> Table:
    """One table for equal contents: many schemas have names that may be any text, and values of the same formats."""
    labelled = content.labelled
    if labelled.states > MANY_STATES:  # their paths are found where somebody walks
        return _table_of(content, following, escapes)
    parts = (following, labelled.next, labelled.byte_class, labelled.accepting)
    key = (*[part.tobytes() for part in parts], escapes, content.counts)
    known = _SHARED.get(key)
    if known is None:
        known = _table_of(content, following, escapes)
        with _SHARED_LOCK:
            while len(_SHARED) >= _MOST_SHARED:
                del _SHARED[next(iter(_SHARED))]
            _SHARED[key] = known
    return known


def _table_of(content: Content, following: NDArray[np.int32], escapes: str) -> Table:
    labelled = content.labelled
    columns = labelled.columns(escapes == "ascii")
    width = len(columns.classes)
    boundaries = np.frombuffer(labelled.boundaries, dtype=np.uint8).copy()
    table = np.empty((labelled.states, width + 3), dtype=np.int32)
    table[:, 0] = DEAD
    table[:, 1 : width + 1] = following.take(columns.classes, axis=1)
    table[:, width + 1] = np.where(labelled.accepting, _QUOTE, DEAD)
    table[:, width + 2] = np.where(boundaries, _BACKSLASH, DEAD)
    byte_class = columns.of_byte.astype(np.uint8)
    byte_class[ord('"')], byte_class[ord("\\")] = width + 1, width + 2
    paths = ContentPaths(content, following, escapes)
    return (table, np.ones(len(table), dtype=bool), byte_class), paths, boundaries


def _as_long_as(living: NDArray[np.bool_], forever: bool) -> NDArray[np.intp]:
    """Per number of characters how many more there may be; ``forever`` if the last number stands for all above."""
    numbers = np.arange(len(living))
    end: NDArray[np.intp] = np.minimum.accumulate(
        np.where(living, len(living) + (FREE_FOREVER if forever else 0), numbers)[::-1]
    )[::-1]
    following: NDArray[np.intp] = np.append(end[1:], end[-1])
    return following - numbers - 1
