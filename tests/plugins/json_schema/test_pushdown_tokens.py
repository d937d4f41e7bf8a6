"""The tokens that a row allows are exactly those that can be taken."""

from __future__ import annotations

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from logitloom import Vocabulary
from logitloom.automata import Budget
from logitloom_plugins.json_schema.folds.machine import read
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.grammar import objects
from logitloom_plugins.json_schema.grammar.layout import Whitespace
from logitloom_plugins.json_schema.grammar.states import ObjectState
from logitloom_plugins.json_schema.tokens.schema_constraint import can_write
from logitloom_plugins.json_schema.tokens.string_rows import string_tables
from tests.cases import EXHAUSTIVE
from tests.core.automata.vocabularies import mixed
from tests.plugins.json_schema.numbered_tokens import NumberedTokens

SCHEMAS: list[Any] = [
    True,
    {"type": "string", "maxLength": 4},
    {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1},
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
    {
        "properties": {"name": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "foo": {"pattern": "^[ab]+$"}},
        "required": ["name"],
        "type": "object",
    },
    {
        "oneOf": [
            {"properties": {"a": {"type": "string"}}},
            {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
        ]
    },
    {"type": "array", "contains": {"const": "é"}, "items": {"minLength": 1}, "maxItems": 3},
    {"properties": {"a": {"type": "integer"}, "ab": {"const": 1}, "foo": False, "é": {}}, "required": ["ab"]},
    {"properties": {"a": {"type": "string"}}, "additionalProperties": {"minLength": 3}, "type": "object"},
    {"type": "string", "minLength": 2, "maxLength": 3},
    {"oneOf": [{"type": "string", "maxLength": 1}, {"type": "string", "minLength": 2, "maxLength": 4}]},
    {"type": "string", "pattern": "^[a-z]*o?[0-9]{2,}$", "maxLength": 8},
    {"type": "string", "pattern": "^[a-n]{0,7}$"},  # as many states as the automaton of all texts
    {"type": "string", "pattern": "foo", "minLength": 4},
    {"type": "array", "items": {"pattern": "^(?:[a-f]+ ){0,2}[a-z]+$", "maxLength": 150}},
    {"anyOf": [{"pattern": "^a.*o$", "type": "string", "minLength": 2, "maxLength": 200}, {"type": "integer"}]},
    {"patternProperties": {"^f": {"type": "integer"}}, "type": "object"},
]


@pytest.mark.parametrize(("policy", "escapes"), [("compact", "any"), ("flexible", "any"), ("one_space", "minimal"),
                                                 ("compact", "ascii"), ("json_dumps", "any")])  # fmt: skip
@pytest.mark.parametrize("place", range(len(SCHEMAS)))
@pytest.mark.long
def test_a_row_allows_what_can_be_taken_and_nothing_else(place: int, policy: str, escapes: str) -> None:
    vocabulary = mixed()
    machine = compile_schema(SCHEMAS[place], SchemaOptions(Whitespace(policy, 2), escapes))
    tokens = NumberedTokens(machine, vocabulary, vocabulary.size + 3)
    rnd = random.Random(place)
    checked, walks = 0, 4 if EXHAUSTIVE else 2
    for _ in range(walks):
        reached = tokens.start
        for _ in range(25):
            allowed = tokens.mask(reached)
            takes = [tokens.advance(reached, token) != -1 for token in range(vocabulary.size + 3)]
            assert allowed.tolist() == takes, machine.states[tokens.configuration(reached).state]
            assert allowed.any()
            checked += 1
            ids = tokens.row(reached).tolist()
            assert ids == allowed.nonzero()[0].tolist()
            reached = tokens.advance(reached, rnd.choice(ids))
            if reached == -2:
                break
    assert checked > 2 * walks


def test_what_is_known_of_the_vocabulary_is_what_the_machine_does_with_each_token() -> None:
    vocabulary = mixed()
    for names in (False, True):
        tables = string_tables(vocabulary, "any", names)
        machine = compile_schema({"type": "object" if names else "string"}, SchemaOptions(Whitespace("compact")))
        inside = dict(zip(tables.inside.tolist(), tables.needs.tolist(), strict=True))
        for token, text in enumerate(vocabulary.token_bytes):
            begun = read(machine, (b'{"' if names else b'"') + text)
            if not text:
                continue
            if token in inside:
                assert begun is not None
                limited = compile_schema({"type": "string", "maxLength": inside[token]})
                assert names or read(limited, b'"' + text) is not None
                if inside[token] and not names:
                    shorter = compile_schema({"type": "string", "maxLength": inside[token] - 1})
                    assert read(shorter, b'"' + text) is None
            elif tables.index[token] >= 0:
                rest = tables.rests[tables.rest[tables.index[token]]]
                quoted = text[: len(text) - len(rest)]
                assert quoted.endswith(b'"')
                assert read(machine, (b'{"' if names else b'"') + quoted) is not None
            else:
                assert token in tables.dead.tolist()
                assert begun is None


@pytest.mark.parametrize("seed", range(6))
def test_the_keys_that_may_come_next_are_those_that_lead_somewhere(seed: int) -> None:
    rnd = random.Random(seed)
    names = [f"n{i}" for i in range(6)]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: rnd.choice([True, False, {"type": "integer"}, {"minLength": 2}]) for name in names},
        "required": rnd.sample([*names, "other"], rnd.randint(0, 2)),
        "additionalProperties": rnd.choice([True, False, {"type": "string"}]),
    }
    if seed % 2:
        schema["oneOf"] = [{"required": [names[0]]}, {"required": [names[1]]}, {"properties": {names[2]: False}}]
    machine = compile_schema(schema)
    if not machine.satisfiable:
        return
    for _ in range(20):
        reached = Position(machine.start)
        for _ in range(40):
            bytes_of = [*machine.codes.every_code(reached.state)]
            if not bytes_of:
                break
            following = machine.read(reached, bytes([rnd.choice(bytes_of)]))
            assert following is not None
            reached = following
    frames = {state.frame for state in machine.states if isinstance(state, ObjectState)}
    assert frames
    for frame in frames:
        found = 0
        for label, bit in frame.plan.keys.bit.items():
            member = objects.member(machine.values, frame, label)
            if member is not None and machine.grammar.leads_on(member):
                found |= bit
        assert machine.grammar.key_mask(frame) == found


