"""Formulas over patterns, formats, lists and lengths as the content of JSON strings, decided on decoded characters.

A Moore machine reads the UTF-8 of the decoded text. If the number of characters has bounds, they are counted outside
the automaton, so that ``maxLength: 100000`` takes no states. A table tells how many characters away an end is from each
state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from typing import Final

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
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.ecma_pattern import compile_ecma, counted_length
from logitloom_plugins.json_schema.values.formats import IRREGULAR, format_automaton, most_characters
from logitloom_plugins.json_schema.values.listed_texts import among_all_texts, texts_alone
from logitloom_plugins.json_schema.values.moore_machine import (
    MooreMachine,
    Output,
    encodable,
    joint,
)

__all__ = ["content_of", "merged", "outputs_of_lists", "string_problem"]

#: The largest bound on the length of names, where the bound is part of the automaton.
_COUNTED_INSIDE: Final = 4096
_SHORT_LIST: Final = 32
#: The atoms whose automata may be large.
_LARGE: Final = frozenset(("pat", "counted", "fmt"))


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

    Read side by side, automata tell which of the alternatives a text satisfies, and thereby multiply. In the first
    formula, a bound on the length that no text of some alternatives exceeds stands beside these alternatives.
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
    """Alternatives with their largest bound on the length moved outside, if every text of theirs satisfies this bound.

    Any other formula stays as it is.
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


@lru_cache(maxsize=256)
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
        formulas: the first formula must hold; its bounds on the length are enforced by counting.
        output: makes the output from a function that says whether an atom holds.
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

        return output(holds if written or bounds else holding.__contains__)

    finite = listed(parts_of(rest), "any")
    if finite is not None:
        # A finite set is best filtered text by text.
        return _bounded(_finite(finite, everything, of_members, tracker), least, most)
    if counted:
        return _beside_lengths([*counted, *lengths], everything, must, written, output, tracker)
    automaton = _joint(everything, must, of_members, tracker) if everything else _everything(of_members(()))
    return _bounded(automaton, least, most)


def _points(bounds: Iterable[Atom]) -> list[int]:
    """The lengths from which on some bounds on the length hold, or hold no more; 0 among them."""
    return sorted({0, *[bound[1] for bound in bounds], *[bound[2] + 1 for bound in bounds if bound[2] is not None]})


def _is_within(bound: Atom, length: int) -> bool:
    return bool(bound[1] <= length and (bound[2] is None or length <= bound[2]))


def _beside_lengths(
    bounds: list[Atom],
    everything: list[Atom],
    must: Container[Formula],
    written: Mapping[Atom, tuple[Atom, ...]],
    output: Callable[[Callable[[Atom], bool]], Output],
    tracker: BudgetTracker,
) -> Content:
    """The content for formulas over patterns and lengths: an automaton of the patterns, with counted characters.

    Args:
        bounds: the bounds on the length.
        everything: all atoms of the formulas.
        must: contains those that must hold.
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

    automaton = _joint([atom for atom in everything if atom[0] != "len"], must, of_members, tracker)
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
    """The required atoms, with bounds on the length instead of long counted repeats, and the replacements by pattern.

    A pattern that other formulas contain, too, keeps its repeats: for this pattern the automaton decides about lengths.
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


def _joint(
    everything: list[Atom],
    must: Container[Formula],
    output: Callable[[Container[Atom]], Output],
    tracker: BudgetTracker,
) -> MooreMachine:
    """The automaton of all texts, each asked of some atoms; the lists of texts among them make one automaton.

    Args:
        everything: the atoms.
        must: contains those that must hold. The output of texts for which they do not hold is ``None``.
        output: a function from the atoms that hold to the output.
        tracker: the budget.
    """
    if len(everything) == 1 and output(()) is None:
        return MooreMachine.of(language(everything[0], tracker.budget), output(everything))
    lists = [atom for atom in everything if atom[0] == "any"]
    others = [atom for atom in everything if atom[0] != "any"]
    languages = [language(atom, tracker.budget) for atom in others]
    required = {index for index, atom in enumerate(others) if atom in must}
    if not lists:
        return joint(
            languages, any_text(), lambda flags: output([*compress(others, flags)]), tracker, required=required
        )
    members = {text: found for text, found in _by_text(lists).items() if encodable(text)}
    if not others and (other := output(())) is not None:
        told = {found: output(found) for found in {*members.values()}}
        return among_all_texts({text: told[found] for text, found in members.items()}, other, tracker)
    listed = texts_alone(members, tracker)
    return joint(
        languages,
        any_text(),
        lambda flags: output({*compress(others, flags[:-1]), *(flags[-1] or ())}),
        tracker,
        listed,
        required,
    )


def outputs_of_lists(
    formulas: tuple[Formula, ...], output: Callable[[Callable[[Atom], bool]], Output]
) -> set[Output] | None:
    """The outputs of all texts, without an automaton; ``None`` if the formulas ask about more than lists of texts.

    Args:
        formulas, output: as for :func:`content_of`.
    """
    lists = list(dict.fromkeys(atom for formula in formulas for atom in atoms(formula)))
    if any(atom[0] != "any" for atom in lists):
        return None
    # Some text is in no list.
    members = {frozenset[Atom](), *[found for text, found in _by_text(lists).items() if encodable(text)]}
    return {each for found in members if (each := output(found.__contains__)) is not None}


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
    return texts_alone({text: each for text, each in found.items() if each is not None}, tracker)


def _by_text(lists: list[Atom]) -> dict[str, frozenset[Atom]]:
    """For each text of some lists the lists that have it."""
    return memberships([(atom, atom[1]) for atom in lists])
