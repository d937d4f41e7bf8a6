"""Tables over the vocabulary made from token ids, uploaded once per backend and width of the logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from logitloom import Array, Backend, HostTable
from logitloom.errors import OptionError

__all__ = ["TokenTable", "check_ids"]


def check_ids(ids: Sequence[int], vocab: int, option: str, owner: str) -> None:
    """Raise if an id lies outside the logits.

    Raises:
        OptionError: naming the id, the option and the range.
    """
    outside = [i for i in ids if not 0 <= i < vocab]
    if outside:
        raise OptionError(
            f"Option {option!r} of {owner!r} names the token {outside[0]}, but the logits have ids 0 to {vocab - 1}. "
            f"Take the ids from the tokenizer of this model."
        )


class TokenTable:
    """A row over the vocabulary: bool for a set of ids, float32 for a mapping from id to value.

    Args:
        ids: the ids, or a mapping from id to value.
        option: name of the option they come from, for messages.
        owner: name of the processor, for messages.
        invert: true for all ids but the given ones.
    """

    def __init__(self, ids: Sequence[int] | Mapping[int, float], option: str, owner: str, invert: bool = False) -> None:
        self._ids, self._option, self._owner, self._invert = ids, option, owner, invert
        self._tables: dict[int, HostTable] = {}

    def on(self, backend: Backend, vocab: int) -> Array:
        """The table as ``[1, vocab]`` on a backend.

        Raises:
            OptionError: if an id lies outside the logits.
        """
        table = self._tables.get(vocab)
        if table is None:
            table = self._tables[vocab] = HostTable(self._host(vocab))
        return table.on(backend)

    def _host(self, vocab: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_] | np.dtype[np.float32]]:
        check_ids(list(self._ids), vocab, self._option, self._owner)
        if isinstance(self._ids, Mapping):
            values = np.zeros((1, vocab), dtype=np.float32)
            values[0, list(self._ids)] = list(self._ids.values())
            return values
        chosen = np.full((1, vocab), self._invert, dtype=np.bool_)
        chosen[0, list(self._ids)] = not self._invert
        return chosen
