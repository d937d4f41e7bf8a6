"""Schemas made to hurt: each ends in an automaton or in an error, within its budget."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, processors
from logitloom.automata import DEAD, Budget, at_most
from logitloom.constraints import UNKNOWN, Ended
from logitloom.errors import BudgetExceeded, LogitloomError, StateMismatch
from logitloom_plugins.json_schema.folds.machine import accepts, read
from logitloom_plugins.json_schema.folds.schema_automaton import SchemaAutomaton
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from logitloom_plugins.json_schema.schema.keywords import are_equal
from logitloom_plugins.json_schema.tokens.schema_constraint import SchemaConstraint
from tests.core.automata.vocabularies import mixed
from tests.plugins.json_schema.numbered_tokens import NumberedTokens

FINISHED = Ended.FINISHED.value


def nested(depth: int, keyword: str) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(depth):
        if keyword == "uniqueItems":
            schema = {"type": "array", "items": schema, "uniqueItems": True}
        else:
            schema = {keyword: {"a": schema} if keyword == "properties" else [schema] if keyword == "allOf" else schema}
    return schema


HOSTILE: dict[str, Any] = {
    "deep properties": nested(2_000, "properties"),
    "deep allOf": nested(5_000, "allOf"),
    "deep not": nested(3_000, "not"),
    "not deeper than another engine reads": nested(300, "not"),
    "huge enum": {"enum": [f"value {i}" for i in range(50_000)]},
    "exponential allOf": {
        "$defs": {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(60)}
        | {"d60": {"type": "string"}},
        "$ref": "#/$defs/d0",
    },
    "exponential oneOf": {"oneOf": [{"properties": {f"p{i}": {"type": "string"}}} for i in range(30)]},
    "catastrophic pattern": {"pattern": "^(a+)+$"},
    "exponential pattern": {"pattern": "^(.*a.{30})$"},
    "large repeat": {"pattern": "^(?:[a-z]{1,1000}x){1,1000}$"},
    "circle of references": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "reference to itself in not": {"not": {"$ref": "#"}},
    "no finite value": {"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]},
    "many required names": {"required": [f"n{i}" for i in range(300)]},
    "long const": {"const": "x" * 200_000},
    "many lengths": {"anyOf": [{"minLength": i, "maxLength": 2 * i} for i in range(1, 200)]},
    "huge bounds": {"type": "array", "minItems": 10**9, "items": {"type": "string", "minLength": 10**9}},
    "very many different items": {"type": "array", "uniqueItems": True, "minItems": 10**9},
    "very many different strings": {
        "type": "array",
        "uniqueItems": True,
        "minItems": 10**9,
        "items": {"type": "string"},
    },
    "different items that are such arrays": {
        "type": "array",
        "uniqueItems": True,
        "minItems": 2,
        "items": {"$ref": "#"},
    },
    "different items of many kinds": {
        "type": "array",
        "uniqueItems": True,
        "items": {"enum": [f"{i}" * 20 for i in range(5_000)]},
        "minItems": 4_000,
    },
    "deep different items": nested(200, "uniqueItems"),
    "huge number": {"type": "number", "minimum": 10**400},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_ends_in_an_answer_or_an_error(name: str) -> None:
    begin = time.monotonic()
    try:
        machine = compile_schema(HOSTILE[name], budget=Budget(states=20_000, seconds=2.0))
        for text in (b'"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', b'{"a":', b"[", b"12"):
            read(machine, text)
    except LogitloomError:
        pass
    # Not a measurement: a hang would be minutes.
    assert time.monotonic() - begin < 60


@pytest.mark.extras
@pytest.mark.parametrize("name", HOSTILE)
def test_loading_a_hostile_schema_ends_in_a_chain_or_a_sentence(name: str) -> None:
    sentence = ""
    try:
        processors.load(("json", {"schema": HOSTILE[name], "max_seconds": 2}), tokenizer=mixed())
    except LogitloomError as error:
        sentence = str(error)
    assert not re.search(r"\w+Error:", sentence), sentence
    assert len(sentence) < 500


@pytest.mark.long
def test_ten_megabytes_of_schema_end_in_an_answer_or_an_error() -> None:
    text = {"description": "x" * 90, "type": "string"}
    parts = {f"part {part}": {f"name {part} {i}": text for i in range(5_000)} for part in range(16)}
    schema = {"properties": {name: {"properties": names} for name, names in parts.items()}}
    with contextlib.suppress(LogitloomError):
        assert compile_schema(schema, budget=Budget(seconds=2.0)).satisfiable


def test_an_object_with_so_many_names_that_they_fill_the_memory_is_refused() -> None:
    schema = {"properties": {f"name {i}": {} for i in range(40_000)}}
    with pytest.raises(BudgetExceeded, match=r"400000000 bytes for the names of one object, and the limit is"):
        compile_schema(schema)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.long
def test_decoding_a_hostile_schema_ends_in_an_answer_or_an_error(name: str) -> None:
    begin = time.monotonic()
    try:
        machine = compile_schema(HOSTILE[name], budget=Budget(states=20_000, seconds=2.0))
        tokens = NumberedTokens(machine, mixed())
        reached = tokens.start
        for _ in range(30):
            allowed = tokens.row(reached).tolist()
            if not allowed or reached == FINISHED:
                break
            # The longest token, so that much is read.
            reached = tokens.advance(reached, max(allowed, key=lambda i: len(tokens.vocabulary.token_bytes[i])))
            assert reached != DEAD
    except LogitloomError:
        pass
    assert time.monotonic() - begin < 60


def test_the_states_of_a_machine_are_bounded_in_bytes() -> None:
    machine = compile_schema({"type": "string", "maxLength": 100_000}, budget=Budget(table_bytes=1 << 20))
    reached = read(machine, b'"')

    def read_on() -> None:
        # A state for each place where the text may be cut into tokens.
        following = reached
        for _ in range(50_000):
            assert following is not None
            following = machine.read(following, b"a")

    with pytest.raises(BudgetExceeded, match="bytes for its states"):
        read_on()


def test_what_is_nested_too_deeply_to_be_compared_counts_as_different() -> None:
    assert are_equal(nested(20, "items"), nested(20, "items"))
    assert not are_equal(nested(20_000, "items"), nested(20_000, "items"))
    assert not are_equal({"const": 1}, {"const": True})


@pytest.fixture
def usual_recursion() -> Iterator[None]:
    """Python's own limit: PyTorch's compiler raises that of the whole process."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("usual_recursion")
