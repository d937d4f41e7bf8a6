"""``regex``: exactly the tokens whose bytes keep the pattern completable; texts are those of ``re.fullmatch``."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Backend, Context, backend_of, load_backend, processors
from logitloom.automata import compile_pattern, default_cache
from logitloom.automata.lift import token_automaton
from logitloom.errors import BudgetExceeded, LogitloomError, NeedsNotMet, OptionError, UnsupportedPattern
from tests.cases import examples
from tests.core.automata.pattern_strategies import TEXTS, patterns
from tests.core.automata.vocabularies import smollm2
from tests.plugins.processors.constraining import WIDTH, WORDS, automaton_of, begin, random_walk, step

SINGLE = {WORDS.token_bytes[t]: t for t in range(2, 258)}


def tokens_of(text: str) -> list[int]:
    return [SINGLE[bytes([byte])] for byte in text.encode()]


@given(pattern=patterns(anchors=False), text=TEXTS)
def test_end_of_sequence_is_allowed_exactly_after_full_matches(pattern: str, text: str) -> None:
    backend = load_backend("numpy")
    try:
        chain, context, at = begin(backend, ("regex", {"pattern": pattern}))
    except LogitloomError:
        return  # not regular, or it accepts nothing: tested with the automata
    state = automaton_of(chain, context).start
    for token in tokens_of(text):
        state = automaton_of(chain, context).advance(state, token)
    if state < 0:
        assert not re.fullmatch(pattern, text)
        return
    (allowed,), _ = step(backend, chain, at, context, [tokens_of(text)])
    assert (WORDS.eos[0] in allowed) == bool(re.fullmatch(pattern, text))


@given(pattern=patterns(anchors=False), seed=st.integers(0, 99))
@examples(15)
def test_a_token_is_allowed_if_its_bytes_keep_the_text_completable(pattern: str, seed: int) -> None:
    backend = load_backend("numpy")
    try:
        chain, context, at = begin(backend, ("regex", {"pattern": pattern}))
    except LogitloomError:
        return
    dfa = compile_pattern(pattern).trimmed()
    walk = random_walk(automaton_of(chain, context), seed, 5)
    for n in range(len(walk) + 1):
        if n and walk[n - 1] in WORDS.eos:
            break
        (allowed,), _ = step(backend, chain, at, context, [walk[:n]])
        text = WORDS.text_bytes(walk[:n])
        possible = {t for t, b in enumerate(WORDS.token_bytes) if b and dfa.walk(text + b, dfa.start) >= 0}
        ends = set(WORDS.eos) if dfa.fullmatch(text) else set()
        assert allowed == possible | ends
        assert not allowed & (WORDS.special - set(WORDS.eos))
        assert all(token < WORDS.size for token in allowed)


@pytest.mark.extras
@pytest.mark.parametrize(
    "pattern", [r"\d{3}-\d{4}", r"[a-z]{10}@[a-z]{5}\.[a-z]{3}", r'\{"a": ("\w*"|\d+)\}', r"[^Z]*"]
)
@pytest.mark.long
def test_random_texts_over_a_real_vocabulary_full_match(backend: Backend, pattern: str) -> None:
    vocabulary = smollm2()
    chain, context, at = begin(backend, ("regex", {"pattern": pattern}), 1, vocabulary, vocabulary.size)
    automaton = automaton_of(chain, context)
    for seed in range(2):
        walk = random_walk(automaton, seed, 12)
        end = next((n for n, t in enumerate(walk) if t in vocabulary.eos), len(walk))
        (allowed,), _ = step(backend, chain, at, context, [walk[:end]])
        text = vocabulary.text_bytes(walk[:end])
        if text.decode("utf-8", "replace").encode() == text:
            assert (vocabulary.eos[0] in allowed) == bool(re.fullmatch(pattern, text.decode()))
        picked = sorted(allowed - set(vocabulary.eos))[:: max(1, len(allowed) // 50)]
        assert all(automaton.dfa.walk(text + vocabulary.token_bytes[t], automaton.dfa.start) >= 0 for t in picked)


def test_letters_of_either_case() -> None:
    backend = load_backend("numpy")
    for ignore, expected in ((True, True), (False, False)):
        chain, context, at = begin(backend, ("regex", {"pattern": "[a-f]+", "ignore_case": ignore}))
        (allowed,), _ = step(backend, chain, at, context)
        assert (SINGLE[b"B"] in allowed) is expected


def test_what_is_not_regular_is_refused_when_the_processor_is_made() -> None:
    with pytest.raises(UnsupportedPattern, match="back-reference"):
        processors.load(("regex", {"pattern": r"(a)\1"}))


def test_a_pattern_beyond_its_budget_is_refused_when_the_processor_is_made() -> None:
    with pytest.raises(BudgetExceeded, match="max_states|states"):
        processors.load(("regex", {"pattern": r"(.*a.{120}b)", "max_states": 100}))
    with pytest.raises(OptionError, match="max_states"):
        processors.load(("regex", {"pattern": "a", "max_states": 0}))


def test_without_a_vocabulary_the_error_says_how_to_give_one() -> None:
    chain = processors.load(("regex", {"pattern": "a"}))
    context = begin(load_backend("numpy"), ("regex", {"pattern": "a"}))[1].with_fields(vocabulary=None)
    with pytest.raises(NeedsNotMet, match="tokenizer="):
        chain.init_state(context)


def test_one_processor_serves_several_vocabularies_and_widths() -> None:
    backend = load_backend("numpy")
    chain, context, at = begin(backend, ("regex", {"pattern": "ab|b"}))
    (allowed,), _ = step(backend, chain, at, context)
    wider = context.with_fields(vocab_size=WIDTH + 8)
    (again,), _ = step(backend, chain, chain.init_state(wider), wider)
    assert allowed == again


def test_longest_tokens_force_literals_without_losing_texts() -> None:
    backend = load_backend("numpy")
    pattern = "foobar(12|日本)-[ab]+"
    chain, context, at = begin(backend, ("regex", {"pattern": pattern, "longest_tokens": True}))
    foobar = WORDS.token_bytes.index(b"foobar")
    assert chain.forced_tokens(at, context) == [[foobar]]
    other, other_context, other_at = begin(backend, ("regex", {"pattern": pattern}))
    assert other.forced_tokens(other_at, other_context) is None
    texts = set()
    for seed in range(60):
        walk = random_walk(automaton_of(chain, context), seed, 12)
        ended = [t for t in walk if t in WORDS.eos]
        text = WORDS.decode(walk)
        if ended:
            text = WORDS.decode(walk[: walk.index(ended[0])])
            assert re.fullmatch(pattern, text)
            texts.add(text[6:8])
    assert texts == {"12", "日本"}


def test_a_state_carried_to_a_fresh_automaton_reads_on_within_a_character() -> None:
    backend = load_backend("numpy")
    spec = ("regex", {"pattern": r"\w+é\d"})
    pieces = [[SINGLE[byte.to_bytes()] for byte in text] for text in (b"a\xc3", b"\xe6\x97", b"a\xf0\x9d")]
    chain, context, at = begin(backend, spec, 3)
    expected, at = step(backend, chain, at, context, pieces)
    default_cache().clear()
    fresh, context, _ = begin(backend, spec, 3)
    assert step(backend, fresh, at, context)[0] == expected


def test_who_visits_many_states_gets_all_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Compiled, a cheap row costs a twentieth of a dear one, not a tenth, and three times as many can be afforded.
    monkeypatch.setattr(token_automaton, "_COMPILED_EXPENSIVE_ROWS", token_automaton._EXPENSIVE_ROWS)
    monkeypatch.setattr(token_automaton, "_EXPENSIVE_NODES", token_automaton._EXPENSIVE_NODES // 2)
    backend = load_backend("numpy")
    default_cache().clear()
    chain, context, at = begin(backend, ("regex", {"pattern": "(ab){200}"}))
    automaton = automaton_of(chain, context)
    found_at = None
    for n in range(60):
        (allowed,), at = step(backend, chain, at, context, [tokens_of("ab"[n % 2 - 1]) if n else []])
        assert allowed == {
            t for t, b in enumerate(WORDS.token_bytes) if b and ("ab" * 60)[n:].startswith(b.decode("latin-1"))
        }
        if found_at is None and "_tables" in automaton.constraint.__dict__:
            found_at = n
    assert found_at is not None
    assert 20 < found_at < 59


@pytest.mark.torch
def test_the_state_of_one_row_is_of_its_own_library_in_any_order() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    chain = processors.load(("regex", {"pattern": "a+b"}), tokenizer=WORDS, debug=False)
    found = []
    for name in ("numpy", "torch", "numpy", "torch"):
        backend = load_backend(name)
        logits = backend.asarray(np.zeros((1, WIDTH), np.float32))
        context = Context.start(logits)
        state = chain.init_state(context)
        for token in tokens_of("aab"):
            _, state = chain.process(logits, state, context.accept([token]))
            array = state.processors[0]
            assert backend_of(array) is backend
            assert backend.cast(array, "int32") is array
            assert array.shape == (1,)
        found.append(int(state.processors[0][0]))
        state.processors[0][0] = 99  # what somebody writes into a state is in no other state
    assert len(set(found)) == 1


@pytest.mark.parametrize("pattern", [r"[^\s\S]", r"a\bb", r"(?:x[^\s\S])+", r"^a^", r"\Ba\b\B"])
def test_a_pattern_that_no_text_matches_is_refused_when_the_chain_is_made(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern, match=r"No text matches the pattern '.*' of 'regex', so nothing could"):
        processors.load(("regex", {"pattern": pattern}))
    processors.load(("regex", {"pattern": pattern + "|"}))
