"""A processor's step as a plain function, and the functions with which a chain may wrap it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import NEG_INF, Array, library_of
from logitloom.context import Context
from logitloom.errors import InvalidResult, InvalidSignature
from logitloom.rows import tree as rows

__all__ = ["Step", "check_state_is_taken", "checking_results", "restoring_forbidden"]

#: ``process`` with all arguments, resolved when the chain is built.
Step = Callable[[Array, Any, Context], "tuple[Array, Any]"]


def restoring_forbidden(step: Step) -> Step:
    """The step, followed by restoring -inf: a token that a constraint forbade stays forbidden."""

    def restoring(logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        forbidden = logits == NEG_INF
        logits, state = step(logits, state, context)
        return context.backend.masked_fill(logits, forbidden, NEG_INF), state

    return restoring


def checking_results(step: Step, label: str) -> Step:
    """The step, followed by a check of its results and of changes to its inputs against the contract of the hook.

    Values are looked at outside compiled loops only; inside, shapes and dtypes are.
    """

    def checking(logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        readable = not context.compiled and context.backend.has_values(logits)
        before = _inputs(logits, state, context) if readable else []
        result = step(logits, state, context)
        if not isinstance(result, tuple) or len(result) != 2:
            raise InvalidSignature(
                f"Processor {label!r} must return (logits, state), but returned {type(result).__name__}."
            )
        rows.check_like(result[1], state, label)
        _check_form(result[0], logits, label)
        if before:
            _check_values(result[0], before, label, context)
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


def _check_form(out: Any, logits: Array, label: str) -> None:
    """Raise unless the returned logits are an array of the same library, dtype and width as the given logits."""
    if type(out) is not type(logits) and not (hasattr(out, "shape") and library_of(out) == library_of(logits)):
        raise InvalidSignature(
            f"Processor {label!r} got logits of {library_of(logits)} and returned {type(out).__qualname__} in their "
            f"place. Return an array of the same library, dtype and shape."
        )
    branches = 1 if out.shape == logits.shape else logits.shape[0] // max((*out.shape, 1)[0], 1)
    if len(out.shape) != 2 or out.shape[0] * branches != logits.shape[0] or out.shape[1:] != logits.shape[1:]:
        raise InvalidSignature(f"Processor {label!r} got logits {list(logits.shape)} and returned {list(out.shape)}.")
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
    """Raise if the returned logits hold a new NaN, or if the step changed an input that must stay."""
    backend = context.backend
    nan = np.isnan(backend.to_numpy(out))
    if nan.any() and not np.isnan(before[0][2]).any():
        row, column = np.argwhere(nan)[0].tolist()
        raise InvalidResult(
            f"Processor {label!r} returned not-a-number for the token {column} of row {row}, where no logit was one "
            f"before ({nan.sum()} in all). A row that is all -inf divided by its own sum gives this, as does inf - inf."
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
