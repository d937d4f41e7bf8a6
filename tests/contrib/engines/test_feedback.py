"""Processors that must see every step: adapters that keep states take them, the others refuse to bind them."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom import Context, processors
from logitloom.errors import NeedsNotMet
from logitloom_contrib.engines.vllm import to_vllm


def test_vllm_refuses_what_it_could_only_run_wrongly() -> None:
    text = "vLLM may rebuild a row from its tokens.* 'mirostat_v2' must see the logits of every step"
    with pytest.raises(NeedsNotMet, match=text):
        to_vllm(processors.load("mirostat_v2"))


@pytest.mark.extras
def test_no_engine_tells_with_which_probability_it_chose() -> None:
    transformers = pytest.importorskip("logitloom_contrib.engines.transformers", reason="needs transformers")
    chain = processors.load(("mirostat_v2", {"observe": "chosen"}))
    with pytest.raises(
        NeedsNotMet, match="transformers' generate cannot run this chain: 'mirostat_v2' needs chosen_log"
    ):
        transformers.to_transformers(chain)


@pytest.mark.extras
def test_rows_of_transformers_keep_their_states_when_they_move() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    transformers = pytest.importorskip("logitloom_contrib.engines.transformers", reason="needs transformers")
    chain = processors.load(("mirostat_v2", {"tau": 1.5, "eta": 0.9}))
    processor = transformers.to_transformers(chain)
    dice = np.random.default_rng(0)
    rows = [[5], [6]]
    states = []
    context = Context.start(torch.zeros((1, 20)))
    states = [chain.init_state(context) for _ in rows]
    for step in range(6):
        logits = torch.tensor(dice.normal(scale=2.0, size=(2, 20)).astype(np.float32))
        found = processor(torch.tensor(rows), logits)
        for i in range(2):
            given = context.accept([rows[i][-1:]]) if step else context
            expected, states[i] = chain.process(logits[i : i + 1], states[i], given)
            torch.testing.assert_close(found[i : i + 1], expected)
        tokens = found.argmax(-1).tolist()
        rows = [[*rows[1], tokens[1]], [*rows[0], tokens[0]]]  # as beams do
        states.reverse()
