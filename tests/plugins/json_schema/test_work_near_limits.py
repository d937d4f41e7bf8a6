"""What a mask near a token limit costs: bounded, whatever the schema, and the same whatever was visited before."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary
from logitloom.constraints import UNKNOWN
from logitloom.constraints.memory import ConstraintMemory, StateNode
from logitloom.constraints.token_limit import row_limits
from logitloom.errors import GenerationError
from logitloom_plugins.combinators import FinishWithin
from logitloom_plugins.json_schema.folds.completion import content_texts, member_texts, position_texts, value_texts
from logitloom_plugins.json_schema.folds.completion.local_texts import LocalTexts
from logitloom_plugins.json_schema.folds.completion.position_texts import Completions
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.schema_automaton import SchemaAutomaton
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.grammar.layout import Whitespace
from logitloom_plugins.json_schema.grammar.satisfiability import Satisfiability
from logitloom_plugins.json_schema.tokens import content_walk, position_bounds
from logitloom_plugins.json_schema.tokens import token_distances as distances
from logitloom_plugins.json_schema.tokens.schema_constraint import SchemaConstraint
from tests.cases import EXHAUSTIVE
from tests.core.automata.vocabularies import tekken

_DICE = random.Random(0)
_SYLLABLES = [a + b for a in "bcdfg" for b in "aeiou"]
NAMES = list(dict.fromkeys("".join(_DICE.choices(_SYLLABLES, k=3)) for _ in range(40)))
WORDS = Vocabulary(
    [
        b"",
        *[bytes([byte]) for byte in range(256)],
        *[syllable.encode() for syllable in _SYLLABLES],
        *dict.fromkeys("".join(_DICE.choices(_SYLLABLES, k=2)).encode() for _ in range(1000)),
        b'":',
        b'{"',
        b',"',
        b'"a',
    ],
    eos=[0],
)
#: Schemas of which a mask near a limit would take long.
HOSTILE: dict[str, Any] = {
    "many required names": {"type": "object", "required": NAMES},
    "many declared names": {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in NAMES},
        "required": NAMES,
    },
    "alternatives": {
        "type": "object",
        "anyOf": [{"required": NAMES[at : at + 4], "properties": {NAMES[at]: {"const": at}}} for at in range(0, 9, 3)],
    },
    "counted": {"type": "object", "minProperties": 20, "additionalProperties": {"type": "integer"}},
    "counted patterns": {
        "type": "object",
        "minProperties": 12,
        "patternProperties": {"^[a-c]{1,4}$": {"type": "integer"}},
        "additionalProperties": False,
    },
    "pattern": {"type": "string", "pattern": "^x[a-z]{40}.+y$"},
    "counted pattern": {"type": "string", "pattern": "^(ab|c)*$", "minLength": 50, "maxLength": 60},
    "different numbers": {"type": "array", "minItems": 20, "uniqueItems": True, "items": {"type": "integer"}},
    "different strings": {"type": "array", "minItems": 12, "uniqueItems": True, "items": {"type": "string"}},
    "different objects": {
        "type": "array",
        "minItems": 5,
        "uniqueItems": True,
        "items": {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
            "required": ["id", "name"],
        },
    },
    "different listed items": {"type": "array", "minItems": 11, "uniqueItems": True, "items": {"enum": NAMES[:12]}},
    "dependent names": {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in NAMES[:20]},
        "dependentRequired": {name: [NAMES[at + 1]] for at, name in enumerate(NAMES[:19])},
        "additionalProperties": False,
    },
    "branches": {
        "type": "object",
        "allOf": [
            {
                "if": {"properties": {name: {"const": True}}, "required": [name]},
                "then": {"required": [f"then {name}"]},
                "else": {"required": [f"else {name}"]},
            }
            for name in NAMES[:5]
        ],
    },
    "contained": {"type": "array", "allOf": [{"contains": {"const": name}} for name in NAMES[:12]]},
}


def constraint_of(schema: Any, vocabulary: Vocabulary = WORDS) -> SchemaConstraint:
    options = SchemaOptions(Whitespace("json_dumps", 2), "any")
    return SchemaConstraint(SchemaAutomaton(compile_schema(schema, options)), vocabulary)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.long
def test_a_part_of_a_bound_tells_which_tokens_a_limit_allows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a search leaves tokens out, the ids within a limit are found without the whole bound on what they need."""
    monkeypatch.setattr(distances, "_MOST_WORK", 2000)
    part, whole = constraint_of(HOSTILE[name]), constraint_of(HOSTILE[name])
    dice, found, state = random.Random(name), 0, part.start()
    for _ in range(10):
        within = {most: part.allowed_within(state, most) for most in (0, 2, 5, 20, 50, 100, 200, 500, 5000)}
        ids, needed = whole.least_after(state)
        for most, kept in within.items():
            if kept is not None:
                found += 1
                assert np.array_equal(kept.listed(WORDS.size), ids[needed <= most])
        state = part.advance(state, int(dice.choice(ids.tolist())))
        if state is None or part.may_end(state):
            break
    assert found


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_the_work_of_a_mask_is_bounded_and_texts_are_finished(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small bound, whatever was visited before, the same tokens are allowed, and one of them at every step."""
    bound = 1000
    monkeypatch.setattr(distances, "_MOST_WORK", bound)
    monkeypatch.setattr(distances, "_EIGHTHS_ELSEWHERE", 8)
    # No bound that is found in time spares the search of the first mask.
    monkeypatch.setattr(position_bounds, "_FEW_FOUND", 0)
    monkeypatch.setattr(position_bounds, "_MOST_SECONDS", 0.0)
    inner, other = constraint_of(HOSTILE[name]), constraint_of(HOSTILE[name])
    least = inner.least_tokens(inner.start())
    assert least is not None
    limited = FinishWithin(inner, least + 3)
    dice, listed, cut = random.Random(name), [], 0
    state, taken = limited.start(), []
    # The completion of the text is found, whatever that takes.
    most = 150_000
    while True:
        row = limited.row(state).tolist()
        assert row, WORDS.decode(taken)
        counted = inner.schema.completions.work
        assert counted <= bound + most
        cut += counted >= bound
        at = inner.start()
        for each in taken:
            at = inner.advance(at, each)  # type: ignore[assignment]
        listed.append(inner.least_after(at))
        token = dice.choice(row)
        if token == 0:
            break
        state = limited.advance(state, token)
        taken.append(token)
    assert len(taken) < least + 3
    assert cut
    json.loads(WORDS.decode(taken))
    # From the end, in a memory that has visited nothing, or what comes later.
    states: list[Any] = [other.start()]
    for token in taken:
        states.append(other.advance(states[-1], token))
    for at in range(len(states) - 1, -1, -3):
        if at % 2:
            other.forget()
        ids, needed = other.least_after(states[at])
        assert np.array_equal(ids, listed[at][0])
        assert np.array_equal(needed, listed[at][1])


def test_positions_in_strings_are_counted_once_per_state(monkeypatch: pytest.MonkeyPatch) -> None:
    constraint = constraint_of({"type": "string", "pattern": "a.+"})
    state: Any = constraint.start()
    for byte in b'"xa':
        state = constraint.advance(state, 1 + byte)
    read, follow = Counter[str](), Machine.read

    def counting(self: Machine, position: Any, text: bytes) -> Any:
        read["calls"] += 1
        return follow(self, position, text)

    monkeypatch.setattr(Machine, "read", counting)
    ids, needed = constraint.least_after(state)
    assert len(ids) > 500
    assert needed.max() <= 5
    assert read["calls"] < 20


def counted_values(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Under ``values`` for how many constraints a short value has been looked for."""
    found, find = Counter[str](), value_texts._find

    def counted(texts: Any, demand: Any, before: Any) -> Any:
        found["values"] += 1
        return find(texts, demand, before)

    monkeypatch.setattr(value_texts, "_find", counted)
    return found


def test_short_values_of_members_that_are_not_asked_for_are_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {name: {"type": "object", "required": [name], "properties": {name: {"minimum": 7}}} for name in NAMES}
    schema = {"type": "object", "properties": others, "anyOf": [{"required": [NAMES[3]]}, {"required": ["other"]}]}
    found = counted_values(monkeypatch)
    constraint = constraint_of(schema)
    text = constraint.schema.completion(constraint.start())
    assert json.loads(text or b"").keys() == {"other"}
    assert found["values"] < 10


def test_no_object_is_written_for_a_truth_vector_that_a_shorter_value_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """``0`` breaks the schema of ``m``, which is shorter than any object that breaks it."""
    found = counted_values(monkeypatch)
    inner: dict[str, Any] = {"type": "integer"}
    for name in NAMES[:12]:
        inner = {"type": "object", "properties": {name: inner, "other": {"type": "array", "items": inner}}}
    branches = [{"properties": {"m": inner}, "required": ["tag"]}, {"properties": {"m": {"type": "boolean"}}}]
    automaton = constraint_of({"type": "object", "oneOf": branches, "required": ["m"]}).schema
    assert json.loads(automaton.completion(automaton.start()) or b"") == {"m": True}
    assert found["values"] < 6


def test_short_values_of_members_with_equal_schemas_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = counted_values(monkeypatch)
    members = {name: {"description": f"This is {name}.", "type": "integer", "minimum": 7} for name in NAMES}
    constraint = constraint_of({"type": "object", "properties": members, "required": NAMES[:20]})
    assert constraint.most_after(constraint.start()) < UNKNOWN
    assert json.loads(constraint.schema.completion(constraint.start()) or b"") == dict.fromkeys(NAMES[:20], 7)
    assert found["values"] < 10


def test_of_values_that_are_compared_with_very_many_others_there_is_no_bound() -> None:
    """The number of truth vectors of a value times their size would grow with the square of the number of others."""
    constraint = constraint_of({"enum": [{"id": n, "name": f"n{n}"} for n in range(400)]})
    state = constraint.advance(constraint.start(), 1 + ord("{"))
    assert state is not None
    assert min(constraint.most_after(state) for _ in range(20)) == UNKNOWN
    ids, needed = constraint.least_after(state)
    assert len(ids)
    assert constraint.least_tokens(state) == 1 + needed.min()


def test_members_that_make_no_difference_to_a_truth_vector_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member with a short name may break one of two branches, and no optional member of its value makes it hold."""
    others = {name: {"type": "object", "minProperties": 1} for name in NAMES}
    values = [
        {"type": "object", "properties": {**others, "kind": {"const": kind}}, "required": ["kind", "number"]}
        for kind in "ab"
    ]
    tags = ["a" * 40, "b" * 40]
    branches = [
        {"properties": {"m": value, "tag": {"const": tag}}, "required": ["tag"]}
        for value, tag in zip(values, tags, strict=True)
    ]
    found, followed, members = counted_values(monkeypatch), Counter[str](), member_texts._members

    def following(*arguments: Any) -> Any:
        followed["places"] += 1
        return members(*arguments)

    monkeypatch.setattr(member_texts, "_members", following)
    automaton = constraint_of({"type": "object", "oneOf": branches}).schema
    assert json.loads(automaton.completion(automaton.start()) or b"") == {"tag": tags[0]}
    assert found["values"] < 20
    assert followed["places"] < 20


def test_strings_in_items_that_cannot_come_again_are_walked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may come is found for all tokens, with few completions, whatever the items before hold."""
    constraint = constraint_of({"type": "array", "uniqueItems": True, "items": {"type": "object"}})
    found, completed = Counter[str](), []
    complete = Completions._complete

    def counted(completions: Completions, position: Any, item: Any = None) -> bytes | None:
        found["completions"] += 1
        return complete(completions, position, item)

    monkeypatch.setattr(Completions, "_complete", counted)
    for items in (b"", b'{}, {"c": 1}, ', b'{"c": "ab"}, {"c": {}}, '):
        state: Any = constraint.start()
        for byte in b"[" + items + b'{"b": "':
            state = constraint.advance(state, 1 + byte)
        found.clear()
        ids, needed = constraint.least_after(state)
        assert np.array_equal(ids, constraint.allowed(state).listed(constraint.vocab_size))
        completed.append(needed.tolist())
        assert found["completions"] < 40
        assert constraint.schema.completions.work < distances._MOST_WORK // 4
        for token in ids[::97].tolist():
            assert constraint.least_tokens(constraint.advance(state, token)) == needed[ids == token]
    assert completed[0] == completed[1] == completed[2]


#: Objects in which no name may come twice.
JUDGED: dict[str, Any] = {
    "patterns": {"oneOf": [{"patternProperties": {"a": {"multipleOf": n, "maximum": 10 * n}}} for n in (2, 3, 5)]},
    "counted": {"minProperties": 3, "additionalProperties": {"type": "null"}},
    "required": {"minProperties": 3, "required": ["c", "ab"], "additionalProperties": {"type": "null"}},
    "some value is wrong": {"not": {"additionalProperties": {"type": ["integer", "object"]}}, "maxProperties": 4},
    "listed or not": {
        "anyOf": [
            {"properties": {"Ab": {"type": "null"}, "cab": {}}, "additionalProperties": False},
            {"patternProperties": {"^[a-c]+$": {"const": 0}}, "minProperties": 2, "additionalProperties": False},
        ]
    },
    "few names": {"patternProperties": {"^[ab]{1,2}$": {"enum": [1, "a"]}}, "minProperties": 3, "propertyNames":
                  {"pattern": "^[ab]"}, "additionalProperties": False},
    "names of a length": {"patternProperties": {"^[a-c]{3,4}$": {"type": "integer"}}, "minProperties": 4,
                          "additionalProperties": False},
    "listed names": {"propertyNames": {"enum": ["a", "ab", "ba", "cccc"]}, "minProperties": 3},
    "names that only escapes write": {"patternProperties": {'^["\\\\]{1,2}$': {"const": 0}}, "minProperties": 4,
                                      "additionalProperties": False},
    "few short names": {"patternProperties": {"^[ab]$": {"const": 0}, "^c": {"const": "a long value"}},
                        "minProperties": 3, "additionalProperties": False},
}  # fmt: skip


@pytest.mark.parametrize("name", JUDGED)
@pytest.mark.parametrize("escapes", ["any", "ascii"])
@pytest.mark.long
def test_names_that_make_no_difference_are_counted_together(
    name: str, escapes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers are those that are found if each name is looked at alone."""
    words = Vocabulary(
        [
            b"",
            *[bytes([byte]) for byte in range(256)],
            b"ab",
            b'a":',
            b"\\u00",
            b"b\xc3",
            b'b":0',
            b'c":1}',
            b',"a',
            b"ca",
        ],
        eos=[0],
    )
    monkeypatch.setattr(distances, "_MOST_WORK", 1 << 30)
    options = SchemaOptions(Whitespace("compact", 2), escapes)
    schema = {"type": "object", **JUDGED[name]}
    together, alone = (SchemaConstraint(SchemaAutomaton(compile_schema(schema, options)), words) for _ in range(2))
    dice = random.Random(name)
    for _ in range(4 if EXHAUSTIVE else 1):
        state: Any = together.start()
        for _ in range(12):
            ids, needed = together.least_after(state)
            with monkeypatch.context() as patch:
                patch.setattr(Completions, "name_matters", lambda completions, position: True)
                expected = alone.least_after(state)
            assert np.array_equal(ids, expected[0])
            assert np.array_equal(needed, expected[1])
            if not len(ids):
                break
            likely = [token for token in ids.tolist() if words.token_bytes[token].isascii()]
            state = together.advance(state, dice.choice(likely or ids.tolist()))


def test_names_that_make_no_difference_are_walked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    constraint = constraint_of({"type": "object", **JUDGED["patterns"]})
    found, complete = Counter[str](), Completions._complete

    def counted(completions: Completions, position: Any, item: Any = None) -> bytes | None:
        found["completions"] += 1
        return complete(completions, position, item)

    monkeypatch.setattr(Completions, "_complete", counted)
    state: Any = constraint.start()
    for byte in b'{"xyz':
        state = constraint.advance(state, 1 + byte)
    found.clear()
    ids, _ = constraint.least_after(state)
    assert np.array_equal(ids, constraint.allowed(state).listed(constraint.vocab_size))
    assert found["completions"] < 40
    assert constraint.schema.completions.work < distances._MOST_WORK // 2


@pytest.mark.parametrize(
    ("schema", "begun"),
    [
        ({"items": {"type": "object"}}, b'[{"b": "ab"}, {"b": "cd"}, {"b": "'),
        ({"items": {"type": "string"}, "minItems": 4}, b'["ab", "cd", "b'),
        ({"items": {"type": ["string", "integer"], "maxLength": 9}, "minItems": 6}, b'["ab", 1, "cd", "b'),
        ({"items": {"required": ["a"], "type": "object"}, "minItems": 6}, b'[{"a": 1}, {"b": 3, "a": "b'),
    ],
    ids=["objects", "further strings", "further values", "further objects"],
)
def test_strings_with_which_no_item_comes_again_are_walked_together(
    schema: Any, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that begin like a string of an earlier item, or like one that may be chosen, are looked at alone."""
    constraint = constraint_of({"type": "array", "uniqueItems": True, **schema})
    walks, reached = Counter[str](), content_walk.ContentWalk.reached

    def counted(*arguments: Any) -> Any:
        walks["calls"] += 1
        return reached(*arguments)

    monkeypatch.setattr(content_walk.ContentWalk, "reached", counted)
    state: Any = constraint.start()
    for byte in begun:
        state = constraint.advance(state, 1 + byte)
    ids, needed = constraint.least_after(state)
    assert walks["calls"] < 5
    assert np.array_equal(ids, constraint.allowed(state).listed(constraint.vocab_size))
    for token in ids[::37].tolist():
        assert constraint.least_tokens(constraint.advance(state, token)) == needed[ids == token]


@pytest.mark.parametrize("name", JUDGED)
@pytest.mark.long
def test_objects_in_which_no_name_comes_twice_have_bounds(name: str) -> None:
    """Whichever names have come."""
    constraint = constraint_of({"type": "object", **JUDGED[name]})
    dice = random.Random(name)
    for _ in range(4):
        state: Any = constraint.start()
        for _ in range(25):
            ids, needed = constraint.least_after(state)
            if not len(ids):
                break
            most = min(constraint.most_after(state) for _ in range(20))
            assert needed.max() <= most
            assert most < UNKNOWN
            likely = [token for token in ids.tolist() if WORDS.token_bytes[token].isascii()]
            state = constraint.advance(state, dice.choice(likely or ids.tolist()))


def test_the_bound_counts_a_further_member_where_a_required_name_has_run_out() -> None:
    schema = {
        "type": "object",
        "propertyNames": {"enum": ["w0", "w1w1", "w2w2"]},
        "additionalProperties": {"enum": ["a long value", "b"]},
        "required": ["w1w1"],
        "maxProperties": 5,
        "anyOf": [{"minProperties": 2}, {"patternProperties": {"^[a-m]": {"type": "string"}}, "required": ["a"]}],
    }
    constraint = constraint_of(schema)
    state: Any = constraint.start()
    for byte in b'{"w0":"b","w1w1":"b"':
        state = constraint.advance(state, 1 + byte)
    ids, needed = constraint.least_after(state)
    assert WORDS.token_bytes.index(b",") in ids
    assert needed.max() <= constraint.most_after(state) < UNKNOWN


def test_a_bound_that_takes_long_is_found_in_several_masks_and_the_same_tokens_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = {name: {"type": "object", "required": [name], "additionalProperties": False} for name in NAMES}
    schema = {"type": "object", "properties": values, "additionalProperties": False}
    slow, other = constraint_of(schema), constraint_of(schema)
    state = other.advance(other.start(), 1 + ord("{"))
    assert state is not None
    most = min(other.most_after(state) for _ in range(20))
    monkeypatch.setattr(position_bounds, "_FEW_FOUND", 3)
    monkeypatch.setattr(position_bounds, "_MOST_SECONDS", 0)
    assert slow.most_after(state) == UNKNOWN
    for left in (4, most, most + 2, 10_000):
        expected = ConstraintMemory(other).allowed_within(StateNode(state), left)
        found = ConstraintMemory(slow).allowed_within(StateNode(state), left)
        kept = [(each or other.allowed(state)).listed(WORDS.size) for each in (found, expected)]
        assert np.array_equal(*kept)
    assert [slow.most_after(state) for _ in range(100)][-1] == most


def test_strings_of_any_characters_are_walked_once_for_all_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)], b"ab", b'"}', b"\\n\xc3\xa9"], eos=[0])
    walked, walk = Counter[str](), content_walk.level_walk

    def counted(trie: Any, table: Any, pairs: Any, **options: Any) -> Any:
        walked["whole"] += pairs[0][0] == 0
        return walk(trie, table, pairs, **options)

    monkeypatch.setattr(content_walk, "level_walk", counted)
    found = []
    for least in range(3):
        constraint = constraint_of(
            {"type": "object", "properties": {"a": {"minLength": least}}, "required": ["a"]}, words
        )
        state: Any = constraint.start()
        for byte in b'{"a": "bc':
            state = constraint.advance(state, 1 + byte)
        found.append([each.tolist() for each in constraint.least_after(state)])
    assert walked["whole"] == 1
    assert found[0] == found[1] == found[2]


