"""The work for a schema with many names, or many listed values, is in proportion to their number."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from logitloom import Vocabulary
from logitloom.constraints import UNKNOWN
from logitloom_plugins.json_schema.folds.completion import member_texts, short_contents
from logitloom_plugins.json_schema.folds.completion.content_texts import ContentTexts
from logitloom_plugins.json_schema.folds.completion.different_items import items_before
from logitloom_plugins.json_schema.folds.machine import Machine, accepts, read
from logitloom_plugins.json_schema.folds.schema_automaton import SchemaAutomaton
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from logitloom_plugins.json_schema.grammar import objects, satisfiability
from logitloom_plugins.json_schema.grammar.arrays import item
from logitloom_plugins.json_schema.grammar.members import ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectPlan
from logitloom_plugins.json_schema.grammar.satisfiability import Satisfiability
from logitloom_plugins.json_schema.schema import formula
from logitloom_plugins.json_schema.tokens.schema_constraint import SchemaConstraint

WHOLE = {"type": "integer"}


def names(count: int) -> list[str]:
    return [f"name{index}" for index in range(count)]


def read_along(schema: Any, document: Any) -> Machine:
    machine = compile_schema(schema)
    assert accepts(machine, json.dumps(document, separators=(",", ":")))
    return machine


def in_a_circle(count: int) -> dict[str, Any]:
    every = names(count)
    wanted = {name: [following] for name, following in zip(every, [*every[1:], every[0]], strict=True)}
    return {"properties": dict.fromkeys(every, WHOLE), "additionalProperties": False, "dependentRequired": wanted}


def test_names_that_ask_for_one_another_make_few_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ObjectPlan] = []
    initialise = ObjectPlan.__init__

    def counted(plan: ObjectPlan, *arguments: Any) -> None:
        made.append(plan)
        initialise(plan, *arguments)

    monkeypatch.setattr(ObjectPlan, "__init__", counted)
    found = []
    for count in (20, 40):
        made.clear()
        machine = read_along(in_a_circle(count), dict.fromkeys(names(count), 1))
        found.append(len(made))
        assert accepts(machine, "{}")
        assert not accepts(machine, '{"name0":1}')
        assert not accepts(machine, json.dumps(dict.fromkeys(names(count)[1:], 1)))
    assert found[1] < 3 * found[0]


def late_kind(count: int) -> dict[str, Any]:
    """One condition per kind, each in the ``else`` of the one before; the kind comes last."""
    schema: dict[str, Any] = {"required": ["end"]}
    for index in reversed(range(count)):
        condition = {"properties": {"kind": {"const": f"k{index}"}}, "required": ["kind"]}
        schema = {"if": condition, "then": {"required": [f"t{index}"]}, "else": schema}
    return {"properties": dict.fromkeys([*(f"t{i}" for i in range(count)), "end", "kind"], True), **schema}


def test_names_before_the_one_that_must_come_are_left_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, omit = [], objects.omit
    monkeypatch.setattr(objects, "omit", lambda *given: asked.append(given) or omit(*given))
    found = []
    for count in (20, 80):
        machine = compile_schema(late_kind(count))
        asked.clear()
        assert accepts(machine, '{"t3":1,"kind":"k3"}')
        found.append(len(asked))
        assert accepts(machine, '{"t3":1,"end":1}')
        assert not accepts(machine, '{"t3":1,"kind":"k4"}')
    assert found[1] <= 5 * found[0]


def test_the_completion_of_one_of_many_names_omits_each_name_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of alternatives, the names before one that comes are omitted one by one: once for all names that may come."""
    omitted, skip = [], objects.skip
    monkeypatch.setattr(objects, "skip", lambda *given: omitted.append(given) or skip(*given))
    found = []
    for count in (20, 80):
        branches = [
            {"properties": {name: WHOLE}, "required": [name], "additionalProperties": False} for name in names(count)
        ]
        automaton = SchemaAutomaton(compile_schema({"type": "object", "anyOf": branches}))
        begun = automaton.read(automaton.start(), b'{"nam')
        assert begun is not None
        omitted.clear()
        assert automaton.completion(begun) == b'e0":0}'
        found.append(len(omitted))
    assert found[1] <= 5 * found[0]