def test_configurations_that_forbid_the_same_tokens_share_one_row() -> None:
    vocabulary = mixed()
    automaton = NumberedTokens(compile_schema({"type": "string", "maxLength": 300}), vocabulary)
    reached = [automaton.advance(automaton.start, vocabulary.token_bytes.index(b'"'))]
    for _ in range(3):
        reached.append(automaton.advance(reached[-1], vocabulary.token_bytes.index(b"a")))
    rows = [automaton.row_kind(at) for at in reached]
    assert len(set(reached)) == 4
    assert not rows[0].allowed
    assert len({id(row.ids) for row in rows}) == 1


def test_threads_that_share_a_machine_see_what_one_alone_would_see() -> None:
    # One processor serves several vocabularies: their tokens walk one machine, whose states come as they are visited.
    interval = sys.getswitchinterval()
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "pattern": f"^[{name}-z]+o?$", "maxLength": 20} for name in "abcdefgh"},
    }
    machine = compile_schema(schema)

    def walked(tokens: NumberedTokens, seed: int) -> list[tuple[int, int]]:
        rnd = random.Random(seed)
        reached, seen = tokens.start, []
        for _ in range(60):
            allowed = tokens.row(reached).tolist()
            seen.append((len(allowed), sum(allowed)))
            reached = tokens.advance(reached, rnd.choice(allowed))
            if reached < 0:
                reached = tokens.start
        return seen

    vocabulary = mixed()
    try:
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(8) as pool:
            sharing = [NumberedTokens(machine, vocabulary, vocabulary.size + i) for i in range(8)]
            found = list(pool.map(walked, sharing, range(8)))
    finally:
        sys.setswitchinterval(interval)
    for seed, seen in enumerate(found):
        alone = NumberedTokens(compile_schema(schema), vocabulary, vocabulary.size + seed)
        assert seen == walked(alone, seed)
    assert len(machine.states) == len(set(machine.states))


