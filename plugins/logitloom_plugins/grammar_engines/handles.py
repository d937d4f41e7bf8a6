"""What a grammar engine is to a processor: handles that never change, one per row, and masks for many at once.

An engine plug-in (entry-point group ``logitloom.grammars``) is a class with ``json_schema(text, ...)``, ``lark(text)``
and so on that return a :class:`Grammar`; a grammar is bound to a vocabulary once and then gives handles. Advancing a
handle makes a new one, so rows can be reordered, duplicated and rolled back like any other state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from logitloom.backend import Array
from logitloom.context import Context
from logitloom.errors import IllegalToken
from logitloom.state import Rows
from logitloom.vocabulary import Vocabulary

__all__ = ["BoundGrammar", "Grammar", "advanced", "forced", "masked"]


class BoundGrammar(Protocol):
    """A grammar for one vocabulary."""

    vocabulary: Vocabulary

    def start(self) -> Any:
        """The handle before the first token."""
        ...

    def advance(self, handle: Any, token: int) -> Any:
        """The handle after one more token, ``None`` if it is not allowed. The given handle stays as it is."""
        ...

    def bits(self, handles: Sequence[Any]) -> NDArray[np.int32]:
        """``[len(handles), ceil(vocab_size / 32)] int32``: bit ``i % 32`` of word ``i // 32`` allows token ``i``.

        The array may be overwritten by the next call from the same thread.
        """
        ...

    def forced(self, handle: Any) -> list[int]:
        """Tokens that must come next, as far as the engine knows."""
        ...


class Grammar(Protocol):
    """A grammar that an engine has checked."""

    def bind(self, vocabulary: Vocabulary, vocab_size: int) -> BoundGrammar:
        """The grammar for a vocabulary and a width of logits."""
        ...


def advanced(bound: BoundGrammar, rows: Rows, context: Context, name: str) -> Rows:
    """The handles after the tokens that each row accepted.

    Raises:
        IllegalToken: naming the row and the token.
    """
    if context.tokens is None:
        return rows
    result = []
    for row, (handle, tokens) in enumerate(zip(rows, context.backend.to_numpy(context.tokens).tolist(), strict=True)):
        for token in tokens:
            if token == -1:
                continue
            following = bound.advance(handle, token)
            if following is None:
                raise IllegalToken(
                    f"{name}: row {row} accepted token {token} ({bound.vocabulary.describe(token)}), which is not "
                    f"allowed there. Sample from the processed logits, or roll the row back.",
                    row=row,
                )
            handle = following
        result.append(handle)
    return Rows(result)


def masked(bound: BoundGrammar, logits: Array, rows: Rows, context: Context) -> Array:
    """The logits with -inf for every token that its row's handle does not allow."""
    backend = context.backend
    return backend.apply_token_mask(logits, backend.asarray(bound.bits(rows)), context.donate)


def forced(bound: BoundGrammar, rows: Rows, context: Context, name: str) -> list[list[int]]:
    """Per row the tokens that must come next."""
    return [bound.forced(handle) for handle in advanced(bound, rows, context, name)]
