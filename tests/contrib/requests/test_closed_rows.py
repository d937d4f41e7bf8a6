"""Rows that allow no token are found, whatever is known of the masks that were applied to them."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom.arrays.backend import NEG_INF
from logitloom_contrib.requests.chain_rows import closed_rows

WIDTH = 3000


@pytest.mark.parametrize("known", [True, False], ids=["masks known", "masks unknown"])
def test_closed_rows_are_those_without_a_finite_logit(known: bool) -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(40, WIDTH)).astype(np.float32)
    masks = []
    for row in range(len(logits)):
        # Ids of any part of the vocabulary, all of which the engine may have forbidden before; none now and then.
        ids = np.arange(rng.integers(WIDTH), WIDTH)[: rng.integers(1, 30) if row % 10 else 0]
        allows = row % 4 != 3
        forbidden = np.isin(np.arange(WIDTH), ids, invert=allows)
        if row % 3 == 0:
            forbidden[ids] = True
        logits[row, forbidden] = NEG_INF
        masks.append((allows, ids))
    wanted = [row for row, values in enumerate(logits) if not np.isfinite(values).any()]
    assert 0 < len(wanted) < len(logits)
    assert closed_rows(logits, masks if known else None) == wanted
