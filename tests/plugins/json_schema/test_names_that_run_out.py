"""Objects that allow a small number of names, none of them twice: there is a next name as long as one is needed."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from logitloom import Vocabulary, processors
from logitloom.errors import UnsupportedSchema

BYTES = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0], name="bytes")
NAMES = {"propertyNames": {"enum": ["a", "bb", "b"]}}
LETTERS = {"patternProperties": {"^[a-c]$": {"type": "boolean"}}, "additionalProperties": False}


@pytest.mark.parametrize("least", [2, 3])
@pytest.mark.parametrize("names", [NAMES, LETTERS, {**NAMES, "properties": {"bb": {"type": "null"}}}], ids=str)
def test_no_row_is_without_a_token(names: dict[str, Any], least: int) -> None:
    schema = {"type": "object", "minProperties": least, "maxProperties": 3, **names}
    constraint = processors.load(("json", {"schema": schema}), tokenizer=BYTES)["json"].constraint(BYTES, BYTES.size)
    for seed in range(40):
        draw, state, text = random.Random(seed), constraint.start(), b""
        while not constraint.may_end(state) or draw.random() < 0.5:
            tokens = [t for t in constraint.allowed(state).listed(BYTES.size).tolist() if t]
            if not tokens:
                break
            # Short values, so that members come to an end.
            likely = [t for t in tokens if chr(t - 1) in '{}",:abtruefalsn'] or tokens
            text += BYTES.token_bytes[draw.choice(likely)]
            state = constraint.advance(state, 1 + text[-1])
            assert len(text) < 2000
        assert constraint.may_end(state), text
        pairs = json.loads(text, object_pairs_hook=list)
        assert least <= len(pairs) == len(dict(pairs)) <= 3, text


def test_more_members_than_names_are_refused() -> None:
    for names in (NAMES, LETTERS):
        with pytest.raises(UnsupportedSchema, match="No JSON value satisfies"):
            processors.load(("json", {"schema": {"type": "object", "minProperties": 4, **names}}), tokenizer=BYTES)
