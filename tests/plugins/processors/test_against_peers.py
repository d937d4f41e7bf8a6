"""The processors give what transformers and mlx-lm give, where these have the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Backend
from tests.cases import each_once
from tests.plugins.processors.driving import apply, close, random_logits

KINDS = ["plain", "ties", "holes"]
PROMPT = [[1, 2, 3, 1, 2], [4, 4, 4, 5, 4], [9, 8, 9, 8, 9]]
VOCAB = 60


@pytest.fixture(scope="module")
def peers() -> Any:
    pytest.importorskip("torch", reason="the peer is transformers, which needs torch")
    return pytest.importorskip("transformers.generation.logits_process", reason="the peer is transformers")


@pytest.fixture(scope="module")
def mlx_peers() -> Any:
    return pytest.importorskip("mlx_lm.sample_utils", reason="the peer is mlx-lm")


def transformers_result(processor: Any, logits: np.ndarray, ids: list[list[int]]) -> np.ndarray:
    import torch

    return processor(torch.tensor(ids), torch.tensor(logits)).numpy()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return (shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))).astype(np.float32)


#: A processor, its peer, and the peer's arguments.
STATELESS: dict[str, tuple[Any, str, tuple[Any, ...]]] = {
    "temperature 0.7": (("temperature", {"temperature": 0.7}), "TemperatureLogitsWarper", (0.7,)),
    "top_k 7": (("top_k", {"k": 7}), "TopKLogitsWarper", (7,)),
    "top_k 100": (("top_k", {"k": 100}), "TopKLogitsWarper", (100,)),
    "min_p 0.05": (("min_p", {"p": 0.05}), "MinPLogitsWarper", (0.05,)),
    "min_p 1.0": (("min_p", {"p": 1.0}), "MinPLogitsWarper", (1.0,)),
    "typical_p 0.3": (("typical_p", {"p": 0.3}), "TypicalLogitsWarper", (0.3,)),
    "typical_p 0.95": (("typical_p", {"p": 0.95}), "TypicalLogitsWarper", (0.95,)),
    "epsilon_cutoff 0.01": (("epsilon_cutoff", {"epsilon": 0.01}), "EpsilonLogitsWarper", (0.01,)),
    "epsilon_cutoff 0.5": (
        ("epsilon_cutoff", {"epsilon": 0.5, "min_keep": 3}),
        "EpsilonLogitsWarper",
        (0.5, -np.inf, 3),
    ),
    "eta_cutoff 0.05": (("eta_cutoff", {"epsilon": 0.05}), "EtaLogitsWarper", (0.05,)),
    "eta_cutoff 0.9": (("eta_cutoff", {"epsilon": 0.9, "min_keep": 4}), "EtaLogitsWarper", (0.9, -np.inf, 4)),
    "suppress_tokens of ids": (("suppress_tokens", {"tokens": [3, 5]}), "SuppressTokensLogitsProcessor", ([3, 5],)),
    "logit_bias of ids": (
        ("logit_bias", {"bias": {3: 1.5, 7: -2.0}}),
        "SequenceBiasLogitsProcessor",
        ([[[3], 1.5], [[7], -2.0]],),
    ),
}


@pytest.mark.extras
@pytest.mark.parametrize(("case", "kind"), each_once(STATELESS, KINDS))
def test_warps_agree_with_transformers(backend: Backend, peers: Any, case: str, kind: str) -> None:
    spec, peer, arguments = STATELESS[case]
    for seed in range(10):
        logits = random_logits(seed, 3, VOCAB, kind)
        close(apply(backend, spec, logits), transformers_result(getattr(peers, peer)(*arguments), logits, PROMPT))


@pytest.mark.extras
@pytest.mark.parametrize(("name", "peer"), [("min_p", "MinPLogitsWarper"), ("typical_p", "TypicalLogitsWarper")])
def test_min_keep_agrees_with_transformers(backend: Backend, peers: Any, name: str, peer: str) -> None:
    for seed in range(10):
        logits = random_logits(seed, 3, VOCAB)
        theirs = transformers_result(getattr(peers, peer)(0.5, -np.inf, 9), logits, PROMPT)
        close(apply(backend, (name, {"p": 0.5, "min_keep": 9}), logits), theirs)


@pytest.mark.extras
@pytest.mark.parametrize("kind", ["plain", "holes"])
@pytest.mark.parametrize(("p", "min_keep"), each_once([0.0, 0.3, 0.9, 0.999], [1, 5]))
def test_top_p_agrees_with_transformers(backend: Backend, peers: Any, kind: str, p: float, min_keep: int) -> None:
    for seed in range(10):
        logits = random_logits(seed, 3, VOCAB, kind)
        theirs = transformers_result(peers.TopPLogitsWarper(p, -np.inf, min_keep), logits, PROMPT)
        close(apply(backend, ("top_p", {"p": p, "min_keep": min_keep}), logits), theirs)


@pytest.mark.extras
@pytest.mark.parametrize("p", [0.3, 0.9])
def test_top_p_keeps_what_transformers_keeps_and_every_tie_of_its_least(backend: Backend, peers: Any, p: float) -> None:
    for seed in range(20):
        logits = random_logits(seed, 3, VOCAB, "ties")
        theirs = transformers_result(peers.TopPLogitsWarper(p), logits, PROMPT)
        least = np.where(theirs > -np.inf, theirs, np.inf).min(-1, keepdims=True)
        close(apply(backend, ("top_p", {"p": p}), logits), np.where(logits >= least, logits, -np.inf))


@pytest.mark.extras
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [0.3, 0.9])
def test_top_p_agrees_with_mlx_lm_ties_included(backend: Backend, mlx_peers: Any, kind: str, p: float) -> None:
    import mlx.core as mx

    for seed in range(10):
        logits = log_softmax(random_logits(seed, 3, VOCAB, kind))
        close(apply(backend, ("top_p", {"p": p}), logits), np.array(mlx_peers.apply_top_p(mx.array(logits), p)))


@pytest.mark.extras
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [0.01, 0.3])
def test_min_p_agrees_with_mlx_lm(backend: Backend, mlx_peers: Any, kind: str, p: float) -> None:
    import mlx.core as mx

    for seed in range(10):
        logits = log_softmax(random_logits(seed, 3, VOCAB, kind))
        close(apply(backend, ("min_p", {"p": p}), logits), np.array(mlx_peers.apply_min_p(mx.array(logits), p)))


@pytest.mark.extras
def test_top_k_agrees_with_mlx_lm(backend: Backend, mlx_peers: Any) -> None:
    import mlx.core as mx

    logits = log_softmax(random_logits(0, 3, VOCAB))
    close(apply(backend, ("top_k", {"k": 5}), logits), np.array(mlx_peers.apply_top_k(mx.array(logits), 5)))


@pytest.mark.extras
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [(), (3, 17)])
def test_xtc_agrees_with_mlx_lm(backend: Backend, mlx_peers: Any, kind: str, keep: tuple[int, ...]) -> None:
    import mlx.core as mx

    for seed in range(10):
        logits = random_logits(seed, 1, VOCAB, kind)  # one row: mlx-lm takes the minimum over the whole batch
        theirs = np.array(mlx_peers.apply_xtc(mx.array(logits), 1.0, 0.05, list(keep)))
        close(apply(backend, ("xtc", {"probability": 1.0, "threshold": 0.05, "keep": keep}), logits), theirs)


@pytest.mark.extras
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("penalty", [1.3, 0.6])
def test_repetition_penalty_agrees_with_transformers(backend: Backend, peers: Any, penalty: float, kind: str) -> None:
    more = [[7, 1], [4, 4], [0, 59]]
    ids = [before + after for before, after in zip(PROMPT, more, strict=True)]
    for seed in range(5):
        logits = random_logits(seed, 3, VOCAB, kind)
        theirs = transformers_result(peers.RepetitionPenaltyLogitsProcessor(penalty), logits, ids)
        close(apply(backend, ("repetition_penalty", {"penalty": penalty}), logits, PROMPT, more), theirs)
        theirs = transformers_result(peers.RepetitionPenaltyLogitsProcessor(penalty, 5), logits, ids)
        spec = ("repetition_penalty", {"penalty": penalty, "include_prompt": False})
        close(apply(backend, spec, logits, PROMPT, more), theirs)


@pytest.mark.extras
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
@pytest.mark.parametrize("window", [3, 20])
def test_windowed_penalties_agree_with_mlx_lm(
    backend: Backend, mlx_peers: Any, name: str, window: int, kind: str
) -> None:
    import mlx.core as mx

    more = [[7, 1], [4, 4], [0, 59]]
    logits = random_logits(1, 3, VOCAB, kind)
    peer = getattr(mlx_peers, f"make_{name}")(1.3, window)
    theirs = [
        np.array(peer(mx.array(before + after), mx.array(row[None])))[0]
        for before, after, row in zip(PROMPT, more, logits, strict=True)
    ]
    spec = (name, {"penalty": 1.3, "window": window, "include_prompt": True})
    close(apply(backend, spec, logits, PROMPT, more), theirs)


@pytest.mark.extras
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_no_repeat_ngram_agrees_with_transformers(backend: Backend, peers: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(10):
        ids = rng.integers(0, 3, (3, int(rng.integers(1, 30)))).tolist()
        logits = random_logits(0, 3, 4)
        theirs = transformers_result(peers.NoRepeatNGramLogitsProcessor(n), logits, ids)
        close(apply(backend, ("no_repeat_ngram", {"n": n}), logits, ids), theirs)


@pytest.mark.extras
def test_min_tokens_agrees_with_transformers(backend: Backend, peers: Any) -> None:
    for generated in range(4):
        more = [[7] * generated] * 3
        ids = [before + after for before, after in zip(PROMPT, more, strict=True)]
        logits = random_logits(0, 3, VOCAB)
        theirs = transformers_result(peers.MinNewTokensLengthLogitsProcessor(5, 2, [0, 9]), logits, ids)
        close(apply(backend, ("min_tokens", {"n": 2, "eos": [0, 9]}), logits, PROMPT, more), theirs)


@pytest.mark.extras
def test_suppressing_the_first_token_agrees_with_transformers(backend: Backend, peers: Any) -> None:
    for more in ([[], [], []], [[1], [1], [1]]):
        ids = [before + after for before, after in zip(PROMPT, more, strict=True)]
        logits = random_logits(0, 3, VOCAB)
        theirs = transformers_result(peers.SuppressTokensAtBeginLogitsProcessor([3, 5], 5), logits, ids)
        close(apply(backend, ("suppress_tokens", {"tokens": [3, 5], "begin": True}), logits, PROMPT, more), theirs)


@pytest.mark.extras
def test_logit_bias_agrees_with_mlx_lm(backend: Backend, mlx_peers: Any) -> None:
    import mlx.core as mx

    logits = random_logits(0, 3, VOCAB, "holes")
    (peer,) = mlx_peers.make_logits_processors(logit_bias={3: 1.5, 9: -4.0})
    theirs = np.array(peer(mx.array([1]), mx.array(logits)))
    close(apply(backend, ("logit_bias", {"bias": {3: 1.5, 9: -4.0}}), logits), theirs)
