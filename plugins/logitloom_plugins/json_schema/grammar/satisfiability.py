"""Satisfiability: which truth vectors the values of a schema can have, and which containers can still be closed.

The machine uses this to refuse a byte after which no complete value exists. The set of truth vectors of a recursive
schema is a least fixed point: larger values are built from smaller ones. The computation is repeated until it adds no
truth vector.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Final, Never, TypeVar, cast

from logitloom.automata import Budget, BudgetTracker, Dfa
from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.grammar import arrays, objects
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame, ArrayPlan
from logitloom_plugins.json_schema.grammar.keys import KeyParts, Keys, Label
from logitloom_plugins.json_schema.grammar.least_solution import Answer, Inquiry, LeastSolution
from logitloom_plugins.json_schema.grammar.members import Container, Member, TruthVector, ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame, ObjectPlan, PlanParts
from logitloom_plugins.json_schema.grammar.value_counts import values_of
from logitloom_plugins.json_schema.schema.formula import (
    Atom,
    Formula,
    conjunction,
    is_atom,
    listed,
    nodes_in,
    only_listed,
    parts_of,
    substitute,
)
from logitloom_plugins.json_schema.schema.keywords import MANY_BRANCHES, TYPES, Keywords
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine, encodable
from logitloom_plugins.json_schema.values.numbers import number_automaton
from logitloom_plugins.json_schema.values.strings import content_of, merged, outputs_of_lists

__all__ = ["EVERYTHING", "Satisfiability"]

Frame = ObjectFrame | ArrayFrame
Found = TypeVar("Found")
#: Atoms that the empty object and the empty array satisfy, and atoms that some string or number does.
_OF_EMPTY: Final = {
    "object": frozenset(("prop", "patp", "addl", "names", "maxp")),
    "array": frozenset(("item", "rest", "maxi", "unique")),
}
_OF_SOME: Final = frozenset(("int", "eq", "fmt"))
#: The answers to a constraint that some value satisfies.
_POSSIBLE: Final[frozenset[TruthVector]] = frozenset([()])


class _Everything(frozenset[Never]):
    """A set that contains every object."""

    def __contains__(self, item: object) -> bool:
        return True


#: Every truth vector, and every node.
EVERYTHING: Final = _Everything()


class Satisfiability:
    """The truth vectors that values of a schema can have, and the plans, key automata and contents shared by frames.

    Args:
        keywords: the formulas of the schema's nodes.
        tracker: the budget tracker.
    """

    def __init__(self, keywords: Keywords, tracker: BudgetTracker) -> None:
        self.keywords = keywords
        self.tracker = tracker
        #: The constraint on the whole value.
        self.root = ValueConstraint(("s", keywords.document.root))
        #: Truth vectors by constraint on a value, and by frame whether it can be closed.
        self.solution = LeastSolution()
        self._known = self.solution.known
        self._known[ValueConstraint(True)] = _POSSIBLE
        self._keys: dict[KeyParts, Keys] = {}
        self._object_plans: dict[PlanParts, ObjectPlan] = {}
        self._array_plans: dict[tuple[str, int, tuple[Atom, ...]], ArrayPlan] = {}
        self._contents: dict[tuple[tuple[Formula, ...], bool], Content] = {}
        self._numbers: dict[tuple[Formula, ...], MooreMachine] = {}
        #: By constraint, and by its formulas over atoms, the first constraint with these formulas.
        self._alike: dict[ValueConstraint, ValueConstraint] = {}
        self._first: dict[Hashable, ValueConstraint] = {}
        self._opened: dict[tuple[str, tuple[Formula, ...], frozenset[TruthVector]], Frame] = {}
        self._distinct: set[ArrayFrame] = set()
        #: Nodes whose ``uniqueItems`` cannot be enforced in some array that has been opened.
        self.repeatable: set[int] = set()
        self._work = self._steps = 0

    # --- shared parts ------------------------------------------------------------------------------------------

    def keys(self, names: tuple[str, ...], others: frozenset[str], everything: list[Atom]) -> KeyParts:
        """The names, the patterns and the ``propertyNames`` atoms that the key automaton of an object distinguishes."""
        patterns: dict[str, None] = {}
        demands: dict[Atom, None] = {}
        for atom in everything:
            if atom[0] == "patp":
                patterns[atom[1]] = None
            elif atom[0] == "addl":
                patterns.update(dict.fromkeys(sorted(atom[2])))
                names = tuple(dict.fromkeys([*names, *sorted(atom[1])]))
            elif atom[0] == "names":
                demands[atom] = None
        names = tuple(dict.fromkeys([*names, *sorted(others)]))
        return names, tuple(patterns), tuple(demands)

    def _keys_of(self, key: KeyParts) -> Keys:
        found = self._keys.get(key)
        if found is None:
            names, patterns, demands = key
            languages: dict[Atom, Dfa] = {}
            for atom in demands:
                formulas = (self.keywords.of_nodes(atom[1], "string"),)
                languages[atom] = self.content(formulas, plain=True).automaton
            found = self._keys[key] = Keys(names, patterns, languages, self.tracker)
        return found

    def check_distinct(self, frame: ArrayFrame, nodes: Iterable[int]) -> None:
        """Note whether the ``uniqueItems`` of some nodes can be enforced in an array that has just been opened.

        An array enforces ``uniqueItems`` if it may end after any item, and if all items have one schema with enough
        values.
        """
        if frame in self._distinct:
            return
        # The frame is added before the check, so that the recursion ends where an item is an array of the same kind.
        self._distinct.add(frame)
        plan = frame.plan
        is_certain = plan.distinct and frame.only_hard
        if not is_certain or (
            plan.least > 1 and (plan.items or values_of(self, plan.hard_item(0), plan.least) < plan.least)
        ):
            self.repeatable.update(nodes)

    def object_plan(
        self, names: tuple[str, ...], tracked: frozenset[str], keys: KeyParts, hard: tuple[Atom, ...]
    ) -> ObjectPlan:
        """The cached plan of an object with the given hard atoms; ``keys`` is a result of :meth:`keys`."""
        parts = ("object", names, tracked, keys, hard)
        found = self._object_plans.get(parts)
        if found is None:
            found = self._object_plans[parts] = ObjectPlan(parts, self._keys.get(keys) or self._keys_of(keys))
        return found

    def array_plan(self, limit: int, hard: tuple[Atom, ...]) -> ArrayPlan:
        """The cached plan of an array with the given hard atoms."""
        parts = ("array", limit, hard)
        found = self._array_plans.get(parts)
        if found is None:
            found = self._array_plans[parts] = ArrayPlan(parts)
        return found

    def content(self, formulas: tuple[Formula, ...], plain: bool = False) -> Content:
        """The content of the strings that satisfy the first formula, labelled with the truth of the other formulas."""
        found = self._contents.get((formulas, plain))
        if found is None:
            if formulas[0] is False:
                nothing: Formula = ("any", frozenset())
                found = content_of((nothing,), lambda holds: None, self.tracker)
            else:
                # With ``plain`` the automaton itself enforces the lengths, so it accepts exactly the language.
                asked = merged(formulas)
                read = (True, *asked) if plain else asked
                found = content_of(read, _label_of(asked), self.tracker, plain)
            self._contents[formulas, plain] = found
        return found

    def number(self, formulas: tuple[Formula, ...]) -> MooreMachine:
        """The Moore machine of the numbers that satisfy the first formula; its outputs are the truth of the others."""
        found = self._numbers.get(formulas)
        if found is None:
            found = self._numbers[formulas] = _number(formulas, self.tracker.budget, self.keywords.integers == "plain")
        return found

    def with_selection(self, formula: Formula) -> Formula:
        """As :meth:`.Keywords.with_selection`."""
        return self.keywords.with_selection(formula)

    # --- shared with other processes ---------------------------------------------------------------------------

    def solved(self) -> tuple[object, ...]:
        """The results so far, as values for :meth:`take_solved`."""
        keys = [(key, keys.automaton) for key, keys in self._keys.items() if keys.is_slow and "automaton" in vars(keys)]
        # No answer is asked of a frame that any end would do for.
        answers = [item for item in self._known.items() if getattr(item[0], "wanted", None) is not EVERYTHING]
        return tuple(self._contents.items()), tuple(self._numbers.items()), tuple(keys), tuple(answers)

    def take_solved(self, solved: object) -> None:
        """Take over what was found for an equal schema in another process.

        Raises:
            ValueError: if the values are not such as :meth:`solved` returns.
        """
        if not isinstance(solved, tuple):
            raise ValueError(f"{solved!r:.60} is no tuple")
        contents, numbers, keys, answers = solved
        of_wrong_kind = [made for _, made in contents if not isinstance(made, Content)]
        of_wrong_kind += [made for _, made in numbers if not isinstance(made, MooreMachine)]
        if of_wrong_kind:
            raise ValueError(f"{of_wrong_kind[0]!r:.60} is no automaton")
        self._contents.update(contents)
        self._numbers.update(numbers)
        for about, automaton in keys:
            self._keys_of(about).take(automaton)
        for question, answer in answers:
            self._known[self._adopted(question, answer)] = answer

    def _adopted(self, question: object, answer: object) -> ValueConstraint | Frame:
        """A question of another process, with the plan that this process has of the same atoms."""
        if isinstance(question, ValueConstraint):
            vectors = answer if isinstance(answer, frozenset) else [None]
            if any(type(truth) is not tuple or len(truth) != len(question.extras) for truth in vectors):
                raise ValueError(f"{answer!r:.60} are no truth vectors")
            return question
        if not isinstance(question, Frame) or type(answer) is not bool:
            raise ValueError(f"{question!r:.60} is no question")
        # The plan that was read is a plain name.
        if isinstance(question, ObjectFrame):
            _, names, tracked, keys, hard = cast("PlanParts", question.plan.parts)
            return question._replace(plan=self.object_plan(names, tracked, keys, hard))
        _, limit, atoms_of_items = cast("tuple[str, int, tuple[Atom, ...]]", question.plan.parts)
        return question._replace(plan=self.array_plan(limit, atoms_of_items))

    # --- truth vectors -----------------------------------------------------------------------------------------

    def kinds(self, demand: ValueConstraint) -> Sequence[str]:
        """The types of the values that may satisfy a constraint, and perhaps others."""
        must = demand.must
        return self.keywords.kinds(must[1]) if not isinstance(must, bool) and must[0] == "s" else TYPES

    def of_type(self, demand: ValueConstraint, kind: str) -> tuple[Formula, ...]:
        """The formulas of a constraint over the atoms of values of one type; empty if no such value satisfies it."""
        must, extras = demand
        if must is not True and must is not False and must[0] == "s":
            must = self.keywords.of(must[1], kind)
        else:
            must = self.keywords.of_nodes(must, kind)
        if must is False or not extras:
            return (must,) if must is not False else ()
        formulas = (must, *[self.keywords.of_nodes(extra, kind) for extra in extras])
        if len(formulas) > 2:
            formulas = self.keywords.together(formulas)
        # Where subschemas turn out to be equal, a contradiction may come to light.
        return formulas if formulas[0] is not False else ()

    def first_alike(self, demand: ValueConstraint) -> ValueConstraint:
        """Of the constraints that equal formulas over atoms express, the first that was asked about.

        Constraints with formulas whose truth is asked for stand for themselves.
        """
        found = self._alike.get(demand)
        if found is None:
            formulas: Hashable = demand
            if not demand.extras:
                kinds = self.kinds(demand)
                every = [(kind, self.of_type(demand, kind)) for kind in TYPES if kind in kinds]
                formulas = tuple([each for each in every if each[1]])
            found = self._alike[demand] = self._first.setdefault(formulas, demand)
        return found

    def answers(self, demand: ValueConstraint) -> frozenset[TruthVector]:
        """The truth vectors of ``demand.extras`` that values which satisfy ``demand.must`` can have.

        Raises:
            BudgetExceeded: if there are too many extra formulas, or if the budget is used up.
        """
        known = self._seen(demand)
        return self.solution.of(demand, self._find) if known is None else known

    def possible(self, demand: ValueConstraint) -> bool:
        """Whether any value satisfies ``demand.must``."""
        return bool(self.answers(demand))

    def lives(self, frame: Frame) -> bool:
        """Whether a container can still be completed with a truth vector in ``frame.wanted``."""
        known: bool | None = self._known.get(frame)
        if known is None and self._is_seen_to_live(frame):
            known = self._known[frame] = True
        return self.solution.of(frame, self._find) if known is None else known

    def _is_seen_to_live(self, frame: Frame) -> bool:
        """Whether a container without open formulas may be closed now, or after members whose values are seen."""
        if not frame.only_hard:
            return False
        if self.end(frame) is not None:
            return True
        if isinstance(frame, ArrayFrame) or frame.plan.counts:
            return False
        return frame.plan.has_known_values(frame.position, frame.missing, self._seen)

    def effort(self, frame: Frame) -> int:
        """An estimate of the work to find that a container can be completed, if it can; 0 if this is known."""
        if frame in self._known:
            return 0 if self._known[frame] else 4
        if self.end(frame) is not None:
            return 1
        # A container without open formulas is decided at once.
        return 2 if frame.only_hard else 3

    def _seen(self, demand: ValueConstraint) -> frozenset[TruthVector] | None:
        """The truth vectors of a constraint that are known, or are seen without an automaton or a frame."""
        known: frozenset[TruthVector] | None = self._known.get(demand)
        if known is None and not demand.extras:
            for kind in self.kinds(demand):
                if _has_plain_value(kind, *self.of_type(demand, kind)):
                    known = self._known[demand] = _POSSIBLE
                    break
        return known

    def _find(
        self, question: ValueConstraint | Frame, before: Answer
    ) -> tuple[Answer, bool] | Inquiry[tuple[Answer, bool]]:
        """What answers a question: the truth vectors of a constraint, or whether a container can be completed."""
        if isinstance(question, ValueConstraint):
            seen = self._seen(question)
            return self._truth_vectors(question, before) if seen is None else (seen, True)
        return self._can_be_closed(question, before)

    def _answered(self, inquiry: Inquiry[Found]) -> Found:
        """The result of an inquiry."""
        answer = None
        while True:
            try:
                question = inquiry.send(answer)
            except StopIteration as end:
                result: Found = end.value
                return result
            answer = self.solution.of(question, self._find)

    def _truth_vectors(
        self, demand: ValueConstraint, before: frozenset[TruthVector] | None
    ) -> Inquiry[tuple[frozenset[TruthVector], bool]]:
        if demand.must is False:
            return frozenset(), True
        found = set(before or ())
        self.solution.found[demand] = frozenset(found)
        self._count_work("demands")
        everything = 2 ** len(demand.extras)
        for kind in self.kinds(demand):
            if len(found) == everything:
                break
            formulas = self.of_type(demand, kind)
            if not formulas or listed(parts_of(formulas[0]), "any") == frozenset():
                continue
            if kind in ("string", "number"):
                with self.located(demand):
                    found |= self._string_answers(formulas) if kind == "string" else self.number(formulas).found
            elif kind in ("array", "object"):
                if demand.extras:
                    found |= yield from self._container_answers(kind, formulas, found)
                elif (yield self.opened(kind, formulas, _POSSIBLE)):
                    found.add(())
            else:
                found.add(tuple([extra is True for extra in formulas[1:]]))
        return frozenset(found), len(found) == everything

    @contextmanager
    def located(self, demand: ValueConstraint) -> Iterator[None]:
        """Name the place of a constraint in the schema in errors of the budget.

        Raises:
            BudgetExceeded: the error, with the place.
        """
        try:
            yield
        except BudgetExceeded as error:
            nodes = [node for formula in (demand.must, *demand.extras) for node in nodes_in(formula)]
            places = [f"#{self.keywords.document.nodes[node].pointer}" for node in nodes[:3]]
            if not places:
                raise
            raise BudgetExceeded(f"{error} The limit is exceeded at {' and '.join(places)}.") from error

    def _string_answers(self, formulas: tuple[Formula, ...]) -> Set[TruthVector]:
        """The truth vectors of strings, without an automaton where the formulas ask about lists of texts alone."""
        found = None if (formulas, False) in self._contents else outputs_of_lists(formulas, _label_of(formulas))
        return self.content(formulas).found if found is None else found

    def opened(self, kind: str, formulas: tuple[Formula, ...], wanted: frozenset[TruthVector]) -> Frame:
        """The frame of an object or array that has just been opened.

        Args:
            kind: ``"object"`` or ``"array"``.
            formulas: as :meth:`of_type` gives them, and not empty.
            wanted: the truth vectors with which the object or array may be closed.
        """
        # Without extra formulas there is one truth vector, so the frame is the one that a mask opens.
        asked = kind, formulas, _POSSIBLE if wanted is EVERYTHING and len(formulas) == 1 else wanted
        # Long formulas take long to hash, so they are looked up once.
        frame = self._opened.get(asked)
        if frame is None:
            must, *extras = formulas
            start = objects.start_object if kind == "object" else arrays.start_array
            frame = self._opened[asked] = start(self, must, tuple(extras), asked[2])
        return frame

    def _container_answers(
        self, kind: str, formulas: tuple[Formula, ...], before: Set[TruthVector]
    ) -> Inquiry[set[TruthVector]]:
        """The truth vectors of the containers of one type, beside those that values of other types have."""
        extras = len(formulas) - 1
        asked = len({extra for extra in formulas[1:] if not isinstance(extra, bool)})
        if asked > MANY_BRANCHES:
            raise BudgetExceeded(
                f"An object or array would have to be checked against {asked} alternatives at once, and at most "
                f"{MANY_BRANCHES} are possible. Use fewer branches in anyOf, oneOf or not."
            )
        # Collect the truth vectors of all frames that may be closed. ``wanted`` does not change which frames follow.
        frame = self.opened(kind, formulas, EVERYTHING)
        found = set(before)
        queue = [frame]
        seen = {frame}
        for reached in queue:
            end = self.end(reached)
            if end is not None:
                found.add(end)
                if len(found) == 2**extras:
                    break
            if _may_end_otherwise(reached, found):
                queue += yield from self._new_frames(reached, seen)
        return found

    # --- frames ------------------------------------------------------------------------------------------------

    def end(self, frame: Frame) -> TruthVector | None:
        """The truth vector of a container that is closed now; ``None`` if it must not be closed."""
        return objects.end_object(frame) if isinstance(frame, ObjectFrame) else arrays.end_array(frame)

    def _can_be_closed(self, frame: Frame, before: bool | None) -> Inquiry[tuple[bool, bool]]:
        self.solution.found[frame] = bool(before)
        hard = None
        simple = frame.only_hard
        if isinstance(frame, ArrayFrame):
            items = frame.plan
            if items.most is not None and items.most < max(items.least, frame.length):
                return False, True
            last = min(items.least, items.varied + 1)
            hard = [items.hard_item(index) for index in range(min(frame.length, last), last)] if simple else None
        elif simple and not frame.plan.counts:
            lives = yield from frame.plan.has_values(frame.position, frame.missing)
            return lives, lives
        if hard is not None:
            for must in hard:
                if not (yield ValueConstraint(must)):
                    return False, False
            return True, True
        if isinstance(frame, ObjectFrame):
            if self.end(frame) is not None:
                return True, True
            if not (yield from self._has_required(frame)):
                return False, False
            chosen = objects.with_last_alternatives(self, frame)
            if chosen is not None and (yield from chosen.plan.has_values(chosen.position, chosen.missing)):
                return True, True
        if (yield from self._is_closed_soon(frame) if isinstance(frame, ObjectFrame) else self._is_filled_soon(frame)):
            return True, True
        # Depth-first, because most paths lead to a frame that may be closed. Breadth-first search would first visit
        # all combinations of members.
        way_to: dict[Frame, Frame | None] = {frame: None}
        stack = [frame]
        while stack:
            current = stack.pop()
            if self._known.get(current) or self.end(current) is not None:
                way: Frame | None = current
                while way is not None:
                    self._known[way] = True
                    way = way_to[way]
                return True, True
            self._count_work("open objects and arrays")
            # Names that have come, or have not, may leave no value for a name that must come.
            if current.plan is not frame.plan and not (yield from self._has_required(current)):
                continue
            found = yield from self._following(current)
            # The search goes on with the last frame of the stack: the frame after a name is left out, because searches
            # from other frames meet this frame, too. While members are too few, the last frame is a frame after a
            # member.
            needs_more = isinstance(current, ObjectFrame) and 0 <= current.length < current.plan.least
            for following in found if needs_more else reversed(found):
                if following not in way_to:
                    way_to[following] = current
                    stack.append(following)
        if not self.solution.unsure:
            self._known.update(dict.fromkeys(way_to, False))
        return False, False

    def _has_required(self, frame: Frame) -> Inquiry[bool]:
        """Whether there is a value for each name that must still come in an object; of an array ``True``."""
        if isinstance(frame, ArrayFrame):
            return True
        return (yield from frame.plan.has_values(frame.position, frame.missing))

    def _is_closed_soon(self, frame: ObjectFrame) -> Inquiry[bool]:
        """Whether an object may be closed if, in order, each name is left out that can be left out.

        A search among the members would visit a frame per declared name.
        """
        way, current = list[Frame](), frame
        while not (self._known.get(current) or self.end(current) is not None):
            way.append(current)
            self._count_work("open objects and arrays")
            plan, ahead = current.plan, objects.omit(self, current, objects.next_required(current))
            if ahead is None:
                ahead = self._leaving_out(current)
                if self._known.get(ahead):
                    break
            if ahead.position < len(plan.names):
                key: Label | None = ("name", plan.names[ahead.position])
            else:
                key = next((label for label in plan.keys.bit if label[1] in ahead.missing), None)
            after = [] if key is None else (yield from self._frames_after(objects.member(self, ahead, key)))
            if not after:
                return False
            current = min(after, key=self.effort)
        self._known.update(dict.fromkeys([*way, current], True))
        return True

    def _leaving_out(self, frame: ObjectFrame) -> ObjectFrame:
        """The frame after as many declared names as can be are left out; not all before the next required one can."""
        keys, missing = frame.plan.keys, objects.next_required(frame)
        # Searches from the frames after other members mostly stop at the same name.
        guesses = [keys.last_stop + 1, keys.last_stop]
        while missing - frame.position > 1 and not self._known.get(frame):
            guess = guesses.pop() if guesses else 0
            target = guess if frame.position < guess < missing else (frame.position + missing) // 2
            following = objects.omit(self, frame, target)
            if following is None or self._known.get(following) is False:
                missing = target
            else:
                frame = following
        keys.last_stop = frame.position
        return frame

    def _is_filled_soon(self, frame: ArrayFrame) -> Inquiry[bool]:
        """Whether an array of any length may be closed after an item for each of the items that it must contain."""
        plan, wanted = frame.plan, parts_of(frame.soft)
        if frame.extras or plan.distinct or plan.most is not None:
            return False
        if any(part[0] != "contains" or part[3] is not None for part in wanted):
            return False
        rest = plan.hard_item(plan.varied)
        hard = [plan.hard_item(index) for index in range(frame.length, plan.varied)]
        # An item that exists once exists always, so each formula is asked about once, not after each item.
        new = [part[1] for part in wanted if part[1] not in plan.matched]
        for must in (*hard, *[conjunction([rest, child]) for child in new]):
            if not (yield ValueConstraint(must)):
                return False
        plan.matched.update(new)
        return True

    def _count_work(self, what: str) -> None:
        self._work += 1
        if self._work % 64 == 0:
            self.tracker.check_states(self._work, what)

    def explored(self, frame: Frame, leads: Callable[[Frame], bool] | None = None) -> Iterator[Frame]:
        """Yield the frames that are reachable from a frame and can be completed, breadth-first; first the frame.

        Args:
            frame: the first frame.
            leads: whether frames after a yielded frame are wanted; default: always.
        """
        queue = [frame]
        seen = {frame}
        for current in queue:
            # Frames that cannot be completed are not followed: there may be one for each combination of members.
            if self.lives(current):
                yield current
                if leads is None or leads(current):
                    queue += self._answered(self._new_frames(current, seen))

    def _new_frames(self, frame: Frame, seen: set[Frame]) -> Inquiry[list[Frame]]:
        """The frames after a frame that are not in ``seen``; they are added to ``seen``.

        Frames with a required name for which no value exists are left out.
        """
        self._count_work("open objects and arrays")
        found = []
        for following in (yield from self._following(frame)):
            if following not in seen:
                seen.add(following)
                if following.plan is frame.plan or (yield from self._has_required(following)):
                    found.append(following)
        return found

    def _following(self, frame: Frame) -> Inquiry[list[Frame]]:
        """The frames after one more member, or after a declared name is left out."""
        if isinstance(frame, ArrayFrame):
            return [*(yield from self._frames_after(arrays.item(frame)))]
        plan, found = frame.plan, list[Frame]()
        if frame.position < len(plan.names):
            required = frame.position in plan.required
            skipped = None if required else objects.skip(self, frame)
            if skipped is not None:
                found.append(skipped)
            member = objects.member(self, frame, ("name", plan.names[frame.position]))
            if member is not None and (required or member.changes):
                found += yield from self._frames_after(member)
            return found
        for key in plan.keys.bit:
            member = None if plan.declares(key) else objects.member(self, frame, key)
            if member is None:
                continue
            if (key[0] == "other" and not frame.left) or member.changes or key[1] in frame.missing:
                for following in (yield from self._frames_after(member)):
                    # A name that changes nothing is better left for later.
                    if not frame.left or following._replace(left=frame.left) != frame:
                        found.append(following)
        return found

    def _frames_after(self, member: Member[Satisfiability, Container] | None) -> Inquiry[list[Container]]:
        return [] if member is None else [*(yield from self._after(member)).values()]

    def may_end_after(self, member: Member[Satisfiability, Container]) -> bool:
        """Whether a container may be closed right after some value of a member, if that is seen without its frame."""
        return any(map(member.may_end, self.answers(member.demand)))

    def after(self, member: Member[Satisfiability, Container]) -> dict[TruthVector, Container]:
        """The frames after a member, by the truth vectors that its values can have."""
        return member.reached if member.reached is not None else self._answered(self._after(member))

    def _after(self, member: Member[Satisfiability, Container]) -> Inquiry[dict[TruthVector, Container]]:
        if member.reached is not None:
            return member.reached
        found: dict[TruthVector, Container] = {}
        truths: frozenset[TruthVector] = yield member.demand
        for truth in truths:
            # With long formulas one step may take milliseconds.
            self._steps += 1
            if self._steps % 8 == 0:
                self.tracker.check_time()
            following = member.after(self, truth)
            if following is not None:
                found[truth] = following
        if member.demand in self._known:
            member.reached = found
        return found


def _may_end_otherwise(frame: Frame, found: Set[TruthVector]) -> bool:
    """Whether an open object or array may end with a truth vector that was not found, as far as its formulas say."""
    decided = [(index, extra) for index, extra in enumerate(frame.extras) if isinstance(extra, bool)]
    possible = 1 << len(frame.extras) - len(decided)
    if possible == 1:
        return frame.extras not in found
    if len(found) < possible:
        return True
    alike = [truth for truth in found if all(truth[index] is extra for index, extra in decided)]
    return len(alike) < possible


def _has_plain_value(kind: str, formula: Formula = False) -> bool:
    """Whether some value of a type satisfies a formula, as far as that is seen without an automaton or a frame."""
    if isinstance(formula, bool):
        return formula
    if kind in _OF_EMPTY:
        return all(is_atom(part) and part[0] in _OF_EMPTY[kind] for part in parts_of(formula))
    if formula[0] in _OF_SOME:
        return True
    if kind == "string" and all(part[0] == "!" and part[1][0] == "any" for part in parts_of(formula)):
        # Some string is in none of the finite lists.
        return True
    return any(map(encodable, only_listed(formula, "any") or ()))


def _label_of(formulas: tuple[Formula, ...]) -> Callable[[Callable[[Atom], bool]], TruthVector | None]:
    """A function from the truth of atoms to the truth vector of ``formulas[1:]``, ``None`` if ``formulas[0]`` fails."""
    must, extras = formulas[0], formulas[1:]
    every_atom = [extra for extra in extras if is_atom(extra)]

    def label(holds: Callable[[Atom], bool]) -> TruthVector | None:
        if substitute(must, holds) is not True:
            return None
        if len(every_atom) == len(extras):
            # Hundreds of atoms are asked of each value of a long list.
            return tuple(map(holds, every_atom))
        return tuple([substitute(extra, holds) is True for extra in extras])

    return label


@functools.lru_cache(maxsize=512)
def _number(formulas: tuple[Formula, ...], budget: Budget, plain_integers: bool) -> MooreMachine:
    tracker = BudgetTracker(budget, "a range of numbers")
    return number_automaton(list(formulas), _label_of(formulas), tracker, plain_integers)
