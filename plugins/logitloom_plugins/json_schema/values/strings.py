"""The content of JSON strings: which texts they may hold, decided on decoded characters.

A Moore machine reads the UTF-8 of the decoded text. Characters are counted beside it where their number has bounds, so
that ``maxLength: 100000`` takes no states. A table tells how many characters away an end is from each state.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import compress, pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import (
    Budget,
    BudgetTracker,
    Dfa,
    any_text,
    choice,
    compile_pattern,
    complement,
    intersection,
    nothing,
    union,
)
from logitloom.errors import BudgetExceeded, UnsupportedPattern
from logitloom_plugins.json_schema.schema.formula import (
    Atom,
    Formula,
    atoms,
    conjunction,
    is_atom,
    listed,
    memberships,
    operands,
    parts_of,
    substitute,
)
from logitloom_plugins.json_schema.values.ecma_pattern import compile_ecma, counted_length
from logitloom_plugins.json_schema.values.end_distances import FREE_FOREVER, EndDistances
from logitloom_plugins.json_schema.values.formats import IRREGULAR, format_automaton, most_characters
from logitloom_plugins.json_schema.values.moore_machine import (
    MooreMachine,
    Output,
    encodable,
    from_steps,
    joint,
)

__all__ = ["FREE_FOREVER", "Content", "content_of", "merged", "string_problem"]

#: The largest bound on the length of names, where the bound is part of the automaton.
_COUNTED_INSIDE: Final = 4096
_SHORT_LIST: Final = 32
#: The atoms whose automata may be large.
_LARGE: Final = frozenset(("pat", "counted", "fmt"))
#: The most distances that are compared to find the farthest end.
_MOST_DISTANCES: Final = 1 << 11


def string_problem(keyword: str, text: str, budget: Budget | None) -> str | None:
    """Why no automaton can be made of the value of ``pattern``, ``patternProperties`` or ``format``, or ``None``.

    Raises:
        BudgetExceeded: if the automaton takes more than the budget allows.
    """
    if keyword == "format":
        return f"the format {text!r} is not regular ({IRREGULAR[text]})" if text in IRREGULAR else None
    try:
        # The length of a string is counted beside its automaton, that of a name is not.
        compile_ecma(text, budget, keyword == "pattern" and counted_length(text, budget) is not None)
    except UnsupportedPattern as error:
        return str(error)
    return None


def language(atom: Atom, budget: Budget | None) -> Dfa:
    """The decoded texts for which an atom on strings holds."""
    kind = atom[0]
    if kind in ("pat", "counted"):
        return compile_ecma(atom[1], budget, kind == "counted")
    if kind == "fmt":
        return format_automaton(atom[1])
    if kind == "of":
        return _language_of(atom[1], budget)
    if kind == "any":
        texts = [text for text in atom[1] if encodable(text)]
        # Making a short list minimal takes longer than it saves when the list is read side by side with other automata.
        return choice(texts, budget=budget, minimal=len(texts) > _SHORT_LIST)
    least, most = atom[1], atom[2]
    if most is not None and most < least:
        return nothing()
    if max(least, most or 0) > _COUNTED_INSIDE:
        raise BudgetExceeded(
            f"A length of {least} to {'any number of' if most is None else most} characters of the names of members "
            f"takes too many states. Use a smaller bound there."
        )
    return compile_pattern(f"(?s:.{{{least},{'' if most is None else most}}})", budget=budget)


def _language_of(formula: Formula, budget: Budget | None) -> Dfa:
    """The decoded texts for which a formula of atoms joined by ``& | !`` holds."""
    assert not isinstance(formula, bool)
    if formula[0] == "!":
        return complement(_language_of(formula[1], budget), budget=budget, minimal=False)
    every = operands(formula)
    patterns = [part for part in every if is_atom(part) and part[0] == "pat"]
    if formula[0] == "|" and len(patterns) > 1:
        # Alternatives of one pattern are read together from the beginning.
        one: Atom = ("pat", "|".join([f"(?:{part[1]})" for part in patterns]))
        every = (*[part for part in every if part not in patterns], one)
    if not every:
        return language(formula, budget)
    # Small automata first, because each further automaton is multiplied with the product of those before.
    parts = sorted([_language_of(part, budget) for part in every], key=lambda dfa: dfa.states)
    return (union if formula[0] == "|" else intersection)(*parts, budget=budget, minimal=False)


def merged(formulas: tuple[Formula, ...]) -> tuple[Formula, ...]:
    """The same formulas with one atom ``("of", part)`` in place of each disjunction whose atoms occur nowhere else.

    Read side by side, automata tell which of the alternatives a text satisfies, and thereby multiply. Of the first
    formula, bounds on the length of alternatives are taken out of the disjunctions where all texts are within them.
    """
    formulas = (conjunction([_bound_outside(part) for part in parts_of(formulas[0])]), *formulas[1:])
    parts = [part for formula in formulas for part in parts_of(formula) if not isinstance(part, bool)]
    times = Counter(atom for part in parts for atom in atoms(part))

    def of(part: Formula) -> Formula:
        inside = atoms(part)
        is_apart = not isinstance(part, bool) and part[0] == "|" and all(times[atom] == 1 for atom in inside)
        is_large = sum(atom[0] in _LARGE for atom in inside) > 1 and all(atom[0] != "len" for atom in inside)
        return ("of", part) if is_apart and is_large and _is_joined(part) else part

    return tuple([conjunction([of(part) for part in parts_of(formula)]) for formula in formulas])


def _bound_outside(part: Formula) -> Formula:
    """Alternatives of which no text is longer than the largest bound on the length of one of them: that bound, and the
    alternatives without it. Anything else stays as it is.
    """
    if isinstance(part, bool) or part[0] not in "|1":
        return part
    alternatives = [parts_of(each) for each in operands(part)]
    bounds = [one for each in alternatives for one in each if one[0] == "len"]
    most = max([-1 if bound[2] is None else bound[2] for bound in bounds], default=-1)
    if most < 0 or not all(_are_within(each, most) for each in alternatives):
        return part

    def left(atom: Atom) -> Formula:
        if atom[0] != "len" or atom[2] != most:
            return atom
        return ("len", atom[1], None) if atom[1] else True

    return conjunction([("len", 0, most), substitute(part, left)])


def _are_within(conditions: Iterable[Atom], most: int) -> bool:
    """Whether one of several conditions allows only texts of at most so many characters."""
    for one in conditions:
        if one[0] == "len" and one[2] is not None and one[2] <= most:
            return True
        if one[0] == "any" and all(len(text) <= most for text in one[1]):
            return True
        if one[0] == "fmt" and (longest := most_characters(one[1])) is not None and longest <= most:
            return True
    return False


def _is_joined(formula: Formula) -> bool:
    """Whether a formula has no operators but ``& | !``."""
    if isinstance(formula, bool) or is_atom(formula):
        return True
    return formula[0] in "&|!" and all(map(_is_joined, operands(formula) or formula[1:]))


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
        """Whether every text is content, so that only its length matters. Not all such contents are recognised."""
        # The automaton is back at its start after each character, and accepts there.
        automaton, start = self.automaton, self.automaton.start
        return automaton.outputs[start] is not None and automaton.after_characters(start, 0, 0x10FFFF) == {start}

    # --- one character after the other -------------------------------------------------------------------------

    def counted(self, count: int) -> int:
        """The number of characters as far as it matters: numbers beyond the last bound are all alike."""
        return min(count, self.points[-1])

    def alike(self, count: int, more: int) -> int:
        """The least number of characters after which all ends are as after ``count``, also after ``more`` further ones.

        ``count`` itself, where that is not known: where a bound is near, or if there are several outputs.
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

    @cached_property
    def exact_distances(self) -> EndDistances | None:
        """The distances to ends of which each stands for itself; ``None`` if their table takes too much memory, or if
        texts end in several ranges of lengths.
        """
        if len(self._spans) != 1:
            return None
        ((_, last, _, distances),) = self._spans
        if last is not None:
            return distances
        try:
            # The nearest end is fewer characters away than there are states.
            return EndDistances(self.automaton, self.least + self.automaton.states, False)
        except BudgetExceeded:
            return None

    def nearest_end(self, state: int, count: int) -> int | None:
        """How many characters away the nearest end within the bounds is, by :attr:`exact_distances`."""
        distances = self.exact_distances
        if distances is None or not self.alive(state, count):
            return None
        least = max(self.least - count, 0)
        most = least + self.automaton.states if self.most is None else self.most - count
        return next((distance for distance in range(least, most + 1) if distances.at(distance, state)), None)

    @cached_property
    def farthest_end(self) -> int:
        """An upper bound on the characters to the nearest end within the bounds, from any state that leads to one."""
        if self._shrinks:
            return max([self._farthest_with(span.ending) for span in self._spans])
        distances, least = self.exact_distances, max([span.first for span in self._spans], default=0)
        last = least + self.automaton.states
        if distances is None or (least and last > _MOST_DISTANCES):
            return last
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
        """The most characters to the nearest end with one of some outputs, from any state that leads to one."""
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

        Few different parts are returned, so that they can be remembered.

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


