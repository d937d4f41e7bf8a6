"""Boolean formulas over atoms: hashable tuples, simplified as they are made.

``True``, ``False``, ``("&", parts)``, ``("|", parts)``, ``("1", parts)`` (exactly one), ``("!", part)``, and selections
(:class:`Selection`); every other tuple is an atom.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, NamedTuple, TypeGuard, TypeVar, cast

__all__ = [
    "Atom",
    "Formula",
    "Selection",
    "atoms",
    "conjunction",
    "disjunction",
    "exactly_one",
    "factored",
    "is_atom",
    "memberships",
    "negation",
    "nodes_in",
    "parts_of",
    "substitute",
]

#: A keyword with its operands (an atom), or an operator with its parts. The types of the other entries depend on the
#: first entry, so ``Any``.
Atom = tuple[Any, ...]
Formula = bool | Atom
Element = TypeVar("Element", bound=Hashable)
_OPERATORS: Final = frozenset("&|!1?")


class Selection(NamedTuple):
    """A discriminated union: one member of an object, or one item of an array, selects some of several alternatives.

    The alternatives are divided into numbered groups. A value of the member belongs to one group, or to none. The
    number of the group is asked bit by bit, so a thousand groups take ten questions. As a formula a selection is the
    tuple of ``"?"`` and a frozen set with the selection, because a frozen set remembers its hash.

    Attributes:
        member: the name of the member, or the index of the item.
        bits: formulas over nodes; the member's value satisfies entry ``i`` if bit ``i`` of its group's number is 1.
        cases: by group the rest of the alternatives, if the member has one of the group's values.
        whole: the alternatives as a formula over other atoms.
    """

    member: str | int
    bits: tuple[Formula, ...]
    cases: tuple[Formula, ...]
    whole: Formula

    @property
    def formula(self) -> Formula:
        """This selection as a formula."""
        if not any(case is not False for case in self.cases) and self.whole is False:
            return False
        return ("?", frozenset([self]))

    @staticmethod
    def of(formula: Formula) -> Selection:
        """The selection that a formula is."""
        assert not isinstance(formula, bool)
        found: Selection = next(iter(formula[1]))
        return found

    def replaced(self, value: Callable[[Atom], Formula]) -> Selection:
        """The selection with every atom replaced by a formula; the selection itself if no atom changes."""
        cases = tuple([substitute(case, value) for case in self.cases])
        whole = substitute(self.whole, value)
        if whole is self.whole and all(map(operator.is_, cases, self.cases)):
            return self
        return self._replace(cases=cases, whole=whole)


def conjunction(parts: Iterable[Formula]) -> Formula:
    """All of the parts."""
    return _joined("&", parts, True)


def disjunction(parts: Iterable[Formula]) -> Formula:
    """At least one of the parts."""
    return _joined("|", parts, False)


def _joined(kind: str, parts: Iterable[Formula], neutral: bool) -> Formula:
    found: dict[Atom, None] = {}
    for part in parts:
        if isinstance(part, bool):
            if part is neutral:
                continue
            return part
        if part[0] == kind:
            found.update(dict.fromkeys(part[1]))
        else:
            found[part] = None
    for part in found:
        if part[0] == "!" and part[1] in found:
            return not neutral
    if len(found) < 2:
        return next(iter(found), neutral)
    return (kind, tuple(found))


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


def factored(formulas: tuple[Formula, ...]) -> tuple[list[Atom], list[Formula]]:
    """The common parts of several conjunctions, and the rest of each conjunction.

    At least one of the conjunctions holds if the common parts hold, and at least one of the rests. The same is true of
    exactly one.
    """
    first, *others = [dict.fromkeys(parts_of(formula)) for formula in formulas]
    common = [part for part in first if all(part in other for other in others)]
    if not common:
        return [], list(formulas)
    return common, [conjunction([part for part in parts_of(formula) if part not in common]) for formula in formulas]


def parts_of(formula: Formula) -> tuple[Atom, ...]:
    """The parts of a conjunction; the formula itself if it is none; no parts of ``True``."""
    if formula is True:
        return ()
    if formula is not False and formula[0] == "&":
        parts: tuple[Atom, ...] = formula[1]
        return parts
    # No caller looks into ``False``.
    return (cast("Atom", formula),)


def is_atom(formula: Formula) -> TypeGuard[Atom]:
    """Whether a formula is one atom."""
    return not isinstance(formula, bool) and formula[0] not in _OPERATORS


def memberships(finite: Iterable[tuple[Atom, Iterable[Element]]]) -> dict[Element, frozenset[Atom]]:
    """For each element of the sets of some atoms, such as ``("any", texts)``, the atoms whose sets have it."""
    found: dict[Element, list[Atom]] = {}
    for atom, elements in finite:
        for element in elements:
            found.setdefault(element, []).append(atom)
    return {element: frozenset(members) for element, members in found.items()}


def atoms(formula: Formula, member: str | int | None = None) -> tuple[Atom, ...]:
    """Every atom, once; of a selection by a given member or item the selection itself, and the atoms of its cases."""
    if isinstance(formula, bool):
        return ()
    if formula[0] not in _OPERATORS:
        return (formula,)
    found: dict[Atom, None] = {}
    # Visited formulas are known by identity, because hashing a long formula takes as long as visiting its parts.
    seen: set[int] = set()
    stack: list[Formula] = [formula]
    while stack:
        part = stack.pop()
        if isinstance(part, bool):
            continue
        kind = part[0]
        if kind not in _OPERATORS:
            found[part] = None
            continue
        if id(part) in seen:
            continue
        seen.add(id(part))
        if kind == "!":
            stack.append(part[1])
        elif kind == "?":
            selection = Selection.of(part)
            if selection.member == member:
                found[part] = None
                stack.extend(reversed(selection.cases))
            else:
                stack.append(selection.whole)
        else:
            stack.extend(reversed(part[1]))
    return tuple(found)


def nodes_in(part: object) -> list[int]:
    """The numbers of the nodes in a formula over nodes; none of anything else."""
    if not isinstance(part, tuple) or not part or not isinstance(part[0], str):
        return []
    if part[0] == "s":
        return [part[1]]
    return [atom[1] for atom in atoms(part) if atom[0] == "s"] if part[0] in _OPERATORS else []


def substitute(formula: Formula, value: Callable[[Atom], Formula]) -> Formula:
    """The formula with every atom replaced by a formula.

    ``value`` is asked about a selection first. If it leaves the selection as it is, the atoms in it are replaced.
    """
    if formula is True or formula is False:
        return formula
    kind = formula[0]
    if kind not in _OPERATORS:
        return value(formula)
    if kind == "?":
        selected = value(formula)
        if selected is not formula:
            return selected
        selection = Selection.of(formula)
        replaced = selection.replaced(value)
        return formula if replaced is selection else replaced.formula
    if kind == "!":
        result = substitute(formula[1], value)
        return formula if result is formula[1] else negation(result)
    results = []
    changed = False
    for part in formula[1]:
        result = substitute(part, value) if part[0] in _OPERATORS else value(part)
        if result is not part:
            if result is False and kind == "&":
                return False
            changed = True
        results.append(result)
    if not changed:
        return formula
    return _CONNECTED[kind](results)


_CONNECTED: Final = {"&": conjunction, "|": disjunction, "1": exactly_one}