def test_strings_near_a_bound_on_their_length_are_walked_once_per_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tokens lead is the same after each number of characters, and the number is added."""
    words = Vocabulary(
        [b"", *[bytes([byte]) for byte in range(256)], b"ab", b'a"}', b"a\xc3\xa9b", b"abcdefgh"], eos=[0]
    )
    schema = {"type": "string", "pattern": "^[^x]*$", "minLength": 2, "maxLength": 9}
    walked, walk = Counter[str](), content_walk.level_walk

    def counted(trie: Any, table: Any, pairs: Any, **options: Any) -> Any:
        walked["whole"] += pairs[0][0] == 0
        return walk(trie, table, pairs, **options)

    monkeypatch.setattr(content_walk, "level_walk", counted)
    constraint = constraint_of(schema, words)
    state: Any = constraint.start()
    for byte in b'"\xc3\xa9bcdefg':
        state = constraint.advance(state, 1 + byte)
        ids, needed = constraint.least_after(state)
        after = [constraint.advance(state, token) for token in range(words.size)]
        assert ids.tolist() == [token for token, each in enumerate(after) if each is not None]
        assert ids.tolist() == constraint.allowed(state).listed(words.size).tolist()
        assert needed.tolist() == [constraint.least_tokens(each) for each in after if each is not None]
    # Between characters, and after the first byte of one.
    assert walked["whole"] == 2


ENDS = [text + end for text in (b"ab", b"x", b"", b"\xc3\xa9", b"\\n")
        for end in (b'"', b'",', b'", "', b'"}', b'":', b"\\", b"\\n", b'\\",', b"\\u", b"\\u00")]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "begun"),
    [
        ({"type": "object", "properties": {"a": {}, "b": {"const": 1}}, "required": ["a", "b"]}, b'{"a": "x'),
        ({"items": {"maxLength": 9}}, b'["x'),
        ({"type": "array", "items": {"type": "string", "pattern": "^x.*[a-c\n]$"}}, b'["x'),
        ({"type": "object"}, b'{"x'),
    ],
)
def test_what_ends_a_string_is_read_for_all_tokens_together(
    schema: Any, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each token with a quote or a backslash, and the number of tokens after each of them is right."""
    words = Vocabulary([*dict.fromkeys([b"", *[bytes([byte]) for byte in range(256)], *ENDS])], eos=[0])
    constraint = constraint_of(schema, words)
    state: Any = constraint.start()
    for byte in begun:
        state = constraint.advance(state, 1 + byte)
    read, follow = Counter[Any](), Machine.read

    def noted(self: Machine, position: Any, text: bytes) -> Any:
        read[position, text] += 1
        return follow(self, position, text)

    with monkeypatch.context() as patched:
        patched.setattr(Machine, "read", noted)
        ids, needed = constraint.least_after(state)
    # Tokens have at most two escapes, after each of which the string goes on.
    assert max(read.values()) <= 3
    assert np.array_equal(ids, constraint.allowed(state).listed(constraint.vocab_size))
    assert needed.tolist() == [constraint.least_tokens(constraint.advance(state, token)) for token in ids.tolist()]


