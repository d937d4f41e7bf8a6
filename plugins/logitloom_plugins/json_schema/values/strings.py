"""The content of JSON strings: which texts, decided on decoded characters; and how characters are written.

A content automaton reads the UTF-8 of the decoded text. How long the text may be is not part of it but counted beside
it, so that ``maxLength: 100000`` costs nothing; what can still be reached within the remaining length is asked of
:class:`Lengths`.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import Budget, BudgetTracker, Dfa, any_text, choice, compile_pattern, nothing
from logitloom.errors import BudgetExceeded, UnsupportedPattern
from logitloom_plugins.json_schema.schema.formula import Formula, atoms, conjunction, parts_of
from logitloom_plugins.json_schema.values.ecma_pattern import compile_ecma, counted_length
from logitloom_plugins.json_schema.values.formats import IRREGULAR, format_automaton
from logitloom_plugins.json_schema.values.moore_machine import BEGINNING, CONTINUING, MooreMachine, Output, joint

__all__ = ["FREE_FOREVER", "Content", "content_of", "encodable", "string_problem"]

_COUNTED_INSIDE = 4096
_SHORT_LIST = 32
FREE_FOREVER = 1 << 30


def encodable(text: str) -> bool:
    """Whether a text can be written in UTF-8 at all (no lone surrogates)."""
    return not any(0xD800 <= ord(c) < 0xE000 for c in text)


def string_problem(keyword: str, text: str, budget: Budget | None) -> str | None:
    """Why no automaton can be made of the value of ``pattern``, ``patternProperties`` or ``format``, or ``None``.

    Raises:
        BudgetExceeded: if it takes more than the budget allows.
    """
    if keyword == "format":
        return f"the format {text!r} is not regular ({IRREGULAR[text]})" if text in IRREGULAR else None
    try:
        # The length of a string is counted beside its automaton, that of a name is not.
        compile_ecma(text, budget, keyword == "pattern" and counted_length(text, budget) is not None)
    except UnsupportedPattern as error:
        return str(error)
    return None


def language(atom: Any, budget: Budget | None) -> Dfa:
    """The decoded texts for which an atom on strings holds."""
    kind = atom[0]
    if kind in ("pat", "counted"):
        return compile_ecma(atom[1], budget, kind == "counted")
    if kind == "fmt":
        return format_automaton(atom[1])
    if kind == "any":
        texts = [text for text in atom[1] if encodable(text)]
        # What is short is soon read side by side with others, and sharing its ends takes longer.
        return choice(texts, budget=budget, minimal=len(texts) > _SHORT_LIST)
    least, most = atom[1], atom[2]
    if most is not None and most < least:
        return nothing()
    if max(least, most or 0) > _COUNTED_INSIDE:
        raise BudgetExceeded(
            f"A length of {least} to {'any number of' if most is None else most} characters inside not, oneOf or if "
            f"takes too many states. Use a smaller bound there."
        )
    return compile_pattern(f"(?s:.{{{least},{'' if most is None else most}}})", budget=budget)


class Content:
    """The content of a string: a Moore machine, and bounds on the number of characters.

    Attributes:
        automaton: the Moore machine over the UTF-8 of decoded texts.
        least, most: bounds on the characters; ``most=None`` for no bound.
        counts: whether there are bounds at all.
    """

    def __init__(self, automaton: MooreMachine, least: int = 0, most: int | None = None) -> None:
        self.automaton = automaton
        self.least = least
        self.most = most
        self.counts = least > 0 or most is not None
        # From this many characters on nothing is content any more.
        self.limit = None if most is None else most + 1

    def restricted(self, wanted: Callable[[Output], bool]) -> Content:
        """Only some of the labels."""
        return Content(self.automaton.restricted(wanted), self.least, self.most)

    @property
    def found(self) -> frozenset[Output]:
        """The labels that some content within the bounds has."""
        # Every state is reached by some text, and by one that can be completed.
        found = self.automaton.found
        if not self.counts:
            return found
        if len(found) < 2:
            return found if self.alive(self.automaton.start, 0) else frozenset()
        return frozenset(label for label in found if self._has(label))

    def _has(self, label: Output) -> bool:
        only = self.restricted(lambda other: bool(other == label))
        return only.alive(only.automaton.start, 0)

    # --- lengths -----------------------------------------------------------------------------------------------

    def counted(self, count: int) -> int:
        """The count that need be remembered: without an upper bound, none above the lower one; without any, none."""
        return min(count, self.least) if self.most is None else count

    @cached_property
    def _lengths(self) -> NDArray[np.bool_]:
        """``[k, states]``: whether an end is ``k`` characters away; the last row stands for ``k`` or more."""
        table = self.automaton.next
        states = len(table)
        limit = self.most if self.most is not None else self.least
        if limit * states > 64_000_000:
            raise BudgetExceeded(
                f"Strings of {limit} characters with {states} states of a pattern take too much memory. Use a "
                f"smaller bound or a simpler pattern."
            )
        lead = self.automaton.columns_of(BEGINNING)
        leading = np.where(table >= 0, table, states).take(lead, axis=1)
        goal = self.automaton.accepting
        rows = [goal]
        current = goal
        if self.most is None:
            from logitloom.automata.reach import ends_reachable

            current = ends_reachable(table, goal)
            rows = [current]
        for _ in range(limit):
            # The first byte of a character counts; bytes that continue it are free.
            current = np.append(self._through(current[None])[0], False)[leading].any(axis=1)
            rows.append(current)
            if np.array_equal(current, rows[-2]):
                # From here on every row is the same; one of dead ends says as much.
                rows += [current] * (limit + 1 - len(rows) if current.any() else 0)
                break
        return np.stack(rows)

    @cached_property
    def _inner(self) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.intp]]:
        """The states between the bytes of a character, where these lead, each once, and where those of each begin.

        Many automata read ASCII only, and have none.
        """
        automaton = self.automaton
        continuing = automaton.next.take(automaton.columns_of(CONTINUING), axis=1)
        between = np.flatnonzero((continuing >= 0) @ np.ones(continuing.shape[1], dtype=np.float32))
        targets = np.sort(continuing[between], axis=1)
        once = targets >= 0
        once[:, 1:] &= targets[:, 1:] != targets[:, :-1]
        counts = once.sum(axis=1)
        return between, targets[once], counts.cumsum() - counts

    @cached_property
    def _within(self) -> NDArray[np.int32]:
        """``[k + 1, states]``: how many lengths below ``k`` there are; for counting within a range."""
        lengths = self._lengths
        total = np.zeros((len(lengths) + 1, lengths.shape[1]), dtype=np.int32)
        np.cumsum(lengths, axis=0, out=total[1:])
        return total

    @cached_property
    def free(self) -> bool:
        """Whether every text is content, so that only its length matters."""
        return (
            self.automaton.states == any_text().states
            and self.automaton.found == {self.automaton.outputs[self.automaton.start]}
            and all(label is not None for label in self.automaton.outputs[:1])
        )

    def alive(self, state: int, count: int) -> bool:
        """Whether a content that has got to a state with some characters can still end within the bounds."""
        if state < 0:
            return False
        if not self.counts:
            return True
        if self.free:
            return self.most is None or count <= self.most
        if self.most is None:
            return self._closure(state, max(self.least - count, 0))
        if count > self.most:
            return False
        within = self._within
        last = len(within) - 1
        low, high = min(max(self.least - count, 0), last), min(self.most - count + 1, last)
        # Between the bytes of a character the character has been counted: bytes that continue it are free.
        return any(bool(within[high, s] > within[low, s]) for s in self._boundaries(state))

    def _through(self, ends: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """``[n, states]``: the same, and inside characters what may come of their last bytes."""
        between, targets, starts = self._inner
        if not len(between):
            return ends
        # By state, so that whole rows are combined.
        found = ends.T.copy()
        own = found[between]
        for _ in range(3):
            found[between] = own | np.logical_or.reduceat(found[targets], starts, axis=0)
        return found.T

    def _closure(self, state: int, more: int) -> bool:
        lengths = self._lengths
        return any(bool(lengths[min(more, len(lengths) - 1), s]) for s in self._boundaries(state))

    def _boundaries(self, state: int) -> frozenset[int]:
        """The states in which the character that a state is inside of may be complete."""
        found = self._bounds.get(state)
        if found is None:
            inside = not self.automaton.boundaries[state]
            trailing = set(self.automaton.row(state)[0x80:0xC0].tolist()) - {-1} if inside else set()
            found = frozenset().union(*[self._boundaries(t) for t in trailing]) if inside else frozenset([state])
            self._bounds[state] = found
        return found

    @cached_property
    def _bounds(self) -> dict[int, frozenset[int]]:
        return {}

    def ends(self, state: int, count: int) -> Output:
        """The label of a content that ends here, or ``None``."""
        if self.counts and (count < self.least or (self.most is not None and count > self.most)):
            return None
        return self.automaton.outputs[state]

    def free_from(self, state: int, count: int) -> int:
        """How many more characters of any kind certainly leave an end possible."""
        if not self.free or state != self.automaton.start:
            return 0
        return FREE_FOREVER if self.most is None else max(self.most - count, 0)

    def end_ranges(self, count: int, most: int) -> list[tuple[int, int, int]]:
        """The numbers of further characters, up to some, after which a text ends alike: first, last, one of them."""
        if self.is_uniform(count, most):
            return [(0, most, 0)]
        first = max(self.least - count, 0)
        last = most if self.most is None else min(self.most - count, most)
        return [(first, last, first)] if first <= last else []

    def is_uniform(self, count: int, more: int) -> bool:
        """Whether it makes no difference for an end how many of some more characters are still read."""
        return count >= self.least and (self.most is None or count + more <= self.most)

    @cached_property
    def _nearest(self) -> NDArray[np.int64]:
        """Per state the characters to the nearest end; more than there is ever room for, if there is none."""
        lengths = self._lengths
        return np.where(lengths.any(axis=0), lengths.argmax(axis=0), FREE_FOREVER)

    def room(self, state: int, count: int) -> int:
        """How many characters that stay in a state leave an end possible."""
        if self.most is None:
            return FREE_FOREVER
        return self.most - count - int(self._nearest[state])

    def is_far(self, count: int, more: int) -> bool:
        """Whether the bounds cannot matter for some more characters: from every state an end is within them."""
        if not self.counts or self.free or count < self.least:
            return False
        return self.most is None or count + more + self._farthest <= self.most

    @cached_property
    def _farthest(self) -> int:
        # Inside a character the character has been counted, and what counts is where it leads.
        return int(self._nearest[np.frombuffer(self.automaton.boundaries, dtype=bool)].max())

    def reads_any(self, state: int, count: int) -> bool:
        """Whether every character leaves an end possible; false also where that is not plain to see."""
        if self.counts and not (self.free and self.alive(state, self.counted(count + 1))):
            return False
        return self.automaton.reads_any(state)

    # --- ranges of characters ----------------------------------------------------------------------------------

    def reach(self, state: int, low: int, high: int) -> frozenset[int]:
        """The states after one character of a range of code points."""
        automaton = self.automaton
        # What is asked most often needs no look beyond ASCII.
        if high < 0x80 or not automaton.leads[state]:
            steps = automaton.next[state].take(automaton.byte_class[low : min(high, 0x7F) + 1])
            return frozenset([target for target in steps.tolist() if target >= 0])
        intervals = automaton.intervals(state)
        at = bisect.bisect_left(intervals, low, key=lambda interval: interval[1])
        found = []
        while at < len(intervals) and intervals[at][0] <= high:
            found.append(intervals[at][2])
            at += 1
        return frozenset(found)


class LengthContent(Content):
    """Content of which only the length matters, in several ways at once.

    Args:
        atoms: the bounds that play a part.
        label: from a function that says whether an atom holds to the label.
        wanted: which labels are wanted; default: all.
    """

    def __init__(
        self,
        atoms: list[Any],
        label: Callable[[Callable[[Formula], bool]], Output],
        wanted: Callable[[Output], bool] = lambda label: label is not None,
    ) -> None:
        super().__init__(_everything(()))
        self.counts = True
        self.atoms = atoms
        self.label = label
        self.wanted = wanted
        points = {0, *[a[1] for a in atoms], *[a[2] + 1 for a in atoms if a[2] is not None]}
        self.points = sorted(points)
        self.at = []
        for point in self.points:
            found = label(lambda atom, n=point: atom[1] <= n and (atom[2] is None or n <= atom[2]))  # type: ignore[misc]
            self.at.append(found if found is not None and wanted(found) else None)
        ends = [i for i, found in enumerate(self.at) if found is not None]
        # From this many characters on nothing can be wanted any more.
        self.limit = 0 if not ends else None if ends[-1] == len(self.points) - 1 else self.points[ends[-1] + 1]

    def restricted(self, wanted: Callable[[Output], bool]) -> Content:
        """Only some of the labels."""
        return LengthContent(self.atoms, self.label, lambda label: self.wanted(label) and wanted(label))

    @property
    def found(self) -> frozenset[Output]:
        """The labels that some length has."""
        return frozenset(found for found in self.at if found is not None)

    def counted(self, count: int) -> int:
        """Lengths beyond the last bound are alike."""
        return min(count, int(self.points[-1]))

    def free_from(self, state: int, count: int) -> int:
        """How many more characters certainly leave a wanted end possible."""
        return FREE_FOREVER if self.limit is None else max(self.limit - 1 - count, 0)

    def end_ranges(self, count: int, most: int) -> list[tuple[int, int, int]]:
        """The numbers of further characters between two bounds each."""
        borders = [point - count for point in self.points if count < point <= count + most]
        starts = [0, *borders]
        return [(first, after - 1, first) for first, after in zip(starts, [*borders, most + 1], strict=True)]

    def is_uniform(self, count: int, more: int) -> bool:
        """Whether all these lengths are between the same bounds."""
        return bisect.bisect_right(self.points, count) == bisect.bisect_right(self.points, count + more)

    def alive(self, state: int, count: int) -> bool:
        """Whether a wanted length can still be reached."""
        return state >= 0 and (self.limit is None or count < self.limit)

    def ends(self, state: int, count: int) -> Output:
        """The label of a content of this length."""
        if self.automaton.outputs[state] is None:
            return None
        return self.at[bisect.bisect_right(self.points, count) - 1]


def content_of(
    formulas: tuple[Formula, ...],
    label: Callable[[Callable[[Formula], bool]], Output],
    tracker: BudgetTracker,
    plain: bool = False,
) -> Content:
    """The content for some formulas over the atoms ``any fmt len pat``.

    Args:
        formulas: the first is what must hold; bounds on the length that are part of it are counted.
        label: from a function that says whether an atom holds to the label.
        tracker: the budget.
        plain: whether the automaton alone must decide, without counting beside it.
    """
    must, written = _with_lengths(parts_of(formulas[0]), formulas[1:], tracker.budget)
    lengths = [part for part in must if part[0] == "len"]
    rest = conjunction([part for part in must if part[0] != "len"])
    everything = list(dict.fromkeys(a for f in (rest, *formulas[1:]) for a in atoms(f)))
    if any(atom in everything for atom in lengths):
        lengths, everything = [], list(dict.fromkeys([*everything, *lengths]))
    least = max([atom[1] for atom in lengths], default=0)
    most = min([atom[2] for atom in lengths if atom[2] is not None], default=None)
    if most is not None and least > most:
        return content_of((("any", frozenset()),), lambda holds: None, tracker)
    place = {atom: i for i, atom in enumerate(everything)}
    bounds = set(lengths)
    if everything and not plain and all(atom[0] == "len" for atom in everything):
        return LengthContent([*lengths, *everything], label)

    def of_members(members: tuple[bool, ...]) -> Output:
        def holds(atom: Formula) -> bool:
            if atom in written:
                return all(map(holds, written[atom]))
            return atom in bounds or members[place[atom]]

        return label(holds)

    finite = [atom for atom in parts_of(rest) if atom[0] == "any"]
    if finite:
        # A finite set is best filtered text by text.
        return Content(_finite(finite, everything, of_members, tracker), least, most)
    automaton = _joint(everything, of_members, tracker) if everything else _everything(of_members(()))
    return Content(automaton, least, most)


def _with_lengths(
    must: Sequence[Formula], others: Sequence[Formula], budget: Budget
) -> tuple[list[Formula], dict[Formula, tuple[Formula, ...]]]:
    """What must hold, with bounds on the length instead of long counted repeats; and what stands for which pattern.

    Where a pattern is only one of several possibilities, its repeats are written out, because lengths are, too.
    """
    found: list[Formula] = []
    written: dict[Formula, tuple[Formula, ...]] = {}
    elsewhere = {atom for formula in (*others, *(p for p in must if p[0] != "pat")) for atom in atoms(formula)}
    for part in must:
        counted = counted_length(part[1], budget) if part[0] == "pat" and part not in elsewhere else None
        if counted is None:
            found.append(part)
        else:
            written[part] = ("counted", part[1]), ("len", *counted)
            found += written[part]
    return found, written


@cache
def _everything(label: Output) -> MooreMachine:
    return MooreMachine.of(any_text(), label)


def _joint(everything: list[Any], label: Callable[[tuple[bool, ...]], Output], tracker: BudgetTracker) -> MooreMachine:
    languages = [language(atom, tracker.budget) for atom in everything]
    if len(languages) == 1 and label((False,)) is None:
        return MooreMachine.of(languages[0], label((True,)))
    return joint(languages, any_text(), label, tracker)


def _finite(
    finite: list[Any], everything: list[Any], label: Callable[[tuple[bool, ...]], Output], tracker: BudgetTracker
) -> MooreMachine:
    texts = [t for t in sorted(frozenset.intersection(*[atom[1] for atom in finite])) if encodable(t)]
    others = {a: language(a, tracker.budget) for a in everything if a[0] not in ("any",)}
    labels: dict[str, Output] = {}
    for text in texts:
        members = tuple(text in a[1] if a[0] == "any" else others[a].fullmatch(text) for a in everything)
        found = label(members)
        if found is not None:
            labels[text] = found
    dfa = choice(labels, budget=tracker.budget, minimal=False)
    of_state: list[Output] = [None] * dfa.states
    for text, found in labels.items():
        of_state[dfa.walk(text.encode())] = found
    return MooreMachine(dfa.byte_class, dfa.next, of_state, dfa.start)
