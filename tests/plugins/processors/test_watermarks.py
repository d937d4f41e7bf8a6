"""Watermarks: those of transformers, detected by either side; calibrated p-values; drafts and batches keep the mark."""

from __future__ import annotations

import itertools
import json
import math
import re
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, Vocabulary, load_backend, processors
from logitloom.arrays import rng
from logitloom.errors import InvalidContext, OptionError
from logitloom.generation import BeamSearch, Generator, Multinomial, candidates, decode, speculate
from logitloom_plugins.watermarks.detection import binomial, gamma
from logitloom_plugins.watermarks.keyed_context import hashes, seeds_of
from logitloom_plugins.watermarks.mersenne import first_of_permutation
from tests.cases import EXHAUSTIVE, some
from tests.oracles.toy_model import ToyModel
from tests.plugins.processors.driving import apply, random_logits

VOCAB = 60
PROMPT = [[1, 2, 3, 1, 2], [4, 4, 4, 5, 4], [9, 8, 9, 8, 9]]
SYNTHID = {"keys": [654, 400, 836, 123, 340], "ngram_len": 4, "table_size": 512, "table_seed": 3, "history_size": 6}


@pytest.fixture(scope="module")
def torch() -> Any:
    pytest.importorskip("transformers", reason="the peer is transformers")
    return pytest.importorskip("torch", reason="the peer is transformers, which needs torch")


def greenlist(torch: Any, **options: Any) -> Any:
    from transformers.generation.logits_process import WatermarkLogitsProcessor

    return WatermarkLogitsProcessor(VOCAB, "cpu", **options)


def synthid(torch: Any, **options: Any) -> Any:
    from transformers.generation.logits_process import SynthIDTextWatermarkLogitsProcessor

    given = {
        "ngram_len": 4, "keys": SYNTHID["keys"], "sampling_table_size": 512, "sampling_table_seed": 3,
        "context_history_size": 6, "device": torch.device("cpu"), **options,
    }  # fmt: skip
    return SynthIDTextWatermarkLogitsProcessor(**given)


