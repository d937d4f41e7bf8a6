"""What core, the built-in processors and the reference model use of an array library's namespace, ``backend.xp``.

The names are those of the array API standard (version 2024.12). The page on backends lists these tables, the
conformance kit tests every entry, and a test compares them with the code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["DTYPES", "FUNCTIONS", "OPERATORS", "Entry", "missing_names"]


class Entry(NamedTuple):
    """How a function or an operator is called.

    Attributes:
        call: its forms. ``x`` and ``y`` are arrays, ``i`` is one of integers, ``m`` of booleans, ``c`` a Python number.
        needs: the behaviour that is relied on; empty if the form says everything.
    """

    call: str
    needs: str = ""


_REDUCTION = "a negative axis; with keepdims the axis stays with length 1; no rows give no rows"

#: Function of the namespace -> how it is called.
FUNCTIONS: dict[str, Entry] = {
    "abs": Entry("abs(x)", "also of integers"),
    "all": Entry("all(m, axis=-1)"),
    "any": Entry("any(m)"),
    "arange": Entry("arange(stop), arange(stop, dtype=d)", "on the device of the backend"),
    "argmax": Entry("argmax(x, axis=-1)", "the first of equal values; a signed integer dtype"),
    "argsort": Entry("argsort(x, axis=-1, stable=True)", "equal values keep their order; a signed integer dtype"),
    "asarray": Entry("asarray(host), asarray(host, copy=True)", "of NumPy arrays and nested lists"),
    "astype": Entry("astype(x, dtype)", "between booleans, integers and floating dtypes, half types included"),
    "bitwise_and": Entry("bitwise_and(x, y), bitwise_and(x, c)", "of int32"),
    "bitwise_right_shift": Entry("bitwise_right_shift(x, i)", "of int32; arithmetic, and i is broadcast"),
    "bitwise_xor": Entry("bitwise_xor(x, y)", "of int32"),
    "broadcast_to": Entry("broadcast_to(x, shape)"),
    "clip": Entry("clip(x, c, c), clip(x, None, c), clip(x, c, None)", "of floating and integer dtypes"),
    "concat": Entry("concat([x, y], axis=n)", "any axis, also parts of length 0; of every dtype, booleans included"),
    "cumulative_sum": Entry("cumulative_sum(x, axis=-1)", "of floating dtypes and int32"),
    "empty": Entry("empty(shape, dtype=d)"),
    "exp": Entry("exp(x)", "-inf gives 0"),
    "finfo": Entry("finfo(dtype).max", "of half types, too"),
    "flip": Entry("flip(x, axis=-1)"),
    "floor": Entry("floor(x)"),
    "full": Entry("full(shape, c, dtype=d)", "also of shape () and for booleans; -inf is a value like others"),
    "full_like": Entry("full_like(x, c)"),
    "isdtype": Entry("isdtype(dtype, 'real floating')", "half types are real floating"),
    "log": Entry("log(x)", "0 gives -inf"),
    "logical_and": Entry("logical_and(m, m)"),
    "logical_not": Entry("logical_not(m)"),
    "logical_or": Entry("logical_or(m, m)"),
    "matmul": Entry("matmul(x, y)", "of floating dtypes, stacked; in the precision of x and y, also where @ has less"),
    "max": Entry("max(x, axis=-1), max(x, axis=-1, keepdims=True)", _REDUCTION),
    "maximum": Entry("maximum(x, y)", "broadcasts"),
    "mean": Entry("mean(x, axis=-1, keepdims=True)"),
    "min": Entry("min(x), min(x, axis=-1, keepdims=True)", _REDUCTION),
    "minimum": Entry("minimum(x, y)", "broadcasts"),
    "ones_like": Entry("ones_like(x)"),
    "permute_dims": Entry("permute_dims(x, axes)", "up to five axes"),
    "reshape": Entry("reshape(x, shape)", "one length may be -1"),
    "sort": Entry("sort(x, axis=-1)", "ascending; of floating dtypes with -inf, and of int32"),
    "sqrt": Entry("sqrt(x)"),
    "sum": Entry("sum(x, axis=-1), sum(x, axis=-1, keepdims=True)", f"of floating dtypes and int32; {_REDUCTION}"),
    "take": Entry("take(x, i, axis=n)", "i of one axis, int32; n is 0, 1 or 2; of every dtype, booleans included"),
    "take_along_axis": Entry(
        "take_along_axis(x, i, axis=n)",
        "x and i have as many axes; each but n is broadcast where it has length 1 in one",
    ),
    "tanh": Entry("tanh(x)"),
    "where": Entry("where(m, x, y), where(m, x, c), where(m, c, x)", "broadcasts; c takes the dtype of the array"),
    "zeros": Entry("zeros(shape), zeros(shape, dtype=d)", "on the device of the backend"),
    "zeros_like": Entry("zeros_like(x)"),
}

#: Operator of arrays -> how it is used.
OPERATORS: dict[str, Entry] = {
    "arithmetic": Entry("x + y, x - y, x * y, x / y, -x, and with c on either side; c ** x",
                        "the dtype of x stays beside c"),
    "comparison": Entry("x < y, <=, >, >=, ==, !=, and with c", "booleans, by broadcasting"),
    "logic": Entry("m & m, m | m, ~m"),
    "integers": Entry("i // c, i % c, i >> c, i & c", "int32 arithmetic wraps around"),
    "matrices": Entry("x @ y", "of two to four axes, stacked"),
    "indexing": Entry("x[None, ...], x[:, None, :], x[a:b, :], x[..., a:b], x[:, n]",
                      "slices, integers and None; every axis is told, or ... stands for the others"),
    "attributes": Entry("x.shape, x.ndim, x.dtype, x.dtype == xp.float32",
                        "shape is a tuple of integers"),
}  # fmt: skip

#: Dtype -> its uses. The names of half types may be missing; ``float64`` may name a dtype that no array has.
DTYPES: dict[str, str] = {
    "bool": "masks",
    "int32": "tokens, lengths and tables",
    "float32": "logits, and everything that half types are widened to",
    "float64": "logits that have it; the name is compared with",
    "float16": "logits; optional",
    "bfloat16": "logits; optional, not in the standard",
}

#: Dtypes whose names a namespace may lack.
OPTIONAL_DTYPES = frozenset({"float16", "bfloat16"})


def missing_names(xp: Any) -> list[str]:
    """The functions and dtypes that a namespace lacks, in alphabetical order.

    Args:
        xp: an array API namespace.

    Example:
        >>> import types
        >>> missing_names(types.SimpleNamespace(**{name: None for name in [*FUNCTIONS, *DTYPES] if name != "take"}))
        ['take']
    """
    return sorted(name for name in [*FUNCTIONS, *DTYPES] if name not in OPTIONAL_DTYPES and not hasattr(xp, name))
