"""Counterparts of the processors of transformers, on random inputs; those of llama.cpp, from their descriptions."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, processors
from logitloom.errors import NeedsNotMet, OptionError
from tests.plugins.processors.driving import apply, close, random_logits

KINDS = ["plain", "ties", "holes"]
VOCAB = 60
PROMPT = [[1, 2, 3, 1, 2], [4, 4, 4, 5, 4], [9, 8, 9, 8, 9]]
MORE = [[7, 1], [4, 4], [0, 59]]
IDS = [before + after for before, after in zip(PROMPT, MORE, strict=True)]


@pytest.fixture(scope="module")
def peers() -> Any:
    pytest.importorskip("torch", reason="the peer is transformers, which needs torch")
    return pytest.importorskip("transformers.generation.logits_process", reason="the peer is transformers")


def theirs(processor: Any, logits: np.ndarray, ids: Any = IDS) -> np.ndarray:
    import torch

    result: np.ndarray = processor(torch.tensor(ids), torch.tensor(logits)).numpy()
    return result


#: Our name and options; their class and arguments; the prompt counts for both.
CASES: list[tuple[str, dict[str, Any], str, tuple[Any, ...]]] = [
    ("min_tokens", {"n": 8, "eos": [0, 7], "include_prompt": True}, "MinLengthLogitsProcessor", (8, [0, 7])),
    ("min_tokens", {"n": 7, "eos": [0, 7], "include_prompt": True}, "MinLengthLogitsProcessor", (7, [0, 7])),
    ("min_tokens", {"n": 3, "eos": [0]}, "MinNewTokensLengthLogitsProcessor", (5, 3, [0])),
    ("min_tokens", {"n": 2, "eos": [0]}, "MinNewTokensLengthLogitsProcessor", (5, 2, [0])),
    ("top_h", {"h": 0.4}, "TopHLogitsWarper", (0.4,)),
    ("top_h", {"h": 0.9}, "TopHLogitsWarper", (0.9,)),
    ("encoder_repetition_penalty", {"penalty": 1.5}, "EncoderRepetitionPenaltyLogitsProcessor", (1.5, PROMPT)),
    ("encoder_repetition_penalty", {"penalty": 0.7}, "EncoderRepetitionPenaltyLogitsProcessor", (0.7, PROMPT)),
    ("encoder_no_repeat_ngram", {"n": 2}, "EncoderNoRepeatNGramLogitsProcessor", (2, PROMPT)),
    ("encoder_no_repeat_ngram", {"n": 1}, "EncoderNoRepeatNGramLogitsProcessor", (1, PROMPT)),
    (
        "sequence_bias", {"sequences": [[3], [4, 4, 8], [1, 9], [7, 1, 9]], "biases": [1.5, -2.0, 0.5, 0.25]},
        "SequenceBiasLogitsProcessor", ([[[3], 1.5], [[4, 4, 8], -2.0], [[1, 9], 0.5], [[7, 1, 9], 0.25]],),
    ),
    (
        "bad_words_ids", {"sequences": [[3], [4, 4, 8], [1, 9], [59, 2, 2]]},
        "NoBadWordsLogitsProcessor", ([[3], [4, 4, 8], [1, 9], [59, 2, 2]],),
    ),
    ("exponential_decay_length_penalty", {"start": 1, "factor": 1.4, "eos": [0, 7]},
     "ExponentialDecayLengthPenalty", ((1, 1.4), [0, 7], 5)),
    ("exponential_decay_length_penalty", {"start": 2, "factor": 1.4, "eos": [0, 7]},
     "ExponentialDecayLengthPenalty", ((2, 1.4), [0, 7], 5)),
    ("normalize", {}, "LogitNormalization", ()),
    ("alternating_codebooks", {"offset": 20, "size": 15}, "AlternatingCodebooksLogitsProcessor", (5, 20, 15)),
    ("alternating_codebooks", {"offset": 20, "size": 15}, "AlternatingCodebooksLogitsProcessor", (4, 20, 15)),
    ("eos_above", {"p": 0.02, "eos": [0, 7]}, "BarkEosPrioritizerLogitsProcessor", ([0, 7], 0.02)),
]  # fmt: skip


@pytest.mark.extras
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "options", "peer", "arguments"), CASES, ids=[f"{case[0]}-{i}" for i, case in enumerate(CASES)]
)
def test_processors_agree_with_transformers(
    backend: Backend, peers: Any, name: str, options: dict[str, Any], peer: str, arguments: tuple[Any, ...], kind: str
) -> None:
    import torch

    given = [torch.tensor(a) if a is PROMPT else a for a in arguments]
    prompt, more = PROMPT, MORE
    if arguments == (4, 20, 15):
        prompt, more = [p[:4] for p in PROMPT], [[p[4], *m] for p, m in zip(PROMPT, MORE, strict=True)]
    for seed in range(3):
        logits = random_logits(seed, 3, VOCAB, kind)
        expected = theirs(getattr(peers, peer)(*given), logits)
        if name == "top_h":  # of ties PyTorch keeps any
            found = np.sort(apply(backend, (name, options), logits))
            close(found, np.sort(expected))
            continue
        if name == "exponential_decay_length_penalty":  # some versions of transformers multiply -inf by 0
            expected[np.isnan(expected)] = -np.inf
        close(apply(backend, (name, options), logits, prompt, more), expected)


@pytest.mark.extras
@pytest.mark.parametrize("seed", range(3))
def test_many_sequences_that_share_ends_agree_with_transformers(backend: Backend, peers: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = {tuple(rng.integers(0, 4, size=size).tolist()) for size in rng.integers(1, 9, size=150).tolist()}
    sequences, logits = sorted(drawn), random_logits(seed, 3, 6)
    biases = rng.normal(size=len(sequences)).round(3).tolist()
    prompt, more = rng.integers(0, 4, size=(3, 9)).tolist(), rng.integers(0, 4, size=(3, 2)).tolist()
    ids = [[*before, *after] for before, after in zip(prompt, more, strict=True)]
    pairs = [[list(sequence), bias] for sequence, bias in zip(sequences, biases, strict=True)]
    spec = ("sequence_bias", {"sequences": sequences, "biases": biases})
    close(apply(backend, spec, logits, prompt, more), theirs(peers.SequenceBiasLogitsProcessor(pairs), logits, ids))
    banned = [sequence for sequence in sequences if len(sequence) > 2]
    spec = ("bad_words_ids", {"sequences": banned})
    peer = peers.NoBadWordsLogitsProcessor([list(sequence) for sequence in banned])
    close(apply(backend, spec, logits, prompt, more), theirs(peer, logits, ids))


@pytest.mark.parametrize("name", ["bad_words_ids", "sequence_bias"])
def test_memory_grows_as_the_sequences_do(name: str) -> None:
    def peak(count: int) -> int:
        sequences = [[n, n + 1] for n in range(count)] + [list(range(count // 20))]
        options = {"sequences": sequences} | ({"biases": [1.0] * len(sequences)} if name == "sequence_bias" else {})
        chain = processors.load((name, options))
        context = Context.start(np.zeros((8, 5000), np.float32), prompt=[[]] * 8)
        tracemalloc.start()
        chain.process(np.zeros((8, 5000), np.float32), chain.init_state(context), context)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(100)
    assert peak(4000) < 5 * peak(1000)  # four times the ids


@pytest.mark.extras
@pytest.mark.parametrize("length", [6, 7, 8, 9])
def test_a_forced_end_allows_what_that_of_transformers_allows(backend: Backend, peers: Any, length: int) -> None:
    logits = random_logits(0, 3, VOCAB)
    spec = ("forced_eos", {"max_length": length, "eos": [0, 7], "include_prompt": True})
    expected = theirs(peers.ForcedEOSTokenLogitsProcessor(length, [0, 7]), logits)
    np.testing.assert_array_equal(np.isfinite(apply(backend, spec, logits, PROMPT, MORE)), np.isfinite(expected))


@pytest.mark.extras
def test_a_forced_beginning_is_that_of_transformers(backend: Backend, peers: Any) -> None:
    logits, start = random_logits(0, 3, VOCAB), [[2], [2], [2]]
    peer = peers.ForcedBOSTokenLogitsProcessor(9)
    close(apply(backend, ("force_tokens", {"tokens": {0: 9}}), logits, start), theirs(peer, logits, start))
    ids = [[2, 9], [2, 9], [2, 9]]
    spec = ("force_tokens", {"tokens": {0: 9}})
    close(apply(backend, spec, logits, start, [[9], [9], [9]]), theirs(peer, logits, ids))


@pytest.mark.extras
def test_removal_of_what_is_no_number_is_that_of_transformers(backend: Backend, peers: Any) -> None:
    logits = random_logits(0, 3, VOCAB, "holes")
    logits[0, 3], logits[1, 4], logits[2, 5] = np.nan, np.inf, np.inf
    expected = theirs(peers.InfNanRemoveLogitsProcessor(), logits)
    chain = processors.load(("remove_invalid", {"keep_forbidden": False}))
    context = Context.start(backend.asarray(logits))
    found, _ = chain.process(backend.asarray(logits), chain.init_state(context), context)
    close(backend.to_numpy(found), expected)
    chain = processors.load("remove_invalid")
    found, _ = chain.process(backend.asarray(logits), chain.init_state(context), context)
    close(backend.to_numpy(found), np.where(logits == -np.inf, -np.inf, expected))


def test_what_a_constraint_forbade_stays_so_when_infinities_are_removed(backend: Backend) -> None:
    chain = processors.load(("suppress_tokens", {"tokens": [1]}), ("remove_invalid", {"keep_forbidden": False}))
    logits = backend.asarray(np.asarray([[-np.inf, 0.0, 1.0]], dtype=np.float32))
    context = Context.start(logits)
    found = backend.to_numpy(chain.process(logits, chain.init_state(context), context)[0])
    assert np.isfinite(found).tolist() == [[False, False, True]]


# -- Whisper --------------------------------------------------------------------------------------------------


class _Config:
    no_timestamps_token_id, eos_token_id, bos_token_id = 30, 29, 29

    def __init__(self, max_initial: int | None, by_mass: bool) -> None:
        self.max_initial_timestamp_index, self._detect_timestamp_from_logprob = max_initial, by_mass


@pytest.mark.extras
@pytest.mark.parametrize("max_initial", [None, 3])
@pytest.mark.parametrize("by_mass", [True, False])
def test_time_stamps_are_those_of_transformers(
    backend: Backend, peers: Any, max_initial: int | None, by_mass: bool
) -> None:
    peer = peers.WhisperTimeStampLogitsProcessor(_Config(max_initial, by_mass), begin_index=2)
    spec = ("whisper_timestamps", {"no_timestamps": 30, "eos": 29, "max_initial": max_initial, "by_mass": by_mass})
    stories = [
        [[], [], []], [[31], [32], [33]], [[31, 4], [32, 5], [31, 31]], [[31, 4, 33], [31, 4, 5], [33, 7, 40]],
        [[31, 4, 33, 33], [31, 4, 33, 29], [32, 32, 4, 35]],
        [[31, 4, 33, 33, 7], [31, 4, 33, 29, 29], [31, 5, 6, 7, 50]],
    ]  # fmt: skip
    for seed, more in enumerate(stories):
        logits = random_logits(seed, 3, VOCAB)
        expected = theirs(peer, logits, [[1, 2, *m] for m in more])
        close(apply(backend, spec, logits, [[1, 2]] * 3, more or None), expected)


@pytest.mark.extras
def test_the_probability_of_no_speech_is_that_of_transformers(backend: Backend, peers: Any) -> None:
    logits = random_logits(3, 3, VOCAB)
    peer = peers.WhisperNoSpeechDetection(no_speech_token=7, begin_index=1)
    theirs(peer, logits, [[1], [1], [1]])
    chain = processors.load(("whisper_no_speech", {"token": 7, "eos": 0}))
    native = backend.asarray(logits)
    context = Context.start(native, prompt=[[1], [1], [1]])
    out, state = chain.process(native, chain.init_state(context), context)
    close(backend.to_numpy(out), logits)
    close(backend.to_numpy(state.processors[0].probability), peer.no_speech_prob.numpy())
    _, later = chain.process(native * 2, state, context.accept([1, 2, 3]))
    close(backend.to_numpy(later.processors[0].probability), peer.no_speech_prob.numpy())


# -- formulas -------------------------------------------------------------------------------------------------


def softmax(row: np.ndarray) -> np.ndarray:
    e = np.exp(row.astype(np.float64) - row.max())
    return np.asarray(e / e.sum())


@pytest.mark.parametrize("kind", KINDS)
def test_dynamic_temperature(backend: Backend, kind: str) -> None:
    for seed in range(5):
        logits = random_logits(seed, 3, VOCAB, kind)
        expected = []
        for row in logits:
            p = softmax(row)[np.isfinite(row)]
            share = -(p * np.log(np.where(p > 0, p, 1))).sum() / math.log(len(p))
            expected.append(row / (0.5 + 1.5 * share**2.0))
        options = {"low": 0.5, "high": 2.0, "exponent": 2.0}
        np.testing.assert_allclose(apply(backend, ("dynamic_temperature", options), logits), expected, rtol=1e-5)
    with pytest.raises(
        OptionError, match=r"Option 'low' of 'dynamic_temperature' is 2\.0, which is above 'high', 1\.0"
    ):
        processors.load(("dynamic_temperature", {"low": 2.0, "high": 1.0}))


@pytest.mark.parametrize("kind", KINDS)
def test_top_a(backend: Backend, kind: str) -> None:
    for seed, a in enumerate((0.0, 0.2, 0.7, 1.0)):
        logits = random_logits(seed, 3, VOCAB, kind)
        for row, found in zip(logits, apply(backend, ("top_a", {"a": a}), logits), strict=True):
            p = softmax(row)
            close(found, np.where(p >= a * p.max() ** 2, row, -np.inf))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("relaxed", [False, True])
def test_p_less(backend: Backend, kind: str, relaxed: bool) -> None:
    for seed in range(5):
        logits = random_logits(seed, 3, VOCAB, kind)
        for row, found in zip(logits, apply(backend, ("p_less", {"relaxed": relaxed}), logits), strict=True):
            p = softmax(row)
            threshold = (p**2).sum()
            if relaxed:
                # The paper's own form: the chance to agree less that of wrong tokens, spread over the others.
                threshold -= (p[:, None] * p[None, :]).sum(where=~np.eye(VOCAB, dtype=bool)) / (VOCAB - 1)
            np.testing.assert_array_equal(np.isfinite(found), p >= threshold - 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("curve", [1.0, 1.8, 3.0])
def test_quadratic(backend: Backend, kind: str, curve: float) -> None:
    logits = random_logits(1, 3, VOCAB, kind)
    found = apply(backend, ("quadratic", {"factor": 0.3, "curve": curve}), logits)
    for row, got in zip(logits, found, strict=True):
        d = row.astype(np.float64) - row.max()
        # text-generation-webui's form, with negative distances.
        k, s = (3 - curve) / 2, (curve - 1) / 2
        with np.errstate(invalid="ignore"):
            wanted = np.where(row == -np.inf, -np.inf, -(k * 0.3 * d**2) + (s * 0.3 * d**3) + row.max())
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_adaptive_p(backend: Backend) -> None:
    target, decay = 0.3, 0.8
    chain = processors.load(("adaptive_p", {"target": target, "decay": decay}))
    native = backend.asarray(random_logits(0, 1, 12))
    context = Context.start(native)
    state, token = chain.init_state(context), None
    total, weight = target / (1 - decay), 1 / (1 - decay)
    for step in range(8):
        row = random_logits(step, 1, 12)
        p = softmax(row[0])
        out, state = chain.process(backend.asarray(row), state, context if token is None else context.accept([[token]]))
        aim = min(max(2 * target - total / weight, 0), 1)
        d = np.abs(p - aim) / 0.3
        np.testing.assert_allclose(backend.to_numpy(out)[0], 5 - 10 * d**2 / (1 + d), atol=1e-4)
        token = (step * 5) % 12
        total, weight = total * decay + p[token], weight * decay + 1


# -- mirostat -------------------------------------------------------------------------------------------------


def mirostat_1(row: np.ndarray, mu: float, m: int) -> np.ndarray:
    """Algorithm 1 of the paper, token by token: which tokens stay."""
    order = np.argsort(-row, kind="stable")
    p = softmax(row)[order]
    t = [math.log((i + 2) / (i + 1)) for i in range(m - 1)]
    b = [math.log(p[i] / p[i + 1]) for i in range(m - 1)]
    s = sum(x * y for x, y in zip(t, b, strict=True)) / sum(x * x for x in t)
    e = s - 1
    k = (e * 2**mu / (1 - len(row) ** -e)) ** (1 / s)
    kept = np.zeros(len(row), dtype=bool)
    kept[order[: max(int(k), 1)]] = True
    return kept


@pytest.mark.parametrize("name", ["mirostat", "mirostat_v2"])
@pytest.mark.parametrize("observe", ["own", "chosen"])
def test_mirostat_follows_its_algorithm(backend: Backend, name: str, observe: str) -> None:
    tau, eta, m = 2.0, 0.3, 10
    options = {"tau": tau, "eta": eta, "observe": observe, **({"m": m} if name == "mirostat" else {})}
    chain = processors.load((name, options))
    dice = np.random.default_rng(1)
    native = backend.asarray(random_logits(0, 1, 40))
    context = Context.start(native)
    state, mu, given = chain.init_state(context), 2 * tau, context
    for step in range(12):
        row = random_logits(step, 1, 40)
        out, state = chain.process(backend.asarray(row), state, given)
        kept = np.isfinite(backend.to_numpy(out)[0])
        if name == "mirostat":
            expected = mirostat_1(row[0], mu, m)
        else:
            surprise = -np.log2(softmax(row[0]))
            expected = (surprise <= mu) | (surprise == surprise.min())
        np.testing.assert_array_equal(kept, expected, err_msg=f"step {step}")
        assert float(backend.to_numpy(state.processors[0].mu)[0]) == pytest.approx(mu, abs=1e-4)
        left = np.where(kept, softmax(row[0]), 0.0)
        left /= left.sum()
        token = int(dice.choice(40, p=left))
        mu -= eta * (-math.log2(left[token]) - tau)
        told = [[math.log(left[token])]] if observe == "chosen" else None
        given = context.accept([[token]], chosen_logprob=told)


def test_mirostat_keeps_the_surprise_of_a_text_near_the_target() -> None:
    found = []
    for tau in (1.0, 2.0, 3.0):
        chain = processors.load(("mirostat_v2", {"tau": tau, "eta": 0.2}))
        context = Context.start(np.zeros((1, 200), np.float32))
        dice, state, given, surprises = np.random.default_rng(3), chain.init_state(context), context, []
        for step in range(400):
            out, state = chain.process(random_logits(step, 1, 200), state, given)
            p = softmax(out[0])
            token = int(dice.choice(200, p=p))
            surprises.append(-math.log2(p[token]))
            given = context.accept([[token]])
        found.append(np.mean(surprises[50:]))
    np.testing.assert_allclose(found, [1.0, 2.0, 3.0], atol=0.1)


# -- messages -------------------------------------------------------------------------------------------------


def test_errors_say_what_is_wrong() -> None:
    logits = np.zeros((1, 8), np.float32)
    context = Context.start(logits, prompt=[[1]])
    with pytest.raises(
        NeedsNotMet, match=r"'forced_eos' finds no end-of-sequence id in option 'eos'.*Give the ids with"
    ):
        processors.load(("forced_eos", {"max_length": 4, "eos": []})).init_state(context)
    with pytest.raises(OptionError, match=r"'sequences' and 'biases' of 'sequence_bias' must be as many sequences"):
        processors.load(("sequence_bias", {"sequences": [[1]], "biases": []}))
    with pytest.raises(OptionError, match=r"'sequences' of 'bad_words_ids' must hold sequences of at least one id"):
        processors.load(("bad_words_ids", {"sequences": [[]]}))
    with pytest.raises(OptionError, match=r"at least one id, but entry \[5000\] is empty\. Leave the entry out\.$"):
        processors.load(("sequence_bias", {"sequences": [[1]] * 5000 + [[]], "biases": [1.0] * 5001}))
    with pytest.raises(OptionError, match=r"'no_timestamps' of 'whisper_timestamps' is 7.*no time stamp is left"):
        processors.load(("whisper_timestamps", {"no_timestamps": 7, "eos": 1})).init_state(context)
