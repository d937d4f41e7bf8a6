"""A processor's step as a plain function, and the functions with which a chain may wrap it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import NEG_INF, Array, library_of
from logitloom.chain.links import Link
from logitloom.context import Context
from logitloom.errors import InvalidResult, InvalidSignature
from logitloom.rows import tree as rows

__all__ = ["Step", "check_state_is_taken", "checked_result", "checking_results", "restoring_forbidden"]

#: ``process`` with all arguments, resolved when the chain is built.
Step = Callable[[Array, Any, Context], "tuple[Array, Any]"]


def restoring_forbidden(step: Step, link: Link) -> Step:
    """The step, followed by restoring -inf: a token that a constraint forbade stays forbidden."""

    def restoring(logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        forbidden = logits == NEG_INF
        logits, state = checked_result(step(logits, state, context), logits, link)
        return context.backend.masked_fill(logits, forbidden, NEG_INF), state

    return restoring


def checked_result(result: Any, logits: Array, link: Link) -> tuple[Array, Any]:
    """The result of a processor, if it is a pair of logits and a state. The check looks at no values.

    Args:
        result: what ``process`` returned.
        logits: what it was given.
        link: the processor.

    Raises:
        InvalidSignature: the result is no pair, or its logits are no array of the library, dtype and width of those
            that were given; names the processor.
    """
    if not isinstance(result, tuple) or len(result) != 2:
        raise InvalidSignature(
            f"Processor {link.label!r} must return (logits, state), but returned {type(result).__name__}."
        )
    out = result[0]
    if out is not logits and not (
        type(out) is type(logits) and out.shape == logits.shape and out.dtype == logits.dtype
    ):
        _check_form(out, logits, link.label, link.declared("branches"))
    return result


def checking_results(step: Step, link: Link) -> Step:
    """The step, followed by a check of its results and of changes to its inputs against the contract of the hook.

    Values are looked at outside compiled loops only; inside, shapes and dtypes are.
    """

    def checking(logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        readable = not context.compiled and context.backend.has_values(logits)
        before = _inputs(logits, state, context) if readable else []
        result = checked_result(step(logits, state, context), logits, link)
        rows.check_like(result[1], state, link.label)
        if before:
            _check_values(result[0], before, link.label, context)
        return result

    return checking


def check_state_is_taken(processor: Any, state: Any, label: str) -> None:
    """Raise if ``init_state`` makes a state but ``process`` takes none, so that the first state would stay for good.

    Raises:
        InvalidSignature: naming the processor.
    """
    if any(True for _ in rows.leaves(state)) and "state" not in inspect.signature(processor.process).parameters:
        raise InvalidSignature(
            f"Processor {label!r} makes a state in 'init_state', but its 'process' takes no state, so it is never used "
            f"and never changes. Add the argument: def process(self, logits, state, context)."
        )


def _check_form(out: Any, logits: Array, label: str, branches: int) -> None:
    """Raise unless the returned logits are an array of the same library, dtype and width as the given logits.

    Of several branches, the rows of one may be left.
    """
    if type(out) is not type(logits) and not (hasattr(out, "shape") and library_of(out) == library_of(logits)):
        raise InvalidSignature(
            f"Processor {label!r} got logits of {library_of(logits)} and returned {type(out).__qualname__} in their "
            f"place. Return an array of the same library, dtype and shape."
        )
    count, width = logits.shape
    if tuple(out.shape) not in ((count, width), (count // branches, width)):
        raise InvalidSignature(
            f"Processor {label!r} got logits {list(logits.shape)} and returned {list(out.shape)}; keep the shape."
        )
    if out.dtype != logits.dtype:
        raise InvalidSignature(
            f"Processor {label!r} got {logits.dtype} logits and returned {out.dtype}; keep the dtype."
        )


def _inputs(logits: Array, state: Any, context: Context) -> list[tuple[str, Array, NDArray[Any]]]:
    """The arrays that a step must leave as they are, each with its name and a copy; the logits first."""
    given = [("the logits", logits), *((path, leaf) for path, leaf in rows.leaves(state) if hasattr(leaf, "dtype"))]
    if context.tokens is not None:
        given.append(("the tokens", context.tokens))
    return [(name, array, np.array(context.backend.to_numpy(array))) for name, array in given]


def _check_values(out: Array, before: list[tuple[str, Array, NDArray[Any]]], label: str, context: Context) -> None:
    """Raise if the returned logits hold a new NaN or +inf, or if the step changed an input that must stay."""
    backend = context.backend
    values = np.asarray(backend.to_numpy(out))
    wrong = ~(values < np.inf)
    if wrong.any() and (before[0][2] < np.inf).all():
        row, column = np.argwhere(wrong)[0].tolist()
        called = "not-a-number" if np.isnan(values[row, column]) else "+inf"
        raise InvalidResult(
            f"Processor {label!r} returned {called} for the token {column} of row {row}, where every logit was a "
            f"number or -inf before ({wrong.sum()} in all). A row that is all -inf divided by its own sum gives "
            f"not-a-number, as does inf - inf. To make a token certain, forbid all others with -inf."
        )
    for name, array, copy in before:
        given_up = context.donate if name == "the logits" else context.donate_state and name != "the tokens"
        if not given_up and not np.array_equal(backend.to_numpy(array), copy, equal_nan=copy.dtype.kind == "f"):
            allowed = "" if name == "the tokens" else " unless context.donate"
            allowed = " unless context.donate_state" if name.startswith("state") else allowed
            raise InvalidResult(
                f"Processor {label!r} changed {name} that it was given. It must leave its inputs as they were"
                f"{allowed and allowed + ' is true'}: make a new array."
            )
