"""Sequence bias: add to the logit of a token that would complete a given sequence of ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from logitloom import BIAS, MASK, Array, Context, Effect, HostTable, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import OptionError
from logitloom_plugins.occurrences import Recent, windows
from logitloom_plugins.processors._precision import in_dtype_of
from logitloom_plugins.processors._sequences import Sequences
from logitloom_plugins.processors._token_table import check_ids

__all__ = ["SequenceBias"]


@dataclass(frozen=True)
class SequenceBias(Processor):
    """Add a bias to the logit of each token that would complete one of some sequences of ids.

    Biases of several sequences that end with the same token add up. The prompt counts as the beginning of the text. A
    bias of -inf forbids.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("sequence_bias", {"sequences": [[3], [1, 2]], "biases": [1.0, -2.0]}))
        >>> logits = np.zeros((2, 4), dtype=np.float32)
        >>> context = Context.start(logits, prompt=[[1], [2]])
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[ 0.,  0., -2.,  1.],
               [ 0.,  0.,  0.,  1.]], dtype=float32)

    References:
        T. Wolf et al., "Transformers: state-of-the-art natural language processing", 2020 (its ``sequence_bias``).
    """

    stage = "penalty"
    needs = frozenset({"prompt"})

    sequences: tuple[tuple[int, ...], ...] = option(help="Sequences of ids.", ge=0, unit="id")
    biases: tuple[float, ...] = option(help="The bias of each of them; -inf forbids.", le=1e4)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sequences or not all(self.sequences) or len(self.sequences) != len(self.biases):
            raise OptionError(
                f"Options 'sequences' and 'biases' of 'sequence_bias' must be as many sequences of at least one id as "
                f"biases, but are {self.sequences!r} and {self.biases!r}."
            )
        lowest = min((bias for bias in self.biases if bias > NEG_INF), default=0.0)
        if lowest < -1e4:
            raise OptionError(
                f"Option 'biases' of 'sequence_bias' must hold numbers from -10000 to 10000, or -inf to forbid a "
                f"sequence, but has {lowest!r}."
            )

    @property
    def effect(self) -> Effect:  # type: ignore[override]
        """A bias, unless one forbids."""
        return BIAS if NEG_INF not in self.biases else MASK.but(writes="replaces")

    @cached_property
    def _tables(self) -> Sequences:
        return Sequences(self.sequences)

    @cached_property
    def _weights(self) -> tuple[HostTable, HostTable, HostTable]:
        """The distinct last ids ``[1, n]``, and per sequence and last id the bias and whether it forbids."""
        last, column = np.unique(self._tables.last, return_inverse=True)
        biases = np.asarray(self.biases, dtype=np.float32)
        added = np.zeros((len(biases), len(last)), dtype=np.float32)
        added[np.arange(len(biases)), column] = np.where(np.isfinite(biases), biases, 0.0)
        forbids = np.zeros_like(added)
        forbids[np.arange(len(biases)), column] = biases == NEG_INF
        return HostTable(last[None, :].astype(np.int32)), HostTable(added), HostTable(forbids)

    def init_state(self, context: Context) -> Recent:
        """The end of the prompt.

        Raises:
            OptionError: if an id lies outside the logits.
        """
        check_ids([i for s in self.sequences for i in s], context.vocab_size, "sequences", "sequence_bias")
        for table in self._weights:
            table.on(context.backend)
        return self._tables.start(context)

    def states_after(self, state: Recent, context: Context) -> Recent:
        """A window per token."""
        return windows(state, context)

    def process(self, logits: Array, state: Recent, context: Context) -> tuple[Array, Recent]:
        """A comparison per sequence and row, and a store per last id."""
        backend, xp = context.backend, context.backend.xp
        state = self._tables.advance(state, context)
        completed = backend.cast(self._tables.completed(state, context), "float32")
        last, added, forbids = (table.on(backend) for table in self._weights)
        index = xp.broadcast_to(last, (logits.shape[0], last.shape[1]))
        entries = backend.at_least_float32(backend.gather(logits, index)) + xp.matmul(completed, added)
        entries = backend.masked_fill(entries, xp.matmul(completed, forbids) > 0, NEG_INF)
        return backend.write_at(logits, index, in_dtype_of(logits, backend, entries), context.donate), state
