"""Combinators, tool calls and reasoning beside other constraints in ``all_of``, over a vocabulary of a model."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, processors
from logitloom.constraints import Constraint
from tests.cases import EXHAUSTIVE
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
    for more in (1, 30 if EXHAUSTIVE else 8):
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


@pytest.mark.parametrize("pattern", ["[abc]{3,6}", "(?:[abc]1){2,3}c?", "(?:ab|a1|c){2,}"])
@pytest.mark.parametrize("phrases", [["ba", "1a"], ["ca"], ["cb", "a1b", "cc"]])
def test_phrases_that_end_with_the_preferred_byte_of_a_pattern_leave_texts_that_end(
    pattern: str, phrases: list[str]
) -> None:
    """Compared with all sequences of at most four tokens."""
    pieces = [b"a", b"b", b"c", b"1", b"ab", b"ba1", b"cb", b"a1c"]
    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)], *(p for p in pieces if len(p) > 1)], eos=[0])
    inner = [["regex", {"pattern": pattern}], ["bad_words", {"phrases": phrases}]]
    chain = processors.load(("all_of", {"inner": inner}), tokenizer=words)
    ids = [words.token_bytes.index(piece) for piece in pieces]
    finished = set()
    for count in range(5):
        for tokens in itertools.product(ids, repeat=count):
            text = b"".join(words.token_bytes[token] for token in tokens).decode()
            if re.fullmatch(pattern, text) and not any(phrase in text for phrase in phrases):
                finished.add(tokens)
    begun = {tokens[:size] for tokens in finished for size in range(len(tokens) + 1)}
    blank = np.zeros((1, words.size), dtype=np.float32)
    for limit in (None, 5):
        context = Context.start(blank, vocabulary=words).with_fields(max_new_tokens=limit)
        reached: list[tuple[Any, Context, tuple[int, ...]]] = [(chain.init_state(context), context, ())]
        for state, now, tokens in reached:
            logits, after = chain.process(blank.copy(), state, now)
            allowed = np.isfinite(logits[0]).nonzero()[0].tolist()
            further = [token for token in ids if (*tokens, token) in begun]
            assert (0 in allowed) == (tokens in finished)
            assert set(allowed) - {0} <= set(further) if limit else set(allowed) - {0} >= set(further)
            assert allowed
            reached += [(after, context.accept([[token]]), (*tokens, token)) for token in further if token in allowed]
