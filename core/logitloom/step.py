"""A processor's step as a plain function, and what a chain may wrap around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logitloom import state as rows
from logitloom.backend import NEG_INF, Array
from logitloom.context import Context
from logitloom.errors import InvalidSignature

__all__ = ["Step", "checking_results", "restoring_forbidden"]

#: ``process`` with all arguments, resolved when the chain is built.
Step = Callable[[Array, Any, Context], "tuple[Array, Any]"]


def restoring_forbidden(step: Step) -> Step:
    """The step, with -inf restored where it came in: what a constraint forbade stays forbidden."""

    def restoring(logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        forbidden = logits == NEG_INF
        logits, state = step(logits, state, context)
        return context.backend.masked_fill(logits, forbidden, NEG_INF), state

    return restoring


def checking_results(step: Step, label: str) -> Step:
    """The step, with what it returns checked against the contract of the hook."""

    def checking(logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        result = step(logits, state, context)
        if not isinstance(result, tuple) or len(result) != 2:
            raise InvalidSignature(
                f"Processor {label!r} must return (logits, state), but returned {type(result).__name__}."
            )
        rows.check_like(result[1], state, label)
        branches = 1 if result[0].shape == logits.shape else logits.shape[0] // max(result[0].shape[0], 1)
        if result[0].shape[0] * branches != logits.shape[0] or result[0].shape[1:] != logits.shape[1:]:
            raise InvalidSignature(
                f"Processor {label!r} got logits {list(logits.shape)} and returned {list(result[0].shape)}."
            )
        if result[0].dtype != logits.dtype:
            raise InvalidSignature(
                f"Processor {label!r} got {logits.dtype} logits and returned {result[0].dtype}; keep the dtype."
            )
        return result

    return checking
