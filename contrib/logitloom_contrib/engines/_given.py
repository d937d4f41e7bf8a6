"""Arguments that callers give to adapters: checks that engines would not make, and where rows begin."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from logitloom.errors import InvalidContext, ModelError

__all__ = ["NoModel", "beginnings", "number", "read_from", "rows_of_ids", "token_ids", "told"]

T = TypeVar("T")


class NoModel(ModelError):
    """What was given as a model is none of the engine."""


def told(value: Any) -> str:
    """A value for a message: its type, and the beginning of its first line."""
    try:
        line = f"{value!r:.200}".partition("\n")[0]
    except RecursionError:
        line = "nested too deeply"
    except ValueError:  # of an integer of thousands of digits
        line = "with a long number"
    return f"a {type(value).__name__} ({line:.80})"


def _refused(name: str, wanted: str, value: Any) -> InvalidContext:
    return InvalidContext(f"The argument {name!r} must be {wanted}, but is {told(value)}.")


def number(value: Any, name: str) -> int | None:
    """A whole number, or None.

    Raises:
        InvalidContext: it is neither.
    """
    try:
        return None if value is None else operator.index(value)
    except TypeError:
        raise _refused(name, "a whole number", value) from None


def token_ids(value: Any, name: str) -> tuple[int, ...]:
    """Token ids.

    Raises:
        InvalidContext: the value is no collection of whole numbers.
    """
    try:
        if isinstance(value, Iterable) and not isinstance(value, type):
            return tuple(operator.index(token) for token in value)
    except TypeError:
        pass
    raise _refused(name, "a list of token ids", value)


def rows_of_ids(value: Any, name: str) -> NDArray[Any]:
    """Token ids ``[rows, length]`` on the host, also of a tensor of PyTorch on a device.

    Raises:
        InvalidContext: the value is no array of whole numbers with two axes.
    """
    try:
        found = np.asarray(value.cpu() if hasattr(value, "cpu") else value)
    except (ValueError, TypeError, RecursionError):
        found = np.empty(0)
    if found.ndim != 2 or found.dtype.kind not in "iub":
        raise _refused(name, "token ids [rows, length]", value)
    return found


def read_from(model: Any, read: Callable[[Any], T], kind: str, name: str = "model") -> T:
    """What an adapter reads from a model of its engine, or from another of the engine's objects.

    Raises:
        NoModel: the object lacks something that objects of this kind have.
    """
    try:
        if not isinstance(model, type):
            return read(model)
        wrong = "it is a class"
    except (AttributeError, TypeError) as error:
        wrong = str(error).partition("\n")[0][:100].rstrip(".: ")
    raise NoModel(
        f"The argument {name!r} must be a {name} of {kind}, but is {told(model)}: {wrong}. Give the loaded {name}."
    )


def beginnings(own: NDArray[Any]) -> NDArray[np.int64]:
    """Where the ids of each row begin behind padding, ``[rows]``; the width for a row that is padding alone.

    Args:
        own: ``[rows, width]``, not 0 where an id is no padding.
    """
    width = own.shape[1]
    found: NDArray[np.int64] = np.where(own.any(axis=1), own.argmax(axis=1) if width else 0, width)
    return found
