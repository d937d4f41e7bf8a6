"""Token healing against brute force: prompts, masks, texts, in every way of decoding."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Context, Vocabulary, load_backend, processors
from logitloom.errors import GenerationError, LogitloomError
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial, continuous, heal
from logitloom.generation.candidates import load as load_candidates
from logitloom.generation.healing import removed_tokens
from tests.cases import each_once
from tests.oracles.toy_model import ToyModel

#: All byte strings of "a" and "b" up to this length may be tokens.
PIECES = [bytes(text) for n in (1, 2, 3) for text in itertools.product(b"ab", repeat=n)]
EOS, BOS = 0, 1


def vocabulary_of(longer: set[bytes]) -> Vocabulary:
    """An end, a special token, each byte, and some longer tokens."""
    return Vocabulary([b"", b"", b"a", b"b", *sorted(longer)], eos=[EOS], special=[BOS])


WORDS = vocabulary_of({b"ab", b"ba", b"aab", b"abb"})
PROMPTS = [[BOS, 2, 3], [BOS, 3, 2, 2], [BOS, 5], [BOS, 3, 3]]
vocabularies = st.sets(st.sampled_from(PIECES[2:]), max_size=6).map(vocabulary_of)


def ids_of(words: Vocabulary, *texts: bytes) -> list[int]:
    return [words.token_bytes.index(text) for text in texts]


@given(words=vocabularies, data=st.data())
def test_the_longest_end_of_the_text_that_begins_a_longer_token_is_taken_away(words: Vocabulary, data: Any) -> None:
    prompt = data.draw(st.lists(st.integers(0, words.size - 1), max_size=6))
    first = max((i + 1 for i, token in enumerate(prompt) if not words.token_bytes[token]), default=1)
    text = words.text_bytes(prompt[first:])
    ends = [
        text[n:]
        for n in range(len(text))
        if any(token.startswith(text[n:]) and len(token) > len(text) - n for token in words.token_bytes)
    ]
    longest = len(max(ends, key=len, default=b""))
    counts = [n for n in range(len(prompt) + 1) if len(words.text_bytes(prompt[len(prompt) - n :])) >= longest]
    assert removed_tokens(prompt, words) == counts[0]


def masks(chain: Any, words: Vocabulary, prompt: list[int], tokens: list[int]) -> set[int]:
    logits = np.zeros((1, words.size), dtype=np.float32)
    context = Context.start(logits, vocabulary=words, prompt=[prompt], max_length=32)
    state = chain.init_state(context)
    processed, state = chain.process(logits, state, context)
    for token in tokens:
        processed, state = chain.process(logits, state, context.accept([[token]]))
    return set(np.flatnonzero(processed[0] > -np.inf).tolist())


#: Patterns, with every text up to six bytes that they match.
PATTERNS = ["(ab)+", "b?(aa|b){2}", "a{1,3}"]
TEXTS = [bytes(text) for n in range(7) for text in itertools.product(b"ab", repeat=n)]


@pytest.mark.parametrize("pattern", PATTERNS)
@given(words=vocabularies, data=st.data())
def test_a_token_is_allowed_if_some_text_goes_on_with_it(pattern: str, words: Vocabulary, data: Any) -> None:
    """All tokenizations of the removed text followed by a match, and nothing else."""
    prompt = [BOS, *data.draw(st.lists(st.integers(2, words.size - 1), min_size=1, max_size=4))]
    healed = heal(processors.load(("regex", {"pattern": pattern}), tokenizer=words), [prompt])
    lost = words.text_bytes(healed.removed[0])
    whole = [lost + text for text in TEXTS if re.fullmatch(pattern.encode(), text)]
    written, taken = b"", []
    while len(written) < len(lost) + 4:
        expected = {
            token
            for token, text in enumerate(words.token_bytes)
            if (text and any(one.startswith(written + text) for one in whole)) or (token == EOS and written in whole)
        }
        # Texts of more than six bytes are not listed, so only what they cannot change is compared.
        assert masks(healed.chain, words, healed.prompts[0], taken) == expected or len(written) >= len(lost) + 3
        if not expected - {EOS}:
            break
        taken.append(data.draw(st.sampled_from(sorted(expected - {EOS}))))
        written += words.token_bytes[taken[-1]]


def test_without_a_constraint_everything_may_follow_the_removed_text() -> None:
    healed = heal(processors.load(tokenizer=WORDS), [[BOS, 2, 2]])
    assert healed.prompts == [[BOS]]
    assert masks(healed.chain, WORDS, [BOS], []) == set(ids_of(WORDS, b"a", b"aab"))
    assert masks(healed.chain, WORDS, [BOS], ids_of(WORDS, b"a")) == set(ids_of(WORDS, b"a", b"ab", b"aab", b"abb"))
    assert masks(healed.chain, WORDS, [BOS], ids_of(WORDS, b"aab")) == set(range(WORDS.size))


def test_special_tokens_are_never_taken_away() -> None:
    assert heal(processors.load(tokenizer=WORDS), [[2, BOS]]).removed == [[]]
    assert heal(processors.load(tokenizer=WORDS), [[BOS]]).removed == [[]]
    assert heal(processors.load(tokenizer=WORDS), [[2, BOS, 2]]).prompts == [[2, BOS]]


def test_a_prompt_keeps_its_first_token() -> None:
    assert heal(processors.load(tokenizer=WORDS), [[2]]).prompts == [[2]]
    assert heal(processors.load(tokenizer=WORDS), [[2, 2]]).prompts == [[2]]


def generator(*specs: Any, words: Vocabulary = WORDS, **more: Any) -> Generator:
    model = ToyModel(load_backend("numpy"), vocab=words.size, seed=3)
    return Generator(model, processors.load(*specs, tokenizer=words), **({"max_tokens": 8, "heal": True} | more))


CHAINS: dict[str, tuple[Any, ...]] = {
    "free": (),
    "regex": (("regex", {"pattern": "(a|b)(bb|a)+"}),),
    "regex and bans": (("bad_words", {"phrases": ["bb"]}), ("regex", {"pattern": "[ab]{3,5}"})),
    "stop": (("stop", {"strings": ["ba"]}),),
    "combinator": (("after", {"trigger": "b", "inner": ["regex", {"pattern": "a+b"}]}),),
    "penalty": (("repetition_penalty", {"penalty": 1.3}), ("choice", {"choices": ["abab", "ba", "a"]})),
}


def greedy_oracle(made: Generator, prompt: list[int]) -> tuple[int, ...]:
    """Greedy decoding of one row, with the model run anew for each token and masks from the healed chain."""
    healed = heal(made.chain, [prompt])
    prompt = healed.prompts[0]
    taken: list[int] = []
    base = Context.start(
        np.zeros((1, WORDS.size), dtype=np.float32), vocabulary=WORDS, prompt=[prompt], max_length=64
    ).with_fields(max_new_tokens=made.max_tokens)
    state = healed.chain.init_state(base)
    for step in range(made.max_tokens):
        row = np.asarray([[*prompt, *taken]], dtype=np.int32)
        logits, _ = made.model.forward(row, made.model.empty_cache(1))
        context = base.accept([[taken[-1]]]) if step else base
        processed, state = healed.chain.process(logits, state, context)
        token = int(processed[0].argmax())
        if token == EOS:
            break
        taken.append(token)
    return tuple(taken)


@pytest.mark.parametrize("chain", sorted(CHAINS))
def test_rows_of_a_batch_are_what_they_are_alone(chain: str) -> None:
    made = generator(*CHAINS[chain])
    together = made(PROMPTS)
    alone = [made([prompt])[0] for prompt in PROMPTS]
    assert [(g.tokens, g.text, g.healed) for g in together] == [(g.tokens, g.text, g.healed) for g in alone]
    assert [g.healed for g in together] == [removed_tokens(prompt, WORDS) for prompt in PROMPTS]
    if chain != "stop":
        assert [g.tokens for g in together] == [greedy_oracle(made, prompt) for prompt in PROMPTS]


@pytest.mark.parametrize("chain", sorted(CHAINS))
def test_the_text_begins_where_the_prompt_ends(chain: str) -> None:
    made = generator(*CHAINS[chain], strategy=Multinomial(samples=4))
    for g in made(PROMPTS, seed=5):
        lost = WORDS.text_bytes(PROMPTS[g.prompt][len(PROMPTS[g.prompt]) - g.healed :])
        written = WORDS.text_bytes(g.tokens)
        assert written.startswith(lost) or (g.finish == "length" and lost.startswith(written))
        if g.finish == "eos":
            assert (lost + (g.text or "").encode()) == written
            if chain == "regex":
                assert re.fullmatch("(a|b)(bb|a)+", g.text or "")
            if chain == "regex and bans":
                assert re.fullmatch("[ab]{3,5}", g.text or "")
                assert "bb" not in (g.text or "")


@pytest.mark.parametrize("chain", sorted(CHAINS))
def test_a_stream_shows_nothing_of_the_prompt(chain: str) -> None:
    made = generator(*CHAINS[chain], strategy=Multinomial(samples=2))
    texts: dict[tuple[int, int], str] = {}
    for piece in made.stream(PROMPTS, seed=1):
        key = piece.prompt, piece.sample
        texts[key] = texts.get(key, "") + piece.text
    assert texts == {(g.prompt, g.sample): g.text for g in made(PROMPTS, seed=1)}


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(2)], ids=["greedy", "sampling"])
@pytest.mark.parametrize("chain", sorted(CHAINS))
@pytest.mark.long
def test_drafts_change_nothing(chain: str, strategy: Any) -> None:
    plain = generator(*CHAINS[chain], strategy=strategy)
    drafts = load_candidates("prompt_lookup", {})
    drafted = generator(*CHAINS[chain], strategy=strategy, candidates=drafts)
    assert [(g.tokens, g.text) for g in drafted(PROMPTS, seed=2)] == [
        (g.tokens, g.text) for g in plain(PROMPTS, seed=2)
    ]


@pytest.mark.parametrize("chain", ["free", "regex", "penalty"])
def test_beams_of_a_batch_are_what_they_are_alone(chain: str) -> None:
    made = generator(*CHAINS[chain], strategy=BeamSearch(beams=3, samples=2))
    together = made(PROMPTS)
    alone = [replaced for prompt in PROMPTS for replaced in made([prompt])]
    assert [(g.tokens, g.text) for g in together] == [(g.tokens, g.text) for g in alone]
    for g in together:
        lost = WORDS.text_bytes(PROMPTS[g.prompt][len(PROMPTS[g.prompt]) - g.healed :])
        assert WORDS.text_bytes(g.tokens).startswith(lost)


def test_prompts_that_differ_only_in_what_is_removed_stay_apart() -> None:
    prompts = [[BOS, 2], [BOS, 3]]
    made = generator(strategy=Multinomial(samples=2))
    for g in made(prompts, seed=3):
        assert WORDS.text_bytes(g.tokens).startswith(b"ab"[g.prompt : g.prompt + 1])
    with pytest.raises(GenerationError, match="Prompts 0 and 1 differ only in the tokens that healing takes"):
        heal(processors.load(tokenizer=WORDS), prompts)


def test_a_continued_state_is_healed_at_its_end() -> None:
    """The rows have the tokens of one text, and the model's cache is that of these rows."""
    made = generator(("regex", {"pattern": "[ab]{2,4}"}), max_tokens=6)
    first = continuous(made)(PROMPTS)
    again = continuous(made)(first)
    fresh = made([list(row) for row in first.rows])
    for before, row, g in zip(first.rows, again.rows, fresh, strict=True):
        assert row == (*before[: len(before) - g.healed], *g.tokens)
    assert again.kv_cache.rows == tuple(row[:-1] for row in again.rows)


