"""The common part of :mod:`.objects` and :mod:`.arrays`: constraints on members that are read from left to right.

A frame is an open object or array, with *hard* atoms, which must hold, and a *soft* formula of atoms whose truth is
still unknown (from ``oneOf``, ``not``, ``contains``, ...). The value of a member must satisfy the subschemas of the
hard atoms. The truth vector of the value says which subschemas of the soft atoms the value satisfies, and is
substituted into the soft formula. So every combination of keywords is decided exactly. A frame without soft atoms needs
no truth vectors.

References:
    J. Brzozowski, "Derivatives of regular expressions", 1964 (the formula that remains to be matched).
    R. Alur, P. Madhusudan, "Visibly pushdown languages", 2004 (why this suffices for nested texts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from logitloom_plugins.json_schema.schema.formula import (
    Atom,
    Formula,
    Names,
    Selection,
    atoms,
    holds_at_end,
    of_one_member,
    parts_of,
    substitute,
    without_parts,
)

__all__ = ["Container", "Effects", "Member", "TruthVector", "ValueConstraint", "answer", "settled", "split"]

TruthVector = tuple[bool, ...]
#: The type that makes the plans of frames, and the type of the frames.
Plans = TypeVar("Plans", contravariant=True)
Container = TypeVar("Container")
#: Up to so many atoms are looked up in a tuple, more in a set.
_FEW = 4


class ValueConstraint(NamedTuple):
    """The constraint on a value.

    Attributes:
        must: a formula over nodes that the value must satisfy.
        extras: formulas over nodes, whose truth for the value is the truth vector of the value.
    """

    must: Formula
    extras: tuple[Formula, ...] = ()


class OpenPlan(Protocol):
    """The hard atoms of an open object or array."""

    @property
    def hard(self) -> tuple[Atom, ...]:
        """The atoms."""


class OpenFrame(Protocol):
    """An open object or array, as far as its formulas are concerned."""

    @property
    def plan(self) -> OpenPlan:
        """The hard atoms."""

    @property
    def soft(self) -> Formula:
        """The soft formula."""

    @property
    def extras(self) -> tuple[Formula, ...]:
        """Formulas whose truth is determined at the end."""

    @property
    def wanted(self) -> frozenset[TruthVector]:
        """The truth vectors of the extra formulas with which the object or array may be closed."""


class Member(Generic[Plans, Container]):
    """The next member of a frame.

    Args:
        demand: the constraint on the value of the member.
        after: a function that gets the maker of plans and the truth vector of the value, and returns the frame after
            the member; ``None`` if the container could not be completed.
        may_end: whether the container may be closed right after a value with a truth vector, where that is found
            without the frame; ``False`` says nothing.
        changes: whether the member can change the open formulas, or the number of members.

    Attributes:
        reached: by truth vector that values of the member can have the frame after the member; ``None`` until they are
            certain.
    """

    __slots__ = ("_after", "_frames", "changes", "demand", "may_end", "reached")

    def __init__(
        self,
        demand: ValueConstraint,
        after: Callable[[Plans, TruthVector], Container | None],
        may_end: Callable[[TruthVector], bool] = lambda truth: False,
        *,
        changes: bool = True,
    ) -> None:
        self.demand, self.changes = demand, changes
        self._after = after
        self._frames: dict[TruthVector, Container | None] = {}
        self.may_end = may_end
        self.reached: dict[TruthVector, Container] | None = None

    def after(self, plans: Plans, truth: TruthVector) -> Container | None:
        """The frame after the member, whose value has a truth vector; ``None`` if it could not be completed."""
        if truth not in self._frames:
            self._frames[truth] = self._after(plans, truth)
        return self._frames[truth]


def split(must: Formula, hard_kinds: frozenset[str], before: Formula = True) -> tuple[tuple[Atom, ...], Formula]:
    """Split a formula into hard atoms, and the conjunction of its other parts.

    Args:
        must: the formula.
        hard_kinds: the kinds of the atoms that are hard. Parts about one member of an object become such atoms.
        before: the formula from which substitution made ``must``. Parts that are also parts of ``before`` are not
            looked at again.

    Returns:
        The hard atoms, and the soft formula.
    """
    parts, seen = parts_of(must), set(map(id, parts_of(before)))
    hard: dict[int, tuple[Atom, ...]] = {}
    for index, part in enumerate(parts):
        if id(part) not in seen and (found := (part,) if part[0] in hard_kinds else of_one_member(part)):
            hard[index] = found
    atoms = tuple([atom for found in hard.values() for atom in found])
    return atoms, True if len(hard) == len(parts) else without_parts(must, hard) if hard else must


def settled(
    frame: OpenFrame,
    value: Callable[[Atom], Formula],
    hard_kinds: frozenset[str],
    names: Names | None = None,
    before: Formula | None = None,
) -> tuple[tuple[Atom, ...], Formula, tuple[Formula, ...]] | None:
    """A frame's soft and extra formulas after ``value`` is substituted for their atoms.

    Conjuncts of the soft formula about one member become hard. ``None`` if the soft formula becomes false.
    Only atoms about the members ``names`` are replaced, default: all atoms. ``before`` is as for :func:`split`,
    default: the soft formula.

    Returns:
        The new hard atoms, the soft formula, and the extra formulas.
    """
    soft = substitute(frame.soft, value, names)
    if soft is False:
        return None
    hard, soft = split(soft, hard_kinds, frame.soft if before is None else before)
    present = frozenset(frame.plan.hard) if len(hard) > _FEW else frame.plan.hard
    new = tuple([atom for atom in hard if atom not in present])
    return new, soft, tuple([substitute(extra, value, names) for extra in frame.extras])


def answer(frame: OpenFrame, truth: Callable[[Atom], bool], names: Names = ()) -> TruthVector | None:
    """The truth vector of a frame that ends with a given truth of its atoms; ``None`` if the frame must not end so.

    ``names`` are as for :func:`.holds_at_end`.
    """
    if not holds_at_end(frame.soft, truth, names):
        return None
    found = tuple([holds_at_end(extra, truth, names) for extra in frame.extras]) if frame.extras else ()
    return found if found in frame.wanted else None


class _AtomAnswer(NamedTuple):
    """The replacement of an atom after a member: ``met`` or ``unmet``, as entry ``answer`` of the truth vector says."""

    answer: int
    met: Formula
    unmet: Formula


class _Selected(NamedTuple):
    """The replacement of a selection after its member: the case whose number is at some entries of the truth vector."""

    answers: tuple[int, ...]
    cases: tuple[Formula, ...]


class Effects:
    """The replacements of atoms in the soft and extra formulas of a container after one more member.

    Args:
        formulas: the soft formula and the extra formulas.
        member: the name of the member, or the index of the item, by which selections are decided.
        names: of the atoms that may be replaced, default: all.

    Attributes:
        atoms: the atoms of the formulas, each once; those about other names may be left out.
        asked: formulas whose truth for the member's value is needed, each with its index in the truth vector.
        of: the replacement of each atom; atoms without an entry stay.
    """

    def __init__(self, formulas: Iterable[Formula], member: str | int | None, names: Names | None = None) -> None:
        self.atoms = dict.fromkeys(atom for formula in formulas for atom in atoms(formula, member, names))
        self.asked: dict[Formula, int] = {}
        self.of: dict[Atom, Formula | _AtomAnswer | _Selected] = {}

    def ask(self, atom: Atom, child: Formula, met: Formula, unmet: Formula = False) -> None:
        """Replace an atom by ``met`` if the member's value satisfies ``child``, and by ``unmet`` if not."""
        if isinstance(child, bool):
            self.of[atom] = met if child else unmet
        else:
            self.of[atom] = _AtomAnswer(self.asked.setdefault(child, len(self.asked)), met, unmet)

    def select(self, atom: Atom) -> None:
        """Replace a selection by the case of the member's value."""
        _, bits, cases, _ = Selection.of(atom)
        self.of[atom] = _Selected(tuple([self.asked.setdefault(bit, len(self.asked)) for bit in bits]), cases)

    def after(self, truth: TruthVector) -> Callable[[Atom], Formula]:
        """The function from an atom to its replacement, for a member value with the given truth vector."""

        def value(atom: Atom) -> Formula:
            found = self.of.get(atom, atom)
            if isinstance(found, _AtomAnswer):
                return found.met if truth[found.answer] else found.unmet
            if isinstance(found, _Selected):
                number = sum(truth[answer] << place for place, answer in enumerate(found.answers))
                return substitute(found.cases[number], value) if number < len(found.cases) else False
            return found

        return value