@cache
def _everything(output: Output) -> MooreMachine:
    return MooreMachine.of(any_text(), output)


def _bounded(automaton: MooreMachine, least: int, most: int | None) -> Content:
    """The content of an automaton with bounds on the length."""
    if least == 0 and most is None:
        return Content(automaton)
    points: dict[int, dict[Output, Output]] = {0: {}, least: automaton.meanings}
    points |= {} if most is None else {most + 1: {}}
    return Content(automaton, list(points.items()))


def content_of(
    formulas: tuple[Formula, ...],
    output: Callable[[Callable[[Atom], bool]], Output],
    tracker: BudgetTracker,
    plain: bool = False,
) -> Content:
    """The content for some formulas over the atoms ``any fmt len pat``.

    Args:
        formulas: the first is what must hold; bounds on the length that are part of it are counted.
        output: from a function that says whether an atom holds to the output.
        tracker: the budget.
        plain: whether the automaton alone must decide, without counting beside it.
    """
    must, written = _with_lengths(parts_of(formulas[0]), formulas[1:], tracker.budget)
    lengths = [part for part in must if part[0] == "len"]
    rest = conjunction([part for part in must if part[0] != "len"])
    everything = list(dict.fromkeys(a for f in (rest, *formulas[1:]) for a in atoms(f)))
    counted = [] if plain else [atom for atom in everything if atom[0] == "len"]
    if any(atom in everything for atom in lengths):
        lengths, everything = [], list(dict.fromkeys([*everything, *lengths]))
    least = max([atom[1] for atom in lengths], default=0)
    most = min([atom[2] for atom in lengths if atom[2] is not None], default=None)
    if most is not None and least > most:
        return content_of((("any", frozenset()),), lambda holds: None, tracker)
    bounds = set(lengths)
    if (bounds or (everything and not plain)) and all(atom[0] == "len" for atom in everything):
        return _of_lengths([("len", least, most), *everything], output)

    def of_members(holding: Container[Atom]) -> Output:
        def holds(atom: Atom) -> bool:
            if atom in written:
                return all(map(holds, written[atom]))
            return atom in bounds or atom in holding

        return output(holds)

    finite = listed(parts_of(rest), "any")
    if finite is not None:
        # A finite set is best filtered text by text.
        return _bounded(_finite(finite, everything, of_members, tracker), least, most)
    if counted:
        return _beside_lengths([*counted, *lengths], everything, written, output, tracker)
    automaton = _joint(everything, of_members, tracker) if everything else _everything(of_members(()))
    return _bounded(automaton, least, most)


