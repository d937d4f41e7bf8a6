"""The json processor: both engines, every kind of source, rows that move."""

from __future__ import annotations

import dataclasses
import json
import re
from enum import Enum
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pytest

from logitloom import Backend, Context, Vocabulary, processors
from logitloom.automata import Budget
from logitloom.errors import BudgetExceeded, IllegalToken, OptionError, UnsupportedSchema, VocabularyError
from logitloom.rows import tree as state
from logitloom_plugins.json_schema.folds import machine as json_machine
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from tests.core.automata.vocabularies import mixed
from tests.plugins.json_schema.numbered_tokens import NumberedTokens

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "tags": {"type": "array", "items": {"enum": ["a", "ab", "é"]}, "maxItems": 2},
        "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["name", "next"],
    "additionalProperties": False,
}


@pytest.fixture(params=["table", "llguidance"])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "llguidance":
        pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    return str(request.param)


def written(backend: Backend, options: dict[str, Any], rows: int, seed: int, most: int = 300) -> list[str]:
    """Complete texts of random logits that favour the ends of things."""
    vocabulary = mixed()
    rng = np.random.default_rng(seed)
    favour = np.zeros(vocabulary.size, dtype=np.float32)
    for i, text in enumerate(vocabulary.token_bytes):
        if text in (b'"', b"}", b"]", b"n"):
            favour[i] = 3.0
    chain = processors.load(("json", options), tokenizer=vocabulary)
    logits = backend.asarray(rng.normal(size=(rows, vocabulary.size)).astype(np.float32) + favour)
    context = Context.start(logits, vocabulary=vocabulary)
    current = chain.init_state(context)
    taken: list[list[int]] = [[] for _ in range(rows)]
    for _ in range(most):
        logits = backend.asarray(rng.normal(size=(rows, vocabulary.size)).astype(np.float32) + favour)
        masked, current = chain.process(logits, current, context)
        chosen = backend.to_numpy(masked).argmax(axis=1).tolist()
        for row, token in zip(taken, chosen, strict=True):
            row.append(token)
        context = context.accept(chosen)
        if all(0 in row for row in taken):
            break
    return [vocabulary.decode(row) for row in taken if 0 in row]


@pytest.mark.extras
def test_random_texts_are_valid_on_every_backend(backend: Backend, engine: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")
    texts = written(backend, {"schema": PERSON, "engine": engine, "whitespace": "compact"}, 4, 0)
    assert texts
    for text in texts:
        jsonschema.validate(json.loads(text), PERSON)


@pytest.mark.parametrize("policy", ["compact", "one_space", "flexible"])
def test_whitespace_is_as_the_policy_says(policy: str) -> None:
    options = {"schema": {"const": [1, {"a": 2, "b": 3}]}, "whitespace": policy, "max_whitespace": 2}
    grammar = processors.load(("json", options), tokenizer=mixed())["json"].constraint(mixed(), mixed().size)
    texts = {"compact": '[1,{"a":2,"b":3}]', "one_space": '[1, {"a": 2, "b": 3}]', "loose": '[ 1\n ,{"a" :2,"b":3} ]'}
    accepted = {name for name, text in texts.items() if accepts(grammar, text)}
    assert accepted == ({policy} if policy != "flexible" else set(texts))


def accepts(grammar: Any, text: str) -> bool:
    reached = grammar.start()
    single = {token: i for i, token in reversed(list(enumerate(mixed().token_bytes))) if len(token) == 1}
    for byte in text.encode():
        allowed = single[bytes([byte])] in grammar.allowed(reached)
        reached = grammar.advance(reached, single[bytes([byte])])
        assert allowed == (reached is not None)
        if reached is None:
            return False
    return bool(grammar.may_end(reached))


def test_rows_move_fork_and_roll_back(engine: str) -> None:
    vocabulary = mixed()
    chain = processors.load(
        ("json", {"schema": PERSON, "engine": engine, "whitespace": "compact"}), tokenizer=vocabulary
    )
    ids = {token: i for i, token in reversed(list(enumerate(vocabulary.token_bytes)))}
    logits = np.zeros((2, vocabulary.size), dtype=np.float32)
    context = Context.start(logits, vocabulary=vocabulary)
    start = chain.init_state(context)
    first = context.accept([[ids[b"{"], ids[b'"'], ids[b"name"], ids[b'"'], ids[b":"]], [ids[b"{"]]])
    after, moved = chain.process(logits, start, first)
    crossed = state.take(moved, [1, 0, 0])
    again, _ = chain.process(np.zeros((3, vocabulary.size), dtype=np.float32), crossed, first.accept([[], [], []]))
    np.testing.assert_array_equal(again, after[[1, 0, 0]])
    # The state from before is as it was: what is rolled back can be taken another way.
    fresh, _ = chain.process(logits, start, context)
    np.testing.assert_array_equal(fresh[0], fresh[1])
    assert np.isfinite(fresh[0]).any()


def test_a_token_that_is_not_allowed_names_its_row(engine: str) -> None:
    vocabulary = mixed()
    chain = processors.load(("json", {"schema": PERSON, "engine": engine}), tokenizer=vocabulary)
    logits = np.zeros((2, vocabulary.size), dtype=np.float32)
    context = Context.start(logits, vocabulary=vocabulary)
    wrong = vocabulary.token_bytes.index(b"foo")
    right = vocabulary.token_bytes.index(b"{")
    with pytest.raises(IllegalToken, match="row 1"):
        chain.process(logits, chain.init_state(context), context.accept([right, wrong]))


@pytest.mark.extras
def test_both_engines_allow_the_same_bytes_for_a_closed_schema() -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    vocabulary = mixed()
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["ab", "b"]}, "n": {"type": "integer", "minimum": 3, "maximum": 40}},
        "required": ["kind", "n"],
        "additionalProperties": False,
    }
    options = {"schema": schema, "whitespace": "compact"}
    table = processors.load(("json", {**options, "engine": "table"}), tokenizer=vocabulary)
    other = processors.load(("json", {**options, "engine": "llguidance"}), tokenizer=vocabulary)
    logits = np.zeros((1, vocabulary.size), dtype=np.float32)
    context = Context.start(logits, vocabulary=vocabulary)
    ours, theirs = table.init_state(context), other.init_state(context)
    ids = {token: i for i, token in reversed(list(enumerate(vocabulary.token_bytes)))}
    for byte in b'{"kind":"ab","n":12}':
        left, ours = table.process(logits, ours, context)
        right, theirs = other.process(logits, theirs, context)
        # Numbers have more forms in the table engine (12.0), so what llguidance allows is a part.
        assert (np.isfinite(left) | ~np.isfinite(right)).all()
        context = context.accept([ids[bytes([byte])]])


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Movie(TypedDict):
    title: str


