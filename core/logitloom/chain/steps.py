"""Wrappers that a chain puts around the ``process`` of a processor when it is made: restored masks, checked results."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import NEG_INF, Array
from logitloom.chain.links import Link
from logitloom.chain.step_checks import checked_result
from logitloom.context import Context
from logitloom.errors import InvalidResult, InvalidSignature
from logitloom.rows import tree as rows

__all__ = ["Step", "check_state_is_taken", "checking_results", "restoring_forbidden"]

#: ``process`` with all arguments, resolved when the chain is built.
Step = Callable[[Array, Any, Context], "tuple[Array, Any]"]


def restoring_forbidden(step: Step, link: Link) -> Step:
    """The step, followed by restoring -inf: a token that a constraint forbade stays forbidden."""

    def restoring(logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        forbidden = logits == NEG_INF
        logits, state = checked_result(step(logits, state, context), logits, link)
        return context.backend.masked_fill(logits, forbidden, NEG_INF), state

    return restoring


def checking_results(step: Step, link: Link) -> Step:
    """The step, followed by a check of its results and of changes to its inputs against the contract of the hook.

    Values are looked at outside compiled loops only; inside, shapes and dtypes are.
    """

    def checking(logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        before = [] if context.compiled else _inputs(logits, state, context)
        result = checked_result(step(logits, state, context), logits, link)
        rows.check_like(result[1], state, link.label)
        rows.check_handles(result[1], link.label)
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


def _inputs(logits: Array, state: Any, context: Context) -> list[tuple[str, Array, NDArray[Any]]]:
    """The arrays that a step must leave as they are, each with its name and a copy; the logits first.

    The list is empty if a compiler traces one of the arrays, because a traced array has no values.
    """
    backend = context.backend
    given = [("the logits", logits), *((path, leaf) for path, leaf in rows.leaves(state) if hasattr(leaf, "dtype"))]
    if context.tokens is not None:
        given.append(("the tokens", context.tokens))
    if not all(backend.has_values(array) for _, array in given):
        return []
    return [(name, array, np.array(backend.to_numpy(array))) for name, array in given]


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
