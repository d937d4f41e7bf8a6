"""Strings of an array of different items: how far the end of such a string is, and which tokens are read for it."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from logitloom import Vocabulary
from logitloom.constraints import UNKNOWN
from logitloom_plugins.json_schema.folds.completion import strings_that_differ
from logitloom_plugins.json_schema.folds.completion.strings_that_differ import most_to_differ
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.schema_automaton import SchemaAutomaton
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from logitloom_plugins.json_schema.tokens.schema_constraint import SchemaConstraint
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import END_OF_CHARACTER
from tests.cases import each_once

_LETTERS = [bytes([byte]) for byte in range(256)]
_LONGER = [
    b'",',
    b'","',
    b'", "',
    b'"],',
    b'a",',
    b'a","',
    b'","a',
    b'"a"',
    b"ab",
    b'","a","',
    b'"},{"',
    b'":"',
    b'","a":',
]
WORDS = Vocabulary([b"", *_LETTERS, *_LONGER], eos=[0])
STRINGS: dict[str, dict[str, Any]] = {
    "any": {},
    "few characters": {"maxLength": 3},
    "many characters": {"minLength": 2, "maxLength": 12},
    "no upper bound": {"minLength": 4},
    "letters": {"pattern": "^[a-z]+$"},
    "letters of a length": {"pattern": "^[ab]+$", "maxLength": 4},
    "one letter": {"pattern": "^a*$"},
    "finite in part": {"pattern": "^(ab|cd.*)$"},
    "of one length": {"pattern": "^[0-9]{4}$"},
    "above ASCII": {"pattern": "^é+$"},
    "escaped": {"pattern": r"^[\"\\]+$"},
    "with a mark": {"pattern": "^[a-z]+@[A-Z]+$"},
    "addresses": {"format": "email"},
    "long addresses": {"format": "uri", "maxLength": 100},
    "none of some": {"not": {"enum": ["", "a", "b"]}},
}


def content_of(schema: dict[str, Any]) -> Content:
    machine: Machine = compile_schema({"type": "string", **schema})
    return machine.values.content(machine.values.of_type(machine.root, "string"))


def constraint_of(schema: Any) -> SchemaConstraint:
    return SchemaConstraint(SchemaAutomaton(compile_schema(schema)), WORDS)


@pytest.mark.parametrize("taken", [1, 3, 30])
@pytest.mark.parametrize("name", ["few characters", "letters", "letters of a length", "one letter", "of one length"])
def test_so_many_bytes_make_more_strings_than_are_taken_or_all(
    name: str, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the letters that a search tries; the strings are written out here."""
    monkeypatch.setattr(strings_that_differ, "_PLAIN", b"abc0")
    content = content_of(STRINGS[name])
    most = most_to_differ(content, taken)
    assert most is not None
    most -= END_OF_CHARACTER
    automaton = content.automaton
    tried = [
        b"".join(letters) for size in range(5) for letters in itertools.product((b"a", b"b", b"c", b"0"), repeat=size)
    ]
    short = [letters for letters in tried if len(letters) < 3]
    for begun in short:
        state, count, more = automaton.start, 0, set[bytes]()
        for byte in begun:
            state = int(automaton.next[state, automaton.byte_class[byte]]) if state >= 0 else -1
            count = content.counted(count + 1)
        if state < 0 or not content.alive(state, count):
            continue
        for letters in tried:
            at, length = state, count
            for byte in letters:
                at = int(automaton.next[at, automaton.byte_class[byte]]) if at >= 0 else -1
                length = content.counted(length + 1)
            if at >= 0 and content.ends(at, length) is not None:
                more.add(letters)
        within = {letters for letters in more if len(letters) <= most}
        # Four letters are tried here, and strings of up to four letters.
        assert len(within) > taken or within == more or most >= 4


@pytest.mark.parametrize(("name", "least"), each_once(STRINGS, [0, 3]))
def test_no_token_leads_beyond_the_bound_and_the_bound_is_near(name: str, least: int) -> None:
    """A bound above a usual limit made each mask of such an array a search."""
    schema = {"type": "array", "items": {"type": "string", **STRINGS[name]}, "uniqueItems": True, "minItems": least}
    constraint, dice, asked = constraint_of(schema), random.Random(name), 0
    for _ in range(3):
        state: Any = constraint.start()
        for _ in range(20):
            ids, needed = constraint.least_after(state)
            if not len(ids):
                break
            most, asked = constraint.most_after(state), asked + 1
            assert needed.max() <= most
            # A token is a byte here, and each byte of an escape is one.
            assert most < (70 if name in ("any", "letters", "none of some") else 350)
            likely = [
                token for token in ids.tolist() if WORDS.token_bytes[token] in (b"a", b'"', b",", b"[", b"c", b"0")
            ]
            state = constraint.advance(state, dice.choice(likely or ids.tolist()))
    assert asked > 3


