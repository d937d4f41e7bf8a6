"""The last check of a reader: the finished table must write what the tokenizer itself writes."""

from __future__ import annotations

from collections.abc import Callable

from logitloom import Vocabulary
from logitloom.errors import VocabularyError
from logitloom_plugins.tokenizers._token_text import complete_utf8

__all__ = ["require_agreement"]


def require_agreement(vocabulary: Vocabulary, decode: Callable[[list[int]], str]) -> Vocabulary:
    """Return the vocabulary if it agrees with the tokenizer's own decode on every token that is whole text.

    All such tokens are decoded as one sequence, so that the rules for the start of a text affect the first token only.
    Tokens that are parts of a character are left out, because the decoder's output for such a token depends on its
    neighbours.

    Args:
        vocabulary: the table to check.
        decode: the tokenizer's decode, special tokens included, without any cleaning up.

    Returns:
        The same vocabulary.

    Raises:
        VocabularyError: if the vocabulary and the decode differ; such a tokenizer does not decode token by token, so a
            constraint on its text could not be enforced.
    """
    ids = [i for i, data in enumerate(vocabulary.token_bytes) if complete_utf8(data)]
    # Spaces at both ends belong to the rules for the start and the end of a text.
    expected = vocabulary.decode(ids).strip(" ")
    written = decode(ids).strip(" ")
    if expected == written:
        return vocabulary
    pairs = zip(expected, written, strict=False)
    same = next((n for n, (left, right) in enumerate(pairs) if left != right), min(len(expected), len(written)))
    raise VocabularyError(
        f"{vocabulary.name}: the tokenizer's own decode writes {written[max(same - 20, 0) : same + 20]!r} "
        f"where the table of token bytes writes {expected[max(same - 20, 0) : same + 20]!r}. Its decode is "
        f"not the concatenation of its tokens, so exact token bytes do not exist; use a tokenizer without "
        f"such post-processing, or build a logitloom.vocabulary.Vocabulary by hand."
    )
