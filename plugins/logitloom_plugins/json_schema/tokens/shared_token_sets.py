"""Token sets of a vocabulary, shared by all schemas: token sets made from the same parts are one object."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata.lift.trie import vocabulary_trie
from logitloom.constraints import TokenSet
from logitloom.vocabulary import kept_with_vocabulary

__all__ = ["TokenSets", "token_sets"]

#: The most bytes of ids that are kept for one vocabulary.
_MOST_BYTES: Final = 16 << 20
#: Bytes of a short list of ids with its key.
_ENTRY: Final = 256
#: Up to this number, ids are put in order by a sort; more ids are put in order by a boolean mask.
_SORTED: Final = 6000


@kept_with_vocabulary
def token_sets(vocabulary: Vocabulary, size: int) -> TokenSets:
    """The token sets of a vocabulary and a width of the logits."""
    return TokenSets(vocabulary, size)


class TokenSets:
    """Sorts ids, and keeps token sets by the parts from which they were made.

    Args:
        vocabulary: the tokens.
        size: width of the model's logits.

    Attributes:
        most: the largest number of ids that are listed as allowed; of more, the forbidden ids are listed.
    """

    def __init__(self, vocabulary: Vocabulary, size: int) -> None:
        self.size = size
        self.most = size // 2
        padding = np.arange(vocabulary.size, size, dtype=np.int32)
        self._textless: NDArray[np.int32] = np.concatenate([vocabulary_trie(vocabulary).textless, padding])
        self._known: dict[Hashable, TokenSet] = {}
        self._bytes = 0

    def once(self, key: Hashable, make: Callable[[], TokenSet]) -> TokenSet:
        """The set that was made for a key, or a new one."""
        known = self._known.get(key)
        if known is None:
            known = make()
            if self._bytes > _MOST_BYTES:
                # Sets that are in use stay valid.
                self._known, self._bytes = {}, 0
            self._known[key] = known
            self._bytes += known.ids.nbytes + _ENTRY
        return known

    def many(self, ids: NDArray[np.int32]) -> TokenSet:
        """The set of some allowed ids in any order, each once."""
        listed = len(ids) <= self.most
        if listed and len(ids) <= _SORTED:
            ids = ids.copy()
            ids.sort()
            return _frozen(True, ids)
        chosen = np.full(self.size, not listed)
        chosen[ids] = listed
        return _frozen(listed, chosen.nonzero()[0].astype(np.int32))

    def without(self, ids: NDArray[np.int32]) -> TokenSet:
        """The set of all ids with bytes but some, in any order."""
        ids = np.concatenate([ids, self._textless])
        ids.sort()
        return _frozen(False, ids)


def _frozen(listed: bool, ids: NDArray[np.int32]) -> TokenSet:
    ids.setflags(write=False)
    return TokenSet(listed, ids)
