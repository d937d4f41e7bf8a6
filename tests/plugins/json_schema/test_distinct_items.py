"""Arrays whose items must all be different, against enumerations, the jsonschema package and brute force."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from logitloom import Vocabulary
from logitloom.automata import Budget
from logitloom.errors import BudgetExceeded, UnsupportedSchema
from logitloom_plugins.json_schema.folds import distinct_items
from logitloom_plugins.json_schema.folds import schema_automaton as automaton
from logitloom_plugins.json_schema.folds.machine import accepts, read
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame
from logitloom_plugins.json_schema.grammar.layout import Whitespace
from logitloom_plugins.json_schema.grammar.members import ValueConstraint
from logitloom_plugins.json_schema.grammar.value_counts import values_of
from logitloom_plugins.json_schema.tokens import doubtful_tokens
from logitloom_plugins.json_schema.values.numbers import number_of
from tests.cases import EXHAUSTIVE
from tests.core.automata.vocabularies import mixed
from tests.plugins.json_schema.numbered_tokens import NumberedTokens
from tests.plugins.json_schema.random_texts import random_text
from tests.plugins.json_schema.serialisation import serialise

COMPACT = SchemaOptions(Whitespace("compact"), escapes="minimal")


def array(items: Any = True, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": True, **more}


# -- exactly the texts that can be completed may be written -------------------------------------------------------


def orders(values: list[Any], most: int) -> list[list[Any]]:
    return [list(found) for count in range(most + 1) for found in itertools.permutations(values, count)]


def objects(members: dict[str, list[Any]]) -> list[Any]:
    """Objects with some of the members, in every order."""
    return [
        dict(zip(names, values, strict=True))
        for count in range(len(members) + 1)
        for names in itertools.permutations(members, count)
        for values in itertools.product(*(members[name] for name in names))
    ]


SHORT = {"type": "string", "pattern": "^(a|ab|é|éx)$"}
#: Schemas of few texts, and all that satisfies them (of equal objects those in another order, too).
FEW: list[tuple[Any, list[Any]]] = [
    (array(SHORT), orders(["a", "ab", "é", "éx"], 4)),
    (array({"type": "string", "pattern": "^[ab]*$", "maxLength": 1}), orders(["", "a", "b"], 3)),
    (array({"enum": ["a", "b"]}, prefixItems=[{"enum": ["c", "a"]}]), [
        v for v in orders(["a", "b", "c"], 3) if v[:1] != ["b"] and "c" not in v[1:]
    ]),
    (
        array({"type": "object", "properties": {"k": {"enum": ["a", "ab"]}, "l": {"enum": ["", "x"]}},
               "required": ["k", "l"], "additionalProperties": False}, maxItems=4),
        orders([{"k": k, "l": other} for k in ("a", "ab") for other in ("", "x")], 4),
    ),
    (array(SHORT, minItems=2, maxItems=3), [v for v in orders(["a", "ab", "é", "éx"], 3) if len(v) > 1]),
    (array({"type": ["boolean", "null", "string"], "maxLength": 0}, minItems=3), [
        v for v in orders([True, False, None, ""], 4) if len(v) > 2
    ]),
    (
        array({"type": "array", "items": {"type": "string", "pattern": "^[xy]$"}, "maxItems": 2}, maxItems=2),
        orders([list(v) for n in range(3) for v in itertools.product("xy", repeat=n)], 2),
    ),
    (array(array({"type": "string", "pattern": "^[xy]$"})), orders(orders(["x", "y"], 2), 5)),
    (
        array({"type": "object", "patternProperties": {"^[ab]$": {"type": "boolean"}}, "additionalProperties": False},
              maxItems=2),
        [v for v in (list(pair) for n in range(3) for pair in itertools.product(
            objects({"a": [True, False], "b": [True, False]}), repeat=n)) if len(v) < 2 or v[0] != v[1]],
    ),
    (
        array(False, prefixItems=[{"enum": ["a", "b"]}, {"const": "a"}, {"enum": ["b", "c"]}]),
        [[], ["a"], ["b"], ["b", "a"], ["b", "a", "c"]],
    ),
    (
        {"type": "object", "properties": {"k": {"type": "boolean"}, "v": array({"type": "boolean"})},
         "required": ["k", "v"], "additionalProperties": False},
        [{"k": k, "v": v} for k in (True, False) for v in orders([True, False], 2)],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "values"), FEW)
@pytest.mark.long
def test_every_beginning_of_a_valid_text_may_be_written_and_nothing_else(schema: Any, values: list[Any]) -> None:
    texts = {json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() for value in values}
    beginnings = {text[:size] for text in texts for size in range(len(text) + 1)}
    machine = compile_schema(schema, COMPACT)
    pending = [(b"", Position(machine.start))]
    found, complete = set(), set()
    while pending:
        text, reached = pending.pop()
        found.add(text)
        if reached.stack is None and machine.accepting(reached.state):
            complete.add(text)
        for byte in [*machine.codes.every_code(reached.state)]:
            following = machine.read(reached, bytes([byte]))
            if following is not None:
                pending.append((text + bytes([byte]), following))
    assert found == beginnings
    assert complete == texts


LARGE = [
    array(),
    array({"type": "string"}, minItems=2),
    array({"type": "integer", "minimum": 1, "maximum": 30}, minItems=3),
    array({"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.5}),
    array({"type": "number"}),
    array({"enum": [f"v{i}" for i in range(30)]}, minItems=25),
    array({"type": "array", "items": {"enum": [1, 2, "a"]}}),
    array(array({"enum": [1, 2, "a"]}), minItems=1),
    array({"$ref": "#"}),
    array({"anyOf": [{"$ref": "#"}, {"enum": [1, "a"]}]}, minItems=1),
    array({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"enum": [1, "1"]}}),
    array(
        {
            "type": "object",
            "properties": {"K": {"type": "string", "maxLength": 2}, "V": {"type": "boolean"}},
            "required": ["K"],
            "additionalProperties": False,
        },
        minItems=1,
    ),
    array({"type": "string"}, prefixItems=[{"enum": ["a", "b"]}, {"const": "a"}, {"maxLength": 1}], minItems=1),
    array({"anyOf": [{"enum": ["é", 'x"y', "\n"]}, {"type": "boolean"}, array({"type": "null"})]}, minItems=2),
    {"type": "object", "properties": {"t": array()}, "patternProperties": {"^x": array({"type": "string"})}},
    {
        "oneOf": [
            {"type": "object", "properties": {"kind": {"const": kind}, "tags": tags}, "required": ["kind", "tags"]}
            for kind, tags in (("a", array({"type": "string"})), ("b", {"type": "array", "items": {"type": "string"}}))
        ]
    },
]


@pytest.mark.extras
@pytest.mark.parametrize("schema", LARGE)
@pytest.mark.parametrize("whitespace", ["flexible", "one_space", "json_dumps"])
def test_random_texts_are_valid_and_never_come_to_a_dead_end(schema: Any, whitespace: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")
    judge = jsonschema.Draft202012Validator(schema)
    machine = compile_schema(schema, SchemaOptions(Whitespace(whitespace)))
    rnd = random.Random(whitespace)
    read_ones = 0
    for _ in range(25):
        text = random_text(machine, rnd, 900)
        if text is not None and b"e" not in text.lower().replace(b"true", b"").replace(b"false", b""):
            assert judge.is_valid(json.loads(text)), text
            assert accepts(machine, text)
            read_ones += 1
    assert read_ones > 2


EQUAL = [
    ("1", "1.0"), ("1", "10e-1"), ("0", "-0.0"), ("100", "1E+2"), ("0.5", "5e-1"), ("0", "0e7"),
    ('"a"', '"\\u0061"'), ('"é"', '"\\u00E9"'), ('"😀"', '"\\ud83d\\ude00"'), ('"/"', '"\\/"'), ('"\\n"', '"\\u000a"'),
    ('{"a":1,"b":2}', '{"b":2.0,"a":1}'), ("[1,[2]]", "[ 1.0 ,[2e0] ]"), ("{}", "{ }"), ("null", "null"),
    ("1" + "0" * 400, "1e400"), ("1e-2000", "0.1e-1999"),
]  # fmt: skip
UNLIKE = [
    ("1", "true"), ("0", "false"), ('"1"', "1"), ('""', "null"), ("[]", "{}"), ("[1,2]", "[2,1]"),
    ('{"a":1}', '{"a":2}'),
    ("10", "100"), ("0.1", "0.01"), ("-1", "1"), ('"a"', '"A"'), ('{"a":{}}', '{"a":[]}'), ("[[]]", "[]"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "equal"), [(*p, True) for p in EQUAL] + [(*p, False) for p in UNLIKE])
def test_equality_is_that_of_values(one: str, other: str, equal: bool) -> None:
    machine = compile_schema(array())
    assert accepts(machine, f"[{one},{other}]") is not equal
    assert accepts(machine, f'[0.25, [{one}, 8], "x" ,[{other},8]]') is not equal
    assert accepts(machine, f'[{{"n":{one}}},{{"n":{other}}}]') is not equal
    # Arrays beside one another have nothing to do with each other.
    assert accepts(compile_schema(array({"type": "array"}), COMPACT), f"[[{one},{one}]]")


def test_very_large_exponents_are_told_apart() -> None:
    assert number_of(b"1e" + b"9" * 5000) == number_of(b"1e" + b"9" * 5000)
    assert number_of(b"1e" + b"9" * 5000) != number_of(b"1e" + b"9" * 4999)


def test_an_item_must_not_begin_where_none_is_left() -> None:
    machine = compile_schema(array({"type": "number", "multipleOf": 1, "minimum": 1, "maximum": 3}))
    assert read(machine, b"[3,1") is not None
    assert read(machine, b"[3,1,2") is not None
    assert read(machine, b"[3,1,2,") is None
    assert read(machine, b"[3,1,2.0") is not None
    assert read(machine, b"[3,1,3") is None
    # Zero stays zero whatever exponent follows.
    free = compile_schema(array({"type": "number"}))
    assert read(free, b"[0,0.") is not None
    assert read(free, b"[0,0e") is None
    assert read(free, b"[1,1e") is not None


@pytest.mark.parametrize("indent", [None, 2, 4])
def test_different_objects_and_arrays_may_have_lines_of_their_own(indent: int | None) -> None:
    """An empty one may have come before, so in another one a line must begin."""
    items = [[], [0], {}, {"a": []}, [0, 1], {"a": {}}]
    options = SchemaOptions(Whitespace("json_dumps"))
    machine = compile_schema(array({"type": ["array", "object"]}, maxItems=len(items)), options)
    position: Position | None = Position(machine.start)
    for byte in json.dumps(items, indent=indent).encode():
        assert position is not None
        position = machine.read(position, bytes([byte]))
    assert position is not None
    assert machine.ends(position)


def test_strings_that_only_escapes_write_are_counted() -> None:
    machine = compile_schema(array({"enum": ["\n", "\t", "\n\n"]}), COMPACT)
    assert read(machine, rb'["\n","\n') is not None
    assert read(machine, rb'["\n","\t","') is not None
    assert read(machine, rb'["\n","\t","\u000a') is not None
    assert read(machine, rb'["\n","\t","\u0009') is None
    assert read(machine, rb'["\n","\t","\n\n",') is None


def test_names_come_once_in_items() -> None:
    machine = compile_schema(array({"type": "object"}))
    assert accepts(machine, '[{"a":1,"b":1}]')
    assert not accepts(machine, '[{"a":1,"a":2}]')
    assert accepts(compile_schema({"type": "array", "items": {"type": "object"}}), '[{"a":1,"a":2}]')


# -- tokens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", LARGE)
@pytest.mark.long
def test_masks_are_those_of_brute_force(schema: Any) -> None:
    vocabulary = mixed()
    tokens = NumberedTokens(compile_schema(schema), vocabulary)
    rnd = random.Random(1)
    for _ in range(3 if EXHAUSTIVE else 1):
        reached = tokens.start
        for _ in range(35):
            allowed = tokens.mask(reached)
            takes = [tokens.advance(reached, token) != -1 for token in range(vocabulary.size)]
            assert allowed.tolist() == takes
            going = allowed.nonzero()[0].tolist()
            closing = [token for token in going if set(vocabulary.token_bytes[token]) & set(b'"],}')]
            pick = rnd.choice(closing if closing and rnd.random() < 0.6 else going)
            if pick in vocabulary.eos:
                break
            reached = tokens.advance(reached, pick)


_THREE = ["".join(letters) for letters in itertools.product("abcdefgé", repeat=3)]


@pytest.mark.parametrize("items", [{"type": "string"}, {"type": "string", "maxLength": 60}, {"pattern": "^a|b|[^a]"}])
@pytest.mark.parametrize("begun", ["", "a", "\\", "\\u00", "abc", "abcd"])
def test_no_token_is_forbidden_because_many_strings_have_come(
    items: Any, begun: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubtful_tokens, "_MOST_READ", 400)
    ends = [word + end for word in ("abc", "gab", "zz", "bc", "\\u0061bc") for end in ('"', '",', '","', '","a')]
    texts = [*_THREE, *ends, "abcd", "\\n", *map(chr, range(32, 127))]
    words = Vocabulary([b"", *dict.fromkeys(text.encode() for text in texts)], eos=[0])
    tokens = NumberedTokens(compile_schema(array(items), SchemaOptions(Whitespace("compact"))), words)
    reached = read(tokens.machine, f'{json.dumps(_THREE, separators=(",", ":"))[:-1]},"{begun}'.encode())
    assert reached is not None
    at = tokens.at(reached)
    takes = [tokens.advance(at, token) != -1 for token in range(words.size)]
    assert any(takes)
    assert tokens.mask(at).tolist() == takes


@pytest.mark.parametrize("begun", [b"[null,", b"[true,", b"[[],", b"[{},", b'["",', b"[0,"])
def test_masks_after_an_item_of_each_type(begun: bytes) -> None:
    tokens = NumberedTokens(compile_schema(array(), COMPACT), mixed())
    reached = read(tokens.machine, begun)
    assert reached is not None
    at = tokens.at(reached)
    takes = [tokens.advance(at, token) != -1 for token in range(mixed().size)]
    assert tokens.mask(at).tolist() == takes


#: Texts in which the value that has begun, or comes next, must not be the one before.
UNFINISHED: list[tuple[Any, bytes]] = [
    ({"a": {"type": "string"}}, b'[{"a":"x"},{"a":"x'),
    ({"a": {"type": "string"}}, b'[{"a":"x"},{"a":'),
    ({"a": {"type": "integer"}}, b'[{"a":1},{"a":'),
    ({"a": {"type": "boolean"}}, b'[{"a":true},{"a":'),
    ({"a": {"type": "array"}}, b'[{"a":[]},{"a":'),
    ({"a": {"type": "array", "items": {"type": "integer"}}}, b'[{"a":[1]},{"a":['),
    ({"a": {"type": "object", "additionalProperties": {"type": "integer"}}}, b'[{"a":{}},{"a":'),
    ({"a": {"type": "string"}, "b": {"enum": [1, 2]}}, b'[{"a":"x","b":1},{"a":"x","b":2},{"a":"'),
]


@pytest.mark.parametrize(("properties", "text"), UNFINISHED)
@pytest.mark.parametrize("closed", [True, False])
def test_tokens_that_end_a_value_and_go_on_with_whitespace(properties: Any, text: bytes, closed: bool) -> None:
    values = [b'"', b'x"', b"[]", b"1", b"1]", b"true", b"{}", b'"x"', b"]"]
    words = Vocabulary([b"", *[value + after for value in values for after in (b"", b" ", b"\n", b"\n\n ")]], eos=[0])
    items = {"type": "object", "properties": properties, "required": [*properties]}
    tokens = NumberedTokens(compile_schema(array(items | ({"additionalProperties": False} if closed else {}))), words)
    reached = read(tokens.machine, text)
    assert reached is not None
    at = tokens.at(reached)
    takes = [tokens.advance(at, token) != -1 for token in range(words.size)]
    assert any(takes) or closed
    assert tokens.mask(at).tolist() == takes


@pytest.mark.parametrize(
    "names",
    [
        {"propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "string"}},
        {"patternProperties": {"^[ab]$": {"type": "string"}}, "additionalProperties": False},
        {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "additionalProperties": False},
        {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
    ],
)
@pytest.mark.parametrize("text", [b'[{"a":"x', b'[{"a":"x","b":"x'])
def test_no_further_member_is_begun_in_an_item_where_no_name_is_left(names: Any, text: bytes) -> None:
    words = Vocabulary([b"", b'"', b'",', b'x",', b'x","', b'","', b'","b', b'","c', b'"}', b'"]'], eos=[0])
    tokens = NumberedTokens(compile_schema(array({"type": "object"} | names), COMPACT), words)
    reached = read(tokens.machine, text)
    assert reached is not None
    at = tokens.at(reached)
    takes = [tokens.advance(at, token) != -1 for token in range(words.size)]
    assert tokens.mask(at).tolist() == takes
    assert takes[2] == (b'"b"' not in text or "additionalProperties" not in names)


@pytest.mark.parametrize("multiple", [10, 1000, 0.5, 0.001])
def test_multiples_that_must_differ_are_found(multiple: float) -> None:
    """Within the work of a mask, also where many digits are no multiple yet."""
    items = {"type": "array", "items": {"type": "number", "multipleOf": multiple}, "minItems": 1, "maxItems": 1}
    tokens = NumberedTokens(compile_schema(array(items), COMPACT), mixed())
    reached = read(tokens.machine, b"[[0],[-1000]")
    assert reached is not None
    assert tokens.vocabulary.token_bytes.index(b",") in tokens.row(tokens.at(reached)).tolist()


def test_tokens_that_write_several_items() -> None:
    texts = [
        b"",
        b"[",
        b"]",
        b",",
        b"1",
        b"2",
        b"1,",
        b",1",
        b",1,1",
        b",1,2",
        b"[1,1",
        b"[1,2]",
        b'"',
        b'a","',
        b'a","a',
        b" ",
    ]
    words = Vocabulary(texts, eos=[0])
    tokens = NumberedTokens(compile_schema(array({"enum": [1, 2, *["a" * n for n in range(1, 30)]]})), words)

    def allowed(*before: int) -> set[bytes]:
        at = tokens.start
        for token in before:
            at = tokens.advance(at, token)
        return {texts[token] for token in tokens.row(at).tolist()}

    assert allowed() == {b"[", b"[1,2]"}
    assert allowed(1) == {b"]", b"1", b"2", b"1,", b'"', b" "}
    assert allowed(1, 4) == {b"]", b",", b" "}
    assert allowed(1, 5) == {b"]", b",", b",1", b" "}
    assert b'a","a' in allowed(1, 12)


# -- where it cannot be enforced ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        array(prefixItems=[{"type": "string"}], minItems=2),
        array(contains={"type": "string"}),
        array(contains={"const": 1}, minContains=2),
        {"not": array()},
        {"anyOf": [array({"type": "string"}), {"type": "array", "maxItems": 1}]},
        {"if": array({"type": "string"}), "then": {"minItems": 2}},
        array({"enum": list(range(25))}, minItems=26),
        array({"type": "object", "propertyNames": {"enum": ["a"]}, "additionalProperties": {"const": 1}}, minItems=3),
        {"properties": {"a": array()}, "patternProperties": {"a": {"contains": {"type": "string"}}}},
        {"properties": {"a": array()}, "anyOf": [{"properties": {"a": {"maxItems": 2}}}, {"required": ["b"]}]},
        {"allOf": [{"properties": {"a": array()}}, {"properties": {"a": {"contains": {"type": "null"}}}}]},
    ],
)
def test_what_cannot_be_enforced_is_refused_before_anything_is_written(schema: Any) -> None:
    with pytest.raises(UnsupportedSchema, match=r"'uniqueItems' at #/.*beside contains") as caught:
        compile_schema(schema)
    assert {problem[0] for problem in caught.value.problems} == {"uniqueItems"}
    with pytest.warns(UserWarning, match="uniqueItems"):
        machine = compile_schema(schema, SchemaOptions(strict=False))
    assert machine.satisfiable


@pytest.mark.parametrize(
    ("schema", "count"),
    [
        ({"enum": ["a", "b", 1, None, True]}, 5),
        ({"type": "string", "pattern": "^[ab]{2}c?$"}, 8),
        ({"type": "string", "maxLength": 0}, 1),
        ({"type": "integer", "minimum": 1, "maximum": 9}, 9),
        ({"type": "number", "minimum": 0, "maximum": 2, "multipleOf": 0.5}, 5),
        ({"type": "array", "items": {"type": "boolean"}, "maxItems": 1}, 3),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 1}, 2),
        ({"type": "array", "items": {"type": "boolean"}}, 50),
        ({"type": "array", "items": False}, 1),
        (array({"type": "boolean"}, maxItems=1), 3),
        ({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"const": 1}}, "required": ["a"],
          "additionalProperties": False}, 4),
        ({"type": "object", "additionalProperties": {"const": 1}}, 50),
        ({"type": "object", "patternProperties": {"^.+$": False}, "additionalProperties": {"const": 1}}, 2),
        ({"type": "object", "propertyNames": {"enum": ["a"]}, "additionalProperties": {"const": 1}}, 2),
        ({"type": "object", "maxProperties": 0}, 1),
        (False, 0),
        (True, 50),
    ],
)  # fmt: skip
def test_how_many_values_there_are_at_least(schema: Any, count: int) -> None:
    machine = compile_schema({"type": "array", "items": schema})
    frame = machine.values.opened("array", machine.values.of_type(ValueConstraint(("s", 0)), "array"), frozenset([()]))
    assert isinstance(frame, ArrayFrame)
    assert values_of(machine.values, frame.plan.hard_item(0), 50) == count


def test_branches_that_are_decided_before_the_array_begins() -> None:
    machine = compile_schema(LARGE[-1])
    text = serialise(machine, {"kind": "a", "tags": ["x", "y"]})
    assert accepts(machine, text)
    assert not accepts(machine, serialise(machine, {"kind": "a", "tags": ["x", "x"]}))
    assert accepts(machine, serialise(machine, {"kind": "b", "tags": ["x", "x"]}))
    undecided = {"oneOf": [{**branch, "properties": {**branch["properties"]}} for branch in LARGE[-1]["oneOf"]]}
    for branch in undecided["oneOf"]:
        branch["properties"]["kind"] = branch["properties"].pop("kind")  # now after the tags
    with pytest.raises(UnsupportedSchema, match="uniqueItems"):
        compile_schema(undecided)


def test_what_cannot_be_enforced_is_found_behind_required_members() -> None:
    inner = {"type": "object", "properties": {"x": {}, "b": array(contains={"type": "string"})}}
    with pytest.raises(UnsupportedSchema, match="uniqueItems' at #/properties/c/properties/b"):
        compile_schema({"type": "object", "properties": {"a": {}, "c": inner}, "required": ["a"]})


def test_alternatives_that_are_lists_of_different_values_are_refused_by_place() -> None:
    listed = array({"enum": [f"value {i}" for i in range(20)]})
    with pytest.raises(UnsupportedSchema, match="'uniqueItems' at #/properties/tags/anyOf/0/uniqueItems"):
        compile_schema({"properties": {"tags": {"anyOf": [array({"type": "string"}), listed]}}})


def test_the_reason_is_told_to_its_end_at_a_place_some_levels_down() -> None:
    files = {"anyOf": [array({"type": "string"}), {"type": "array", "maxItems": 1}]}
    definition = {"allOf": [{"properties": {"compilerOptions": {"properties": {"files": files}}}}]}
    with pytest.raises(UnsupportedSchema) as caught:
        compile_schema({"definitions": {"project": definition}, "$ref": "#/definitions/project"})
    [(_, place, why)] = caught.value.problems
    assert f"'uniqueItems' at {place}: {why}. Remove" in str(caught.value)


def test_only_what_cannot_be_enforced_is_left_out() -> None:
    schema = {"properties": {"a": array({"type": "string"}), "b": array(contains={"const": 1})}}
    with pytest.warns(UserWarning, match="'uniqueItems' at #/properties/b/uniqueItems"):
        machine = compile_schema(schema, SchemaOptions(strict=False))
    assert accepts(machine, '{"a":["x"],"b":[1,1]}')
    assert not accepts(machine, '{"a":["x","x"],"b":[1,1]}')


def test_schemas_with_too_many_kinds_of_objects_are_refused() -> None:
    branches = [{"properties": {f"p{i}": {"type": "string"}}} for i in range(20)]
    schema = {"allOf": [{"anyOf": branches[i : i + 3]} for i in range(14)], "properties": {"z": array()}}
    assert compile_schema({**schema, "properties": {}}, budget=Budget(states=100)).satisfiable
    with pytest.raises(BudgetExceeded, match="open objects and arrays"):
        compile_schema(schema, budget=Budget(states=100))


def test_a_search_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = array({"enum": [10**i for i in range(30)]})
    machine = compile_schema(schema)
    begun = json.dumps([10**i for i in range(29)], separators=(",", ":"))[:-1].encode()
    assert read(machine, begun + b",1") is not None
    monkeypatch.setattr(distinct_items, "_MOST_SEARCHED", 10)
    with pytest.raises(BudgetExceeded, match="uniqueItems was not found out in 10 steps"):
        read(compile_schema(schema), begun + b",")


# -- many texts, and long ones ---------------------------------------------------------------------------


def test_what_texts_have_written_is_left_behind_with_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "_MOST_REMEMBERED", 900)
    vocabulary = mixed()
    single = {text: token for token, text in enumerate(vocabulary.token_bytes) if len(text) == 1}
    tokens = NumberedTokens(compile_schema(array({"type": "string"}), COMPACT), vocabulary)
    first = tokens.machine
    for round_ in range(30):
        at = tokens.start
        for byte in json.dumps([f"{round_}-{i}" for i in range(10)], separators=(",", ":")).encode():
            at = tokens.advance(at, single[bytes([byte])])
            assert at >= 0
    assert tokens.machine is not first
    assert len(tokens.machine.items.values) < 1000


def test_long_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct_items, "_MOST_REMEMBERED", 100)
    monkeypatch.setattr("logitloom_plugins.json_schema.folds.value_reader._MOST_LISTED", 100)
    machine = compile_schema(array(), COMPACT)
    values = [{"id": i, "name": f"n{i}"} for i in range(200)]
    text = json.dumps(values, separators=(",", ":"))
    assert accepts(machine, text)
    assert not accepts(machine, text[:-1] + ',{"name":"n7","id":7}]')
    assert accepts(machine, text[:-1] + ',{"name":"n7","id":-7}]')
