"""Constraints inside a combinator whose texts are complete within a number of tokens.

Processors with a limit follow the same rule (:meth:`ConstraintMemory.allowed_within`): a token is allowed only if the
text after it can still be completed in the tokens that are left. The number of tokens to an end is
:meth:`Constraint.least_tokens`: exact for finite automata, an upper bound elsewhere. With a bound no text is left
unfinished either, but some texts that would just fit cannot be written.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from logitloom.constraints import FINISHED, Constraint, ConstraintMemory, State, TokenSet
from logitloom.host.hookspecs import TextEnd

__all__ = ["FinishWithin"]


class FinishWithin(Constraint):
    """A constraint whose texts are complete, with end-of-sequence, after at most some tokens.

    A state is the inner state and how many tokens are left. While more are left than any allowed token could need
    afterwards, the inner token sets are used as they are.

    Args:
        constraint: the constraint to limit; it is not changed.
        tokens: most tokens of a text, end-of-sequence included.

    Raises:
        ValueError: if no text is so short, or the constraint cannot tell.

    Example:
        >>> from logitloom.automata import TokenAutomaton, compile_pattern
        >>> from logitloom.vocabulary import Vocabulary
        >>> words = Vocabulary([b"", b"a", b"b", b"ab"], eos=[0])
        >>> pairs = FinishWithin(TokenAutomaton(compile_pattern("(ab)+"), words), 3)
        >>> state = pairs.start()
        >>> pairs.row(state).tolist(), pairs.row(pairs.advance(state, 3)).tolist()
        ([1, 3], [0, 3])
        >>> pairs.row(pairs.advance(pairs.advance(state, 1), 2)).tolist()
        [0]
    """

    def __init__(self, constraint: Constraint, tokens: int) -> None:
        self.inner, self.tokens = constraint, tokens
        self.vocabulary, self.vocab_size = constraint.vocabulary, constraint.vocab_size
        self.restricts, self.ends_texts = constraint.restricts, constraint.ends_texts
        self.gives_way = constraint.gives_way
        least = constraint.least_tokens(constraint.start())
        if least is None:
            raise ValueError(
                "it is unknown how many tokens this constraint needs, so no text is sure to be complete within "
                f"{tokens}. Leave the option out, or use a constraint that can tell."
            )
        if least + 1 > tokens:
            about = "" if constraint.exact_least else "about "
            raise ValueError(
                f"{tokens} is too few, because the shortest text needs {about}{least + 1} tokens, end-of-sequence "
                f"included. Give at least {least + 1}."
            )
        self._memory = ConstraintMemory(constraint)

    @property
    def fingerprint(self) -> bytes:
        """A hash of the inner constraint and the number of tokens."""
        digest = hashlib.blake2b(self.inner.fingerprint, digest_size=16, person=b"finish within")
        digest.update(str(self.tokens).encode())
        return digest.digest()

    def start(self) -> State:
        """The start of the inner constraint, with all tokens left."""
        return self.inner.start(), self.tokens

    def advance(self, state: State, token: int) -> State | None:
        """The state after a token; ``None`` if it is forbidden, or the text cannot end within the tokens then left."""
        inner, left = _parts(state)
        after = self.inner.advance(inner, token)
        if after is None:
            return None
        least = self.inner.least_tokens(after)
        return (after, left - 1) if least is not None and least + 2 <= left else None

    def may_end(self, state: State) -> bool:
        """As the inner constraint says."""
        return self.inner.may_end(_parts(state)[0])

    def finish(self, state: State) -> State:
        """As the inner constraint says."""
        inner, left = _parts(state)
        after = self.inner.finish(inner)
        return FINISHED if after is FINISHED else (after, left - 1)

    def text_end(self, state: State) -> TextEnd:
        """As the inner constraint says."""
        return self.inner.text_end(_parts(state)[0])

    def least_tokens(self, state: State) -> int | None:
        """The answer of the inner constraint: the tokens on a shortest way to an end are allowed."""
        return self.inner.least_tokens(_parts(state)[0])

    def least_after(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The answer of the inner constraint, for tokens after which the text can be completed with the tokens left."""
        inner, left = _parts(state)
        ids, least = self.inner.least_after(inner)
        kept = least <= left - 2
        return ids[kept], least[kept]

    def most_after(self, state: State, enough: int = 0) -> int:
        """The answer of the inner constraint."""
        return self.inner.most_after(_parts(state)[0], enough)

    def allowed(self, state: State) -> TokenSet:
        """The ids of the inner constraint after which the text can be completed with the tokens that are left."""
        inner, left = _parts(state)
        (node,) = self._memory.reach([inner], None)
        kept = self._memory.allowed_within(node, left)
        if kept is None:
            return self.inner.allowed(inner)
        kept.ids.flags.writeable = False
        return kept


def _parts(state: State) -> tuple[State, int]:
    return state  # type: ignore[return-value]
