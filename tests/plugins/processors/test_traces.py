"""Every built-in processor can be traced: the logits stay, and the record becomes a page and can be pickled."""

from __future__ import annotations

import copy
import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import load_backend
from logitloom.testing import ProcessorConformance
from logitloom.testing.stories import accepting
from logitloom.trace import Record, TracedChain
from tests.plugins.processors import travelling

SUITES = travelling.suites()
KEYS = [pytest.param(*key, marks=[pytest.mark.extras] if key[0] in travelling.ON_ENGINES else []) for key in SUITES]


def recorded(suite: ProcessorConformance, case: str) -> tuple[Record, list[Any], list[Any]]:
    """The record of a walk of a few rows, and the logits of the traced chain and of the plain one."""
    backend = load_backend("numpy")
    made, _ = travelling.walk(suite, case, backend, 3, seed=2)
    chain, start = travelling.begin(suite, case, backend, 3)
    traced = TracedChain(chain)
    found: list[list[Any]] = [[], []]
    for seen, each in zip(found, (traced, chain), strict=True):
        context, state = start, each.init_state(start)
        for logits, tokens in zip(made.logits, made.tokens, strict=True):
            processed, state = each.process(logits, state, context)
            seen.append(np.array(processed))
            context = accepting(each, context, tokens.tolist())
    return traced.record, *found


@pytest.mark.parametrize(("name", "case"), KEYS)
@pytest.mark.long
def test_a_record_becomes_a_page_and_can_be_pickled(name: str, case: str, tmp_path: Path) -> None:
    record, ours, theirs = recorded(SUITES[name, case], case)
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one, other)
    data = record.to_dict()
    assert len(data["steps"]) == len(ours) * 3
    json.dumps(data)
    record.save(tmp_path / "trace.html")
    for again in (pickle.loads(pickle.dumps(record)), copy.deepcopy(record)):
        assert again.to_dict() == data


#: The processors of the cases below that are constraints.
CONSTRAINTS = [key for key in KEYS if SUITES[key.values].declared(key.values[1], "stage") == "constraint"]


@pytest.mark.parametrize(("name", "case"), CONSTRAINTS)
@pytest.mark.long
def test_a_record_knows_the_bytes_that_may_come_next(name: str, case: str) -> None:
    suite = SUITES[name, case]
    record, _, masked = recorded(suite, case)
    chain, _ = travelling.begin(suite, case, load_backend("numpy"), 3)
    if not record.automata:
        pytest.skip("the processor looks at ids, and has no automaton")
    assert chain.vocabulary is not None
    (states,) = record.automata.values()
    for step, logits in zip(record.steps, np.concatenate(masked), strict=True):
        (change,) = step.changes
        assert change.state is not None
        if change.state < 0:
            continue
        shown = [text for edge, _ in states[change.state].edges for text in edge.split(" ")]
        if "…" in shown:
            continue
        for token in np.flatnonzero(logits > -np.inf).tolist():
            first = chain.vocabulary.text_bytes([token])[:1]
            assert not first or any(is_in(first, text) for text in shown)


def is_in(byte: bytes, shown: str) -> bool:
    """Whether a byte is in a range as pages show it: a character, or two hexadecimal digits, or a dash between two."""
    one = r"(space|[0-9a-f]{2}|.)"
    found = re.fullmatch(f"{one}(?:-{one})?", shown)
    assert found is not None
    ends = [end for end in found.groups() if end is not None]
    values = [32 if end == "space" else ord(end) if len(end) == 1 else int(end, 16) for end in ends]
    return values[0] <= byte[0] <= values[-1]
