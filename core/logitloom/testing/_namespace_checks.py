"""What each function of an array library's namespace, and each operator of its arrays, must give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import Array, Backend

__all__ = ["FUNCTION_CHECKS", "OPERATOR_CHECKS"]

Host = NDArray[Any]
#: The beginning of a message, the result, and the expected result, whose int64 stands for any signed integer dtype.
Compared = Iterator[tuple[str, Array, Any]]
INF = float("inf")

_dice = np.random.default_rng(11)
X = (np.round(_dice.normal(size=(3, 6)) * 4) / 2).astype(np.float32)
X[0, 2:4] = -INF
X[1] = -INF
Y = np.round(_dice.normal(size=(3, 6)) * 4).astype(np.float32) / 4
FINITE = np.where(np.isfinite(X), X, np.float32(-3.5))
I = _dice.integers(-5, 9, size=(3, 6)).astype(np.int32)  # noqa: E741 - an array of integers, as in the table
J = _dice.integers(-(2**31), 2**31 - 1, size=(3, 6), dtype=np.int32)
M = _dice.random((3, 6)) < 0.5
M[2] = True
DEEP = _dice.normal(size=(2, 3, 4, 5)).astype(np.float32)
EMPTY = np.zeros((0, 6), dtype=np.float32)

#: Dtypes of logits; a library may lack the half types.
FLOATS = ("float32", "float16", "bfloat16")


def _float_dtypes(b: Backend) -> list[str]:
    return [name for name in FLOATS if hasattr(b.xp, name)]


def _rounded(b: Backend, host: Host, dtype: str) -> Host:
    """The values rounded to a dtype: a float16 array for float16, so that the dtype is compared; else float32."""
    return np.array(b.to_numpy(b.asarray(host, dtype)))


def _unary(name: str, host: Host, function: Callable[[Host], Host]) -> Callable[[Backend], Compared]:
    def check(b: Backend) -> Compared:
        with np.errstate(divide="ignore"):
            yield name, getattr(b.xp, name)(b.asarray(host)), function(host)

    return check


def _reduction(name: str, function: Callable[..., Host]) -> Callable[[Backend], Compared]:
    def check(b: Backend) -> Compared:
        call = getattr(b.xp, name)
        for dtype in _float_dtypes(b):
            host = _rounded(b, FINITE if name in ("sum", "mean") else X, dtype)
            for keep in (False, True):
                found = call(b.asarray(host, dtype), axis=-1, keepdims=keep)
                yield f"{name}({dtype}, axis=-1, keepdims={keep})", found, function(host, axis=-1, keepdims=keep)
        found = call(b.asarray(EMPTY), axis=-1, keepdims=True)
        yield f"{name} of no rows", found, np.zeros((0, 1), np.float32)

    return check


def _integer_reduction(name: str, function: Callable[..., Host]) -> Callable[[Backend], Compared]:
    floating = _reduction(name, function)

    def check(b: Backend) -> Compared:
        yield from floating(b)
        call = getattr(b.xp, name)
        for keep in (False, True):
            found = call(b.asarray(I), axis=1, keepdims=keep)
            yield f"{name}(i, axis=1, keepdims={keep})", found, function(I.astype(np.int64), axis=1, keepdims=keep)

    return check


def _least(b: Backend) -> Compared:
    yield from _integer_reduction("min", np.min)(b)
    yield "min(x)", b.xp.min(b.asarray(FINITE)), np.min(FINITE)


def _pairwise(name: str, function: Callable[..., Host]) -> Callable[[Backend], Compared]:
    def check(b: Backend) -> Compared:
        call = getattr(b.xp, name)
        yield f"{name}(x, y)", call(b.asarray(X), b.asarray(Y)), function(X, Y)
        found = call(b.asarray(X), b.asarray(Y[:, :1]))
        yield f"{name} of [3, 6] and [3, 1]", found, function(X, Y[:, :1])
        yield f"{name} of int32", call(b.asarray(I), b.asarray(I[::-1].copy())), function(I, I[::-1])

    return check


def _any(b: Backend) -> Compared:
    for host in (M, np.zeros((3, 6), dtype=bool)):
        yield "any(m)", b.xp.any(b.asarray(host)), np.any(host)


def _arange(b: Backend) -> Compared:
    yield "arange(5)", b.xp.arange(5), np.arange(5, dtype=np.int64)
    yield "arange(5, dtype=int32)", b.xp.arange(5, dtype=b.xp.int32), np.arange(5, dtype=np.int32)
    yield "arange(0)", b.xp.arange(0, dtype=b.xp.int32), np.arange(0, dtype=np.int32)


def _argmax(b: Backend) -> Compared:
    for dtype in _float_dtypes(b):
        host = _rounded(b, X, dtype)
        yield f"argmax({dtype}, axis=-1)", b.xp.argmax(b.asarray(host, dtype), axis=-1), np.argmax(host, axis=-1)
    ties = np.tile(np.asarray([[0, 1, 1, 0, 1, 0]], dtype=np.float32), (2, 40))
    yield "argmax of ties", b.xp.argmax(b.asarray(ties), axis=-1), np.argmax(ties, axis=-1)


def _argsort(b: Backend) -> Compared:
    wide = np.tile(FINITE, (1, 20))
    for dtype in _float_dtypes(b):
        for host in (_rounded(b, X, dtype), _rounded(b, wide, dtype)):
            found = b.xp.argsort(b.asarray(host, dtype), axis=-1, stable=True)
            yield f"argsort({dtype}, axis=-1, stable=True)", found, np.argsort(host, axis=-1, kind="stable")
    for integers in (I, J, np.tile(I, (1, 20)), EMPTY.astype(np.int32)):
        found = b.xp.argsort(b.asarray(integers), axis=-1, stable=True)
        yield "argsort(int32, axis=-1, stable=True)", found, np.argsort(integers, axis=-1, kind="stable")


def _sort(b: Backend) -> Compared:
    for dtype in _float_dtypes(b):
        host = _rounded(b, X, dtype)
        yield f"sort({dtype}, axis=-1)", b.xp.sort(b.asarray(host, dtype), axis=-1), np.sort(host, axis=-1)
    for integers in (I, J, np.tile(I, (1, 20))):
        yield "sort(int32, axis=-1)", b.xp.sort(b.asarray(integers), axis=-1), np.sort(integers, axis=-1)
    yield "sort of no rows", b.xp.sort(b.asarray(EMPTY), axis=-1), EMPTY


def _asarray(b: Backend) -> Compared:
    yield "asarray(host)", b.xp.asarray(np.array(Y)), Y
    yield "asarray(host, copy=True)", b.xp.asarray(np.array(I), copy=True), I
    yield (
        "asarray of a list",
        b.xp.asarray([[True, False], [False, False]]),
        np.asarray([[True, False], [False, False]]),
    )


def _astype(b: Backend) -> Compared:
    kinds: dict[str, Host] = {"bool": M, "int32": I, "float32": FINITE}
    for dtype in (*kinds, *(name for name in FLOATS[1:] if hasattr(b.xp, name))):
        for kind, host in kinds.items():
            if (kind, dtype) == ("float32", "bool"):
                continue
            expected = host.astype("float32" if dtype == "bfloat16" else dtype)
            yield f"astype({kind}, {dtype})", b.xp.astype(b.asarray(host), getattr(b.xp, dtype)), expected


def _bits(name: str, function: Callable[..., Host]) -> Callable[[Backend], Compared]:
    def check(b: Backend) -> Compared:
        call = getattr(b.xp, name)
        yield f"{name}(x, y)", call(b.asarray(I), b.asarray(J)), function(I, J)
        yield f"{name} of [3, 6] and [1, 6]", call(b.asarray(J), b.asarray(I[:1])), function(J, I[:1])
        yield f"{name}(x, 0xFFFF)", call(b.asarray(J), 0xFFFF), function(J, np.int32(0xFFFF))

    return check


def _shift(b: Backend) -> Compared:
    by = np.asarray([[0, 1, 5, 16, 30, 31]], dtype=np.int32)
    found = b.xp.bitwise_right_shift(b.asarray(J), b.asarray(by))
    yield "bitwise_right_shift of [3, 6] by [1, 6]", found, np.right_shift(J, by)


def _broadcast_to(b: Backend) -> Compared:
    for host in (I[:1], M[:1], X[:1]):
        yield f"broadcast_to({host.dtype})", b.xp.broadcast_to(b.asarray(host), (4, 6)), np.broadcast_to(host, (4, 6))


def _clip(b: Backend) -> Compared:
    for least, most in ((-1.0, 1.0), (None, 0.5), (-0.5, None)):
        for dtype in _float_dtypes(b):
            host = _rounded(b, X, dtype)
            found = b.xp.clip(b.asarray(host, dtype), least, most)
            yield f"clip({dtype}, {least}, {most})", found, np.clip(host, least, most)
    yield "clip(int32, 0, 5)", b.xp.clip(b.asarray(I), 0, 5), np.clip(I, 0, 5)


def _concat(b: Backend) -> Compared:
    for host in (X, I, M):
        for axis in (0, 1, -1):
            parts = [host, host[:, :0] if axis else host[:0], host]
            found = b.xp.concat([b.asarray(part) for part in parts], axis=axis)
            yield f"concat({host.dtype}, axis={axis})", found, np.concatenate(parts, axis=axis)
    found = b.xp.concat([b.asarray(DEEP), b.asarray(DEEP[:, :, :1])], axis=2)
    yield "concat of four axes, axis=2", found, np.concatenate([DEEP, DEEP[:, :, :1]], axis=2)


def _cumulative_sum(b: Backend) -> Compared:
    for host in (FINITE, np.tile(FINITE, (1, 30))):
        yield "cumulative_sum(x, axis=-1)", b.xp.cumulative_sum(b.asarray(host), axis=-1), np.cumsum(host, axis=-1)
    found = b.xp.cumulative_sum(b.asarray(I), axis=1)
    yield "cumulative_sum(int32, axis=1)", found, np.cumsum(I, axis=1, dtype=np.int64)
    yield "cumulative_sum of no rows", b.xp.cumulative_sum(b.asarray(EMPTY), axis=-1), EMPTY


def _empty(b: Backend) -> Compared:
    made = b.xp.empty((2, 3), dtype=b.xp.float32)
    yield "empty((2, 3), dtype=float32) * 0, without not-a-numbers", b.xp.zeros_like(made), np.zeros((2, 3), np.float32)


def _finfo(b: Backend) -> Compared:
    largest = {"float32": float(np.finfo(np.float32).max), "float16": 65504.0, "bfloat16": 3.3895313892515355e38}
    for dtype in _float_dtypes(b):
        yield f"finfo({dtype}).max", float(b.xp.finfo(getattr(b.xp, dtype)).max), largest[dtype]


def _flip(b: Backend) -> Compared:
    yield "flip(x, axis=-1)", b.xp.flip(b.asarray(X), axis=-1), X[:, ::-1]


def _full(b: Backend) -> Compared:
    for dtype in _float_dtypes(b):
        found = b.xp.full((), -INF, dtype=getattr(b.xp, dtype))
        yield f"full((), -inf, dtype={dtype})", found, np.float16(-INF) if dtype == "float16" else np.float32(-INF)
    yield "full((), True, dtype=bool)", b.xp.full((), True, dtype=b.xp.bool), np.True_
    yield "full((2, 3), 7, dtype=int32)", b.xp.full((2, 3), 7, dtype=b.xp.int32), np.full((2, 3), 7, np.int32)


def _like(name: str, value: int, *more: int) -> Callable[[Backend], Compared]:
    def check(b: Backend) -> Compared:
        for host in (X, I):
            yield f"{name}({host.dtype})", getattr(b.xp, name)(b.asarray(host), *more), np.full_like(host, value)

    return check


def _isdtype(b: Backend) -> Compared:
    for dtype in (*_float_dtypes(b), "int32", "bool"):
        found = bool(b.xp.isdtype(getattr(b.xp, dtype), "real floating"))
        yield f"isdtype({dtype}, 'real floating')", found, dtype in FLOATS


def _logical(name: str, function: Callable[..., Host]) -> Callable[[Backend], Compared]:
    def check(b: Backend) -> Compared:
        yield f"{name}(m, m)", getattr(b.xp, name)(b.asarray(M), b.asarray(M[:, ::-1].copy())), function(M, M[:, ::-1])
        yield (
            f"{name} of [3, 6] and [3, 1]",
            getattr(b.xp, name)(b.asarray(M), b.asarray(M[:, :1])),
            function(M, M[:, :1]),
        )

    return check


def _matmul(b: Backend) -> Compared:
    weights = DEEP[0, 0]
    yield "matmul(x, y)", b.xp.matmul(b.asarray(np.eye(4, dtype=np.float32)), b.asarray(weights)), weights
    turned = np.ascontiguousarray(np.swapaxes(DEEP, 2, 3))
    found = b.xp.matmul(b.asarray(DEEP[0]), b.asarray(turned[0]))
    yield "matmul of stacked matrices", found, DEEP[0] @ turned[0]


def _permute_dims(b: Backend) -> Compared:
    for axes in ((0, 2, 1, 3), (0, 1, 3, 2)):
        yield f"permute_dims(x, {axes})", b.xp.permute_dims(b.asarray(DEEP), axes), np.transpose(DEEP, axes)
    yield "permute_dims(x, (1, 0))", b.xp.permute_dims(b.asarray(X), (1, 0)), X.T
    five = DEEP.reshape(2, 3, 2, 2, 5)
    found = b.xp.permute_dims(b.asarray(five), (0, 2, 3, 1, 4))
    yield "permute_dims of five axes", found, np.transpose(five, (0, 2, 3, 1, 4))


def _reshape(b: Backend) -> Compared:
    yield "reshape(x, (-1,))", b.xp.reshape(b.asarray(X), (-1,)), X.reshape(-1)
    yield "reshape(x, (2, 3, -1))", b.xp.reshape(b.asarray(I), (2, 3, -1)), I.reshape(2, 3, -1)
    turned = b.xp.reshape(b.xp.permute_dims(b.asarray(DEEP), (0, 2, 1, 3)), (8, 15))
    yield "reshape of an array whose axes were moved", turned, np.transpose(DEEP, (0, 2, 1, 3)).reshape(8, 15)


def _take(b: Backend) -> Compared:
    index = np.asarray([2, 0, 0, 1], dtype=np.int32)
    for host in (X, I, M):
        for axis in (0, 1):
            found = b.xp.take(b.asarray(host), b.asarray(index), axis=axis)
            yield f"take({host.dtype}, i, axis={axis})", found, np.take(host, index, axis=axis)
    yield (
        "take of four axes, axis=2",
        b.xp.take(b.asarray(DEEP), b.asarray(index), axis=2),
        np.take(DEEP, index, axis=2),
    )
    none = np.zeros(0, dtype=np.int32)
    yield "take of nothing", b.xp.take(b.asarray(X), b.asarray(none), axis=0), X[:0]


def _take_along_axis(b: Backend) -> Compared:
    index = np.asarray([[0, 5], [3, 3], [1, 0]])
    for kind in ("int32", "int64"):
        for host in (X, I):
            found = b.xp.take_along_axis(b.asarray(host), b.asarray(index, kind), axis=-1)
            yield f"take_along_axis({host.dtype}, i, axis=-1)", found, np.take_along_axis(host, index, axis=-1)
    source = np.asarray([[3, 0, 0, 1, 2], [1, 1, 3, 2, 0]], dtype=np.int32)[:, None, :, None]
    found = b.xp.take_along_axis(b.asarray(DEEP), b.asarray(source), axis=2)
    full = np.broadcast_to(source, (2, 3, 5, 5))
    yield "take_along_axis of [2, 3, 4, 5] and [2, 1, 5, 1], axis=2", found, np.take_along_axis(DEEP, full, axis=2)
    found = b.xp.take_along_axis(b.asarray(X[:1]), b.asarray(index), axis=-1)
    yield "take_along_axis of [1, 6] and [3, 2], axis=-1", found, np.take_along_axis(np.repeat(X[:1], 3, 0), index, -1)


def _where(b: Backend) -> Compared:
    mask = b.asarray(M)
    for dtype in _float_dtypes(b):
        x, y = _rounded(b, X, dtype), _rounded(b, Y, dtype)
        yield (
            f"where(m, {dtype}, {dtype})",
            b.xp.where(mask, b.asarray(x, dtype), b.asarray(y, dtype)),
            np.where(M, x, y),
        )
        zero = x.dtype.type(0.5)
        yield f"where(m, {dtype}, 0.5)", b.xp.where(mask, b.asarray(x, dtype), 0.5), np.where(M, x, zero)
        yield f"where(m, 0.5, {dtype})", b.xp.where(mask, 0.5, b.asarray(x, dtype)), np.where(M, zero, x)
    yield "where(m, int32, -1)", b.xp.where(mask, b.asarray(I), -1), np.where(M, I, np.int32(-1))
    yield "where(m, bool, bool)", b.xp.where(mask, b.asarray(M), b.asarray(~M[:1])), np.where(M, M, ~M[:1])
    found = b.xp.where(b.asarray(M[:, :1]), b.asarray(X), b.asarray(Y[:1]))
    yield "where of [3, 1], [3, 6] and [1, 6]", found, np.where(M[:, :1], X, Y[:1])


def _zeros(b: Backend) -> Compared:
    yield "zeros((2, 3))", b.xp.astype(b.xp.zeros((2, 3)), b.xp.float32), np.zeros((2, 3), np.float32)
    yield "zeros((2, 3), dtype=int32)", b.xp.zeros((2, 3), dtype=b.xp.int32), np.zeros((2, 3), np.int32)
    yield "zeros((0, 3), dtype=float32)", b.xp.zeros((0, 3), dtype=b.xp.float32), np.zeros((0, 3), np.float32)


#: Function of :data:`logitloom.testing.array_namespace.FUNCTIONS` -> its results with the expected results.
FUNCTION_CHECKS: dict[str, Callable[[Backend], Compared]] = {
    "abs": lambda b: (("abs", b.xp.abs(b.asarray(host)), np.abs(host)) for host in (X, I)),
    "all": lambda b: iter([("all(m, axis=-1)", b.xp.all(b.asarray(M), axis=-1), M.all(axis=-1))]),
    "any": _any,
    "arange": _arange,
    "argmax": _argmax,
    "argsort": _argsort,
    "asarray": _asarray,
    "astype": _astype,
    "bitwise_and": _bits("bitwise_and", np.bitwise_and),
    "bitwise_right_shift": _shift,
    "bitwise_xor": _bits("bitwise_xor", np.bitwise_xor),
    "broadcast_to": _broadcast_to,
    "clip": _clip,
    "concat": _concat,
    "cumulative_sum": _cumulative_sum,
    "empty": _empty,
    "exp": _unary("exp", X, np.exp),
    "finfo": _finfo,
    "flip": _flip,
    "floor": _unary("floor", Y, np.floor),
    "full": _full,
    "full_like": _like("full_like", 3, 3),
    "isdtype": _isdtype,
    "log": _unary("log", np.abs(np.where(np.isfinite(X), X, 0)).astype(np.float32), np.log),
    "logical_and": _logical("logical_and", np.logical_and),
    "logical_not": _unary("logical_not", M, np.logical_not),
    "logical_or": _logical("logical_or", np.logical_or),
    "matmul": _matmul,
    "max": _integer_reduction("max", np.max),
    "maximum": _pairwise("maximum", np.maximum),
    "mean": lambda b: iter(
        [("mean", b.xp.mean(b.asarray(DEEP), axis=-1, keepdims=True), DEEP.mean(-1, keepdims=True))]
    ),
    "min": _least,
    "minimum": _pairwise("minimum", np.minimum),
    "ones_like": _like("ones_like", 1),
    "permute_dims": _permute_dims,
    "reshape": _reshape,
    "sort": _sort,
    "sqrt": _unary("sqrt", np.abs(FINITE), np.sqrt),
    "sum": _integer_reduction("sum", np.sum),
    "take": _take,
    "take_along_axis": _take_along_axis,
    "tanh": _unary("tanh", FINITE, np.tanh),
    "where": _where,
    "zeros": _zeros,
    "zeros_like": _like("zeros_like", 0),
}


def _arithmetic(b: Backend) -> Compared:
    for dtype in _float_dtypes(b):
        x, y = _rounded(b, FINITE, dtype), _rounded(b, Y, dtype)
        a, c = b.asarray(x, dtype), b.asarray(y, dtype)
        pairs = {"x + y": (a + c, x + y), "x - y": (a - c, x - y), "-x": (-a, -x), "x * 2.0": (a * 2.0, x * 2),
                 "2.0 * x": (2.0 * a, x * 2), "1.0 - x": (1.0 - a, 1 - x), "x / 0.5": (a / 0.5, x / x.dtype.type(0.5)),
                 "x + 1": (a + 1, x + 1)}  # fmt: skip
        for what, (found, expected) in pairs.items():
            yield f"{what} in {dtype}", found, expected
    x, y = b.asarray(FINITE), b.asarray(Y)
    yield "x * y of [3, 6] and [3, 1]", x * y[:, :1], FINITE * Y[:, :1]
    yield "x / y", x / (y * y + 1.0), FINITE / (Y * Y + np.float32(1))
    yield "2.0 ** x", 2.0**y, np.float32(2) ** Y


def _comparison(b: Backend) -> Compared:
    x, y, i = b.asarray(X), b.asarray(Y), b.asarray(I)
    yield from (
        ("x < y", x < y, X < Y), ("x <= y", x <= y, X <= Y), ("x > y", x > y, X > Y), ("x >= y", x >= y, X >= Y),
        ("x == y", x == y, X == Y), ("x != y", x != y, X != Y), ("x > -inf", x > -INF, X > -INF),
        ("i >= 0", i >= 0, I >= 0), ("i == j of [3, 6] and [3, 1]", i == i[:, :1], I[:, :1] == I),
        ("m == m", b.asarray(M) == b.asarray(M[:1]), M[:1] == M),
    )  # fmt: skip


def _logic(b: Backend) -> Compared:
    m, n = b.asarray(M), b.asarray(M[:1])
    yield "m & m", m & n, M & M[:1]
    yield "m | m", m | n, M | M[:1]
    yield "~m", ~m, ~M


def _integers(b: Backend) -> Compared:
    i, j = b.asarray(np.abs(I)), b.asarray(J)
    yield "i // 3", i // 3, np.abs(I) // 3
    yield "i % 3", i % 3, np.abs(I) % 3
    yield "i >> 5", j >> 5, J >> 5
    yield "i & 31", j & 31, J & 31
    with np.errstate(over="ignore"):
        yield "a product of int32 that wraps around", j * 0x7FEB352D, J * np.int32(0x7FEB352D)
        yield "a sum of int32 that wraps around", j + j, J + J


def _matrices(b: Backend) -> Compared:
    for left, right in (
        (FINITE, Y.T.copy()),
        (DEEP, DEEP.transpose(0, 1, 3, 2).copy()),
        (DEEP[0], Y.reshape(-1)[:10].reshape(5, 2)),
    ):
        yield f"x @ y of {left.ndim} and {right.ndim} axes", b.asarray(left) @ b.asarray(right), left @ right


def _indexing(b: Backend) -> Compared:
    x, deep = b.asarray(X), b.asarray(DEEP)
    yield from (
        ("x[None, ...]", x[None, ...], X[None]), ("x[:, None, :]", x[:, None, :], X[:, None]),
        ("x[1:, :]", x[1:, :], X[1:]), ("x[:0, ...]", x[:0, ...], X[:0]), ("x[..., 1:3]", x[..., 1:3], X[..., 1:3]),
        ("x[:, -1:]", x[:, -1:], X[:, -1:]), ("x[:, 2]", x[:, 2], X[:, 2]), ("x[1, ...]", x[1, ...], X[1]),
        ("x[:, :, 1:3, :]", deep[:, :, 1:3, :], DEEP[:, :, 1:3]), ("x[..., :-1]", deep[..., :-1], DEEP[..., :-1]),
        ("x[:, None, None, :, None]", x[:, None, None, :, None], X[:, None, None, :, None]),
    )  # fmt: skip


def _attributes(b: Backend) -> Compared:
    x = b.asarray(X)
    yield "tuple(x.shape)", tuple(x.shape), (3, 6)
    yield "x.ndim", x.ndim, 2
    yield "x.dtype == xp.float32", x.dtype == b.xp.float32, True
    yield "x.dtype == xp.int32", x.dtype == b.xp.int32, False


#: Entry of :data:`logitloom.testing.array_namespace.OPERATORS` -> its results with the expected results.
OPERATOR_CHECKS: dict[str, Callable[[Backend], Compared]] = {
    "arithmetic": _arithmetic,
    "attributes": _attributes,
    "comparison": _comparison,
    "indexing": _indexing,
    "integers": _integers,
    "logic": _logic,
    "matrices": _matrices,
}
