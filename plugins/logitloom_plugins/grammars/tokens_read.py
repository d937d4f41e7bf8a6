"""The state of a constraint that replays tokens: an immutable sequence of tokens, which shares its prefixes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

__all__ = ["NOTHING_READ", "TokensRead"]


class TokensRead:
    """A sequence of token ids: immutable, hashable, picklable, and made from a shorter one in constant time.

    Args:
        before: the sequence without its last token; ``None`` for the empty sequence.
        token: the last token.

    Example:
        >>> one, other = NOTHING_READ.then(5).then(7), TokensRead.of([5, 7])
        >>> one == other, hash(one) == hash(other), one.tokens(), one
        (True, True, [5, 7], TokensRead([5, 7]))
    """

    __slots__ = ("_hash", "before", "length", "token")

    def __init__(self, before: TokensRead | None = None, token: int = -1) -> None:
        self.before = before
        self.token = token
        self.length: int = 0 if before is None else before.length + 1
        self._hash: int = hash((TokensRead,)) if before is None else hash((before._hash, token))

    @classmethod
    def of(cls, tokens: Iterable[int]) -> TokensRead:
        """The sequence of some tokens."""
        found = NOTHING_READ
        for token in tokens:
            found = cls(found, int(token))
        return found

    def then(self, token: int) -> TokensRead:
        """The sequence with one more token."""
        return TokensRead(self, token)

    def tokens(self) -> list[int]:
        """The tokens, first one first."""
        found, at = [], self
        while at.before is not None:
            found.append(at.token)
            at = at.before
        return found[::-1]

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TokensRead) or self.length != other.length or self._hash != other._hash:
            return False
        mine: TokensRead | None = self
        theirs: TokensRead | None = other
        while mine is not theirs:  # from a shared prefix object on, both are equal
            assert mine is not None
            assert theirs is not None
            if mine.token != theirs.token:
                return False
            mine, theirs = mine.before, theirs.before
        return True

    def __repr__(self) -> str:
        return f"TokensRead({self.tokens()})"

    def __reduce__(self) -> Any:
        """Pickled is one array: a chain of objects would be deeper than the interpreter's stack."""
        return TokensRead.from_state_parts, self.state_parts()

    def state_parts(self) -> tuple[Any, ...]:
        """The value that :meth:`logitloom.Chain.save_state` writes."""
        return (np.asarray(self.tokens(), dtype="<i4").tobytes(),)

    @staticmethod
    def from_state_parts(tokens: bytes) -> TokensRead:
        """The sequence that :meth:`state_parts` belongs to."""
        return TokensRead.of(np.frombuffer(tokens, dtype="<i4").tolist())


NOTHING_READ: Final = TokensRead()
"""The empty sequence."""