@pytest.mark.parametrize("strategy", [Multinomial(), BeamSearch(beams=2)])
@pytest.mark.parametrize("seed", range(4))
def test_a_limit_before_the_end_of_the_prompt_takes_nothing_from_a_continued_state(strategy: Any, seed: int) -> None:
    made = generator(strategy=strategy, max_tokens=1)
    prompts = [[BOS, 3, 2, 2], [BOS, 2, 3, 3]]  # "aa" and "bb" begin longer tokens, and may be written by letters
    state = continuous(made)(prompts, seed=seed)
    for prompt, row in zip(prompts, state.rows, strict=True):
        assert WORDS.text_bytes(row).startswith(WORDS.text_bytes(prompt))
    again = continuous(made)(state, seed=seed)
    assert again.kv_cache.rows == tuple(row[:-1] for row in again.rows)


def test_a_combinator_with_a_sampler_inside_is_refused() -> None:
    chain = processors.load(
        ("after", {"trigger": "b", "inner": ["temperature", {"temperature": 0.5}]}), tokenizer=WORDS
    )
    with pytest.raises(GenerationError, match="cannot start 'after' within a token, because it has inner processors"):
        heal(chain, [[BOS, 2]])


def test_without_a_vocabulary_nothing_can_be_healed() -> None:
    with pytest.raises(GenerationError, match="Prompts are healed by the bytes of their tokens"):
        heal(processors.load(), [[1, 2]])