@pytest.mark.parametrize("more", [{}, {"additionalProperties": False}], ids=["open", "closed"])
def test_alternatives_without_a_tag_are_not_compared_with_one_another(more: dict[str, Any]) -> None:
    found = []
    for count in (30, 120):
        groups = [[f"a{at}", f"b{at}", f"c{at}"] for at in range(count)]
        branches = [{"properties": dict.fromkeys(group, WHOLE), "required": group[:2], **more} for group in groups]
        events: list[str] = []
        sys.setprofile(lambda frame, event, _, events=events: events.append(event))
        try:
            machine = compile_schema({"type": "object", "anyOf": branches})
        finally:
            sys.setprofile(None)
        found.append(events.count("call"))
        assert accepts(machine, '{"a3":1,"b3":1}')
        assert not accepts(machine, '{"a3":1,"b4":1}')
        assert accepts(machine, '{"a3":1,"b3":1,"b4":1}') is not bool(more)
    assert found[1] <= 5 * found[0]


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_names_that_may_follow_are_not_compared_with_one_another(keyword: str) -> None:
    found = []
    for count in (30, 120):
        shared = {"id": WHOLE, "name": WHOLE}
        branches = [{"properties": {**shared, name: WHOLE}, "required": ["id", name]} for name in names(count)]
        automaton = SchemaAutomaton(compile_schema({"type": "object", keyword: branches}))
        begun = automaton.read(automaton.start(), b'{"id":1')
        assert begun is not None
        events: list[str] = []
        sys.setprofile(lambda frame, event, _, events=events: events.append(event))
        try:
            assert automaton.read(begun, b',"name') is not None
        finally:
            sys.setprofile(None)
        found.append(events.count("call"))
    assert found[1] <= 5 * found[0]


def modes(count: int) -> dict[str, Any]:
    """Each mode requires a member that all other modes forbid; the mode is declared last."""
    listed = [f"mode{at}" for at in range(count)]
    conditions = [
        {
            "if": {"properties": {"mode": {"const": mode}}},
            "then": {"required": [name], "properties": {name: {"minimum": 1}}},
            "else": {"properties": {name: False}},
        }
        for mode, name in zip(listed, names(count), strict=True)
    ]
    properties = {**dict.fromkeys(names(count), WHOLE), "mode": {"enum": listed}}
    return {"type": "object", "properties": properties, "required": ["mode"], "allOf": conditions}


def test_members_that_exclude_one_another_are_not_combined() -> None:
    found = []
    for count in (12, 24):
        machine = read_along(modes(count), {"name3": 1, "mode": "mode3"})
        found.append(machine.values._work)
        assert not accepts(machine, '{"name3":1,"mode":"mode4"}')
        assert not accepts(machine, '{"name3":1,"name4":1,')
    assert found[1] <= 3 * found[0]


def test_the_bound_on_tokens_looks_at_no_members_that_exclude_one_another() -> None:
    found = []
    vocabulary = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    for count in (7, 14):
        machine = compile_schema(modes(count))
        constraint = SchemaConstraint(SchemaAutomaton(machine), vocabulary)
        state = constraint.start()
        for byte in b'{"name0":':
            following = constraint.advance(state, 1 + byte)
            assert following is not None
            state = following
        while constraint.most_after(state) == UNKNOWN:
            pass
        found.append(machine.values._work)
    assert found[1] <= 6 * found[0]


def test_references_to_one_subschema_are_looked_at_once() -> None:
    found = []
    for count in (40, 160):
        operations = [
            {"properties": {name: {"type": "array", "items": {"$ref": "#/$defs/e"}}}, "required": [name]}
            for name in names(count)
        ]
        objects_of = [{"type": "object", "additionalProperties": False, **each} for each in operations]
        events: list[str] = []
        sys.setprofile(lambda frame, event, _, events=events: events.append(event))
        try:
            machine = compile_schema({"$defs": {"e": {"anyOf": [WHOLE, *objects_of]}}, "$ref": "#/$defs/e"})
        finally:
            sys.setprofile(None)
        found.append(events.count("call"))
        assert accepts(machine, '{"name3":[1,{"name4":[]}]}')
    assert found[1] <= 5 * found[0]


