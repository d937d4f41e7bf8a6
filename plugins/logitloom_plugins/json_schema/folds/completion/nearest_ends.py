"""The nearest end of the content of a string or a number, from each of its states and for each of its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import by_key
from logitloom.automata.deterministic.reach import distinct_steps, steps_to
from logitloom_plugins.json_schema.folds.completion.short_contents import columns_of
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import Output

__all__ = ["NearestEnds", "text_to_end"]

#: The most pairs of a state and an output that can be reached from the state; and the fewest outputs for which such
#: pairs are listed.
_MOST_LISTED: Final = 1 << 17
_FEW: Final = 8
#: The most characters of a text that is found by distances.
_MOST_WRITTEN: Final = 1 << 16
#: The most pairs of a state and an output whose distances are all computed to find the largest one.
_MOST_COMPARED: Final = 1 << 19


class NearestEnds:
    """The shortest contents with an output, from any state on.

    An enumeration of thousands of values has as many outputs. Few of them can be reached from most states, which are
    therefore listed by state. Where each state reaches many outputs, the distances of all states are found for one
    output at a time.

    Args:
        content: the content.

    Attributes:
        columns: the bytes of :func:`.columns_of`: the first one that leads to the end is written.
    """

    def __init__(self, content: Content) -> None:
        automaton = content.automaton
        self._states = automaton.states
        self._counted = content.counts
        self.columns = columns_of(automaton)
        self._next = content.counted_steps() if content.counts else automaton.next
        counts = range(len(self._next) // automaton.states)
        #: The numbers of the outputs. An output may be a long truth vector, which takes long to hash.
        self._numbers: dict[Output, int] = {}
        #: The number of the output of the content that ends at each state, by ``count * states + state``; -1 for none.
        self._ends = [
            -1 if output is None else self._numbers.setdefault(output, len(self._numbers))
            for count in counts
            for output in content.ends_after(count)
        ]
        self._outputs = [*self._numbers]
        self._listed = self._by_state() if len(content.found) >= _FEW else None
        self._distances: dict[int, NDArray[np.int32]] = {}
        self._ways: dict[int, tuple[bytes, Sequence[int]]] = {}
        #: If outputs are listed: the byte that leads nearer to an output from a state, and the state after the byte.
        self._steps: dict[tuple[int, int], tuple[int, int]] = {}

    def outputs(self, state: int, count: int) -> Sequence[Output] | None:
        """The outputs that can be reached after a state and a number of characters; ``None`` if they are not listed."""
        if self._listed is None:
            return None
        return [self._outputs[number] for number in self._listed[self._at(state, count)]]

    def text(self, output: Output, state: int, count: int) -> bytes | None:
        """The shortest content with an output after a state and a number of characters; ``None`` if there is none."""
        at, number = self._at(state, count), self._numbers.get(output, -1)
        distance = self._distance(at, number)
        if distance < 0:
            return None
        found = bytearray()
        if self._listed is None:
            read, following = self._nearer(number)
            for _ in range(distance):
                found.append(read[at])
                at = following[at]
            return bytes(found)
        for left in range(distance - 1, -1, -1):
            step = self._steps.get((at, number))
            if step is None:
                row = self._next[at].tolist()
                step = self._steps[at, number] = next(
                    (byte, row[column])
                    for byte, column in self.columns
                    if row[column] >= 0 and self._listed[row[column]].get(number, -1) == left
                )
            byte, at = step
            found.append(byte)
        return bytes(found)

    def farthest(self) -> int | None:
        """The most bytes of a shortest content, from any state on and with any output that can be reached there.

        ``None`` if there are too many outputs to compare them all.
        """
        if self._listed is not None:
            return max([distance for distances in self._listed for distance in distances.values()], default=0)
        if len(self._outputs) * len(self._ends) > _MOST_COMPARED:
            return None
        distances = map(self._distances_of, range(len(self._outputs)))
        return max([int(distance.max(initial=0)) for distance in distances], default=0)

    def _at(self, state: int, count: int) -> int:
        return count * self._states + state if self._counted else state

    def _distance(self, at: int, number: int) -> int:
        if number < 0:
            return -1
        if self._listed is not None:
            return self._listed[at].get(number, -1)
        return int(self._distances_of(number)[at])

    def _distances_of(self, number: int) -> NDArray[np.int32]:
        """``[states] int32``: how far the nearest end with an output is from each state, -1 for none."""
        if number not in self._distances:
            self._distances[number] = steps_to(self._next, np.array(self._ends) == number)
        return self._distances[number]

    def _nearer(self, number: int) -> tuple[bytes, Sequence[int]]:
        """Per state from which an end can be reached the byte that leads nearer to it, and the state after the byte."""
        if number not in self._ways:
            distances = self._distances_of(number)
            written = np.array([byte for byte, _ in self.columns], dtype=np.uint8)
            targets = self._next[:, [column for _, column in self.columns]]
            nearer = (targets >= 0) & (distances[targets] == distances[:, None] - 1)
            first = nearer.argmax(axis=1)
            self._ways[number] = written[first].tobytes(), targets[np.arange(len(targets)), first].data
        return self._ways[number]

    def _by_state(self) -> list[dict[int, int]] | None:
        """Per state the outputs that can be reached, with their distances; ``None`` if there are too many entries."""
        source, target = distinct_steps(self._next)
        sources, bounds = by_key(target, source, len(self._next))
        before, begins = sources.tolist(), bounds.tolist()
        listed: list[dict[int, int]] = [{} if number < 0 else {number: 0} for number in self._ends]
        near = [(at, number) for at, number in enumerate(self._ends) if number >= 0]
        entries = distance = 0
        while near:
            entries += len(near)
            if entries > _MOST_LISTED:
                return None
            distance += 1
            farther = list[tuple[int, int]]()
            for at, number in near:
                for earlier in before[begins[at] : begins[at + 1]]:
                    if number not in listed[earlier]:
                        listed[earlier][number] = distance
                        farther.append((earlier, number))
            near = farther
        return listed


def text_to_end(content: Content, columns: Sequence[tuple[int, int]], state: int, count: int) -> bytes | None:
    """The content of the fewest characters after a state and a number of characters; ``None`` if that is a long text.

    For contents with one output that have too many states and lengths for :class:`NearestEnds`: the distances of a
    Moore machine repeat, and tell of each byte whether it leads nearer.

    Args:
        content: the content, which counts characters.
        columns: as of :class:`NearestEnds`.
        state, count: the state of its automaton, and the number of characters so far.
    """
    way = content.way_to_end(state, count)
    if way is None or way[0] > _MOST_WRITTEN:
        return None
    automaton, found, (left, distances) = content.automaton, bytearray(), way
    while left or not automaton.boundaries[state]:
        # A character counts from its first byte on.
        left -= automaton.boundaries[state]
        row = automaton.next[state]
        byte, state = next(
            (byte, target)
            for byte, column in columns
            if (target := int(row[column])) >= 0 and distances.at(left, target)
        )
        found.append(byte)
    return bytes(found)
