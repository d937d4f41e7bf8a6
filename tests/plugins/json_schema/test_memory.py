"""What is remembered of visited configurations is bounded, and may be lost at any time: states go on all the same."""

from __future__ import annotations

import gc
import json
import os
import pickle
import random
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest

from logitloom import Context, processors
from logitloom.automata import Budget
from logitloom.constraints import TokenSet
from logitloom_plugins.json_schema.folds import schema_automaton as automaton
from logitloom_plugins.json_schema.folds.schema_automaton import Configuration, SchemaAutomaton
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.grammar.layout import Whitespace
from logitloom_plugins.json_schema.grammar.names import Linked
from logitloom_plugins.json_schema.tokens.schema_constraint import SchemaConstraint
from logitloom_plugins.json_schema.tokens.shared_token_sets import TokenSets
from tests.cases import some
from tests.core.automata.vocabularies import mixed

WORDS = mixed()
SINGLE = {text: token for token, text in enumerate(WORDS.token_bytes) if len(text) == 1}
NAMES = "abcdefgh"
#: Each of the strings has some 700 states, of which a text visits those of one.
LONG: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "string", "maxLength": 700 + i} for i, name in enumerate(NAMES)},
    "additionalProperties": False,
}
#: A schema, and a text that comes to most kinds of configurations.
VARIED: list[tuple[Any, str]] = [
    ({"properties": {"a": {"maxLength": 70}, "c": {"minLength": 1, "maxLength": 9}}}, '{"a": "\\u00e9x", "c" : "y"}'),
    ({"uniqueItems": True, "items": {"minLength": 1}},
     '[1.50, "a\\u0061", {"k":[1e2,null]}, {"k":[100,true]}, -0, [["x"]]]'),
    ({"minProperties": 3, "additionalProperties": {"type": "number", "minimum": 2}}, '{"a":2.5,"\\nb":3,"c":12}'),
    ({"oneOf": [{"properties": {"a": {"enum": [1, "x"]}}, "required": ["a"]}, {"properties": {"a": {"const": 2}},
      "patternProperties": {"^b": {"type": "integer"}}}]}, '{"a":2,"b1":7,"é":[true]}'),
    ({"type": "string", "pattern": "^(?:[a-f]+ ){0,2}[a-z]+$", "maxLength": 150}, '"abc def xyz"'),
    ({"type": "array", "contains": {"const": "\U0001f600"}, "prefixItems": [{"type": "integer"}]},
     '[ 12, "\\ud83d\\ude00" ]'),
    ({"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}, '{"next":{"next":{"next":null}}}'),
]  # fmt: skip


def ids(text: str) -> list[int]:
    return [SINGLE[bytes([byte])] for byte in text.encode()]


def text_of(name: str, length: int = 600) -> str:
    return f'{{"{name}":"{"x" * length}"}}'


def constraint(schema: Any, states: int = 100_000, policy: str = "flexible") -> SchemaConstraint:
    machine = compile_schema(schema, SchemaOptions(Whitespace(policy, 3)), Budget(states=states))
    return SchemaConstraint(SchemaAutomaton(machine), WORDS)


def taken(tokens: SchemaConstraint, at: Configuration, text: str) -> Configuration:
    for token in ids(text):
        after = tokens.advance(at, token)
        assert after is not None
        at = after
    return at


def seen(tokens: SchemaConstraint, at: Configuration) -> tuple[list[bool], bool, list[int]]:
    return tokens.allowed(at).mask(WORDS.size).tolist(), tokens.may_end(at), tokens.forced(at)


@pytest.mark.parametrize("place", range(len(VARIED)))
def test_a_state_goes_on_in_an_empty_memory_and_as_a_copy(place: int) -> None:
    schema, text = VARIED[place]
    tokens, other = constraint(schema), constraint(schema)
    assert tokens.fingerprint == other.fingerprint != constraint(True).fingerprint
    at = tokens.start()
    for token in [*ids(text), None]:
        expected = seen(tokens, at)
        copy = pickle.loads(pickle.dumps(at))
        assert copy == at
        assert hash(copy) == hash(at)
        # In a memory where other things were visited first, in an empty one, and where it came from.
        assert seen(other, copy) == expected
        tokens.forget()
        assert seen(tokens, at) == expected
        if token is not None:
            after = tokens.advance(at, token)
            assert after is not None
            assert tokens.schema.configuration(tokens.schema.position(after)) == after
            at = after
    assert tokens.may_end(at)


@pytest.mark.long
def test_states_of_equal_configurations_are_equal_in_another_process() -> None:
    states = []
    for schema, text in VARIED:
        tokens = constraint(schema)
        at = tokens.start()
        for place, character in enumerate(text):
            at = taken(tokens, at, character)
            states.append((schema, text[: place + 1], at))
    program = (
        "import pickle, sys; from tests.plugins.json_schema.test_memory import constraint, taken\n"
        "made = {}\n"
        "for schema, text, state in reversed(pickle.load(sys.stdin.buffer)):\n"
        "    if repr(schema) not in made: made[repr(schema)] = constraint(schema)\n"
        "    tokens = made[repr(schema)]\n"
        "    assert taken(tokens, tokens.start(), text) == state, (text, state)\n"
        "print('equal')"
    )
    # Names and texts of enum are sets on the way, whose order depends on the seed.
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(states), capture_output=True, env=environment
    )
    assert done.stdout.strip() == b"equal", done.stderr.decode()


def test_a_processor_serves_more_texts_than_fit_in_its_budget() -> None:
    chain = processors.load(("json", {"schema": LONG, "max_states": 2000, "engine": "table"}), tokenizer=WORDS)
    logits = np.zeros((1, WORDS.size), dtype=np.float32)
    context = Context.start(logits, vocabulary=WORDS)
    for name in NAMES:
        state = chain.init_state(context)
        _, state = chain.process(logits, state, context.accept([ids(text_of(name))]))
        out, _ = chain.process(logits, state, context.accept([[]]))
        assert (out[0] > -np.inf).nonzero()[0].tolist() == list(WORDS.eos)


def test_a_waiting_row_survives_any_number_of_other_requests() -> None:
    chain = processors.load(("json", {"schema": LONG, "max_states": 300, "engine": "table"}), tokenizer=WORDS)
    logits = np.zeros((1, WORDS.size), dtype=np.float32)
    context = Context.start(logits, vocabulary=WORDS)
    expected, waiting = chain.process(logits, chain.init_state(context), context.accept([ids('{"a":"')]))
    for name in NAMES:
        state = chain.init_state(context)
        for token in ids(text_of(name, 690)):
            _, state = chain.process(logits, state, context.accept([token]))
    again, _ = chain.process(logits, waiting, context.accept([[]]))
    np.testing.assert_array_equal(again, expected)


def test_rows_go_on_whatever_is_forgotten() -> None:
    tokens, alone = constraint(LONG, 1000, "compact"), constraint(LONG, policy="compact")
    half = text_of("a")[:300]
    begun, expected = taken(tokens, tokens.start(), half), taken(alone, alone.start(), half)
    machines = {id(tokens.schema.machine): tokens.schema.machine}
    for name in "bcde":
        taken(tokens, tokens.start(), text_of(name, 400))
        machines[id(tokens.schema.machine)] = tokens.schema.machine
        assert len(tokens.schema.machine.states) < 1000
    assert len(machines) > 1
    for text in ("x" * 50, 'x"', "}"):
        begun, expected = taken(tokens, begun, text), taken(alone, expected, text)
        assert begun == expected
        assert seen(tokens, begun) == seen(alone, expected)


def test_names_that_are_remembered_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "_MOST_REMEMBERED", 400)
    tokens = constraint({"type": "object", "minProperties": 999, "additionalProperties": {"type": "integer"}})
    for n in range(100, 100 + some(100)):
        taken(tokens, tokens.start(), f'{{"x{n}":1,"y{n}":2,"x{n}1":3')
        assert len(tokens.schema.configurations) <= 401
    # A single text may have more of them.
    at = taken(tokens, tokens.start(), "{" + ",".join(f'"n{i}":{i}' for i in range(200)))
    assert tokens.advance(taken(tokens, at, ',"n7'), SINGLE[b'"']) is None


