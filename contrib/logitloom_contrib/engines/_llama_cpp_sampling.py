"""What a ``Llama`` does while it calls a processor, and how an error of the processor gets out of it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.errors import InvalidContext
from logitloom_contrib.engines._given import told

__all__ = ["Bias", "Sampling", "armed", "bias_of", "sampling"]


class Sampling(NamedTuple):
    """The call of ``Llama.sample`` in which a processor is called.

    Attributes:
        llama: the ``Llama``; None if something else calls.
        own_grammar: whether it samples with a grammar as well.
        text: how many of the ids are text; drafts that are not verified stand behind them. None: all.
        sampler: the library's sampler of this text; None if the sampler is not known, or was made for one token.
        frame: of ``Llama.sample``.
    """

    llama: Any = None
    own_grammar: bool = False
    text: int | None = None
    sampler: Any = None
    frame: Any = None

    def room(self, length: int) -> int:
        """The most tokens that the library generates after ``length`` ids, by ``max_tokens`` and the context size.

        The library stores as many ids as ``n_ctx`` of the ``Llama`` says; llama.cpp may round it up.
        """
        rooms, frame = [min(int(self.llama.n_ctx()), len(self.llama.input_ids)) - length], self.frame
        while frame is not None:
            found = frame.f_locals
            if "completion_tokens" in found and isinstance(found.get("max_tokens"), int):
                # The token with which the text of an empty prompt begins counts.
                rooms.append(found["max_tokens"] - len(found["completion_tokens"]))
                break
            frame = frame.f_back
        return min(rooms)


def sampling(frame: Any) -> Sampling:
    """What the library's own frames say about a call, from the caller's frame on."""
    llama = None
    while frame is not None:
        found = frame.f_locals
        held = found.get("self")
        if callable(getattr(held, "detokenize", None)) and hasattr(held, "sample"):
            llama = held
            if "grammar" in found:
                index = found.get("idx")  # of the last id of the text
                sampler = None if found.get("tmp_sampler") else getattr(llama, "_sampler", None)
                text = None if index is None else index + 1
                return Sampling(llama, found["grammar"] is not None, text, sampler, frame)
        frame = frame.f_back
    return Sampling(llama)


def armed(llama: Any, raise_error: Callable[[], None]) -> Callable[[], None]:
    """Make a ``Llama`` raise an error at the next thing that it does with the new token.

    The next thing is to turn the token into text, or to sample the token after it.

    Returns:
        A function that restores the ``Llama``.
    """
    replaced = {name: vars(llama)[name] for name in ("detokenize", "sample") if name in vars(llama)}

    def disarm() -> None:
        for name in ("detokenize", "sample"):
            vars(llama).pop(name, None)
        vars(llama).update(replaced)

    def raising(*args: Any, **more: Any) -> None:
        raise_error()

    llama.detokenize = llama.sample = raising
    return disarm


class Bias(NamedTuple):
    """Ids ``[n]`` (int64), and the numbers that are added to their logits (float32)."""

    tokens: NDArray[np.int64]
    added: NDArray[np.float32]


def bias_of(given: Any, size: int) -> Bias:
    """The biases that ``logit_bias`` asks for. The library drops the whole table if one id is out of range.

    Args:
        given: ids (integers, or integers as text) to numbers; -inf forbids an id. None asks for nothing.
        size: how many ids the model has.

    Raises:
        InvalidContext: naming the entry.
    """
    if not isinstance(given, Mapping | None):
        raise InvalidContext(f"'logit_bias' must be a table from token ids to numbers, but is {told(given)}.")
    tokens, added = [], []
    for token, value in (given or {}).items():
        try:
            index = int(token) if isinstance(token, str) else operator.index(token)
            with np.errstate(over="ignore"):
                number = np.float32(value)
            if not number < np.inf:
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            raise InvalidContext(
                f"'logit_bias' must be a table from token ids to numbers, but has {token!r:.60}: {value!r:.60}."
            ) from None
        if not 0 <= index < size:
            raise InvalidContext(
                f"'logit_bias' names the token {index}, but the model has ids 0 to {size - 1}. Take the ids from the "
                f"tokenizer of this model."
            )
        tokens.append(index)
        added.append(number)
    return Bias(np.asarray(tokens, dtype=np.int64), np.asarray(added, dtype=np.float32))