def test_one_of_many_objects_is_completed_without_an_automaton_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, content = [], Satisfiability.content
    monkeypatch.setattr(Satisfiability, "content", lambda *given: asked.append(given) or content(*given))
    found = []
    for count in (20, 80):
        listed = [{"id": number, "name": name, "tags": [number % 3]} for number, name in enumerate(names(count))]
        machine = compile_schema({"enum": listed})
        automaton = SchemaAutomaton(machine)
        asked.clear()
        assert json.loads(automaton.completion(automaton.start()) or b"") == listed[0]
        found.append((len(asked), len(machine.values.keywords.document.nodes) - 2 * count))
    (few_asked, few_nodes), (many_asked, many_nodes) = found
    assert many_asked == few_asked
    # Equal values share a node. The bits of the numbers of the alternatives have one each.
    assert many_nodes == few_nodes + 2


def test_each_required_name_is_asked_for_a_value_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ValueConstraint] = []
    possible = Satisfiability.possible

    def counted(values: Satisfiability, demand: ValueConstraint) -> bool:
        asked.append(demand)
        return possible(values, demand)

    monkeypatch.setattr(Satisfiability, "possible", counted)
    found = []
    for count in (40, 80):
        asked.clear()
        every = dict.fromkeys(names(count), WHOLE)
        schema = {"type": "object", "properties": every, "required": names(count)}
        read_along(schema, dict.fromkeys(every, 1))
        found.append(len(asked))
    assert found[1] < 3 * found[0]


def test_a_required_name_without_a_value_is_found_after_others_were() -> None:
    every = dict.fromkeys(names(4), WHOLE)
    inner = {"properties": every | {"none": False}, "required": ["name0", "name3", "none"]}
    assert not compile_schema({"type": "object", **inner}).satisfiable
    machine = compile_schema({"properties": {"a": {"type": "object", **inner}, "b": WHOLE}})
    assert accepts(machine, '{"b":1}')
    assert not accepts(machine, '{"a":{"name0":1,"name3":1}}')


