"""Objects of an array of different items: how far the end of such an object is, and texts within limits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from logitloom import Context, processors
from logitloom.constraints import UNKNOWN
from tests.cases import EXHAUSTIVE, each_once
from tests.plugins.json_schema.test_strings_that_differ import WORDS, constraint_of

_STRING = {"type": "string"}
#: Objects that a member of many values, or one more member, can always make differ, and objects of few values.
BOUNDED: dict[str, dict[str, Any]] = {
    "any member": {"properties": {"a": _STRING}},
    "any member of numbers": {"properties": {"a": {"enum": ["B", "c"]}}, "additionalProperties": {"type": "integer"}},
    "a last number": {"properties": {"k": _STRING, "v": {"type": "integer"}}, "required": ["k", "v"]},
    "a last string": {"properties": {"Kind": {"enum": ["A", "B"]}, "name": {"type": "string", "maxLength": 30}}},
    "nested": {
        "properties": {"a": {"type": "array", "items": {"type": "object", "required": ["b"]}}, "n": {"type": "number"}}
    },
    "few values behind a string": {
        "properties": {"k": _STRING, "kind": {"enum": ["a", "bc"]}, "on": {"type": "boolean"}},
        "required": ["kind"],
    },
    "few values alone": {"properties": {"kind": {"enum": ["a", "bc", 7]}, "on": {"type": ["boolean", "null"]}}},
    "a last array": {"properties": {"k": {"type": "boolean"}, "tags": {"type": "array", "items": _STRING}}},
    "a last object": {
        "properties": {"k": {"type": "boolean"}, "more": {"type": "object", "properties": {"a": _STRING}}}
    },
    "a last value": {"properties": {"k": {"type": "boolean"}, "v": {}}},
    "a required number before listed texts": {
        "properties": {"größe": {"type": ["integer", "boolean"]}, "Name": {"enum": ["B", "abc", "Zz"]}},
        "required": ["größe", "Name"],
    },
}
#: Objects whose masks are searched.
SEARCHED: dict[str, dict[str, Any]] = {
    "listed texts": {
        "properties": {"größe": {"type": ["integer", "boolean"]}, "Name": {"enum": ["B", "abc", "Zz"]}},
        "required": ["Name"],
    },
    "an array of few items": {"properties": {"tags": {"type": "array", "items": _STRING, "maxItems": 2}}},
    "an object and a boolean": {"properties": {"ID": {"type": "object"}, "a": {"type": "boolean"}}, "required": ["a"]},
    "optional names in capitals": {"properties": {"ID": {"type": "boolean"}, "KEY": {"enum": ["X", "y"]}}},
}


def array_of(name: str, least: int) -> dict[str, Any]:
    item = {"type": "object", **{**BOUNDED, **SEARCHED}[name]}
    if "any" not in name:
        item["additionalProperties"] = False
    return {"type": "array", "items": item, "uniqueItems": True, "minItems": least}


def again(text: bytes, ids: Sequence[int], dice: random.Random) -> int:
    """A token that goes on as the object before did, if one may come; otherwise one of those that write few texts."""
    here = text.rfind(b"{")
    before = text.rfind(b"{", 0, max(here, 0))
    following = text[before + len(text) - here :][:1] if before >= 0 else b""
    same = [token for token in ids if following and WORDS.token_bytes[token] == following]
    if same and dice.random() < 0.8:
        return same[0]
    likely = [token for token in ids if WORDS.token_bytes[token] in (b"a", b"0", b'"', b",", b":", b"{", b"}", b'","')]
    return dice.choice(likely or list(ids))


@pytest.mark.parametrize(("name", "least"), each_once(BOUNDED, [0, 3]))
def test_no_token_leads_beyond_the_bound_and_the_bound_is_near(name: str, least: int) -> None:
    """Without a bound each mask of such an array was a search, however far the limit was."""
    constraint, dice = constraint_of(array_of(name, least)), random.Random(name)
    for _ in range(2):
        state, text = constraint.start(), b""
        for _ in range(30):
            ids, needed = constraint.least_after(state)
            if not len(ids):
                break
            # Some parts of the bound may take several masks to find.
            most = next(most for most in map(constraint.most_after, [state] * 100) if most < UNKNOWN)
            assert needed.max() <= most < 600
            token = again(text, [token for token in ids.tolist() if token], dice)
            state, text = constraint.advance(state, token), text + WORDS.token_bytes[token]


@pytest.mark.parametrize("name", [*BOUNDED, *SEARCHED])
def test_texts_that_nearly_repeat_objects_are_finished_within_each_limit(name: str) -> None:
    chain = processors.load(("json", {"schema": array_of(name, 2)}), tokenizer=WORDS)
    constraint = chain["json"].constraint(WORDS, WORDS.size)
    least, dice = constraint.least_tokens(constraint.start()), random.Random(name)
    logits = np.zeros((1, WORDS.size), dtype=np.float32)
    for more in (0, 1, 3, 8, 20, 40) if EXHAUSTIVE else (0, 3, 20):
        limit = least + 1 + more
        context = Context.start(logits, vocabulary=WORDS, max_new_tokens=limit)
        state, tokens = chain.init_state(context), list[int]()
        while not tokens or tokens[-1] != 0:
            step = context.accept([tokens[-1:]]) if tokens else context
            out, state = chain.process(logits, state, step)
            ids = np.flatnonzero(np.isfinite(out[0])).tolist()
            assert ids
            tokens.append(again(WORDS.decode(tokens).encode(), ids, dice))
        assert len(tokens) <= limit