@pytest.mark.extras
@pytest.mark.parametrize(("seed", "size"), [(0, 1), (5, 7), (15485863 * 59, 60), (2**40 + 3, 30011)])
def test_permutations_are_those_of_pytorch(torch: Any, seed: int, size: int) -> None:
    wanted = torch.randperm(size, generator=torch.Generator().manual_seed(seed)).tolist()
    for count in (0, 1, size // 4, size):
        assert first_of_permutation(seed, size, count).tolist() == wanted[:count]


SCHEMES = [
    ({}, {}),
    ({"ratio": 0.5, "bias": 1.25, "key": 99}, {"greenlist_ratio": 0.5, "bias": 1.25, "hashing_key": 99}),
    ({"width": 3}, {"context_width": 3}),
    ({"scheme": "selfhash", "width": 1}, {"seeding_scheme": "selfhash", "context_width": 1}),
    ({"scheme": "selfhash", "width": 4, "ratio": 0.4},
     {"seeding_scheme": "selfhash", "context_width": 4, "greenlist_ratio": 0.4}),
]  # fmt: skip


@pytest.mark.extras
@pytest.mark.parametrize("kind", ["plain", "holes"])
@pytest.mark.parametrize(("ours", "theirs"), SCHEMES)
def test_green_tokens_are_those_of_transformers(
    backend: Backend, torch: Any, ours: dict[str, Any], theirs: dict[str, Any], kind: str
) -> None:
    peer = greenlist(torch, **theirs)
    more = [[7, 1], [4, 4], [0, 59]]
    ids = torch.tensor([before + after for before, after in zip(PROMPT, more, strict=True)])
    for seed in range(2):
        logits = random_logits(seed, 3, VOCAB, kind)
        wanted = peer(ids, torch.tensor(logits)).numpy()
        found = apply(backend, ("watermark_greenlist", ours), logits, PROMPT, more)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.extras
@pytest.mark.parametrize(("ours", "theirs"), SCHEMES)
@pytest.mark.parametrize("ignore", [False, True])
def test_either_detects_what_the_other_detects(
    torch: Any, ours: dict[str, Any], theirs: dict[str, Any], ignore: bool
) -> None:
    from transformers import LlamaConfig, WatermarkDetector

    config = LlamaConfig(vocab_size=VOCAB, bos_token_id=1000)
    settings = {"greenlist_ratio": 0.25, "bias": 2.0, "hashing_key": 15485863, "context_width": 1, **theirs}
    peer = WatermarkDetector(config, "cpu", settings, ignore_repeated_ngrams=ignore)
    chain = processors.load(("watermark_greenlist", ours))
    text = written(chain, 40)
    wanted = peer(torch.tensor([text]), return_dict=True)
    found = chain["watermark_greenlist"].detect(text, vocab_size=VOCAB, ignore_repeated=ignore)
    if ignore and ours.get("width", 1) > 1:  # transformers counts one coin of several n-grams several times
        assert found.scored <= int(wanted.num_tokens_scored[0])
    else:
        assert found.scored == int(wanted.num_tokens_scored[0])
        assert round(found.mean * found.scored) == int(wanted.num_green_tokens[0])
        assert found.statistic == pytest.approx(float(wanted.z_score[0]), rel=0.02)
    # Of a token that seeds its own list there are no more n-grams than tokens.
    assert found.statistic > 2 or (ignore and ours.get("width") == 1)


@pytest.mark.extras
@pytest.mark.parametrize(("skip", "coins"), [(False, 512), (True, 500)])
def test_tournaments_are_those_of_transformers(backend: Backend, torch: Any, skip: bool, coins: int) -> None:
    peer = synthid(torch, skip_first_ngram_calls=skip, sampling_table_size=coins)
    chain = processors.load(("watermark_synthid", {**SYNTHID, "skip_first": skip, "table_size": coins}))
    dice = np.random.default_rng(0)
    context = Context.start(backend.asarray(np.zeros((3, VOCAB), np.float32)))
    state, given = chain.init_state(context), context
    ids = np.asarray(PROMPT)
    for step in range(12):
        logits = random_logits(step, 3, VOCAB)
        wanted = peer(torch.tensor(ids), torch.tensor(logits)).numpy()
        found, state = chain.process(backend.asarray(logits), state, given)
        found = backend.to_numpy(found)
        np.testing.assert_allclose(np.where(found < -60, -60, found), np.where(wanted < -60, -60, wanted), atol=2e-4)
        tokens = dice.integers(0, 2, (3, 1))  # few, so that contexts come again
        ids, given = np.concatenate([ids, tokens], axis=1), context.accept(tokens)


@pytest.mark.extras
def test_coins_are_those_of_transformers(torch: Any) -> None:
    text = np.random.default_rng(1).integers(0, VOCAB, 50)
    ours = processors.load(("watermark_synthid", SYNTHID))["watermark_synthid"]
    coins = synthid(torch).compute_g_values(torch.tensor(text[None])).numpy()[0]
    found = ours.detect(text.tolist())
    assert found.scored == coins.size
    assert found.mean == pytest.approx(coins.mean())


def test_a_state_rebuilt_from_tokens_keeps_the_history(backend: Backend) -> None:
    chain = processors.load(("watermark_synthid", SYNTHID))
    context = Context.start(backend.asarray(np.zeros((1, VOCAB), np.float32)))
    tokens = [1, 0, 1, 1, 0, 1, 0, 1, 1, 0, 1]
    state, given = chain.init_state(context), context
    for token in [*tokens, None]:
        logits = backend.asarray(random_logits(0, 1, VOCAB))
        out, after = chain.process(logits, state, given)
        state, given = after, context.accept([[token]]) if token is not None else given
    again, _ = chain.process(backend.asarray(random_logits(0, 1, VOCAB)), chain.replay([tokens], context), context)
    np.testing.assert_allclose(backend.to_numpy(again), backend.to_numpy(out), rtol=1e-6)


# -- statistics -----------------------------------------------------------------------------------------------

MARKS: dict[str, tuple[str, dict[str, Any]]] = {
    "lefthash": ("watermark_greenlist", {}),
    "selfhash": ("watermark_greenlist", {"scheme": "selfhash", "width": 2, "key": 1234577}),
    "gumbel": ("watermark_gumbel", {"key": 4, "width": 2}),
    "synthid": ("watermark_synthid", SYNTHID),
    "dipmark": ("watermark_dipmark", {"key": 4, "width": 2}),
    "gamma": ("watermark_dipmark", {"key": 5, "width": 2, "alpha": 0.5}),
    "delta": ("watermark_delta", {"key": 6, "width": 2}),
}
#: Marks whose numbers are those of n-grams of the text: with one key they come again in texts of a small vocabulary.
OF_NGRAMS = ("gumbel", "dipmark", "gamma", "delta")


def written(chain: Any, length: int, seed: int = 0, prompt: tuple[int, ...] = (1, 2, 3, 4)) -> list[int]:
    """A text sampled from random logits that the chain marks."""
    context = Context.start(np.zeros((1, VOCAB), np.float32), prompt=[prompt])
    dice, state, given = np.random.default_rng(seed), chain.init_state(context), context
    text: list[int] = []
    for step in range(length):
        logits = np.random.default_rng([seed, step]).normal(size=(1, VOCAB)).astype(np.float32)
        out, state = chain.process(logits, state, given)
        p = np.exp(out[0].astype(np.float64) - out[0].max())
        text.append(int(dice.choice(VOCAB, p=p / p.sum())))
        given = context.accept([text[-1:]])
    return text


@pytest.mark.parametrize("label", MARKS)
@pytest.mark.long
def test_p_values_of_unmarked_texts_are_uniform(label: str) -> None:
    name, options = MARKS[label]
    mark = processors.load((name, options))[name]
    count = (10_000 if EXHAUSTIVE else 1_000) if label != "selfhash" else 1_000
    vocab = 5000 if label in OF_NGRAMS else VOCAB
    texts = np.random.default_rng(9).integers(0, vocab, (count, 30)).tolist()
    p = np.sort([mark.detect(text, vocab_size=vocab).p_value for text in texts])
    steps = np.arange(1, count + 1) / count
    distance = max(np.abs(steps - p).max(), np.abs(steps - 1 / count - p).max())
    assert distance < 1.63 / math.sqrt(count)  # Kolmogorov and Smirnov, at 1 %
    assert (p < 0.01).mean() == pytest.approx(0.01, abs=4 * math.sqrt(0.01 / count))


def test_n_grams_that_one_list_decides_count_once() -> None:
    mark = processors.load(("watermark_greenlist", {"width": 3}))["watermark_greenlist"]
    text = [1, 2, 3, 9, 4, 5, 3, 9, 6, 3, 9]  # 9 comes after 3 three times, each time after other tokens
    assert mark.detect(text, vocab_size=VOCAB).scored == len(text) - 3 - 2
    assert mark.detect(text, vocab_size=VOCAB, ignore_repeated=False).scored == len(text) - 3


@pytest.mark.parametrize("options", [{"width": 3}, {"scheme": "selfhash", "width": 2}])
@pytest.mark.exhaustive
def test_false_positives_of_texts_with_frequent_tokens_are_as_many_as_the_p_value_says(options: dict[str, Any]) -> None:
    dice, vocab, p = np.random.default_rng(3), 300, []
    often = 1 / np.arange(1, vocab + 1) ** 1.1
    for _ in range(100):
        key = int(dice.integers(1, 2**31))
        mark = processors.load(("watermark_greenlist", {"key": key, **options}))["watermark_greenlist"]
        for _ in range(4):
            text = dice.permutation(vocab)[dice.choice(vocab, 60, p=often / often.sum())]
            p.append(mark.detect(text, vocab_size=vocab).p_value)
    assert np.mean(np.asarray(p) < 0.05) == pytest.approx(0.05, abs=4 * math.sqrt(0.05 / len(p)))


@pytest.mark.parametrize("label", MARKS)
@pytest.mark.long
def test_marked_texts_are_found(label: str) -> None:
    name, options = MARKS[label]
    chain = processors.load((name, options))
    found = [chain[name].detect(written(chain, 80, seed), vocab_size=VOCAB).p_value for seed in range(5)]
    assert np.median(found) < 1e-4


@pytest.mark.exhaustive
@pytest.mark.parametrize("label", ["lefthash", "gumbel", "synthid", "dipmark", "gamma", "delta"])
def test_false_positives_are_as_many_as_the_p_value_says(label: str) -> None:
    name, options = MARKS[label]
    # The coins of two keys are drawn from one table, which must be large for them to be independent.
    options = {**options, "table_size": 65536} if label == "synthid" else options
    mark = processors.load((name, options))[name]
    count, vocab = 60_000, 5000 if label in OF_NGRAMS else VOCAB
    texts = np.random.default_rng(8).integers(0, vocab, (count, 30)).tolist()
    p = np.asarray([mark.detect(text, vocab_size=vocab).p_value for text in texts])
    for level in (0.01, 0.001):
        assert (p < level).mean() == pytest.approx(level, abs=4 * math.sqrt(level / count))


def sampled_with(scores: Any, prompts: np.ndarray, steps: int, seed: int) -> np.ndarray:
    """Texts of rows, sampled from scores by inversion, so that equal seeds sample alike.

    Args:
        scores: takes ids ``[rows, n]`` and logits ``[rows, vocab]``, gives marked logits.
        prompts: ``[rows, n]``.
        steps: how many tokens to write.
        seed: of the logits and of the draws.
    """
    dice, ids = np.random.default_rng(seed), prompts
    for _ in range(steps):
        logits = dice.normal(scale=1.5, size=(len(ids), VOCAB)).astype(np.float32)
        u = dice.random((len(ids), 1))
        out = scores(ids, logits).astype(np.float64)
        mass = np.cumsum(np.exp(out - out.max(-1, keepdims=True)), axis=-1)
        token = (mass < u * mass[:, -1:]).sum(-1, keepdims=True)
        ids = np.concatenate([ids, token], axis=1)
    return ids[:, prompts.shape[1] :]


@pytest.mark.exhaustive
@pytest.mark.parametrize("label", ["lefthash", "selfhash", "synthid"])
def test_marks_are_found_as_surely_as_those_of_transformers(torch: Any, label: str) -> None:
    rows, steps = 40, 60
    prompts = np.random.default_rng(2).integers(0, VOCAB, (rows, 5))
    options: dict[str, Any] = {"scheme": "selfhash", "width": 4} if label == "selfhash" else {}
    spec = ("watermark_synthid", SYNTHID) if label == "synthid" else ("watermark_greenlist", options)
    chain = processors.load(spec)
    if label == "synthid":
        peer = synthid(torch, skip_first_ngram_calls=False)
    else:
        theirs = {"seeding_scheme": "selfhash", "context_width": 4} if options else {}
        peer = greenlist(torch, **theirs)
    held: list[Any] = []

    def ours(ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
        context = Context.start(logits, prompt=[[int(t) for t in row] for row in prompts])
        state = held.pop() if held else chain.init_state(context)
        given = context.accept(ids[:, -1:].astype(np.int32)) if ids.shape[1] > prompts.shape[1] else context
        out, after = chain.process(logits, state, given)
        held.append(after)
        return out

    def those(ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
        return np.asarray(peer(torch.tensor(ids), torch.tensor(logits)))

    def power(texts: np.ndarray) -> float:
        found = [chain[spec[0]].detect(text, vocab_size=VOCAB).statistic for text in texts.tolist()]
        return float(np.mean(found))

    mine, other = (power(sampled_with(scores, prompts, steps, 11)) for scores in (ours, those))
    assert other > 2
    assert 0.98 <= mine / other <= 1.02


@pytest.mark.parametrize("label", ["gumbel", "synthid"])
@pytest.mark.long
def test_over_keys_nothing_is_distorted(label: str) -> None:
    name, options = MARKS[label]
    p = np.asarray([[0.5, 0.25, 0.15, 0.1]], dtype=np.float32)
    total, count = np.zeros(4), some(1500)
    for key in range(count):
        more = {"key": key} if label == "gumbel" else {"keys": [3 * key + 1, 3 * key + 2]}
        out = apply(load_backend("numpy"), (name, {**options, **more}), np.log(p), [[1, 2]])
        e = np.exp(out[0].astype(np.float64) - out[0].max())
        total += e / e.sum()
    np.testing.assert_allclose(total / count, p[0], atol=1.75 / math.sqrt(count))


@pytest.mark.parametrize("label", MARKS)
def test_drafts_batches_and_constraints_keep_the_mark(label: str) -> None:
    model = ToyModel(load_backend("numpy"))
    # What leaves one token leaves nothing to a constraint behind it.
    chain = processors.load(("suppress_tokens", {"tokens": [0]}), MARKS[label])
    options: dict[str, Any] = {"max_tokens": 12, "seed": 3, "eos": []}
    prompts = [[1, 2, 3, 1, 2], [4, 4, 4, 5]]

    def texts(emissions: Any) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for emission in emissions:
            found.setdefault(emission.row, []).extend(emission.tokens)
        return found

    plain = texts(decode(model, prompts, chain, Multinomial(), **options))
    drafted = texts(speculate(model, prompts, chain, Multinomial(), candidates.load("prompt_lookup"), **options))
    assert plain == drafted
    assert texts(decode(model, prompts[:1], chain, Multinomial(), **options))[0] == plain[0]


def test_tails_of_the_statistics() -> None:
    assert binomial(0, 0, 0.5, []).p_value == 1.0
    wanted = sum(math.comb(20, k) for k in range(15, 21)) / 2**20
    here = math.comb(20, 14) / 2**20
    assert wanted <= binomial(14, 20, 0.5, [1]).p_value <= wanted + here
    assert gamma(2.5, 2).p_value == pytest.approx(math.exp(-2.5) * 3.5)


def test_a_mark_without_a_key_is_refused() -> None:
    with pytest.raises(OptionError, match=r"Option 'keys' of 'watermark_synthid' is empty\. Give at least one integer"):
        processors.load(("watermark_synthid", {"keys": []}))


# -- reweighting along a keyed order --------------------------------------------------------------------------


def reweighted(p: np.ndarray, order: np.ndarray, alpha: float) -> np.ndarray:
    """The published formula, in float64: the distribution function of the order, and its differences."""
    upto = np.concatenate([[0.0], np.cumsum(p[order])])
    marked = np.maximum(upto - alpha, 0.0) + np.maximum(upto - (1.0 - alpha), 0.0)
    found = np.zeros_like(p)
    found[order] = np.diff(marked)
    return found


def orders(key: int, contexts: np.ndarray, vocab: int) -> np.ndarray:
    """``[rows, vocab]``: the order of each context."""
    with np.errstate(over="ignore"):
        xp = load_backend("numpy").xp
        drawn = hashes(seeds_of(contexts.astype(np.int32), key, xp)[:, None], np.arange(vocab, dtype=np.int32), xp)
    return np.argsort(drawn, axis=-1)


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.45, 0.5])
def test_reweighting_is_the_published_formula(backend: Backend, alpha: float) -> None:
    for kind in ("plain", "holes"):
        logits = random_logits(5, 3, VOCAB, kind)
        found = apply(backend, ("watermark_dipmark", {"key": 9, "width": 2, "alpha": alpha}), logits, PROMPT)
        drawn = orders(9, np.asarray([prompt[-2:] for prompt in PROMPT]), VOCAB)
        for line, raw, order in zip(found.astype(np.float64), logits.astype(np.float64), drawn, strict=True):
            p = np.exp(raw - raw.max())
            wanted = reweighted(p / p.sum(), order, alpha)
            kept = np.exp(line - raw.max()) / p.sum()
            np.testing.assert_allclose(kept, wanted, atol=2e-6)


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.5])
def test_the_mean_over_all_orders_is_the_original_distribution(alpha: float) -> None:
    p = np.asarray([0.45, 0.3, 0.15, 0.07, 0.03])
    every = [reweighted(p, np.asarray(order), alpha) for order in itertools.permutations(range(5))]
    np.testing.assert_allclose(np.mean(every, axis=0), p, atol=1e-15)