def test_names_with_consequences_share_the_way_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a name with a consequence each name may come; to leave out all later names is one way for all of them."""
    asked, following = [], Satisfiability._following
    monkeypatch.setattr(Satisfiability, "_following", lambda *given: asked.append(given) or following(*given))
    found = []
    for count in (20, 80):
        conditions = [
            {"if": {"properties": {name: {"const": True}}, "required": [name]}, "then": {"required": [f"then {name}"]}}
            for name in names(count)
        ]
        machine = compile_schema({"type": "object", "allOf": conditions})
        asked.clear()
        assert accepts(machine, '{"name3":true,"other":2,"then name3":1}')
        found.append(len(asked))
        assert not accepts(machine, '{"name3":true,"other":2}')
    assert found[1] <= 5 * found[0]


def test_a_truth_vector_that_other_types_have_is_not_looked_for_in_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """``null`` breaks the schema of ``m``, so no object is needed that breaks it because of a value within."""
    asked, truth_vectors = [], Satisfiability._truth_vectors
    monkeypatch.setattr(Satisfiability, "_truth_vectors", lambda *given: asked.append(given) or truth_vectors(*given))
    found = []
    for depth in (2, 12):
        inner: dict[str, Any] = {"type": "integer"}
        for name in names(depth):
            inner = {"type": "object", "properties": {name: inner, "other": {"type": "array", "items": inner}}}
        branches = [{"properties": {"m": inner}, "required": ["tag"]}, {"properties": {"m": {"type": "boolean"}}}]
        asked.clear()
        machine = compile_schema({"type": "object", "oneOf": branches})
        assert accepts(machine, '{"m":{},"tag":1}')
        assert not accepts(machine, '{"m":{"other":1}}')
        found.append(len(asked))
    assert found[1] <= found[0]


def listed_arrays(count: int) -> list[list[Any]]:
    return [[index, str(index % 3)] for index in range(count)]


def test_the_first_item_of_a_listed_array_is_asked_few_questions() -> None:
    questions = []
    for listed in (listed_arrays(64), [[], *listed_arrays(63)]):
        machine = compile_schema({"enum": listed})
        formulas = machine.values.of_type(machine.root, "array")
        frame = machine.values.opened("array", formulas, frozenset([()]))
        member = item(frame)  # type: ignore[arg-type]
        assert member is not None
        questions.append(len(member.demand.extras))
    # A number of a group has six bits, and one question is whether the item is listed at all.
    assert max(questions) <= 7


@pytest.mark.parametrize("keyword", ["enum", "not", "anyOf"])
def test_of_arrays_the_listed_ones_are_accepted(keyword: str) -> None:
    listed = [[], *listed_arrays(9), [1], [1, "1", 2], ["x", [1]], ["x", [2]], [True], [None, None]]
    others = [[0], [9, "0"], [1, "2"], [1, "1", 3], ["x", []], ["x"], [False], [None], [[]], [True, True]]
    schema: dict[str, Any] = {
        "enum": {"enum": listed},
        "not": {"not": {"enum": listed}},
        "anyOf": {"type": "array", "anyOf": [{"const": value} for value in listed]},
    }[keyword]
    machine = compile_schema(schema)
    for value in (*listed, *others):
        assert accepts(machine, json.dumps(value)) == ((value in listed) != (keyword == "not")), value


@pytest.mark.parametrize("alphabet", ["ab", "aé🙂"])
def test_of_texts_the_listed_ones_are_accepted(alphabet: str) -> None:
    every = ["".join(letters) for size in range(4) for letters in itertools.product(alphabet, repeat=size)]
    for step in (1, 2, 3, 7):
        listed = every[::step]
        machine = compile_schema({"enum": listed})
        for text in [*every, listed[-1] + "a"]:
            assert accepts(machine, json.dumps(text)) == (text in listed), (step, text)


def test_one_more_of_many_different_objects_is_compared_by_its_members() -> None:
    looked_up: list[bytes] = []

    class Counted(dict[bytes, Any]):
        def __getitem__(self, text: bytes) -> Any:
            looked_up.append(text)
            return super().__getitem__(text)

    counts = []
    for count in (20, 80):
        machine = compile_schema({"type": "array", "uniqueItems": True, "items": {"type": "object"}})
        machine.items.values = Counted()
        before = json.dumps([{"id": index, "name": f"n{index}"} for index in range(count)], separators=(",", ":"))
        position = read(machine, before[:-1].encode())
        looked_up.clear()
        assert position is not None
        assert machine.read(position, b',{"id":0,"name":"n1"') is not None
        assert machine.read(position, b',{"name":"n1","id":1}') is None
        counts.append(len(looked_up))
    assert counts[0] == counts[1]


def test_earlier_strings_are_not_decoded_again_for_a_completion() -> None:
    machine = compile_schema({"type": "array", "uniqueItems": True, "minItems": 40})
    texts = ['"a\\n"', '"\\u00e9"', '"\\ud83d\\ude42"', '"b/c"', '"\\/"', '"\\""', "1.0", "null"]
    position = read(machine, ("[" + ",".join(texts) + ",").encode())
    assert position is not None
    with mock.patch.object(short_contents.json, "loads", side_effect=AssertionError):
        found = items_before(machine, position.items)
    assert list(found) == [short_contents.canonical(text.encode()) for text in texts]


def test_a_search_for_another_item_ends_at_the_first_that_has_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[int] = []
    short_values = ContentTexts.short_values

    def counted(*asked: Any) -> Iterator[Any]:
        for each in short_values(*asked):
            listed.append(1)
            yield each

    schema = {"type": "array", "uniqueItems": True, "minItems": 40, "items": {"type": "string"}}
    automaton = SchemaAutomaton(compile_schema(schema))
    monkeypatch.setattr(ContentTexts, "short_values", counted)
    assert json.loads(automaton.completion(automaton.start()) or b"") != []
    # Before the item of some number come those before it.
    assert len(listed) <= 40 * 41 // 2


def declared_last(count: int) -> dict[str, Any]:
    """A kind whose values each ask for a member that is declared before the kind."""
    asked = [
        {"if": {"properties": {"kind": {"const": name}}}, "then": {"required": [f"of {name}"]}} for name in names(count)
    ]
    members: dict[str, Any] = {f"of {name}": WHOLE for name in names(count)}
    members["kind"] = {"enum": names(count)}
    return {"type": "object", "properties": members, "required": ["kind"], "allOf": asked}


def test_the_values_of_a_kind_that_comes_last_are_not_asked_one_by_one_of_each_condition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The conditions on the kind alone, which are left when other members have been omitted, leave a set of values."""
    visited, substitute = [], formula.substitute
    monkeypatch.setattr(formula, "substitute", lambda *given: visited.append(given) or substitute(*given))
    found = []
    for count in (15, 45):
        visited.clear()
        machine = read_along(declared_last(count), {"of name3": 1, "of name5": 1, "kind": "name5"})
        found.append(len(visited))
        assert not accepts(machine, '{"of name3":1,"kind":"name5"}')
        assert not accepts(machine, '{"kind":"name5"}')
    assert found[1] < 12 * found[0]


