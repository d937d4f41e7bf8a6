"""The compiled loop over rows gives what the definitions of its operations give.

They are equal to the bit, but for the token at the border of a nucleus.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom.arrays.row_operations import (
    DIVIDE,
    KEEP_HIGHEST,
    KEEP_NEAR_TOP,
    KEEP_NUCLEUS,
    LOWER_BY_COUNT,
    LOWER_SEEN,
    RESCALE_SEEN,
    RowOperation,
)
from logitloom.masks.kernels import load_kernels
from logitloom.testing.row_operations import entered, operated

pytest.importorskip("numba", reason="Numba is not installed")

pytestmark = pytest.mark.extras

ROWS = 3
K = 20
PROGRAMS: dict[str, list[tuple[int, float]]] = {
    "highest": [(KEEP_HIGHEST, K)],
    "warps": [(DIVIDE, 0.7), (KEEP_HIGHEST, K), (KEEP_NUCLEUS, 0.9), (KEEP_NEAR_TOP, -3.0)],
    "late": [(KEEP_NEAR_TOP, -9.0), (DIVIDE, 1.3), (KEEP_HIGHEST, K), (KEEP_HIGHEST, 4)],
    "rescaled": [(RESCALE_SEEN, 1.3), (KEEP_HIGHEST, K)],
    "encouraged": [(RESCALE_SEEN, 0.6), (DIVIDE, 2.0), (KEEP_HIGHEST, K)],
    "lowered": [(LOWER_SEEN, 1.5), (KEEP_HIGHEST, K)],
    "counted": [(LOWER_BY_COUNT, 0.4), (KEEP_HIGHEST, K), (KEEP_NEAR_TOP, -2.0)],
    "several": [(LOWER_BY_COUNT, -0.4), (RESCALE_SEEN, 1.2), (LOWER_SEEN, -2.0), (KEEP_HIGHEST, K)],
}


def lines(kind: str, vocab: int) -> np.ndarray:
    rng = np.random.default_rng(vocab)
    x = rng.normal(scale=3.0, size=(ROWS, vocab)).astype(np.float32)
    if kind == "ties":
        x = np.round(x * 4) / 4
    if kind == "holes":
        x[rng.random(x.shape) < 0.7] = -np.inf
    if kind == "few":
        x[:, 7:] = -np.inf
        x[1] = -np.inf
    if kind == "zeros":
        x = np.where(rng.random(x.shape) < 0.5, x, np.float32(0) * np.sign(x))
        x = np.minimum(x, np.where(rng.random(x.shape) < 30 / vocab, x, -np.abs(x)))
    if kind == "huge":
        x *= 1e37
    return x.astype(np.float32)


def run(
    program: list[tuple[int, float]],
    x: np.ndarray,
    tables: list[np.ndarray],
    width: int,
    tokens: np.ndarray = np.zeros((0, 0), np.int32),  # noqa: B008 - nobody writes to it
) -> Any:
    """Tokens and logits that the loop leaves, as a whole row each; None where it gives up."""
    kernels = load_kernels()
    assert kernels is not None
    before = x.copy()
    kinds = np.array([kind for kind, _ in program])
    operands = np.array([float(value) for _, value in program])
    kinds.flags.writeable = operands.flags.writeable = False
    ids = np.full((len(x), width), 77, dtype=np.int64)
    left = np.full((len(x), width), 77, dtype=np.float32)
    addresses = np.array([table.ctypes.data for table in tables], dtype=np.int64)
    most = kernels.operate(
        x.ctypes.data, *x.shape, K, kinds, operands, addresses, tokens.ctypes.data, tokens.shape[1], ids, left
    )
    np.testing.assert_array_equal(x, before)
    if most < 0:
        return None
    found = np.full(x.shape, -np.inf, dtype=np.float32)
    for line, here, values in zip(found, ids, left, strict=True):
        count = int((here >= 0).sum())
        assert count <= most
        assert (np.diff(here[:count]) > 0).all()
        assert (here[count:] == -1).all()
        assert np.isneginf(values[count:]).all()
        assert (values[:count] > -np.inf).all()
        line[here[:count]] = values[:count]
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("vocab", [90, 1281, 5003, 131_072 // 8])
@pytest.mark.parametrize("kind", ["plain", "ties", "holes", "few", "zeros", "huge"])
def test_it_gives_what_the_definitions_give(name: str, vocab: int, kind: str) -> None:
    x, rng = lines(kind, vocab), np.random.default_rng(1)
    counts = np.where(rng.random(x.shape) < 0.05, rng.integers(1, 4, x.shape), 0).astype(np.float32)
    counts[:, -1] = 2
    program = PROGRAMS[name]
    tables = [counts if kind_ == LOWER_BY_COUNT else counts > 0 for kind_, _ in program if kind_ >= RESCALE_SEEN]
    wanted, at = x, iter(tables)
    with np.errstate(over="ignore", invalid="ignore"):
        for operation in (RowOperation(*each) for each in program):
            wanted = operated(operation, wanted, next(at) if operation.has_table else None)
    found = run(program, x, tables, width=vocab)
    assert found is not None
    if name != "warps":
        np.testing.assert_array_equal(found, wanted)
    else:  # rounding may decide otherwise about a token at the border of a nucleus
        same = (found == wanted) | np.isneginf(found) | np.isneginf(wanted)
        assert same.all()
        assert (np.isneginf(found) != np.isneginf(wanted)).sum() <= 1


@pytest.mark.parametrize("name", ["rescaled", "counted", "several"])
@pytest.mark.parametrize("bad", [0.0, np.nan])
def test_new_tokens_are_entered_first(name: str, bad: float) -> None:
    x, program = lines("plain", 1281), PROGRAMS[name]
    operations = [RowOperation(*each) for each in program if RowOperation(*each).has_table]
    tokens = np.array([[5, 1280, 5, -1], [-1, -1, -1, -1], [0, 1281, 5000, 0]], np.int32)
    tables = [np.zeros(x.shape, np.float32 if each.kind == LOWER_BY_COUNT else np.bool_) for each in operations]
    tables[0][1, 7] = 1
    wanted = [entered(each, table, tokens) for each, table in zip(operations, tables, strict=True)]
    then = run(program, x, wanted, width=200)
    x[1, 3] += bad
    found = run(program, x, tables, width=200, tokens=tokens)
    for table, other in zip(tables, wanted, strict=True):
        np.testing.assert_array_equal(table, other)
    if np.isnan(bad):
        assert found is None
    else:
        np.testing.assert_array_equal(found, then)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
@pytest.mark.parametrize("vocab", [300, 20_000])
def test_what_is_no_number_or_infinite_is_left_to_others(bad: float, vocab: int) -> None:
    x = lines("plain", vocab)
    x[1, 77] = bad
    assert run(PROGRAMS["highest"], x, [], width=100) is None


def test_more_ties_than_there_is_room_for_are_left_to_others() -> None:
    x = np.zeros((2, 20_000), dtype=np.float32)
    assert run(PROGRAMS["highest"], x, [], width=100) is None
    x[:, ::220] = 1.0
    found = run(PROGRAMS["highest"], x, [], width=100)
    assert found is not None
    np.testing.assert_array_equal(found, np.where(x == 1.0, x, -np.inf))
