"""Every named operation of every backend against a plain oracle, and against the agnostic version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from logitloom import load_backend
from logitloom.backend import Array, Backend, library_of

Host = NDArray[Any]
INF = float("inf")
DTYPES = ("float32", "float16", "bfloat16")
TOLERANCE = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
VOCAB = 70


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest, backend: Backend) -> str:
    """Each floating dtype that the library has."""
    if request.param == "bfloat16" and not hasattr(backend.xp, "bfloat16"):
        pytest.skip(f"{backend.name} has no bfloat16")
    return str(request.param)


@pytest.fixture(params=[0, 1, 4], ids=lambda n: f"batch{n}")
def logits(request: pytest.FixtureRequest) -> Host:
    """Logits on the host: many ties, some -inf, and, with more than one row, a row of nothing else."""
    return sample(request.param)


def sample(batch: int, seed: int = 0) -> Host:
    rng = np.random.default_rng(seed)
    x = (np.round(rng.normal(size=(batch, VOCAB)) * 4) / 2).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = -INF
    x[:, ::13] = -0.0
    if batch > 1:
        x[1] = -INF
    return x


def exact(backend: Backend, host: Host, dtype: str) -> tuple[Array, Host]:
    """The array, and its values as the dtype holds them, in double precision."""
    array = backend.asarray(host, dtype)
    return array, np.array(backend.to_numpy(array), dtype=np.float64)


def unchanged(backend: Backend, operation: Callable[[Array], Array], array: Array) -> Array:
    """The result of an operation without donation, after checking that the array stayed what it was."""
    before = np.array(backend.to_numpy(array))
    result = operation(array)
    np.testing.assert_array_equal(np.array(backend.to_numpy(array)), before)
    assert library_of(result) == backend.name
    assert result.dtype == array.dtype
    assert backend.device_of(result) == backend.device_of(array)
    return result


def agree(backend: Backend, result: Array, expected: Host, dtype: str) -> None:
    got = np.array(backend.to_numpy(result), dtype=np.float64)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def softmax(x: Host) -> Host:
    out = np.zeros_like(x)
    for row, line in enumerate(x):
        if line.max() > -INF:
            e = np.exp(line - line.max())
            out[row] = e / e.sum()
    return out


def order_of(line: Host) -> list[int]:
    return sorted(range(len(line)), key=lambda i: (-line[i], i))


# -- arithmetic -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-INF, 0.0, 1.5])
def test_masked_fill_writes_where_the_mask_is_true(backend: Backend, logits: Host, dtype: str, value: float) -> None:
    x, plain = exact(backend, logits, dtype)
    mask = np.random.default_rng(1).random(logits.shape) < 0.5
    result = unchanged(backend, lambda a: backend.masked_fill(a, backend.asarray(mask), value), x)
    agree(backend, result, np.where(mask, value, plain), dtype)


def test_masked_fill_broadcasts_the_mask(backend: Backend, to_backend: Callable[..., Any]) -> None:
    x, row = sample(4), np.arange(VOCAB) % 3 == 0
    for mask in (row[None], np.asarray([[True], [False], [True], [False]])):
        result = backend.masked_fill(to_backend(x), to_backend(mask), 7.0)
        np.testing.assert_array_equal(backend.to_numpy(result), np.where(mask, np.float32(7), x))


def test_scale_divide_and_add_keep_the_dtype(backend: Backend, logits: Host, dtype: str) -> None:
    x, plain = exact(backend, logits, dtype)
    agree(backend, unchanged(backend, lambda a: backend.scale(a, 0.7), x), plain * 0.7, dtype)
    agree(backend, unchanged(backend, lambda a: backend.divide(a, 0.7), x), plain / 0.7, dtype)
    other = np.random.default_rng(2).normal(size=logits.shape).astype(np.float32)
    agree(backend, unchanged(backend, lambda a: backend.add(a, backend.asarray(other)), x), plain + other, dtype)


def test_softmax_is_float32_and_a_dead_row_is_zero(backend: Backend, logits: Host, dtype: str) -> None:
    x, plain = exact(backend, logits, dtype)
    result = backend.softmax(x)
    assert result.dtype == backend.xp.float32
    agree(backend, result, softmax(plain), "float32")


def test_log_softmax_is_float32_and_a_dead_row_stays_dead(backend: Backend, logits: Host, dtype: str) -> None:
    x, plain = exact(backend, logits, dtype)
    result = backend.log_softmax(x)
    assert result.dtype == backend.xp.float32
    with np.errstate(divide="ignore"):
        agree(backend, result, np.log(softmax(plain)), "float32")


def test_probabilities_survive_large_logits(backend: Backend, to_backend: Callable[..., Any]) -> None:
    x = to_backend(np.asarray([[1e38, 1e38, -1e38], [-1e38, -INF, -1e38]], dtype=np.float32))
    np.testing.assert_allclose(backend.to_numpy(backend.softmax(x)), [[0.5, 0.5, 0], [0.5, 0, 0.5]])


# -- order ------------------------------------------------------------------------------------------


def test_sorting_is_stable_and_largest_first(backend: Backend, logits: Host, dtype: str) -> None:
    x, plain = exact(backend, logits, dtype)
    orders = np.asarray([order_of(line) for line in plain], dtype=np.int64).reshape(plain.shape)
    np.testing.assert_array_equal(backend.to_numpy(backend.argsort_descending(x)), orders)
    values = unchanged(backend, backend.sort_descending, x)
    np.testing.assert_array_equal(backend.to_numpy(values), -np.sort(-plain, axis=-1))


@pytest.mark.parametrize("k", [1, 2, 7, 35, VOCAB])
def test_kth_largest_counts_ties(backend: Backend, logits: Host, dtype: str, k: int) -> None:
    x, plain = exact(backend, logits, dtype)
    result = unchanged(backend, lambda a: backend.kth_largest(a, k), x)
    np.testing.assert_array_equal(backend.to_numpy(result), -np.sort(-plain, axis=-1)[:, k - 1 : k])


@pytest.mark.parametrize("k", [1, 2, 7, 35, VOCAB])
def test_top_k_prefers_the_lower_index(backend: Backend, logits: Host, dtype: str, k: int) -> None:
    x, plain = exact(backend, logits, dtype)
    values, index = backend.top_k(x, k)
    assert values.dtype == x.dtype
    orders = np.asarray([order_of(line)[:k] for line in plain], dtype=np.int64).reshape(len(plain), k)
    np.testing.assert_array_equal(backend.to_numpy(index), orders)
    np.testing.assert_array_equal(backend.to_numpy(values), np.take_along_axis(plain, orders, axis=-1))
    assert np.asarray(backend.to_numpy(index)).dtype.kind == "i"


def test_top_k_of_a_wide_row_of_equal_values_takes_the_first(backend: Backend, to_backend: Callable[..., Any]) -> None:
    x = np.zeros((2, 5000), dtype=np.float32)
    x[1, ::7] = 1.0
    _, index = backend.top_k(to_backend(x), 40)
    np.testing.assert_array_equal(backend.to_numpy(index), [np.arange(40), np.arange(40) * 7])


# -- movement ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [[], [0], [3, 0, 0, 2]], ids=str)
def test_take_rows_takes_host_and_native_indices(backend: Backend, dtype: str, index: list[int]) -> None:
    x, plain = exact(backend, sample(4), dtype)
    for given_index in (index, np.asarray(index, np.int32), backend.asarray(np.asarray(index, np.int32))):
        result = unchanged(backend, lambda a, i=given_index: backend.take_rows(a, i), x)
        np.testing.assert_array_equal(backend.to_numpy(result), plain[np.asarray(index, np.int64)])


@pytest.mark.parametrize("kind", ["int32", "bool"])
def test_rows_of_other_dtypes_move_as_well(backend: Backend, kind: str) -> None:
    host = np.arange(12).reshape(4, 3).astype(kind)
    x = backend.asarray(host)
    joined = backend.concat_rows([x, backend.take_rows(x, [2])])
    assert joined.dtype == x.dtype
    np.testing.assert_array_equal(backend.to_numpy(joined), np.concatenate([host, host[[2]]]))


def test_gather_takes_any_integer_index(backend: Backend, logits: Host, dtype: str) -> None:
    x, plain = exact(backend, logits, dtype)
    index = np.random.default_rng(3).integers(0, VOCAB, (len(logits), 5))
    for kind in (np.int32, np.int64):
        result = unchanged(backend, lambda a, k=kind: backend.gather(a, backend.asarray(index.astype(k))), x)
        np.testing.assert_array_equal(backend.to_numpy(result), np.take_along_axis(plain, index, axis=-1))


# -- scattered writes -------------------------------------------------------------------------------

TOKENS = {
    "nothing": np.full((3, 2), -1),
    "no columns": np.zeros((3, 0)),
    "one": np.asarray([[5], [-1], [0]]),
    "all valid": np.asarray([[5, 9], [0, 69], [1, 0]]),
    "ragged": np.asarray([[-1, 3, 9, -1], [-1, -1, -1, -1], [0, -1, -1, 69]]),
    "token 0 beside nothing": np.asarray([[0, -1], [-1, 0], [-1, -1]]),
    "duplicates": np.asarray([[4, 4, 4, -1], [0, 0, -1, 0], [69, 1, 69, 1]]),
    "outside": np.asarray([[70, 3], [-100, 1000], [69, 70]]),
}


def add_oracle(x: Host, tokens: Host, value: float) -> Host:
    out = x.copy()
    for row, line in enumerate(tokens):
        for token in line:
            if 0 <= token < x.shape[1]:
                out[row, token] += value
    return out


def set_oracle(x: Host, tokens: Host, values: Host) -> Host:
    out = x.copy()
    for row, line in enumerate(tokens):
        for place, token in enumerate(line):
            if 0 <= token < x.shape[1]:
                out[row, token] = values[row, place]
    return out


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize("integer", ["int32", "int64"])
def test_add_at_counts_every_occurrence(backend: Backend, dtype: str, kind: str, integer: str) -> None:
    x, plain = exact(backend, sample(3), dtype)
    tokens = TOKENS[kind].astype(integer)
    result = unchanged(backend, lambda a: backend.add_at(a, backend.asarray(tokens), -1.5), x)
    agree(backend, result, add_oracle(plain, tokens, -1.5), dtype)


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize("value", [-INF, 2.0])
def test_set_at_skips_what_is_no_token(backend: Backend, dtype: str, kind: str, value: float) -> None:
    x, plain = exact(backend, sample(3), dtype)
    tokens = TOKENS[kind].astype(np.int32)
    result = unchanged(backend, lambda a: backend.set_at(a, backend.asarray(tokens), value), x)
    np.testing.assert_array_equal(backend.to_numpy(result), set_oracle(plain, tokens, np.full(tokens.shape, value)))


def test_fill_columns_touches_these_columns_and_no_others(backend: Backend, dtype: str, logits: Host) -> None:
    x, host = exact(backend, logits, dtype)
    columns = backend.asarray(np.array([2, 40, VOCAB - 1], dtype=np.int32))
    host[:, [2, 40, VOCAB - 1]] = 7.0
    result = unchanged(backend, lambda a: backend.fill_columns(a, columns, 7.0), x)
    np.testing.assert_array_equal(backend.to_numpy(result), host)


def test_set_at_marks_seen_tokens(backend: Backend, to_backend: Callable[..., Any]) -> None:
    for kind in TOKENS:
        tokens = TOKENS[kind].astype(np.int32)
        seen = backend.set_at(to_backend(np.zeros((3, VOCAB), dtype=bool)), to_backend(tokens), True)
        assert seen.dtype == backend.xp.bool
        expected = set_oracle(np.zeros((3, VOCAB), dtype=bool), tokens, np.ones(tokens.shape, dtype=bool))
        np.testing.assert_array_equal(backend.to_numpy(seen), expected)


@pytest.mark.parametrize("kind", sorted(set(TOKENS) - {"duplicates"}))
@pytest.mark.parametrize("integer", ["int32", "int64"])
def test_write_at_writes_histories_and_logits(backend: Backend, dtype: str, kind: str, integer: str) -> None:
    index = TOKENS[kind].astype(np.int32)
    values = np.random.default_rng(4).integers(-9, 9, index.shape)
    history = np.full((3, VOCAB), -1, dtype=np.int32)
    result = unchanged(
        backend,
        lambda a: backend.write_at(a, backend.asarray(index), backend.asarray(values.astype(integer))),
        backend.asarray(history),
    )
    np.testing.assert_array_equal(backend.to_numpy(result), set_oracle(history, index, values))
    x, plain = exact(backend, sample(3), dtype)
    written = backend.write_at(x, backend.asarray(index), backend.asarray(values.astype(np.float32)))
    assert written.dtype == x.dtype
    np.testing.assert_array_equal(backend.to_numpy(written), set_oracle(plain, index, values))


@given(data=st.data())
def test_scattered_writes_equal_a_loop_over_tokens(backend: Backend, data: st.DataObject) -> None:
    line = st.lists(st.integers(-2, VOCAB + 1), min_size=6, max_size=6)
    tokens = np.asarray(data.draw(st.lists(line, min_size=3, max_size=3)), dtype=np.int32)
    host = sample(3, data.draw(st.integers(0, 99)))
    x, native = backend.asarray(host), backend.asarray(tokens)
    agree(backend, backend.add_at(x, native, 0.5), add_oracle(host, tokens, 0.5).astype(np.float64), "float32")
    np.testing.assert_array_equal(
        backend.to_numpy(backend.set_at(x, native, -INF)), set_oracle(host, tokens, np.full(tokens.shape, -INF))
    )
    # For distinct places the value may differ: a permutation of the columns, some of them blanked.
    places = np.argsort(np.random.default_rng(int(tokens.sum()) % 97).random((3, VOCAB)), axis=1)[:, :6]
    places = np.where((tokens < 0) | (tokens >= VOCAB), tokens, places).astype(np.int32)
    values = np.arange(18, dtype=np.float32).reshape(3, 6)
    np.testing.assert_array_equal(
        backend.to_numpy(backend.write_at(x, backend.asarray(places), backend.asarray(values))),
        set_oracle(host, places, values),
    )


@pytest.mark.parametrize("batch", [0, 1])
def test_scattered_writes_take_empty_and_single_batches(backend: Backend, batch: int) -> None:
    x, tokens = sample(batch), np.full((batch, 3), 2, dtype=np.int32)
    values = np.full((batch, 3), 7, dtype=np.float32)
    a, t = backend.asarray(x), backend.asarray(tokens)
    np.testing.assert_array_equal(backend.to_numpy(backend.add_at(a, t, 1.0)), add_oracle(x, tokens, 1.0))
    np.testing.assert_array_equal(backend.to_numpy(backend.set_at(a, t, 7.0)), set_oracle(x, tokens, values))
    np.testing.assert_array_equal(
        backend.to_numpy(backend.write_at(a, t, backend.asarray(values))), set_oracle(x, tokens, values)
    )


# -- token masks ------------------------------------------------------------------------------------


def pack(allowed: Host) -> Host:
    """Bits of allowed tokens in 32-bit words, with set padding bits, which must not matter."""
    batch, vocab = allowed.shape
    words = -(-vocab // 32)
    out = np.zeros((batch, words), dtype=np.uint32)
    for row in range(batch):
        for i in range(words * 32):
            if i >= vocab or allowed[row, i]:
                out[row, i // 32] |= np.uint32(1) << np.uint32(i % 32)
    return out.view(np.int32)


@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 64, VOCAB])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_token_masks_of_any_width(backend: Backend, dtype: str, vocab: int, batch: int) -> None:
    rng = np.random.default_rng(vocab)
    x, plain = exact(backend, rng.normal(size=(batch, vocab)).astype(np.float32), dtype)
    allowed = rng.random((batch, vocab)) < 0.5
    bits = backend.asarray(pack(allowed))
    result = unchanged(backend, lambda a: backend.apply_token_mask(a, bits), x)
    np.testing.assert_array_equal(backend.to_numpy(result), np.where(allowed, plain, -INF))


# -- donation, compilation, the agnostic version ---------------------------------------------------------

TOKEN_ROWS = np.asarray([[3, -1, 3], [-1, -1, -1], [0, 69, 71]], dtype=np.int32)
PLACES = np.asarray([[3, -1, 4], [-1, -1, -1], [0, 69, 71]], dtype=np.int32)
MASK = np.random.default_rng(5).random((3, VOCAB)) < 0.4
OTHER, BITS = sample(3, 9), pack(MASK)
VALUES = np.arange(9, dtype=np.float32).reshape(3, 3)

#: Operations that may be given their first argument, as functions of (backend, upload, x, donate).
DONATING: dict[str, Callable[..., Array]] = {
    "masked_fill": lambda b, up, x, donate: b.masked_fill(x, up(MASK), -INF, donate),
    "scale": lambda b, up, x, donate: b.scale(x, 0.5, donate),
    "divide": lambda b, up, x, donate: b.divide(x, 0.5, donate),
    "add": lambda b, up, x, donate: b.add(x, up(OTHER), donate),
    "add_at": lambda b, up, x, donate: b.add_at(x, up(TOKEN_ROWS), 1.0, donate),
    "fill_columns": lambda b, up, x, donate: b.fill_columns(x, up(np.array([0, 3, VOCAB - 1], np.int32)), -INF, donate),
    "set_at": lambda b, up, x, donate: b.set_at(x, up(TOKEN_ROWS), -INF, donate),
    "write_at": lambda b, up, x, donate: b.write_at(x, up(PLACES), up(VALUES), donate),
    "apply_token_mask": lambda b, up, x, donate: b.apply_token_mask(x, up(BITS), donate),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "softmax": lambda b, up, x: b.softmax(x),
    "log_softmax": lambda b, up, x: b.log_softmax(x),
    "sort_descending": lambda b, up, x: b.sort_descending(x),
    "argsort_descending": lambda b, up, x: b.argsort_descending(x),
    "kth_largest": lambda b, up, x: b.kth_largest(x, 5),
    "top_k": lambda b, up, x: b.top_k(x, 5),
    "take_rows": lambda b, up, x: b.take_rows(x, up(np.asarray([2, 0, 0], dtype=np.int32))),
    "concat_rows": lambda b, up, x: b.concat_rows([x, x]),
    "gather": lambda b, up, x: b.gather(x, up(np.asarray([[0, 5], [69, 1], [2, 2]], dtype=np.int32))),
}
ALL = {**{name: (lambda b, up, x, f=f: f(b, up, x, False)) for name, f in DONATING.items()}, **OTHERS}


class Agnostic(Backend):
    """Another backend's namespace and placement with none of its native operations."""

    def __init__(self, native: Backend) -> None:
        super().__init__(native.device)
        self.native, self.name, self.xp = native, native.name, native.xp

    def asarray(self, host: Any, dtype: str | None = None) -> Array:
        return self.native.asarray(host, dtype)

    def to_numpy(self, array: Array) -> Host:
        return self.native.to_numpy(array)


