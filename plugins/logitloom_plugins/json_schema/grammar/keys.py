"""The key automaton of an object: a Moore machine whose output is the label of the member name that has been read.

The label of a name that the schema mentions is ``("name", text)``. The label of any other name is ``("other", flags)``,
with one flag per pattern and per ``propertyNames`` atom.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import BudgetTracker, Dfa, any_text, choice
from logitloom.automata.deterministic.reach import distinct_steps, steps_to
from logitloom_plugins.json_schema.schema.formula import Atom, Formula
from logitloom_plugins.json_schema.values.ecma_pattern import compile_ecma
from logitloom_plugins.json_schema.values.listed_texts import trie_among_all
from logitloom_plugins.json_schema.values.moore_machine import END_OF_CHARACTER, MooreMachine, encodable, joint

__all__ = ["KeyParts", "Keys", "Label"]

#: The label of a member name: the name itself if the schema mentions it, otherwise its flags.
Label = tuple[Literal["name"], str] | tuple[Literal["other"], tuple[bool, ...]]

#: The bytes of the longest name whose length is found.
_MOST_BYTES: Final = 1 << 8
#: Matches the names that JSON writes without escapes.
_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*")
#: Names, patterns and atoms of ``propertyNames`` that a key automaton distinguishes.
KeyParts = tuple[tuple[str, ...], tuple[str, ...], tuple[Atom, ...]]


class NameTree(NamedTuple):
    """The prefix trie of the names, combined with the automaton of all UTF-8 texts.

    Attributes:
        automaton: the Moore machine; its states from ``Keys.base`` on are those of the trie.
        below: per state the labels that can still be reached, as bits.
        children: per state of the trie its next states within the trie, by byte.
        outside: per state of the trie the state of the automaton of all texts after the same bytes.
    """

    automaton: MooreMachine
    below: list[int]
    children: list[dict[int, int]]
    outside: list[int]


class Keys:
    """The key automaton of an object.

    Args:
        names: names that the schema mentions.
        patterns: patterns of names.
        demands: atoms ``("names", formula)`` of ``propertyNames``, each with the DFA of the names that satisfy it.
        tracker: the budget tracker.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        patterns: tuple[str, ...],
        demands: Mapping[Atom, Dfa],
        tracker: BudgetTracker,
    ) -> None:
        self.key = names, patterns, tuple(demands)
        self.names = tuple(filter(encodable, names))
        # There is one set of label bits for each name, and one for each state of the trie of the names.
        tracker.check_bytes(len(self.names) ** 2 // 4, "the names of one object")
        self.plain_names = all(map(_PLAIN.fullmatch, self.names))
        self.patterns = patterns
        self.demands = demands
        #: For atoms that constrain values: by label the formula that they demand of the values of names with the label.
        self.children: dict[tuple[Atom, ...], dict[Label, Formula]] = {}
        #: By declared names the index of each.
        self.indices: dict[tuple[str, ...], dict[str, int]] = {}
        #: The index of the declared name before which the last search had to stop leaving names out; only a guess.
        self.last_stop = 0
        self._tracker = tracker
        #: Of each pattern and each demand the place of its flag in a label.
        self._flags: dict[Hashable, int] = {asked: place for place, asked in enumerate([*patterns, *demands])}
        self._known: dict[tuple[Label, Hashable], bool] = {}
        self._left: dict[int, NDArray[np.float64]] = {}
        self._longest: dict[int, tuple[list[int | None], int]] = {}

    @property
    def is_slow(self) -> bool:
        """Whether the automaton is a product, which takes more time than the prefix trie of the names."""
        return bool(self.patterns or self.demands)

    def take(self, automaton: MooreMachine) -> None:
        """Use an automaton that was made for equal keys."""
        if not isinstance(automaton, MooreMachine) or not self.is_slow:
            raise ValueError(f"{automaton!r:.60} is no automaton of names")
        self.automaton = automaton

    @cached_property
    def automaton(self) -> MooreMachine:
        """The Moore machine over the UTF-8 bytes of unescaped names."""
        if not self.is_slow:
            return self.tree.automaton
        listed = choice(self.names, budget=self._tracker.budget, minimal=False)
        dfas = [compile_ecma(p, self._tracker.budget) for p in self.patterns]
        dfas += list(self.demands.values())
        result = joint([listed, *dfas], any_text(), lambda members: ("other", members[1:]), self._tracker)
        for name in self.names:
            result.outputs[result.walk(name.encode())] = ("name", name)
        result.found = frozenset(label for label in result.outputs if label is not None)
        return result

    @cached_property
    def tree(self) -> NameTree:
        """The prefix trie of the names within all texts; only without patterns and demands."""
        base = any_text().states
        encoded = [name.encode() for name in self.names]
        other = 1 << len(encoded)
        # Lists with one entry per state of the trie, and with one per state but the first.
        children: list[dict[int, int]] = [{}]
        below, sources, read = [other], list[int](), list[int]()
        ends: dict[int, Label] = {}
        for i, word in enumerate(encoded):
            state, bit = 0, 1 << i
            below[0] |= bit
            for byte in word:
                following = children[state].get(byte)
                if following is None:
                    following = children[state][byte] = base + len(children)
                    children.append({})
                    below.append(other)
                    sources.append(state)
                    read.append(byte)
                state = following - base
                below[state] |= bit
            ends[state] = "name", self.names[i]
        automaton, at = trie_among_all(sources, read, ends, ("other", ()))
        return NameTree(automaton, [other] * base + below, children, at)

    def in_tree(self, state: int) -> tuple[int, dict[int, int]]:
        """For a state of the trie: the state of the automaton of all texts, and the next states within the trie."""
        tree = self.tree
        return tree.outside[state - self.base], tree.children[state - self.base]

    @cached_property
    def base(self) -> int:
        """The first state of the prefix trie; lower states are outside it. Only without patterns and demands."""
        return any_text().states

    @cached_property
    def longest_rest(self) -> tuple[int, int]:
        """The most bytes to the nearest end of a name, from any state and from any state between two characters."""
        if not self.is_slow:
            # Every text of whole characters is a name.
            return END_OF_CHARACTER, 0
        automaton = self.automaton
        away = steps_to(automaton.next, automaton.accepting)
        between = np.frombuffer(automaton.boundaries, dtype=np.bool_)
        return int(away.max(initial=0)), int(away[between].max(initial=0))

    def matches(self, key: Label, pattern: str) -> bool:
        """Whether the names of a label match a pattern, one of ``patterns``."""
        if key[0] == "other":
            return bool(key[1][self._flags[pattern]])
        return self._asked(key, pattern, lambda: compile_ecma(pattern, self._tracker.budget))

    def satisfies(self, key: Label, atom: Atom) -> bool:
        """Whether the names of a label satisfy a ``propertyNames`` atom, one of ``demands``."""
        if key[0] == "other":
            return bool(key[1][self._flags[atom]])
        return self._asked(key, atom, lambda: self.demands[atom])

    def _asked(self, key: Label, about: Hashable, dfa: Callable[[], Dfa]) -> bool:
        known = self._known.get((key, about))
        if known is None:
            assert key[0] == "name"
            known = self._known[key, about] = dfa().fullmatch(key[1])
        return known

    @cached_property
    def others(self) -> tuple[Label, ...]:
        """The labels of names that the schema does not mention."""
        if not self.is_slow:
            return (("other", ()),)
        return tuple(sorted([label for label in self.automaton.found if label[0] == "other"], key=repr))

    @cached_property
    def other_bits(self) -> int:
        """The bits of the names that the schema does not mention."""
        return sum([self.bit[label] for label in self.others])

    @cached_property
    def bit(self) -> dict[Label, int]:
        """The bit of each label."""
        return {label: 1 << i for i, label in enumerate([*[("name", n) for n in self.names], *self.others])}

    def listed(self, bits: int) -> list[Label]:
        """The labels of some bits, in their order."""
        every, found = self._labels, []
        while bits:
            lowest = bits & -bits
            found.append(every[lowest.bit_length() - 1])
            bits ^= lowest
        return found

    @cached_property
    def _labels(self) -> tuple[Label, ...]:
        return tuple(self.bit)

    def label(self, name: str) -> Label:
        """The label of a name."""
        found: Label = self.automaton.outputs[self.automaton.walk(name.encode())]
        return found

    def count(self, label: Label) -> float:
        """How many names have a label, infinity included."""
        if label == ("other", ()):
            return np.inf
        return 1.0 if label[0] == "name" else float(self.left(self.bit[label])[self.automaton.start])

    def left(self, mask: int) -> NDArray[np.float64]:
        """``[states]``: how many names with one of some labels can still be written after a state; maybe infinity.

        Args:
            mask: the labels, as bits.
        """
        known = self._left.get(mask)
        if known is None:
            automaton, below = self.automaton, self._below
            asked = np.frombuffer(mask.to_bytes(below.shape[1], "little"), dtype=np.uint8)
            used = np.flatnonzero(asked)
            alive = np.flatnonzero((below[:, used] & asked[used]).any(axis=1))
            ends = np.append(np.unpackbits(asked, bitorder="little"), 0)[self._ending[alive]]
            width = np.bincount(automaton.byte_class, minlength=automaton.next.shape[1])
            # Of states that lead to no such label there are no names.
            place = np.full(automaton.states + 1, len(alive))
            place[alive] = np.arange(len(alive))
            columns = place[automaton.next[:, width > 0][alive]]
            counts, before = np.full(len(alive), np.inf), np.zeros(0)
            # From infinity downwards: states that lead to no loop become finite, the ends first.
            while not np.array_equal(counts, before):
                before = counts
                counts = ends + np.append(before, 0.0)[columns] @ width[width > 0].astype(float)
            known = np.zeros(automaton.states)
            known[alive] = counts
            self._left[mask] = known
        return known

    @cached_property
    def _below(self) -> NDArray[np.uint8]:
        """``[states, bytes]``: the bits of :attr:`below`, eight in a byte, the first in its lowest bit."""
        size = -(-len(self.bit) // 8)
        flat = b"".join([bits.to_bytes(size, "little") for bits in self.below])
        return np.frombuffer(flat, dtype=np.uint8).reshape(-1, size)

    @cached_property
    def _ending(self) -> NDArray[np.int64]:
        """``[states]``: the place of the bit of the label that ends at a state; -1 for none."""
        number = {label: place for place, label in enumerate(self.bit)}
        return np.array([-1 if label is None else number[label] for label in self.automaton.outputs], dtype=np.int64)

    def longest(self, names: int) -> tuple[list[int | None], int]:
        """For each label the most bytes of the ``names`` shortest names with it, from any state that leads to one.

        Of all names with the label, if a state leads to fewer. ``None`` for a label if such a name is long.

        Returns:
            The most bytes of each label, and the labels of fewer names than ``names``, as bits.
        """
        known = self._longest.get(names)
        if known is not None:
            return known
        labels, starts, ends, columns, width = self._leading
        # How many names of so many bytes at most a state leads to, up to the number that is asked for.
        found, sizes = np.minimum(ends, names), np.zeros(len(labels), dtype=np.int64)
        for size in range(1, _MOST_BYTES + 1):
            before, found = found, np.minimum(ends + np.append(found, 0.0)[columns] @ width, names)
            longer = found > before
            if not longer.any():
                break
            sizes[longer] = size
        most = np.zeros(len(self.bit), dtype=np.int64)
        np.maximum.at(most, labels, sizes)
        found_sizes: list[int] = most.tolist()
        few = sum([1 << label for label in labels[starts & (found < names)].tolist()])
        known = [None if size == _MOST_BYTES else size for size in found_sizes], few
        self._longest[names] = known
        return known

    @cached_property
    def _leading(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """The pairs of a state and a label to which it leads.

        Returns:
            ``[pairs]``: the bit of the label, whether the state is the first one, and 1 where a name with the label
            ends; ``[pairs, columns]``: the pair after the bytes of each column, the number of pairs for none;
            ``[columns]``: how many bytes a column has.
        """
        automaton = self.automaton
        states, labels = np.unpackbits(self._below, axis=1, bitorder="little").nonzero()
        place = np.full((automaton.states + 1, len(self.bit)), len(states))
        place[states, labels] = np.arange(len(states))
        width = np.bincount(automaton.byte_class, minlength=automaton.next.shape[1])
        columns = place[automaton.next[:, width > 0][states], labels[:, None]]
        ends = (self._ending[states] == labels).astype(np.float64)
        return labels, states == automaton.start, ends, columns, width[width > 0].astype(np.float64)

    @cached_property
    def below(self) -> list[int]:
        """Per state the labels that can still be reached, as bits."""
        if not self.is_slow:
            return self.tree.below
        automaton = self.automaton
        bits = [0 if label is None or label[0] == "name" else self.bit[label] for label in automaton.outputs]
        source, target = distinct_steps(automaton.next)
        steps = [*zip(source.tolist(), target.tolist(), strict=True)][::-1]
        before = list[int]()
        while bits != before:
            before = bits.copy()
            for state, following in steps:
                bits[state] |= bits[following]
        # A name that the schema mentions can be reached along one path alone.
        for name in self.names:
            state, bit = automaton.start, self.bit["name", name]
            bits[state] |= bit
            for byte in name.encode():
                state = int(automaton.next[state, automaton.byte_class[byte]])
                bits[state] |= bit
        return bits