def test_the_least_number_of_tokens_counts_tokens_that_span_the_end() -> None:
    """The text "a" + "ab" is one token and the end, so two tokens are enough, and the limit of the loop is kept."""
    made = generator(("regex", {"pattern": "ab"}), max_tokens=2)
    (found,) = made([[BOS, 2]])
    assert (found.tokens, found.text, found.finish) == (tuple(ids_of(WORDS, b"aab")), "ab", "eos")


#: Combinators with a text that must be written: where it ends, what may be inside, and what follows.
COMBINED: list[Any] = [
    ("until", {"trigger": "bb", "inner": ["regex", {"pattern": "(ab)+"}], "required": True}),
    ("between", {"open": "aab", "close": "bb", "inner": ["choice", {"choices": ["a", "ab"]}], "required": True}),
    ("after", {"trigger": "ba", "inner": ["regex", {"pattern": "b{2}a?"}], "required": True}),
    ("budget", {"n": 2, "inner": ["regex", {"pattern": "(ab)+"}], "text": "ba", "end": True}),
    (
        "all_of",
        {"inner": [["after", {"trigger": "ba", "inner": [], "required": True}], ["regex", {"pattern": "a.*b"}]]},
    ),
]


def is_enough(chain: Any, context: Context, limit: int) -> bool:
    try:
        chain.init_state(context.with_fields(max_new_tokens=limit))
    except LogitloomError:
        return False
    return True