def test_items_that_an_array_must_contain_are_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an array that may have any length, each of the items can come after the others."""
    made, after = [], Satisfiability._after
    monkeypatch.setattr(Satisfiability, "_after", lambda *given: made.append(given) or after(*given))
    found = []
    for count in (10, 30):
        made.clear()
        schema = {"type": "array", "allOf": [{"contains": {"const": index}} for index in range(count)]}
        machine = read_along(schema, [*range(count)])
        found.append(len(made))
        assert accepts(machine, json.dumps([None, *reversed(range(count))]))
        assert not accepts(machine, json.dumps([*range(1, count)]))
    assert found[1] < 4 * found[0]
    one_of_two = {"prefixItems": [{"const": 1}], "items": False, "allOf": [{"contains": {"const": 2}}]}
    machine = compile_schema({"type": "array", **one_of_two})
    assert read(machine, b"[") is None


def test_each_item_that_an_array_must_contain_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once after each item, for each set of items that may still have to come."""
    asked, whole = [], satisfiability.conjunction
    monkeypatch.setattr(satisfiability, "conjunction", lambda parts: asked.append(parts) or whole(parts))
    count = 20
    schema = {"type": "array", "allOf": [{"contains": {"const": index}} for index in range(count)]}
    machine = read_along(schema, [*range(count)])
    assert count <= len(asked) < 2 * count
    assert not accepts(machine, json.dumps([*range(1, count)]))
    within = {"prefixItems": [{"type": "string"}], "items": {"maximum": 5}}
    machine = compile_schema({"type": "array", **within, "allOf": [{"contains": {"const": each}} for each in (4, 6)]})
    assert not machine.satisfiable


def test_members_that_conditions_ask_for_are_added_up_where_they_are_different(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lower bound on what an object still needs has a member for each condition, so few texts are looked at."""
    looked_at, after = [], member_texts._after
    monkeypatch.setattr(member_texts, "_after", lambda *given: looked_at.append(given) or after(*given))
    found = []
    for count in (6, 12):
        asked = [
            {
                "if": {"properties": {name: {"const": True}}, "required": [name]},
                "then": {"required": [f"then {name}"]},
                "else": {"required": [f"else {name}"]},
            }
            for name in names(count)
        ]
        others = {f"{kind} {name}": WHOLE for kind in ("then", "else") for name in names(count)}
        schema = {"properties": {**{name: {"type": "boolean"} for name in names(count)}, **others}, "allOf": asked}
        automaton = SchemaAutomaton(compile_schema({"type": "object", **schema}))
        looked_at.clear()
        text = automaton.completion(automaton.start())
        assert text is not None
        assert json.loads(text) == {f"else {name}": 0 for name in names(count)}
        found.append(len(looked_at))
    assert found[1] < 8 * found[0]
