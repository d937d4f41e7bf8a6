"""Completions of JSON texts: always valid, counting down, and near the least number of tokens."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from logitloom import Vocabulary
from logitloom.constraints import UNKNOWN, ConstraintMemory
from logitloom_plugins.combinators import FinishWithin
from logitloom_plugins.json_schema.folds.completion import member_texts
from logitloom_plugins.json_schema.folds.schema_automaton import SchemaAutomaton
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.folds.text_reader import TextReader
from logitloom_plugins.json_schema.grammar import least_solution, objects
from logitloom_plugins.json_schema.grammar.layout import POLICIES, Whitespace
from logitloom_plugins.json_schema.tokens import near_bounds, position_bounds, token_distances
from logitloom_plugins.json_schema.tokens.schema_constraint import SchemaConstraint
from logitloom_plugins.json_schema.tokens.token_distances import TokenDistances
from logitloom_plugins.json_schema.tokens.written_at_once import begin_names, opened_at_once

NODE: Any = {
    "type": "object",
    "properties": {"v": {"type": "integer", "minimum": 10}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["v", "next"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, Any] = {
    "anything": True,
    "recursive": NODE,
    "objects alone": {"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": False},
    "required": {
        "properties": {"a": {"type": "integer"}, "bc": {"enum": ["xy", "x\n\"é"]}, "d": {"minLength": 3}},
        "required": ["bc", "d"],
        "type": "object",
    },
    "alternatives": {
        "oneOf": [
            {"type": "object", "properties": {"k": {"const": "a"}, "long": {"minItems": 3, "type": "array"}},
             "required": ["k", "long"]},
            {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"], "additionalProperties": False},
        ]
    },
    "dependent": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"pattern": "^[0-9]{3}-[a-f]+$", "type": "string"}},
        "dependentRequired": {"a": ["b"]},
    },
    "counted": {"type": "object", "minProperties": 3, "additionalProperties": {"type": "null"}},
    "counted kinds": {"type": "object", "properties": {"b": {"type": "null"}, "aa": {}}, "required": ["x1", "aa"],
                      "patternProperties": {"^[01]{1,2}$": {"type": "boolean"}, "^x": {"type": "integer"}},
                      "minProperties": 7, "additionalProperties": False},
    "counted declared": {"type": "object", "properties": {name * 2: {"type": "null"} for name in "abcdefghij"},
                         "minProperties": 6, "additionalProperties": False},
    "different": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True},
    "many different": {"type": "array", "items": {"type": "integer"}, "minItems": 14, "uniqueItems": True},
    "different words": {"type": "array", "items": {"pattern": "^[ab]{1,3}$", "type": "string"}, "minItems": 9,
                        "uniqueItems": True},
    "different in lists": {"type": "array", "minItems": 2, "items": {"type": "array", "minItems": 3,
                           "uniqueItems": True, "items": {"type": ["integer", "null"]}}},
    "different objects": {"type": "array", "uniqueItems": True, "minItems": 1, "items": {"type": "object",
                          "properties": {"a": {"type": "string"}, "b": {"type": "array", "uniqueItems": True}}}},
    "different pairs": {"type": "array", "uniqueItems": True, "minItems": 2,
                        "items": {"type": ["array", "null", "boolean"], "items": {"type": "string"}, "maxItems": 2}},
    "listed objects": {"type": "array", "uniqueItems": True, "minItems": 4, "items": {"type": "object", "properties": {
                       "a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["b"]}},
    "many contained": {"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 10}, "minContains": 3,
                       "minItems": 5},
    "some contained": {"type": "array", "items": {"type": "integer"}, "contains": {"maximum": 4}, "minContains": 2,
                       "maxContains": 3, "minItems": 6, "maxItems": 7},
    "lengths": {"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 4}, "minItems": 1},
    "bounded strings": {"type": "object", "required": ["a", "b", "c"], "additionalProperties": False, "properties": {
                        "a": {"type": "string", "minLength": 2, "maxLength": 30}, "b": {"type": "string"},
                        "c": {"pattern": "^(ab|[cé])*$", "type": "string", "minLength": 3, "maxLength": 30}}},
    "contains": {"type": "array", "contains": {"const": "need"}, "maxItems": 4},
    "date": {"type": "string", "format": "date-time"},
    "patterns": {"type": "object", "patternProperties": {"^x[0-9]$": {"type": "integer"}}, "minProperties": 1,
                 "additionalProperties": False},
}  # fmt: skip


def automaton(name: str, policy: str = "compact", escapes: str = "any") -> SchemaAutomaton:
    return SchemaAutomaton(compile_schema(SCHEMAS[name], SchemaOptions(Whitespace(policy, 2), escapes)))


UNDECLARED: Any = {
    "type": "object",
    "properties": {
        "c": {"type": "integer"},
        "a": {"enum": ["x", 7]},
        "n": {"type": "object", "required": ["p", "é\n"]},
    },
    "additionalProperties": {"type": "array", "minItems": 1},
    "required": ["k", "n", "b", "c"],
}


@pytest.mark.parametrize("policy", POLICIES)
def test_required_members_are_written_without_a_search(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object without alternatives has one completion, which a search through its members finds, too."""
    options = SchemaOptions(Whitespace(policy, 2), "any")

    def completions() -> list[tuple[bytes, bytes | None]]:
        schema, dice, found = SchemaAutomaton(compile_schema(UNDECLARED, options)), random.Random(policy), []
        for _ in range(30):
            state, text = schema.start(), b""
            for _ in range(20):
                rest = schema.completion(state)
                found.append((text, rest))
                ways = [ahead for ahead in (rest[:1] if rest else b"", b"k", b"z", b"1", b",", b'"', b" ")
                        if ahead and schema.read(state, ahead) is not None]  # fmt: skip
                if not ways:
                    break
                byte = dice.choice(ways)
                state, text = schema.read(state, byte), text + byte
        return found

    direct = completions()
    monkeypatch.setattr(member_texts, "required_members", lambda texts, frame: None)
    assert direct == completions()


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.long
def test_every_beginning_has_a_completion_that_counts_down(name: str, policy: str) -> None:
    schema = automaton(name, policy, random.Random(name).choice(["any", "minimal", "ascii"]))
    dice = random.Random(f"{name} {policy}")
    for _ in range(2):
        state, text = schema.start(), b""
        for _ in range(16):
            rest = schema.completion(state)
            assert rest is not None, text
            end = schema.read(state, rest) if rest else state
            assert end is not None, (text, rest)
            assert schema.accepts(end), (text, rest)
            json.loads(text + rest)
            if rest:
                size = dice.randrange(1, len(rest) + 1)
                ahead = schema.read(state, rest[:size])
                assert ahead is not None
                assert schema.completion(ahead) == rest[size:], (text, rest[:size])
            steps = [(byte, after) for byte in range(256) if (after := schema.step(state, byte)) is not None]
            if not steps:
                break
            byte, state = dice.choice(steps)
            text += bytes([byte])


