"""The members and items that an open object or array still needs, as texts and as a number of bytes."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeGuard

from logitloom_plugins.json_schema.folds.completion.completion_memory import ENTRY, MOST_WRITTEN, shortlex
from logitloom_plugins.json_schema.folds.completion.local_texts import LocalTexts
from logitloom_plugins.json_schema.folds.completion.short_contents import Canonical
from logitloom_plugins.json_schema.folds.completion.value_texts import short_values, values_in_order
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame, item
from logitloom_plugins.json_schema.grammar.keys import Label
from logitloom_plugins.json_schema.grammar.members import TruthVector, ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame, ObjectPlan
from logitloom_plugins.json_schema.grammar.satisfiability import Frame
from logitloom_plugins.json_schema.grammar.states import ArrayState, ColonState, ObjectState, State
from logitloom_plugins.json_schema.schema.formula import Atom, Formula, ManyParts, is_atom, operands, parts_of

__all__ = [
    "all_contained",
    "bytes_from",
    "bytes_needed",
    "counted_members",
    "is_simple",
    "next_required",
    "only_contained",
    "required_items",
    "required_members",
]

#: If an array requires at least so many items, no search looks for the items one by one.
_MANY_ITEMS: Final = 64
#: The most members that are chosen, times one more than the kinds of undeclared names.
_MOST_CHOSEN: Final = 1 << 12
#: The most declared names of an object of which the shortest ones are found.
_MOST_SORTED: Final = 1 << 8
#: A formula that counts items: its index in truth vectors, and the least and the largest number of matching items.
_Count = tuple[int, int, int | None]
#: The first elements of formulas that may require a member.
_ASKING: Final = frozenset(("req", "|", "1", "&"))


def is_simple(frame: Frame) -> TypeGuard[ObjectFrame]:
    """Whether a frame is an object without alternatives and without a bound on the number of its members."""
    return isinstance(frame, ObjectFrame) and frame.only_hard and not frame.plan.counts


def next_required(frame: ObjectFrame) -> Label | None:
    """The member that must come next in an object without alternatives; ``None`` if none must."""
    plan = frame.plan
    at = bisect_left(plan.required, frame.position)
    if at < len(plan.required):
        return "name", plan.names[plan.required[at]]
    return ("name", min(frame.missing)) if frame.missing else None


def required_members(texts: LocalTexts, frame: ObjectFrame) -> list[bytes] | None:
    """The texts of the members that must still come in an object without alternatives.

    ``None`` if one has no short text, or if all together are too long to be written.
    """
    found, size = list[bytes](), 0
    for name in frame.plan.required_names(frame.position, frame.missing):
        text = _member_named(texts, frame.plan, name)
        size += 0 if text is None else len(text)
        if text is None or size >= MOST_WRITTEN:
            return None
        found.append(text)
    return found


def counted_members(texts: LocalTexts, frame: ObjectFrame, names: frozenset[str]) -> list[bytes] | None:
    """The texts of the members that must still come in an object without alternatives that counts its members.

    Beside the required members these are the shortest ones. The declared ones come first, in their order; of the others
    the next one is the smallest text, and names with one label come in their order. ``None`` as of
    :func:`required_members`, if too few members are known, or if there are many to choose from.

    Args:
        texts: the short texts of states.
        frame: the object.
        names: the undeclared names that have come, as far as they make a difference.
    """
    plan = frame.plan
    required = plan.required_names(frame.position, frame.missing)
    others = plan.least - max(frame.length, 0) - len(required)
    if others <= 0:
        return required_members(texts, frame)
    # Members of which the earlier ones come first: each declared one alone, and those with names of one label.
    groups: list[list[bytes]] = []
    declared = plan.names[frame.position :]
    for name in declared:
        text = _member_named(texts, plan, name)
        groups.append([] if text is None else [text])
    labels = plan.undeclared(plan.keys.bit)
    if others * len(labels) > _MOST_CHOSEN:
        return None
    for label in labels:
        value = short_values(texts, ValueConstraint(plan.hard_child(label))).get(())
        if value is None:
            continue
        tries = 1 << (others + len(names) + len(frame.missing)).bit_length()
        every = texts.contents.names(plan.keys, plan.keys.automaton.start, label, tries)
        left = [name for name in map(bytes.decode, every) if name not in names and name not in frame.missing]
        groups.append([b'"%b":%b' % (texts.contents.escaped(name.encode()), value) for name in left[:others]])
    must_come = [int(name in required) for name in declared] + [0] * (len(groups) - len(declared))
    chosen = _shortest_members(groups, must_come, others)
    further = [text for name in sorted(frame.missing) if (text := _member_named(texts, plan, name)) is not None]
    found = [text for group in chosen[: len(declared)] for text in group]
    found += heapq.merge(*chosen[len(declared) :], *[[text] for text in further])
    if len(found) < others + len(required) or sum(map(len, found)) >= MOST_WRITTEN:
        return None
    return found


def _shortest_members(groups: list[list[bytes]], must_come: list[int], others: int) -> list[list[bytes]]:
    """The first members of some groups: so many of each as must come, and then the shortest of those that are next."""
    counts = [*must_come]
    waiting = [(*shortlex(group[counts[at]]), at) for at, group in enumerate(groups) if len(group) > counts[at]]
    heapq.heapify(waiting)
    for _ in range(others):
        if not waiting:
            break
        at = heapq.heappop(waiting)[-1]
        counts[at] += 1
        if len(groups[at]) > counts[at]:
            heapq.heappush(waiting, (*shortlex(groups[at][counts[at]]), at))
    return [group[:count] for group, count in zip(groups, counts, strict=True)]


def required_items(texts: LocalTexts, frame: ArrayFrame, earlier: tuple[Canonical, ...]) -> list[bytes] | None:
    """The texts of the items that must still come in an array without alternatives.

    ``None`` if they are few, if one has no short text, or if all together are too long to be written.

    Args:
        texts: the short texts of states.
        frame: the array.
        earlier: the items that must not come again, if all items must be different.
    """
    if frame.plan.distinct:
        return _different_items(texts, frame, earlier)
    if not frame.only_hard:
        return _contained_items(texts, frame)
    more = frame.plan.least - frame.length
    if more < _MANY_ITEMS:
        return None
    found, at, size = list[bytes](), frame, 0
    while len(found) < more and size < MOST_WRITTEN:
        member = item(at)
        text = None if member is None else short_values(texts, member.demand).get(())
        if member is None or text is None:
            return None
        alike = more - len(found) if at.length >= at.plan.varied else 1
        size += alike * (len(text) + 1)
        if size < MOST_WRITTEN:
            found += [text] * alike
        following = member.after(texts.values, ())
        assert isinstance(following, ArrayFrame)
        at = following
    return found if size < MOST_WRITTEN else None


def _different_items(texts: LocalTexts, frame: ArrayFrame, earlier: tuple[Canonical, ...]) -> list[bytes] | None:
    """:func:`required_items` for an array whose items must all be different, and whose further items are alike.

    Each item is the first value of a list that is not in the array yet, so the remaining items stay the same after one
    of them has been written.
    """
    more, one = frame.plan.least - frame.length, item(frame)
    if more <= 0 or one is None or not frame.only_hard or frame.length < frame.plan.varied:
        return None
    found, taken, size = list[bytes](), {*earlier}, 0
    for _, text, value in values_in_order(texts, one.demand, 1 << (len(taken) + more).bit_length()):
        if value not in taken:
            taken.add(value)
            found.append(text)
            size += len(text) + 1
            if len(found) == more or size >= MOST_WRITTEN:
                break
    return found if len(found) == more and size < MOST_WRITTEN else None


def only_contained(frame: ArrayFrame) -> Atom | None:
    """The only open formula of an array, if it counts the items that match a schema; ``None`` for any other array.

    ``None``, too, if the items that may come are not all alike.
    """
    soft = frame.soft
    if isinstance(soft, bool) or soft[0] != "contains" or frame.extras or frame.length < frame.plan.varied:
        return None
    return soft


def all_contained(frame: Frame) -> list[Atom]:
    """The open formulas of an array whose items are all alike, if each of them counts the items that match a schema."""
    if not isinstance(frame, ArrayFrame) or frame.extras or frame.plan.distinct or frame.length < frame.plan.varied:
        return []
    parts = parts_of(frame.soft)
    return [*parts] if all(part[0] == "contains" for part in parts) else []


def _contained_items(texts: LocalTexts, frame: ArrayFrame) -> list[bytes] | None:
    """:func:`required_items` for an array whose only open formula counts the items that match a schema."""
    one, plan, contained = item(frame), frame.plan, only_contained(frame)
    if one is None or contained is None:
        return None
    _, _, least, most = contained
    others = max(plan.least - frame.length - least, 0)
    if least + others == 0 or (plan.most is not None and frame.length + least + others > plan.most):
        return None
    values = short_values(texts, one.demand)
    matching, other = values.get((True,)), values.get((False,))
    spare = others if most is None else min(others, most - least)
    if (least and matching is None) or (other is None and (matching is None or spare < others)):
        return None
    if matching is not None and (other is None or shortlex(matching) < shortlex(other)):
        least, others = least + spare, others - spare
    # Of texts of one length the smallest is written.
    parts = sorted([(b"%b," % text, text, count) for text, count in ((matching, least), (other, others)) if text])
    size = sum([count * len(end) for end, _, count in parts])
    return [text for _, text, count in parts for _ in range(count)] if size < MOST_WRITTEN else None


def bytes_needed(texts: LocalTexts, frame: Frame) -> int:
    """A lower bound on the bytes that an open object or array still needs before its closing bracket.

    A required member needs its name and its shortest value. Where the least number of members asks for more members,
    the shortest of those that may still come count. Of several ways to satisfy the object the cheapest counts.
    """
    if isinstance(frame, ArrayFrame):
        return _least_of_items(texts, frame)
    plan = frame.plan
    required = plan.required_names(frame.position, frame.missing)
    needed = needed_directly = sum([_bytes_of(texts, plan, name) for name in required])
    needed += _least_for(texts, plan, frame.soft, frozenset(required))
    others = _others(frame, len(required))
    return needed if others <= 0 else max(needed, needed_directly + _least_of_others(texts, frame, others))


def _others(frame: ObjectFrame, required: int) -> int:
    """How many members must come besides those that are required."""
    return frame.plan.least - max(frame.length, 0) - required if frame.plan.least else 0


def _least_of_others(texts: LocalTexts, frame: ObjectFrame, others: int) -> int:
    """A lower bound on the bytes of so many members of an object that are not required, as far as the hard atoms say.

    A declared member comes once, and others any number of times. Of many declared members all count as the shortest.
    """
    plan, memory = frame.plan, texts.memory
    key = frame.position if len(plan.names) <= _MOST_SORTED else 0, others
    known = memory.others_needed.setdefault(plan, {})
    if key in known:
        return known[key]
    (sizes, is_certain), required = _member_sizes(texts, plan), {*plan.required}
    once = sorted([size for at, size in sizes if at is not None and at >= key[0] and at not in required])
    again = min([size for at, size in sizes if at is None], default=math.inf)
    if len(plan.names) > _MOST_SORTED:
        once, again = [], min([again, *once])
    found = [min(size, again) for size in [*once[:others], *[again] * (others - len(once))]]
    needed = int(sum([size for size in found if size < math.inf]))
    if is_certain:
        known[key] = needed
        memory.remembered += ENTRY
    return needed


def _least_of_items(texts: LocalTexts, frame: ArrayFrame) -> int:
    """A lower bound on the bytes of the items that an array still needs, where ``contains`` counts its items."""
    known = texts.memory.items_needed
    if frame in known:
        return known[frame]
    counted = [part for part in parts_of(frame.soft) if part[0] == "contains"]
    one = item(frame) if counted and frame.length >= frame.plan.varied else None
    if one is None:
        return 0
    values, is_certain = texts.memory.values.certainty(lambda: short_values(texts, one.demand))
    sizes = {truth: len(text) + 1 for truth, text in values.items()}
    asked = one.demand.extras
    counts = [(asked.index(child), least, most) for _, child, least, most in counted if child in asked]
    needed = max(_least_to_match(sizes, counts), _least_for_count(sizes, counts, frame.plan.least - frame.length))
    if is_certain:
        known[frame] = needed
        texts.memory.remembered += ENTRY
    return needed


def _least_to_match(sizes: Mapping[TruthVector, int], counts: Sequence[_Count]) -> int:
    """A lower bound on the bytes of items that match formulas often enough.

    An item may match several formulas. Each formula takes from all items that match it as many bytes as the shortest of
    these items has left, so that no byte is counted twice. Formulas that few kinds of items match come first.
    """
    left, needed = dict(sizes), 0
    matching = [([truth for truth in left if truth[at]], least) for at, least, _ in counts]
    for truths, least in sorted(matching, key=lambda each: len(each[0])):
        taken = min([left[truth] for truth in truths], default=0) if least else 0
        needed += least * taken
        left.update([(truth, left[truth] - taken) for truth in truths])
    return needed


def _least_for_count(sizes: Mapping[TruthVector, int], counts: Sequence[_Count], more: int) -> int:
    """A lower bound on the bytes of a number of items that match no formula too often."""
    needed = 0
    for truth, size in sorted(sizes.items(), key=lambda each: each[1]):
        room = min([more, *[most for at, _, most in counts if truth[at] and most is not None]])
        needed += max(room, 0) * size
        more -= max(room, 0)
    return needed


def bytes_from(texts: LocalTexts, state: State) -> int:
    """A lower bound on the bytes from a state to the end of the innermost open object or array."""
    if isinstance(state, ColonState):
        frame, label = state.frame, state.label
        others = _others(frame, len(frame.plan.required_names(frame.position, frame.missing)))
        counted = 0
        if others > 0:
            counted = _least_of_others(texts, frame, others) - _least_of_others(texts, frame, others - 1)
        if label[0] == "name":
            counted = max(counted, _bytes_of(texts, frame.plan, label[1]))
        # Of the bytes that the object needs before this member, the member itself takes at most ``counted``. The colon,
        # one byte of the value and the bracket follow in any case.
        return max(bytes_needed(texts, frame) - counted, 0) + 3
    if not isinstance(state, ObjectState | ArrayState):
        return 1
    # The bound includes a comma before each member, which the first member may not need.
    return max(bytes_needed(texts, state.frame) - (state.phase != "next"), 0) + 1


def _member_sizes(texts: LocalTexts, plan: ObjectPlan) -> tuple[list[tuple[int | None, int]], bool]:
    """For each label the index of the declared name, ``None`` for others, and the bytes of a comma and a short member.

    Also whether these are certain: values that are being looked for may be shorter.
    """
    memory = texts.memory
    if plan in memory.member_sizes:
        return memory.member_sizes[plan], True
    sizes, is_certain = memory.values.certainty(lambda: [*_sizes_of_labels(texts, plan)])
    if is_certain:
        memory.member_sizes[plan] = sizes
        memory.remembered += ENTRY * len(sizes)
    return sizes, is_certain


def _sizes_of_labels(texts: LocalTexts, plan: ObjectPlan) -> Iterator[tuple[int | None, int]]:
    keys = plan.keys
    for label in keys.bit:
        name = texts.contents.name(keys, keys.automaton.start, label, frozenset())
        values = short_values(texts, ValueConstraint(plan.hard_child(label)))
        if name is not None and values:
            at = plan.index.get(label[1]) if label[0] == "name" else None
            yield at, len(name) + len('"":,') + min(map(len, values.values()))


def _least_for(texts: LocalTexts, plan: ObjectPlan, formula: Formula, counted: frozenset[str]) -> int:
    """A lower bound on the bytes of the members that a formula requires, without those whose names are ``counted``."""
    if isinstance(formula, bool):
        return 0
    operator = formula[0]
    if operator == "req":
        return 0 if formula[1] in counted else _bytes_of(texts, plan, formula[1])
    if operator in ("|", "1"):
        if not _may_require(formula):
            return 0
        if not isinstance(formula[1], ManyParts):
            return min([_least_for(texts, plan, part, counted) for part in formula[1]])
        return min([least for least, _ in _least_for_parts(texts, plan, formula[1], counted)])
    if operator != "&":
        return 0
    # The names that parts of the conjunction require directly are all different. Other parts may require equal names,
    # so only parts that have no name in common are added up.
    direct = [part for part in formula[1] if part[0] == "req"]
    largest, together = 0, sum([_least_for(texts, plan, part, counted) for part in direct])
    names = {part[1] for part in direct}
    others = [part for part in formula[1] if part[0] != "req" and _may_require(part)]
    for least, required in _least_for_parts(texts, plan, others, counted):
        largest = max(largest, least)
        if least and required and names.isdisjoint(required):
            names |= required
            together += least
    return max(largest, together)


def _may_require(formula: Atom) -> bool:
    """Whether a formula may require a member. Alternatives require none if one of them does not."""
    operator, parts = formula[0], formula[1]
    return operator in _ASKING and (operator not in ("|", "1") or _ASKING.issuperset([part[0] for part in parts]))


def _names_of(alternatives: Formula) -> frozenset[str]:
    """The names of which alternatives require one; none if the alternatives are more than conjunctions of atoms."""
    found: set[str] = set()
    for alternative in operands(alternatives):
        parts = operands(alternative) or (alternative,)
        if not all(map(is_atom, parts)):
            return frozenset()
        found.update([part[1] for part in parts if is_atom(part) and part[0] == "req"])
    return frozenset(found)


def _least_for_parts(
    texts: LocalTexts, plan: ObjectPlan, parts: Sequence[Formula], counted: frozenset[str]
) -> list[tuple[int, frozenset[str]]]:
    """:func:`_least_for` and :func:`_names_of` for the parts of a formula, remembered."""
    memory = texts.memory
    known = memory.needed.setdefault((plan, counted), {})
    found = list[tuple[int, frozenset[str]]]()
    for part in parts:
        one = known.get(part)
        if one is None:
            least, is_certain = memory.values.certainty(partial(_least_for, texts, plan, part, counted))
            one = least, _names_of(part)
            if is_certain:
                known[part] = one
                memory.remembered += ENTRY
        found.append(one)
    return found


def _bytes_of(texts: LocalTexts, plan: ObjectPlan, name: str) -> int:
    """The bytes of a comma and the shortest member with a name."""
    text = _member_named(texts, plan, name)
    return len(name) + len('"":0,') if text is None else len(text) + 1


def _member_named(texts: LocalTexts, plan: ObjectPlan, name: str) -> bytes | None:
    """A short member with a name, as far as the hard atoms of its object say; ``None`` if there is none."""
    memory = texts.memory
    child = plan.hard_child(("name", name))
    text = memory.members.get((name, child))
    if text is None:
        demand = ValueConstraint(child)
        values, certain = memory.values.certainty(lambda: short_values(texts, demand))
        value = values.get(())
        text = None if value is None else b'"%b":%b' % (texts.contents.escaped(name.encode()), value)
        if text is not None and certain:
            memory.members[name, child] = text
    return text