@pytest.mark.extras
def test_strings_are_walked_together_before_single_positions_take_all_of_the_work() -> None:
    words = tekken()
    items = {"type": "string", "maxLength": 5}
    constraint = constraint_of({"type": "array", "minItems": 30, "uniqueItems": True, "items": items}, words)
    state = constraint.schema.read(constraint.start(), '["日本","'.encode())
    assert state is not None
    within = constraint.allowed_within(state, 78)
    assert within is not None
    # Of 72,054 tokens, most of which stay in the string.
    assert len(within.listed(words.size)) > 60_000


def test_alternatives_that_need_thousands_of_characters_leave_no_token_out() -> None:
    longer = {"properties": {"a": {"type": "string", "maxLength": 40_000}}}
    constraint = constraint_of({"type": "object", "anyOf": [longer, {"properties": {"b": {"type": "string"}}}]})
    state = constraint.schema.read(constraint.start(), b'{"a":"')
    assert state is not None
    ids, needed = constraint.least_after(state)
    assert np.array_equal(ids, constraint.allowed(state).listed(constraint.vocab_size))
    # The rest of an escape or of a character, a quote, and a bracket.
    assert needed.max() <= 7


def test_names_that_must_differ_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lists, several = Counter[str](), content_texts.several

    def counting(*arguments: Any) -> Any:
        lists["calls"] += 1
        return several(*arguments)

    monkeypatch.setattr(content_texts, "several", counting)
    schema = constraint_of({"type": "object", "minProperties": 100, "additionalProperties": {"type": "null"}}).schema
    text = schema.completion(schema.start()) or b""
    assert len(json.loads(text)) == 100
    assert lists["calls"] < 20