def test_what_is_nested_deeply_is_read_and_completed() -> None:
    branches = [{"properties": {"a": nested(1500, "items")}} for _ in range(2)]
    assert accepts(compile_schema({"anyOf": branches}), '{"a":[[[]]]}')
    deep: Any = {"type": "null"}
    for _ in range(1500):
        deep = {"type": "array", "items": deep, "minItems": 1}
    schema = SchemaAutomaton(compile_schema(deep))
    assert schema.read(schema.start(), b"[[") is not None
    assert schema.completion(schema.start()) == b"[" * 1500 + b"null" + b"]" * 1500


@pytest.mark.usefixtures("usual_recursion")
def test_what_is_nested_deeply_runs_on_tokens() -> None:
    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    chain = processors.load(("json", {"schema": nested(1500, "items")}), tokenizer=words)
    blank = np.zeros((1, words.size), dtype=np.float32)
    context = Context.start(blank, prompt=[[1]], max_new_tokens=9)
    masked, _ = chain.process(blank, chain.init_state(context), context)
    assert masked[0, 1 + ord("[")] == 0.0
    with pytest.raises(StateMismatch, match="nested too deeply for a fingerprint.* Nest it less"):
        _ = chain["json"].fingerprint
    circle: Any = {"x": {}}
    circle["x"]["y"] = circle
    processors.load(("json", {"schema": circle}), tokenizer=words)


def test_too_many_alternatives_in_what_a_text_begins_with_are_an_error_beforehand() -> None:
    branches = [
        {"properties": {"kind": {"required": [f"q{n}"]}, f"p{n}": {"type": "integer"}}, "required": [f"p{n}"]}
        for n in range(1, 40)
    ]
    schema = {"type": "object", "oneOf": branches}
    with pytest.raises(BudgetExceeded, match="39 alternatives at once"):
        compile_schema(schema)
    with pytest.raises(BudgetExceeded, match="39 alternatives at once"):
        compile_schema({"items": {"items": {"items": schema}}})


@pytest.mark.parametrize("keyword", ["const", "enum"])
def test_a_listed_text_that_takes_too_many_states_is_an_error_beforehand(keyword: str) -> None:
    text = "word " * 30_000
    schema: Any = {keyword: [text, "a"] if keyword == "enum" else text}
    for whole in (schema, {"type": "object", "properties": {"a": schema}, "required": ["a"]}, {"items": schema}):
        with pytest.raises(BudgetExceeded, match="more than 100000 characters of a listed text"):
            compile_schema(whole)


