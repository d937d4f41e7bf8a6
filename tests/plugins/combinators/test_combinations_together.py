"""Combinators, tool calls and reasoning beside other constraints in ``all_of``, over a vocabulary of a model."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from logitloom import Context, processors
from logitloom.constraints import Constraint
from tests.core.automata.vocabularies import tekken

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}
BANNED = ["bad_words", {"phrases": ["secret", 'name": "a']}]
WORDS = ["regex", {"pattern": "[a-z]+( [a-z]+)*"}]
CASES = {
    "a tool call without words": [
        ["tool_call", {"tools": [TOOL], "choice": "required", "format": "hermes"}], BANNED,
    ],
    "an answer without words": [["after", {"trigger": "Answer: ", "inner": ["json", {"schema": SCHEMA}]}], BANNED],
    "reasoning up to a stop string": [
        ["thinking", {"then": ["json", {"schema": SCHEMA}], "begin": "outside"}], ["stop", {"strings": ["."]}],
    ],
    "two sections": [
        ["until", {"trigger": "\n", "inner": WORDS, "required": True}],
        ["until", {"trigger": "x", "inner": [], "required": True}],
    ],
    "a length": [["json", {}], ["regex", {"pattern": "(?s).{12,40}"}]],
}  # fmt: skip


def read(constraint: Constraint, tokens: list[int]) -> Any:
    state: Any = constraint.start()
    for token in tokens:
        state = None if state is None else constraint.advance(state, token)
    return state


@pytest.mark.extras
@pytest.mark.parametrize("name", CASES)
def test_texts_satisfy_each_constraint_and_end_within_the_limit(name: str) -> None:
    words = tekken()
    chain = processors.load(("all_of", {"inner": CASES[name]}), tokenizer=words)
    each = [
        processors.load(tuple(given), tokenizer=words).links[0].processor.constraint(words, words.size)
        for given in CASES[name]
    ]
    together = chain["all_of"].constraint(words, words.size)
    least = together.least_tokens(together.start())
    short = [token for token, text in enumerate(words.token_bytes) if text and len(text) < 4 and text.isascii()]
    blank, draw = np.zeros((1, words.size), dtype=np.float32), random.Random(name)
    for more in (1, 30):
        limit = least + more
        context, tokens = Context.start(blank, vocabulary=words, max_new_tokens=limit), list[int]()
        state = chain.init_state(context)
        while len(tokens) < limit:
            logits, state = chain.process(blank.copy(), state, context)
            ids = np.flatnonzero(np.isfinite(logits[0]))
            assert len(ids), words.decode(tokens)
            usual = [token for token in short if np.isfinite(logits[0, token])]
            token = int(draw.choice(usual or ids.tolist()))
            if token in words.eos:
                break
            tokens.append(token)
            context = context.accept([[token]])
        for constraint in each:
            reached = read(constraint, tokens)
            assert reached is not None, words.decode(tokens)
            assert constraint.may_end(reached), words.decode(tokens)
