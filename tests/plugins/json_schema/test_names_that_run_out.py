"""Objects in which no name may come twice: a name is begun only if it can become one that has not come yet.

The oracle reads bytes: all texts of a schema with few of them are found by trying every byte, and then the tokens that
may come next are those after which a text begins like one of them.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from logitloom import Vocabulary, processors
from logitloom.errors import UnsupportedSchema
from logitloom_plugins.json_schema.folds.machine import accepts
from logitloom_plugins.json_schema.folds.schema_automaton import SchemaAutomaton
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.grammar.layout import Whitespace
from logitloom_plugins.json_schema.tokens.schema_constraint import SchemaConstraint
from tests.plugins.json_schema.random_texts import random_text

BYTES = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0], name="bytes")


def named(pattern: str, value: Any = True, **more: Any) -> dict[str, Any]:
    """An object whose names match a pattern."""
    return {"type": "object", "patternProperties": {pattern: value}, "additionalProperties": False, **more}


def exactly(count: int) -> dict[str, int]:
    return {"minProperties": count, "maxProperties": count}


#: A schema, the names that its objects may have, the values, and which objects are valid.
CASES: dict[str, tuple[dict[str, Any], list[str], list[Any], Callable[[dict[str, Any]], bool]]] = {
    "digits": (
        named("^[01]{2}$", {"const": True}, **exactly(3)),
        ["00", "01", "10", "11"],
        [True],
        lambda value: len(value) == 3,
    ),
    "all names": (
        named("^[ab]c?$", {"const": True}, **exactly(4)),
        ["a", "ac", "b", "bc"],
        [True],
        lambda v: len(v) == 4,
    ),
    "listed": (
        {
            "type": "object",
            "propertyNames": {"enum": ["a", "ab", "b"]},
            "additionalProperties": {"const": True},
            **exactly(3),
        },
        ["a", "ab", "b"],
        [True],
        lambda value: len(value) == 3,
    ),
    "required beside": (
        {**named("^[ab]$", {"const": True}, **exactly(2)), "required": ["b"]},
        ["a", "b"],
        [True],
        lambda value: len(value) == 2,
    ),
    "declared beside": (
        {**named("^[ab]$", {"const": True}, **exactly(3)), "properties": {"x": {"const": True}, "a": {"const": True}}},
        ["x", "a", "b"],
        [True],
        lambda value: list(value) == ["x", "a", "b"],
    ),
    "two kinds": (
        {
            "type": "object",
            "patternProperties": {"^[ab]$": {"const": True}, "^[cd]$": {"const": False}},
            "additionalProperties": False,
            **exactly(3),
        },
        ["a", "b", "c", "d"],
        [True, False],
        lambda value: len(value) == 3 and all(value[name] == (name in "ab") for name in value),
    ),
    "characters of several bytes": (
        named("^[é€ê]$", {"const": True}, **exactly(2)),
        ["é", "€", "ê"],
        [True],
        lambda value: len(value) == 2,
    ),
    "within one another": (
        named("^[ab]$", named("^[bc]$", {"const": True}, **exactly(1)), **exactly(2)),
        ["a", "b"],
        [{"b": True}, {"c": True}],
        lambda value: len(value) == 2,
    ),
    "ever longer": (named("^a{1,40}$", {"const": True}, **exactly(1)), ["a" * n for n in range(1, 41)], [True], bool),
    "some value is wrong": (
        {
            **named("^[ab]$", {"type": "boolean"}, maxProperties=2),
            "not": {"patternProperties": {"^[ab]$": {"const": True}}},
        },
        ["a", "b"],
        [True, False],
        lambda value: False in value.values(),
    ),
    "more than one": (
        {**named("^[ab]$", {"const": True}, maxProperties=2), "not": {"maxProperties": 1}},
        ["a", "b"],
        [True],
        lambda value: len(value) == 2,
    ),
    "one of two patterns": (
        {
            **named("^[abc]$", {"type": "boolean"}, maxProperties=3),
            "oneOf": [
                {"patternProperties": {"^[ab]$": {"const": True}}},
                {"patternProperties": {"^[bc]$": {"const": False}}},
            ],
        },
        ["a", "b", "c"],
        [True, False],
        lambda value: all(value.get(name, True) for name in "ab") != all(not value.get(name, False) for name in "bc"),
    ),
}


def constraint_of(schema: Any, vocabulary: Vocabulary, escapes: str = "minimal") -> SchemaConstraint:
    options = SchemaOptions(Whitespace("compact"), escapes=escapes)
    return SchemaConstraint(SchemaAutomaton(compile_schema(schema, options)), vocabulary, vocabulary.size)


def all_texts(constraint: SchemaConstraint) -> set[bytes]:
    """All texts of a schema with few of them; fails where a text cannot go on."""
    found: set[bytes] = set()
    pending = [(constraint.start(), b"")]
    while pending:
        state, text = pending.pop()
        tokens = [token for token in constraint.allowed(state).listed(BYTES.size).tolist() if token]
        assert tokens or constraint.may_end(state), text
        if constraint.may_end(state):
            found.add(text)
        for token in tokens:
            following = constraint.advance(state, token)
            assert following is not None, text + BYTES.token_bytes[token]
            pending.append((following, text + BYTES.token_bytes[token]))
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_texts_are_those_of_valid_objects(case: str) -> None:
    schema, names, values, valid = CASES[case]
    found = {json.dumps(json.loads(text), ensure_ascii=False): text for text in all_texts(constraint_of(schema, BYTES))}
    expected = set()
    for count in range(min(len(names), schema["maxProperties"]) + 1):
        for some in itertools.permutations(names, count):
            for each in itertools.product(values, repeat=count):
                value = dict(zip(some, each, strict=True))
                if valid(value):
                    expected.add(json.dumps(value, ensure_ascii=False))
    assert set(found) == expected


@pytest.mark.parametrize("case", CASES)
@pytest.mark.long
def test_the_tokens_are_those_with_which_a_text_can_be_completed(case: str) -> None:
    schema = CASES[case][0]
    texts = sorted(all_texts(constraint_of(schema, BYTES)))
    draw = random.Random(case)
    parts = {b"", *[bytes([byte]) for byte in b"".join(texts)]}
    while len(parts) < 150:
        text = draw.choice(texts)
        begin = draw.randrange(len(text))
        parts.add(text[begin : begin + draw.randint(1, 12)])
        # As a text that names something twice has it.
        name = text[2 : text.index(b'"', 2)]
        parts.update((b':true,"' + name[:1], b'"' + name, b',"' + name, name + b'":true,"' + name))
    vocabulary = Vocabulary([b"", *sorted(parts - {b""})], eos=[0], name="parts")
    constraint = constraint_of(schema, vocabulary)
    begun = {text[:size] for text in texts for size in range(len(text) + 1)}
    for prefix in draw.sample(sorted(begun), min(len(begun), 150)):
        state = constraint.schema.read(constraint.start(), prefix)
        assert state is not None, prefix
        expected = [t for t, text in enumerate(vocabulary.token_bytes) if text and prefix + text in begun]
        assert sorted({*constraint.allowed(state).listed(vocabulary.size).tolist()} - {0}) == expected, prefix
        least, (ids, after) = constraint.least_tokens(state), constraint.least_after(state)
        assert sorted(ids.tolist()) == expected
        assert least is not None, prefix
        assert (least == 0) == (prefix in texts), prefix
        # Some token leads nearer to the end.
        assert least == 0 or after.min() < least, prefix
        assert after.max(initial=0) <= constraint.most_after(state), prefix


@pytest.mark.parametrize("escapes", ["any", "ascii"])
def test_names_that_are_written_with_escapes_are_not_begun_again(escapes: str) -> None:
    schema = named('^[é"\\n]$', {"const": True}, **exactly(3))
    texts = all_texts(constraint_of(schema, BYTES, escapes))
    for text in texts:
        assert sorted(json.loads(text)) == sorted('é"\n'), text
    assert {tuple(json.loads(text)) for text in texts} == set(itertools.permutations('é"\n'))


BIG = [
    (named("^[0-9]{4}$", {"type": "integer"}, minProperties=2), r"[0-9]{4}"),
    (named("^a+b$", {"type": "integer"}, minProperties=3), r"a+b"),
    (named("^(x[0-9]|[a-z]{3}.*)$", {"type": "integer"}, minProperties=12), r"(?s:x[0-9]|[a-z]{3}.*)"),
    (named("^(x|y[0-4]{2})$", {"type": "integer"}, minProperties=26, maxProperties=26), r"x|y[0-4]{2}"),
]


@pytest.mark.parametrize("case", range(len(BIG)))
def test_no_row_of_a_large_language_of_names_is_without_a_token(case: int) -> None:
    schema, pattern = BIG[case]
    constraint = constraint_of(schema, BYTES)
    for seed in range(4):
        draw, state, text = random.Random(seed), constraint.start(), b""
        while not constraint.may_end(state):
            tokens = [t for t in constraint.allowed(state).listed(BYTES.size).tolist() if t]
            assert tokens, text
            # Names that have come are begun again, as far as they may be; numbers are short.
            again = [t for t in tokens if b'"' + name_begun(text) + BYTES.token_bytes[t] in text]
            ends = [t for t in tokens if chr(t - 1) in '",:}']
            token = draw.choice(ends or again or tokens) if draw.random() < 0.9 else draw.choice(tokens)
            text += BYTES.token_bytes[token]
            state = constraint.advance(state, token)
            assert len(text) < 4000
        pairs = json.loads(text, object_pairs_hook=list)
        assert schema["minProperties"] <= len(dict(pairs)), text
        assert all(re.fullmatch(pattern, name) for name, _ in pairs)


def name_begun(text: bytes) -> bytes:
    return text[text.rindex(b'"') + 1 :] if b'"' in text else b""


@pytest.mark.parametrize("names", [["a", "bb", "b"], ["x"]])
def test_more_members_than_names_are_refused(names: list[str]) -> None:
    for limits in ({"propertyNames": {"enum": names}}, named(f"^({'|'.join(names)})$")):
        schema = {"type": "object", **limits, "minProperties": len(names) + 1}
        with pytest.raises(UnsupportedSchema, match="No JSON value satisfies"):
            processors.load(("json", {"schema": schema}), tokenizer=BYTES)


NAME_PATTERNS = ["^[ab]$", "^a?b$", "^(aa|b)$", "a", "b$", "^.$", "^é", "^(a|ab|abb)$"]
SEEDS = [*range(6), *[pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(6, 100)]]
FINITE = ["a", "b", "aa", "ab", "abb", "é", "ba"]


def random_object(draw: random.Random) -> dict[str, Any]:
    """Objects over a few names, with what could make a name necessary."""
    values: list[Any] = [True, True, {"const": True}, {"const": False}, {"type": "boolean"}]

    def part(depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for keyword in draw.sample(["patterns", "names", "least", "most", "required", "rest", "branches"], 3):
            if keyword == "patterns":
                patterns = draw.sample(NAME_PATTERNS, draw.randint(1, 2))
                found["patternProperties"] = {pattern: draw.choice(values) for pattern in patterns}
            elif keyword == "names":
                found["propertyNames"] = draw.choice([{"pattern": draw.choice(NAME_PATTERNS)}, {"maxLength": 1}])
            elif keyword == "least":
                found["minProperties"] = draw.randint(1, 3)
            elif keyword == "most":
                found["maxProperties"] = draw.randint(1, 3)
            elif keyword == "required":
                found["required"] = draw.sample(FINITE, 1)
            elif keyword == "rest":
                found["additionalProperties"] = draw.choice(values)
            elif depth:
                kind = draw.choice(["oneOf", "anyOf", "allOf", "not"])
                found[kind] = part(depth - 1) if kind == "not" else [part(depth - 1) for _ in range(2)]
        return found

    names = draw.sample(FINITE, draw.randint(1, 4))
    every = {"propertyNames": {"enum": names}, "additionalProperties": {"type": "boolean"}, "maxProperties": 3}
    return {"type": "object", "allOf": [every, part(1)]}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_place_in_a_random_object_leads_to_an_end(seed: int) -> None:
    draw, satisfiable = random.Random(seed), 0
    for _ in range(10):
        schema = random_object(draw)
        try:
            constraint = constraint_of(schema, BYTES)
        except UnsupportedSchema:
            continue
        if not constraint.schema.satisfiable:
            continue
        satisfiable += 1
        ahead: dict[Any, list[Any]] = {}
        pending = [constraint.start()]
        while pending:
            state = pending.pop()
            if state not in ahead:
                tokens = [token for token in constraint.allowed(state).listed(BYTES.size).tolist() if token]
                ahead[state] = [constraint.advance(state, token) for token in tokens]
                assert None not in ahead[state], schema
                pending += ahead[state]
        # All places from which an end is reached.
        living = {state for state in ahead if constraint.may_end(state)}
        for _ in ahead:
            more = {state for state, reached in ahead.items() if state not in living and living.intersection(reached)}
            if not more:
                break
            living |= more
        assert living == set(ahead), schema
        assert all(constraint.least_tokens(state) is not None for state in ahead), schema
    assert satisfiable


@pytest.mark.extras
@pytest.mark.parametrize("seed", SEEDS)
def test_random_objects_are_what_jsonschema_says(seed: int) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")
    draw, judged = random.Random(seed), [0, 0]
    for _ in range(12):
        schema = random_object(draw)
        judge = jsonschema.Draft202012Validator(schema)
        names = schema["allOf"][0]["propertyNames"]["enum"]
        machine = compile_schema(schema, SchemaOptions(Whitespace("compact")))
        for count in range(min(len(names), 3) + 1):
            for some in itertools.permutations(names, count):
                for each in itertools.product([True, False], repeat=count):
                    value = dict(zip(some, each, strict=True))
                    assert accepts(machine, json.dumps(value, separators=(",", ":"))) == judge.is_valid(value), schema
                    judged[judge.is_valid(value)] += 1
        for _ in range(10 if machine.satisfiable else 0):
            text = random_text(machine, draw)
            assert text is None or judge.is_valid(json.loads(text)), (schema, text)
    assert min(judged)


def test_bounds_count_with_names_that_are_left_only_far_away() -> None:
    constraint = constraint_of(named("^([0-9]{2}|b(c{80}){0,20})$", {"const": True}, minProperties=22), BYTES)
    text = b"{" + b"".join(b'"b%b":true,' % (b"c" * 80 * size) for size in range(20)) + b'"'
    state = constraint.schema.read(constraint.start(), text)
    assert state is not None
    after = constraint.least_after(state)[1]
    assert after.max() > 1600 > (constraint.least_tokens(state) or 0) > after.min()
    assert after.max() <= constraint.most_after(state)
