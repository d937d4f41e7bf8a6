"""Drive constraints over small vocabularies on any backend, and the brute-force answers they must give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from logitloom import Backend, Chain, Context, Vocabulary, processors
from logitloom.automata import AhoCorasick, compile_pattern, difference
from tests.core.automata.vocabularies import mixed
from tests.oracles.walk import Walk

#: More columns than the vocabulary has ids, as padded models have.
PADDING = 5

WORDS = mixed()
WIDTH = WORDS.size + PADDING

#: Every constraint, with options under which random texts over ``WORDS`` end, go on and are forced.
SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    "regex": ("regex", {"pattern": r"(ab|a1)+é?|\d{2}-\d{2}|日本!"}),
    "regex-longest": ("regex", {"pattern": "(foobar12|é日本)-[ab]|abcab+", "longest_tokens": True}),
    "choice": ("choice", {"choices": ["abc", "ab", "foobar", "日本é", "12"]}),
    "fsm": (
        "fsm",
        {"automaton": difference(compile_pattern("[a-c]{1,6}"), AhoCorasick(["aa", "cb"]).containing())},
    ),
    "stop": ("stop", {"strings": ["ab1", "本", "ab"]}),
    "bad_words": ("bad_words", {"phrases": ["ab", "本", "12"]}),
}


def begin(
    backend: Backend, spec: Any, rows: int = 1, vocabulary: Vocabulary = WORDS, width: int = WIDTH, **more: Any
) -> tuple[Chain, Context, Any]:
    chain = processors.load(spec, tokenizer=vocabulary, debug=not more.get("compiled", False))
    logits = backend.asarray(np.zeros((rows, width), dtype=np.float32))
    context = Context.start(logits, vocabulary=vocabulary, **more)
    return chain, context, chain.init_state(context)


def step(
    backend: Backend, chain: Chain, state: Any, context: Context, tokens: Any = None, seed: int = 0
) -> tuple[list[set[int]], Any]:
    """The allowed sets of all rows, and the state after; what is allowed must keep its logits bit for bit."""
    rows = context.batch if tokens is None else len(tokens)
    given = np.random.default_rng(seed).normal(size=(rows, context.vocab_size)).astype(np.float32)
    logits = backend.asarray(given)
    processed, state = chain.process(logits, state, context if tokens is None else context.accept(tokens))
    assert np.array_equal(backend.to_numpy(logits), given), "the input was overwritten"
    out = backend.to_numpy(processed)
    assert out.dtype == np.float32
    kept = out > -np.inf
    assert np.array_equal(out[kept], given[kept])
    return [set(np.flatnonzero(line).tolist()) for line in kept], state


def automaton_of(chain: Chain, context: Context) -> Walk:
    return Walk(chain[chain.labels[0]].constraint_for(context))


def random_walk(automaton: Walk, seed: int, steps: int) -> list[int]:
    """Random allowed tokens; after end-of-sequence, tokens as engines pad with them."""
    random = np.random.default_rng(seed)
    state, walk = automaton.start, []
    eos = automaton.vocabulary.eos[0]
    while len(walk) < steps:
        if walk and walk[-1] in automaton.vocabulary.eos:
            return walk + random.integers(0, automaton.vocab_size, size=steps - len(walk)).tolist()
        row = automaton.row(state)
        ends = eos in row and random.random() < 0.2
        # Letters and digits more often than the many single bytes.
        useful = [
            t
            for t in row.tolist()
            if t not in automaton.vocabulary.eos and len(automaton.vocabulary.text_bytes([t])) != 1
        ]
        picked = useful if useful and random.random() < 0.7 else row.tolist()
        walk.append(eos if ends else int(random.choice(picked)))
        state = automaton.advance(state, walk[-1])
    return walk


def states_of(backend: Backend, state: Any) -> list[int]:
    found: list[int] = backend.to_numpy(state.processors[0]).tolist()
    return found


def ragged(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(row) for row in rows]