def _points(bounds: Iterable[Atom]) -> list[int]:
    """The lengths from which on some bounds on the length hold, or hold no more; 0 among them."""
    return sorted({0, *[bound[1] for bound in bounds], *[bound[2] + 1 for bound in bounds if bound[2] is not None]})


def _is_within(bound: Atom, length: int) -> bool:
    return bool(bound[1] <= length and (bound[2] is None or length <= bound[2]))


def _beside_lengths(
    bounds: list[Atom],
    everything: list[Atom],
    written: Mapping[Atom, tuple[Atom, ...]],
    output: Callable[[Callable[[Atom], bool]], Output],
    tracker: BudgetTracker,
) -> Content:
    """The content for formulas over patterns and lengths: an automaton of the patterns, with counted characters.

    Args:
        bounds: the bounds on the length.
        everything: all atoms of the formulas.
        written: the atoms in place of a pattern, by pattern.
        output, tracker: as of :func:`content_of`.
    """
    points = _points(bounds)

    def at(length: int, holding: Container[Atom]) -> Output:
        def holds(atom: Atom) -> bool:
            if atom in written:
                return all(map(holds, written[atom]))
            return _is_within(atom, length) if atom[0] == "len" else atom in holding

        return output(holds)

    def of_members(holding: Container[Atom]) -> Output:
        found = tuple([at(length, holding) for length in points])
        return None if all(each is None for each in found) else found

    automaton = _joint([atom for atom in everything if atom[0] != "len"], of_members, tracker)
    found = [(point, {own: own[n] for own in automaton.found if own[n] is not None}) for n, point in enumerate(points)]
    return Content(automaton, found)


def _of_lengths(bounds: list[Atom], output: Callable[[Callable[[Atom], bool]], Output]) -> Content:
    """The content for formulas over lengths alone."""

    def at(length: int) -> dict[Output, Output]:
        found = output(lambda bound: _is_within(bound, length))
        return {} if found is None else {(): found}

    return Content(_everything(()), [(point, at(point)) for point in _points(bounds)])


def _with_lengths(
    must: Sequence[Atom], others: Sequence[Formula], budget: Budget
) -> tuple[list[Atom], dict[Atom, tuple[Atom, ...]]]:
    """What must hold, with bounds on the length instead of long counted repeats, and what replaces which pattern.

    A pattern that other formulas contain, too, keeps its repeats: there the automaton decides about lengths.
    """
    found: list[Atom] = []
    written: dict[Atom, tuple[Atom, ...]] = {}
    elsewhere = {atom for formula in (*others, *(p for p in must if p[0] != "pat")) for atom in atoms(formula)}
    for part in must:
        counted = counted_length(part[1], budget) if part[0] == "pat" and part not in elsewhere else None
        if counted is None:
            found.append(part)
        else:
            written[part] = ("counted", part[1]), ("len", *counted)
            found += written[part]
    return found, written


