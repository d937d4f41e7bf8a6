"""Fewer ways to split the same text into tokens: where only one text can come next, only its longest token is allowed.

A literal can be split into tokens in many ways, and a constraint allows all of them, so no token is forced. With this
restriction the constraint forces the tokens of a literal, and a decoding loop can feed them without a pass of the
model. The texts that can be written stay the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.contract import ByteAutomaton, Constraint, State, TokenSet, TokenTables
from logitloom.host.hookspecs import TextEnd

__all__ = ["LongestTokens"]

#: Longer lists of allowed tokens are not looked at: they do not all begin one text.
_MOST_TOKENS: Final = 256


class LongestTokens(Constraint):
    """A constraint that allows, among tokens that all begin the same text, the longest only.

    A state is restricted under two conditions: each allowed token is a prefix of the longest one, and after such a
    prefix only the rest of the longest token can follow. So a state stays unrestricted if a token could reach beyond
    the forced text, or if the text may end there. Shorter tokens are not allowed, but a row that took one all the same
    is followed.

    Args:
        constraint: the constraint to restrict; it is not changed.

    Example:
        >>> from logitloom.automata import TokenAutomaton, compile_pattern
        >>> from logitloom.vocabulary import Vocabulary
        >>> words = Vocabulary([b"", b"n", b"na", b"name", b"e", b"m", b"a"], eos=[0])
        >>> automaton = TokenAutomaton(compile_pattern("name[ab]"), words)
        >>> automaton.row(automaton.start()).tolist(), LongestTokens(automaton).row(automaton.start()).tolist()
        ([1, 2, 3], [3])
    """

    gives_way = True

    def __init__(self, constraint: Constraint) -> None:
        self.inner = constraint
        self.vocabulary, self.vocab_size = constraint.vocabulary, constraint.vocab_size
        self.restricts, self.ends_texts = constraint.restricts, constraint.ends_texts
        self.states = constraint.states
        self.unlimited_because = constraint.unlimited_because
        self._restricted = self.memory.remembering("token sets", self._find)
        self._tables: TokenTables | None = None

    @property
    def fingerprint(self) -> bytes:
        """The fingerprint of the inner constraint, with a mark."""
        return hashlib.blake2b(self.inner.fingerprint, digest_size=16, person=b"longest tokens").digest()

    @property
    def exact_least(self) -> bool:  # type: ignore[override]
        """As the inner constraint says."""
        return self.inner.exact_least

    def start(self) -> State:
        """The start of the inner constraint."""
        return self.inner.start()

    def advance(self, state: State, token: int) -> State | None:
        """The next state of the inner constraint."""
        return self.inner.advance(state, token)

    def may_end(self, state: State) -> bool:
        """As the inner constraint says."""
        return self.inner.may_end(state)

    def finish(self, state: State) -> State:
        """As the inner constraint says."""
        return self.inner.finish(state)

    def text_end(self, state: State) -> TextEnd:
        """As the inner constraint says."""
        return self.inner.text_end(state)

    def least_tokens(self, state: State) -> int | None:
        """As many tokens as the inner constraint needs."""
        return self.inner.least_tokens(state)

    def least_after(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The least tokens of the inner constraint, shorter tokens included: a shorter token is taken where no longest
        token fits a limit.

        After ``ab`` of ``abcd``, ``c`` and ``d`` may be needed, and after ``a`` the token ``bcd`` alone.
        """
        return self.inner.least_after(state)

    def allowed_within(self, state: State, most: int) -> TokenSet | None:
        """The ids of :meth:`least_after`, as the inner constraint finds them."""
        return self.inner.allowed_within(state, most)

    def most_after(self, state: State, enough: int = 0) -> int:
        """The bound of the inner constraint."""
        return self.inner.most_after(state, enough)

    def automaton(self) -> ByteAutomaton | None:
        """The inner automaton: the language of texts is the same."""
        return self.inner.automaton()

    def allowed(self, state: State) -> TokenSet:
        """The tokens of the inner constraint, or the longest of them."""
        return self._restricted(state)

    def allowed_many(self, states: Sequence[State]) -> list[TokenSet]:
        """As :meth:`allowed`; the inner constraint is asked for all states together."""
        self.inner.allowed_many(states)
        return [self._restricted(state) for state in states]

    def _find(self, state: State) -> TokenSet:
        members = self.inner.allowed(state)
        if not members.allowed or not 1 < len(members.ids) <= _MOST_TOKENS or self.inner.may_end(state):
            return members
        size = self.vocabulary.size
        texts = [self.vocabulary.token_bytes[token] if token < size else b"" for token in members.ids.tolist()]
        longest = max(texts, key=len)
        if not all(text and longest.startswith(text) for text in texts):
            return members
        # A shorter token may lead to another text: after n of na|nb, where na is a token and nb is not.
        shorter = [(token, text) for token, text in zip(members.ids.tolist(), texts, strict=True) if text != longest]
        if not self._continue({(self.inner.advance(state, token), longest[len(text) :]) for token, text in shorter}):
            return members
        kept = [token for token, text in zip(members.ids.tolist(), texts, strict=True) if text == longest]
        ids = np.array(kept, dtype=np.int32)
        ids.flags.writeable = False
        return TokenSet(True, ids)

    def _continue(self, pairs: set[tuple[State | None, bytes]]) -> bool:
        """Whether every text from each state begins with the bytes beside it.

        A pair that is reached by several sequences of tokens is examined once: n equal bytes have 2^n sequences.
        """
        seen, waiting = pairs, [*pairs]
        while waiting:
            state, rest = waiting.pop()
            if state is None or self.inner.may_end(state):
                return False
            members = self.inner.allowed(state)
            if not members.allowed or not 0 < len(members.ids) <= _MOST_TOKENS:
                return False
            for token in members.ids.tolist():
                text = self.vocabulary.token_bytes[token] if token < self.vocabulary.size else b""
                if not text or not (text.startswith(rest) or rest.startswith(text)):
                    return False
                if len(text) < len(rest):
                    pair = self.inner.advance(state, token), rest[len(text) :]
                    if pair not in seen:
                        seen.add(pair)
                        waiting.append(pair)
        return True

    def tables(self) -> TokenTables | None:
        """The inner tables with fewer allowed classes."""
        if self._tables is None:
            tables = self.inner.tables()
            if tables is None:
                return None
            allowed: Any = tables.allowed.copy()
            for state in range(self.states or 0):
                members = self.allowed(state)
                if members.allowed and not tables.accepting[state]:
                    # Tokens with the same text are in one class, so classes are fine enough.
                    allowed[state] = False
                    allowed[state, tables.token_class[members.ids]] = True
            self._tables = tables._replace(allowed=allowed)
        return self._tables