def downloaded(backend: Backend, result: Any) -> list[Host]:
    parts = result if isinstance(result, (tuple, list)) else [result]
    return [np.array(backend.to_numpy(part)) for part in parts]


@pytest.mark.parametrize("operation", DONATING)
def test_donation_changes_no_value(backend: Backend, dtype: str, operation: str) -> None:
    x, _ = exact(backend, sample(3), dtype)
    kept = DONATING[operation](backend, backend.asarray, x, False)
    expected = np.array(backend.to_numpy(kept))
    given_up = DONATING[operation](backend, backend.asarray, backend.asarray(sample(3), dtype), True)
    assert given_up.dtype == x.dtype
    np.testing.assert_array_equal(backend.to_numpy(given_up), expected)


@pytest.mark.parametrize("operation", ALL)
def test_native_equals_agnostic(backend: Backend, dtype: str, operation: str) -> None:
    x, _ = exact(backend, sample(3), dtype)
    native = downloaded(backend, ALL[operation](backend, backend.asarray, x))
    plain = downloaded(backend, ALL[operation](Agnostic(backend), backend.asarray, x))
    for one, other in zip(native, plain, strict=True):
        np.testing.assert_allclose(
            one.astype(np.float64), other.astype(np.float64), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
        )


@pytest.mark.parametrize("operation", ALL)
def test_every_backend_equals_numpy(backend: Backend, operation: str) -> None:
    reference = load_backend("numpy")
    expected = downloaded(reference, ALL[operation](reference, reference.asarray, sample(3)))
    got = downloaded(backend, ALL[operation](backend, backend.asarray, backend.asarray(sample(3))))
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def compiler_of(backend: Backend) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    if backend.name == "torch":
        # One graph without breaks is what matters here; making machine code of each would take minutes.
        import torch

        torch.compiler.reset()  # each test compiles other operations under one function's name
        return lambda function: torch.compile(function, fullgraph=True, backend="aot_eager")
    return backend.compile


