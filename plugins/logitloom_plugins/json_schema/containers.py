"""Objects and arrays read from left to right: what is known, what the next member must satisfy, what remains.

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

from logitloom_plugins.json_schema.formula import Formula, atoms, conjunction, is_atom, parts_of, substitute
from logitloom_plugins.json_schema.keys import Keys

__all__ = ["ArrayFrame", "ArrayPlan", "Demand", "Member", "ObjectFrame", "ObjectPlan", "Outcome"]

Outcome = tuple[bool, ...]


class Demand(NamedTuple):
    """What is asked of a value: a formula over nodes that must hold, and others whose truth is wanted."""

    must: Formula
    extras: tuple[Formula, ...] = ()


class Member(NamedTuple):
    """The next member of a frame: what it is asked for, and the frame after each answer."""

    demand: Demand
    after: Callable[[Outcome], Any]


def _split(must: Formula, hard_kinds: frozenset[str]) -> tuple[tuple[Any, ...], Formula]:
    parts = parts_of(must)
    hard = tuple([part for part in parts if is_atom(part) and part[0] in hard_kinds])
    return hard, conjunction([part for part in parts if not (is_atom(part) and part[0] in hard_kinds)])


# --- objects ---------------------------------------------------------------------------------------------------

_OBJECT_HARD = frozenset(("prop", "patp", "addl", "names", "req", "minp", "maxp"))


class ObjectFrame(NamedTuple):
    """An open object.

    Attributes:
        plan: the hard atoms.
        place: names before this one have been written or left out for good.
        length: members so far, as far as it matters.
        missing: required names that are not declared and have not been written.
        soft: the open formula.
        extras: open formulas whose truth is wanted at the end.
        wanted: the answers that are welcome.
        seen: undeclared names so far, where writing one twice could make a difference (readers of JSON keep the
            last); ``None`` where it could not.
    """

    plan: ObjectPlan
    place: int
    length: int
    missing: frozenset[str]
    soft: Formula
    extras: tuple[Formula, ...]
    wanted: frozenset[Outcome]
    seen: frozenset[str] | None = None


class ObjectPlan:
    """The hard atoms of an object, sorted by what they speak of."""

    def __init__(
        self, owner: Any, names: tuple[str, ...], tracked: frozenset[str], keys: Keys, hard: tuple[Any, ...]
    ) -> None:
        self.owner = owner
        self.names = names
        self.tracked = tracked
        self.keys = keys
        self.hard = hard
        self.index = {name: i for i, name in enumerate(names)}
        self.properties: dict[str, list[Formula]] = {}
        self.patterns: list[tuple[str, Formula]] = []
        self.additional: list[Any] = []
        self.key_demands: list[Any] = []
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
        self.required = tuple([i for i, name in enumerate(names) if name in required])
        self.required_others = frozenset(name for name in required if name not in self.index)
        self._children: dict[Any, Formula] = {}

    def hard_child(self, key: Any) -> Formula:
        """What the value of a key must satisfy; ``key`` is a label of the key automaton."""
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
            known = self._children[key] = conjunction(parts)
        return known

    def is_additional(self, key: Any, names: frozenset[str], patterns: frozenset[str]) -> bool:
        """Whether a key is in none of some names and matches none of some patterns."""
        if key[0] == "name" and key[1] in names:
            return False
        return not any(self.keys.matches(key, pattern) for pattern in patterns)


def start_object(
    owner: Any, must: Formula, extras: tuple[Formula, ...], wanted: frozenset[Outcome]
) -> ObjectFrame | None:
    """The frame of an object that has just been opened."""
    if must is False:
        return None
    everything = list(dict.fromkeys(atom for formula in (must, *extras) for atom in atoms(formula)))
    names = tuple(dict.fromkeys(a[1] for a in everything if a[0] == "prop"))
    others = frozenset(a[1] for a in everything if a[0] == "req") - set(names)
    limits = [a[1] for a in everything if a[0] in ("minp", "maxp")]
    keys = owner.keys(names, others, everything)
    hard, soft = _split(must, _OBJECT_HARD)
    plan = owner.object_plan(names, others, keys, hard)
    frame = ObjectFrame(
        plan, 0, 0 if limits else -1, plan.required_others, soft, extras, wanted, _tracked(must, extras)
    )
    if plan.most is not None and plan.most < 0:
        return None
    return frame


def _tracked(must: Formula, extras: tuple[Formula, ...]) -> frozenset[str] | None:
    """Nothing seen yet, if writing an undeclared name twice could make a difference."""
    _, soft = _split(must, _OBJECT_HARD)
    counted = any(atom[0] == "minp" and atom[1] > 1 for f in (must, *extras) for atom in atoms(f))
    open_ones = [atom for f in (soft, *extras) for atom in atoms(f)]
    judged = any(
        (atom[0] == "addl" and not isinstance(atom[3], bool)) or (atom[0] == "patp" and not isinstance(atom[2], bool))
        for atom in open_ones
    )
    return frozenset() if counted or judged else None


def skip(frame: ObjectFrame) -> ObjectFrame | None:
    """The frame when the next declared name is left out."""
    plan = frame.plan
    name = plan.names[frame.place]
    if frame.place in plan.required:
        return None
    if frame.soft is True and not frame.extras:
        return frame._replace(place=frame.place + 1)

    def value(atom: Any) -> Formula:
        if atom[0] == "prop" and atom[1] == name:
            return True
        if atom[0] == "req" and atom[1] == name:
            return False
        return atom

    return settled(frame, frame.place + 1, frame.length, frame.missing, value)


def settled(
    frame: ObjectFrame, place: int, count: int, missing: frozenset[str], value: Callable[[Any], Formula]
) -> ObjectFrame | None:
    """The frame after a substitution into its open formulas; parts that became certain move to the plan."""
    plan = frame.plan
    soft = substitute(frame.soft, value)
    if soft is False:
        return None
    extras = tuple([substitute(extra, value) for extra in frame.extras])
    hard, soft = _split(soft, _OBJECT_HARD)
    if hard:
        new = [atom for atom in hard if atom not in plan.hard]
        missing = missing | {a[1] for a in new if a[0] == "req" and a[1] not in plan.index}
        late = [a for a in new if a[0] == "req" and a[1] in plan.index and plan.index[a[1]] < place]
        if late:
            return None
        plan = plan.owner.object_plan(plan.names, plan.tracked, plan.keys, (*plan.hard, *new))
    return ObjectFrame(plan, place, count, missing, soft, extras, frame.wanted, frame.seen)


def member(frame: ObjectFrame, key: Any) -> Member | None:
    """What the value of a key is asked for, or ``None`` if the key cannot come now. Names in between are left out."""
    plan = frame.plan
    if key[0] == "name" and key[1] in plan.index:
        target = plan.index[key[1]]
        if target < frame.place:
            return None
    else:
        target = len(plan.names)
    if frame.soft is True and not frame.extras:
        if any(frame.place <= i < target for i in plan.required):
            return None
        reached: ObjectFrame | None = frame._replace(place=target)
    else:
        reached = frame
        while reached is not None and reached.place < target:
            reached = skip(reached)
    if reached is None:
        return None
    if reached.seen is not None and len(key) == 3:
        if key[2] in reached.seen:
            return None
        reached = reached._replace(seen=reached.seen | {key[2]})
        key = key[:2]
    return _member_here(reached, key)


def _member_here(frame: ObjectFrame, key: Any) -> Member | None:
    plan = frame.plan
    if frame.seen is not None and frame.soft is True and not frame.extras and frame.length + 1 >= plan.least:
        frame = frame._replace(seen=None)
    must = plan.hard_child(key)
    if must is False:
        return None
    count = frame.length if frame.length < 0 else min(frame.length + 1, plan.owner.count_limit(frame))
    if plan.most is not None and count > plan.most:
        return None
    name = key[1] if key[0] == "name" else None
    declared = name is not None and name in plan.index
    place = frame.place + 1 if declared else frame.place
    missing = frame.missing - {name} if name in frame.missing else frame.missing
    if frame.soft is True and not frame.extras:
        following = frame._replace(place=place, length=count, missing=missing)
        return Member(Demand(must), lambda outcome: following)
    asked: dict[Formula, int] = {}
    effects: dict[Any, Any] = {}
    for atom in dict.fromkeys(a for f in (frame.soft, *frame.extras) for a in atoms(f)):
        kind = atom[0]
        child: Formula = True
        if (kind == "prop" and atom[1] == name) or (kind == "patp" and plan.keys.matches(key, atom[1])):
            child = atom[2]
        elif kind == "addl" and plan.is_additional(key, atom[1], atom[2]):
            child = atom[3]
        elif kind == "names":
            if not plan.keys.satisfies(key, atom):
                effects[atom] = False
            continue
        elif kind == "req" and atom[1] == name:
            effects[atom] = True
            continue
        elif kind == "minp":
            if count >= atom[1]:
                effects[atom] = True
            continue
        elif kind == "maxp":
            if count > atom[1]:
                effects[atom] = False
            continue
        else:
            continue
        if isinstance(child, bool):
            if not child:
                effects[atom] = False
            elif kind == "prop":
                effects[atom] = True
            continue
        if child not in asked:
            asked[child] = len(asked)
        effects[atom] = (asked[child], kind == "prop")

    def after(outcome: Outcome) -> ObjectFrame | None:
        def value(atom: Any) -> Formula:
            effect = effects.get(atom)
            if effect is None:
                return atom
            if isinstance(effect, bool):
                return effect
            if not outcome[effect[0]]:
                return False
            return True if effect[1] else atom

        return settled(frame, place, count, missing, value)

    return Member(Demand(must, tuple(asked)), after)


def end_object(frame: ObjectFrame) -> Outcome | None:
    """The answer if the object is closed here; ``None`` if it must not be."""
    plan = frame.plan
    if frame.missing or any(i >= frame.place for i in plan.required):
        return None
    if plan.least > max(frame.length, 0):
        return None

    def value(atom: Any) -> Formula:
        if atom[0] == "req":
            return False
        if atom[0] == "minp":
            return frame.length >= atom[1]
        return True

    if substitute(frame.soft, value) is not True:
        return None
    outcome = tuple([substitute(extra, value) is True for extra in frame.extras])
    return outcome if outcome in frame.wanted else None


# --- arrays ----------------------------------------------------------------------------------------------------

_ARRAY_HARD = frozenset(("item", "rest", "mini", "maxi"))


class ArrayFrame(NamedTuple):
    """An open array: the hard atoms, the items so far (as far as it matters), and the open formulas."""

    plan: ArrayPlan
    length: int
    soft: Formula
    extras: tuple[Formula, ...]
    wanted: frozenset[Outcome]


class ArrayPlan:
    """The hard atoms of an array, sorted by what they speak of."""

    def __init__(self, owner: Any, limit: int, hard: tuple[Any, ...]) -> None:
        self.owner = owner
        self.limit = limit
        self.hard = hard
        self.items: dict[int, list[Formula]] = {}
        self.rests: list[tuple[int, Formula]] = []
        self.least, self.most = 0, None
        for atom in hard:
            if atom[0] == "item":
                self.items.setdefault(atom[1], []).append(atom[2])
            elif atom[0] == "rest":
                self.rests.append((atom[1], atom[2]))
            elif atom[0] == "mini":
                self.least = max(self.least, atom[1])
            else:
                self.most = atom[1] if self.most is None else min(self.most, atom[1])
        self.varied = max([i + 1 for i in self.items] + [k for k, _ in self.rests], default=0)

    def hard_item(self, index: int) -> Formula:
        """What an item must satisfy."""
        return conjunction([*self.items.get(index, ()), *[child for first, child in self.rests if index >= first]])


def start_array(
    owner: Any, must: Formula, extras: tuple[Formula, ...], wanted: frozenset[Outcome]
) -> ArrayFrame | None:
    """The frame of an array that has just been opened."""
    if must is False:
        return None
    limit = 0
    for formula in (must, *extras):
        for atom in atoms(formula):
            if atom[0] in ("item", "mini", "maxi"):
                limit = max(limit, atom[1] + 1)
            elif atom[0] == "rest":
                limit = max(limit, atom[1])
    hard, soft = _split(must, _ARRAY_HARD)
    return ArrayFrame(owner.array_plan(limit, hard), 0, soft, extras, wanted)


def item(frame: ArrayFrame) -> Member | None:
    """What the next item is asked for, or ``None`` if there cannot be one."""
    plan, index = frame.plan, frame.length
    count = min(index + 1, plan.limit)
    if plan.most is not None and index + 1 > plan.most:
        return None
    must = plan.hard_item(index)
    if must is False:
        return None
    if frame.soft is True and not frame.extras:
        following = frame._replace(length=count)
        return Member(Demand(must), lambda outcome: following)
    asked: dict[Formula, int] = {}
    effects: dict[Any, Any] = {}
    for atom in dict.fromkeys(a for f in (frame.soft, *frame.extras) for a in atoms(f)):
        kind = atom[0]
        child: Formula = True
        if (kind == "item" and atom[1] == index) or (kind == "rest" and index >= atom[1]):
            child = atom[2]
        elif kind == "contains":
            child = atom[1]
        elif kind == "mini":
            if count >= atom[1]:
                effects[atom] = True
            continue
        elif kind == "maxi":
            if index + 1 > atom[1]:
                effects[atom] = False
            continue
        else:
            continue
        if kind == "contains":
            if child is True:
                effects[atom] = ("contains", None)
            elif child is not False:
                effects[atom] = ("contains", asked.setdefault(child, len(asked)))
        elif isinstance(child, bool):
            if not child:
                effects[atom] = False
            elif kind == "item":
                effects[atom] = True
        else:
            effects[atom] = (kind, asked.setdefault(child, len(asked)))

    def after(outcome: Outcome) -> ArrayFrame | None:
        def value(atom: Any) -> Formula:
            effect = effects.get(atom)
            if effect is None:
                return atom
            if isinstance(effect, bool):
                return effect
            kind, place = effect
            met = place is None or outcome[place]
            if kind == "contains":
                return _contained(atom) if met else atom
            if not met:
                return False
            return True if kind == "item" else atom

        soft = substitute(frame.soft, value)
        if soft is False:
            return None
        extras = tuple([substitute(extra, value) for extra in frame.extras])
        hard, soft = _split(soft, _ARRAY_HARD)
        new = tuple([atom for atom in hard if atom not in plan.hard])
        following = plan.owner.array_plan(plan.limit, (*plan.hard, *new)) if new else plan
        return ArrayFrame(following, count, soft, extras, frame.wanted)

    return Member(Demand(must, tuple(asked)), after)


def _contained(atom: Any) -> Formula:
    """A demand on how many items match, after one more that does."""
    _, child, least, most = atom
    if most is not None and most <= 0:
        return False
    least = max(least - 1, 0)
    if least == 0 and most is None:
        return True
    return ("contains", child, least, None if most is None else most - 1)


def end_array(frame: ArrayFrame) -> Outcome | None:
    """The answer if the array is closed here; ``None`` if it must not be."""
    if frame.length < frame.plan.least:
        return None

    def value(atom: Any) -> Formula:
        if atom[0] == "mini":
            return frame.length >= atom[1]
        if atom[0] == "contains":
            return atom[2] == 0
        return True

    if substitute(frame.soft, value) is not True:
        return None
    outcome = tuple([substitute(extra, value) is True for extra in frame.extras])
    return outcome if outcome in frame.wanted else None
