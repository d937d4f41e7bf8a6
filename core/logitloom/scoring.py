"""Log-probabilities of given sequences under a chain, over all positions at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from logitloom import state as rows
from logitloom.backend import Array
from logitloom.context import Context, padded
from logitloom.errors import IllegalToken, InvalidContext

__all__ = ["Scores", "score"]

#: Positions and bytes of logits that are processed at a time.
_MOST_POSITIONS: Final = 64
_MOST_BYTES: Final = 1 << 26

Tokens = NDArray[np.int32]


class Scores(Protocol):
    """What is needed of a chain; see :class:`logitloom.Chain`."""

    sees_every_step: bool

    def init_state(self, context: Context) -> Any:
        """The state of a start."""
        ...

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """One step."""
        ...


def score(chain: Scores, logits: Array, tokens: Sequence[Sequence[int]] | Tokens, context: Context) -> Array:
    """The log-probabilities with which a sampler chooses the tokens from what the chain makes of the logits.

    A position is a row of its own: its state is that of the sequence's beginning, and it accepts all tokens before it
    in one call. So whatever processors do, they do it for many positions at once, and it is what they do in decoding.

    Args:
        chain: the processors.
        logits: ``[batch, time, vocab]``: those that each token was chosen from.
        tokens: per sequence its tokens, ragged, or ``[batch, time]`` with -1 behind the end.
        context: of the start.

    Returns:
        ``[batch, time] float32`` (float64 for such logits), 0 behind the end of a sequence.

    Raises:
        InvalidContext: if shapes do not fit together.
        IllegalToken: a token is one that a constraint forbids; names sequence and position.
            (Constraints on devices read nothing back to find it; there it scores -inf.)
    """
    taken = _checked(logits, tokens, context)
    backend = context.backend
    context = context.with_fields(donate=False, donate_state=False, pool=None)
    state = chain.init_state(context)
    batch, time, vocab = logits.shape
    fitting = _MOST_BYTES // max(4 * batch * vocab, 1)
    width = 1 if chain.sees_every_step else max(1, min(_MOST_POSITIONS, fitting, time))
    found: list[Array] = []
    for start in range(0, time, width):
        here = taken[:, start : start + width]
        lines = backend.xp.reshape(logits[:, start : start + width], (-1, vocab))
        given = context
        if width == 1:
            if start:
                # The state sees what came before along with the logits, as in decoding.
                before = np.where(here >= 0, taken[:, start - 1 : start], -1)
                told = backend.xp.where(backend.asarray(before) >= 0, found[-1], backend.xp.zeros_like(found[-1]))
                given = context.accept(before, chosen_logprob=told)
            processed, state = _processed(chain, lines, state, given, start, 1)
        else:
            index, before = _positions(here, taken[:, start - 1] if start else np.full(batch, -1, dtype=np.int32))
            at = rows.take(state, index)
            given = context.with_fields(batch=len(index)).accept(before)
            processed, after = _processed(chain, lines, at, given, start, here.shape[1])
            if start + width < time:
                # The last position has seen all tokens before it; those that follow learn of its own token.
                state = rows.take(after, np.arange(1, batch + 1, dtype=np.int32) * np.int32(width) - np.int32(1))
        chosen = backend.asarray(np.maximum(here, 0).reshape(-1, 1))
        logprob = backend.xp.reshape(backend.gather(backend.log_softmax(processed), chosen), here.shape)
        found.append(backend.xp.where(backend.asarray(here) >= 0, logprob, backend.xp.zeros_like(logprob)))
    return backend.xp.concat(found, axis=1) if found else backend.asarray(np.zeros((batch, 0), dtype=np.float32))


def _positions(here: Tokens, last: Tokens) -> tuple[Tokens, Tokens]:
    """For each sequence and position the sequence, and the tokens before the position; none behind the end.

    Args:
        here: ``[batch, width]``, the tokens of some positions.
        last: ``[batch]``, the token before them, -1 for none.
    """
    batch, width = here.shape
    told = np.concatenate([last[:, None], here[:, :-1]], axis=1)
    seen = np.tri(width, dtype=bool) & (here[:, :, None] >= 0)
    before = np.where(seen, told[:, None, :], np.int32(-1))
    return np.repeat(np.arange(batch, dtype=np.int32), width), before.reshape(batch * width, width)


def _processed(chain: Scores, lines: Array, state: Any, context: Context, start: int, width: int) -> tuple[Array, Any]:
    """What the chain makes of some positions, and a message that names the sequence if one cannot be."""
    try:
        return chain.process(lines, state, context)
    except IllegalToken as error:
        row, place = divmod(error.row, width)
        message = f"Sequence {row}, before its position {start + place}: {error}"
        raise IllegalToken(message, row=row) from error


def _checked(logits: Array, tokens: Sequence[Sequence[int]] | Tokens, context: Context) -> Tokens:
    """The tokens as ``[batch, time] int32``."""
    if logits.ndim != 3 or logits.shape[0] != context.batch:
        raise InvalidContext(
            f"Sequences are scored with logits [batch, time, vocab] for the {context.batch} rows of the context, but "
            f"the logits have the shape {list(logits.shape)}."
        )
    host = padded(tokens)
    batch, time = logits.shape[:2]
    if len(host) != batch or host.shape[1] > time:
        raise InvalidContext(
            f"The logits are those of {batch} sequences of {time} tokens at most, but {len(host)} sequences of up to "
            f"{host.shape[1]} tokens are to be scored."
        )
    whole = np.full((batch, time), -1, dtype=np.int32)
    whole[:, : host.shape[1]] = host
    gaps = (whole[:, :-1] < 0) & (whole[:, 1:] >= 0)
    if gaps.any():
        row, place = (int(i) for i in np.argwhere(gaps)[0])
        raise InvalidContext(f"Sequence {row} has no token at position {place}, but one behind it. Close the gap.")
    return whole
