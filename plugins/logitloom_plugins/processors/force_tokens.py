"""Force tokens: dictate the token at certain positions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from logitloom import MASK, Array, Context, HostTable, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import OptionError
from logitloom_plugins.processors._token_table import check_ids

__all__ = ["ForceTokens"]

#: All positions are below this number, which bounds the size of the table.
_LAST = 1 << 20


@dataclass(frozen=True)
class ForceTokens(Processor):
    """At given positions allow one token only, with the logit 0.

    Positions count generated tokens from 0; the prompt does not count. A forced token that came in as -inf stays -inf,
    and the row is left without any legal token: no processor allows again what a constraint forbade.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("force_tokens", {"tokens": {0: 2}}))
        >>> logits = np.array([[1.0, 2.0, 3.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[-inf, -inf,   0.]], dtype=float32)

    References:
        Y. Tang et al., "Multilingual translation with extensible multilingual pretraining and finetuning", 2020
        (the target language as forced first token).
    """

    stage = "constraint"
    needs = frozenset({"length"})
    effect = MASK.but(writes="replaces")

    tokens: dict[int, int] = option(help="Position (0 = the first generated token) -> id.", ge=0, unit="id")

    def __post_init__(self) -> None:
        super().__post_init__()
        outside = [position for position in self.tokens if not 0 <= position < _LAST]
        if outside:
            raise OptionError(
                f"Option 'tokens' of 'force_tokens' names the position {outside[0]}; positions are the numbers of "
                f"generated tokens, 0 to {_LAST - 1}."
            )

    @cached_property
    def _table(self) -> HostTable:
        """Position -> id or -1, ``[last position + 2] int32``; the last entry stands for all later positions."""
        table = np.full(max(self.tokens, default=-1) + 2, -1, dtype=np.int32)
        table[list(self.tokens)] = list(self.tokens.values())
        return HostTable(table)

    def init_state(self, context: Context) -> tuple[()]:
        """Check the ids and upload the table; no state.

        Raises:
            OptionError: if an id lies outside the logits.
        """
        check_ids(list(self.tokens.values()), context.vocab_size, "tokens", "force_tokens")
        self._table.on(context.backend)
        return ()

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A masked fill, and one store per row."""
        if not self.tokens:
            return logits, state
        backend, xp = context.backend, context.backend.xp
        table = self._table.on(backend)
        position = context.step
        forced = xp.take(table, xp.where(position < table.shape[0], position, table.shape[0] - 1), axis=0)[:, None]
        entry = backend.gather(logits, xp.where(forced < 0, 0, forced))
        entry = backend.masked_fill(entry, entry > NEG_INF, 0.0)
        masked = backend.masked_fill(logits, forced >= 0, NEG_INF, context.donate)
        return backend.write_at(masked, forced, entry, donate=True), state

    def forced_tokens(self, context: Context) -> list[list[int]]:
        """Per row the tokens of the positions that come next, as far as they are dictated without a gap."""
        runs = []
        for position in context.backend.to_numpy(context.step).tolist():
            run: list[int] = []
            while (token := self.tokens.get(position + len(run))) is not None:
                run.append(token)
            runs.append(run)
        return runs
