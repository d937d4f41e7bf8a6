"""Chains go to other processes and survive deep copies: options travel, and what is made of them is made again."""

from __future__ import annotations

import copy
import enum
import pickle
from typing import Any

import numpy as np
import pytest

from logitloom import Context, processors
from logitloom.automata import compile_pattern
from logitloom.trace import TracedChain
from tests.plugins.processors import catalogue, constraining, test_combinators
from tests.plugins.processors.constraining import WORDS


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    **constraining.SPECS,
    **{f"combinator-{label}": spec for label, spec in test_combinators.SPECS.items()},
    "enum": ("choice", {"choices": Colour}),
    "fsm": ("fsm", {"automaton": compile_pattern("a+b|c")}),
    "json": ("json", {"schema": {"type": "object", "properties": {"a": {"pattern": "^x+$"}}}, "engine": "table"}),
    "thinking": ("thinking", {"budget": 5}),
}


def first_steps(chain: Any, width: int) -> list[list[float]]:
    logits = np.random.default_rng(0).normal(size=(2, width)).astype(np.float32)
    context = Context.start(logits, prompt=[[1, 2], [3]], max_length=40, seed=3)
    state = chain.init_state(context)
    found = []
    for _ in range(3):
        out, state = chain.process(logits, state, context)
        context = context.accept([[int(row.argmax())] for row in out])
        found += out.tolist()
    return found


@pytest.mark.parametrize("label", catalogue.SPECS)
def test_processors_of_logits_are_the_same_after_pickling(label: str) -> None:
    chain = processors.load(catalogue.SPECS[label])
    expected = first_steps(chain, catalogue.VOCAB)
    assert first_steps(pickle.loads(pickle.dumps(chain)), catalogue.VOCAB) == expected


@pytest.mark.parametrize("label", SPECS)
@pytest.mark.long
def test_constraints_are_the_same_after_pickling(label: str) -> None:
    chain = processors.load(SPECS[label], tokenizer=WORDS)
    expected = first_steps(chain, WORDS.size)
    found = pickle.loads(pickle.dumps(chain))
    assert found.labels == chain.labels
    assert first_steps(found, WORDS.size) == expected


def test_a_chain_without_all_options_can_be_completed_elsewhere() -> None:
    chain = pickle.loads(pickle.dumps(processors.load("regex", "temperature", tokenizer=WORDS)))
    assert chain.missing
    whole = chain.configure(regex={"pattern": "a+"}, temperature={"temperature": 0.5})
    assert len(first_steps(whole, WORDS.size)) == 6


def test_a_deep_copy_is_the_chain_itself_and_of_a_trace_an_empty_one() -> None:
    chain = processors.load(("regex", {"pattern": "a+"}), tokenizer=WORDS)
    assert copy.deepcopy(chain) is chain
    assert copy.deepcopy(chain.vocabulary) is chain.vocabulary
    traced = TracedChain(chain)
    expected = first_steps(traced, WORDS.size)
    for other in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        assert other.record is not traced.record
        assert first_steps(other, WORDS.size) == expected
