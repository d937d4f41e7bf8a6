"""Walks of the built-in processors, and the other process of the test of states that travel.

Run with the paths of two files: it reads the states of the first with chains of its own, goes on, and writes to the
second what the chains gave.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import Backend, Chain, Context, load_backend
from logitloom.arrays.backend import NEG_INF
from logitloom.testing import ProcessorConformance
from logitloom.testing.stories import accepting
from logitloom_plugins.conformance import combinators, processors

#: Steps before a state travels, and after it.
BEFORE, AFTER = 6, 3
#: Suites that need a grammar engine.
ON_ENGINES = {"TestGrammar", "TestGrammarOnXgrammar", "TestJsonOnLlguidance", "TestJsonOnXgrammar"}


class Walk(NamedTuple):
    """Where rows are when their states travel.

    Attributes:
        tokens: per step and row the accepted token, -1 for none; also those of the steps after.
        logits: per step ``[branches * rows, vocab]``.
    """

    tokens: list[NDArray[np.int32]]
    logits: list[NDArray[np.float32]]


def suites() -> dict[tuple[str, str], ProcessorConformance]:
    """The suite of every case of every built-in processor, unless a package is missing."""
    found = {}
    for module in (processors, combinators):
        for name in module.__all__:
            suite = getattr(module, name)
            mark = getattr(suite, "pytestmark", None)
            if mark is None or not any(m.args and m.args[0] for m in ([mark] if not isinstance(mark, list) else mark)):
                found.update({(name, case): suite() for case in suite.cases})
    return found


def begin(suite: ProcessorConformance, case: str, backend: Backend, rows: int) -> tuple[Chain, Context]:
    """A new chain, and the context of the start of some rows."""
    chain = suite.chain(case, backend)
    dice = np.random.default_rng(5)
    prompts = [dice.integers(1, 5, 1 + row % 3).tolist() for row in range(rows)]
    blank = np.zeros((chain.branches * rows, suite.vocab_size), np.float32)
    context = Context.start(
        blank, prompt=prompts, max_length=suite.max_length, seed=list(range(rows)), branches=chain.branches
    )
    return chain, context


def walk(suite: ProcessorConformance, case: str, backend: Backend, rows: int, seed: int) -> tuple[Walk, Any]:
    """Random prefixes that the processor allows, of different lengths, and the state after ``BEFORE`` steps."""
    chain, context = begin(suite, case, backend, rows)
    dice = np.random.default_rng(seed)
    at, kept, made = chain.init_state(context), None, Walk([], [])
    for step in range(BEFORE + AFTER):
        shape = chain.branches * rows, suite.vocab_size
        made.logits.append(dice.normal(size=shape, scale=2.0).astype(np.float32))
        processed, at = chain.process(made.logits[-1], at, context)
        chosen = np.full((rows, 1), -1, np.int32)
        for row, line in enumerate(processed):
            allowed = np.flatnonzero(line > NEG_INF).tolist()
            if allowed and (chain.sees_every_step or dice.random() < 0.8):
                chosen[row] = suite.choose(allowed, dice)
        made.tokens.append(chosen)
        context = accepting(chain, context, chosen.tolist())
        kept = at if step == BEFORE - 1 else kept
    return made, kept


def go_on(suite: ProcessorConformance, case: str, backend: Backend, made: Walk, state: Any) -> list[Any]:
    """What a new chain gives in the steps after a state, which is given as bytes or as an object."""
    rows = len(made.tokens[0])
    chain, context = begin(suite, case, backend, rows)
    given = []
    at = chain.load_state(state, context) if isinstance(state, bytes) else state
    for step in range(BEFORE, BEFORE + AFTER):
        context = accepting(chain, context, made.tokens[step - 1].tolist())
        processed, at = chain.process(made.logits[step], at, context)
        given.append(np.array(processed))
    return given


def main(source: str, target: str) -> None:
    """Go on with what another process has begun."""
    backend, found = load_backend("numpy"), {}
    known = suites()
    for key, (made, saved, pickled) in pickle.loads(Path(source).read_bytes()).items():
        suite = known[key]
        # What this process has visited before is something else.
        walk(suite, key[1], backend, 3, seed=99)
        states = [saved] if pickled is None else [saved, pickle.loads(pickled)]
        found[key] = [go_on(suite, key[1], backend, made, state) for state in states]
    Path(target).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
