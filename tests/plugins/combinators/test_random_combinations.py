"""Random combinations of constraints: no row without a token, and every text that is finished is accepted."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from logitloom import Vocabulary, processors
from logitloom.constraints import Constraint
from logitloom.errors import OptionError
from tests.cases import EXHAUSTIVE, first, some
from tests.core.automata.vocabularies import tekken
from tests.plugins.combinators.languages import PHRASES, TRIGGERS, Node, accepts, drawn, spec

BYTES = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0], name="bytes")
PAIRS = Vocabulary(
    [b"", *[bytes([byte]) for byte in range(256)], b"ab", b"a;", b";b", b";;", b"1a", b"b;a", b"];", b"1a1b"], eos=[0]
)
FEW = Vocabulary([b"", b"a", b"b", b";", b"1", b"a;", b";b"], eos=[0], name="few")
#: Most tokens of a text before it is led to its end.
_TOKENS = 14
#: The length of the texts that are all tried.
_TRIED = 5 if EXHAUSTIVE else 4


def combination(node: Node, vocabulary: Vocabulary) -> Constraint | None:
    """The constraint of a combination; ``None`` if it is refused because nothing satisfies it."""
    given = spec(node) or ["budget", {"n": 1}]
    name, options = given if isinstance(given[0], str) else ("budget", {"n": 0, "then": given})
    chain = processors.load((name, options), tokenizer=vocabulary)
    with contextlib.suppress(OptionError):  # no text satisfies all: see test_combinations
        found: Constraint = chain[name].constraint(vocabulary, vocabulary.size)
        return found
    return None


@cache
def likely(vocabulary: Vocabulary) -> list[int]:
    """Tokens that lead somewhere in these combinations."""
    return [token for token, text in enumerate(vocabulary.token_bytes) if text and set(text) <= set(b"ab;1!c[]")]


def choices(constraint: Constraint, state: Any) -> list[int]:
    """The tokens that are allowed, or those of them that lead somewhere; fails where there are none and no end."""
    members = constraint.allowed(state)
    telling = [token for token in likely(constraint.vocabulary) if token in members]
    listed = telling if len(telling) > 3 else members.listed(constraint.vocab_size)[:2000].tolist()
    assert listed or constraint.may_end(state), f"no token in {state}"
    return listed


def shortest_end(constraint: Constraint, state: Any) -> list[int]:
    """The tokens of a short way to the end of the text."""
    before: dict[Any, tuple[Any, int] | None] = {state: None}
    queue = [state]
    for origin in queue:
        if constraint.may_end(origin):
            found: list[int] = []
            while (step := before[origin]) is not None:
                origin = step[0]
                found.append(step[1])
            return found[::-1]
        assert len(queue) < 4000, f"no end found from {state}"
        for token in choices(constraint, origin):
            after = constraint.advance(origin, token)
            assert after is not None, f"{constraint.vocabulary.describe(token)} leads nowhere from {origin}"
            if after not in before:
                before[after] = (origin, token)
                queue.append(after)
    pytest.fail(f"no end from {state}")


def finished(constraint: Constraint, draw: random.Random) -> list[int]:
    """The tokens of a random text with an end; fails where a row has no token."""
    state: Any = constraint.start()
    found: list[int] = []
    for _ in range(draw.randrange(_TOKENS)):
        listed = choices(constraint, state)
        if not listed or (constraint.may_end(state) and draw.random() < 0.05):
            return found
        if draw.random() < 0.1:
            listed = constraint.allowed(state).listed(constraint.vocab_size).tolist()
        found.append(draw.choice(listed))
        state = constraint.advance(state, found[-1])
        assert state is not None, f"{constraint.vocabulary.text_bytes(found)!r} leads nowhere"
    return found + shortest_end(constraint, state)


def possible(
    seeds: range, draw_node: Callable[[random.Random], Node], vocabulary: Vocabulary
) -> Iterator[tuple[random.Random, Node, Constraint]]:
    """Random combinations that some text satisfies, each with its random numbers; fails if they are few."""
    made = 0
    for seed in seeds:
        draw = random.Random(seed)
        node = draw_node(draw)
        constraint = combination(node, vocabulary)
        if constraint is not None:
            made += 1
            yield draw, node, constraint
    assert made > len(seeds) // 2


def check_walks(seeds: range, vocabulary: Vocabulary, walks: int) -> None:
    for draw, node, constraint in possible(seeds, lambda draw: drawn(draw, 3), vocabulary):
        for _ in range(walks):
            tokens = finished(constraint, draw)
            texts = [vocabulary.token_bytes[token] for token in tokens]
            assert accepts(node, texts), (node, texts)


@pytest.mark.parametrize("part", first(2, range(10)))
@pytest.mark.parametrize("vocabulary", [BYTES, PAIRS], ids=["bytes", "pairs"])
@pytest.mark.long
def test_every_finished_text_is_accepted(vocabulary: Vocabulary, part: int) -> None:
    check_walks(range(50 * part, 50 * part + some(50)), vocabulary, walks=2)


@pytest.mark.extras
@pytest.mark.parametrize("part", first(1, range(3)))
def test_every_finished_text_is_accepted_over_a_vocabulary_of_a_model(part: int) -> None:
    check_walks(range(2000 + 50 * part, 2050 + 50 * part), tekken(), walks=1)


@pytest.mark.parametrize("part", first(2, range(20)))
def test_a_walk_finds_the_tokens_that_end_sections_as_reading_them_one_by_one_does(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = 0
    for seed in range(30 * part, 30 * part + 30):
        node = drawn(random.Random(seed), 3)
        read, found = combination(node, PAIRS), combination(node, PAIRS)
        if read is None or found is None:
            continue
        draw, state = random.Random(seed), read.start()
        for _ in range(_TOKENS):
            expected = choices(read, state)
            with monkeypatch.context() as patch:
                patch.setattr("logitloom_plugins.combinators.combination._FEW_CROSSING", -1)
                assert choices(found, state) == expected, (seed, node, state)
            walked += any(config.exit >= 0 for config in state)
            if not expected:
                break
            after = read.advance(state, draw.choice(expected))
            assert after is not None
            state = after
    assert walked


@cache
def sequences(most: int) -> list[tuple[int, ...]]:
    """All sequences of tokens that write something, up to a length."""
    return [tokens for n in range(most + 1) for tokens in itertools.product(range(1, FEW.size), repeat=n)]


@pytest.mark.parametrize("seed", first(12, range(40)))
@pytest.mark.long
def test_masks_equal_brute_force(seed: int) -> None:
    """A token is allowed exactly if some sequence of tokens completes the text."""
    draw = random.Random(seed)
    node = drawn(draw, 1 + seed % 3, texts=False)
    while "json" in repr(node):  # its texts cannot be written with these tokens
        node = drawn(draw, 1 + seed % 3, texts=False)
    check_masks(node)


@pytest.mark.parametrize("seed", first(3, range(8)))
@pytest.mark.long
def test_masks_of_combinations_beside_constraints_equal_brute_force(seed: int) -> None:
    """A combination and a constraint that are satisfied together, inside another combination."""
    draw = random.Random(seed)
    inner = drawn(draw, 1, texts=False)
    # Most texts are unfinished, so it matters what can be completed.
    while "json" in repr(inner) or "regex" not in repr(inner) or inner[0] not in ("after", "until", "between"):
        inner = drawn(draw, 1, texts=False)
    both = ("both", (*inner[:-1], True), ("bad_words", tuple(draw.choice(PHRASES))))
    node = ("until", draw.choice(TRIGGERS), both, ("free",), draw.random() < 0.5)
    if combination(node, FEW) is None:
        assert not [s for s in sequences(_TRIED) if accepts(node, [FEW.token_bytes[token] for token in s])]
    check_masks(node)


def together(draw: random.Random) -> Node:
    """A combination, and another one or a constraint, that are satisfied together."""

    def combined() -> Node:
        node = drawn(draw, 1, texts=False)
        return node if node[0] in ("after", "until", "between") else combined()

    other = draw.choice([combined(), ("bad_words", tuple(draw.choice(PHRASES))), ("regex", "[ab1;]{3,9}")])
    return ("both", *draw.sample([combined(), other], 2))


@pytest.mark.parametrize("part", first(2, range(12)))
@pytest.mark.long
def test_combinations_that_are_satisfied_together_end_within_the_least_tokens(part: int) -> None:
    for draw, node, constraint in possible(range(25 * part, 25 * part + 25), together, PAIRS):
        state, tokens = constraint.start(), list[int]()
        for left in range(draw.randrange(_TOKENS), -1, -1):
            least = constraint.least_tokens(state)
            assert least is not None, (node, tokens)
            if left:
                listed = choices(constraint, state)
                if not listed:
                    break
                tokens.append(draw.choice(listed))
                state = constraint.advance(state, tokens[-1])
        while not constraint.may_end(state):
            least -= 1
            ids, needed = constraint.least_after(state)
            fitting = ids[needed <= least].tolist()
            assert fitting, (node, tokens, least)
            tokens.append(draw.choice(fitting))
            state = constraint.advance(state, tokens[-1])
        texts = [PAIRS.token_bytes[token] for token in tokens]
        assert accepts(node, texts), (node, texts)


@pytest.mark.parametrize("part", first(1, range(6)))
@pytest.mark.long
def test_the_completion_of_a_combination_is_accepted(part: int) -> None:
    told = 0
    for draw, node, constraint in possible(range(40 * part, 40 * part + 40), lambda draw: drawn(draw, 2), PAIRS):
        automaton = constraint.automaton()
        if automaton is None or automaton.counts_tokens:
            continue
        state = constraint.start()
        for _ in range(_TOKENS):
            text = automaton.completion(state)
            assert text is not None
            reached: Any = state
            for byte in text:
                reached = automaton.step(reached, byte)
                assert reached is not None, (node, state, text)
            assert automaton.accepts(reached), (node, state, text)
            told += len(text) > 0
            listed = choices(constraint, state)
            if not listed:
                break
            state = constraint.advance(state, draw.choice(listed))
    assert told > 20


def check_masks(node: Node) -> None:
    """A token is allowed exactly if some sequence of tokens completes the text."""
    constraint = combination(node, FEW)
    if constraint is None:
        return
    complete = [s for s in sequences(_TRIED) if accepts(node, [FEW.token_bytes[token] for token in s])]
    completable = {tokens[:n] for tokens in complete for n in range(len(tokens) + 1)}
    ends = set(complete)
    states: dict[tuple[int, ...], Any] = {(): constraint.start()}
    for tokens in sequences(_TRIED - 2):
        if tokens not in states:
            continue
        state = states[tokens]
        allowed = set(constraint.allowed(state).listed(FEW.size).tolist())
        assert constraint.may_end(state) == (tokens in ends), (node, tokens)
        for token in range(1, FEW.size):
            after = (*tokens, token)
            if token not in allowed:
                assert after not in completable, (node, after)
                assert constraint.advance(state, token) is None
                continue
            reached = constraint.advance(state, token)
            assert reached is not None
            states[after] = reached
            if after not in completable:
                rest = shortest_end(constraint, reached)
                assert accepts(node, [FEW.token_bytes[one] for one in (*after, *rest)]), (node, after, rest)


def test_masks_hold_what_advance_takes() -> None:
    """Over bytes and pairs, the token set of a state is what leads somewhere."""
    for seed in range(some(60)):
        draw = random.Random(seed)
        constraint = combination(drawn(draw, 2, texts=False), PAIRS)
        state: Any = None if constraint is None else constraint.start()
        for _ in range(4):
            if constraint is None or state is None:
                break
            taken = [token for token in range(1, PAIRS.size) if constraint.advance(state, token) is not None]
            np.testing.assert_array_equal(constraint.allowed(state).listed(PAIRS.size), taken)
            state = constraint.advance(state, draw.choice(taken)) if taken else None