#: Objects in which no undeclared name may come twice, because it would count, or be judged, twice.
UNREPEATED: list[Any] = [
    {"type": "object", "minProperties": 6, "additionalProperties": {"type": "integer"}},
    {"minProperties": 7, "properties": {"foo": {"type": "integer"}}, "required": ["name"], "type": "object"},
    {"minProperties": 6, "patternProperties": {"^[a-f]": {"type": "integer"}, "o": True}, "type": "object"},
    {"not": {"additionalProperties": {"type": "integer"}}, "type": "object"},
    {"minProperties": 6, "propertyNames": {"maxLength": 5}, "type": "object"},
]


@pytest.mark.parametrize("place", range(len(UNREPEATED)))
@pytest.mark.parametrize("begun", ["", '"', '"a', '"ab', '"é', '"\\', '"\\"', '"\\u00', '"f'])
@pytest.mark.long
def test_names_that_have_come_are_forbidden(place: int, begun: str) -> None:
    vocabulary = mixed()
    single = {text: token for token, text in enumerate(vocabulary.token_bytes) if len(text) == 1}
    machine = compile_schema(UNREPEATED[place], SchemaOptions(Whitespace("compact")))
    tokens = NumberedTokens(machine, vocabulary)
    names = ["a", "ab", "é", '\\"', "fo"]
    text = "{" + "".join(f'"{name}":1,' for name in names)
    reached = tokens.start
    for byte in (text + begun).encode():
        reached = tokens.advance(reached, single[bytes([byte])])
        assert reached != -1
    allowed = tokens.mask(reached)
    takes = [tokens.advance(reached, token) != -1 for token in range(vocabulary.size)]
    assert allowed.tolist() == takes
    for name in [*names, "zz"]:
        assert (read(machine, f'{text}"{name}"'.encode()) is None) == (name in names)


def test_what_is_made_while_decoding_has_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {
        "properties": {"city": {"type": "string"}},
        "patternProperties": {"^line[1-3]$": {"type": "string"}},
        "required": ["city", "line1"],
        "additionalProperties": False,
        "type": "object",
    }
    machine = compile_schema(schema, budget=Budget(seconds=5.0))
    for clock in ("thread_time", "perf_counter"):
        later = getattr(time, clock)() + 60
        monkeypatch.setattr(time, clock, lambda later=later: later)
    assert read(machine, b'{"city":"a","line1":"b"}') is not None


def test_a_machine_does_not_grow_with_the_texts_that_are_read() -> None:
    schema = {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}}
    machine = compile_schema(schema)
    rnd = random.Random(0)
    sizes = []
    for _ in range(60):
        names = ["".join(rnd.choices("abcdefgh", k=8)) for _ in range(6)]
        text = "{" + ",".join(f'"{name}":{rnd.randrange(100)}' for name in names) + "}"
        assert read(machine, text.encode()) is not None
        sizes.append(len(machine.states))
    assert sizes[-1] == sizes[20]


@pytest.mark.parametrize("escapes", ["any", "ascii"])
def test_digits_of_a_low_surrogate_alone_never_begin(escapes: str) -> None:
    machine = compile_schema({"type": "string"}, SchemaOptions(escapes=escapes))
    for begun, digits in ((b'"\\ud', "0123456789aAbB"), (b'"\\uD83d\\ud', "cCdDeEfF")):
        reached = read(machine, begun)
        assert reached is not None
        assert sorted(map(chr, [*machine.codes.every_code(reached.state)])) == sorted(digits)


#: Patterns, and whether single bytes that the vocabulary lacks might be the only ones of a character.
RARE = [
    (r"^[\p{L}\p{Nd}\p{Zs}]+$", False),
    (r"^\ud83d[\ude00-\ude4f]$", False),
    (r"^\u{1F600}$", False),
    (r"^\p{Co}$", True),
    (r"^\P{L}$", True),
    (r"^\u{F0000}$", True),
    (r"^\udb80\udc00$", True),
]


@pytest.mark.parametrize(("pattern", "rare"), RARE)
def test_only_patterns_of_rare_characters_need_their_bytes(pattern: str, rare: bool) -> None:
    words = Vocabulary([b"", *[bytes([byte]) for byte in range(0xF1)]], eos=[0])
    assert can_write({"type": "string", "pattern": pattern}, words) is not rare