def test_a_listed_text_that_takes_too_many_states_is_left_to_no_engine() -> None:
    """An engine that looks at the rest of the text in each step would take hours."""
    for schema in ({"const": "x" * 120_000}, {"items": {"enum": ["a", {"b": ["y" * 120_000]}]}}):
        with pytest.raises(BudgetExceeded, match="more than 100000 characters of a listed text"):
            processors.load(("json", {"schema": schema}))


TITLES = [f"{size} {colour} {thing}" for size in ("big", "mid", "low") for colour in "abc" for thing in range(40)]
#: A schema of a member 'a', the place of its list below 'a', a valid value and an invalid one.
LISTS_OF_TITLES: dict[str, tuple[Any, str, Any, Any]] = {
    "enum": ({"enum": TITLES}, "", TITLES[7], "other"),
    "alternatives": ({"anyOf": [{"enum": TITLES[:50]}, {"enum": TITLES[50:]}]}, "", TITLES[70], "other"),
    "excluded": ({"type": "string", "not": {"enum": TITLES}}, "", "other", TITLES[7]),
    "items": ({"type": "array", "items": {"enum": TITLES}}, "/items", TITLES[7:9], [TITLES[7], "other"]),
    "values": ({"enum": [{"b": title} for title in TITLES]}, "", {"b": TITLES[7]}, {"b": "other"}),
    "names": ({"propertyNames": {"enum": TITLES}, "type": "object"}, "", {TITLES[7]: 1}, {"other": 1}),
    "names beside patterns": (
        {"properties": {title: {} for title in TITLES}, "patternProperties": {"^x": {}}, "additionalProperties": False},
        "",
        {TITLES[7]: 1, "xx": 1},
        {"other": 1},
    ),
}


@pytest.mark.parametrize("name", LISTS_OF_TITLES)
def test_a_list_that_takes_too_many_states_is_an_error_beforehand(name: str) -> None:
    listed, place, valid, invalid = LISTS_OF_TITLES[name]
    schema = {"type": "object", "properties": {"q": {"type": "integer"}, "a": listed}, "required": ["q"]}
    beginnings = len({title[:end] for title in TITLES for end in range(len(title) + 1)})
    with pytest.raises(BudgetExceeded, match=f"The limit is exceeded at #/properties/a{place}"):
        compile_schema(schema, budget=Budget(states=beginnings - 1))
    machine = compile_schema(schema, budget=Budget(states=2 * beginnings))
    assert accepts(machine, json.dumps({"q": 1, "a": valid}))
    assert not accepts(machine, json.dumps({"q": 1, "a": invalid}))


PATTERNS = [f"b{number}k.*z{number}" for number in range(9)]


@pytest.mark.parametrize(
    "wanted",
    [
        {"patternProperties": {pattern: {"const": pattern} for pattern in PATTERNS}},
        {"propertyNames": {"allOf": [{"pattern": pattern} for pattern in PATTERNS]}},
        {"allOf": [{"pattern": pattern} for pattern in PATTERNS]},
        {"oneOf": [{"pattern": pattern} for pattern in PATTERNS]},
    ],
    ids=lambda schema: next(iter(schema)),
)
def test_patterns_that_take_too_many_states_together_are_an_error_beforehand(wanted: Any) -> None:
    with pytest.raises(BudgetExceeded, match="The limit is exceeded at #/properties/a/items"):
        compile_schema({"properties": {"a": {"items": wanted}}}, budget=Budget(states=3000))
    single = {"properties": {"a": {"items": {"pattern": PATTERNS[0]}}}}
    assert accepts(compile_schema(single, budget=Budget(states=3000)), '{"a":["b0k z0"]}')


def test_a_list_that_must_be_filtered_is_an_error_with_its_place() -> None:
    schema = {"properties": {"a": {"enum": TITLES, "pattern": "[a-z]"}}, "required": ["a"], "type": "object"}
    with pytest.raises(BudgetExceeded, match="The limit is exceeded at #/properties/a"):
        compile_schema(schema, budget=Budget(states=300))


def test_a_list_of_numbers_that_takes_too_many_states_is_an_error_beforehand() -> None:
    schema = {"properties": {"a": {"enum": [7**40 * number for number in range(1, 50)]}}}
    with pytest.raises(BudgetExceeded, match="The limit is exceeded at #/properties/a"):
        compile_schema(schema, budget=Budget(states=500))
    assert accepts(compile_schema(schema, budget=Budget(states=5000)), f'{{"a":{7**40 * 8}}}')


