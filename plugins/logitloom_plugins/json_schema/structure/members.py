"""What is asked of the members of objects and arrays that are read from left to right.

A frame is an open object or array. What it must satisfy is kept as *hard* atoms, which hold for certain or the text is
wrong, and a *soft* formula of everything that is still open (branches of ``oneOf``, ``not``, ``contains``, ...). A
member is asked for what the hard atoms demand of it, and beside that which of the soft atoms' demands it happens to
meet; the answer is substituted into the formula. So every combination of keywords is decided exactly, and schemas
without open questions cost nothing extra.

References:
    J. Brzozowski, "Derivatives of regular expressions", 1964 (the idea of what remains to be matched).
    R. Alur, P. Madhusudan, "Visibly pushdown languages", 2004 (why that is enough for nested texts).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from logitloom_plugins.json_schema.schema.formula import Formula, conjunction, is_atom, parts_of

__all__ = ["Member", "TruthVector", "ValueConstraint", "split"]

TruthVector = tuple[bool, ...]


class ValueConstraint(NamedTuple):
    """What is asked of a value: a formula over nodes that must hold, and others whose truth is wanted."""

    must: Formula
    extras: tuple[Formula, ...] = ()


class Member(NamedTuple):
    """The next member of a frame: what it is asked for, and the frame after each answer."""

    demand: ValueConstraint
    after: Callable[[TruthVector], Any]


def split(must: Formula, hard_kinds: frozenset[str]) -> tuple[tuple[Any, ...], Formula]:
    """The atoms of some kinds that must hold for certain, and the rest of the formula."""
    parts = parts_of(must)
    hard = tuple([part for part in parts if is_atom(part) and part[0] in hard_kinds])
    return hard, conjunction([part for part in parts if not (is_atom(part) and part[0] in hard_kinds)])
