"""Boolean formulas over atoms: hashable tuples, simplified as they are made.

``True``, ``False``, ``("&", parts)``, ``("|", parts)``, ``("1", parts)`` (exactly one), ``("!", part)``; every other
tuple is an atom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

__all__ = [
    "Formula",
    "atoms",
    "conjunction",
    "disjunction",
    "exactly_one",
    "factored",
    "is_atom",
    "negation",
    "nodes_in",
    "parts_of",
    "substitute",
]

Formula = Any
_OPERATORS: Final = frozenset("&|!1")


def conjunction(parts: Iterable[Formula]) -> Formula:
    """All of the parts."""
    return _joined("&", parts, True)


def disjunction(parts: Iterable[Formula]) -> Formula:
    """At least one of the parts."""
    return _joined("|", parts, False)


def _joined(operator: str, parts: Iterable[Formula], neutral: bool) -> Formula:
    found: dict[Formula, None] = {}
    for part in parts:
        if part is neutral:
            continue
        if part is (not neutral):
            return part
        if part[0] == operator:
            found.update(dict.fromkeys(part[1]))
        else:
            found[part] = None
    for part in found:
        if part[0] == "!" and part[1] in found:
            return not neutral
    if len(found) < 2:
        return next(iter(found), neutral)
    return (operator, tuple(found))


def negation(part: Formula) -> Formula:
    """Not the part."""
    if isinstance(part, bool):
        return not part
    return part[1] if part[0] == "!" else ("!", part)


def exactly_one(parts: Iterable[Formula]) -> Formula:
    """One of the parts and no other."""
    left = [part for part in parts if part is not False]
    certain = sum(part is True for part in left)
    if certain > 1:
        return False
    left = [part for part in left if part is not True]
    if certain:
        return conjunction([negation(part) for part in left])
    if len(left) < 2:
        return left[0] if left else False
    return ("1", tuple(left))


def factored(formulas: tuple[Formula, ...]) -> tuple[list[Formula], list[Formula]]:
    """The common parts of several conjunctions, and what is left of each.

    At least one of the formulas holds, or exactly one, if the common parts hold and at least one of the rests does, or
    exactly one.
    """
    first, *others = [dict.fromkeys(parts_of(formula)) for formula in formulas]
    common = [part for part in first if all(part in other for other in others)]
    if not common:
        return [], list(formulas)
    return common, [conjunction([part for part in parts_of(formula) if part not in common]) for formula in formulas]


def parts_of(formula: Formula) -> tuple[Formula, ...]:
    """The parts of a conjunction; the formula itself if it is none; no parts of ``True``."""
    if formula is True:
        return ()
    if formula is not False and formula[0] == "&":
        parts: tuple[Formula, ...] = formula[1]
        return parts
    return (formula,)


def is_atom(formula: Formula) -> bool:
    """Whether a formula is one atom."""
    return not isinstance(formula, bool) and formula[0] not in _OPERATORS


def atoms(formula: Formula) -> tuple[Formula, ...]:
    """Every atom, once."""
    if isinstance(formula, bool):
        return ()
    if formula[0] not in _OPERATORS:
        return (formula,)
    found = []
    seen = set()
    stack = [formula]
    while stack:
        part = stack.pop()
        if isinstance(part, bool) or part in seen:
            continue
        seen.add(part)
        if part[0] == "!":
            stack.append(part[1])
        elif part[0] in _OPERATORS:
            stack.extend(reversed(part[1]))
        else:
            found.append(part)
    return tuple(found)


def nodes_in(part: Any) -> list[int]:
    """The numbers of the nodes in a formula over nodes; none of anything else."""
    if not isinstance(part, tuple) or not part or not isinstance(part[0], str):
        return []
    if part[0] == "s":
        return [part[1]]
    return [atom[1] for atom in atoms(part) if atom[0] == "s"] if part[0] in _OPERATORS else []


def substitute(formula: Formula, value: Callable[[Formula], Formula]) -> Formula:
    """The formula with every atom replaced by a formula."""
    if formula is True or formula is False:
        return formula
    operator = formula[0]
    if operator not in _OPERATORS:
        return value(formula)
    if operator == "!":
        result = substitute(formula[1], value)
        return formula if result is formula[1] else negation(result)
    results = []
    changed = False
    for part in formula[1]:
        result = substitute(part, value) if part[0] in _OPERATORS else value(part)
        if result is not part:
            if result is False and operator == "&":
                return False
            changed = True
        results.append(result)
    if not changed:
        return formula
    return _CONNECTED[operator](results)


_CONNECTED: Final = {"&": conjunction, "|": disjunction, "1": exactly_one}
