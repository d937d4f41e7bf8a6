"""The processors give what plain Python gives that was written from their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, Vocabulary, processors
from tests.oracles import sampling
from tests.plugins.processors.driving import apply, close, random_logits


def random_texts(seed: int, rows: int, vocab: int, longest: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocab, int(rng.integers(0, longest + 1))).tolist() for _ in range(rows)]


@pytest.mark.parametrize("kind", ["plain", "ties", "holes"])
@pytest.mark.parametrize("n", [0.5, 1.0, 3.0])
def test_top_n_sigma(backend: Backend, kind: str, n: float) -> None:
    for seed in range(5):
        logits = random_logits(seed, 3, 50, kind)
        close(
            apply(backend, ("top_n_sigma", {"n": n}), logits), [sampling.top_n_sigma(row.tolist(), n) for row in logits]
        )


def test_top_n_sigma_of_zero_keeps_the_maximum(backend: Backend) -> None:
    assert (apply(backend, ("top_n_sigma", {"n": 0.0}), random_logits(0, 2, 50)) > -np.inf).sum(-1).tolist() == [1, 1]


@pytest.mark.parametrize("kind", ["plain", "ties", "holes"])
@pytest.mark.parametrize("threshold", [0.01, 0.1, 0.6])
def test_xtc_that_always_strikes(backend: Backend, kind: str, threshold: float) -> None:
    spec = ("xtc", {"threshold": threshold, "probability": 1.0, "keep": [4]})
    for seed in range(5):
        logits = random_logits(seed, 3, 30, kind)
        close(apply(backend, spec, logits), [sampling.xtc(row.tolist(), threshold, {4}) for row in logits])


def test_top_h_of_one_keeps_every_candidate(backend: Backend) -> None:
    logits = random_logits(0, 50, 400)
    kept = apply(backend, ("top_h", {"h": 1.0, "candidates": 100}), logits)
    np.testing.assert_array_equal(kept > -np.inf, logits >= np.sort(logits)[:, -100:-99])


def test_xtc_strikes_as_often_as_asked_and_differently_per_row(backend: Backend) -> None:
    rows = 2000
    logits = np.tile(np.asarray([[1.0, 0.9, 0.0]], dtype=np.float32), (rows, 1))
    struck = apply(backend, ("xtc", {"threshold": 0.2, "probability": 0.3}), logits)[:, 0] == -np.inf
    assert 0.25 < struck.mean() < 0.35
    assert (apply(backend, ("xtc", {"probability": 0.0}), logits) == logits).all()


@pytest.mark.parametrize("name", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
@pytest.mark.parametrize("include_prompt", [False, True])
@pytest.mark.parametrize("window", [None, 1, 4])
def test_penalties(backend: Backend, name: str, include_prompt: bool, window: int | None) -> None:
    spec = (name, {"penalty": 0.7, "window": window, "include_prompt": include_prompt})
    for seed in range(4):
        logits, prompts, more = random_logits(seed, 4, 8), random_texts(seed, 4, 8, 6), random_texts(seed + 9, 4, 8, 6)
        expected = []
        for row, prompt, generated in zip(logits, prompts, more, strict=True):
            counted = (prompt if include_prompt else []) + generated
            counted = counted[-window:] if window else counted
            expected.append(getattr(sampling, name)(row.tolist(), counted, 0.7))
        close(apply(backend, spec, logits, prompts, more), expected)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_repeat_ngram_on_ragged_rows(backend: Backend, n: int) -> None:
    for seed in range(6):
        logits, prompts, more = random_logits(seed, 4, 3), random_texts(seed, 4, 3, 8), random_texts(seed + 9, 4, 3, 8)
        expected = [
            sampling.no_repeat_ngram(row.tolist(), prompt + generated, n)
            for row, prompt, generated in zip(logits, prompts, more, strict=True)
        ]
        close(apply(backend, ("no_repeat_ngram", {"n": n}), logits, prompts, more), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"allowed_length": 1},
        {"allowed_length": 2, "multiplier": 1.5, "base": 1.2},
        {"allowed_length": 1, "window": 7},
        {"allowed_length": 1, "breaker_ids": [1]},
        {"allowed_length": 1, "breaker_ids": [0], "window": 9, "max_match": 3},
    ],
    ids=str,
)
def test_dry(backend: Backend, options: dict[str, Any]) -> None:
    for seed in range(12):
        logits, prompts, more = (
            random_logits(seed, 4, 3),
            random_texts(seed, 4, 3, 14),
            random_texts(seed + 9, 4, 3, 14),
        )
        expected = [
            sampling.dry(
                row.tolist(),
                prompt + generated,
                options.get("multiplier", 0.8),
                options.get("base", 1.75),
                options["allowed_length"],
                options.get("breaker_ids", ()),
                options.get("window"),
                options.get("max_match", 50),
            )
            for row, prompt, generated in zip(logits, prompts, more, strict=True)
        ]
        close(apply(backend, ("dry", {"breakers": [], **options}), logits, prompts, more), expected)


def test_dry_takes_every_token_that_contains_a_breaker_text_for_a_breaker(backend: Backend) -> None:
    vocabulary = Vocabulary([b"a", b"b", b'x"\n', b"c"])
    prompt = [[0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]]
    logits = np.zeros((1, 4), dtype=np.float32)
    assert (apply(backend, "dry", logits, prompt, vocabulary=vocabulary) == 0).all()
    prompt = [[0, 1, 3, 0, 0, 1]]
    close(apply(backend, "dry", logits, prompt, vocabulary=vocabulary), [[0, 0, 0, -0.8]])


def test_dry_takes_special_tokens_of_that_name_for_breakers(backend: Backend) -> None:
    words = Vocabulary([b"a", b"b", b"", b"c"], special=[2], special_text={2: "<|user|>"})
    prompt = [[0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]]
    logits = np.zeros((1, 4), dtype=np.float32)
    close(apply(backend, ("dry", {"breakers": ["\n"]}), logits, prompt, vocabulary=words)[0, 3], -0.8 * 1.75**5)
    assert (apply(backend, ("dry", {"breakers": ["<|user|>"]}), logits, prompt, vocabulary=words) == 0).all()


def test_dry_warns_of_breakers_that_no_token_contains() -> None:
    words = Vocabulary([b"a", b"b", b"\n", b"###"])
    logits, context = np.zeros((1, 4), dtype=np.float32), {"prompt": [[0, 1]], "max_length": 8}
    chain = processors.load(("dry", {"breakers": ["\n", ":", "###", "\n###"]}), tokenizer=words)
    with pytest.warns(UserWarning, match=r"No token of vocabulary contains '\\n###', so .*'breaker_ids'"):
        chain.init_state(Context.start(logits, **context))


def test_dry_looks_for_breakers_once_in_a_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    words = Vocabulary([b"a", b"b:", b'":', b"\n", b"<|user|>"], special=[4], special_text={4: "<|:|>"})
    read, asked = Vocabulary.tokens_holding, list[list[bytes]]()
    monkeypatch.setattr(Vocabulary, "tokens_holding", lambda words, texts: asked.append(texts) or read(words, texts))
    for width in (5, 7, 5):
        chain = processors.load(("dry", {"breakers": [":", "b:"]}), tokenizer=words)
        chain.init_state(Context.start(np.zeros((1, width), np.float32), prompt=[[0]], max_length=4, vocabulary=words))
    assert asked == [[b":", b"b:"]] * 2  # in the texts of the tokens, and in the names of the special ones
    assert words.tokens_holding([b":"])[0].tolist() == [1, 2]


def test_dry_keeps_the_harshest_penalty_finite(backend: Backend) -> None:
    spec = ("dry", {"breakers": [], "base": 1000.0, "multiplier": 10.0, "max_match": 1000})
    processed = apply(backend, spec, np.zeros((1, 3), dtype=np.float16), [[1] * 60])
    assert processed.tolist() == [[0.0, -30000.0, 0.0]]


def test_forced_tokens_stand_alone_at_their_positions(backend: Backend) -> None:
    logits = random_logits(0, 3, 10)
    logits[2, 4] = -np.inf
    for generated, forced in enumerate([None, 4, None, 0, None, None]):
        processed = apply(
            backend, ("force_tokens", {"tokens": {1: 4, 3: 0}}), logits, [[1, 2], [], [3]], [[5] * generated] * 3
        )
        expected = logits.copy()
        if forced is not None:
            expected[:] = -np.inf
            expected[:, forced] = np.where(logits[:, forced] > -np.inf, 0.0, -np.inf)
        close(processed, expected)


def test_rows_of_different_lengths_are_forced_at_their_own_positions(backend: Backend) -> None:
    logits = np.zeros((3, 4), dtype=np.float32)
    processed = apply(backend, ("force_tokens", {"tokens": {1: 2}}), logits, [[1], [], [3, 3]], [[], [0], [0, 0]])
    assert (processed > -np.inf).sum(-1).tolist() == [4, 1, 4]


def test_forced_tokens_are_known_ahead(backend: Backend) -> None:
    chain = processors.load(("force_tokens", {"tokens": {0: 4, 1: 5, 3: 6}}))
    logits = backend.asarray(np.zeros((4, 8), dtype=np.float32))
    context = Context.start(logits, prompt=[[1], [], [2, 2], [1]])
    before = chain.init_state(context)
    assert chain.forced_tokens(before, context) == [[4, 5]] * 4
    context = context.accept([[], [4], [4, 5], [4, 5, 0]])
    assert chain.forced_tokens(before, context) == [[4, 5], [5], [], [6]]
    _, after = chain.process(logits, before, context)
    assert chain.forced_tokens(after, context.accept(None)) == [[4, 5], [5], [], [6]]


def test_minimum_length_takes_the_end_of_sequence_from_the_tokenizer(backend: Backend) -> None:
    vocabulary = Vocabulary([b"a", b"b", b"", b""], eos=[2, 3])
    logits = np.ones((2, 5), dtype=np.float32)
    processed = apply(backend, ("min_tokens", {"n": 2}), logits, [[0], [1]], [[0], [0, 1]], vocabulary=vocabulary)
    assert (processed == -np.inf).tolist() == [[False, False, True, True, False], [False] * 5]


@pytest.mark.parametrize("begin", [False, True])
def test_many_suppressed_tokens_go_the_way_of_few(backend: Backend, begin: bool) -> None:
    many = list(range(0, 600, 2))
    logits = random_logits(0, 2, 700)
    processed = apply(backend, ("suppress_tokens", {"tokens": many, "begin": begin}), logits, None, [[], [1]])
    expected = logits.copy()
    expected[: 1 if begin else 2, many] = -np.inf
    close(processed, expected)


def test_a_bias_of_minus_infinity_forbids(backend: Backend) -> None:
    processed = apply(backend, ("logit_bias", {"bias": {"1": -np.inf, "2": 3}}), np.ones((1, 3), dtype=np.float32))
    assert processed.tolist() == [[1.0, -np.inf, 4.0]]


def test_a_bias_that_forbids_is_a_constraint() -> None:
    assert processors.load(("logit_bias", {"bias": {1: -np.inf, 2: 3}})).links[0].declared("stage") == "constraint"
    assert processors.load(("logit_bias", {"bias": {2: 3}})).links[0].declared("stage") == "penalty"
    assert processors.load(("logit_bias", {"bias": {1: -np.inf}})).effect.forbids_only


def test_prompt_ids_beyond_the_logits_are_not_counted(backend: Backend) -> None:
    for window in (None, 4):
        spec = ("repetition_penalty", {"penalty": 2.0, "window": window})
        assert apply(backend, spec, np.ones((1, 3), dtype=np.float32), [[1, 900]]).tolist() == [[1.0, 0.5, 1.0]]


def test_all_rows_may_be_forbidden_without_warnings_or_nan(backend: Backend) -> None:
    from tests.plugins.processors.catalogue import SPECS, VOCAB

    dead = np.full((2, VOCAB), -np.inf, dtype=np.float32)
    for spec in SPECS.values():
        assert (apply(backend, spec, dead, [[1, 2, 1], []]) == -np.inf).all(), spec


def test_a_context_of_one_row_without_batch_axis(backend: Backend) -> None:
    from tests.plugins.processors.catalogue import SPECS, VOCAB

    logits = random_logits(0, 1, VOCAB)
    for spec in SPECS.values():
        chain = processors.load(spec, debug=True)
        flat = backend.asarray(logits[0])
        context = Context.start(flat, prompt=[[1, 2, 1]], max_length=64)
        processed, _ = chain.process(flat, chain.init_state(context), context)
        assert processed.shape == flat.shape
        close(backend.to_numpy(processed), apply(backend, spec, logits, [[1, 2, 1]])[0])
