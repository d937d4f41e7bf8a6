"""The work of a mask is bounded: the set is sound, equal in every process, and has a way to the end."""

from __future__ import annotations

import json
import random
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
import pytest

from logitloom.masks.kernels import load_kernels
from logitloom_plugins.json_schema.folds.schema_automaton import SchemaAutomaton
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.grammar.layout import Whitespace
from logitloom_plugins.json_schema.tokens import content_walk, doubtful_tokens, token_walk
from logitloom_plugins.json_schema.tokens.schema_constraint import SchemaConstraint
from tests.cases import EXHAUSTIVE
from tests.core.automata.vocabularies import mixed
from tests.plugins.json_schema.test_work_near_limits import HOSTILE, WORDS

_DICE = random.Random(7)
_NAMES = [text.decode() for text in WORDS.token_bytes[257:] if text.isalpha()][:60]
SCHEMAS: dict[str, Any] = {
    **HOSTILE,
    "listed": {"enum": [a + b for a in _NAMES for b in _NAMES[:12]]},
    "listed objects": {"enum": [{"id": at, "name": name} for at, name in enumerate(_NAMES)]},
    "tagged": {"anyOf": [{"properties": {"a": {"const": n}, n: {}}, "required": ["a", n]} for n in _NAMES[:9]]},
    "different objects": {
        "type": "array",
        "uniqueItems": True,
        "items": {"properties": {"a": {"enum": _NAMES[:6]}, "b": {"type": "integer"}}, "required": ["a"]},
    },
    "different values": {"type": "array", "uniqueItems": True},
    "different bits": {
        "type": "array",
        "uniqueItems": True,
        "items": {"type": "array", "items": {"enum": [0, 1]}, "minItems": 3, "maxItems": 3},
    },
    "different listed": {"type": "array", "minItems": 5, "uniqueItems": True, "items": {"enum": _NAMES[:6]}},
    "recursive": {
        "$defs": {"n": {"type": "object", "properties": {"in": {"$ref": "#/$defs/n"}, "s": {"minLength": 2}}}},
        "$ref": "#/$defs/n",
    },
    "names of a pattern": {"patternProperties": {"^[a-f]{2,9}$": {"type": "integer"}}, "minProperties": 3},
    "contained": {"type": "array", "contains": {"const": 1}, "minContains": 2, "items": {"enum": [1, "a", [2]]}},
}
MODES = ["numpy", *(["kernels"] if load_kernels() is not None else [])]


def constraint_of(name: str, vocabulary: Any = WORDS) -> SchemaConstraint:
    options = SchemaOptions(Whitespace("flexible", 2), "any")
    return SchemaConstraint(SchemaAutomaton(compile_schema(SCHEMAS[name], options)), vocabulary)


def bounded(work: int) -> ExitStack:
    stack = ExitStack()
    stack.enter_context(mock.patch.object(token_walk, "_MOST_WORK", work))
    stack.enter_context(mock.patch.object(doubtful_tokens, "_MOST_READ", work))
    return stack


def masks(constraint: SchemaConstraint, states: list[Any], mode: str = "numpy") -> list[list[int]]:
    found = load_kernels() if mode == "kernels" else None
    with mock.patch.object(content_walk, "automaton_kernels", return_value=found):
        return [constraint.allowed(state).listed(constraint.vocab_size).tolist() for state in states]


def visited(constraint: SchemaConstraint, seed: int, steps: int = 9) -> list[Any]:
    """States of a text, of which about half follows the completion."""
    dice, state = random.Random(seed), constraint.start()
    states = [state]
    for _ in range(steps):
        ids = constraint.allowed(state).listed(constraint.vocab_size).tolist()
        rest = constraint.automaton().completion(state) or b""
        ahead = [token for token in ids if rest.startswith(constraint.vocabulary.token_bytes[token])]
        if not ids:
            break
        state = constraint.advance(state, dice.choice(ahead if ahead and dice.random() < 0.6 else ids))
        states.append(state)
    return states


@pytest.mark.parametrize("work", [0, 60, 600])
@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.long
def test_bounded_masks_are_sound_and_do_not_depend_on_what_is_remembered(name: str, work: int) -> None:
    exact, used, other = (constraint_of(name) for _ in range(3))
    states = [state for seed in range(2 if EXHAUSTIVE else 1) for state in visited(exact, seed)]
    whole = masks(exact, states)
    with bounded(work):
        expected = masks(used, states)
        for mode in MODES:
            other.forget()
            assert masks(other, states[::-1], mode)[::-1] == expected
    for state, small, large in zip(states, expected, whole, strict=True):
        assert set(small) <= set(large)
        assert bool(small) == bool(large)
        rest = exact.automaton().completion(state)
        if rest is not None:
            assert {token for token in large if rest.startswith(WORDS.token_bytes[token])} <= set(small)


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.long
def test_masks_below_the_bound_are_those_of_single_tokens(name: str) -> None:
    constraint = constraint_of(name, mixed())
    for state in visited(constraint, 3, 5):
        alive = [
            token
            for token, text in enumerate(mixed().token_bytes)
            if text and constraint.advance(state, token) is not None
        ]
        assert masks(constraint, [state]) == [alive]


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.long
def test_the_completion_can_be_written_in_bounded_masks(name: str) -> None:
    constraint, least = constraint_of(name), 0
    with bounded(0):
        for state in visited(constraint, 4, 6):
            at, text = state, b""
            while not constraint.may_end(at):
                ids = masks(constraint, [at])[0]
                rest = constraint.automaton().completion(at)
                assert rest is not None
                ahead = [token for token in ids if rest.startswith(WORDS.token_bytes[token])]
                token = max(ahead, key=lambda each: len(WORDS.token_bytes[each]))
                at, text = constraint.advance(at, token), text + WORDS.token_bytes[token]
                least += 1
    assert least


@pytest.mark.extras
@pytest.mark.parametrize("name", SCHEMAS)
def test_texts_of_bounded_masks_are_valid(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")

    constraint, dice = constraint_of(name), random.Random(name)
    with bounded(40):
        state, text = constraint.start(), b""
        for _ in range(12):
            ids = masks(constraint, [state])[0]
            if not ids:
                break
            token = dice.choice(ids)
            state, text = constraint.advance(state, token), text + WORDS.token_bytes[token]
            assert state is not None
        rest = constraint.automaton().completion(state)
        if rest is not None:
            jsonschema.Draft202012Validator(SCHEMAS[name]).validate(json.loads(text + rest))


def test_bounds_leave_tokens_out() -> None:
    """Otherwise the tests above would compare equal sets."""
    less = set()
    for name in SCHEMAS:
        exact, used = constraint_of(name), constraint_of(name)
        states = visited(exact, 0)
        with bounded(60):
            less |= {name} if masks(used, states) != masks(exact, states) else set()
    assert {"different objects", "different values", "many required names"} <= less
    assert np.mean([name in less for name in SCHEMAS]) > 0.3
