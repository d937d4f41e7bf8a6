"""The ids that end a sequence: given as an option, or the tokenizer's."""

from __future__ import annotations

import numpy as np

from logitloom import Context, HostTable
from logitloom.errors import NeedsNotMet
from logitloom_plugins.processors._token_table import check_ids

__all__ = ["end_ids", "end_needs", "ends_table"]


def end_needs(eos: tuple[int, ...] | None, *others: str) -> frozenset[str]:
    """The needs of a processor of ends: the vocabulary if the ids are not given, and other needs."""
    return frozenset(others) | (frozenset() if eos is not None else frozenset({"vocabulary"}))


def end_ids(eos: tuple[int, ...] | None, context: Context, owner: str) -> tuple[int, ...]:
    """The ids, at least one.

    Args:
        eos: the option, None for the tokenizer's.
        context: of the start or of a step.
        owner: name of the processor, for messages.

    Raises:
        NeedsNotMet: if there is no such id.
        OptionError: if an id lies outside the logits.
    """
    ids = eos if eos is not None else context.vocabulary.eos if context.vocabulary is not None else ()
    if not ids:
        name = context.vocabulary.name if eos is None and context.vocabulary is not None else "option 'eos'"
        raise NeedsNotMet(
            f"Processor {owner!r} finds no end-of-sequence id in {name}, so it cannot know what ends a row. Give the "
            f"ids with the option 'eos'."
        )
    check_ids(ids, context.vocab_size, "eos", owner)
    return tuple(ids)


def ends_table(ids: tuple[int, ...]) -> HostTable:
    """The ids as ``[1, n] int32``, uploaded once per backend."""
    table = _TABLES.get(ids)
    if table is None:
        table = _TABLES[ids] = HostTable(np.asarray([ids], dtype=np.int32).reshape(1, len(ids)))
    return table


#: The few tuples of ids that occur.
_TABLES: dict[tuple[int, ...], HostTable] = {}
