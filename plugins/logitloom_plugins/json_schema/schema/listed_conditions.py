"""Many conditions on the value of one member of an object, as one selection by this member.

Thirty conditions "if ``kind`` is ``a``, then ..." side by side ask thirty questions about the value of ``kind``, and
each of its values changes thirty formulas. A selection (:class:`.Selection`) asks for the number of the value, bit by
bit, and has the formulas for each number ready.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from logitloom_plugins.json_schema.schema.formula import (
    NAMED,
    Atom,
    Formula,
    Selection,
    atoms,
    conjunction,
    of_one_member,
    parts_of,
    substitute,
)

__all__ = ["by_holders", "with_selection"]

#: Fewer lists are asked about one by one.
_LEAST_LISTS: Final = 24
#: The most parts of a formula that demand something of values in no list.
_MOST_DEMANDS: Final = 8
#: The most atoms that are replaced.
_MOST_REPLACED: Final = 1 << 17

Value = TypeVar("Value", bound=Hashable)


def with_selection(
    formula: Formula,
    values_of: Callable[[int], Sequence[Value] | None],
    bits_of: Callable[[int, str, Sequence[Sequence[Value]]], tuple[Formula, ...]],
) -> Formula:
    """A conjunction about objects with one selection in place of the parts that ask for the value of one member.

    Args:
        formula: the conjunction.
        values_of: the values that a node allows; ``None`` if it allows values that are not listed.
        bits_of: the bits of a selection: a function of a node that asks for the member, the member's name, and the
            values of each number.

    Returns:
        A formula that is true of the same objects; the formula itself if few lists are asked for.
    """
    parts = parts_of(formula)
    asking = _parts_by_member(parts) if len(parts) >= _LEAST_LISTS else {}
    member = max(asking, key=lambda name: len(asking[name]), default="")
    asked = asking.get(member, {})
    if len(asked) < _LEAST_LISTS:
        return formula
    listed = {node: values for node in asked if (values := values_of(node)) is not None}
    # A part is left as it is if it asks about values that are not listed, too.
    left = {part for node in asked if node not in listed for part in asked[node]}
    of_node = {node: chosen for node in listed if (chosen := [part for part in asked[node] if part not in left])}
    groups = by_holders({node: listed[node] for node in of_node})
    about = {part: atoms(parts[part]) for part in sorted({part for chosen in of_node.values() for part in chosen})}
    replaced = sum([len(about[part]) for nodes in groups for node in nodes for part in of_node[node]])
    if len(of_node) < _LEAST_LISTS or replaced > _MOST_REPLACED or not _comes_first(member, formula, about.values()):
        return formula
    others = {part: substitute(parts[part], _given(member, ())) for part in about}
    demands = {part: demand for part, demand in others.items() if demand is not True}
    if len(demands) > _MOST_DEMANDS:
        return formula
    cases = [conjunction(demands.values())]
    for nodes in groups:
        changed = sorted({part for node in nodes for part in of_node[node]})
        kept = [demand for part, demand in demands.items() if part not in changed]
        cases.append(conjunction([*kept, *[substitute(parts[part], _given(member, nodes)) for part in changed]]))
    bits = bits_of(next(iter(of_node)), member, [[], *groups.values()])
    selection = Selection(member, bits, tuple(cases), conjunction([parts[part] for part in about]))
    return conjunction([*[part for index, part in enumerate(parts) if index not in about], selection.formula])


def _comes_first(member: str, formula: Formula, about: Iterable[Sequence[Atom]]) -> bool:
    """Whether a member comes before all other members that some parts of a formula have atoms about.

    Declared names come in the order of the formula. What has come before the member would change every case.
    """
    declared = list(dict.fromkeys([atom[1] for atom in atoms(formula) if atom[0] == "prop"]))
    before = frozenset(declared[: declared.index(member)])
    return not any(atom[0] in NAMED and atom[1] in before for part in about for atom in part)


def _parts_by_member(parts: Sequence[Atom]) -> dict[str, dict[int, list[int]]]:
    """By the name of a member, and the node that its value must satisfy, the parts that ask for this.

    Parts about one member alone are left out: the member's value is constrained by them.
    """
    found: dict[str, dict[int, list[int]]] = {}
    for index, part in enumerate(parts):
        if part[0] in ("|", "1", "!") and not of_one_member(part):
            for atom in atoms(part):
                if atom[0] == "prop" and not isinstance(atom[2], bool) and atom[2][0] == "s":
                    found.setdefault(atom[1], {}).setdefault(atom[2][1], []).append(index)
    return found


def by_holders(lists: Mapping[int, Sequence[Value]]) -> dict[tuple[int, ...], list[Value]]:
    """The values of some lists, by the lists that have them; values and lists keep their order.

    Example:
        >>> by_holders({1: "ab", 5: "bc"})
        {(1,): ['a'], (1, 5): ['b'], (5,): ['c']}
    """
    holders: dict[Value, list[int]] = {}
    for number, values in lists.items():
        for value in values:
            holders.setdefault(value, []).append(number)
    groups: dict[tuple[int, ...], list[Value]] = {}
    for value, numbers in holders.items():
        groups.setdefault(tuple(numbers), []).append(value)
    return groups


def _given(member: str, nodes: Collection[int]) -> Callable[[Atom], Formula]:
    """The truth of atoms about a member that is there, and whose value satisfies of all nodes the given ones."""

    def value(atom: Atom) -> Formula:
        if atom[0] == "req" and atom[1] == member:
            return True
        if atom[0] != "prop" or atom[1] != member or isinstance(atom[2], bool):
            return atom
        return atom[2][1] in nodes if atom[2][0] == "s" else atom

    return value
