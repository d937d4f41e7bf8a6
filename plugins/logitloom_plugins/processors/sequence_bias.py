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
from logitloom_plugins.processors._sequences import Sequences, check_sequences
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
    biases: tuple[float, ...] = option(
        help="The bias of each of them, at least -10000, or -inf, which forbids.", le=1e4
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sequences(self.sequences, "sequence_bias")
        if len(self.sequences) != len(self.biases):
            raise OptionError(
                f"Options 'sequences' and 'biases' of 'sequence_bias' must be as many sequences as biases, but are "
                f"{len(self.sequences)} sequences and {len(self.biases)} biases. Give one bias for each sequence."
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
    def _biases(self) -> HostTable:
        """``[1, sequences] float32``, in the order of the tables."""
        return HostTable(np.asarray(self.biases, dtype=np.float32)[None, self._tables.order])

    @cached_property
    def _endings(self) -> tuple[HostTable, list[HostTable]]:
        """The distinct last ids, ``[1, n] int32``, sorted by how many sequences end with them; and for each such number
        the sequences that end with its ids, ``[ids, number] int32``.
        """
        last, column, counts = np.unique(self._tables.last, return_inverse=True, return_counts=True)
        groups = [counts == number for number in np.unique(counts)]
        by_last = np.argsort(column, kind="stable")
        ids = np.concatenate([last[group] for group in groups])[None, :]
        ending = [by_last[group.repeat(counts)].reshape(group.sum(), -1) for group in groups]
        return HostTable(ids.astype(np.int32)), [HostTable(table.astype(np.int32)) for table in ending]

    def init_state(self, context: Context) -> Recent:
        """The end of the prompt.

        Raises:
            OptionError: if an id lies outside the logits.
        """
        check_ids([i for s in self.sequences for i in s], context.vocab_size, "sequences", "sequence_bias")
        ids, groups = self._endings
        for table in (self._biases, ids, *groups):
            table.on(context.backend)
        return self._tables.start(context)

    def states_after(self, state: Recent, context: Context) -> Recent:
        """A window per token."""
        return windows(state, context)

    def process(self, logits: Array, state: Recent, context: Context) -> tuple[Array, Recent]:
        """A comparison per sequence and row, and a store per last id."""
        backend, xp = context.backend, context.backend.xp
        state = self._tables.advance(state, context)
        added = xp.where(self._tables.completed(state, context), self._biases.on(backend), 0.0)
        ids, groups = self._endings
        sums = []
        for group in (table.on(backend) for table in groups):
            of_group = xp.take(added, xp.reshape(group, (-1,)), axis=1)
            sums.append(xp.sum(xp.reshape(of_group, (-1, *group.shape)), axis=-1))
        index = xp.broadcast_to(ids.on(backend), (logits.shape[0], ids.host.shape[1]))
        entries = backend.at_least_float32(backend.gather(logits, index)) + xp.concat(sums, axis=1)
        return backend.write_at(logits, index, in_dtype_of(logits, backend, entries), context.donate), state