def test_what_no_row_refers_to_any_more_is_free() -> None:
    tokens = constraint(LONG)
    machine = weakref.ref(tokens.schema.machine)
    waiting = taken(tokens, tokens.start(), '{"b":"x')
    tokens.forget()
    # The row finds its place in the new memory, and lets the old one go.
    tokens.allowed(waiting)
    gc.collect()
    assert machine() is None


def test_deep_and_long_texts_are_compared_and_pickled_without_recursion() -> None:
    tokens = constraint(True)
    at = tokens.schema.read(tokens.start(), b"[" * 2000)
    assert pickle.loads(pickle.dumps(at)) == at
    chains = []
    for _ in range(2):
        chain: Linked[int] | None = None
        for entry in range(5000):
            chain = Linked(entry, chain)
        chains.append(chain)
    assert chains[0] == chains[1] == pickle.loads(pickle.dumps(chains[0]))


def test_items_that_have_come_are_known_in_an_empty_memory() -> None:
    tokens = constraint({"uniqueItems": True})
    at = taken(tokens, tokens.start(), json.dumps([*range(90), {"b": [{}], "a": "é"}])[:-1])
    tokens.forget()
    for text in (",77", ', {"a":"\\u00e9","b":[ {}]'):
        assert (
            tokens.advance(taken(tokens, pickle.loads(pickle.dumps(at)), text), SINGLE[b"}" if "{" in text else b","])
            is None
        )


