"""The compiled loop over positions scores as processors do that see one array of positions after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Chain, Context, load_backend, processors, score_program, scoring
from logitloom.errors import IllegalToken, OptionError
from logitloom.masks.kernels import KernelFailed, load_kernels
from logitloom.vocabulary import Vocabulary

pytest.importorskip("numba", reason="Numba is not installed")

pytestmark = pytest.mark.extras

VOCAB, TIME = 900, 30
PROMPTS = [[1, 2, 3, 2, 3], [4], []]
DRY, NGRAM = ("dry", {"breakers": [], "allowed_length": 1}), ("no_repeat_ngram", {"n": 2})
COUNT, SEEN = ("frequency_penalty", {"penalty": 0.4}), ("presence_penalty", {"penalty": 0.5})
RESCALE, BIAS = ("repetition_penalty", {"penalty": 1.3}), ("logit_bias", {"bias": {2: 1.0, 7: -2.0, 800: 0.5}})
COOL, TOP_K, TOP_P = ("temperature", {"temperature": 0.7}), ("top_k", {"k": 12}), ("top_p", {"p": 0.9})
MIN_P, XTC, TYPICAL = ("min_p", {"p": 0.02}), ("xtc", {"probability": 0.5}), ("typical_p", {"p": 0.95})
LATE = ("min_tokens", {"n": 5, "eos": [0]})

#: Chains, and which of their processors see rows, see columns, are operations with tables before and behind these, and
#: see survivors.
CHAINS: dict[str, tuple[list[Any], list[list[str]]]] = {
    "ordinary": ([RESCALE, COOL, TOP_K, TOP_P, MIN_P], [[], [], [], ["repetition_penalty"], []]),
    "penalties": (
        [COUNT, SEEN, NGRAM, BIAS, COOL], [[], ["no_repeat_ngram"], ["frequency_penalty", "presence_penalty"], [], []]
    ),
    "between": (
        [COUNT, NGRAM, RESCALE, TOP_P], [[], ["no_repeat_ngram"], ["frequency_penalty"], ["repetition_penalty"], []]
    ),
    "warps": ([COOL, TOP_P, MIN_P, TYPICAL], [[], [], [], [], ["typical_p"]]),
    "mixed": ([TOP_K, XTC, LATE, COOL], [[], [], [], [], ["xtc", "min_tokens", "temperature"]]),
    "late bias": ([COOL, BIAS, TOP_K], [["temperature"], [], [], [], []]),
    "columns alone": ([BIAS, SEEN], [["logit_bias"], [], [], ["presence_penalty"], []]),
    "rows": ([TYPICAL, COUNT, MIN_P, XTC], [["typical_p"], [], [], ["frequency_penalty"], ["xtc"]]),
    "twice": ([TOP_P, XTC, TOP_P], [[], [], [], [], ["xtc", "top_p#2"]]),
    "encouraged": (
        [("repetition_penalty", {"penalty": 0.7}), ("frequency_penalty", {"penalty": -0.7}), TOP_P],
        [[], [], [], ["repetition_penalty", "frequency_penalty"], []],
    ),
}  # fmt: skip


def labels(part: Any) -> list[str]:
    return list(part.labels)


def scored(chain: Chain, logits: Any, tokens: Any, context: Context, patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """With the compiled loop, and without."""
    load_kernels()
    found = chain.score(logits, tokens, context)
    with patch.context() as without:
        without.setattr(score_program, "host_kernels", lambda work=0: None)
        return found, chain.score(logits, tokens, context)


@pytest.mark.parametrize("kind", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
@pytest.mark.parametrize("name", CHAINS)
def test_it_scores_as_processors_do(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, dice = load_backend(kind), np.random.default_rng(len(name))
    monkeypatch.setattr(scoring, "_MOST_POSITIONS", 8)
    specs, parts = CHAINS[name]
    chain = processors.load(*specs)
    program = chain._parts.program
    assert program is not None
    assert [label for part in program.first for label in part.labels] == parts[0]
    assert [*map(labels, (program.seen, program.before, program.behind, program.rest))] == parts[1:]
    host = dice.normal(scale=2.0, size=(3, TIME, VOCAB)).astype(np.float32)
    tokens = np.where(dice.random(host.shape[:2]) < 0.5, dice.integers(1, 6, host.shape[:2]), host.argmax(-1))
    host[..., 1:6] += 5
    tokens[1, 11:] = tokens[2, 3:] = -1
    logits = backend.asarray(host)
    # An id beyond the logits, as of a prompt with ids of pictures, has no column.
    context = Context.start(logits[:, 0], prompt=[*PROMPTS[:2], [5000]], max_length=TIME + 8, seed=3)
    found, wanted = map(backend.to_numpy, scored(chain, logits, tokens, context, monkeypatch))
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    assert np.isfinite(wanted[tokens >= 0]).mean() > 0.3
    possible = np.isfinite(wanted)
    np.testing.assert_allclose(found[possible], wanted[possible], atol=1e-5)
    assert (found[tokens < 0] == 0).all()
    assert (backend.to_numpy(logits) == host).all()


@pytest.mark.parametrize("specs", [[COOL], [TOP_P], [MIN_P], [TOP_K]], ids=lambda specs: specs[0][0])
@pytest.mark.parametrize("kind", ["nan", "-nan", "inf", "none", "few", "ties", "zeros"])
def test_rows_that_are_not_ordinary_score_as_in_processors(
    specs: list[Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = np.random.default_rng(0).normal(scale=3.0, size=(2, 5, VOCAB)).astype(np.float32)
    if kind in ("nan", "-nan", "inf"):
        logits[1, 3, 77] = float(kind)
    elif kind == "none":
        logits[1, 3] = -np.inf
    elif kind == "few":
        logits[..., 5:] = -np.inf
    elif kind == "ties":
        logits = np.round(logits)
    else:
        logits = np.where(logits < 0, logits, np.float32(-0.0))
        logits[..., ::2] = np.maximum(logits[..., ::2], np.float32(0.0))
    tokens = np.array([[1, 2, 3, 4, 0]] * 2)
    context = Context.start(logits[:, 0])
    with np.errstate(invalid="ignore"):
        found, wanted = scored(processors.load(*specs), logits, tokens, context, monkeypatch)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_more_survivors_than_there_is_room_for_are_left_to_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_program, "_MOST_SURVIVORS", 40)
    chain = processors.load(TOP_P, XTC)
    logits = np.random.default_rng(0).normal(size=(1, 4, VOCAB)).astype(np.float32)
    program = chain._parts.program
    assert program is not None
    context = Context.start(logits[:, 0])
    passage = program.passage(logits, logits.argmax(-1).astype(np.int32), context)
    assert passage is not None
    for run in passage.behind:
        run.go_on(0, 4, False)
    assert passage.scored(logits.transpose(1, 0, 2), False, 0, 4) is None
    found, wanted = scored(chain, logits, logits.argmax(-1), context, monkeypatch)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_an_illegal_token_is_named_where_a_constraint_comes_before_the_loop() -> None:
    letters = Vocabulary([b"", *(bytes([97 + i]) for i in range(23))], eos=[0])
    chain = processors.load(("regex", {"pattern": "(ab|c)+"}), COOL, tokenizer=letters)
    logits = np.zeros((2, 5, 24), np.float32)
    with pytest.raises(IllegalToken, match=r"Sequence 1, before its position 2: "):
        chain.score(logits, [[1, 2, 3, 0], [3, 2, 1]], Context.start(logits[:, 0], prompt=[[], []]))
    found = chain.score(logits, [[1, 2, 3, 0], [3]], Context.start(logits[:, 0], prompt=[[], []]))
    np.testing.assert_allclose(found[0], -np.log([2, 1, 3, 3, 1]), atol=1e-6)


def test_listed_tokens_beyond_the_logits_are_refused() -> None:
    chain, logits = processors.load(BIAS), np.zeros((1, 4, 700), np.float32)
    with pytest.raises(OptionError, match="800"):
        chain.score(logits, [[1]], Context.start(logits[:, 0]))


def test_float64_goes_without_the_loop() -> None:
    chain = processors.load(COOL)
    logits = np.random.default_rng(0).normal(size=(1, 4, VOCAB))
    found = chain.score(logits, [[1, 2, 3, 4]], Context.start(logits[:, 0]))
    assert found.dtype == np.float64


def test_processors_go_on_where_a_kernel_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __init__(self, work: int) -> None:
            pass

        def score(self, *given: Any) -> int:
            raise KernelFailed("score")

    logits = np.random.default_rng(0).normal(size=(1, 4, VOCAB)).astype(np.float32)
    context, chain = Context.start(logits[:, 0]), processors.load(COOL)
    wanted = chain.score(logits, [[1, 2, 3, 4]], context)
    monkeypatch.setattr(score_program, "host_kernels", Broken)
    np.testing.assert_allclose(chain.score(logits, [[1, 2, 3, 4]], context), wanted, atol=1e-5)