def test_a_search_goes_to_what_alternatives_require() -> None:
    """The shortest branch, though a search through all sets of names would not end."""
    branches = [
        {"required": NAMES[at : at + 12], "properties": {name: {"const": at} for name in NAMES[at : at + 12]}}
        for at in range(0, 12, 3)
    ]
    automaton = constraint_of({"type": "object", "anyOf": branches}).schema
    text = automaton.completion(automaton.start()) or b""
    assert text
    shortest = min(
        len(json.dumps(dict.fromkeys(branch["required"], at), separators=(",", ":")))
        for at, branch in zip(range(0, 12, 3), branches, strict=True)
    )
    assert len(text) == shortest


def test_a_search_goes_to_what_many_conditions_require() -> None:
    """Each of them asks for one of two members, so there are more sets of names than a search can look at."""
    conditions = [
        {
            "if": {"properties": {name: {"const": True}}, "required": [name]},
            "then": {"required": [f"t{at}"]},
            "else": {"required": [f"e{at}"]},
        }
        for at, name in enumerate(NAMES)
    ]
    automaton = constraint_of({"type": "object", "allOf": conditions}).schema
    text = automaton.completion(automaton.start()) or b""
    assert json.loads(text) == {f"e{at}": 0 for at in range(len(NAMES))}


