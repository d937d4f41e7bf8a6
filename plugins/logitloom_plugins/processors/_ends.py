"""The ids that end a sequence: given as an option, or the tokenizer's."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np

from logitloom import Array, Context, HostTable, Processor
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import NeedsNotMet
from logitloom_plugins.processors._token_table import check_ids

__all__ = ["EndProcessor", "end_needs"]


def end_needs(eos: tuple[int, ...] | None, *others: str) -> frozenset[str]:
    """The needs of a processor of ends: the vocabulary if the ids are not given, and other needs."""
    return frozenset(others) | (frozenset() if eos is not None else frozenset({"vocabulary"}))


class EndProcessor(Processor):
    """What processors of end-of-sequence have in common. Subclasses declare the option ``eos``.

    Attributes:
        owner: name of the processor, for messages.
        eos: the ids that end a sequence; ``None`` for those of the tokenizer.
    """

    owner: ClassVar[str]
    eos: tuple[int, ...] | None

    def init_state(self, context: Context) -> tuple[()]:
        """Check the ids and upload them; no state.

        Raises:
            NeedsNotMet: if there is no end-of-sequence id.
            OptionError: if an id lies outside the logits.
        """
        self._ends(context)
        return ()

    @cached_property
    def _tables(self) -> dict[tuple[int, ...], HostTable]:
        """The ids of each vocabulary as ``[1, n] int32``, uploaded once per backend."""
        return {}

    def _ends(self, context: Context) -> Array:
        """``[1, n] int32``: the ids, on the device."""
        ids = self._end_ids(context)
        table = self._tables.get(ids)
        if table is None:
            table = self._tables[ids] = HostTable(np.asarray([ids], dtype=np.int32))
        return table.on(context.backend)

    def _only_ends(self, logits: Array, rows: Array, index: Array, context: Context) -> Array:
        """The logits with -inf for all but the ends in some rows.

        Args:
            logits: ``[batch, vocab]``.
            rows: ``[batch, 1] bool``, which rows.
            index: ``[batch, n]``, the ends.
            context: of the step.
        """
        backend = context.backend
        ends = backend.gather(logits, index)
        masked = backend.masked_fill(logits, rows, NEG_INF, context.donate)
        return backend.write_at(masked, index, ends, donate=True)

    def _end_ids(self, context: Context) -> tuple[int, ...]:
        """The ids, at least one; errors as of :meth:`init_state`."""
        eos, vocabulary, owner = self.eos, context.vocabulary, self.owner
        ids = eos if eos is not None else vocabulary.eos if vocabulary is not None else ()
        if not ids:
            name = vocabulary.name if eos is None and vocabulary is not None else "option 'eos'"
            raise NeedsNotMet(
                f"Processor {owner!r} finds no end-of-sequence id in {name}, so it cannot know what ends a row. Give "
                f"the ids with the option 'eos'."
            )
        check_ids(ids, context.vocab_size, "eos", owner)
        return tuple(ids)
