"""The memory of completions: the texts of values, objects, arrays and contents, and the work that they took."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, TypeVar

from logitloom_plugins.json_schema.folds.completion.nearest_ends import NearestEnds
from logitloom_plugins.json_schema.folds.completion.short_contents import Canonical
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame
from logitloom_plugins.json_schema.grammar.least_solution import Find, LeastSolution
from logitloom_plugins.json_schema.grammar.members import TruthVector, ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectPlan
from logitloom_plugins.json_schema.grammar.satisfiability import Frame
from logitloom_plugins.json_schema.grammar.states import State
from logitloom_plugins.json_schema.schema.formula import Formula
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine, Output

__all__ = [
    "COPIED",
    "ENTRY",
    "MEMBER",
    "MOST_SEARCHED",
    "MOST_WRITTEN",
    "NOTHING",
    "CompletionMemory",
    "Jump",
    "Taken",
    "Texts",
    "WorkSpent",
    "ends_of",
    "merge",
    "shortlex",
]

#: By truth vector a text that ends a value with this truth vector.
Texts = dict[TruthVector, bytes]
#: Bytes of an entry beside its texts, estimated.
ENTRY: Final = 500
#: Work is counted in bytes of texts. Trying a member counts as so many bytes.
MEMBER: Final = 100
#: Copying so many bytes takes as long as examining one byte.
COPIED: Final = 16
#: The most work of one search.
MOST_SEARCHED: Final = 1 << 19
#: A short value, or the items of an array, with so many bytes or more are not written.
MOST_WRITTEN: Final = 1 << 19

Found = TypeVar("Found", Texts, list[bytes])
Result = TypeVar("Result")


class WorkSpent(Exception):
    """The work for a position exceeds its limit."""


class Taken(NamedTuple):
    """What must not come again in the innermost open object or array.

    Attributes:
        names: the undeclared names of members that have come.
        items: the earlier items of an array whose items must all be different.
        written: the bytes of an unfinished name that must not come twice.
    """

    names: frozenset[str] = frozenset()
    items: tuple[Canonical, ...] = ()
    written: bytes = b""


NOTHING: Final = Taken()


class Jump(NamedTuple):
    """A short text, and the state to which the text leads.

    Attributes:
        text: the bytes.
        state: the state after the text; ``None`` if the text ends the innermost string, object or array.
        taken: what must not come again after the text.
        truth: the truth vector of what the text ends.
    """

    text: bytes
    state: State | None
    taken: Taken = NOTHING
    truth: TruthVector = ()


def ends_of(texts: Texts) -> list[Jump]:
    """The jumps of texts that end the innermost string, object or array."""
    return [Jump(text, None, NOTHING, truth) for truth, text in texts.items()]


class CompletionMemory:
    """The texts from which completions are made.

    Attributes:
        work: the work for positions since :meth:`begin_counting`, about as many bytes of texts. The shortest values,
            which are found once for a schema, do not count.
        most: the work above which :class:`WorkSpent` is raised, whether or not the texts are remembered.
        remembered: bytes of the memory, estimated.
    """

    def __init__(self) -> None:
        self.work = 0
        self.most = math.inf
        #: How many entries are being found. Each further entry is needed for the entry before.
        self._within = 0
        #: Keys whose work has been counted.
        self._counted: set[Hashable] = set()
        #: Whether the work for the entry that is being found has been counted.
        self._is_counted = False
        self.clear()

    def clear(self) -> None:
        """Forget all texts, which changes no result."""
        #: Short values by constraint. Values of a recursive schema are made from smaller ones.
        self.values = LeastSolution()
        #: The texts that end a string, an object or an array, by the place within it from which they go on.
        self.rests: dict[Hashable, Texts] = {}
        #: Rests of contents.
        self.contents: dict[Hashable, list[bytes]] = {}
        #: Members by name and by the formula that their values must satisfy.
        self.members: dict[tuple[str, Formula], bytes] = {}
        #: For the hard atoms of an object and the names that are counted elsewhere: by part of a formula a lower bound
        #: on the bytes of the members that the part requires, and names of which the part requires at least one.
        self.needed: dict[tuple[ObjectPlan, frozenset[str]], dict[Formula, tuple[int, frozenset[str]]]] = {}
        #: A lower bound on the bytes of the items that an array still needs.
        self.items_needed: dict[ArrayFrame, int] = {}
        #: By the hard atoms of an object the bytes of a short member with each label, and the index of a declared name.
        self.member_sizes: dict[ObjectPlan, list[tuple[int | None, int]]] = {}
        #: By the hard atoms of an object, and by the index of its next declared name and the number of further members,
        #: a lower bound on the bytes of these members.
        self.others_needed: dict[ObjectPlan, dict[tuple[int, int], int]] = {}
        #: The names that completions of an object choose, by what is asked of the object, as of :mod:`.chosen_names`.
        self.chosen_names: dict[Hashable, list[bytes]] = {}
        #: Different short objects or arrays with their canonical texts, by frame and by the depth to which nested
        #: values may differ.
        self.varied: dict[tuple[Frame, int], list[tuple[bytes, Canonical]]] = {}
        #: The most bytes that end an object or array differently, by frame, number of others, and depth.
        self.endings: dict[tuple[Frame, int, int], int | None] = {}
        self.short_values: dict[tuple[Content, int], list[tuple[Output, bytes, Canonical]]] = {}
        self.nearest: dict[Content, NearestEnds | None] = {}
        #: By content and output the content with this output alone.
        self.only: dict[tuple[Content, Output], Content] = {}
        #: Of contents without nearest ends the bytes that are written, as of :func:`.columns_of`.
        self.columns: dict[MooreMachine, list[tuple[int, int]]] = {}
        #: By key the work that finding the entry took.
        self._costs: dict[Hashable, int] = {}
        self.remembered = 0

    def begin_counting(self) -> None:
        """Count the work from here on. The count does not depend on what is remembered."""
        self.work = 0
        self._counted.clear()

    def spend(self, work: int) -> None:
        """Add work, except where an entry is being found.

        Raises:
            WorkSpent: if that is too much.
        """
        if not self._within:
            self.work += work
            if self.work > self.most:
                raise WorkSpent

    def check(self, work: float) -> None:
        """Check the work for an entry that is being found.

        Raises:
            WorkSpent: if this work exceeds the limit. The work for an entry that another entry needs is not limited.
        """
        if self._within == 1 and not self._is_counted and self.work + work > self.most:
            raise WorkSpent

    def value(self, demand: ValueConstraint, find: Find) -> Texts:
        """The short values of a constraint, found as :meth:`.LeastSolution.of` says."""
        known: Texts | None = self.values.known.get(demand)
        if known is None:
            known = self.uncounted(lambda: self.values.of(demand, find))
        return known

    def uncounted(self, find: Callable[[], Result]) -> Result:
        """The result of a function whose work does not count, because the function is called once for a schema."""
        self._within += 1
        try:
            return find()
        finally:
            self._within -= 1

    def recalled(self, memory: dict[Hashable, Found], key: Hashable, find: Callable[[], tuple[Found, int]]) -> Found:
        """An entry of a part of the memory, or the result of a function and the work that the result takes.

        The work is added once, and is not added while another entry is made from this entry.

        Raises:
            WorkSpent: if the work is too much.
        """
        found = memory.get(key)
        if found is None:
            if not self._within:
                self._is_counted = key in self._counted
            self._within += 1
            try:
                (found, self._costs[key]), certain = self.values.certainty(find)
            finally:
                self._within -= 1
            if certain:
                memory[key] = found
                self.remembered += ENTRY + sum(map(len, found.values() if isinstance(found, dict) else found))
        if not self._within and key not in self._counted:
            self.spend(self._costs[key])
            self._counted.add(key)
        return found


def merge(found: Texts, more: Texts) -> None:
    """Keep the shorter text of each truth vector."""
    for truth, text in more.items():
        if truth not in found or shortlex(text) < shortlex(found[truth]):
            found[truth] = text


def shortlex(text: bytes) -> tuple[int, bytes]:
    """Shorter texts come first, and of texts of one length the smaller."""
    return len(text), text
