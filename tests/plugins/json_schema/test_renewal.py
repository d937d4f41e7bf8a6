"""Machines that texts have made large are replaced, and rows that are in them go on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Context, processors
from logitloom.automata import Budget
from logitloom.errors import BudgetExceeded, StateMismatch
from logitloom_plugins.json_schema.compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.machine import Machine
from logitloom_plugins.json_schema.renewal import RenewedTokens
from logitloom_plugins.json_schema.whitespace import Whitespace
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


def ids(text: str) -> list[int]:
    return [SINGLE[bytes([byte])] for byte in text.encode()]


def text_of(name: str, length: int = 600) -> str:
    return f'{{"{name}":"{"x" * length}"}}'


def taken(tokens: Any, at: int, text: str) -> int:
    for token in ids(text):
        at = tokens.advance(at, token)
        assert at >= 0
    return at


def renewing(schema: Any, states: int, **more: int) -> RenewedTokens:
    machine = compile_schema(schema, SchemaOptions(Whitespace("compact")), Budget(states=states))
    return RenewedTokens(machine, Machine.renewed, WORDS, WORDS.size, **more)


def test_a_processor_serves_more_texts_than_fit_in_its_budget() -> None:
    chain = processors.load(("json", {"schema": LONG, "max_states": 2000, "engine": "table"}), tokenizer=WORDS)
    logits = np.zeros((1, WORDS.size), dtype=np.float32)
    context = Context.start(logits, vocabulary=WORDS)
    for name in NAMES:
        state = chain.init_state(context)
        _, state = chain.process(logits, state, context.accept([ids(text_of(name))]))
        out, _ = chain.process(logits, state, context.accept([[]]))
        assert (out[0] > -np.inf).nonzero()[0].tolist() == list(WORDS.eos)


def test_rows_in_a_machine_that_is_replaced_go_on_in_it() -> None:
    tokens, alone = renewing(LONG, 2000), renewing(LONG, 100_000)
    half = text_of("a")[:300]
    begun, expected = taken(tokens, tokens.start, half), taken(alone, alone.start, half)
    starts = {tokens.start}
    for name in "bcde":
        taken(tokens, tokens.start, text_of(name, 400))
        starts.add(tokens.start)
    assert len(starts) > 1
    assert len(tokens.machine.states) < 2000
    for text in ("x" * 50, 'x"', "}"):
        begun, expected = taken(tokens, begun, text), taken(alone, expected, text)
        assert tokens.row(begun).tolist() == alone.row(expected).tolist()
        assert tokens.mask(begun).tolist() == alone.mask(expected).tolist()
        assert tokens.forced_tokens(begun) == alone.forced_tokens(expected)
    both = [begun, tokens.start]
    after = tokens.advance_many(both, [[WORDS.eos[0]], [SINGLE[b"{"]]])
    assert after.tolist() == [-2, tokens.advance(tokens.start, SINGLE[b"{"])]
    assert tokens.advance_many(both, [[-1, -1], [-1, -1]]).tolist() == both


def test_a_row_that_was_left_behind_long_ago_is_an_error() -> None:
    tokens = renewing(LONG, 2000)
    begun = taken(tokens, tokens.start, '{"a":"')
    for name in NAMES:
        taken(tokens, tokens.start, text_of(name, 690))
    with pytest.raises(StateMismatch, match="Begin the row again"):
        tokens.row(begun)


def test_names_that_are_remembered_do_not_add_up() -> None:
    schema = {"type": "object", "minProperties": 999, "additionalProperties": {"type": "integer"}}
    tokens = renewing(schema, 100_000, configurations=400)
    sizes = []
    for n in range(100, 200):
        taken(tokens, tokens.start, f'{{"x{n}":1,"y{n}":2,"x{n}1":3')
        sizes.append(sum(kept.size for kept in tokens._kept))
    assert max(sizes) <= 3 * 400
    with pytest.raises(BudgetExceeded, match="400 different places"):
        taken(tokens, tokens.start, "{" + ",".join(f'"n{i}":{i}' for i in range(200)))


def test_a_schema_that_is_large_by_itself_is_not_replaced_at_every_text() -> None:
    schema = {"type": "array", "prefixItems": [{"const": f"value{i}"} for i in range(20)], "maxItems": 20}
    machine = compile_schema(schema, SchemaOptions(Whitespace("compact")))
    for number, _ in enumerate(machine.states):  # grows on the way
        machine.row(number)
    made = []

    def renew(old: Machine) -> Machine:
        made.append(old)
        return old.renewed()

    machine.budget = Budget(states=int(1.2 * len(machine.states)))
    tokens = RenewedTokens(machine, renew, WORDS, WORDS.size)
    assert len({tokens.start for _ in range(5)}) == 1
    assert not made
