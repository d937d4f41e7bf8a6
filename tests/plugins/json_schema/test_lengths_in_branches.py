"""Bounds on the length within ``anyOf``, ``oneOf``, ``not`` and ``if`` are counted beside the automaton of patterns."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import numpy as np
import pytest

from logitloom.constraints import UNKNOWN
from logitloom_plugins.json_schema.folds.machine import accepts
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from tests.core.automata.vocabularies import small
from tests.plugins.json_schema.numbered_tokens import NumberedTokens

PATTERNS = ["a", "é$", "^aé", "b[^c]", "^(aé)*$", "a[^c]b", "éé", "^[^a]*$"]
TEXTS = ["".join(letters) for size in range(5) for letters in itertools.product("aéb", repeat=size)]
TEXTS += ["".join(random.Random(seed).choices("aéb", k=5 + seed % 5)) for seed in range(60)]
LETTERS = [chr(code) for code in range(0x20, 0x7F)]
VOCABULARY = small(*LETTERS, "é", "aé", "éb", 'ab"', "aéaéa", "bb", '"a', '"é"', 'é"', b"\xc3", b"\xa9")


def random_schema(dice: random.Random, depth: int) -> dict[str, Any]:
    if not depth or dice.random() < 0.2:
        found: dict[str, Any] = {"pattern": dice.choice(PATTERNS)} if dice.random() < 0.6 else {}
        if not found or dice.random() < 0.6:
            found[dice.choice(["minLength", "maxLength"])] = dice.randint(0, 7)
        return found
    kind = dice.choice(["anyOf", "anyOf", "allOf", "oneOf", "oneOf", "not", "if"])
    parts = [random_schema(dice, depth - 1) for _ in range(3 if kind == "if" else dice.randint(2, 3))]
    if kind == "if":
        return dict(zip(("if", "then", "else"), parts, strict=True))
    return {kind: parts[0] if kind == "not" else parts}


def holds(schema: dict[str, Any], text: str) -> bool:
    if "if" in schema:
        return holds(schema["then" if holds(schema["if"], text) else "else"], text)
    if "not" in schema:
        return not holds(schema["not"], text)
    for kind in ("anyOf", "allOf", "oneOf"):
        if kind in schema:
            found = sum(holds(part, text) for part in schema[kind])
            return {"anyOf": found > 0, "allOf": found == len(schema[kind]), "oneOf": found == 1}[kind]
    least, most = schema.get("minLength", 0), schema.get("maxLength", len(text))
    return least <= len(text) <= most and re.search(schema.get("pattern", ""), text) is not None


def schemas() -> list[dict[str, Any]]:
    found = [{"type": "string", **random_schema(random.Random(seed), 2)} for seed in range(40)]
    return [schema for schema in found if any(holds(schema, text) for text in TEXTS)]


@pytest.mark.parametrize("schema", schemas(), ids=json.dumps)
@pytest.mark.long
def test_verdicts_masks_and_completions_are_those_of_the_keywords(schema: dict[str, Any]) -> None:
    machine = compile_schema(schema)
    wrong = [text for text in TEXTS if accepts(machine, json.dumps(text)) != holds(schema, text)]
    assert not wrong, f"{schema} is decided wrongly for {wrong[:5]}"
    dice = np.random.default_rng(len(str(schema)))
    for _ in range(3):
        tokens = NumberedTokens(machine, VOCABULARY)
        least = tokens.constraint.least_tokens(tokens.constraint.start())
        assert least is not None
        state, left, text = tokens.start, least + int(dice.integers(0, 6)), b""
        while state != -2:
            allowed = tokens.mask(state).nonzero()[0].tolist()
            reached = {token: tokens.advance(state, token) for token in range(VOCABULARY.size)}
            assert allowed == [token for token, after in reached.items() if after != -1], (schema, text)
            ids, needed = tokens.constraint.least_after(tokens._values[state])
            most = tokens.constraint.most_after(tokens._values[state])
            assert needed[needed < UNKNOWN].max(initial=0) <= most, (schema, text)
            # Some token leads nearer to the end each time, so the text is finished in the tokens that are left.
            fitting = [token for token, more in zip(ids.tolist(), needed.tolist(), strict=True) if more <= left - 1]
            ends = [token for token in allowed if token in VOCABULARY.eos]
            assert fitting or ends, (schema, text, left)
            token = int(dice.choice(fitting or ends))
            text, left = text + VOCABULARY.token_bytes[token], left - 1
            state = reached[token]
        assert holds(schema, json.loads(text)), (schema, text)


@pytest.mark.parametrize("bound", [5_000, 20_000])
@pytest.mark.parametrize("keyword", ["oneOf", "anyOf"])
def test_large_bounds_take_no_states(bound: int, keyword: str) -> None:
    schema = {"type": "string", keyword: [{"pattern": "^a", "maxLength": bound}, {"pattern": "^b"}]}
    machine = compile_schema(schema)
    for text in ("a" * bound, "b" * (bound + 1), "a" * (bound + 1), "c"):
        assert accepts(machine, json.dumps(text)) == (text in ("a" * bound, "b" * (bound + 1)))
    (content,) = {state.context.content for state in machine.states if hasattr(state, "context")}
    assert content.automaton.states < 50