def test_a_search_goes_to_items_that_match_what_an_array_contains() -> None:
    """One item may match several formulas, and there are more sets of formulas than a search can look at."""
    contained = [{"type": "string", "pattern": f"^{prefix}"} for prefix in "abcdefghijklmno"]
    contained += [{"type": "string", "pattern": f"{end}$"} for end in ("1", "22")]
    automaton = constraint_of({"type": "array", "allOf": [{"contains": each} for each in contained]}).schema
    text = automaton.completion(automaton.start()) or b""
    items = json.loads(text)
    assert all(any(re.search(each["pattern"], item) for item in items) for each in contained)
    assert len(text) == len(json.dumps(["a1", "b22", *"cdefghijklmno"], separators=(",", ":")))


def test_a_search_for_a_number_of_members_finds_them_among_many_patterns() -> None:
    """Though the search cannot look at all sets of three names."""
    patterns = {f"^a{n}_": {"type": "integer"} for n in range(100)}
    automaton = constraint_of({"type": "object", "patternProperties": patterns, "minProperties": 3}).schema
    text = automaton.completion(automaton.start()) or b""
    assert len(json.loads(text)) == 3
    assert len(text) == len(b'{"":0,"a":0,"b":0}')


@pytest.mark.parametrize(
    ("schema", "begun"),
    [
        ({"patternProperties": {f"^a{n}_": {"type": "integer"} for n in range(100)}, "minProperties": 3}, b'{"'),
        ({"anyOf": [{"properties": {f"a{n}": {"type": "string"}}, "required": [f"a{n}"]} for n in range(100)]}, b'{"a'),
    ],
    ids=["counted", "alternatives"],
)
def test_a_name_that_can_go_on_in_many_ways_takes_few_searches(
    schema: Any, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names that need more bytes than the shortest text are not followed."""
    automaton = constraint_of({"type": "object", **schema}).schema
    after = automaton.read(automaton.start(), begun)
    assert after is not None
    searches, search = Counter[str](), member_texts._search

    def counting(*arguments: Any) -> Any:
        searches["calls"] += 1
        return search(*arguments)

    monkeypatch.setattr(member_texts, "_search", counting)
    assert automaton.completion(after)
    assert searches["calls"] < 10


def test_a_token_that_leads_to_a_long_search_is_not_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a line break in the object a member must follow, and each member asks for the next one."""
    names = [f"name{n}" for n in range(200)]
    wanted = {name: [following] for name, following in zip(names, [*names[1:], names[0]], strict=True)}
    closed = {"properties": {name: {"type": "integer"} for name in names}, "additionalProperties": False}
    constraint = constraint_of({"type": "object", **closed, "dependentRequired": wanted})
    monkeypatch.setattr(distances, "_MOST_WORK", 20_000)
    followed, after = Counter[str](), member_texts._after

    def counting(*arguments: Any) -> Any:
        followed["calls"] += 1
        return after(*arguments)

    monkeypatch.setattr(member_texts, "_after", counting)
    opened = constraint.advance(constraint.start(), 1 + ord("{"))
    assert opened is not None
    found = [constraint.least_after(opened) for _ in range(2)]
    assert followed["calls"] < 100
    assert all(np.array_equal(first, second) for first, second in zip(*found, strict=True))


def test_an_array_whose_answers_are_decided_is_not_explored_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each subset of the listed values is another state of the array, and the first value decides all branches."""
    some, none = {"minItems": 1}, {"maxItems": 0}
    branches = [{"properties": {"a": a, "b": b}} for a, b in ((some, none), (none, some), (none, none))]
    listed = {"type": "array", "items": {"enum": NAMES[:12]}, "uniqueItems": True}
    automaton = constraint_of({"type": "object", "properties": {"a": listed, "b": listed}, "anyOf": branches}).schema
    within = automaton.read(automaton.start(), f'{{"a":["{NAMES[0]}"'.encode())
    assert within is not None
    visited, explored = Counter[str](), Satisfiability.explored

    def counting(*arguments: Any) -> Any:
        for frame in explored(*arguments):
            visited["frames"] += 1
            yield frame

    monkeypatch.setattr(Satisfiability, "explored", counting)
    assert automaton.completion(within) == b"]}"
    assert visited["frames"] < 3


def test_the_texts_along_a_completion_are_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind asks for other members. The search at its first byte tells how the text goes on from later bytes."""
    kinds = [f"{first}abecidofu{NAMES[place]}" for place, first in enumerate("bcdefghijklmnopq")]
    branches = [
        {"properties": {"kind": {"const": kind}, f"of {kind}": {"type": "integer"}}, "required": ["kind", f"of {kind}"]}
        for kind in kinds
    ]
    begun = [kind[:size].encode() for kind in kinds for size in range(3, 12)]
    vocabulary = Vocabulary([*WORDS.token_bytes, *begun], eos=[0])
    constraint = constraint_of({"type": "object", "oneOf": branches}, vocabulary)
    state: Any = constraint.start()
    for byte in b'{"kind":"':
        state = constraint.advance(state, 1 + byte)
    asked, of = Counter[str](), Completions.of

    def counting(self: Completions, position: Any) -> Any:
        asked["calls"] += 1
        return of(self, position)

    with monkeypatch.context() as patched:
        patched.setattr(Completions, "of", counting)
        ids, needed = constraint.least_after(state)
    assert {*begun} <= {vocabulary.token_bytes[token] for token in ids.tolist()}
    # A search at the quote, at the first byte of each kind, and within the escapes of these bytes.
    assert asked["calls"] < 4 * len(kinds)
    for token, tokens in zip(ids.tolist(), needed.tolist(), strict=True):
        assert tokens == constraint.least_tokens(constraint.advance(state, token))


def test_of_many_values_only_those_that_may_lead_to_the_shortest_text_are_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each value asks for another member."""
    kinds = [f"kind{n}" for n in range(100)]
    asked = [{"if": {"properties": {"kind": {"const": kind}}}, "then": {"required": [f"a {kind}"]}} for kind in kinds]
    properties = {"kind": {"enum": kinds}}
    automaton = constraint_of({"type": "object", "properties": properties, "required": ["kind"], "allOf": asked}).schema
    within = automaton.read(automaton.start(), b'{"kind":"kind')
    assert within is not None
    ends, after = Counter[str](), Completions._after

    def counting(self: Completions, *arguments: Any) -> Any:
        ends["calls"] += 1
        return after(self, *arguments)

    monkeypatch.setattr(Completions, "_after", counting)
    assert automaton.completion(within) == b'0","a kind0":0}'
    assert ends["calls"] < 20


def test_what_is_remembered_about_completions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that must differ make every position a new one."""
    most = 100_000
    monkeypatch.setattr(distances, "_MOST_WORK", 20_000)
    unbounded, bounded = constraint_of(HOSTILE["counted"]), constraint_of(HOSTILE["counted"])
    completions, state, dice = bounded.schema.completions, bounded.start(), random.Random(5)
    largest = 0
    for _ in range(60):
        monkeypatch.setattr(position_texts, "_MOST_REMEMBERED", most)
        ids, needed = bounded.least_after(state)
        largest = max(largest, completions.memory.remembered)
        monkeypatch.setattr(position_texts, "_MOST_REMEMBERED", 1 << 24)
        assert np.array_equal(unbounded.least_after(state)[1], needed)
        after = bounded.advance(state, int(dice.choice(ids.tolist())))
        assert after is not None
        state = after
    assert unbounded.schema.completions.memory.remembered > 2 * most
    assert largest < 2 * most


@pytest.mark.extras
@pytest.mark.parametrize(
    ("schema", "shortest"),
    [
        ({"type": "array", "minItems": 30_000}, [1] * 30_000),
        ({"type": "array", "minItems": 5000, "items": {"type": "object"}}, [{}] * 5000),
        ({"type": "array", "minItems": 300, "prefixItems": [{"const": "ab"}, {"type": "null"}]}, None),
        ({"type": "object", "required": ["a"], "properties": {"a": {"type": "array", "minItems": 9000}}}, None),
        ({"type": "array", "contains": {"minimum": 5}, "minContains": 3000, "minItems": 4000}, [5] * 3000 + [0] * 1000),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1000, "uniqueItems": True}, None),
    ],
)
def test_arrays_of_many_items_are_completed_and_counted(schema: Any, shortest: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")

    constraint = constraint_of(schema)
    state = constraint.start()
    text = constraint.schema.completion(state)
    assert text is not None
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    assert shortest is None or len(text) == len(json.dumps(shortest, separators=(",", ":")))
    least, after = constraint.least_tokens(state), constraint.schema.read(state, text[:7])
    assert least is not None
    assert after is not None
    assert constraint.schema.completion(after) == text[7:]
    assert least <= constraint.most_after(state) + 1
    with pytest.raises(GenerationError, match=f"needs about {least + 1}"):
        row_limits("json", constraint, [state], None, limited(least))
    assert row_limits("json", constraint, [state], None, limited(least + 1)) == [least + 1]


@pytest.mark.parametrize(
    "around",
    [
        lambda inner: {"type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": False},
        lambda inner: {"type": "object", "additionalProperties": inner, "minProperties": 1},
        lambda inner: {"type": "object", "additionalProperties": inner, "anyOf": [{"required": [n]} for n in "ab"]},
        lambda inner: {"type": "array", "items": inner, "minItems": 1},
    ],
    ids=["object", "counted", "alternatives", "array"],
)  # fmt: skip
@pytest.mark.long
def test_values_are_completed_however_deep_they_are(around: Any) -> None:
    schema: Any = {"const": 1}
    for _ in range(300):
        schema = around(schema)
    constraint = constraint_of(schema)
    state = constraint.start()
    least = constraint.least_tokens(state)
    assert least is not None
    assert row_limits("json", constraint, [state], None, limited(least + 1)) == [least + 1]
    text = constraint.schema.completion(state)
    assert text is not None
    after = constraint.schema.read(state, text[:-150])
    assert after is not None
    ids, needed = constraint.least_after(after)
    assert needed[ids == 1 + text[-150]] < UNKNOWN


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 10**7},
        {"type": "string", "minLength": 10**11},
        {"type": "object", "properties": {"a": {"type": "string", "minLength": 10**7}}, "required": ["a"]},
        {"type": "array", "minItems": 1, "items": {"type": "array", "minItems": 10**7}},
    ],
    ids=["array", "string", "member", "item"],
)
def test_what_is_unknown_about_a_limit_is_said(schema: Any) -> None:
    constraint = constraint_of(schema)
    with pytest.warns(UserWarning, match="No short text of the JSON Schema"):
        assert row_limits("json", constraint, [constraint.start()], None, limited(500)) is None


