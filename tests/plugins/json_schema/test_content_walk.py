"""Walks inside strings: by the compiled loop, by levels, without a table and node by node they find the same tokens."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from itertools import cycle
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata import Budget, any_text
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.lift.above_ascii import EVERYTHING, lost_above_ascii, states_above_ascii
from logitloom.automata.lift.default_paths import ascii_columns
from logitloom.automata.lift.endless_runs import lost_by_bytes
from logitloom.automata.lift.trie import HIGH_OTHER, HIGH_WORD
from logitloom.automata.patterns.char_sets import category
from logitloom.errors import LogitloomError
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.grammar.layout import Whitespace
from logitloom_plugins.json_schema.grammar.states import TextState
from logitloom_plugins.json_schema.tokens import content_walk, token_walk
from logitloom_plugins.json_schema.tokens.content_walk import ContentWalk
from logitloom_plugins.json_schema.values import moore_machine
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.ecma_pattern import compile_ecma
from logitloom_plugins.json_schema.values.formats import format_automaton
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine, joint
from tests.cases import first, some
from tests.core.automata.pattern_strategies import patterns
from tests.core.automata.vocabularies import mixed, small, tekken
from tests.plugins.json_schema.characters import after_characters
from tests.plugins.json_schema.numbered_tokens import NumberedTokens

PATTERNS = ["^[a-z]+$", "a.*b", "^[^x]{3,5}$", ".*", "[é-ü]x", "^[\\u0080-\\uffff]*$", "^(?!a).*", "[\\u0800-\\u0fff]z"]

SCHEMAS = [
    {"type": "string", "pattern": r"^(\\S+\\s+){0,9}\\S+$"},
    {"type": "string", "pattern": "^[^é]+$", "maxLength": 40},
    {"items": {"pattern": "^[a-z]+(-[a-z]+)*$", "minLength": 3, "maxLength": 30}},
    {"patternProperties": {"^[a-f]{2,9}$": {"type": "integer"}}, "minProperties": 2, "type": "object"},
    {"properties": {"a": {"pattern": "日本|x"}, "b": {"format": "date-time"}}, "required": ["a", "b"]},
    {"items": {"format": "uri", "maxLength": 40}, "minItems": 3},
    {"items": {"pattern": "[0-9a-f]+", "minLength": 12, "maxLength": 12}, "minItems": 3},
    {"items": {"pattern": r"^(?:\S+\s+){0,99}\S+$", "minLength": 1}, "minItems": 3},
    {"items": {"anyOf": [{"maxLength": 3}, {"minLength": 7, "maxLength": 9}]}, "type": "array"},
    {"items": {"type": "string", "minLength": 2, "maxLength": 14, "pattern": "^.*é.*[.]txt$|^b"}, "minItems": 2},
    {"items": {"enum": ["abstract", "absolute", 'a"b', chr(92), "日本", ""]}, "minItems": 2},
    {"items": {"type": "string", "not": {"pattern": "^[ab]*$"}, "maxLength": 70000}, "minItems": 2},
    {"patternProperties": {"^.*[.]x$": {"type": "null"}}, "additionalProperties": False, "minProperties": 2},
]

_WORDS, _OTHERS = (
    np.concatenate([np.arange(low, high + 1) for low, high in category(letter, 0).high.ranges]) for letter in "wW"
)


def automata() -> list[MooreMachine]:
    alone = [any_text(), *map(compile_ecma, PATTERNS), *map(format_automaton, ("iri", "idn-email", "date"))]
    beside = [
        joint([compile_ecma(pattern)], any_text(), lambda members: members, BudgetTracker(Budget(), "a test"))
        for pattern in PATTERNS
    ]
    labels: list[Any] = [[() if end else None for end in dfa.accepting.tolist()] for dfa in alone]
    return [
        *(MooreMachine(dfa.byte_class, dfa.next, label, dfa.start) for dfa, label in zip(alone, labels, strict=True)),
        *beside,
    ]


@pytest.mark.parametrize("automaton", automata())
@pytest.mark.long
def test_where_every_character_above_ascii_leads_is_what_its_ranges_say(automaton: MooreMachine) -> None:
    itself = np.arange(automaton.states)
    found = states_above_ascii(automaton.next, automaton.byte_class, itself)
    for state in range(0, automaton.states, 1 + automaton.states // some(30)):
        reached = after_characters(automaton, state)
        beyond = np.concatenate([reached[0x80:0xD800], reached[0xE000:]])
        ends = set((np.bincount(beyond + 1).nonzero()[0] - 1).tolist())
        everywhere = len(ends) == 1 and -1 not in ends
        assert (found[state] >= 0) == everywhere
        assert not everywhere or found[state] in ends


@pytest.mark.parametrize("automaton", automata())
@pytest.mark.long
def test_the_characters_that_end_runs_are_those_that_a_state_after_some_text_cannot_read(
    automaton: MooreMachine,
) -> None:
    between = np.flatnonzero(np.frombuffer(automaton.boundaries, dtype=bool))
    few = len(between) <= 64
    # Of many states only characters of ASCII are followed, and the others are given as those that end a run.
    ascii_alone = automaton.next[:, automaton.byte_class[:128]]
    reached = {each: after_characters(automaton, each) if few else ascii_alone[each] for each in between.tolist()}
    given = np.full(automaton.states, EVERYTHING)
    columns = ascii_columns(automaton.byte_class[:128].tobytes())
    found = lost_by_bytes(automaton.next, automaton.byte_class, given, columns)
    if found is None:
        assert not few
        return
    own = dict(zip(between.tolist(), lost_above_ascii(automaton.next, automaton.byte_class, between), strict=True))
    for state, targets in reached.items():
        words, others = (targets[kind] == -1 if few else np.ones(1, dtype=bool) for kind in (_WORDS, _OTHERS))
        for lost, bit in ((words, HIGH_WORD), (others, HIGH_OTHER)) if few else ():
            assert bool(own[state] & bit) == lost.any() or (own[state] == EVERYTHING and (words.any() or others.any()))
        runs, pending = {state}, [state]
        while pending:
            further = {*np.unique(reached[pending.pop()]).tolist()} - {-1} - runs
            runs |= further
            pending += further
        dead = np.any([reached[each][:128] == -1 for each in runs], axis=0)
        low, high, marks = found[state].tolist()
        assert [bool((low | high << 64) >> code & 1) for code in range(128)] == dead.tolist()
        assert marks == (np.bitwise_or.reduce([own[each] for each in runs]) if few else EVERYTHING)


@pytest.mark.extras
@pytest.mark.parametrize(
    "pattern", ["[0-9a-f]{8}-[0-9a-f]{4}", r"\w+\.ts$", "^.*?[.]", "x[^@]*@[^@.]+", "(?:[0-9a-f]{4}-){5}[0-9a-f]{12}"]
)
def test_a_walk_where_almost_any_text_may_come_visits_few_nodes(pattern: str) -> None:
    machine = compile_schema({"type": "string", "pattern": pattern})
    tokens = walked(machine, tekken())[1]
    begun = tokens.advance(tokens.start, tekken().token_bytes.index(b'"'))
    read, step = list[int](), content_walk._Table.step

    def counted(table: Any, states: Any, characters: Any) -> Any:
        read.append(len(states))
        return step(table, states, characters)

    with patch.object(content_walk._Table, "step", counted):
        allowed = len(row_of(tokens, begun))
    # Most nodes are below those at which all tokens are allowed. The last levels are not walked by arrays.
    assert allowed > 100_000
    assert sum(read) < 30_000
    assert len(read) < 40


def test_ranges_of_characters_above_ascii_that_lead_to_one_state_are_not_walked() -> None:
    automaton = automata()[0]
    with patch.object(moore_machine, "byte_sequences", wraps=moore_machine.byte_sequences) as sequences:
        assert automaton.after_characters(automaton.start, 0x20AC, 0x10FFFF) == {automaton.start}
    assert all(low > high for low, high in (call.args for call in sequences.call_args_list))


@pytest.mark.parametrize("schema", [
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
    {"type": "array", "items": {"type": "object", "minProperties": 2, "maxProperties": 2}},
    {"anyOf": [{"minProperties": 3, "type": "object"}, {"type": "object", "required": ["b"], "maxProperties": 2}]},
])  # fmt: skip
def test_names_that_begin_and_end_within_one_token_are_not_written_twice(schema: Any) -> None:
    words = ['{"a":1', '{"a":1,"a', '{"a":1,"b', ',"a":1', '":2', "}", "[", "]", ",", '[{"a":', "3", '{"b":1,"b":', '"']
    vocabulary = small(*words, '{"', "a", "b", ":", '"a":1,"c":1}', "{")
    tokens = NumberedTokens(compile_schema(schema), vocabulary)
    seen, queue = {tokens.start}, [tokens.start]
    for state in queue:  # grows on the way
        allowed = tokens.mask(state).nonzero()[0].tolist()
        reached = {token: tokens.advance(state, token) for token in range(vocabulary.size)}
        assert allowed == [token for token, after in reached.items() if after != -1]
        for after in reached.values():
            if after >= 0 and after not in seen and len(seen) < 400:
                seen.add(after)
                queue.append(after)
    assert len(seen) > 10


@pytest.mark.extras
@pytest.mark.parametrize(
    ("schema", "escapes"),
    first(
        len(SCHEMAS),
        [*zip(SCHEMAS, cycle(["any", "ascii"]), strict=False), *zip(SCHEMAS, cycle(["ascii", "any"]), strict=False)],
    ),
)
@pytest.mark.long
def test_rows_of_schemas(schema: Any, escapes: str) -> None:
    machine = compile_schema(schema, SchemaOptions(Whitespace("flexible", 3), escapes))
    ways = walked(machine, tekken())
    random = np.random.default_rng(len(str(schema)))
    states = [tokens.start for tokens in ways]
    for step in range(25):
        rows = [row_of(tokens, state) for tokens, state in zip(ways, states, strict=True)]
        assert all(row == rows[0] for row in rows)
        begins = [token for token in rows[0] if tekken().token_bytes[token][:1] in (b'"', b"{", b"[", b"a", b"1")]
        token = int(random.choice(begins if begins and step % 3 else rows[0]))
        states = [tokens.advance(state, token) for tokens, state in zip(ways, states, strict=True)]
        if states[0] == -2:
            break


@pytest.mark.extras
@pytest.mark.parametrize(
    "content",
    first(
        3,
        [
            {"pattern": "é$", "minLength": 4, "maxLength": 4},
            {"pattern": "^(ab?|[^a]c)*$", "minLength": 4},
            {"anyOf": [{"maxLength": 2}, {"pattern": "\\d$", "minLength": 5, "maxLength": 7}]},
            {"pattern": "^.*[.]txt$", "maxLength": 9},
            {"pattern": "é[.]$", "minLength": 1, "maxLength": 13},
            {"pattern": "é$", "minLength": 8, "maxLength": 8},
        ],
    ),
)
@pytest.mark.long
def test_rows_at_every_place_and_length_of_a_string(content: Any) -> None:
    assert_every_place_agrees(compile_schema({"type": "string", **content}), tekken())


@pytest.mark.parametrize(
    "bounds", [{"maxLength": 90}, {"minLength": 70, "maxLength": 75}, {"minLength": 40, "maxLength": 90}]
)
def test_tables_for_some_numbers_of_characters_give_the_same_rows(bounds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContentWalk, "_is_begun_again", lambda *_: False)
    machine = compile_schema({"type": "string", "pattern": r"^(?:\S+\s+){0,9}\S+$", **bounds})
    whole, parts = (NumberedTokens(machine, mixed()) for _ in range(2))
    at, others, before, dice = whole.start, parts.start, [], np.random.default_rng(3)
    for _ in range(80):
        before.append((at, others, whole.mask(at)))
        allowed = before[-1][2].nonzero()[0].tolist()
        going = [token for token in allowed if mixed().token_bytes[token].replace(b" ", b"a").isalnum()]
        if at != whole.start and not going:
            break
        token = mixed().token_bytes.index(b'"') if at == whole.start else int(dice.choice(going))
        at, others = whole.advance(at, token), parts.advance(others, token)
    state = machine.states[whole.configuration(before[1][0]).state]
    assert isinstance(state, TextState)
    content = state.context.content
    monkeypatch.setattr(content_walk, "_MOST_ENTRIES", content.points[-1] * content.automaton.next.size)
    for _, other, mask in before:
        assert parts.mask(other).tolist() == mask.tolist()
    assert any(table.first for table in parts.walk.content._tables.values())


def test_without_compiled_loops_all_words_are_walked_twice_whatever_the_number_of_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(content_walk, "automaton_kernels", lambda: None)
    machine = compile_schema({"type": "string", "pattern": "^[a-z0-9]+$", "minLength": 3, "maxLength": 40})
    tokens, fresh = NumberedTokens(machine, mixed()), NumberedTokens(machine, mixed())
    walks = Counter[str]()
    whole = ContentWalk._reached
    monkeypatch.setattr(ContentWalk, "_reached", lambda *given: (walks.update(["not counted"]), whole(*given))[1])
    at = tokens.advance(tokens.start, mixed().token_bytes.index(b'"'))
    letter = mixed().token_bytes.index(b"a")
    at, masks = tokens.advance(at, letter), []
    for _ in range(6):
        masks.append((at, tokens.mask(at).tolist()))
        at = tokens.advance(at, letter)
    assert walks["not counted"] == 1
    monkeypatch.setattr(ContentWalk, "_is_begun_again", lambda *_: False)
    other = fresh.advance(fresh.advance(fresh.start, mixed().token_bytes.index(b'"')), letter)
    for _, mask in masks:
        assert fresh.mask(other).tolist() == mask
        other = fresh.advance(other, letter)


@given(
    pattern=patterns(anchors=True),
    least=st.integers(0, 4),
    more=st.none() | st.integers(0, 5),
    escapes=st.sampled_from(["any", "minimal", "ascii"]),
)
def test_rows_of_random_patterns_with_bounds(pattern: str, least: int, more: int | None, escapes: str) -> None:
    bounds = {"minLength": least} | ({} if more is None else {"maxLength": least + more})
    schema = {"type": "string", "pattern": pattern, **bounds}
    try:
        machine = compile_schema(schema, SchemaOptions(escapes=escapes), Budget(states=2_000))
    except LogitloomError:
        return
    if machine.satisfiable:
        assert_every_place_agrees(machine, mixed())


@given(
    pattern=patterns(anchors=True),
    other=st.none() | patterns(anchors=True),
    closed=st.booleans(),
    escapes=st.sampled_from(["any", "minimal", "ascii"]),
)
def test_rows_of_names_that_patterns_decide_about(pattern: str, other: str | None, closed: bool, escapes: str) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"ab": {}},
        "patternProperties": {pattern: {"type": "null"}},
    }
    schema |= {} if other is None else {"propertyNames": {"pattern": other}}
    schema |= {"additionalProperties": False} if closed else {}
    try:
        machine = compile_schema(schema, SchemaOptions(escapes=escapes), Budget(states=2_000))
        tokens = NumberedTokens(machine, mixed())
        state = tokens.advance(tokens.start, mixed().token_bytes.index(b"{"))
        begins = tokens.advance(state, mixed().token_bytes.index(b'"')) >= 0
    except LogitloomError:
        return
    if begins:
        assert_every_place_agrees(machine, mixed(), b'{"')


class ByLevels(ContentWalk):
    """The walk where no kernels are installed."""

    def __call__(self, *asked: Any) -> Any:
        with patch.object(content_walk, "automaton_kernels", lambda work=0: None):
            return super().__call__(*asked)


class WithoutTable(ContentWalk):
    """The walk of a content that has too many states for a table."""

    def __call__(self, *asked: Any) -> Any:
        with patch.multiple(content_walk, _MOST_ENTRIES=0, _MOST_UNCOUNTED=0, _MOST_ASKED=0):
            return super().__call__(*asked)


class NodeByNode(ContentWalk):
    """No walk: of the nodes in strings each is visited."""

    def __call__(self, *asked: Any) -> Any:
        raise AssertionError("a node is left to the walk inside strings")


WAYS = (ContentWalk, ByLevels, WithoutTable, NodeByNode)


def walked(machine: Machine, vocabulary: Vocabulary) -> list[NumberedTokens]:
    """The tokens of a machine as the compiled loop finds them in strings, and in the other ways."""
    ways = [NumberedTokens(machine, vocabulary) for _ in WAYS]
    for tokens, way in zip(ways, WAYS, strict=True):
        tokens.walk.content = way(np.array(machine.codes.strings.moves.plain))
    return ways


def row_of(tokens: NumberedTokens, state: int) -> list[int]:
    most = 1 << 30 if isinstance(tokens.walk.content, NodeByNode) else 0
    kept = {"_SIBLINGS": most, "_MOST_VISITED": most, "_MOST_WORK": most} if most else {}
    with patch.multiple(token_walk, **kept) if kept else nullcontext():
        found: list[int] = tokens.row(state).tolist()
        return found


def lengths(content: Content) -> range:
    """The numbers of characters that are told apart."""
    return range(1 + content.points[-1])


def assert_every_place_agrees(machine: Machine, vocabulary: Vocabulary, beginning: bytes = b'"') -> None:
    every = walked(machine, vocabulary)
    for tokens in every:
        begun = tokens.start
        for byte in beginning:
            begun = tokens.advance(begun, vocabulary.token_bytes.index(bytes([byte])))
        stack = tokens.configuration(begun).stack
    context = next(state.context for state in machine.states if isinstance(state, TextState))
    boundaries = np.frombuffer(context.content.automaton.boundaries, dtype=bool)
    for place in np.flatnonzero(boundaries)[:40].tolist():
        for count in lengths(context.content):
            state = machine.codes.strings.text(context, place, count)
            if state >= 0:
                here = Position(state, stack)
                rows = [row_of(tokens, tokens.at(here)) for tokens in every]
                assert all(row == rows[0] for row in rows), (place, count)


@pytest.mark.parametrize("automaton", automata()[:6])
def test_the_states_after_a_range_of_characters_are_those_after_each(automaton: MooreMachine) -> None:
    for state in np.flatnonzero(np.frombuffer(automaton.boundaries, dtype=bool)).tolist():
        reached = after_characters(automaton, state)
        for low, high in ((0, 0x7F), (0x41, 0x3B0), (0xE9, 0xE9), (0xD000, 0xD7FF), (0xFFFF, 0x10400), (0, 0xD7FF)):
            assert automaton.after_characters(state, low, high) == {*reached[low : high + 1].tolist()}
