"""Engine adapters treat constraints from elsewhere as the built-ins: the same logits in every call, the same texts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from logitloom_contrib import conformance
from logitloom_contrib.requests.chain_rows import ChainRows, DraftRows
from logitloom_contrib.requests.request import Request
from tests.contrib.engines.conftest import EOS, VOCABULARY, WIDTH, encode
from tests.downstream.pairs import PAIRS, loaded

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")

#: Of these the processors and combinators speak.
LETTERS = np.array(encode("abcxy-"))
NESTED = ("alone", "budget of until", "until of budget")
SUITES = [
    pytest.param(conformance.TestLlamaCpp, id="llama_cpp"),
    pytest.param(conformance.TestOnnxGenAi, id="onnx_genai"),
    pytest.param(conformance.TestSglang, id="sglang"),
    pytest.param(conformance.TestMlxLm, id="mlx_lm", marks=[pytest.mark.mlx, pytest.mark.extras]),
    pytest.param(conformance.TestTransformers, id="transformers", marks=[pytest.mark.torch, pytest.mark.extras]),
    pytest.param(conformance.TestVllm, id="vllm", marks=pytest.mark.torch),
]


def chosen(line: Any, dice: np.random.Generator) -> int:
    """A random token that a row of logits allows, mostly a letter that matters."""
    allowed = np.flatnonzero(np.isfinite(line))
    some = np.intersect1d(allowed, LETTERS)
    return int(dice.choice(some if len(some) else allowed)) if len(allowed) else EOS


def calls(suite: Any, chain: Any, moves: int) -> list[Any]:
    """What an engine gets in a walk in which rows grow, change places and lose drafts."""
    dice, gaps = np.random.default_rng(moves), []
    rows = [encode("hello") for _ in range(suite.rows)]
    call = suite().open(chain)
    for step in range(8):
        found = call([*map(list, rows)], np.zeros((len(rows), WIDTH), np.float32))
        gaps.append(np.array(found))
        for row, line in zip(rows, found, strict=True):
            row.append(chosen(line, dice))
        if "reorder" in suite.moves and step % 3 == 1:
            rows = [list(rows[i]) for i in dice.integers(0, len(rows), len(rows))]
        if "drafts" in suite.moves and step == 5:
            rows = [row[:-2] for row in rows]
    return gaps


@pytest.mark.parametrize("nesting", NESTED)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.long
def test_every_call_of_an_engine_gets_the_logits_of_the_built_in(suite: Any, name: str, nesting: str) -> None:
    try:
        ours, theirs = (calls(suite, chain, 3) for chain in loaded(name, nesting, VOCABULARY))
    finally:
        if suite is conformance.TestSglang:
            from logitloom_contrib.engines import sglang

            sglang.withdraw("conformance")
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert any(np.isneginf(a).any() for a in ours)


class VllmRows:
    """Requests of vLLM that share a chain, in a walk in which they join, rest, come back, and propose drafts."""

    def __init__(self, chain: Any) -> None:
        self.rows, self.prompt = ChainRows(chain, 64), encode("hello")
        self.requests: list[Any] = []

    def join(self) -> None:
        compiled: Any = SimpleNamespace(key="key", chain=self.rows.chain)
        params = SimpleNamespace(seed=1, max_tokens=30)
        self.requests.append(Request(compiled, self.prompt, [], params, (EOS,), 64))

    def step(self, present: list[int], drafts: list[list[int]] | None = None) -> Any:
        requests = [self.requests[i] for i in present]
        absent = [request for request in self.requests if request not in requests]
        drafts = drafts or [[] for _ in requests]
        owner = [i for i, draft in enumerate(drafts) for _ in range(1 + len(draft))]
        places = [n for draft in drafts for n in range(1 + len(draft))]
        blank = np.zeros((len(owner), WIDTH), np.float32)
        self.rows.settle(requests, blank, absent=absent)

        def tokens(some: Any) -> list[list[int]]:
            return [[*requests[owner[row]].pending(), *drafts[owner[row]][: places[row]]] for row in some]

        given = DraftRows(owner, [place > 0 for place in places], tokens) if any(drafts) else None
        out = self.rows.process(blank, lambda: np.zeros_like(blank), True, given)
        if given is not None:
            for request in requests:
                request.advance(request.pending())
        return np.array(out)


@pytest.mark.parametrize("nesting", NESTED)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.long
def test_rows_of_vllm_are_those_of_the_built_in(name: str, nesting: str) -> None:
    walks = [VllmRows(chain) for chain in loaded(name, nesting, VOCABULARY)]
    dice = np.random.default_rng(2)
    restricted = False
    for step in range(9):
        if step in (0, 1, 4):
            for walk in walks:
                walk.join()
        present = [*dice.permutation(len(walks[0].requests)).tolist()][: 1 if step == 6 else 4]
        drafts = [encode("ab")[: int(dice.integers(0, 3))] for _ in present] if step % 3 == 2 else None
        made = [walk.step(present, drafts) for walk in walks]
        assert np.array_equal(*made)
        restricted = restricted or bool(np.isneginf(made[0]).any())
        at = np.cumsum([0, *(1 + len(draft) for draft in drafts or [[] for _ in present])])
        for place, number in enumerate(present):
            token = chosen(made[0][at[place]], dice)
            for walk in walks:
                walk.requests[number].output.append(token)
        assert [r.failure for r in walks[0].requests] == [r.failure for r in walks[1].requests]
    assert restricted


@pytest.mark.extras
@pytest.mark.torch
@pytest.mark.parametrize(("name", "mode"), [*((name, "greedy") for name in PAIRS), ("regex", "beams")])
def test_texts_inside_transformers_are_those_of_the_built_in(name: str, mode: str, tiny_transformers: Any) -> None:
    import torch

    from logitloom_contrib.engines.transformers import to_transformers

    model, texts = tiny_transformers(), []
    prompts = torch.tensor([encode("hello"), encode("a dog")])
    beams = {"num_beams": 3, "num_return_sequences": 3} if mode == "beams" else {}
    for chain in loaded(name, "alone", VOCABULARY):
        processor = to_transformers(chain, model)
        out = model.generate(
            prompts, attention_mask=torch.ones_like(prompts), do_sample=False, max_new_tokens=6,
            logits_processor=processor, **beams,
        )  # fmt: skip
        texts.append((out.tolist(), processor.texts(out, prompts.shape[1])))
    assert texts[0] == texts[1]


@pytest.mark.extras
@pytest.mark.mlx
@pytest.mark.parametrize("name", PAIRS)
def test_texts_inside_mlx_lm_are_those_of_the_built_in(name: str, tiny_mlx: Any) -> None:
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    from logitloom_contrib.engines.mlx_lm import to_mlx_lm

    model, texts = tiny_mlx(), []
    for chain in loaded(name, "alone", VOCABULARY):
        processor, tokens = to_mlx_lm(chain), []
        for token, _ in generate_step(mx.array(encode("hello")), model, max_tokens=10, logits_processors=[processor]):
            tokens.append(int(token))
            if tokens[-1] == EOS:
                break
        texts.append(tokens)
    assert texts[0] == texts[1]