@pytest.mark.parametrize("operation", ALL)
def test_compiled_equals_eager(backend: Backend, operation: str) -> None:
    uploads: list[Array] = []

    def remember(host: Host) -> Array:
        uploads.append(backend.asarray(host))
        return uploads[-1]

    x = backend.asarray(sample(3))
    eager = downloaded(backend, ALL[operation](backend, remember, x))

    def step(x: Array, *tables: Array) -> Any:
        placed = iter(tables)
        return ALL[operation](backend, lambda host: next(placed), x)

    compiled = downloaded(backend, compiler_of(backend)(step)(x, *uploads))
    for one, other in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("operation", DONATING)
def test_compiled_donation_equals_eager(backend: Backend, operation: str) -> None:
    x = backend.asarray(sample(3))
    expected = np.array(backend.to_numpy(DONATING[operation](backend, backend.asarray, x, False)))
    uploads: list[Array] = []
    DONATING[operation](backend, lambda host: uploads.append(backend.asarray(host)) or uploads[-1], x, False)

    def step(x: Array, *tables: Array) -> Array:
        placed = iter(tables)
        fresh = backend.scale(x, 1.0)
        return DONATING[operation](backend, lambda host: next(placed), fresh, True)

    compiled = compiler_of(backend)(step)(x, *uploads)
    np.testing.assert_allclose(backend.to_numpy(compiled), expected, rtol=1e-6)
    np.testing.assert_array_equal(backend.to_numpy(x), sample(3))
