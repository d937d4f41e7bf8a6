"""From a schema to its automaton: reads the schema, checks the keywords of every subschema, makes the machine."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from logitloom.automata import Budget, BudgetTracker, stored_values
from logitloom.display.warning import warn
from logitloom.errors import BudgetExceeded, LogitloomError, UnsupportedSchema
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.grammar import arrays, objects
from logitloom_plugins.json_schema.grammar.layout import Whitespace
from logitloom_plugins.json_schema.grammar.members import ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame, ObjectPlan
from logitloom_plugins.json_schema.grammar.satisfiability import EVERYTHING, Frame, Satisfiability
from logitloom_plugins.json_schema.schema.assertions import (
    MOST_UNIQUE,
    array_formulas,
    number_formulas,
    object_formulas,
    string_formulas,
)
from logitloom_plugins.json_schema.schema.evaluated import evaluated_items, evaluated_properties
from logitloom_plugins.json_schema.schema.formula import NAMED, Atom, atoms, nodes_in
from logitloom_plugins.json_schema.schema.keywords import LISTS, Assertions, Keywords
from logitloom_plugins.json_schema.schema.schema_document import Document, JSONValue
from logitloom_plugins.json_schema.values.numbers import states_of_multiples
from logitloom_plugins.json_schema.values.strings import string_problem

__all__ = ["SchemaOptions", "compile_schema"]

_ASSERTIONS: Final[Assertions] = {
    "number": (number_formulas,),
    "string": (string_formulas,),
    "array": (array_formulas, evaluated_items),
    "object": (object_formulas, evaluated_properties),
}
#: The types whose formulas have atoms, and ``null``, which stands for all types whose formulas have no atoms.
_CHECKED = ("null", "number", "string", "array", "object")
#: Atoms that ask nothing of the values of members and items.
_COUNTED: Final = frozenset(("req", "minp", "maxp", "mini", "maxi"))
#: The most states of one object or array that are visited to find out whether there are too many alternatives.
_FIRST_FRAMES: Final = 2
#: The automaton of more patterns at one place may take too many states.
_MOST_PATTERNS: Final = 4
#: The most characters of a message that list keywords.
_MOST_TOLD: Final = 320
_NOT_DISTINCT: Final = (
    f"items are kept different where they must differ once the array begins; beside contains, beside minItems with "
    f"prefixItems or few values, and in undecided branches only at most {MOST_UNIQUE} values, no arrays or objects"
)


@dataclass(frozen=True)
class SchemaOptions:
    """How a schema is read and its values are written.

    Args:
        whitespace: where whitespace may stand.
        escapes: ``any``: every escape of JSON; ``minimal``: only those that are needed; ``ascii``: as ``minimal``, and
            characters above ASCII only as escapes.
        formats: ``assert``, ``annotate``, or ``auto``: assert, except where the draft named by ``$schema`` says that
            ``format`` is an annotation (2019-09 and 2020-12), or does not define that format (4, 6 and 7).
        additional_properties: what ``additionalProperties`` defaults to beside ``properties``.
        strict: whether keywords that cannot be enforced are an error, or one warning.
        integers: ``plain``: integers are written without fraction and exponent; ``any``: in each form whose value is
            whole, as JSON Schema reads them.
    """

    whitespace: Whitespace = field(default_factory=Whitespace)
    escapes: str = "any"
    formats: str = "auto"
    additional_properties: bool = True
    strict: bool = True
    integers: str = "plain"


_DEFAULTS: Final = SchemaOptions()


def compile_schema(schema: JSONValue, options: SchemaOptions | None = None, budget: Budget | None = None) -> Machine:
    """The automaton of a schema.

    Args:
        schema: a JSON value: an object or a boolean.
        options: how to read it.
        budget: what the compilation may cost.

    Raises:
        UnsupportedSchema: if the schema is malformed, refers to something outside, or has keywords that cannot be
            enforced (all of them are listed with their JSON pointers). A schema that no value satisfies compiles;
            ``satisfiable`` of the result says so.
        BudgetExceeded: if it takes too many states or seconds.
    """
    options = options if options is not None else _DEFAULTS
    tracker = BudgetTracker(budget, "the schema")
    try:
        # The time limit is for the whole schema: each pattern gets the time that the other patterns have left.
        with (
            tracker.for_all(),
            stored_values(
                lambda: ("schema", schema, options, tracker.budget.states, tracker.budget.table_bytes),
                packages=("logitloom_plugins",),
            ) as stored,
        ):
            machine = None if stored.known is None else _with_stored(schema, options, tracker, stored.known)
            if machine is None:
                machine = _compiled(Document(schema, tracker), options, tracker)
            repeatable, values = tuple(sorted(machine.keywords.repeatable)), machine.values
            stored.made = lambda: (repeatable, values.solved())
            tracker.stop_the_clock()
            return machine
    except RecursionError as error:
        raise BudgetExceeded(
            "The schema is nested too deeply to be compiled. Nest less, or raise the limit with sys.setrecursionlimit."
        ) from error


def _with_stored(schema: JSONValue, options: SchemaOptions, tracker: BudgetTracker, stored: object) -> Machine | None:
    """Compile with the values that another process has stored; ``None`` if they do not fit the schema."""
    # A forged file may hold any values, so an error of any kind means that they do not fit. Errors of limits do not.
    try:
        if not isinstance(stored, tuple):
            return None
        repeatable, solved = stored
        return _compiled(Document(schema, tracker), options, tracker, frozenset(repeatable), solved)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        if isinstance(error, LogitloomError):
            raise
        return None


def _compiled(
    document: Document,
    options: SchemaOptions,
    tracker: BudgetTracker,
    repeatable: frozenset[int] = frozenset(),
    solved: object = None,
) -> Machine:
    while True:
        keywords = Keywords(
            document,
            _ASSERTIONS,
            string_problem,
            formats=options.formats,
            additional_properties=options.additional_properties,
            repeatable=repeatable,
            integers=options.integers,
        )
        leading = check(keywords, tracker)
        if options.strict and keywords.problems:
            break
        values = Satisfiability(keywords, tracker)
        if solved is not None:
            values.take_solved(solved)
        if values.possible(values.root):
            # Too many alternatives that are read side by side are refused before decoding starts.
            if solved is None and keywords.has_many_branches:
                _visit_constraints(values, values.root, EVERYTHING, _FIRST_FRAMES)
            if solved is None:
                _visit_constraints(values, values.root, leading)
        machine = Machine(values, options.whitespace, options.escapes)
        if machine.satisfiable:
            # The first mask needs these codes in any case. If they exceed a limit, the error comes before decoding.
            codes = machine.codes.sparse_row(machine.start) or {}
            for number in [code if code >= 0 else machine.reader.applied(code, None)[0] for code in codes.values()]:
                machine.codes.every_code(number)
        repeatable |= values.repeatable
        if options.strict or not values.repeatable:
            break
    for number in sorted(repeatable):
        keywords.refuse(document.nodes[number], "uniqueItems", _NOT_DISTINCT)
    problems = keywords.problems
    if problems and options.strict:
        remedy = "Remove them, or set the option 'strict' to false to go on without them."
        error = UnsupportedSchema(f"{_said(problems)} {remedy}")
        error.problems = tuple((keyword, f"#{pointer}", why) for (pointer, keyword), why in problems.items())
        raise error
    if problems:
        message = f"{_said(problems)} They are ignored, so values may violate them."
        warn(message)
    return machine


def _said(problems: dict[tuple[str, str], str]) -> str:
    """The keywords that cannot be enforced, as far as a message has room for them; ``problems`` of the error has
    all.
    """
    told = [f"{keyword!r} at #{pointer}: {why}" for (pointer, keyword), why in problems.items()]
    shown = told[0] if len(told[0]) <= _MOST_TOLD else f"{told[0][: _MOST_TOLD - 3]}..."
    for index, text in enumerate(told[1:], 1):
        if len(shown) + len(text) > _MOST_TOLD:
            shown += f"; and {len(told) - index} more"
            break
        shown += f"; {text}"
    return f"The schema has keywords that cannot be enforced: {shown}."


def check(keywords: Keywords, tracker: BudgetTracker) -> set[int]:
    """Look at every keyword that can play a part, and note the keywords that cannot be enforced.

    Returns:
        The nodes with ``uniqueItems``, and with lists or patterns that may take too many states, and the nodes from
        which subschemas lead to such a node.
    """
    document = keywords.document
    found: set[int] = set()
    parents: dict[int, list[int]] = {document.root: []}
    queue = [document.root]
    for count, number in enumerate(queue):
        if count % 32 == 0:
            tracker.check_time()
        kinds = keywords.kinds(number)
        for kind in _CHECKED:
            if kind not in kinds:
                continue
            formula = keywords.of(number, kind)
            every = atoms(formula)
            if _is_long(_listed(every), tracker) or _has_many_patterns(every):
                found.add(number)
            if kind == "object":
                keywords.look_for_selection(formula)
            for atom in every:
                if atom[0] == "unique":
                    found.add(number)
                elif atom[0] == "any":
                    # A listed text takes a state per character. Too many are refused before decoding starts.
                    tracker.check_states(max(map(len, atom[1]), default=0), "characters of a listed text")
                elif atom[0] == "mult" and not any(each[0] == "eq" for each in every):
                    tracker.check_states(states_of_multiples(atom[1]), "remainders of multipleOf")
            for child in _below(every):
                if child not in parents:
                    queue.append(child)
                parents.setdefault(child, []).append(number)
    pending = [*found]
    for number in pending:
        more = set(parents[number]) - found
        found |= more
        pending += more
    return found


def _below(every: Iterable[Atom]) -> Iterator[int]:
    """The nodes in atoms: of subschemas for members, items and names."""
    return (node for atom in every for part in atom[1:] if isinstance(part, tuple) for node in nodes_in(part))


def _listed(every: Iterable[Atom]) -> set[object]:
    """The texts, numbers and names of members that atoms list."""
    found: set[object] = set()
    for atom in every:
        found.update(atom[1] if atom[0] in LISTS else atom[1:2] if atom[0] in NAMED else ())
    return found


def _has_many_patterns(every: Iterable[Atom]) -> bool:
    return len({atom[1] for atom in every if atom[0] in ("pat", "patp")}) > _MOST_PATTERNS


def _is_long(elements: Iterable[object], tracker: BudgetTracker) -> bool:
    """Whether the prefix trie of elements exceeds the limit on states if the elements share few beginnings."""
    return sum([len(str(each).encode(errors="replace")) for each in elements]) > tracker.budget.states


def _make_large_automata(values: Satisfiability, demand: ValueConstraint) -> None:
    """Make the automata of long lists and of many patterns with which a value is read, so that too large ones are
    refused beforehand.

    Raises:
        BudgetExceeded: if an automaton exceeds the budget; the message names the place in the schema.
    """
    with values.located(demand):
        for kind, make in (("string", values.content), ("number", values.number)):
            formulas = values.of_type(demand, kind)
            every = [atom for formula in formulas for atom in atoms(formula)]
            if _is_long(_listed(every), values.tracker) or _has_many_patterns(every):
                make(formulas)
        formulas = values.of_type(demand, "object")
        plan = values.opened("object", formulas, EVERYTHING).plan if formulas else None
        if isinstance(plan, ObjectPlan) and (
            len(plan.keys.patterns) > _MOST_PATTERNS
            or (plan.keys.is_slow and _is_long(plan.keys.names, values.tracker))
        ):
            _ = plan.keys.automaton


def _visit_constraints(
    values: Satisfiability, root: ValueConstraint, nodes: Container[int], most: int | None = None
) -> None:
    """Open every reachable object and array, so that keywords which cannot be enforced are known at compilation.

    Args:
        values: opens objects and arrays.
        root: the constraint on the whole value.
        nodes: the nodes whose values are visited.
        most: the most states of each object or array that are visited; default: all.

    Raises:
        BudgetExceeded: if too many objects and arrays may be open.
    """
    queue = [root]
    seen = set(queue)
    for demand in queue:
        if not any(node in nodes for formula in (demand.must, *demand.extras) for node in nodes_in(formula)):
            continue
        _make_large_automata(values, demand)
        for kind in ("object", "array"):
            formulas = values.of_type(demand, kind)
            frame = values.opened(kind, formulas, EVERYTHING) if formulas else None
            if frame is None or not any(map(nodes.__contains__, _below(_atoms_of(frame)))):
                continue
            for member in _members(values, frame, most):
                if member not in seen:
                    seen.add(member)
                    queue.append(member)


def _atoms_of(frame: Frame) -> list[Atom]:
    return [*frame.plan.hard, *[atom for formula in frame.open_formulas for atom in atoms(formula)]]


def _members(values: Satisfiability, frame: Frame, most: int | None) -> Iterator[ValueConstraint]:
    """The constraints on the members or items of a container that has just been opened."""
    plan = frame.plan
    if any(atom[0] not in _COUNTED for formula in frame.open_formulas for atom in atoms(formula)):
        # After a left-out name only members without a further left-out name are taken: other frames yield the others.
        skipped: set[Frame | None] = set()
        for reached in islice(values.explored(frame), most):
            if isinstance(reached, ObjectFrame):
                members = objects.members_here if reached in skipped else objects.next_members
                yield from [member.demand for _, member in members(values, reached)]
                if reached.position < len(reached.plan.names):
                    skipped.add(objects.skip(values, reached))
            else:
                yield from [member.demand for member in (arrays.item(reached),) if member is not None]
    elif isinstance(plan, ObjectPlan):
        yield from [ValueConstraint(plan.hard_child(key)) for key in plan.keys.bit]
    else:
        yield from [ValueConstraint(plan.hard_item(index)) for index in range(plan.varied + 1)]