@pytest.mark.parametrize("label", ["dipmark", "gamma", "delta"])
@pytest.mark.long
def test_over_contexts_and_keys_the_distribution_is_the_original(label: str) -> None:
    name, options = MARKS[label]
    p = np.asarray([0.45, 0.3, 0.15, 0.07, 0.03], dtype=np.float32)
    total, rows, keys = np.zeros(5), some(8000), 5
    prompts = [[row, 3 * row + 1] for row in range(rows)]
    for key in range(keys):
        logits = np.broadcast_to(np.log(p), (rows, 5))
        context = Context.start(np.ascontiguousarray(logits), prompt=[[]] * rows)
        chain = processors.load((name, {**options, "key": key}))
        # Ids of contexts beyond the logits are left out of a window, so contexts are set as a state.
        state = chain.init_state(context)
        (before,) = state.processors
        marked = before._replace(recent=before.recent._replace(tokens=np.asarray(prompts, dtype=np.int32)))
        out, _ = chain.process(context.backend.asarray(logits), chain.state(state.position, (marked,)), context)
        e = np.exp(out.astype(np.float64))
        total += (e / e.sum(-1, keepdims=True)).mean(0)
    # A choice of one token has the largest spread: at most sqrt(p * (1 - p) / n).
    spread = np.sqrt(p * (1 - p) / (rows * keys))
    assert (np.abs(total / keys - p) < 4 * spread).all()


