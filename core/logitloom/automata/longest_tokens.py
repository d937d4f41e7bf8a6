"""Fewer ways to write the same text: where only one text can come next, only its longest token is allowed.

A literal can be split into tokens in many ways, and an automaton allows all of them, so none is forced. With this
restriction such runs are forced token by token, and a decoding loop can feed them without asking the model. The texts
that can be written stay the same.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from logitloom.automata.token_automaton import TokenAutomaton, TokenRow, TokenTables

__all__ = ["LongestTokens"]

_LONGEST_CHAIN: Final = 256


class LongestTokens(TokenAutomaton):
    """A token automaton that allows, among tokens that all begin the same text, the longest only.

    A state is restricted if each token that it allows is the beginning of the longest one; so where a token could
    reach beyond what is forced, or where a text may end, nothing changes. Shorter tokens are not allowed, but a row
    that took one all the same is followed.

    Args:
        automaton: what to restrict; it is not changed.

    Example:
        >>> from logitloom.automata import compile_pattern
        >>> from logitloom.vocabulary import Vocabulary
        >>> words = Vocabulary([b"", b"n", b"na", b"name", b"e", b"m", b"a"], eos=[0])
        >>> automaton = TokenAutomaton(compile_pattern("name[ab]"), words)
        >>> automaton.row(automaton.start).tolist(), LongestTokens(automaton).row(automaton.start).tolist()
        ([1, 2, 3], [3])
    """

    def __init__(self, automaton: TokenAutomaton) -> None:
        self.__dict__.update(vars(automaton))
        self.__dict__.pop("_tables", None)
        self.automaton = automaton
        self._rows, self._row_bytes, self._memo = {}, 0, {}

    def _find_row(self, state: int) -> TokenRow:
        row = self.automaton.row_kind(state)
        if state < 0 or not row.allowed or not 1 < len(row.ids) <= _LONGEST_CHAIN:
            return TokenRow(row.allowed, row.ids)
        size = self.vocabulary.size
        texts = [self.vocabulary.token_bytes[token] if token < size else b"" for token in row.ids.tolist()]
        longest = max(texts, key=len)
        if not all(text and longest.startswith(text) for text in texts):
            return TokenRow(True, row.ids)
        kept = [token for token, text in zip(row.ids.tolist(), texts, strict=True) if text == longest]
        return TokenRow(True, np.array(kept, dtype=np.int32))

    def _advance(self, state: int, token: int) -> int:
        return self.automaton.advance(state, token)

    @cached_property
    def _tables(self) -> TokenTables:
        tables = self.automaton.tables()
        allowed = tables.allowed.copy()
        for state in range(self.dfa.states):
            row = self.row_kind(state)
            if row.allowed:
                # Tokens with the same text are in one class, so classes are fine enough.
                allowed[state] = False
                allowed[state, tables.token_class[row.ids]] = True
        return tables._replace(allowed=allowed)
