"""Arrays read from left to right: the state of an open array, and the constraint on its next item.

See :mod:`.members` for frames, hard atoms and soft formulas.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from logitloom_plugins.json_schema.grammar.members import (
    Effects,
    Member,
    TruthVector,
    ValueConstraint,
    answer,
    settled,
    split,
)
from logitloom_plugins.json_schema.grammar.names import Name
from logitloom_plugins.json_schema.schema.formula import Atom, Formula, Selection, atoms, conjunction, holds_at_end

__all__ = ["ArrayFrame", "ArrayMember", "ArrayPlan", "ArrayPlans", "end_array", "item", "start_array"]

_ARRAY_HARD = frozenset(("item", "rest", "mini", "maxi", "unique"))


class ArrayFrame(NamedTuple):
    """An open array.

    Attributes:
        plan: the hard atoms.
        length: number of items so far, at most ``plan.limit``.
        soft: the soft formula.
        extras: formulas whose truth is determined at the end.
        wanted: the truth vectors of ``extras`` with which the array may be closed.
    """

    plan: ArrayPlan
    length: int
    soft: Formula
    extras: tuple[Formula, ...]
    wanted: frozenset[TruthVector]

    @property
    def only_hard(self) -> bool:
        """Whether no formula is open: the hard atoms alone decide."""
        return self.soft is True and not self.extras

    @property
    def open_formulas(self) -> tuple[Formula, ...]:
        """The soft formula and the extra formulas."""
        return (self.soft, *self.extras)


class ArrayPlan(Name):
    """The hard atoms of an array, grouped by keyword.

    Args:
        parts: ``"array"``, the number of items above which the number makes no difference, the atoms.
    """

    def __init__(self, parts: tuple[str, int, tuple[Atom, ...]]) -> None:
        _, limit, hard = parts
        self.limit: int = limit
        self.hard: tuple[Atom, ...] = hard
        self.items: dict[int, list[Formula]] = {}
        self.rests: list[tuple[int, Formula]] = []
        self.least, self.most = 0, None
        #: Whether all items must be different.
        self.distinct = False
        #: The formulas of several ``contains``. Each item is tested against all of them, even if earlier items have
        #: matched them, so that the items of all frames have the same truth vectors.
        self.asked: tuple[Formula, ...] = ()
        for atom in hard:
            if atom[0] == "item":
                self.items.setdefault(atom[1], []).append(atom[2])
            elif atom[0] == "rest":
                self.rests.append((atom[1], atom[2]))
            elif atom[0] == "mini":
                self.least = max(self.least, atom[1])
            elif atom[0] == "unique":
                self.distinct = True
            elif atom[0] == "asked":
                self.asked = atom[1:]
            else:
                self.most = atom[1] if self.most is None else min(self.most, atom[1])
        #: Formulas of ``contains`` that some item after those that vary satisfies.
        self.matched = set[Formula]()
        self.varied = max([i + 1 for i in self.items] + [k for k, _ in self.rests], default=0)

    def hard_item(self, index: int) -> Formula:
        """The formula over nodes that the item at an index must satisfy."""
        return conjunction([*self.items.get(index, ()), *[child for first, child in self.rests if index >= first]])


class ArrayPlans(Protocol):
    """Makes and remembers the plans of arrays."""

    def array_plan(self, limit: int, hard: tuple[Atom, ...]) -> ArrayPlan:
        """The plan of an array with the given hard atoms."""

    def check_distinct(self, frame: ArrayFrame, nodes: Iterable[int]) -> None:
        """Note whether the ``uniqueItems`` of some nodes can be enforced in an array that has just been opened."""


ArrayMember = Member[ArrayPlans, ArrayFrame]


def start_array(
    plans: ArrayPlans, must: Formula, extras: tuple[Formula, ...], wanted: frozenset[TruthVector]
) -> ArrayFrame:
    """The frame of an array that has just been opened; ``must`` is not ``False``."""
    limit, every = 0, [atom for formula in (must, *extras) for atom in atoms(formula)]
    for atom in every:
        if atom[0] in ("item", "mini", "maxi"):
            limit = max(limit, atom[1] + 1)
        elif atom[0] == "rest":
            limit = max(limit, atom[1])
    hard, soft = split(must, _ARRAY_HARD)
    counted = dict.fromkeys([atom[1] for atom in every if atom[0] == "contains" and not isinstance(atom[1], bool)])
    if len(counted) > 1:
        hard = (*hard, ("asked", *counted))
    frame = ArrayFrame(plans.array_plan(limit, hard), 0, soft, extras, wanted)
    unique = [atom[1] for atom in every if atom[0] == "unique"]
    if unique:
        plans.check_distinct(frame, unique)
    return frame


def item(frame: ArrayFrame) -> ArrayMember | None:
    """The next item as a member, or ``None`` if no further item is allowed."""
    plan, index = frame.plan, frame.length
    count = min(index + 1, plan.limit)
    if plan.most is not None and index + 1 > plan.most:
        return None
    must = plan.hard_item(index)
    if must is False:
        return None
    if frame.only_hard:
        following = frame._replace(length=count)
        return Member(ValueConstraint(must), lambda plans, truth: following)
    effects = Effects(frame.open_formulas, index)
    effects.asked = {child: at for at, child in enumerate(plan.asked)}
    for atom in effects.atoms:
        kind = atom[0]
        if kind == "?":
            effects.select(atom)
        elif kind == "item" and atom[1] == index:
            effects.ask(atom, atom[2], True)
        elif kind == "rest" and index >= atom[1]:
            effects.ask(atom, atom[2], atom)
        elif kind == "contains":
            effects.ask(atom, atom[1], _contained(atom), atom)
        elif kind == "mini" and count >= atom[1]:
            effects.of[atom] = True
        elif kind == "maxi" and index + 1 > atom[1]:
            effects.of[atom] = False

    def after(plans: ArrayPlans, truth: TruthVector) -> ArrayFrame | None:
        left = settled(frame, effects.after(truth), _ARRAY_HARD)
        if left is None:
            return None
        new, soft, extras = left
        following = plans.array_plan(plan.limit, (*plan.hard, *new)) if new else plan
        return ArrayFrame(following, count, soft, extras, frame.wanted)

    return Member(ValueConstraint(must, tuple(effects.asked)), after)


def _contained(atom: Atom) -> Formula:
    """A ``contains`` atom after one more matching item: both bounds decrease by 1."""
    _, child, least, most = atom
    if most is not None and most <= 0:
        return False
    least = max(least - 1, 0)
    if least == 0 and most is None:
        return True
    return ("contains", child, least, None if most is None else most - 1)


def end_array(frame: ArrayFrame) -> TruthVector | None:
    """The truth vector of an array that is closed now; ``None`` if it must not be closed."""
    if frame.length < frame.plan.least:
        return None

    def truth(atom: Atom) -> bool:
        if atom[0] == "mini":
            return bool(frame.length >= atom[1])
        if atom[0] == "contains":
            return bool(atom[2] == 0)
        if atom[0] == "?":
            return holds_at_end(Selection.of(atom).whole, truth)
        return True

    return answer(frame, truth)
