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

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from logitloom_plugins.json_schema.schema.formula import Formula, atoms, conjunction, is_atom, parts_of, substitute

__all__ = ["Effects", "Member", "SchemaFormulas", "TruthVector", "ValueConstraint", "answer", "split"]

TruthVector = tuple[bool, ...]


class SchemaFormulas(Protocol):
    """What the automaton is made from: the formulas of a schema's nodes, and how the schema was read."""

    document: Any
    lock: Any
    formats: str
    additional_properties: bool
    repeatable: frozenset[int]

    def of(self, number: int, kind: str) -> Formula:
        """The formula of a node over the atoms of values of one type."""
        ...

    def of_nodes(self, formula: Formula, kind: str) -> Formula:
        """A formula over nodes as one over the atoms of values of one type."""
        ...

    def together(self, formulas: tuple[Formula, ...]) -> tuple[Formula, ...]:
        """The same formulas, in which subschemas that are alike are one."""
        ...


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


def answer(frame: Any, value: Callable[[Any], Formula]) -> TruthVector | None:
    """The answer of an object or array that ends with some values of its atoms; ``None`` if it must not end so."""
    if frame.soft is not True and substitute(frame.soft, value) is not True:
        return None
    truth = tuple([substitute(extra, value) is True for extra in frame.extras]) if frame.extras else ()
    return truth if truth in frame.wanted else None


class _Choice(NamedTuple):
    """What stands for an atom after a member: one formula if an answer of its value is true, another if not."""

    answer: int
    met: Formula
    unmet: Formula


class Effects:
    """What a member does to the open formulas of its container.

    Args:
        formulas: the open formulas.

    Attributes:
        atoms: of the formulas, each once.
        asked: the formulas that the member's value is asked about.
        of: by atom what stands for it afterwards; atoms without an entry stay.
    """

    def __init__(self, formulas: Iterable[Formula]) -> None:
        self.atoms = dict.fromkeys(atom for formula in formulas for atom in atoms(formula))
        self.asked: dict[Formula, int] = {}
        self.of: dict[Any, Any] = {}

    def ask(self, atom: Any, child: Formula, met: Formula, unmet: Formula = False) -> None:
        """Let one formula stand for an atom if the value satisfies another, and one if not."""
        if isinstance(child, bool):
            self.of[atom] = met if child else unmet
        else:
            self.of[atom] = _Choice(self.asked.setdefault(child, len(self.asked)), met, unmet)

    def after(self, truth: TruthVector) -> Callable[[Any], Formula]:
        """What stands for each atom after a value with some answers."""

        def value(atom: Any) -> Formula:
            found = self.of.get(atom, atom)
            if isinstance(found, _Choice):
                return found.met if truth[found.answer] else found.unmet
            return found

        return value
