"""Nodes whose ``uniqueItems`` may not be enforceable, because other keywords speak of the same items."""

from __future__ import annotations

from typing import Any, Final

from logitloom_plugins.json_schema.schema.formula import Formula, atoms, is_atom, nodes_in, parts_of
from logitloom_plugins.json_schema.schema.keywords import Keywords

__all__ = ["unclear_nodes"]

#: Atoms that ask something of members or items.
_MEMBERS: Final = frozenset(("prop", "patp", "addl", "item", "rest", "contains"))


def unclear_nodes(keywords: Keywords) -> list[int]:
    """The numbers of nodes with ``uniqueItems`` in a branch, or beside keywords that depend on the items' values.

    Every other node with ``uniqueItems`` must hold, and no keywords of its array speak of
    single items.
    """
    found: dict[int, None] = {}
    # Each node with whether it must hold; a node in a branch may hold or not.
    queue = [(keywords.document.root, True)]
    seen = set(queue)
    for number, must in queue:
        for kind in ("array", "object"):
            formula = keywords.of(number, kind)
            everything = atoms(formula)
            held = _held(formula) if must else frozenset()
            asked = [atom for atom in everything if atom not in held]
            for atom in everything:
                if atom[0] == "unique" and (asked or any(other[0] == "mini" and other[1] > 1 for other in held)):
                    found[atom[1]] = None
                still = atom in held and not any(_concerns(other, atom) for other in everything)
                for part in atom[1:]:
                    for child in nodes_in(part):
                        reached = child, still and ("s", child) in parts_of(part)
                        if reached not in seen:
                            seen.add(reached)
                            queue.append(reached)
    return list(found)


def _held(formula: Formula) -> frozenset[Formula]:
    """The atoms that must hold and that one item or member after the other decides."""
    return frozenset([part for part in parts_of(formula) if is_atom(part) and part[0] != "contains"])


def _concerns(other: Any, atom: Any) -> bool:
    """Whether two atoms may speak of the same member or item."""
    if other is atom or other[0] not in _MEMBERS or isinstance(other[-1], bool):
        return False
    if atom[0] == "prop" and other[0] in ("prop", "addl"):
        return bool((atom[1] == other[1]) if other[0] == "prop" else (atom[1] not in other[1]))
    return True
