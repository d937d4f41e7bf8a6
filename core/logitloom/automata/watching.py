"""Automata that watch a text without otherwise restricting it: stop strings, banned phrases.

A watcher forbids only what its byte automaton forbids. Ids that write no text (special tokens, padding of the
vocabulary) are allowed and change nothing, and a text may end wherever the watcher has not objected.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitloom.automata.budget import Meter
from logitloom.automata.dfa import DEAD, Dfa
from logitloom.automata.token_automaton import FINISHED, TokenAutomaton, TokenRow, TokenTables, allowed_steps
from logitloom.automata.token_tables import token_classes
from logitloom.vocabulary import Vocabulary

__all__ = ["WatchingAutomaton"]


class WatchingAutomaton(TokenAutomaton):
    """A token automaton in which ids without text are free and a text may end in every state.

    Args:
        dfa: an automaton over bytes in which every state accepts.
        vocabulary: the bytes of each id.
        vocab_size: width of the model's logits.
        closing: states in which nothing but end-of-sequence is allowed. A text that goes on all the same (an engine
            may not ask) is followed through them.
        after_end: ``[states] int32``, the state after end-of-sequence; default: ``FINISHED`` throughout. What it
            names must be closing and never be left, so that nothing but end-of-sequence is allowed there.

    Example:
        >>> from logitloom.automata import AhoCorasick
        >>> words = Vocabulary([b"", b"<pad>", b"b", b"ad"], eos=[0], special=[1])
        >>> watcher = WatchingAutomaton(AhoCorasick(["bad"]).avoiding(), words)
        >>> watcher.row(watcher.advance(watcher.start, 2)).tolist()
        [0, 1, 2]
    """

    def __init__(
        self,
        dfa: Dfa,
        vocabulary: Vocabulary,
        vocab_size: int | None = None,
        *,
        closing: Iterable[int] = (),
        after_end: ArrayLike | None = None,
    ) -> None:
        ended = np.full(dfa.states, FINISHED) if after_end is None else np.asarray(after_end)
        self.after_end: NDArray[np.int32] = ended.astype(np.int32)
        super().__init__(dfa, vocabulary, vocab_size, closing=list(closing))

    def _find_row(self, state: int) -> TokenRow:
        if state in (DEAD, FINISHED) or self.closing[state]:
            return super()._find_row(state)
        if (self.dfa.next != DEAD).all():
            return TokenRow(False, np.zeros(0, dtype=np.int32))
        forbidden = ~self.mask_of_text(state)
        forbidden[self._textless] = False
        return TokenRow(False, forbidden.nonzero()[0].astype(np.int32))

    def _advance(self, state: int, token: int) -> int:
        if state in (DEAD, FINISHED):
            return state
        if not 0 <= token < self.vocab_size:
            return DEAD
        if token in self.eos:
            return int(self.after_end[state])
        text = self.vocabulary.token_bytes[token] if token < self.vocabulary.size else b""
        return self.dfa.walk(text, state) if text else state

    @cached_property
    def _tables(self) -> TokenTables:
        meter = Meter(self.budget, f"the token tables of {self.dfa!r}")
        states = self.dfa.states
        of_token, inner = token_classes(self.dfa, self._trie, self.vocab_size, meter)
        textless, end = inner.shape[1], inner.shape[1] + 1
        meter.check_bytes(5 * (states + 2) * (end + 1))
        of_token[self._textless] = textless
        of_token[list(self.eos)] = end
        table = np.full((states + 2, end + 1), DEAD, dtype=np.int32)
        table[:states, :textless] = inner
        table[:states, textless] = np.arange(states)
        table[:states, end] = self.after_end
        table[FINISHED] = FINISHED
        allowed = allowed_steps(table)
        allowed[:states][self.closing, :end] = False
        return TokenTables(of_token, table, allowed, self.accepting, self.start)