@pytest.mark.parametrize("spec", COMBINED, ids=[name for name, _ in COMBINED])
@pytest.mark.parametrize(("prompt", "more"), each_once(PROMPTS[:3], range(3)))
def test_texts_of_combinators_are_complete_within_the_limit(spec: Any, prompt: list[int], more: int) -> None:
    healed = heal(processors.load(spec, tokenizer=WORDS), [prompt])
    logits = np.zeros((1, WORDS.size), dtype=np.float32)
    context = Context.start(logits, vocabulary=WORDS, prompt=healed.prompts)
    least = next(n for n in range(1, 20) if is_enough(healed.chain, context, n))
    dice = np.random.default_rng(more)
    for _ in range(10):
        given = context.with_fields(max_new_tokens=least + more)
        state, tokens = healed.chain.init_state(given), list[int]()
        while True:
            found, state = healed.chain.process(logits.copy(), state, given)
            allowed = np.flatnonzero(np.isfinite(found[0]))
            assert len(allowed), tokens
            token = int(dice.choice(allowed))
            if token == EOS:
                break
            tokens.append(token)
            given = given.accept([[token]])
        assert len(tokens) < least + more
        assert WORDS.text_bytes(tokens).startswith(healed.texts[0])


@pytest.mark.parametrize("inner", [[], [[]], ()])
def test_an_empty_inner_chain_constrains_nothing(inner: Any) -> None:
    words = Vocabulary([b"</s>", b"http", b":", b"://", b"/", b"x"], eos=[0])
    chain = processors.load(("heal", {"removed": [[2]], "inner": inner}), tokenizer=words)
    logits = np.zeros((2, 6), dtype=np.float32)
    context = Context.start(logits, vocabulary=words, prompt=[[1], [1]])
    found, _ = chain.process(logits, chain.init_state(context), context)
    assert np.flatnonzero(np.isfinite(found[1])).tolist() == [2, 3]
