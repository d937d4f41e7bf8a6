"""Prompt look-up: draft the tokens that followed an earlier occurrence of the last tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logitloom import Context, option
from logitloom.generation import Configured, DraftRequest, Drafts, legal_prefix, until_end

__all__ = ["PromptLookup"]

#: Earlier occurrences that are tried per length of the n-gram.
_TRIES = 4


@dataclass(frozen=True)
class PromptLookup(Configured):
    """Draft the continuation of an earlier occurrence of the last n-gram, for texts that repeat their input.

    The draft follows the first occurrence of the longest n-gram at the end of the text that occurs earlier, too. A
    draft is cut off before the first token that the constraints of the chain forbid. If nothing is left, the next
    occurrence is tried.

    Example:
        >>> from logitloom import Vocabulary
        >>> PromptLookup(max_ngram=2).continuation([5, 6, 7, 8, 5, 6], 10)
        [7, 8, 5, 6]

    References:
        A. Saxena, "Prompt lookup decoding", 2023; N. Yang et al., "Inference with reference: lossless acceleration of
        large language models", 2023.
    """

    max_ngram: int = option(2, help="Longest n-gram that is looked up.", ge=1, unit="tokens")
    num_tokens: int = option(10, help="Most tokens of a draft.", ge=1, unit="tokens")

    def init_state(self, context: Context) -> tuple[()]:
        """Nothing: the texts are all there is to know."""
        del context
        return ()

    def propose(self, state: tuple[()], request: DraftRequest) -> tuple[Drafts, tuple[()]]:
        """Look up each row's last tokens."""
        return Drafts([self._draft(request, row) for row in range(len(request.sequences))]), state

    def update(self, state: tuple[()], accepted: Sequence[int]) -> tuple[()]:
        """Nothing to learn."""
        del accepted
        return state

    def continuation(self, sequence: Sequence[int], limit: int) -> list[int]:
        """What followed the first earlier occurrence of the longest n-gram; nothing if there is none."""
        return next(self._continuations(np.asarray(sequence, dtype=np.int32), limit), [])

    def _draft(self, request: DraftRequest, row: int) -> list[int]:
        limit = request.limits[row]
        if limit <= 0:
            return []
        sequence = np.asarray(request.sequences[row], dtype=np.int32)
        for found in self._continuations(sequence, limit):
            draft = legal_prefix(request, row, until_end(found, request.eos))
            if draft:
                return draft
        return []

    def _continuations(self, sequence: NDArray[np.int32], limit: int) -> Iterator[list[int]]:
        width = min(self.num_tokens, limit)
        for n in range(min(self.max_ngram, len(sequence) - 1), 0, -1):
            for start in occurrences(sequence, n)[:_TRIES].tolist():
                yield sequence[start + n : start + n + width].tolist()


def occurrences(sequence: NDArray[np.int32], n: int) -> NDArray[np.intp]:
    """The ascending start positions of earlier occurrences of a sequence's last ``n`` tokens; they may overlap."""
    count = len(sequence) - n
    found = np.ones(count, dtype=bool)
    for offset in range(n):
        found &= sequence[offset : offset + count] == sequence[count + offset]
    return np.flatnonzero(found)
