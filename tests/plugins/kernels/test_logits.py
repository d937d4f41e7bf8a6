"""Compiled loops over logits give what NumPy gives, also for ties, forbidden tokens, infinities and flat rows."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom.masks.kernels import load_kernels
from logitloom_plugins.backends import _highest_logits as _survivors
from logitloom_plugins.backends import _log_probability, _nucleus

pytest.importorskip("numba", reason="Numba is not installed")

pytestmark = pytest.mark.extras

VOCAB = 5000


def rows(kind: str) -> np.ndarray:
    """``[6, VOCAB] float32``."""
    x = np.random.default_rng(3).normal(scale=3.0, size=(6, VOCAB)).astype(np.float32)
    if kind == "ties":
        x = np.round(x)
    if kind == "holes":
        x[np.random.default_rng(4).random(x.shape) < 0.7] = -np.inf
    if kind == "edges":
        x[0] = 0.25  # flat
        x[1] = -np.inf
        x[2], x[2, 7] = -np.inf, 3.0
        x[3, 5] = 1e38
        x[4] *= 1e30
        x[5] = np.linspace(-1e-6, 0, VOCAB)
    return x


@pytest.fixture(params=["plain", "ties", "holes", "edges"])
def x(request: pytest.FixtureRequest) -> np.ndarray:
    assert load_kernels() is not None
    return rows(request.param)


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_log_probability, _nucleus, _survivors):
        monkeypatch.setattr(module, "host_kernels", lambda work=0: None)


def test_log_probabilities_are_those_of_double_precision(x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    index = np.tile(np.array([[0, 7, 4999]]), (len(x), 1))
    found = _log_probability.log_probability(x, index)
    wide = x.astype(np.float64)
    top = np.maximum(wide.max(-1, keepdims=True), -1e300)
    total = np.log(np.maximum(np.exp(wide - top).sum(-1, keepdims=True), 1))
    wanted = np.take_along_axis(wide, index, -1) - top - total
    np.testing.assert_allclose(found, wanted, atol=4e-6, rtol=1e-6)
    without(monkeypatch)
    np.testing.assert_allclose(found, _log_probability.log_probability(x, index), atol=4e-6, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_left_to_numpy(bad: float) -> None:
    x = rows("plain")
    x[2, 9] = bad
    with np.errstate(invalid="ignore"):
        found = _log_probability.log_probability(x, np.zeros((len(x), 1), dtype=np.int64))
    assert np.isnan(found[2]).all()
    assert np.isfinite(np.delete(found, 2, 0)).all()
    assert _nucleus.nucleus_threshold(x, 0.9)[2] == -np.inf


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 0.999, 1.0])
def test_the_border_of_the_nucleus_is_where_double_precision_has_it(x: np.ndarray, p: float) -> None:
    found = _nucleus.nucleus_threshold(x, p)[:, 0]
    for line, border in zip(x, found, strict=True):
        if not np.isfinite(line.max()):
            assert border == -np.inf
            continue
        assert border in line[line > -np.inf]
        descending = np.sort(line[line > -np.inf].astype(np.float64))[::-1]
        e = np.exp(descending - descending[0])
        before = (np.cumsum(e) - e) / e.sum()
        kept, dropped = before[descending >= border], before[descending < border]
        # The first of the tokens that equal the border has less than p before it, the one below has p; at 1 rounding
        # may lose the last tokens.
        assert before[descending == border][0] < p + 1e-5 or len(kept) == (descending == descending[0]).sum()
        assert not len(dropped) or dropped[0] > p - 1e-5


@pytest.mark.parametrize("highest", [1, 20, 50])
def test_the_same_survivors_are_found(x: np.ndarray, highest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _survivors.survivors(x, highest)
    without(monkeypatch)
    wanted = _survivors.survivors(x, highest)
    assert (found is None) == (wanted is None)
    if found is not None and wanted is not None:
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one[one >= 0], other[other >= 0])


def test_more_survivors_than_expected_are_found_by_numpy() -> None:
    x = np.zeros((3, VOCAB), dtype=np.float32)
    tied = np.sort(np.random.default_rng(0).choice(VOCAB, 500, replace=False))
    x[:, tied] = 1.0
    found = _survivors.survivors(x, 20)
    assert found is not None
    assert (found == tied).all()