def _joint(everything: list[Atom], output: Callable[[Container[Atom]], Output], tracker: BudgetTracker) -> MooreMachine:
    """The automaton of all texts, each asked of some atoms; the lists of texts among them make one automaton."""
    if len(everything) == 1 and output(()) is None:
        return MooreMachine.of(language(everything[0], tracker.budget), output(everything))
    lists = [atom for atom in everything if atom[0] == "any"]
    others = [atom for atom in everything if atom[0] != "any"]
    languages = [language(atom, tracker.budget) for atom in others]
    if not lists:
        return joint(languages, any_text(), lambda flags: output([*compress(others, flags)]), tracker)
    members = {text: found for text, found in _by_text(lists).items() if encodable(text)}
    listed = _of_texts(members, tracker)
    return joint(
        languages,
        any_text(),
        lambda flags: output({*compress(others, flags[:-1]), *(flags[-1] or ())}),
        tracker,
        listed,
    )


def _finite(
    finite: frozenset[str],
    everything: list[Atom],
    output: Callable[[Container[Atom]], Output],
    tracker: BudgetTracker,
) -> MooreMachine:
    """The automaton of the texts of a finite set, each asked of some atoms."""
    texts = [text for text in sorted(finite) if encodable(text)]
    lists = _by_text([atom for atom in everything if atom[0] == "any"])
    others = [(atom, language(atom, tracker.budget)) for atom in everything if atom[0] not in ("any", "len")]
    lengths = [atom for atom in everything if atom[0] == "len"]
    found: dict[str, Output] = {}
    outputs: dict[frozenset[Atom], Output] = {}
    for text in texts:
        holding = lists[text].union([atom for atom, dfa in others if dfa.fullmatch(text)]) if others else lists[text]
        if lengths:
            holding = holding.union([atom for atom in lengths if _is_within(atom, len(text))])
        if holding not in outputs:
            outputs[holding] = output(holding)
        found[text] = outputs[holding]
    return _of_texts({text: each for text, each in found.items() if each is not None}, tracker)


def _by_text(lists: list[Atom]) -> dict[str, frozenset[Atom]]:
    """For each text of some lists the lists that have it."""
    return memberships([(atom, atom[1]) for atom in lists])


def _of_texts(outputs: Mapping[str, Output], tracker: BudgetTracker) -> MooreMachine:
    """The prefix trie of some texts, each with its output."""
    ordered = sorted(outputs)
    texts = [text.encode() for text in ordered]
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    read = np.frombuffer(b"".join(texts), dtype=np.uint8)
    shared = _shared(read, lengths)
    # Of each text the states after the bytes that it does not share with the text before are new, one after the other.
    new = lengths - shared
    tracker.check_states(int(new.sum()) + 1)
    first = 1 + new.cumsum() - new
    place = np.arange(len(read)) - np.repeat(lengths.cumsum() - lengths, lengths)
    is_new = place >= np.repeat(shared, lengths)
    sources = np.arange(int(new.sum()))
    # The first of them comes after a state of an earlier text: of the last one that shares fewer bytes with its own.
    branches = new > 0
    path: list[tuple[int, int]] = [(0, 0)]
    befores = []
    for common, number, some in zip(shared.tolist(), first.tolist(), branches.tolist(), strict=True):
        while path[-1][0] > common:
            path.pop()
        depth, state = path[-1]
        befores.append(state + common - depth)
        if some:
            path.append((common + 1, number))
    sources[first[branches] - 1] = np.array(befores)[branches]
    found: list[Output] = [None] * (len(sources) + 1)
    for text, state in zip(ordered, (first + new - 1).tolist(), strict=True):
        found[state] = outputs[text]
    return from_steps(sources, read[is_new], np.arange(1, len(found)), found, tracker)


def _shared(read: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[texts]``: how many bytes each of some texts in ascending order has in common with the text before it.

    Args:
        read: the bytes of all texts.
        lengths: of the texts.
    """
    ends = lengths.cumsum()
    most = np.minimum(lengths[1:], lengths[:-1])
    # Only the first text may be empty.
    pairs = np.flatnonzero(most)
    most = most[pairs]
    begins = most.cumsum() - most
    place = np.arange(int(most.sum())) - np.repeat(begins, most)
    before, after = (place + np.repeat((ends - lengths)[pairs + offset], most) for offset in (0, 1))
    differs = np.where(read[before] != read[after], place, np.repeat(most, most))
    shared = np.zeros(len(lengths), dtype=np.int64)
    if len(pairs):
        shared[pairs + 1] = np.minimum.reduceat(differs, begins)
    return shared
