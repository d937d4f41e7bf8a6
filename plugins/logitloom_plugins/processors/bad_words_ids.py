"""Bans by ids: forbid the last token of given sequences of ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from logitloom import MASK, Array, Context, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.occurrences import Recent, windows
from logitloom_plugins.processors._sequences import Sequences, check_sequences
from logitloom_plugins.processors._token_table import check_ids

__all__ = ["BadWordsIds"]


@dataclass(frozen=True)
class BadWordsIds(Processor):
    """Forbid each token that would complete one of some sequences of ids.

    A sequence of one id is forbidden always. The prompt counts as the beginning of the text. The same text in other
    tokens is not found: ``bad_words`` bans texts, however they are split.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("bad_words_ids", {"sequences": [[3], [1, 2]]}))
        >>> logits = np.zeros((2, 4), dtype=np.float32)
        >>> context = Context.start(logits, prompt=[[1], [2]])
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[  0.,   0., -inf, -inf],
               [  0.,   0.,   0., -inf]], dtype=float32)

    References:
        T. Wolf et al., "Transformers: state-of-the-art natural language processing", 2020 (its ``bad_words_ids``).
    """

    stage = "constraint"
    needs = frozenset({"prompt"})
    effect = MASK

    sequences: tuple[tuple[int, ...], ...] = option(help="Sequences of ids that must not occur.", ge=0, unit="id")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sequences(self.sequences, "bad_words_ids")

    @cached_property
    def _tables(self) -> Sequences:
        return Sequences(self.sequences)

    def init_state(self, context: Context) -> Recent:
        """The end of the prompt.

        Raises:
            OptionError: if an id lies outside the logits.
        """
        check_ids([i for s in self.sequences for i in s], context.vocab_size, "sequences", "bad_words_ids")
        return self._tables.start(context)

    def states_after(self, state: Recent, context: Context) -> Recent:
        """A window per token."""
        return windows(state, context)

    def process(self, logits: Array, state: Recent, context: Context) -> tuple[Array, Recent]:
        """A comparison per sequence and row, and a store for each that is about to be completed."""
        backend = context.backend
        state = self._tables.advance(state, context)
        ends = self._tables.ends.on(backend)[None, :]
        index = backend.xp.where(self._tables.completed(state, context), ends, -1)
        return backend.set_at(logits, index, NEG_INF, context.donate), state