@pytest.mark.parametrize(
    "begun", ["", '{\n  "a": {\n', '{\n  "a": {\n    "b', '{"k": {"l": [1, {', '{"k":{"l":[[2],[3']
)
def test_a_completion_repeats_no_name_and_no_item_and_is_found_without_reading(
    begun: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that come twice would be counted twice; each choice of a name or an item leaves out those that came."""
    inner = {"type": "object", "minProperties": 2, "additionalProperties": {"type": "array", "uniqueItems": True,
             "minItems": 3}, "patternProperties": {"^a": {"type": "integer"}}}  # fmt: skip
    schema = {"type": "object", "minProperties": 3, "additionalProperties": inner}
    schema_automaton = SchemaAutomaton(compile_schema(schema, SchemaOptions(Whitespace("json_dumps"))))
    state = schema_automaton.read(schema_automaton.start(), begun.encode()) if begun else schema_automaton.start()
    assert state is not None
    with monkeypatch.context() as patched:
        if state.items.frame is None:
            patched.setattr(TextReader, "read", None)
        rest = schema_automaton.completion(state)
    assert rest is not None
    end = schema_automaton.read(state, rest)
    assert end is not None
    assert schema_automaton.accepts(end)

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({name for name, _ in pairs}) == len(pairs)
        return dict(pairs)

    value = json.loads(begun + rest.decode(), object_pairs_hook=members)
    assert len(value) >= 3
    assert all(len(each) >= 2 for each in value.values())


def test_values_may_be_nested_deeply_in_alternatives_of_many_names() -> None:
    depth, names = 60, "abcdefghij"
    levels: dict[str, Any] = {str(depth): {"type": "integer"}}
    for level in range(depth):
        inner = {"$ref": f"#/$defs/{level + 1}"}
        required = [{"required": [name]} for name in names]
        levels[str(level)] = {"type": "object", "properties": dict.fromkeys(names, inner), "anyOf": required}
    schema = SchemaAutomaton(compile_schema({"$defs": levels, "$ref": "#/$defs/0"}))
    assert schema.completion(schema.start()) == b'{"a":' * depth + b"0" + b"}" * depth


#: What differs in an array, and how many items there are at least.
DIFFERENT: dict[str, tuple[Any, int]] = {
    "short strings": ({"type": "string", "maxLength": 5}, 30),
    "strings that need escapes": ({"type": "string", "pattern": '^["\\\\\n]{0,2}$'}, 7),
    "strings above ASCII": ({"type": "string", "pattern": "^[é東🙂]{1,2}$"}, 7),
    "numbers": ({"type": "number", "multipleOf": 0.5}, 25),
    "kinds": ({"enum": ["a", "b", 1, 2, 2.5, None, True, [1], {"a": 1}]}, 7),
    "alternatives": ({"anyOf": [{"type": "string", "pattern": "^x"}, {"type": "integer", "multipleOf": 3}]}, 20),
}


@pytest.mark.parametrize("escapes", ["any", "minimal", "ascii"])
@pytest.mark.parametrize("name", DIFFERENT)
@pytest.mark.long
def test_completions_of_different_items_count_down_at_every_byte(name: str, escapes: str) -> None:
    items, least = DIFFERENT[name]
    schema = SchemaAutomaton(
        compile_schema(
            {"type": "array", "items": items, "minItems": least, "uniqueItems": True},
            SchemaOptions(Whitespace("compact"), escapes),
        )
    )
    dice = random.Random(name)
    state, text = schema.start(), b""
    for _ in range(least):
        rest = schema.completion(state)
        assert rest is not None, text
        at = state
        for size in range(1, len(rest) + 1):
            at = schema.step(at, rest[size - 1])
            assert schema.completion(at) == rest[size:], (text, rest[:size])
        json.loads(text + rest)
        # Another byte than that of the completion, and then the completion up to the next item.
        steps = [(byte, after) for byte in range(256) if (after := schema.step(state, byte)) is not None]
        byte, state = dice.choice(steps)
        text += bytes([byte])
        rest = schema.completion(state) or b""
        ahead = rest[: rest.find(b",") + 1]
        state, text = (schema.read(state, ahead) if ahead else state), text + ahead


@pytest.mark.parametrize("escapes", ["any", "minimal", "ascii"])
@pytest.mark.parametrize("begun", [b"", b"u", b"u0", b"u00", b"ud", b"ud83d", b"ud83d\\", b"ud83d\\u", b"ud83d\\ud"])
def test_an_escape_goes_on_with_its_smallest_byte(begun: bytes, escapes: str) -> None:
    """Where the text before it does not end with an escape."""
    schema = SchemaAutomaton(compile_schema({"type": "object"}, SchemaOptions(Whitespace("compact"), escapes)))
    for before in (b'{"', b'{"a":"'):
        state = schema.read(schema.start(), before + b"\\" + begun)
        if state is not None:
            rest = schema.completion(state) or b""
            assert rest[0] == min(byte for byte in range(256) if schema.step(state, byte) is not None)


def words(name: str) -> Vocabulary:
    """Each byte, and pieces of texts that the schema accepts."""
    dice = random.Random(name)
    schema = automaton(name)
    text = schema.completion(schema.start()) or b""
    pieces = {text[at : at + dice.randrange(2, 6)] for at in range(0, len(text), 2)}
    extra = [b'":', b'{"', b'"}', b'",', b"00", b"ab", b"[]", b'""', b"a\xd7", b"\xd7\x99\xd7", *sorted(pieces)]
    return Vocabulary([b"", *[bytes([byte]) for byte in range(256)], *dict.fromkeys(extra)], eos=[0])


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("more", [0, 1, 4])
@pytest.mark.long
def test_texts_are_finished_within_each_number_of_tokens(name: str, more: int) -> None:
    inner = SchemaConstraint(automaton(name), words(name))
    least = inner.least_tokens(inner.start())
    assert least is not None
    limited = FinishWithin(inner, least + 1 + more)
    dice = random.Random(more)
    for _ in range(2):
        state, taken = limited.start(), []
        while True:
            row = limited.row(state).tolist()
            assert row, inner.vocabulary.decode(taken)
            token = dice.choice(row)
            if token == 0:
                break
            state = limited.advance(state, token)
            taken.append(token)
        assert len(taken) <= least + more
        json.loads(inner.vocabulary.decode(taken))


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize(("policy", "ways"), [("flexible", 1 << 12), ("json_dumps", 1 << 12), ("json_dumps", 0)])
@pytest.mark.long
def test_bounds_are_those_of_the_states_after_each_token_and_none_is_above_the_cheap_one(
    name: str, policy: str, ways: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the formulas of an object alone tell how far its end is, because it can go on in too many ways."""
    monkeypatch.setattr(near_bounds, "_MOST_WAYS", ways)
    monkeypatch.setattr(token_distances, "_MOST_WORK", 1 << 20)
    constraint = SchemaConstraint(automaton(name, policy), words(name))
    dice = random.Random(name)
    state: Any = constraint.start()
    for _ in range(12):
        ids, least = constraint.least_after(state)
        assert np.array_equal(ids, constraint.allowed(state).listed(constraint.vocab_size))
        if not len(ids):
            break
        assert least.max() <= constraint.most_after(state)
        for place in dice.sample(range(len(ids)), min(len(ids), 20)):
            after = constraint.advance(state, int(ids[place]))
            exact = constraint.least_tokens(after)
            assert exact == least[place]
        state = constraint.advance(state, int(dice.choice(ids.tolist())))


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("policy", ["json_dumps", "flexible"])
@pytest.mark.long
def test_masks_are_the_same_whichever_bound_is_enough(name: str, policy: str) -> None:
    """The bound that is read off the schema is asked for first, and a smaller one as the tokens left become fewer."""
    constraint, other = (SchemaConstraint(automaton(name, policy), words(name)) for _ in range(2))
    dice, memory = random.Random(name), ConstraintMemory(constraint)
    state: Any = constraint.start()
    for _ in range(12):
        ids, least = other.least_after(state)
        if not len(ids):
            break
        loose, node = constraint.most_after(state, UNKNOWN), memory.node(state)
        assert least.max() <= loose
        farthest = int(least.max())
        for left in (10_000, loose + 2, loose + 1, farthest + 2, farthest + 1, farthest // 2, 2, 1):
            found = memory.allowed_within(node, left) or constraint.allowed(state)
            assert np.array_equal(found.listed(constraint.vocab_size), ids[least <= left - 2])
        state = constraint.advance(state, int(dice.choice(ids.tolist())))


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("checks", [1, 3])
@pytest.mark.long
def test_a_bound_that_takes_several_masks_is_the_bound_that_is_found_at_once(
    name: str, checks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do the searches that were stopped for it change what other searches find."""
    whole = SchemaConstraint(automaton(name, "json_dumps"), words(name))
    parts = SchemaConstraint(automaton(name, "json_dumps"), words(name))
    standing, clock = SimpleNamespace(thread_time=lambda: 0.0), itertools.count()
    ticking = SimpleNamespace(thread_time=lambda: next(clock) * position_bounds._MOST_SECONDS / checks)
    monkeypatch.setattr(position_bounds, "_FEW_FOUND", 0)
    dice, stopped, known = random.Random(name), 0, 0
    one: Any = whole.start()
    other: Any = parts.start()
    for _ in range(5):
        with monkeypatch.context() as patched:
            patched.setattr(position_bounds, "time", standing)
            patched.setattr(least_solution, "time", standing)
            bound, (ids, least) = whole.most_after(one), whole.least_after(one)
        with monkeypatch.context() as patched:
            patched.setattr(position_bounds, "time", ticking)
            patched.setattr(least_solution, "time", ticking)
            while (found := parts.most_after(other)) == UNKNOWN != bound:
                stopped += 1
                assert stopped < 5000
                if stopped < 3:
                    assert np.array_equal(parts.least_after(other)[1], least)
        assert found == bound
        known += bound < UNKNOWN
        assert np.array_equal(parts.least_after(other)[1], least)
        if not len(ids):
            break
        token = int(dice.choice(ids.tolist()))
        one, other = whole.advance(one, token), parts.advance(other, token)
    assert known or name in ("different pairs", "listed objects")
    assert stopped or checks > 1 or not known


#: Arrays and objects whose values are more than one token in each layout.
LAID_OUT: dict[str, tuple[Any, Any]] = {
    "objects in an array": (
        {
            "type": "array",
            "minItems": 2,
            "maxItems": 3,
            "items": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
        },
        [{"id": "a"}, {"id": ""}, {"id": "b"}],
    ),
    "arrays in an object": (
        {
            "type": "object",
            "properties": {
                "a": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
                "b": {"const": [[1], 2]},
            },
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        {"a": [1, 2], "b": [[1], 2]},
    ),
    "different items": (
        {"type": "array", "uniqueItems": True, "minItems": 2, "items": {"type": "object", "required": ["z"]}},
        [{"z": 0}, {"z": 1}, {"z": [1]}],
    ),
    "alternatives": (
        {
            "type": "array",
            "prefixItems": [{"const": {"x": 1}}, {"enum": [{"y": [1]}, [{}]]}],
            "items": {"type": "object", "required": ["z"]},
            "minItems": 4,
        },
        [{"x": 1}, {"y": [1]}, {"z": 0}, {"z": None}, {"z": [1]}],
    ),
}


@pytest.mark.parametrize("name", LAID_OUT)
@pytest.mark.parametrize("indent", [None, 2, 4])
@pytest.mark.long
def test_no_token_of_a_laid_out_text_leads_beyond_the_bound(name: str, indent: int | None) -> None:
    schema, value = LAID_OUT[name]
    text = json.dumps(value, indent=indent).encode()
    # A line break with all its spaces is one token; a part of it leaves one to come.
    lines = [b"\n" + b" " * n for n in range(1, 17)] + [b" " * n for n in range(2, 17)]
    pieces = [b"", *[bytes([byte]) for byte in range(256)], *lines]
    machine = compile_schema(schema, SchemaOptions(Whitespace("json_dumps", 2), "any"))
    constraint = SchemaConstraint(SchemaAutomaton(machine), Vocabulary(pieces, eos=[0]))
    state: Any = constraint.start()
    for at, byte in enumerate(text):
        _, least = constraint.least_after(state)
        assert least.max(initial=0) <= constraint.most_after(state), text[:at]
        state = constraint.advance(state, pieces.index(bytes([byte])))


def fewest(constraint: SchemaConstraint, most: int) -> int:
    """The least number of tokens to an end, by breadth-first search."""
    level, seen = {constraint.start()}, {constraint.start()}
    for count in range(most + 1):
        if any(constraint.may_end(state) for state in level):
            return count
        found = set()
        for state in level:
            for token in constraint.allowed(state).listed(constraint.vocab_size).tolist():
                after = constraint.advance(state, token)
                if after is not None and after not in seen:
                    found.add(after)
        level = found
        seen |= found
    raise AssertionError("no end")


@pytest.mark.parametrize("name", ["anything", "recursive", "alternatives", "different", "contains", "lengths"])
def test_bounds_are_at_most_two_tokens_above_the_least(name: str) -> None:
    text = automaton(name).completion(automaton(name).start()) or b""
    needed = sorted({bytes([byte]) for byte in text + b'{}[]",:01nultre'})
    pieces = [text[at : at + 3] for at in range(0, len(text), 2)]
    vocabulary = Vocabulary([b"", *needed, *dict.fromkeys(pieces)], eos=[0])
    constraint = SchemaConstraint(automaton(name), vocabulary)
    least = constraint.least_tokens(constraint.start())
    assert least is not None
    assert 0 <= least - fewest(constraint, least) <= 2


def test_a_text_is_counted_alike_whatever_was_counted_before() -> None:
    constraint = SchemaConstraint(automaton("anything"), words("anything"))
    tokens, dice, text = set(constraint.vocabulary.token_bytes), random.Random(0), b""
    for _ in range(200):
        text = bytes(dice.choices(b'{"a",:12} ', k=dice.randint(0, 90))) + text[dice.randint(0, len(text)) :]
        fewest = [0]
        for begin in reversed(range(len(text))):
            ways = [
                left
                for left, size in zip(reversed(fewest), range(1, 24), strict=False)
                if text[begin : begin + size] in tokens
            ]
            fewest.append(1 + min(ways))
        assert constraint._masks.distances.farthest_end(text) == max(fewest)


#: Texts far shorter than an ordinary limit, and tokens that are left at the end of each.
FAR_FROM_LIMITS: dict[str, tuple[Any, Any]] = {
    "long strings": (
        {
            "type": "object",
            "properties": {name: {"type": "string", "minLength": 60, "maxLength": 100} for name in "abcd"},
            "required": [*"abcd"],
            "additionalProperties": False,
        },
        dict.fromkeys("abcd", "x y" * 25),
    ),
    "objects": (
        {
            "type": "array",
            "minItems": 8,
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "name": {"type": "string", "maxLength": 30}},
                "required": ["id", "name"],
            },
        },
        [{"id": 7 * n, "name": "of item" * n} for n in range(4)] * 2,
    ),
    "different numbers": (
        {"type": "array", "minItems": 20, "uniqueItems": True, "items": {"enum": [*range(21)]}},
        [*range(20, 0, -1)],
    ),
    "a counted pattern": (
        {
            "type": "string",
            "pattern": "^(a[b-y]?|b[c-y]{2}|c[d-y]{3}|d[e-y]{4}|z{9})*$",
            "minLength": 10,
            "maxLength": 90,
        },
        "axbcd" * 12,
    ),
}


@pytest.mark.parametrize("name", FAR_FROM_LIMITS)
def test_far_from_a_limit_no_token_is_looked_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, value = FAR_FROM_LIMITS[name]
    made = SchemaAutomaton(compile_schema(schema, SchemaOptions(Whitespace("compact"), "any")))
    constraint = SchemaConstraint(made, words("anything"))
    state: Any = constraint.start()
    least = constraint.least_tokens(state)
    assert least is not None
    searched = Counter[str]()
    monkeypatch.setattr(TokenDistances, "after", lambda *_: searched.update(["after"]))
    memory, left = ConstraintMemory(constraint), 3 * least
    for byte in json.dumps(value, separators=(",", ":")).encode():
        assert memory.mask_within(memory.node(state), left) is None
        state = constraint.advance(state, 1 + byte)
    assert constraint.may_end(state)
    assert not searched


@pytest.mark.parametrize(
    ("token", "opened"),
    [
        (b'": [{"a": {', {b"[{{", b"[{", b"["}),
        (b"[1, [", {b"[[", b"["}),
        # One after the other, none in the other.
        (b'{}, {"', {b"{"}),
        (b"{{", set()),
        # The first bracket of the name is in a string; or the token begins in a string, which the quote ends.
        (b'{"[": {', {b"{{", b"{", b"["}),
        (b'n"}, "a": [', {b"["}),
    ],
)
def test_the_brackets_that_a_token_opens_are_told(token: bytes, opened: set[bytes]) -> None:
    assert opened_at_once(Vocabulary([b"", token], eos=[0])) == opened


@pytest.mark.parametrize("token", [b'","', b'{"', b'"id', b'": "a, b'])
def test_no_token_begins_a_name_after_other_text(token: bytes) -> None:
    assert not begin_names(Vocabulary([b"", token], eos=[0]))


@pytest.mark.parametrize("token", [b'},"i', b'{ "i', b',""', b',\n "\n'])
def test_a_token_may_begin_a_name_after_other_text(token: bytes) -> None:
    assert begin_names(Vocabulary([b"", token], eos=[0]))


_ITEM = {"type": "object", "properties": {"id": {"const": "y" * 60}, "n": {"type": "null"}}}
_OPTIONAL_MEMBERS = {
    "first": {"type": "string", "maxLength": 3},
    "long": {"const": "x" * 60},
    "items": {"type": "array", "items": _ITEM},
    "last": {"type": "integer"},
}


def bound_of(constraint: SchemaConstraint, state: Any) -> int:
    """The cheap bound, of which a large schema has found all parts after some masks."""
    return min(constraint.most_after(state) for _ in range(20))


@pytest.mark.parametrize("more", [[], [b',"l', b'{"i']])
@pytest.mark.parametrize("others", [{}, {"additionalProperties": False}, {"required": ["last"]}])
def test_a_member_that_no_token_names_is_the_one_that_the_completion_writes(more: list[bytes], others: Any) -> None:
    """The cheap bound is no less than what any token needs, and knows no long members where none can have begun."""
    tokens = [bytes([byte]) for byte in range(256)] + [b'","', b'{"', b'"id', b'"long', b'": ', b'}, "', b'[{"', *more]
    vocabulary, options = Vocabulary([b"", *tokens], eos=[0]), SchemaOptions(Whitespace("json_dumps"), "any")
    schema = {"type": "object", "properties": _OPTIONAL_MEMBERS, **others}
    constraint = SchemaConstraint(SchemaAutomaton(compile_schema(schema, options)), vocabulary)
    dice = random.Random(1)
    for begun in (b"", b'{"first": "', b'{"items": [', b'{"items": [{"', b'{"last": 1', b'{"'):
        state: Any = constraint.start()
        for byte in begun:
            state = constraint.advance(state, 1 + byte)
        for _ in range(8):
            ids, least = constraint.least_after(state)
            if not len(ids):
                break
            assert least.max() <= bound_of(constraint, state) < UNKNOWN
            state = constraint.advance(state, int(dice.choice(ids)))
    state = constraint.start()
    for byte in b'{"first": "':
        state = constraint.advance(state, 1 + byte)
    assert (bound_of(constraint, state) > 60) == bool(more)


def test_the_cheap_bound_counts_a_name_that_the_schema_does_not_list_once() -> None:
    vocabulary = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    made = SchemaAutomaton(compile_schema(schema, SchemaOptions(Whitespace("compact"), "any")))
    constraint = SchemaConstraint(made, vocabulary)
    state: Any = constraint.start()
    for byte in b'{"a':
        state = constraint.advance(state, 1 + byte)
    # A backslash and "u" leave four digits, which a token each writes; then come '":0}'.
    _, least = constraint.least_after(state)
    assert least.max() <= bound_of(constraint, state) <= 5 + len(b'":0}') + 1


@pytest.mark.parametrize("many", [40, 160])
def test_the_cheap_bound_of_alternatives_looks_at_each_name_once(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at all combinations of members, of which there are as many as pairs of names."""
    names = [f"name{n}" for n in range(many)]
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in names},
        "dependentRequired": dict(zip(names, [[name] for name in names[1:]], strict=False)),
    }
    made = SchemaAutomaton(compile_schema(schema, SchemaOptions(Whitespace("compact"), "any")))
    constraint, looked_at = SchemaConstraint(made, words("anything")), Counter[str]()
    effects = objects.member_effects
    counting: Any = lambda *given: looked_at.update(["effects"]) or effects(*given)  # noqa: E731
    monkeypatch.setattr(objects, "member_effects", counting)
    assert bound_of(constraint, constraint.start()) < 1 << 30
    assert looked_at["effects"] < 4 * many


def test_the_cheap_bound_looks_at_what_is_near_in_a_large_schema() -> None:
    part = {"type": "object", "properties": {f"m{n}": {"type": "integer"} for n in range(9)}, "required": ["m1", "m7"]}
    schema = {"type": "object", "properties": {f"p{n}": {**part, "title": str(n)} for n in range(400)}}
    deep = {"$defs": {"n": {"anyOf": [{**part, "properties": {"n": {"$ref": "#/$defs/n"}}}, {"enum": ["a", "b"]}]}}}
    decided = {"if": {"properties": {"n": {"const": "b"}}}, "then": {"required": ["a long name", "another"]}}
    for each in (schema, {**deep, "$ref": "#/$defs/n", **decided}):
        made = SchemaAutomaton(compile_schema(each, SchemaOptions(Whitespace("flexible", 2), "any")))
        constraint = SchemaConstraint(made, words("anything"))
        dice = random.Random(1)
        state: Any = constraint.start()
        for _ in range(12):
            ids, least = constraint.least_after(state)
            if not len(ids):
                break
            assert least.max() <= bound_of(constraint, state) < UNKNOWN
            state = constraint.advance(state, int(dice.choice(ids)))