def test_objects_without_a_short_end_have_no_bound() -> None:
    """Where other types may come instead, the text has an end within the limit."""
    long = {"type": "string", "minLength": 10**7}
    constraint = constraint_of({"properties": {"a": long}, "required": ["a"]})
    assert row_limits("json", constraint, [constraint.start()], None, limited(500)) == [500]
    ids, _ = constraint.least_after(constraint.start())
    assert not {token for token in ids.tolist() if WORDS.token_bytes[token][:1] == b"{"} & within(constraint, 500)


def within(constraint: SchemaConstraint, left: int) -> set[int]:
    ids, needed = constraint.least_after(constraint.start())
    return set(ids[needed < left].tolist())


def limited(tokens: int) -> Context:
    blank = np.zeros((1, WORDS.size), dtype=np.float32)
    return Context.start(blank, vocabulary=WORDS, prompt=[[1]]).with_fields(max_new_tokens=tokens)


@pytest.mark.parametrize(
    ("schema", "count"),
    [
        ({"properties": {f"p{n}": {"type": "string"} for n in range(60)}, "additionalProperties": False}, 20),
        ({"patternProperties": {"^a": {"type": "integer"}, "b$": {"type": ["integer", "string"]}, "^[a-z]{1,4}$": {}},
          "additionalProperties": False}, 50),
        ({"patternProperties": {"^[0-9]{1,2}$": {"type": "boolean"}, '^["\\\\]{1,2}$': {"enum": ["word", "b"]},
                                "^é?[0-9]$": {"type": "string"}}, "additionalProperties": False}, 20),
    ],
    ids=["declared", "patterns", "few names"],
)  # fmt: skip
def test_the_shortest_members_of_an_object_that_counts_them_are_chosen_without_a_search(
    schema: Any, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search looked at all sets of members that are as short: it gave up, or took a second."""
    pushed, push = Counter[str](), member_texts.heapq.heappush

    def counting(queue: Any, entry: Any) -> None:
        pushed["entries"] += 1
        push(queue, entry)

    monkeypatch.setattr(member_texts.heapq, "heappush", counting)
    constraint = constraint_of({"type": "object", "minProperties": count} | schema)
    state: Any = constraint.start()
    rest = constraint.schema.completions.of(constraint.schema.position(state))
    assert rest is not None
    assert len(json.loads(rest)) == count
    for byte in rest:
        assert constraint.least_tokens(state) is not None
        state = constraint.advance(state, 1 + byte)
    assert constraint.may_end(state)
    assert pushed["entries"] < 1000 * count


@pytest.mark.parametrize(
    "formulas",
    [
        {"dependentRequired": {"p1": ["p2"], "p5": ["p9"]}},
        {"anyOf": [{"required": ["p1"]}, {"required": ["p2", "p3"]}]},
        {"allOf": [{"not": {"required": [f"p{n}", f"p{n + 1}"]}} for n in range(5)]},
    ],
    ids=["dependent", "alternatives", "exclusive"],
)
def test_the_least_of_an_object_that_counts_its_members_is_known_beside_formulas(formulas: Any) -> None:
    """There are few members of the shortest size, and the search knows it."""
    names = {f"p{n}": {"type": "string"} for n in range(60)}
    schema = {"type": "object", "properties": names, "minProperties": 10, "additionalProperties": False, **formulas}
    constraint = constraint_of(schema)
    state: Any = constraint.start()
    rest = constraint.schema.completions.of(constraint.schema.position(state))
    assert rest is not None
    value = json.loads(rest)
    assert len(value) == 10
    # Ten names have two letters; of exclusive neighbours at most every second one comes.
    assert len(rest) <= len(json.dumps(value, separators=(",", ":")))
    assert sum(len(name) == 2 for name in value) == (7 if "allOf" in formulas else 10)


def test_no_bound_is_looked_for_where_names_can_run_out_beside_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    """With up to 100 members there are hundreds of frames, the ends of all of which would have to be found."""
    schema = {
        "type": "object",
        "propertyNames": {"pattern": "^....$"},
        "allOf": [{"not": {"patternProperties": {name: {"not": {"type": "string", "pattern": name.upper()}}}}}
                  for name in ("a", "b")],
        "maxProperties": 100,
        "minProperties": 1,
    }  # fmt: skip
    constraint = constraint_of(schema)
    state: Any = constraint.start()
    for byte in b'{"':
        state = constraint.advance(state, 1 + byte)
    asked, of = Counter[str](), LocalTexts.of

    def counting(texts: LocalTexts, *arguments: Any) -> Any:
        asked["texts"] += 1
        return of(texts, *arguments)

    monkeypatch.setattr(LocalTexts, "of", counting)
    assert min(constraint.most_after(state) for _ in range(40)) == UNKNOWN
    assert asked["texts"] < 50