def test_bytes_and_tokens_lead_to_equal_states() -> None:
    tokens, rnd = constraint(VARIED[1][0]), random.Random(0)
    schema, at, reached = tokens.automaton(), tokens.start(), tokens.schema.start()
    for _ in range(30):
        token = int(rnd.choice(tokens.allowed(at).listed(WORDS.size).tolist()))
        after = tokens.advance(at, token)
        assert after is not None
        at = after
        for byte in WORDS.token_bytes[token]:
            step = schema.step(reached, byte)
            assert step is not None
            reached = step
        assert reached == at
        assert schema.accepts(reached) == tokens.may_end(at)


def test_schemas_over_one_vocabulary_share_token_sets() -> None:
    one, other = constraint({"properties": {"a": {"type": "string"}}}), constraint({"properties": {"b": {}}})
    sets = [
        [tokens.allowed(taken(tokens, tokens.start(), text)).ids for text in ('{"', f'{{"{name}":"x', "{")]
        for tokens, name in ((one, "a"), (other, "b"))
    ]
    assert all(mine is theirs for mine, theirs in zip(*sets, strict=True))
    assert not any(ids.flags.writeable for ids in sets[0])


def test_shared_token_sets_are_bounded_and_may_be_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = TokenSets(WORDS, WORDS.size)

    def listed(*ids: int) -> TokenSet:
        return sets.once(ids, lambda: sets.many(np.array(ids, dtype=np.int32)))

    before = listed(2, 3)
    assert listed(2, 3) is before
    monkeypatch.setattr("logitloom_plugins.json_schema.tokens.shared_token_sets._MOST_BYTES", 1000)
    for token in range(100):
        listed(token)
        assert sum(known.ids.nbytes for known in sets._known.values()) < 2000
    again = listed(2, 3)
    assert again is not before
    assert again.ids.tolist() == before.ids.tolist() == [2, 3]