@pytest.mark.parametrize("label", ["dipmark", "gamma", "delta"])
def test_a_context_that_came_before_is_not_marked_again(backend: Backend, label: str) -> None:
    name, options = MARKS[label]
    chain = processors.load((name, options))
    logits = random_logits(2, 1, VOCAB)
    context = Context.start(backend.asarray(logits), prompt=[[7, 8]])
    state, given, changed = chain.init_state(context), context, []
    for token in (5, 7, 8, 5, 7, None):  # 7 8, 8 5, 5 7, 7 8 again, 8 5 again, 5 7 again
        out, state = chain.process(backend.asarray(logits), state, given)
        changed.append(not np.array_equal(backend.to_numpy(out), logits))
        given = context if token is None else context.accept([[token]])
    assert changed == [True, True, True, False, False, False]
    rebuilt = chain.replay([[5, 7, 8, 5]], context)
    assert np.array_equal(backend.to_numpy(chain.process(backend.asarray(logits), rebuilt, context)[0]), logits)


def test_delta_chooses_by_the_inverse_of_the_distribution_function(backend: Backend) -> None:
    logits = random_logits(3, 3, VOCAB)
    found = apply(backend, ("watermark_delta", {"key": 3, "width": 2}), logits, PROMPT)
    contexts = np.asarray([prompt[-2:] for prompt in PROMPT], dtype=np.int32)
    with np.errstate(over="ignore"):
        xp = load_backend("numpy").xp
        seeds = seeds_of(contexts, 3, xp)
        u = rng.uniform(xp, seeds, seeds * 0, 0x64656C74)
    for line, raw, order, point in zip(found, logits, orders(3, contexts, VOCAB), u, strict=True):
        p = np.exp(raw.astype(np.float64) - raw.max())
        chosen = order[np.searchsorted(np.cumsum((p / p.sum())[order]), point, side="right")]
        assert np.flatnonzero(np.isfinite(line)).tolist() == [chosen]