@pytest.mark.extras
def test_every_kind_of_source_gives_its_schema(tmp_path: Path) -> None:
    pydantic = pytest.importorskip("pydantic", reason="the package pydantic is not installed")

    class User(pydantic.BaseModel):
        name: str

    file = tmp_path / "schema.json"
    file.write_text('{"const": 7}')
    marked = tmp_path / "marked.json"
    marked.write_text('{"const": 7}', encoding="utf-8-sig")
    cases: list[tuple[Any, str, str]] = [
        (None, '[null,{"a":[]}]', "[1"),
        ({"const": 7}, "7", "8"),
        ('{"const": 7}', "7", "8"),
        (file, "7", "8"),
        (str(file), "7", "8"),
        (marked, "7", "8"),
        (User, '{"name":"x"}', "{}"),
        (pydantic.TypeAdapter(list[int]), "[1,2]", '["a"]'),
        (Point, '{"x":1}', '{"y":1}'),
        (Movie, '{"title":"x"}', "{}"),
        (Colour, '"red"', '"green"'),
    ]
    for source, good, bad in cases:
        options = {"schema": source, "whitespace": "compact", "engine": "table"}
        grammar = processors.load(("json", options), tokenizer=mixed())["json"].constraint(mixed(), mixed().size)
        assert accepts(grammar, good), source
        assert not accepts(grammar, bad), source


def test_sources_that_are_no_schema_are_refused_with_the_place() -> None:
    with pytest.raises(OptionError, match="line 1, column"):
        processors.load(("json", {"schema": '{"type": }'}))
    with pytest.raises(OptionError, match="cannot be read"):
        processors.load(("json", {"schema": "no/such/file.json"}))
    with pytest.raises(OptionError, match="The schema is an empty text. Give a path"):
        processors.load(("json", {"schema": ""}))


def test_keywords_that_cannot_be_enforced_are_named_with_their_pointers() -> None:
    schema = {"properties": {"a": {"type": "string", "pattern": "(a)\\1"}, "b": {"format": "regex"}}}
    with pytest.raises(UnsupportedSchema, match=r"'pattern' at #/properties/a/pattern.*'format' at #/properties/b"):
        processors.load(("json", {"schema": schema, "engine": "table"}))
    for engine in ("table", "auto"):
        with pytest.warns(UserWarning, match="pattern"):
            processors.load(("json", {"schema": schema, "engine": engine, "strict": False}))


