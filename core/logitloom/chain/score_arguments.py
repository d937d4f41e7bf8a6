"""The sequences to be scored, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import shown
from logitloom.arrays.backend import Array
from logitloom.context import Context, check_logits, padded
from logitloom.errors import InvalidContext

__all__ = ["Tokens", "checked"]

Tokens = NDArray[np.int32]


def checked(logits: Array, tokens: Sequence[Sequence[int]] | Tokens, context: Context, kept: Array | None) -> Tokens:
    """The tokens as ``[batch, time] int32``, after checking all that :meth:`logitloom.Chain.score` takes.

    Raises:
        InvalidContext: naming the argument that does not fit, and the form that it must have.
    """
    if not isinstance(context, Context):
        raise InvalidContext(f"Sequences are scored with the Context of their start, not with {shown(context)}.")
    shape = None if isinstance(logits, type) else getattr(logits, "shape", None)
    if shape is None or len(shape) != 3 or shape[0] != context.batch:
        given = f"are a {type(logits).__name__}" if shape is None else f"have the shape {list(shape)}"
        raise InvalidContext(
            f"Sequences are scored with logits [batch, time, vocab] for the {context.batch} rows of the context, but "
            f"the logits {given}."
        )
    check_logits(logits[:, 0, :] if shape[1] else logits[:, :, 0])
    batch, time = int(shape[0]), int(shape[1])
    wanted = [batch, time, -(-int(shape[2]) // 32)]
    if kept is not None and list(getattr(kept, "shape", ())) != wanted:
        found: Any = list(kept.shape) if hasattr(kept, "shape") else shown(kept)
        raise InvalidContext(f"'kept' must be an array of bits of the shape {wanted}, but is {found}.")
    try:
        host = padded(tokens)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidContext(
            f"Tokens to be scored are ids, a sequence of them per row, but {shown(tokens)} was given: {error!s:.100}."
        ) from error
    if len(host) != batch or host.shape[1] > time:
        raise InvalidContext(
            f"The logits are those of {batch} sequences of {time} tokens at most, but {len(host)} sequences of up to "
            f"{host.shape[1]} tokens are to be scored."
        )
    whole = np.full((batch, time), -1, dtype=np.int32)
    whole[:, : host.shape[1]] = host
    gaps = (whole[:, :-1] < 0) & (whole[:, 1:] >= 0)
    if gaps.any():
        row, position = (int(i) for i in np.argwhere(gaps)[0])
        raise InvalidContext(f"Sequence {row} has no token at position {position}, but one behind it. Close the gap.")
    return whole