def test_a_mark_behind_a_constraint_keeps_it() -> None:
    for label in ("dipmark", "gamma", "delta"):
        chain = processors.load(("suppress_tokens", {"tokens": list(range(50))}), MARKS[label])
        assert min(written(chain, 30)) >= 50


LETTERS = Vocabulary([*(bytes([n]) for n in b'abcdefgh{}[]":,12345'), b""], eos=[20])
TEXTS: dict[str, tuple[tuple[str, dict[str, Any]], Any]] = {
    "regex": (("regex", {"pattern": "[a-e]{6,20}(12|3)"}), lambda text: re.fullmatch("[a-e]{6,20}(12|3)", text)),
    "json": (
        ("json", {"schema": {"type": "array", "items": {"enum": ["a", "bc", 1, 24]}, "minItems": 2, "maxItems": 5}}),
        lambda text: 2 <= len(json.loads(text)) <= 5,
    ),
}


@pytest.mark.parametrize("strategy", ["drawn", "beams", "drafts"])
@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("label", MARKS)
@pytest.mark.long
def test_marked_texts_are_valid_under_beams_drafts_and_in_batches(label: str, form: str, strategy: str) -> None:
    constraint, valid = TEXTS[form]
    chain = processors.load(constraint, MARKS[label], tokenizer=LETTERS)
    model = ToyModel(load_backend("numpy"), vocab=21)
    options: dict[str, Any] = {"max_tokens": 40}
    if strategy == "drafts":
        options["candidates"] = candidates.load("prompt_lookup")
    way = BeamSearch(3, samples=2) if strategy == "beams" else Multinomial()
    loop = Generator(model, chain, way, tokenizer=LETTERS, **options)
    prompts = [[1, 2, 3, 1, 2], [4, 4, 4, 5], [0]]
    found = loop(prompts, seed=3)
    assert found
    for each in found:
        assert valid(each.text), each.text
    if strategy == "drafts":
        plain = Generator(model, chain, way, tokenizer=LETTERS, max_tokens=40)(prompts, seed=3)
        assert [each.tokens for each in plain] == [each.tokens for each in found]
    if strategy == "drawn":
        alone = loop(prompts[:1], seed=3)
        assert alone[0].tokens == found[0].tokens


