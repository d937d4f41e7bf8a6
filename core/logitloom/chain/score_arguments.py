"""The sequences to be scored, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import shown
from logitloom.arrays.backend import NEG_INF, Array, Backend, library_of
from logitloom.context import Context, check_logits, padded
from logitloom.errors import InvalidContext

__all__ = ["Tokens", "checked", "masked"]

Tokens = NDArray[np.int32]


def masked(logits: Array, kept: Array, backend: Backend) -> Array:
    """Logits with -inf for the tokens that were not kept; shapes as in :meth:`logitloom.Chain.score`."""
    if library_of(kept) != library_of(logits):
        kept = backend.asarray(np.asarray(kept))
    lines, rows = (backend.xp.reshape(array, (-1, array.shape[-1])) for array in (logits, kept))
    if _holds_truth(kept):
        lines = backend.masked_fill(lines, backend.xp.logical_not(rows), NEG_INF)
    else:
        lines = backend.apply_token_mask(lines, rows)
    return backend.xp.reshape(lines, logits.shape)


def _holds_truth(array: Any) -> bool:
    return str(getattr(array, "dtype", "")).endswith("bool")


def _check_kept(kept: Any, shape: list[int]) -> None:
    found = list(getattr(kept, "shape", ()))
    bits = [*shape[:2], -(-shape[2] // 32)]
    if found == shape if _holds_truth(kept) else found == bits and "int" in str(getattr(kept, "dtype", "")):
        return
    told = f"{kept.dtype} of the shape {found}" if hasattr(kept, "dtype") else shown(kept)
    raise InvalidContext(
        f"'kept' must be an array of truth values of the shape {shape}, such as processed > -inf, or of bits, int32 of "
        f"the shape {bits}, but is {told}."
    )


def checked(logits: Array, tokens: Sequence[Sequence[int]] | Tokens, context: Context, kept: Array | None) -> Tokens:
    """The tokens as ``[batch, time] int32``, after checking all that :meth:`logitloom.Chain.score` takes.

    Raises:
        InvalidContext: the message names the argument that does not fit, and the required form.
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
    if kept is not None:
        _check_kept(kept, [int(size) for size in shape])
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
    if host.size and not -1 <= host.min() <= host.max() < shape[2]:
        wrong = int(host.max() if host.max() >= shape[2] else host.min())
        raise InvalidContext(
            f"The id {wrong} is to be scored, and ids are from 0 to {int(shape[2]) - 1} (-1 stands behind the end)."
        )
    gaps = (whole[:, :-1] < 0) & (whole[:, 1:] >= 0)
    if gaps.any():
        row, position = (int(i) for i in np.argwhere(gaps)[0])
        raise InvalidContext(f"Sequence {row} has no token at position {position}, but one behind it. Close the gap.")
    return whole