def test_of_a_long_list_only_the_texts_that_may_come_take_states() -> None:
    schema = {"allOf": [{"properties": {"a": {"enum": TITLES}}}, {"properties": {"a": {"enum": TITLES[:3]}}}]}
    machine = compile_schema(schema, budget=Budget(states=100))
    assert [accepts(machine, json.dumps({"a": title})) for title in TITLES[2:4]] == [True, False]


def test_many_alternatives_over_strings_are_read_at_once() -> None:
    branches = [
        {"properties": {"kind": {"minLength": n}, f"p{n}": {"type": "integer"}}, "required": [f"p{n}"]}
        for n in range(1, 40)
    ]
    machine = compile_schema({"type": "object", "oneOf": branches})
    assert accepts(machine, '{"kind":"aa","p2":1,"p3":1}')
    assert not accepts(machine, '{"kind":"aaa","p2":1,"p3":1}')


def doubled(depth: int) -> Any:
    """Objects of two members, each with the object of the next depth: the shortest value has ``2 ** depth`` parts."""
    pairs = {
        f"d{i}": {
            "type": "object",
            "properties": {name: {"$ref": f"#/$defs/d{i + 1}"} for name in "ab"},
            "required": ["a", "b"],
        }
        for i in range(depth)
    }
    return {"$defs": {**pairs, f"d{depth}": {"type": "null"}}, "$ref": "#/$defs/d0"}


def test_a_shortest_value_of_exponential_length_is_not_written() -> None:
    vocabulary = mixed()
    short, long = (
        processors.load(("json", {"schema": doubled(depth), "whitespace": "compact"}))["json"].constraint(
            vocabulary, vocabulary.size
        )
        for depth in (4, 40)
    )
    whole = short.automaton().completion(short.start())
    assert len(whole) == 15 * len('{"a":,"b":}') + 16 * len("null")
    assert long.automaton().completion(long.start()) is None
    assert long.least_tokens(long.start()) is None
    assert _first_text(long, vocabulary, 15) == '{"a":{"a":{"a":'


def _first_text(constraint: Any, vocabulary: Any, size: int) -> str:
    """The beginning of a text, byte by byte, of the first allowed token each."""
    state, text = constraint.start(), ""
    while len(text) < size:
        token = int(constraint.allowed(state).listed(vocabulary.size)[0])
        state, text = constraint.advance(state, token), text + vocabulary.decode([token])
    return text


def test_distances_to_the_end_keep_to_the_time_of_the_thread() -> None:
    names = [f"p{i}" for i in range(3)]
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "pattern": "^(a|b)*a(a|b){3}$"} for name in names},
        "required": names,
    }
    vocabulary = mixed()
    constraint = processors.load(("json", {"schema": schema}))["json"].constraint(vocabulary, vocabulary.size)
    for ask in (constraint.least_tokens, constraint.most_after, constraint.least_after):
        with at_most(0.0), pytest.raises(BudgetExceeded, match="longer than 0 seconds"):
            ask(constraint.start())
    assert constraint.least_tokens(constraint.start()) is not None
    assert constraint.most_after(constraint.start()) < UNKNOWN


def test_multiples_that_are_too_large_are_refused_before_decoding_starts() -> None:
    """Members that no text has reached are compiled later, but the size of the automaton of multiples is known."""
    schema = {"properties": {"a": {"patternProperties": {"^b": {"type": "integer", "multipleOf": 10**30 + 1}}}}}
    with pytest.raises(BudgetExceeded, match="remainders of multipleOf"):
        compile_schema(schema)
    assert compile_schema({"properties": {"a": {"enum": [0, 2e30], "multipleOf": 10**30 + 1}}}).satisfiable


def test_strings_up_to_a_great_length_need_not_be_counted_to_differ() -> None:
    schema = {"type": "array", "items": {"type": "string", "maxLength": 10**9}, "uniqueItems": True}
    constraint = SchemaConstraint(SchemaAutomaton(compile_schema(schema)), mixed())
    state = constraint.schema.read(constraint.start(), b'["a","')
    assert state is not None
    assert len(constraint.allowed(state).listed(mixed().size)) > 9


@pytest.mark.parametrize("bound", [10**11, 10**20, 10**300])
@pytest.mark.parametrize("keyword", ["minLength", "maxLength"])
def test_lengths_of_any_size_are_counted(keyword: str, bound: int) -> None:
    schema = {"type": "string", "pattern": "^(ab |c)*$", keyword: bound}
    constraint = SchemaConstraint(SchemaAutomaton(compile_schema(schema)), mixed())
    state = constraint.schema.read(constraint.start(), b'"ab c')
    assert state is not None
    assert len(constraint.allowed(state).listed(mixed().size)) > 0