def test_items_of_few_possible_values_are_never_written_twice() -> None:
    values = [f"v{i:02}" for i in range(20)]
    schema = {"type": "array", "items": {"enum": values}, "uniqueItems": True, "minItems": 18}
    machine = compile_schema(schema)
    for count, right in ((17, False), (18, True), (20, True)):
        assert json_machine.accepts(machine, json.dumps(values[-count:], separators=(",", ":"))) == right
    assert not json_machine.accepts(machine, json.dumps([*values[:-1], values[0]], separators=(",", ":")))
    impossible = compile_schema({**schema, "minItems": 21})
    assert not json_machine.accepts(impossible, json.dumps([*values, values[0]], separators=(",", ":")))
    # With more of them another way is taken.
    more = compile_schema({**schema, "items": {"enum": [*values, "w"]}})
    assert json_machine.accepts(more, json.dumps([*values, "w"], separators=(",", ":")))
    assert not json_machine.accepts(more, json.dumps([*values, values[0]], separators=(",", ":")))


def test_a_budget_that_is_exceeded_while_decoding_says_so_and_sizes_tell_it_beforehand() -> None:
    vocabulary = mixed()
    options = {"schema": {"type": "string", "maxLength": 3000}, "engine": "table", "max_states": 1000}
    chain = processors.load(("json", options), tokenizer=vocabulary)
    sizes = chain["json"].sizes()
    assert sizes["complete"] is False
    assert "1000 states" in sizes["limit"]
    tokens = NumberedTokens(compile_schema(options["schema"], budget=Budget(states=1000)), vocabulary)
    schema = tokens.constraint.schema
    with pytest.raises(BudgetExceeded, match=r"1000 states\..*while decoding.*max_states.*logitloom validate"):
        # Characters that stand for themselves take no states on the way, escaped ones do.
        schema.read(schema.start(), b'"' + rb"\n" * 2000)
    # Read token by token it is forgotten on the way.
    letter = vocabulary.token_bytes.index(b"a")
    reached = tokens.advance(tokens.start, vocabulary.token_bytes.index(b'"'))
    for _ in range(2000):
        reached = tokens.advance(reached, letter)
    assert vocabulary.token_bytes.index(b'"') in tokens.row(reached)
    assert len(tokens.machine.states) <= 1000
    assert processors.load(("json", {"schema": {"enum": [1, 2]}, "engine": "table"}))["json"].sizes()["complete"]


@pytest.mark.extras
@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"anyOf": [{"$ref": "#"}, {"type": "null"}]}], ids=str)
def test_no_engine_is_asked_about_a_schema_that_has_no_meaning(schema: Any) -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    with pytest.raises(UnsupportedSchema, match="refers to itself for the same value"):
        processors.load(("json", {"schema": schema}))


def test_remote_references_are_refused() -> None:
    with pytest.raises(UnsupportedSchema, match="points outside the schema"):
        processors.load(("json", {"schema": {"$ref": "https://example.com/x.json"}}))


def test_replaying_tokens_gives_the_state_that_lived_through_them(engine: str) -> None:
    vocabulary = mixed()
    chain = processors.load(
        ("json", {"schema": PERSON, "engine": engine, "whitespace": "compact"}), tokenizer=vocabulary
    )
    ids = {token: i for i, token in reversed(list(enumerate(vocabulary.token_bytes)))}
    tokens = [ids[bytes([b])] for b in b'{"name":"foo","next":']
    logits = np.zeros((1, vocabulary.size), dtype=np.float32)
    context = Context.start(logits, vocabulary=vocabulary)
    at_once, _ = chain.process(logits, chain.init_state(context), context.accept([tokens]))
    current, step = chain.init_state(context), context
    for token in tokens:
        _, current = chain.process(logits, current, step)
        step = context.accept([token])
    one_by_one, _ = chain.process(logits, current, step)
    np.testing.assert_array_equal(at_once, one_by_one)


def test_forced_tokens_are_the_only_way_on() -> None:
    vocabulary = mixed()
    chain = processors.load(("json", {"schema": {"const": "Z"}, "engine": "table"}), tokenizer=vocabulary)
    context = Context.start(np.zeros((1, vocabulary.size)), vocabulary=vocabulary)
    assert len(chain.forced_tokens(chain.init_state(context), context)[0]) == 1


def test_a_budget_ends_hostile_schemas() -> None:
    with pytest.raises((BudgetExceeded, UnsupportedSchema)):
        processors.load(("json", {"schema": {"multipleOf": 1234567, "type": "integer"}, "engine": "table"}))


def test_a_vocabulary_that_cannot_write_a_value_is_refused_like_by_regex() -> None:
    words = Vocabulary([b"", b"a", b"b", b"{", b"}", b"1"], eos=[0])
    with pytest.raises(VocabularyError, match="No sequence of tokens"):
        processors.load(("json", {"schema": {"type": "string"}}), tokenizer=words)