@pytest.mark.parametrize("label", MARKS)
def test_a_text_is_the_same_in_every_library(label: str, backend: Backend) -> None:
    """A tensor of one number equals no other one as a key, so contexts that came again counted again."""
    mark = processors.load(MARKS[label])[MARKS[label][0]]
    text = np.random.default_rng(1).integers(0, 4, 120)
    wanted = mark.detect(text.tolist(), vocab_size=VOCAB)
    assert mark.detect(backend.asarray(text, "int32"), vocab_size=VOCAB) == wanted
    assert mark.detect(tuple(text), vocab_size=VOCAB) == wanted


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([[1, 2, 3]], r"not in \[\[1, 2, 3\]\]. Give one text at a time, such as ids\[0\]"),
        (np.ones((2, 9), np.int64), "Give one text at a time"),
        ("a text", "not in 'a text'. Encode a text with the model's tokenizer"),
        (5, "not in 5. Encode a text"),
        (None, "not in None. Encode a text"),
        ([1.0, 2.0], r"not in \[1.0, 2.0\]"),
        ([1, -1], "The text has the id -1, but ids are from 0 to"),
    ],
)
@pytest.mark.parametrize("label", MARKS)
def test_what_is_not_the_ids_of_one_text_is_refused(label: str, ids: Any, said: str) -> None:
    mark = processors.load(MARKS[label])[MARKS[label][0]]
    with pytest.raises(InvalidContext, match=said):
        mark.detect(ids, vocab_size=VOCAB)


def test_ids_beyond_the_vocabulary_are_no_text_of_the_model() -> None:
    mark = processors.load(("watermark_greenlist", {"key": 5}))["watermark_greenlist"]
    with pytest.raises(InvalidContext, match="The text has the id 60, but ids are from 0 to 59. Leave padding out"):
        mark.detect([1, 60], vocab_size=60)
