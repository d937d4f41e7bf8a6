"""The content of a string: a Moore machine over characters, and bounds on their number."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.values.end_distances import FREE_FOREVER, EndDistances
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine, Output

__all__ = ["Content"]

#: How many numbers of characters before the largest stand for the smaller ones.
_LAST: Final = 6
#: The most distances that are compared to find the farthest end.
_MOST_DISTANCES: Final = 1 << 11
#: The most entries of a table of next states, and rounds, with which the longest of the shortest paths is bounded.
_MOST_ENTRIES: Final = 1 << 19
_MOST_ROUNDS: Final = 256


class _Span(NamedTuple):
    """A range of lengths.

    Attributes:
        first, last: the first and the last length; ``None`` for no last one.
        ending: the outputs of the automaton with which texts of these lengths end.
        distances: the distances to such ends.
    """

    first: int
    last: int | None
    ending: frozenset[Output]
    distances: EndDistances


class Content:
    """The content of a string: a Moore machine, and the meaning of its outputs by the number of characters.

    Args:
        automaton: the Moore machine over the UTF-8 of decoded texts.
        outputs: pairs of a length and a mapping, by ascending length from 0 on. From the length on, the mapping has the
            output of the content by the output of the automaton. Texts whose output has no entry are no content.
            Default: the outputs of the automaton, at any length.

    Attributes:
        counts: whether characters are counted.
        least, most: bounds on the number of characters; ``most=None`` for no bound.
    """

    def __init__(
        self, automaton: MooreMachine, outputs: Sequence[tuple[int, Mapping[Output, Output]]] | None = None
    ) -> None:
        self.automaton = automaton
        self.counts = outputs is not None
        given = [(0, automaton.meanings)] if outputs is None else outputs
        self.points = [length for length, _ in given]
        self.at = [meanings for _, meanings in given]
        inside = [index for index, meanings in enumerate(self.at) if meanings]
        self.least = self.points[inside[0]] if inside else 0
        self.most = -1 if not inside else None
        if inside and inside[-1] + 1 < len(self.at):
            self.most = self.points[inside[-1] + 1] - 1

    @cached_property
    def _spans(self) -> list[_Span]:
        """The ranges of lengths in which texts end, by ascending length."""
        found: list[tuple[int, int | None, frozenset[Output]]] = []
        for first, after, meanings in zip(self.points, [*self.points[1:], None], self.at, strict=True):
            ending = frozenset(meanings)
            if found and found[-1][1:] == (first - 1, ending):
                first, ending = found.pop()[0], ending
            if ending:
                found.append((first, None if after is None else after - 1, ending))
        made: dict[tuple[frozenset[Output], bool], int] = {}
        for first, last, ending in found:
            key = ending, last is None
            made[key] = max(made.get(key, 0), first if last is None else last)
        distances = {key: EndDistances(self.automaton, limit, key[1], key[0]) for key, limit in made.items()}
        return [_Span(first, last, ending, distances[ending, last is None]) for first, last, ending in found]

    @cached_property
    def _only_bounds(self) -> bool:
        """Whether the texts are those of the automaton within one range of lengths, with the automaton's outputs."""
        return len(self._spans) == 1 and all(meanings in ({}, self.automaton.meanings) for meanings in self.at)

    @cached_property
    def _hash(self) -> int:
        return hash((self.automaton, tuple(self.points)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Content):
            return NotImplemented
        return self.automaton is other.automaton and self.points == other.points and self.at == other.at

    def state_parts(self) -> tuple[object, ...]:
        """What is written to a file."""
        return self.automaton, tuple(zip(self.points, self.at, strict=True)) if self.counts else None

    @staticmethod
    def from_state_parts(automaton: object, outputs: Sequence[tuple[int, dict[Output, Output]]] | None) -> Content:
        """The content of these parts.

        Raises:
            ValueError: if a part is of another kind.
        """
        counted: Sequence[tuple[int, dict[Output, Output]]] = outputs if outputs is not None else [(0, {})]
        lengths = [length for length, meanings in counted if type(length) is int and type(meanings) is dict]
        is_sound = len(lengths) == len(counted) and lengths[:1] == [0] and lengths == sorted(set(lengths))
        if not isinstance(automaton, MooreMachine) or not is_sound:
            raise ValueError("the content of a string has parts of another kind")
        return Content(automaton, outputs)

    def restricted(self, wanted: Callable[[Output], bool]) -> Content:
        """The content with only some of the outputs."""
        at = [{own: output for own, output in meanings.items() if wanted(output)} for meanings in self.at]
        kept = frozenset(own for meanings in at for own in meanings)
        automaton = self.automaton if kept >= self.automaton.found else self.automaton.restricted(kept.__contains__)
        return Content(automaton, list(zip(self.points, at, strict=True)) if self.counts else None)

    @cached_property
    def found(self) -> frozenset[Output]:
        """The outputs that some content within the bounds has."""
        # Without bounds every output of the automaton is the output of some text.
        found = frozenset(output for meanings in self.at for output in meanings.values())
        return found if not self.counts or self.free else frozenset(filter(self._has, found))

    def _has(self, output: Output) -> bool:
        only = self if len(self.automaton.found) == 1 else self.restricted(lambda other: bool(other == output))
        return only.alive(self.automaton.start, 0)

    @cached_property
    def free(self) -> bool:
        """Whether every text is content, so that only the length matters. Not all such contents are recognised."""
        # The automaton is back at its start after each character, and accepts there.
        automaton, start = self.automaton, self.automaton.start
        return automaton.outputs[start] is not None and automaton.after_characters(start, 0, 0x10FFFF) == {start}

    # --- one character after the other -------------------------------------------------------------------------

    def counted(self, count: int) -> int:
        """The number of characters as far as it matters: numbers beyond the last bound are all alike."""
        return min(count, self.points[-1])

    def alike(self, count: int, more: int) -> int:
        """The least number of characters after which all ends are as after ``count``, also after ``more`` further ones.

        The result is ``count`` itself if this number is not known: if a bound is near, or if there are several outputs.
        """
        at = bisect.bisect_right(self.points, count) - 1
        if at + 1 == len(self.points):
            return self.points[at]
        if not self.at[at] or len(self.found) > 1:
            return count
        if not self.free and (len(self.automaton.found) != 1 or not self._only_bounds):
            return count
        farthest = 0 if self.free else self._farthest
        return self.points[at] if count + more + farthest < self.points[at + 1] else count

    def alive(self, state: int, count: int) -> bool:
        """Whether a content can still end within the bounds, after a state and a number of characters."""
        if state < 0 or not self.counts:
            return state >= 0
        if self.free:
            return self.most is None or count <= self.most
        for first, last, _, distances in self._spans:
            least = max(first - count, 0)
            if last is None:
                if distances.at(least, state):
                    return True
            elif distances.between(least, max(last - count, -1), state):
                return True
        return False

    def all_alive(self, count: NDArray[np.int64], state: NDArray[np.int64]) -> NDArray[np.bool_]:
        """:meth:`alive` for arrays of counts and states, which are broadcast. The content must count characters."""
        if self.free:
            return count <= (FREE_FOREVER if self.most is None else self.most)
        alive = np.zeros(np.broadcast_shapes(count.shape, state.shape), dtype=bool)
        for first, last, _, distances in self._spans:
            least = np.maximum(first - count, 0)
            if last is None:
                alive |= distances.at(least, state)
            else:
                alive |= distances.between(least, np.maximum(last - count, -1), state)
        return alive

    def counted_steps(self, first: int = 0, last: int | None = None) -> NDArray[np.int32]:
        """``[counts * states, classes]``: next pairs of a number of characters and a state, as far as they are alive.

        A pair is ``(count - first) * states + state``, and -1 stands for none.

        Args:
            first, last: the numbers of characters, by default all. The steps from ``last`` on are right only if it is
                the last bound.
        """
        following, states = self.automaton.next, self.automaton.states
        limit = self.points[-1] if last is None else last
        count = np.arange(first, limit + 1)[:, None]
        alive = np.broadcast_to(self.all_alive(count, np.arange(states)), (len(count), states)).ravel()
        after = (np.minimum(count + np.frombuffer(self.automaton.boundaries, dtype=bool), limit) - first) * states
        pairs = after.astype(np.int32)[:, :, None] + np.maximum(following, 0)
        kept = alive.take(pairs) & (following >= 0)
        return np.where(kept, pairs, np.int32(-1)).reshape(-1, following.shape[1])

    def ends(self, state: int, count: int) -> Output:
        """The output of a content that ends at a state after a number of characters, or ``None``."""
        return self.at[bisect.bisect_right(self.points, count) - 1].get(self.automaton.outputs[state])

    def ends_after(self, count: int) -> list[Output]:
        """The results of :meth:`ends` for all states after a number of characters."""
        at = self.at[bisect.bisect_right(self.points, count) - 1]
        return [*map(at.get, self.automaton.outputs)]

    # --- lengths -----------------------------------------------------------------------------------------------

    @property
    def farthest_point(self) -> int:
        """The largest length from which on texts may end, of those at which meanings change; 0 if no text ends."""
        return max([point for point, meanings in zip(self.points, self.at, strict=True) if meanings], default=0)

    @cached_property
    def exact_spans(self) -> list[_Span] | None:
        """The ranges of lengths in which texts end, with distances of which each stands for itself.

        ``None`` if a table of these takes too much memory.
        """
        found = []
        for span in self._spans:
            if span.last is not None:
                found.append(span)
                continue
            try:
                # The nearest end is fewer characters away than there are states.
                exact = EndDistances(self.automaton, span.first + self.automaton.states, False, span.ending)
            except BudgetExceeded:
                return None
            found.append(span._replace(distances=exact))
        return found

    def way_to_end(self, state: int, count: int) -> tuple[int, EndDistances] | None:
        """How many characters away the nearest end within the bounds is, and the distances that say so."""
        best: tuple[int, EndDistances] | None = None
        if self.exact_spans is None or not self.alive(state, count):
            return None
        for first, last, _, distances in self.exact_spans:
            least = max(first - count, 0)
            most = least + self.automaton.states if last is None else last - count
            if best is not None:
                most = min(most, best[0] - 1)
            nearest = next((distance for distance in range(least, most + 1) if distances.at(distance, state)), None)
            if nearest is not None:
                best = nearest, distances
        return best

    @cached_property
    def longest_way(self) -> int:
        """An upper bound on the steps of a shortest path from one state of the automaton to another.

        Such a path comes to no state twice. States to which no loop leads come in levels, and the path visits one of
        each level at most: of the prefix trie of listed values as many as the longest value is long.
        """
        following = self.automaton.next
        states = left = len(following)
        if following.size > _MOST_ENTRIES:
            return states
        before = np.bincount(following[following >= 0], minlength=states)
        level, levels = np.flatnonzero(before == 0), 0
        while len(level) and levels < _MOST_ROUNDS:
            left, levels = left - len(level), levels + 1
            reached = following[level]
            reached, times = np.unique(reached[reached >= 0], return_counts=True)
            before[reached] -= times
            level = reached[before[reached] == 0]
        return levels + left

    @cached_property
    def farthest_end(self) -> int:
        """An upper bound on the characters to the nearest end within the bounds, from any state that leads to one."""
        if self._shrinks:
            return max([self._farthest_with(span.ending) for span in self._spans])
        least = max([span.first for span in self._spans], default=0)
        last = least + self.longest_way
        spans = self.exact_spans if len(self._spans) == 1 else None
        if spans is None or (least and last > _MOST_DISTANCES):
            return last
        distances = spans[0].distances
        most = last if self.most is None else self.most

        def farthest(nearest: NDArray[np.int64], count: int) -> int:
            return int(nearest[nearest <= most - count].max(initial=0))

        found, every = farthest(distances.nearest, least), np.arange(self.automaton.states)
        # Before the least number of characters fewer are too few.
        nearest = np.full(len(every), FREE_FOREVER, dtype=np.int64)
        for distance in range(min(last, most), 0, -1) if least else ():
            nearest[distances.at(distance, every)] = distance
            if distance <= least:
                found = max(found, farthest(nearest, least - distance))
        return found

    @property
    def _shrinks(self) -> bool:
        """Whether there are several ranges of lengths, and each end of a longer text is an end of shorter texts, too.

        Then the nearest end of a range is within the bounds, whatever the number of characters.
        """
        spans = self._spans
        return (
            len(spans) > 1
            and not spans[0].first
            and all(
                one.last is not None and one.last + 1 == other.first and one.ending >= other.ending
                for one, other in pairwise(spans)
            )
        )

    def _farthest_with(self, ending: frozenset[Output]) -> int:
        """The most characters to the nearest end with an output of ``ending``, from any state with such an end."""
        nearest = EndDistances(self.automaton, self.automaton.states, False, ending).nearest
        return int(nearest[nearest < FREE_FOREVER].max(initial=0))

    @cached_property
    def _farthest(self) -> int:
        """The most characters to the nearest end, from any state between characters; very many if one has no end.

        Texts end in one range of lengths.
        """
        ((_, _, _, distances),) = self._spans
        nearest = distances.nearest
        return int(nearest[np.frombuffer(self.automaton.boundaries, dtype=bool)].max())

    def window(self, least: int, most: int, longest: int) -> tuple[int, int]:
        """The first and last number of characters of a part of :meth:`counted_steps`.

        The results are few different parts, so that the steps of each part can be remembered.

        Args:
            least, most: the part contains all numbers of characters between these.
            longest: the most characters of a token.
        """
        end = self.points[-1]
        nearest = end
        if not self.free and self.most is not None and self._only_bounds:
            nearest = max(self.most - longest - self._farthest, 0)
        first = nearest if least >= nearest else least - least % longest
        return first, min(max(most, first + 2 * longest), end)

    def last_counts(self, entries: int) -> int:
        """The number of characters from which on :meth:`counted_steps` are made for a table of contents.

        0, or a number shortly before the largest if a table of all numbers would have too many entries. Characters that
        end a text after that number of characters end it after each smaller one that is not below the least, too.

        Args:
            entries: the most entries of a table of all numbers.
        """
        if not self.counts or (self.points[-1] + 1) * self.automaton.next.size <= entries:
            return 0
        return max(self.least, self.most - _LAST) if self._only_bounds and self.most is not None else 0

    def is_far(self, count: int, more: int) -> bool:
        """Whether ``more`` further characters leave every state an end within the bounds."""
        if not self.counts or self.free or count < self.least or not self._only_bounds:
            return False
        return self.most is None or count + more + self._farthest <= self.most

    def free_from(self, state: int, count: int) -> int:
        """The number of further characters, of any kind, after which the content can certainly still end."""
        if not self.free or state != self.automaton.start:
            return 0
        return FREE_FOREVER if self.most is None else max(self.most - count, 0)

    def end_ranges(self, count: int, most: int) -> list[tuple[int, int]]:
        """Ranges of numbers of further characters, up to ``most``. Within a range all texts end with one meaning.

        Returns:
            The first and last number of each range.
        """
        starts = [0, *(point - count for point in self.points if count < point <= count + most)]
        return [(first, after - 1) for first, after in zip(starts, [*starts[1:], most + 1], strict=True)]
