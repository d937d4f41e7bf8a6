"""JSON numbers as texts: one small automaton per keyword, and all of them side by side.

Numbers without any constraint may be written in every form of RFC 8259. Constrained numbers are written without an
exponent, because comparing ``m e x`` with a bound for arbitrary ``m`` and ``x`` is not regular. Where the size of a
number alone decides, the two forms in which programs print very large and very small numbers are read, too (one digit
before the point, with ``e+16`` and up or with ``e-05`` and down). An integer that a schema asks for is written without
fraction and exponent, because readers with types of their own refuse ``1.0`` there. An option allows every form that
JSON Schema calls an integer.

References:
    T. Bray (ed.), "The JavaScript Object Notation (JSON) Data Interchange Format", RFC 8259, 2017, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from math import gcd
from typing import Final, TypeVar

import numpy as np

from logitloom.automata import DEAD, Budget, BudgetTracker, Dfa, compile_pattern
from logitloom_plugins.json_schema.schema.formula import Atom, Formula, atoms, listed, memberships, parts_of
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine, Output, joint, trie

__all__ = ["number_automaton", "number_of", "states_of_multiples"]

Ordered = TypeVar("Ordered", Decimal, str, int)
Explored = TypeVar("Explored", bound=Hashable)
#: The state of a comparison: whether a minus was read, the part of the number that is being read, the number of digits
#: of that part, and the order of the magnitudes of number and bound.
_Compared = tuple[bool, str, int, int]
#: The state of a division: the part of the number that is being read, the decimal places, and the remainder.
_Divided = tuple[str, int, int]

#: The most digits of an exponent that is evaluated.
_MOST_DIGITS: Final = 1000

_WHOLE: Final = "-?(?:0|[1-9][0-9]*)"
_LARGE: Final = r"[eE]\+0*(?:1[6-9]|[2-9][0-9]|[12][0-9]{2}|30[0-7])"
_SMALL: Final = "[eE]-0*(?:[5-9]|[1-9][0-9]|[12][0-9]{2}|30[0-7])"
#: A number printed with a positive exponent is at least the first limit; a number with a negative exponent is below the
#: second.
_LEAST_LARGE: Final = 10**16
_MOST_SMALL: Final = Fraction(1, 10**4)
#: For each relation the signs of ``number - bound`` with which it holds.
_RELATIONS: Final = {"ge": (0, 1), "gt": (1,), "le": (-1, 0), "lt": (-1,)}
#: The characters of numbers that are no digits; the characters of one entry have the same meaning.
_SIGNS: Final = ("-", "+", ".", "eE")
_ZERO: Final = ord("0")
#: The label of a whole number of a list that is written with a fraction.
_OTHERWISE: Final = "otherwise"


def number_automaton(
    formulas: list[Formula],
    output: Callable[[Callable[[Atom], bool]], Output],
    tracker: BudgetTracker,
    plain_integers: bool = True,
) -> MooreMachine:
    """The automaton of JSON numbers, whose outputs say which formulas hold.

    Args:
        formulas: over the atoms ``int ge gt le lt mult eq``; the first is what must hold.
        output: from a function that says whether an atom holds to the output.
        tracker: the budget.
        plain_integers: whether whole numbers are written without fraction and exponent where an atom asks for integers,
            and where they are listed; otherwise ``1.0`` is an integer, too.

    Raises:
        BudgetExceeded: if it takes too many states.
    """
    everything = list(dict.fromkeys(atom for formula in formulas for atom in atoms(formula)))
    wanted = parts_of(formulas[0]) if formulas else ()
    finite = listed(wanted, "eq")
    if finite is not None:
        return _of_few(finite, wanted, output, tracker, plain_integers)
    are_whole = ("int", True) in wanted or (plain_integers and ("int", False) in wanted)
    universe = _compiled(_WHOLE if are_whole else "|".join(_forms(everything, wanted, plain_integers)))
    lists = [atom for atom in everything if atom[0] == "eq"]
    # Each number that is written without a point and an exponent is an integer.
    implied = [atom for atom in everything if are_whole and atom[0] == "int"]
    others = [atom for atom in everything if atom[0] != "eq" and atom not in implied]
    members: dict[Decimal, frozenset[Atom]] = memberships([(atom, atom[1]) for atom in lists])

    def label(value: Decimal, is_plain: bool) -> Output:
        return members[value] if is_plain or not (plain_integers and _is_whole(value)) else _OTHERWISE

    def output_of(flags: tuple[Output, ...]) -> Output:
        found: Output = flags[-1] if lists else None
        if found is _OTHERWISE:
            return None
        holds = dict(zip(others, flags, strict=False)) | dict.fromkeys((*implied, *(found or ())), True)
        return output(lambda atom: holds.get(atom, False))

    languages = [_language(atom, tracker.budget) for atom in others]
    required = {index for index, atom in enumerate(others) if atom in wanted}
    return joint(languages, universe, output_of, tracker, _listed(members, label, tracker) if lists else None, required)


def _forms(everything: Sequence[Atom], wanted: Sequence[Atom], plain_integers: bool) -> list[str]:
    """The forms of numbers, as patterns, where not all numbers are plain integers.

    Args:
        everything: the atoms that play a part.
        wanted: those that must hold.
        plain_integers: as in :func:`number_automaton`.
    """
    is_plain = plain_integers and ("int", False) in everything
    fraction = r"(?:\.[0-9]+)?"
    if ("int", False) in wanted:
        fraction = r"(?:\.0)?"
    if not everything:
        return [f"{_WHOLE}{fraction}(?:[eE][+-]?[0-9]+)?"]
    sizes = [atom[1].copy_abs() for atom in everything if atom[0] in _RELATIONS and atom[1]]
    sizes += [value.copy_abs() for atom in everything if atom[0] == "eq" for value in atom[1] if value]
    factors = [atom[1] for atom in everything if atom[0] == "mult"]
    forms = [_WHOLE + (r"(?:\.[0-9]*[1-9][0-9]*)?" if is_plain else fraction)]
    decided = all(size < _LEAST_LARGE for size in sizes) and all((1 / factor).denominator == 1 for factor in factors)
    if decided and not is_plain:
        forms.append(f"-?[1-9]{fraction}{_LARGE}")
    if all(size >= _MOST_SMALL for size in (*sizes, *factors)):
        forms.append(f"-?[1-9]{fraction}{_SMALL}")
    return forms


def _of_few(
    values: frozenset[Decimal],
    wanted: Sequence[Formula],
    output: Callable[[Callable[[Atom], bool]], Output],
    tracker: BudgetTracker,
    plain_integers: bool,
) -> MooreMachine:
    """The automaton of the numbers of a finite list; formulas are evaluated for each number by itself."""

    @cache
    def label(value: Decimal, is_plain: bool) -> Output:
        if not is_plain and plain_integers and _is_whole(value) and label(value, True) is not None:
            return None
        return output(lambda atom: _holds(atom, value, is_plain))

    return _listed(values, label, tracker, zeros=("int", False) not in wanted)


def _is_whole(value: Decimal) -> bool:
    return value == value.to_integral_value()


def _holds(atom: Atom, value: Decimal, is_plain: bool) -> bool:
    """Whether an atom holds for a number that is written with or without a point."""
    kind, bound = atom
    if kind == "int":
        return is_plain if bound else _is_whole(value)
    if kind == "eq":
        return bool(value in bound)
    if kind == "mult":
        return bool((Fraction(value) / bound).denominator == 1)
    return _order(value, bound) in _RELATIONS[kind]


def _listed(
    values: Iterable[Decimal],
    label: Callable[[Decimal, bool], Output],
    tracker: BudgetTracker,
    zeros: bool = True,
) -> MooreMachine:
    """The prefix trie of the numbers of a list, written without exponent.

    Args:
        values: the numbers.
        label: a function of a number and whether it is written without a point. The function returns the output of
            such texts, or ``None`` if the number must not be written like this.
        tracker: the budget.
        zeros: whether any number of zeros may follow the point of a whole number; otherwise a single zero may.
    """
    children: list[dict[int, int]] = [{}]
    outputs: list[Output] = [None]

    def follow(state: int, text: str) -> int:
        for byte in text.encode():
            following = children[state].get(byte)
            if following is None:
                following = children[state][byte] = len(children)
                children.append({})
                outputs.append(None)
            state = following
        return state

    ends: list[tuple[int, Output, bool]] = []
    for value in values:
        tracker.check_states(abs(value.adjusted()), "digits")
        tracker.check_states(len(children))
        whole, _, fraction = format(value.copy_abs(), "f").partition(".")
        whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
        plain, pointed = None if fraction else label(value, True), label(value, False)
        for sign in ("", "-") if not value else ("-",) if value < 0 else ("",):
            if plain is not None:
                outputs[follow(0, sign + whole)] = plain
            if pointed is not None:
                state = follow(0, f"{sign}{whole}.{fraction}")
                outputs[state] = pointed if fraction else None
                ends.append((state, pointed, zeros or bool(fraction)))
    for state, output, repeat in ends:
        # A longer number of the list may go on with zeros, too. The text means this number until a digit differs.
        while _ZERO in children[state]:
            state = children[state][_ZERO]
            outputs[state] = output
            if not repeat:
                break
        else:
            following = follow(state, "0")
            outputs[following] = output
            if repeat:
                children[following][_ZERO] = following
    return trie(children, outputs, tracker)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Dfa:
    return compile_pattern(pattern, minimal=True)


@lru_cache(maxsize=512)
def _language(atom: Atom, budget: Budget) -> Dfa:
    """The numbers for which an atom holds, among texts that are numbers."""
    kind, value = atom
    if kind == "int":
        return _compiled(_WHOLE if value else rf"{_WHOLE}(?:\.0+)?|-?[1-9](?:\.[0-9]+)?{_LARGE}")
    tracker = BudgetTracker(budget, "a range of numbers")
    return _multiples(value, tracker) if kind == "mult" else _compared(_RELATIONS[kind], value, tracker)


def _compared(signs: tuple[int, ...], bound: Decimal, tracker: BudgetTracker) -> Dfa:
    """The numbers whose difference to a bound has one of some signs.

    A state is whether the number is negative, the part of it that is being read, how many digits of that part have been
    compared with those of the bound, and the order of both magnitudes as far as these digits tell. The part is
    ``settled`` after the letter of an exponent, and where the signs differ.
    """
    tracker.check_states(abs(bound.adjusted()), "digits")
    whole, _, fraction = format(bound.copy_abs(), "f").partition(".")
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    start: _Compared = (False, "whole", 0, 0)

    def step(state: _Compared, c: str) -> _Compared:
        negative, part, at, order = state
        if c == "-" and state == start:
            return True, part, at, order
        if c in "+-":
            return negative, "settled", 0, 1 if c == "+" or not bound else -1
        if c in "eE" or part == "settled" or (bound and negative != (bound < 0)):
            return negative, "settled", 0, order
        if c == ".":
            return negative, "fraction", 0, by_length(at, order)
        if part == "whole":
            order = order or _order(c, whole[at]) if at < len(whole) else 1
            return negative, part, min(at + 1, len(whole) + 1), order
        order = order or _order(c, fraction[at : at + 1] or "0")
        return negative, part, len(fraction) if order else min(at + 1, len(fraction)), order

    def by_length(at: int, order: int) -> int:
        return order if at == len(whole) else _order(at, len(whole))

    def holds(state: _Compared) -> bool:
        negative, part, at, order = state
        if bound and negative != (bound < 0):
            order = 1
        elif part == "whole":
            order = by_length(at, order) or -bool(fraction)
        elif part == "fraction":
            order = order or -(at < len(fraction))
        return (-order if negative else order) in signs

    compared = {"0", *whole, *fraction}
    digits: list[str] = []
    for digit in "0123456789":
        if digit in compared or chr(ord(digit) - 1) in compared:
            digits.append(digit)
        else:
            digits[-1] += digit
    return _explored(start, step, holds, [*digits, *_SIGNS], tracker)


def _order(one: Ordered, other: Ordered) -> int:
    return int(one > other) - int(one < other)


class _Division:
    """The remainders of numbers that are divided by a factor, digit by digit.

    Remainders that the same further digits complete to a multiple are alike, and one of them stands for all. ``k``
    further digits complete a remainder ``r`` if ``-r * 10**k`` leaves a remainder below ``10**k``, which is the number
    that these digits write. Remainders are alike if the least such ``k`` is the same and the digits are, that is, if
    the remainders are equal modulo ``modulus / gcd(modulus, 10**k)``.

    Args:
        factor: what numbers are multiples of.

    Attributes:
        places: the least number of decimal places with which the factor can be written.
        modulus: the factor in units of the last of these places.

    References:
        B. Alexeev, "Minimal DFA for testing divisibility", Journal of Computer and System Sciences 69(2), 2004.
    """

    def __init__(self, factor: Fraction) -> None:
        places, power = 0, 1
        while (power * factor).denominator != 1:
            places, power = places + 1, power * 10
        self.places, self.modulus = places, int(power * factor)
        #: For 0, 1, ... further digits the power of ten and the modulus that plays a part. More digits leave the last.
        self._further = [(1, self.modulus)]
        power, common = 10, gcd(10, self.modulus)
        while len(self._further) <= places or self.modulus // common != self._further[-1][1]:
            self._further.append((power, self.modulus // common))
            power, common = power * 10, gcd(power * 10, self.modulus)
        self._known: dict[tuple[int, int], int] = {}

    @property
    def states(self) -> int:
        """How many remainders are not alike: before the point, and after each number of decimal places."""
        fewer = [min(power, self.modulus) * modulus // self.modulus for power, modulus in self._further]
        whole = min(sum(fewer[self.places : n]) + self._further[n][1] for n in range(self.places, len(fewer)))
        return whole + sum(fewer[: self.places + 1])

    def whole(self, remainder: int) -> int:
        """The remainder that stands for a remainder of the digits before the point."""
        fewest = (each for each in self._further[self.places :] if -remainder * each[0] % self.modulus < each[0])
        power, modulus = next(fewest, self._further[-1])
        return self._known.setdefault((power, remainder % modulus), remainder % self.modulus)

    def fraction(self, at: int, remainder: int) -> int | None:
        """The remainder that stands for another after some decimal places; ``None`` if no digits complete it."""
        power, modulus = self._further[self.places - at]
        return remainder % modulus if -remainder * power % self.modulus < power else None


def states_of_multiples(factor: Fraction) -> int:
    """The number of states in which the multiples of a factor are read; the least for factors without decimal places.

    Example:
        >>> [states_of_multiples(Fraction(factor)) for factor in ("7", "1000", "86400", "2.5", "1e30")]
        [8, 5, 142, 6, 32]
    """
    return _Division(factor).states


def _multiples(factor: Fraction, tracker: BudgetTracker) -> Dfa:
    """The multiples of a factor; all numbers printed with a large exponent, no numbers with a small one.

    Let ``n`` be the least number of decimal places with which the factor can be written. A number is a multiple if its
    digits up to place ``n`` leave no remainder, and all later digits are zero. A state is the part of the number, the
    decimal places, and the remainder.
    """
    division = _Division(factor)
    tracker.check_states(division.states, "remainders")
    places, modulus = division.places, division.modulus

    def fraction(at: int, remainder: int) -> _Divided:
        found = division.fraction(at, remainder)
        return ("inexact", 0, 0) if found is None else ("fraction", at, found)

    def step(state: _Divided, c: str) -> _Divided | None:
        part, at, remainder = state
        if c in "+eE":
            return "large", 0, 0
        if c == "-":
            return state if part == "whole" else None
        if c == ".":
            return fraction(0, remainder)
        if part == "whole":
            return part, 0, division.whole(remainder * 10 + int(c))
        if part == "fraction" and at < places:
            return fraction(at + 1, remainder * 10 + int(c))
        return state if part != "fraction" or c == "0" else ("inexact", 0, 0)

    def holds(state: _Divided) -> bool:
        part, at, remainder = state
        return bool(part != "inexact" and remainder * 10 ** (places - at) % modulus == 0)

    return _explored(("whole", 0, 0), step, holds, [*"0123456789", *_SIGNS], tracker)


def _explored(
    start: Explored,
    step: Callable[[Explored, str], Explored | None],
    holds: Callable[[Explored], bool],
    alphabet: Sequence[str],
    tracker: BudgetTracker,
) -> Dfa:
    """The automaton of a step function.

    Args:
        start: the first state.
        step: from a state and a character to the next state, ``None`` if there is none.
        holds: whether a text may end in a state.
        alphabet: the characters; the first character of an entry stands for all characters of the entry.
        tracker: the budget.
    """
    number = {start: 0}
    rows = []
    for state in (queue := [start]):
        row = [DEAD]
        for characters in alphabet:
            target = step(state, characters[0])
            if target is not None and target not in number:
                number[target] = len(queue)
                queue.append(target)
            row.append(DEAD if target is None else number[target])
        rows.append(row)
        if len(rows) % 256 == 0:
            tracker.check_states(len(queue))
    byte_class = np.zeros(256, dtype=np.uint8)
    for column, characters in enumerate(alphabet, 1):
        byte_class[list(characters.encode())] = column
    return Dfa(byte_class, rows, [holds(state) for state in queue])


def number_of(text: bytes) -> tuple[bool, bytes, int | bytes]:
    """Whether a number is negative, its digits without zeros at both ends, and the power of ten of the last digit."""
    mantissa, _, exponent = text.lower().partition(b"e")
    whole, _, fraction = mantissa.lstrip(b"-").partition(b".")
    digits = (whole + fraction).lstrip(b"0")
    kept = digits.rstrip(b"0")
    if not kept:
        return False, b"", 0
    negative = text.startswith(b"-")
    if len(exponent) > _MOST_DIGITS:
        return negative, kept, exponent
    return negative, kept, int(exponent or b"0") - len(fraction) + len(digits) - len(kept)
