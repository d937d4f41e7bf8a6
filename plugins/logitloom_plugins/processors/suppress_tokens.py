"""Suppress tokens: forbid certain ids, always or as the first generated token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from logitloom import MASK, Array, Context, HostTable, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.processors._token_table import TokenTable, check_ids

__all__ = ["SuppressTokens"]

#: Largest number of ids that are written one at a time. For longer lists one pass over the vocabulary is cheaper.
_LONGEST_LIST = 256


@dataclass(frozen=True)
class SuppressTokens(Processor):
    """Set the logits of some tokens to -inf.

    With ``begin`` only where a row has generated nothing yet.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("suppress_tokens", {"tokens": [1]}))
        >>> logits = np.array([[1.0, 2.0, 3.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[  1., -inf,   3.]], dtype=float32)

    References:
        A. Radford et al., "Robust speech recognition via large-scale weak supervision", 2022 (suppressed ids at
        all positions and at the first).
    """

    stage = "constraint"
    effect = MASK

    tokens: tuple[int, ...] = option(help="Ids to forbid.", ge=0, unit="id")
    begin: bool = option(False, help="Whether the ids are forbidden only as the first generated token.")

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The length, if only the first token is concerned."""
        return frozenset({"length"}) if self.begin else frozenset()

    @cached_property
    def _ids(self) -> HostTable:
        return HostTable(np.unique(np.asarray(self.tokens, dtype=np.int32)))

    @cached_property
    def _table(self) -> TokenTable:
        return TokenTable(self.tokens, "tokens", "suppress_tokens")

    def init_state(self, context: Context) -> tuple[()]:
        """Check the ids and upload them; no state."""
        check_ids(self.tokens, context.vocab_size, "tokens", "suppress_tokens")
        if len(self.tokens) <= _LONGEST_LIST:
            self._ids.on(context.backend)
        else:
            self._table.on(context.backend, context.vocab_size)
        return ()

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A store per token and row; with many tokens a masked fill."""
        if not self.tokens:
            return logits, state
        backend, xp = context.backend, context.backend.xp
        if len(self.tokens) <= _LONGEST_LIST:
            ids = self._ids.on(backend)
            if not self.begin:
                return backend.fill_columns(logits, ids, NEG_INF, context.donate), state
            index = xp.where(context.step[:, None] == 0, ids[None, :], -1)
            return backend.set_at(logits, index, NEG_INF, context.donate), state
        forbidden = self._table.on(backend, logits.shape[-1])
        if self.begin:
            forbidden = forbidden & (context.step[:, None] == 0)
        return backend.masked_fill(logits, forbidden, NEG_INF, context.donate), state
