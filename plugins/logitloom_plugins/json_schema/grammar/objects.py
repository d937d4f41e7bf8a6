"""Objects read from left to right: the state of an open object, and the constraint on its next member.

See :mod:`.members` for frames, hard atoms and soft formulas.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple, Protocol

from logitloom_plugins.json_schema.grammar.keys import KeyParts, Keys, Label
from logitloom_plugins.json_schema.grammar.least_solution import Inquiry
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
from logitloom_plugins.json_schema.schema.formula import (
    NAMED,
    Atom,
    Formula,
    Names,
    Selection,
    after_name,
    atoms,
    conjunction,
    holds_at_end,
    parts_of,
    substitute,
)

__all__ = [
    "ObjectFrame",
    "ObjectMember",
    "ObjectPlan",
    "ObjectPlans",
    "asked_names",
    "counted",
    "end_object",
    "member",
    "most_needed",
    "next_members",
    "skip",
    "start_object",
    "without",
]

#: Cached members of one plan.
_MOST_REMEMBERED: Final = 1 << 14
_OBJECT_HARD = frozenset(("prop", "patp", "addl", "names", "req", "minp", "maxp"))


class ObjectFrame(NamedTuple):
    """An open object.

    Attributes:
        plan: the hard atoms.
        position: index of the next declared name. Each declared name before it has been written or left out.
        length: number of members so far, at most the count limit; -1 if no formula bounds the number.
        missing: required names that are not declared and not written yet.
        soft: the soft formula.
        extras: formulas whose truth is determined at the end.
        wanted: the truth vectors of ``extras`` with which the object may be closed.
        tracked: why an undeclared name must not be repeated; empty if it may be. Readers of JSON keep only the last of
            equal names. So a repeated name makes the number of members smaller (``counted``, until there are enough),
            or replaces a value about which a formula has been decided (``judged``). The stack holds the names.
        left: in a tracked object the labels whose names may run out, each with the number of names left.
    """

    plan: ObjectPlan
    position: int
    length: int
    missing: frozenset[str]
    soft: Formula
    extras: tuple[Formula, ...]
    wanted: frozenset[TruthVector]
    tracked: str = ""
    left: tuple[tuple[Label, int], ...] = ()

    @property
    def only_hard(self) -> bool:
        """Whether no formula is open: the hard atoms alone decide."""
        return self.soft is True and not self.extras

    @property
    def open_formulas(self) -> tuple[Formula, ...]:
        """The soft formula and the extra formulas."""
        return (self.soft, *self.extras)


class ObjectPlans(Protocol):
    """Makes and remembers the plans of objects, and says which values exist."""

    def keys(self, names: tuple[str, ...], others: frozenset[str], everything: list[Atom]) -> KeyParts:
        """What the key automaton of an object with some names and atoms distinguishes."""

    def object_plan(
        self, names: tuple[str, ...], tracked: frozenset[str], keys: KeyParts, hard: tuple[Atom, ...]
    ) -> ObjectPlan:
        """The plan of an object with the given hard atoms."""

    def possible(self, demand: ValueConstraint) -> bool:
        """Whether any value satisfies a constraint."""

    def with_selection(self, formula: Formula) -> Formula:
        """A formula with one selection in place of many conditions on the values of one member."""


#: ``"object"``, the declared names, the other required names, what the key automaton distinguishes, and the atoms.
PlanParts = tuple[str, tuple[str, ...], frozenset[str], KeyParts, tuple[Atom, ...]]


class ObjectPlan(Name):
    """The hard atoms of an object, grouped by keyword.

    Args:
        parts: ``"object"``, the declared names, the other required names, the key of the key automaton, the atoms.
        keys: the key automaton.
    """

    def __init__(self, parts: PlanParts, keys: Keys) -> None:
        _, names, tracked, _, hard = parts
        self.names: tuple[str, ...] = names
        self.tracked = tracked
        self.keys = keys
        self.hard = hard
        index = keys.indices.get(names)
        if index is None:
            index = keys.indices[names] = {name: i for i, name in enumerate(names)}
        self.index = index
        self.properties: dict[str, list[Formula]] = {}
        self.patterns: list[tuple[str, Formula]] = []
        self.additional: list[Atom] = []
        self.key_demands: list[Atom] = []
        self.least, self.most = 0, None
        required: set[str] = set()
        for atom in hard:
            if atom[0] == "prop":
                self.properties.setdefault(atom[1], []).append(atom[2])
            elif atom[0] == "patp":
                self.patterns.append((atom[1], atom[2]))
            elif atom[0] == "addl":
                self.additional.append(atom)
            elif atom[0] == "names":
                self.key_demands.append(atom)
            elif atom[0] == "req":
                required.add(atom[1])
            elif atom[0] == "minp":
                self.least = max(self.least, atom[1])
            else:
                self.most = atom[1] if self.most is None else min(self.most, atom[1])
        #: Indices of the declared names that are required, ascending.
        self.required = tuple(sorted([index[name] for name in required if name in index]))
        self.required_others = frozenset(name for name in required if name not in self.index)
        #: Whether a hard atom bounds the number of members.
        self.counts = self.least > 0 or self.most is not None
        #: Cached results of :func:`skip`.
        self.skipped: dict[ObjectFrame, ObjectFrame | None] = {}
        #: Results of :func:`member` by frame: the frames after declared names are omitted one by one, and the members.
        #: Hashing a frame takes as long as a visit to its formulas, so a frame is looked up once for all its members.
        self.found: dict[ObjectFrame, tuple[list[ObjectFrame | None], dict[Label, ObjectMember | None]]] = {}
        self._remembered = 0
        # Plans that differ only in required names and in bounds share their formulas about values.
        asking = tuple([atom for atom in hard if atom[0] not in ("req", "minp", "maxp")])
        self._children: dict[Label, Formula] = keys.children.setdefault(asking, {})
        self._possible: tuple[list[int], int] | None = None
        #: Index within ``required`` from which on each name is known to have a value.
        self._valued_from = len(self.required)

    def known(self, frame: ObjectFrame) -> tuple[list[ObjectFrame | None], dict[Label, ObjectMember | None]]:
        """The entry of ``found`` for a frame."""
        known = self.found.get(frame)
        if known is None:
            known = self.found[frame] = [frame], {}
        return known

    def remember(self, members: dict[Label, ObjectMember | None], key: Label, member: ObjectMember | None) -> None:
        """Add a member to an entry of ``found``; too many of them are dropped first."""
        self._remembered += 1
        if self._remembered > _MOST_REMEMBERED:
            self._remembered = 0
            self.found.clear()
        members[key] = member

    def declares(self, key: Label) -> bool:
        """Whether a key is a declared name; declared names come in their order and so never twice."""
        return key[0] == "name" and key[1] in self.index

    def undeclared(self, keys: Iterable[Label]) -> list[Label]:
        """Those of some keys that are not declared and whose members may come, as far as the hard atoms say."""
        return [key for key in keys if not self.declares(key) and self.hard_child(key) is not False]

    def hard_child(self, key: Label) -> Formula:
        """The formula over nodes that the value of a key must satisfy; ``False`` for names that UTF-8 cannot encode."""
        known = self._children.get(key)
        if known is None:
            parts: list[Formula] = []
            name = key[1] if key[0] == "name" else None
            if name is not None:
                parts += self.properties.get(name, [])
            parts += [child for pattern, child in self.patterns if self.keys.matches(key, pattern)]
            parts += [
                child for _, names, patterns, child in self.additional if self.is_additional(key, names, patterns)
            ]
            parts += [False for atom in self.key_demands if not self.keys.satisfies(key, atom)]
            parts.append(key in self.keys.bit)
            known = self._children[key] = conjunction(parts)
        return known

    def required_names(self, position: int, missing: frozenset[str]) -> list[str]:
        """The names that must still come: declared names from an index on, then undeclared names, ascending."""
        return [*[self.names[at] for at in self.required[bisect_left(self.required, position) :]], *sorted(missing)]

    def has_values(self, position: int, missing: frozenset[str]) -> Inquiry[bool]:
        """Whether there is a value for each name that must still come; arguments as of :meth:`required_names`."""
        for demand in self._unanswered(position, missing):
            if not (yield demand):
                return False
        self._note_values(position)
        return True

    def has_known_values(
        self, position: int, missing: frozenset[str], is_seen: Callable[[ValueConstraint], object]
    ) -> bool:
        """Whether a function that sees whether some value exists sees that :meth:`has_values` is true."""
        known = all(map(is_seen, self._unanswered(position, missing)))
        if known:
            self._note_values(position)
        return known

    def _unanswered(self, position: int, missing: frozenset[str]) -> Iterator[ValueConstraint]:
        """The constraints on the members that must still come, if a member may have no value."""
        at = bisect_left(self.required, position)
        for name in (*[self.names[index] for index in self.required[at : self._valued_from]], *sorted(missing)):
            yield ValueConstraint(self.hard_child(("name", name)))

    def _note_values(self, position: int) -> None:
        """Note that there is a value for each required name from a position on."""
        # A value that exists once exists always, so each name is asked about once, not after each member.
        self._valued_from = min(self._valued_from, bisect_left(self.required, position))

    def next_keys(self, plans: ObjectPlans, position: int) -> int:
        """The keys that may come next, as bits, in a completable object without soft or extra formulas.

        ``position`` is the index of the next declared name. The object stays completable after each of these keys:
        required names before the key are not skipped, and optional names may be.
        """
        if self._possible is None:
            # Entry ``i`` has the bits of those of the first ``i`` declared names for which a value exists.
            bits, rest = [0], 0
            for name in self.names:
                key: Label = "name", name
                is_possible = plans.possible(ValueConstraint(self.hard_child(key)))
                bits.append(bits[-1] | (self.keys.bit[key] if is_possible else 0))
            for key, bit in self.keys.bit.items():
                if not self.declares(key) and plans.possible(ValueConstraint(self.hard_child(key))):
                    rest |= bit
            self._possible = bits, rest
        bits, rest = self._possible
        at = bisect_left(self.required, position)
        if at < len(self.required):
            return bits[self.required[at] + 1] & ~bits[position]
        return bits[-1] & ~bits[position] | rest

    def is_additional(self, key: Label, names: frozenset[str], patterns: frozenset[str]) -> bool:
        """Whether a key is not one of ``names`` and matches none of ``patterns``."""
        if key[0] == "name" and key[1] in names:
            return False
        return not any(self.keys.matches(key, pattern) for pattern in patterns)


ObjectMember = Member[ObjectPlans, ObjectFrame]


def start_object(
    plans: ObjectPlans, must: Formula, extras: tuple[Formula, ...], wanted: frozenset[TruthVector]
) -> ObjectFrame:
    """The frame of an object that has just been opened; ``must`` is not ``False``."""
    everything = list(dict.fromkeys(chain.from_iterable(map(atoms, (must, *extras)))))
    hard, soft = split(plans.with_selection(must), _OBJECT_HARD)
    names = tuple(dict.fromkeys(a[1] for a in everything if a[0] == "prop"))
    others = frozenset(a[1] for a in everything if a[0] == "req") - set(names)
    limits = [a[1] for a in everything if a[0] in ("minp", "maxp")]
    keys = plans.keys(names, others, everything)
    plan = plans.object_plan(names, others, keys, hard)
    frame = ObjectFrame(plan, 0, 0 if limits else -1, plan.required_others, soft, extras, wanted)
    tracked = _tracked(everything, (soft, *extras))
    if tracked:
        frame = frame._replace(tracked=tracked)
        for label in plan.undeclared(plan.keys.bit):
            frame = counted(frame, label, frozenset())
    return frame


def counted(frame: ObjectFrame, label: Label, names: frozenset[str]) -> ObjectFrame:
    """A tracked frame with the number of names left for a label, if they may run out.

    Args:
        frame: the object before a name with the label.
        label: of undeclared names.
        names: the undeclared names that have come.

    Returns:
        The frame; unchanged if more names are left than may be needed.
    """
    needed = most_needed(frame)
    left = frame.plan.keys.count(label)
    # First the names are counted as if all of them had the label, which is faster than asking for their labels.
    if left - len(names) <= needed and all(label != other for other, _ in frame.left):
        left -= sum(frame.plan.keys.label(name) == label for name in names)
        if left <= needed:
            return frame._replace(left=(*frame.left, (label, int(left))))
    return frame


def most_needed(frame: ObjectFrame) -> int:
    """An upper bound on the number of members that an object needs in addition to the required ones."""
    open_ones = {atom for formula in frame.open_formulas for atom in atoms(formula)}
    counts = [atom[1] + 1 for atom in open_ones if atom[0] in ("minp", "maxp")]
    return int(max([frame.plan.least, *counts])) + len(open_ones)


def _tracked(everything: list[Atom], open_formulas: tuple[Formula, ...]) -> str:
    """Why a repeated undeclared name could change the truth of a formula, if it could.

    Args:
        everything: the atoms of all formulas of the object, hard atoms included.
        open_formulas: the soft formula and the extra formulas.
    """
    open_atoms = [atom for formula in open_formulas for atom in atoms(formula)]
    if any(atom[0] in ("addl", "patp") and not isinstance(atom[-1], bool) for atom in open_atoms):
        return "judged"
    counts = any(atom[0] == "maxp" for atom in open_atoms)
    return "counted" if counts or any(atom[0] == "minp" and atom[1] > 1 for atom in everything) else ""


def skip(plans: ObjectPlans, frame: ObjectFrame) -> ObjectFrame | None:
    """The frame after the next declared name is omitted; ``None`` if the name is required."""
    if frame.only_hard:
        return omit(plans, frame, frame.position + 1)
    # Cached, because :func:`member` skips this name for each of the later names.
    known = frame.plan.skipped
    if frame not in known:
        known[frame] = omit(plans, frame, frame.position + 1)
    return known[frame]


def omit(plans: ObjectPlans, frame: ObjectFrame, target: int) -> ObjectFrame | None:
    """The frame after all declared names before index ``target`` are omitted; ``None`` if one of them is required."""
    if target == frame.position:
        return frame
    if next_required(frame) < target:
        return None
    if frame.only_hard:
        return ObjectFrame(frame.plan, target, *frame[2:])
    names = frame.plan.names[frame.position : target]
    omitted = frozenset(names)

    def value(atom: Atom) -> Formula:
        if atom[0] == "?":
            return substitute(Selection.of(atom).whole, value) if Selection.of(atom).member in omitted else atom
        return atom[0] == "prop" if atom[0] in NAMED and atom[1] in omitted else atom

    return _settled(plans, frame, target, frame.length, frame.missing, value, names)


def next_required(frame: ObjectFrame) -> int:
    """The index of the next declared name that is required; the number of declared names if none is."""
    required = frame.plan.required
    at = bisect_left(required, frame.position)
    return required[at] if at < len(required) else len(frame.plan.names)


def _settled(
    plans: ObjectPlans,
    frame: ObjectFrame,
    position: int,
    count: int,
    missing: frozenset[str],
    value: Callable[[Atom], Formula],
    names: Names,
    before: Formula | None = None,
) -> ObjectFrame | None:
    """The frame after ``value`` is substituted for the atoms of its formulas; ``None`` if it cannot be satisfied."""
    plan = frame.plan
    rest = settled(frame, value, _OBJECT_HARD, names, before)
    if rest is None:
        return None
    new, soft, extras = rest
    if new:
        plan, missing = _hardened(plans, plan, position, missing, new)
    return ObjectFrame(plan, position, count, missing, soft, extras, frame.wanted, frame.tracked, frame.left)


def _hardened(
    plans: ObjectPlans, plan: ObjectPlan, position: int, missing: frozenset[str], new: tuple[Atom, ...]
) -> tuple[ObjectPlan, frozenset[str]]:
    """The plan with more hard atoms, and the required names that are not declared."""
    # Atoms about declared names that have come are dropped: after them, frames on different ways are equal.
    before = [a for a in plan.hard if a[0] not in NAMED or plan.index.get(a[1], position) >= position]
    more = missing | {a[1] for a in new if a[0] == "req" and a[1] not in plan.index}
    return plans.object_plan(plan.names, plan.tracked, plan.keys.key, (*before, *new)), more


def with_last_alternatives(plans: ObjectPlans, frame: ObjectFrame) -> ObjectFrame | None:
    """The frame if the last of each group of alternatives holds.

    ``None`` unless only hard atoms are left then, and none of them is about the number of members. If the returned
    frame can be completed, so can the given frame. Frames after different members have the returned frame in common.
    """
    if frame.extras:
        return None
    parts = parts_of(frame.soft)
    if not any(part[0] == "|" for part in parts):
        return None
    chosen = conjunction([part[1][-1] if part[0] == "|" else part for part in parts])
    hard, left = ((), False) if chosen is False else split(chosen, _OBJECT_HARD)
    if left is not True:
        return None
    plan, missing = _hardened(plans, frame.plan, frame.position, frame.missing, hard)
    return None if plan.counts else frame._replace(plan=plan, missing=missing, soft=True)


def member(plans: ObjectPlans, frame: ObjectFrame, key: Label) -> ObjectMember | None:
    """The member with the given key, or ``None`` if the key cannot come next. Declared names before it are omitted."""
    plan = frame.plan
    if key[0] == "name" and key[1] in plan.index:
        target = plan.index[key[1]]
        if target < frame.position:
            return None
    else:
        target = len(plan.names)
    frames, members = plan.known(frame)
    if key not in members:
        reached = _skipped(plans, frame, target, frames)
        if reached is None or reached.position > frame.position:
            found = None if reached is None else member(plans, reached, key)
        else:
            found = _member_here(frame, key)
        plan.remember(members, key, found)
        return found
    return members[key]


def _skipped(
    plans: ObjectPlans, frame: ObjectFrame, target: int, frames: list[ObjectFrame | None]
) -> ObjectFrame | None:
    """The frame after all declared names before index ``target`` are omitted; ``None`` if one of them is required.

    Args:
        plans: of objects.
        frame: the frame before.
        target: the index.
        frames: the known frames after 0, 1, 2, ... names are omitted; further frames are appended.
    """
    if frame.only_hard:
        return omit(plans, frame, target)
    while len(frames) <= target - frame.position and frames[-1] is not None:
        frames.append(skip(plans, frames[-1]))
    return frames[target - frame.position] if target - frame.position < len(frames) else None


def next_members(plans: ObjectPlans, frame: ObjectFrame, known: int = 0) -> Iterator[tuple[Label, ObjectMember]]:
    """Yield the keys that can come next, each with its member, except the keys whose bits ``known`` has."""
    plan, (frames, _) = frame.plan, frame.plan.known(frame)
    for at in range(frame.position, len(plan.names)):
        label: Label = "name", plan.names[at]
        if _skipped(plans, frame, at, frames) is None:
            return
        found = None if plan.keys.bit.get(label, 0) & known else member(plans, frame, label)
        if found is not None:
            yield label, found
    if _skipped(plans, frame, len(plan.names), frames) is not None:
        yield from _undeclared(plans, frame)


def without(plans: ObjectPlans, frame: ObjectFrame, key: Label) -> ObjectFrame | None:
    """The frame after the given key and all declared names before it are omitted; ``None`` if one is required."""
    plan, (frames, _) = frame.plan, frame.plan.known(frame)
    target = plan.index[key[1]] + 1 if key[0] == "name" and key[1] in plan.index else len(plan.names)
    return _skipped(plans, frame, target, frames)


def asked_names(frame: ObjectFrame) -> frozenset[str] | None:
    """The names of members that an open object may require; ``None`` if any member may count."""
    if frame.plan.least:
        return None
    every = [atom for formula in frame.open_formulas for atom in atoms(formula)]
    required = frame.plan.required_names(frame.position, frame.missing)
    return frozenset([*required, *[atom[1] for atom in every if atom[0] == "req"]])


def members_here(plans: ObjectPlans, frame: ObjectFrame) -> Iterator[tuple[Label, ObjectMember]]:
    """Yield the keys that can come next if no declared name is left out, each with its member."""
    names = frame.plan.names
    if frame.position == len(names):
        yield from _undeclared(plans, frame)
        return
    label: Label = "name", names[frame.position]
    found = member(plans, frame, label)
    if found is not None:
        yield label, found


def _undeclared(plans: ObjectPlans, frame: ObjectFrame) -> Iterator[tuple[Label, ObjectMember]]:
    plan = frame.plan
    for key in plan.keys.bit:
        found = member(plans, frame, key) if not plan.declares(key) else None
        if found is not None:
            yield key, found


def _member_here(frame: ObjectFrame, key: Label) -> ObjectMember | None:
    plan = frame.plan
    if frame.left:
        if (key, 0) in frame.left:
            return None
        frame = frame._replace(left=tuple([(label, left - (label == key)) for label, left in frame.left]))
    if frame.tracked == "counted" and frame.only_hard and frame.length + 1 >= plan.least:
        frame = frame._replace(tracked="", left=())
    must = plan.hard_child(key)
    if must is False:
        return None
    count = frame.length if frame.length < 0 else min(frame.length + 1, _count_limit(frame))
    if plan.most is not None and count > plan.most:
        return None
    name = key[1] if key[0] == "name" else None
    position = frame.position + 1 if plan.declares(key) else frame.position
    missing = frame.missing - {name} if name in frame.missing else frame.missing
    if frame.only_hard:
        following = ObjectFrame(plan, position, count, missing, *frame[4:])
        return Member(ValueConstraint(must), lambda plans, truth: following, changes=frame.length >= 0)
    allowing = _with_member_allowed(frame, name)
    effects, names = member_effects(allowing, key, count), (None, name)
    return Member(
        ValueConstraint(must, tuple(effects.asked)),
        lambda plans, truth: _settled(
            plans, allowing, position, count, missing, effects.after(truth), names, before=frame.soft
        ),
        lambda truth: _end(allowing, position, count, missing, effects.after(truth), names) is not None,
        changes=frame.length >= 0 or allowing != frame or bool(effects.of),
    )


def _with_member_allowed(frame: ObjectFrame, name: str | None) -> ObjectFrame:
    """The frame without the alternatives that do not allow a member with a name; see :func:`.after_name`."""
    if name is None:
        return frame
    extras = tuple([after_name(extra, name) for extra in frame.extras])
    return frame._replace(soft=after_name(frame.soft, name), extras=extras)


def _count_limit(frame: ObjectFrame) -> int:
    """The number of members above which no count of members changes a bound: the largest bound plus 1."""
    soft = [a[1] for f in frame.open_formulas for a in atoms(f) if a[0] in ("minp", "maxp")]
    return int(max(frame.plan.least, frame.plan.most or 0, *soft)) + 1


def member_effects(frame: ObjectFrame, key: Label, count: int) -> Effects:
    """The effects of a member on the soft and extra formulas.

    Args:
        frame: the object, without the alternatives that do not allow the member.
        key: of the member.
        count: the number of members including it.
    """
    plan, name = frame.plan, key[1] if key[0] == "name" else None
    effects = Effects(frame.open_formulas, name, (None, name))
    for atom in effects.atoms:
        kind = atom[0]
        if kind == "?":
            effects.select(atom)
        elif kind == "prop" and atom[1] == name:
            effects.ask(atom, atom[2], True)
        elif kind == "patp" and plan.keys.matches(key, atom[1]):
            effects.ask(atom, atom[2], atom)
        elif kind == "addl" and plan.is_additional(key, atom[1], atom[2]):
            effects.ask(atom, atom[3], atom)
        elif (kind == "names" and not plan.keys.satisfies(key, atom)) or (kind == "maxp" and count > atom[1]):
            effects.of[atom] = False
        elif (kind == "req" and atom[1] == name) or (kind == "minp" and count >= atom[1]):
            effects.of[atom] = True
    return effects


def end_object(frame: ObjectFrame) -> TruthVector | None:
    """The truth vector of an object that is closed now; ``None`` if it must not be closed."""
    return _end(frame, frame.position, frame.length, frame.missing)


def _end(
    frame: ObjectFrame,
    position: int,
    count: int,
    missing: frozenset[str],
    value: Callable[[Atom], Formula] | None = None,
    names: Names = (),
) -> TruthVector | None:
    """The truth vector of an object that is closed now, or after one more member; arguments as for :func:`_settled`."""
    plan = frame.plan
    if missing or (plan.required and plan.required[-1] >= position) or plan.least > max(count, 0):
        return None

    def truth(atom: Atom) -> bool:
        if atom[0] == "req":
            return False
        if atom[0] == "minp":
            return bool(count >= atom[1])
        if atom[0] == "?":
            return holds_at_end(Selection.of(atom).whole, truth)
        return True

    if value is None:
        return answer(frame, truth)
    replaced = value

    def truth_after(atom: Atom) -> bool:
        found = replaced(atom)
        if found is atom and atom[0] == "?":
            return holds_at_end(Selection.of(atom).whole, truth_after, names)
        return holds_at_end(found, truth)

    return answer(frame, truth_after, names)
