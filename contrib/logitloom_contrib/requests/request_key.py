"""The key under which a request brings its chain: refused where it is misspelt, since nobody would read it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Any, Final

from logitloom.errors import NeedsNotMet
from logitloom_contrib.requests.record import RECORD_KEY
from logitloom_contrib.requests.request_document import KEY

__all__ = ["is_alike", "require_right_key"]

#: From this share of equal letters on, a key is taken for a misspelling.
_ALIKE: Final = 0.8


def require_right_key(keys: Iterable[str]) -> None:
    """Refuse keys of ``extra_args`` that are nearly the one of a chain.

    Raises:
        NeedsNotMet: naming the key.

    Example:
        >>> require_right_key(["logitloom", "seed_of_mine"])
        >>> require_right_key(["logit_loom"])
        Traceback (most recent call last):
        ...
        logitloom.errors.NeedsNotMet: The request has the key 'logit_loom', ... Write 'logitloom'.
    """
    for key in keys:
        if key not in (KEY, RECORD_KEY) and is_alike(key):
            raise NeedsNotMet(
                f"The request has the key {key!r:.100}, which nobody reads, so its answer would not be constrained. "
                f"Write {KEY!r}."
            )


def is_alike(key: Any) -> bool:
    """Whether a key is that of a chain, or nearly so.

    Example:
        >>> is_alike("logit_loom"), is_alike("logit_bias")
        (True, False)
    """
    if not isinstance(key, str) or len(key) > 4 * len(KEY):
        return False
    plain = "".join(letter for letter in key.lower() if letter.isalpha())
    return SequenceMatcher(None, plain, KEY).ratio() >= _ALIKE
