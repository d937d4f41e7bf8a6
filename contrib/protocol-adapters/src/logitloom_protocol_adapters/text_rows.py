"""Texts of an engine that calls a processor with one row of ids at a time, and tells neither whose nor its prompt."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Chain
from logitloom_contrib.row_tracking import RowTracker

__all__ = ["TextRows"]

#: Texts whose prompt length is remembered.
_TEXTS: Final = 4096


class TextRows:
    """A chain for rows that come one by one.

    A row with the ids of an earlier one and one more, or with the same, goes on with that text. Any other begins one,
    and its ids are the prompt.

    Args:
        chain: the processors.
        seed: of processors that draw random numbers; rows with equal ids draw equal numbers.
    """

    def __init__(self, chain: Chain, seed: int) -> None:
        eos = chain.vocabulary.eos if chain.vocabulary is not None else ()
        self._tracker = RowTracker(chain, eos=eos, seed=seed)
        #: Ids of a text so far -> how many of them are its prompt.
        self._prompt_lengths: OrderedDict[bytes, int] = OrderedDict()

    def process(self, row: NDArray[Any], logits: Array) -> Array:
        """Process logits ``[vocab]`` after ids ``[length]``; not in place."""
        ids = np.ascontiguousarray(row, dtype=np.int64)
        length = self._prompt_lengths.get(ids.tobytes())
        if length is None:
            length = self._prompt_lengths.get(ids[:-1].tobytes(), len(ids)) if len(ids) else 0
        self._prompt_lengths[ids.tobytes()] = length
        self._prompt_lengths.move_to_end(ids.tobytes())
        while len(self._prompt_lengths) > _TEXTS:
            self._prompt_lengths.popitem(last=False)
        return self._tracker.process(logits[None], ids[None], prompt_lengths=[length])[0]
