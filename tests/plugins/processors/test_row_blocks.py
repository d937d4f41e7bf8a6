"""Truncations that take many rows in blocks: every row as it is alone, with uneven blocks and with donation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, processors
from logitloom_plugins.processors import _row_blocks

VOCAB = 40
CHAINS = {
    "typical_p": {"p": 0.6},
    "eta_cutoff": {"epsilon": 0.02},
    "epsilon_cutoff": {"epsilon": 0.02},
    "p_less": {},
    "top_a": {"a": 0.5},
    "top_n_sigma": {"n": 1.0},
}


def test_every_truncation_that_takes_blocks_is_tried() -> None:
    folder = Path(_row_blocks.__file__).parent
    assert {path.stem for path in folder.glob("*.py") if "import fill_forbidden" in path.read_text()} == set(CHAINS)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("donate", [False, True])
def test_blocks_of_rows_change_nothing(
    backend: Backend, name: str, donate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks: list[int] = []
    chain = processors.load((name, CHAINS[name]))
    kind = type(chain[name])
    find = kind._forbidden

    def seen(processor: Any, rows: Any, library: Backend) -> Any:
        blocks.append(len(rows))
        return find(processor, rows, library)

    monkeypatch.setattr(kind, "_forbidden", seen)
    logits = np.random.default_rng(7).normal(scale=3, size=(7, VOCAB)).astype(np.float32)
    logits[3] = -np.inf
    logits[3, 5] = 0.0

    def processed(rows: np.ndarray) -> np.ndarray:
        native = backend.asarray(rows.copy())
        context = Context.start(native, donate=donate)
        return backend.to_numpy(chain.process(native, chain.init_state(context), context)[0]).copy()

    alone = np.concatenate([processed(logits[i : i + 1]) for i in range(7)])
    blocks.clear()
    monkeypatch.setattr(_row_blocks, "_BLOCK", 3 * VOCAB)
    found = processed(logits)
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(alone))
    np.testing.assert_array_equal(found, alone)
    if backend.on_host:
        assert blocks == [3, 3, 1]
    else:
        # A library that compiles the step may have it from an earlier case.
        assert set(blocks) <= {7}
