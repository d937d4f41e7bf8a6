"""Whisper's time stamps: in pairs, never backwards, and taken where their mass is larger than any word's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from logitloom import MASK, Array, Context, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import OptionError

__all__ = ["WhisperTimestamps", "WhisperTimestampsState"]


class WhisperTimestampsState(NamedTuple):
    """State: a row tree.

    Attributes:
        last: ``[rows] int32``, the newest generated token, -1 for none.
        before: ``[rows] int32``, the generated token before ``last``, -1 for none.
        stamp: ``[rows] int32``, the newest time stamp, -1 for none.
    """

    last: Array
    before: Array
    stamp: Array


@dataclass(frozen=True)
class WhisperTimestamps(Processor):
    """Make the rows write segments as Whisper was trained on: ``<|start|> words <|end|>``, one after the other.

    Ids above ``no_timestamps`` are time stamps, in the order of time.

    - ``no_timestamps`` itself is forbidden.
    - The first generated token is a time stamp, not later than the ``max_initial``-th.
    - After the end of a segment (a time stamp that follows a word) comes a time stamp or the end of sequence; after
      two time stamps, or one at the very beginning, a word or the end.
    - Time stamps never go back, and a segment is not empty: its end is later than its start.
    - With ``by_mass``: where time stamps together are likelier than every single other token, the others are forbidden.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> options = {"no_timestamps": 3, "eos": 2, "max_initial": 1}
        >>> chain = processors.load(("whisper_timestamps", options))
        >>> logits = np.zeros((1, 8), dtype=np.float32)
        >>> context = Context.start(logits)
        >>> np.isfinite(chain.process(logits, chain.init_state(context), context)[0]).astype(int)
        array([[0, 0, 0, 0, 1, 1, 0, 0]])

    References:
        A. Radford et al., "Robust speech recognition via large-scale weak supervision", 2022, section 4.5.
    """

    stage = "constraint"
    needs = frozenset({"length"})
    effect = MASK.but(reads=("distribution", "ids", "seen"))

    no_timestamps: int = option(help="The id before the first time stamp.", ge=0, unit="id")
    eos: int = option(help="The id that ends a sequence; words have lower ids.", ge=0, unit="id")
    max_initial: int | None = option(
        None,
        help="Latest time stamp that a row may begin with, counted from 0; default: any.",
        ge=0,
        unit="time stamps",
    )
    by_mass: bool = option(
        True, help="Whether only time stamps are allowed where their total probability exceeds that of each text token."
    )

    def init_state(self, context: Context) -> WhisperTimestampsState:
        """Nothing generated.

        Raises:
            OptionError: if there is no time stamp within the logits, or no end below the time stamps.
        """
        if self.eos >= self.no_timestamps:
            raise OptionError(
                f"Option 'eos' of 'whisper_timestamps' is {self.eos}, but must lie below no_timestamps, which is "
                f"{self.no_timestamps}: words have the lowest ids, time stamps the highest. Take the ids from the "
                f"tokenizer of this model."
            )
        if self.no_timestamps + 1 >= context.vocab_size:
            raise OptionError(
                f"Option 'no_timestamps' of 'whisper_timestamps' is {self.no_timestamps}, but the logits have ids 0 to "
                f"{context.vocab_size - 1}, so no time stamp is left. Take the id from the tokenizer of this model."
            )
        none = np.full(context.batch, -1, dtype=np.int32)
        return WhisperTimestampsState(*(context.backend.asarray(none) for _ in range(3)))

    def process(
        self, logits: Array, state: WhisperTimestampsState, context: Context
    ) -> tuple[Array, WhisperTimestampsState]:
        """Comparisons of ids, a masked fill, and with ``by_mass`` a softmax and another one."""
        backend, xp = context.backend, context.backend.xp
        state = self._advanced(state, context)
        begin = self.no_timestamps + 1
        ids = backend.arange(logits.shape[-1])[None, :]
        stamps = ids >= begin
        after_stamp = state.last >= begin
        # A row's first token counts as the second of a pair.
        pair = (state.before < 0) | (state.before >= begin)
        closed, opened = (after_stamp & ~pair)[:, None], (after_stamp & pair)[:, None]
        least = xp.where(state.stamp < 0, begin, xp.where(after_stamp & ~pair, state.stamp, state.stamp + 1))[:, None]
        forbidden = (ids == self.no_timestamps) | (opened & stamps) | (closed & (ids < self.eos))
        forbidden = forbidden | (stamps & (ids < least))
        first = ~stamps if self.max_initial is None else ~stamps | (ids > begin + self.max_initial)
        forbidden = forbidden | ((context.step == 0)[:, None] & first)
        out = backend.masked_fill(logits, forbidden, NEG_INF, context.donate)
        if self.by_mass:
            p = backend.softmax(out)
            mass = xp.sum(xp.where(stamps, p, xp.zeros_like(p)), axis=-1, keepdims=True)
            word = xp.max(xp.where(stamps, xp.zeros_like(p), p), axis=-1, keepdims=True)
            out = backend.masked_fill(out, (mass > word) & ~stamps, NEG_INF, True)
        return out, state

    def _advanced(self, state: WhisperTimestampsState, context: Context) -> WhisperTimestampsState:
        xp, (last, before, stamp) = context.backend.xp, state
        for n in range(0 if context.tokens is None else context.tokens.shape[1]):
            token = context.backend.cast(context.tokens[:, n], "int32")  # type: ignore[index]
            there = token >= 0
            before, last = xp.where(there, last, before), xp.where(there, token, last)
            stamp = xp.where(token > self.no_timestamps, token, stamp)
        return WhisperTimestampsState(last, before, stamp)