def test_any_number_of_items_that_have_come_leaves_the_bound_near() -> None:
    """Also where all strings of one character have come, so that two must follow."""
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    constraint = constraint_of(schema)
    state: Any = constraint.start()
    for byte in json.dumps(["", *map(chr, range(0x20, 0x7F))], separators=(",", ":")).encode()[:-1] + b',"a':
        state = constraint.advance(state, 1 + byte)
    ids, needed = constraint.least_after(state)
    assert len(ids)
    assert needed.max() <= constraint.most_after(state) < 40 < UNKNOWN


def _arrays(name: str) -> dict[str, Any]:
    """Schemas with arrays of different strings, and of different objects and arrays with strings."""
    string = {"type": "string", **STRINGS[name]}
    whole = {"type": "object", "properties": {"a": string, "b": string}, "required": ["a"]}
    return {
        "strings": {"type": "array", "items": string, "uniqueItems": True},
        "few strings": {"type": "array", "items": string, "uniqueItems": True, "maxItems": 2},
        "objects": {"type": "array", "items": whole, "uniqueItems": True},
        "arrays": {"type": "array", "items": {"type": "array", "items": string}, "uniqueItems": True},
        "both": {
            "type": "array",
            "uniqueItems": True,
            "items": {"type": "array", "items": string, "uniqueItems": True},
        },
        "further items": {"type": "array", "prefixItems": [string], "items": {"enum": ["a", "b"]}, "uniqueItems": True},
    }


@pytest.mark.parametrize("array", ["strings", "few strings", "objects", "arrays", "both", "further items"])
@pytest.mark.parametrize(
    "name", ["any", "few characters", "letters of a length", "one letter", "finite in part", "long addresses"]
)
def test_the_tokens_are_those_that_can_be_read(name: str, array: str) -> None:
    """Each is read here. Tokens end strings, items and the beginnings of items after them."""
    constraint, dice = constraint_of(_arrays(name)[array]), random.Random(name + array)
    for _ in range(2):
        state: Any = constraint.start()
        for _ in range(15):
            allowed = constraint.allowed(state).listed(WORDS.size).tolist()
            assert allowed == [token for token in range(1, WORDS.size) if constraint.advance(state, token) is not None]
            likely = [token for token in allowed if set(WORDS.token_bytes[token]) <= set(b'ab",[{}:')]
            if not allowed:
                break
            state = constraint.advance(state, dice.choice(likely or allowed))


@pytest.mark.parametrize("begun", ['["abc","x', '[["abc","x', '[\n  "abc",\n  "x'])
def test_a_string_that_can_be_none_of_the_earlier_ones_ends_without_a_look_at_its_characters(
    begun: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each character each token that ends the string was read: 23 of a usual vocabulary."""
    constraint = constraint_of(_arrays("any")["arrays" if begun[1] == "[" else "strings"])
    state: Any = constraint.start()
    for byte in begun.encode():
        state = constraint.advance(state, 1 + byte)
    constraint.allowed(state)
    read, texts = Machine.read, list[bytes]()
    monkeypatch.setattr(Machine, "read", lambda *given, **named: (texts.append(given[2]), read(*given, **named))[1])
    for byte in b"yz":
        state = constraint.advance(state, 1 + byte)
        texts.clear()
        constraint.allowed(state)
        assert len(texts) < 4


@pytest.mark.parametrize(
    ("pattern", "items"),
    [
        ("^[A-Z]{2}$", ["AA", "AB", "AA"]),
        ("^[A-Z]+$", ["A", "B", "A"]),
        ("^é+$", ["é", "éé", "é"]),
        ("^[一-龥]+$", ["一", "一一", "一"]),
        (r"^[\"\\]+$", ['"', "\\", '"']),
    ],
)
def test_a_string_of_characters_that_are_seldom_tried_is_made_to_differ(pattern: str, items: list[str]) -> None:
    """Without a completion a mask near a limit allows nothing."""
    string = {"type": "string", "pattern": pattern}
    constraint = constraint_of({"type": "array", "items": string, "uniqueItems": True, "minItems": 4})
    state: Any = constraint.start()
    begun = json.dumps(items, ensure_ascii=False, separators=(",", ":")).encode()[:-2]
    if pattern == "^[A-Z]{2}$":
        begun = begun[:-1]
    for byte in begun:
        state = constraint.advance(state, 1 + byte)
        assert state is not None
    rest = constraint.automaton().completion(state)
    assert rest is not None
    whole = json.loads(begun + rest)
    assert len(set(whole)) == len(whole) >= 4
