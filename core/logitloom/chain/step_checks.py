"""What is checked at each step: the arguments before any processor sees them, and the result of each processor.

So a processor may rely on this: logits are floating, as wide as the vocabulary of the start, and there are as many rows
of logits, of tokens and of the state.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from logitloom.arguments import shown
from logitloom.arrays.backend import Array, backend_of, library_of
from logitloom.chain.links import Link
from logitloom.context import Context, check_logits
from logitloom.errors import (
    BackendMissing,
    InvalidContext,
    InvalidResult,
    InvalidSignature,
    LogitloomError,
    StateMismatch,
)
from logitloom.rows import tree as rows

__all__ = ["check_answer", "check_step", "checked_result", "note", "writable"]


#: Types of arrays and elements of logits that were looked at, and of which backend: looking takes longer than a step.
#: The array's own type comes first, so that no library must compare its types with the types of another library.
_TAKEN: set[tuple[type, Any, str]] = set()

#: Types of arrays of states that were looked at, and of which backend.
_HELD: set[tuple[type, str]] = set()


def check_step(logits: Any, state: Any, context: Context, branches: int) -> None:
    """Raise unless logits, state and tokens of a step belong together; see :meth:`logitloom.Chain.process`.

    Args:
        logits: as the chain got them.
        state: the states of its processors and the position.
        context: of the step.
        branches: rows of logits per sequence.
    """
    dtype = getattr(logits, "dtype", None)
    key = type(logits), dtype, context.backend.name
    shape: tuple[int, ...] = logits.shape if key in _TAKEN else ()
    if len(shape) not in (1, 2):
        check_logits(logits)
        if backend_of(logits).name != key[2]:
            raise InvalidContext(
                f"The logits are an array of {library_of(logits)}, but the generation began with {key[2]}. Give logits "
                f"of one library from the first step to the last."
            )
        _TAKEN.add(key)
        shape = logits.shape
    if shape[-1] != context.vocab_size:
        raise InvalidContext(
            f"The logits have {shape[-1]} columns, but the generation began with {context.vocab_size}. Give logits of "
            f"the same model."
        )
    count = shape[0] if len(shape) == 2 else 1
    if branches > 1:
        if count % branches:
            raise InvalidContext(f"{count} rows of logits cannot be split into {branches} branches each.")
        count //= branches
    held = rows.row_count(state)
    if held is not None and held != count:
        raise StateMismatch(
            f"The state has {held} rows, but there are logits for {count} sequences. Move the rows of the state along "
            f"with those of the logits: logitloom.state.take(state, index)."
        )
    array = rows.first_array(state)
    if array is not None and (type(array), key[2]) not in _HELD:
        if not _is_of(key[2], array):
            raise StateMismatch(
                f"The state holds arrays of {library_of(array)}, but the logits are an array of {key[2]}. Move the "
                f"state with save_state and load_state of the chain."
            )
        _HELD.add((type(array), key[2]))
    tokens = context.tokens
    if tokens is not None and tokens.shape[0] != count:
        raise InvalidContext(
            f"Tokens were accepted for {tokens.shape[0]} rows, but there are logits for {count} sequences. Give one "
            f"list per row; an empty one for a row that accepted nothing."
        )


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


def _check_form(out: Any, logits: Array, label: str, branches: int) -> None:
    """Raise unless the returned logits are an array of the same library, dtype and width as the given logits.

    Of several branches, the rows of one may be left.
    """
    if type(out) is not type(logits) and not (hasattr(out, "shape") and _is_of(backend_of(logits).name, out)):
        raise InvalidSignature(
            f"Processor {label!r} got logits of {backend_of(logits).name} and returned {type(out).__qualname__} in "
            f"their place. Return an array of the same library, dtype and shape."
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


def _is_of(library: str, array: Any) -> bool:
    """Whether an array is of a library; arrays of types that are derived from the library's type are, too."""
    try:
        return backend_of(array).name == library
    except BackendMissing:
        return False


def check_answer(found: Any, hook: str, label: str, count: int | None) -> None:
    """Raise unless the answer of a processor to ``forced_tokens`` or ``text_end`` is a list with one entry per row.

    Args:
        found: the answer.
        hook: of which.
        label: of the processor.
        count: number of rows; None if no state tells it.

    Raises:
        InvalidResult: naming the processor, the hook and what is expected.
    """
    listed = isinstance(found, (list, tuple))
    if listed and count in (None, len(found)) and (not found or isinstance(found[0], (list, tuple))):
        return
    each = "a list of token ids" if hook == "forced_tokens" else "a TextEnd(finished, hold)"
    raise InvalidResult(
        f"Processor {label!r} answered {hook!r} with {shown(found)}. Return a list with {each} for each of the "
        f"{'' if count is None else f'{count} '}rows, or None."
    )


#: When a field of a context is None, for notes on errors.
_NONE_WHEN: Final = {
    "tokens": "in the first call",
    **{
        field: f"unless the processor declares needs = frozenset({{{need!r}}})"
        for field, need in {
            "length": "length", "prompt_length": "length", "step": "length", "sequence": "history", "prompt": "prompt",
            "vocabulary": "vocabulary", "model": "model", "chosen_logprob": "chosen_logprob",
        }.items()
    },
}  # fmt: skip


def note(error: BaseException, label: str, doing: str, context: Context) -> None:
    """Add to an exception of a processor the label of the processor, and the place in the text.

    Errors of logitloom say that themselves.
    """
    if isinstance(error, LogitloomError):
        return
    where = "before the first token" if context.tokens is None else "after accepted tokens"
    known = context.length is not None and context.prompt_length is not None and not context.compiled
    if known and context.backend.has_values(context.step):
        steps = np.asarray(context.backend.to_numpy(context.step)).tolist()
        where = f"at step {', '.join(map(str, sorted(set(steps))))}"
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    others = [frame for frame in frames if not frame.f_globals.get("__name__", "").startswith("logitloom.")]
    # The last frame of the processor's module; later frames belong to operations that the processor calls.
    last = next((frame for frame in reversed(others) if frame.f_globals is others[0].f_globals), None)
    named = last.f_code.co_names if last is not None and "context" in last.f_locals else ()
    absent = [name for name in named if "'NoneType'" in str(error) and name in _NONE_WHEN and _is_none(context, name)]
    remedy = "".join(f" context.{name} is None {_NONE_WHEN[name]}." for name in absent)
    error.add_note(f"Raised by {doing} of the processor {label!r}, {where}.{remedy}")


def _is_none(context: Context, name: str) -> bool:
    return getattr(context, "length" if name == "step" else name) is None


def writable(logits: Array) -> bool:
    """Whether an array may be overwritten: NumPy has arrays that may not, and views have numbers that share a place."""
    flags = getattr(logits, "flags", None)
    if flags is not None:
        return bool(getattr(flags, "writeable", True)) and (
            flags.c_contiguous or not _shares(logits.shape, logits.strides)
        )
    contiguous = getattr(logits, "is_contiguous", None)
    return contiguous is None or contiguous() or not _shares(logits.shape, logits.stride())


def _shares(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two entries of a strided array may be at one place, as after ``expand`` and ``broadcast_to``."""
    reach = 0
    for stride, size in sorted((abs(stride), size) for stride, size in zip(strides, shape, strict=True) if size > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False
