"""JSON numbers as texts: one small automaton per keyword, and all of them side by side.

Every number can be written without an exponent, and constrained numbers are: comparing ``m e x`` with a bound for
arbitrary ``m`` and ``x`` is not regular. Beside these, the two forms in which programs print very large and very small
numbers are read (one digit before the point, ``e+16`` and up, ``e-05`` and down) wherever their size alone
decides. Numbers without any constraint may be written in every form of RFC 8259.

References:
    T. Bray (ed.), "The JavaScript Object Notation (JSON) Data Interchange Format", RFC 8259, 2017, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np

from logitloom.automata import DEAD, Budget, BudgetTracker, Dfa, compile_pattern
from logitloom_plugins.json_schema.schema.formula import Formula, atoms, parts_of
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine, Output, joint

__all__ = ["number_automaton"]

_WHOLE: Final = "-?(?:0|[1-9][0-9]*)"
_LARGE: Final = r"[eE]\+0*(?:1[6-9]|[2-9][0-9]|[12][0-9]{2}|30[0-7])"
_SMALL: Final = "[eE]-0*(?:[5-9]|[1-9][0-9]|[12][0-9]{2}|30[0-7])"
#: Numbers printed with a positive exponent are at least the first; those with a negative one are below the second.
_LEAST_LARGE: Final = 10**16
_MOST_SMALL: Final = Fraction(1, 10**4)
#: For each relation the signs of ``number - bound`` with which it holds.
_RELATIONS: Final = {"ge": (0, 1), "gt": (1,), "le": (-1, 0), "lt": (-1,), "eq": (0,)}
#: Characters of a number beside its digits; those of one entry mean the same.
_SIGNS: Final = ("-", "+", ".", "eE")


def number_automaton(
    formulas: list[Formula], output: Callable[[Callable[[Formula], bool]], Output], tracker: BudgetTracker
) -> MooreMachine:
    """The automaton of JSON numbers, whose outputs say which formulas hold.

    Args:
        formulas: over the atoms ``int ge gt le lt mult eq``; the first is what must hold.
        output: from a function that says whether an atom holds to the output.
        tracker: the budget.

    Raises:
        BudgetExceeded: if it takes too many states.
    """
    everything = list(dict.fromkeys(atom for formula in formulas for atom in atoms(formula)))
    wanted = parts_of(formulas[0]) if formulas else ()
    fraction = "" if ("int", True) in wanted else r"(?:\.0)?" if ("int", False) in wanted else r"(?:\.[0-9]+)?"
    if not everything:
        forms = [f"{_WHOLE}{fraction}(?:[eE][+-]?[0-9]+)?"]
    else:
        sizes = [abs(atom[1]) for atom in everything if atom[0] in _RELATIONS and atom[1]]
        factors = [atom[1] for atom in everything if atom[0] == "mult"]
        forms = [_WHOLE + fraction]
        if all(size < _LEAST_LARGE for size in sizes) and all((1 / factor).denominator == 1 for factor in factors):
            forms.append(f"-?[1-9]{fraction}{_LARGE}")
        if all(size >= _MOST_SMALL for size in (*sizes, *factors)):
            forms.append(f"-?[1-9]{fraction}{_SMALL}")
    universe = _compiled("|".join(forms))
    languages = [_language(atom, tracker.budget) for atom in everything]

    def output_of(members: tuple[bool, ...]) -> Output:
        return output(dict(zip(everything, members, strict=True)).__getitem__)

    return joint(languages, universe, output_of, tracker)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Dfa:
    return compile_pattern(pattern, minimal=True)


@lru_cache(maxsize=512)
def _language(atom: Any, budget: Budget) -> Dfa:
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
    whole, _, fraction = format(abs(bound), "f").partition(".")
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    start = False, "whole", 0, 0

    def step(state: Any, c: str) -> Any:
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

    def holds(state: Any) -> bool:
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


def _order(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)


def _multiples(factor: Fraction, tracker: BudgetTracker) -> Dfa:
    """The multiples of a factor; all numbers printed with a large exponent, no numbers with a small one.

    With the least number of decimal places after which the factor is whole, a number is a multiple if its digits up to
    there leave no remainder, and all digits after that are zero. A state is the part, the decimal places, and the
    remainder.
    """
    places = 0
    while (10**places * factor).denominator != 1:
        places += 1
    modulus = int(10**places * factor)
    tracker.check_states(modulus, "remainders")

    def step(state: Any, c: str) -> Any:
        part, at, remainder = state
        if c in "+eE":
            return "large", 0, 0
        if c == "-":
            return state if part == "whole" else None
        if c == ".":
            return "fraction", 0, remainder
        if part == "whole" or (part == "fraction" and at < places):
            return part, at + (part == "fraction"), (remainder * 10 + int(c)) % modulus
        return state if part != "fraction" or c == "0" else ("inexact", 0, 0)

    def holds(state: Any) -> bool:
        part, at, remainder = state
        return bool(part != "inexact" and remainder * 10 ** (places - at) % modulus == 0)

    return _explored(("whole", 0, 0), step, holds, [*"0123456789", *_SIGNS], tracker)


def _explored(
    start: Hashable,
    step: Callable[[Any, str], Hashable | None],
    holds: Callable[[Any], bool],
    alphabet: Sequence[str],
    tracker: BudgetTracker,
) -> Dfa:
    """The automaton of a step function.

    Args:
        start: the first state.
        step: from a state and a character to the next state, ``None`` if there is none.
        holds: whether a text may end in a state.
        alphabet: the characters; of those in one entry the first stands for all.
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
