"""Logit bias: add a number to the logits of certain tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from logitloom import BIAS, MASK, Array, Context, Effect, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import OptionError
from logitloom.processor import Stage
from logitloom_plugins.processors._precision import is_float16, saturated
from logitloom_plugins.processors._token_table import TokenTable, check_ids

__all__ = ["LogitBias"]


@dataclass(frozen=True)
class LogitBias(Processor):
    """Add a bias to the logits of some tokens: ``out[token] = logits[token] + bias[token]``.

    A bias of ``-inf`` forbids the token; a logit of -inf stays -inf. There is no ``+inf``: it would meet a forbidden
    token in NaN; the processor ``force_tokens`` forces.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("logit_bias", {"bias": {1: 2.5}}))
        >>> logits = np.array([[1.0, 2.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[1. , 4.5]], dtype=float32)

    References:
        OpenAI, "API reference: chat completions, logit_bias", 2023.
    """

    bias: dict[int, float] = option(
        help="Table from id to the number added to its logit, at least -10000, or -inf, which forbids the token.",
        le=1e4,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ids([i for i in self.bias if i < 0], 1 << 31, "bias", "logit_bias")
        lowest = min((value for value in self.bias.values() if value > -math.inf), default=0.0)
        if lowest < -1e4:
            raise OptionError(
                f"Option 'bias' of 'logit_bias' must hold numbers from -10000 to 10000, or -inf to forbid a token, but "
                f"has {lowest!r}."
            )

    @property
    def stage(self) -> Stage:  # type: ignore[override]
        """A constraint if it forbids, else a penalty."""
        return "constraint" if -math.inf in self.bias.values() else "penalty"

    @property
    def effect(self) -> Effect:  # type: ignore[override]
        """A mask if every bias is -inf; a bias if no bias is -inf."""
        kind = BIAS if self.stage == "penalty" else MASK.but(writes="replaces")
        return MASK if all(value == -math.inf for value in self.bias.values()) else kind

    @cached_property
    def _table(self) -> TokenTable:
        return TokenTable(self.bias, "bias", "logit_bias")

    def init_state(self, context: Context) -> tuple[()]:
        """Upload the table; no state.

        Raises:
            OptionError: if an id lies outside the logits.
        """
        self._table.on(context.backend, context.vocab_size)
        return ()

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """One addition."""
        if not self.bias:
            return logits, state
        backend, table = context.backend, self._table.on(context.backend, logits.shape[-1])
        if is_float16(backend, logits):
            out = saturated(backend, logits, backend.add(logits, table))
            return backend.masked_fill(out, table == NEG_INF, NEG_INF, True), state
        return backend.add(logits, table, context.donate), state