def test_tokens_that_lead_to_a_dead_end_are_not_allowed() -> None:
    # An object needs a member, whose name needs a quote that no token has; the number can be written.
    words = Vocabulary([b"", b"{", b"}", b"1", b" "], eos=[0])
    schema = {"anyOf": [{"type": "integer"}, {"type": "object", "required": ["a"]}]}
    chain = processors.load(("json", {"schema": schema, "whitespace": "compact"}), tokenizer=words)
    context = Context.start(np.zeros((1, 5), dtype=np.float32), vocabulary=words)
    masked, _ = chain.process(np.zeros((1, 5), dtype=np.float32), chain.init_state(context), context)
    assert (masked > -np.inf).nonzero()[1].tolist() == [3]


IMPOSSIBLE: list[Any] = [
    {"type": "string", "minLength": 3, "maxLength": 2},
    {"type": "object", "properties": {"a": {"minimum": 2, "maximum": 1, "type": "number"}}, "required": ["a"]},
]


@pytest.mark.extras
@pytest.mark.parametrize("steps", [(7, 11, 13, 17, 19, 23), (1_000_003,), (1e300, 7)])
@pytest.mark.parametrize("engine", ["auto", "llguidance"])
def test_multiples_that_an_engine_would_follow_for_minutes_are_refused(engine: str, steps: tuple[float, ...]) -> None:
    pytest.importorskip("llguidance")
    schema = {"type": "integer", "allOf": [{"multipleOf": step} for step in steps]}
    with pytest.raises(BudgetExceeded, match="more than|at most"):
        processors.load(("json", {"schema": schema, "engine": engine, "max_states": 1000}))


@pytest.mark.extras
@pytest.mark.parametrize("engine", ["auto", "llguidance"])
def test_an_engine_that_cannot_be_interrupted_gets_no_schema_that_takes_longer_than_is_left(engine: str) -> None:
    pytest.importorskip("llguidance")
    schema = {"enum": [[i, i + 1] for i in range(9000)]}
    with pytest.raises(BudgetExceeded, match="more than 1000 subschemas|may take .* seconds for a schema of .* left"):
        processors.load(("json", {"schema": schema, "engine": engine, "max_states": 1000, "max_seconds": 0.5}))
    assert processors.load(("json", {"schema": schema, "engine": engine, "max_states": 1000})).labels == ("json",)


@pytest.mark.parametrize("engine", ["auto", "table"])
@pytest.mark.parametrize("schema", IMPOSSIBLE, ids=["string", "object"])
def test_a_schema_that_no_value_satisfies_is_refused_when_the_chain_is_made(schema: Any, engine: str) -> None:
    with pytest.raises(UnsupportedSchema, match="No JSON value satisfies the schema of 'json'"):
        processors.load(("json", {"schema": schema, "engine": engine}))


def _object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": [*members]}


NOTHING = {"type": "integer", "minimum": 3, "maximum": 2}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (NOTHING, "none satisfies the schema at #. Correct"),
        (
            _object(a={}, b={"type": "array", "minItems": 1, "items": _object(c=NOTHING)}),
            "none satisfies the schema at #/properties/b/items/properties/c. Correct",
        ),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": {"allOf": [_object(**{"a/b": {"anyOf": [NOTHING, False]}})]}}},
            "none satisfies the schema at #/$defs/x/allOf/0/properties/a~1b/anyOf/0. Correct",
        ),
        ({"prefixItems": [True, NOTHING], "minItems": 2, "type": "array"}, "at #/prefixItems/1. Correct"),
        ({**_object(a={"type": "string"}), "type": "array", "minItems": 2, "maxItems": 1}, "at #. Correct"),
        (_object(a={}, b={"$ref": "#"}), "each value of the schema at #/properties/b contains another one. Make"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": _object(b={"$ref": "#/$defs/b"}), "b": _object(a={"$ref": "#"})}},
            "each value of the schema at #/$defs/b/properties/a contains another one. Make a member",
        ),
    ],
)  # fmt: skip
def test_the_message_about_a_schema_that_no_value_satisfies_has_the_place(schema: Any, message: str) -> None:
    with pytest.raises(UnsupportedSchema, match=re.escape(message)):
        processors.load(("json", {"schema": schema}))


@pytest.mark.parametrize("engine", ["auto", "table"])
def test_messages_about_many_keywords_stay_short_and_the_error_has_them_all(engine: str) -> None:
    patterns = {
        f"a long name, number {i}": {"type": "string", "pattern": f"(?<=x{i}){'long ' * 99}"} for i in range(40)
    }
    with pytest.raises(UnsupportedSchema) as caught:
        processors.load(("json", {"schema": {"properties": patterns}, "engine": engine}))
    message = str(caught.value)
    assert len(message) < 500
    assert "'pattern' at #/properties/a long name, number 0/pattern: Pattern '(?<=x0)long long " in message
    assert "and 39 more" in message
    if engine == "table":
        assert len(caught.value.problems) == 40
