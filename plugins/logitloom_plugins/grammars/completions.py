"""How many tokens complete a text of a grammar that an engine follows.

An engine says which token may come next. It does not say how far the end is. For this a recogniser, which is made from
the rules of the grammar, reads the same text as the engine and tells its shortest completion.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.constraints import UNKNOWN, State, TokenSet, lift
from logitloom.vocabulary import kept_with_vocabulary
from logitloom_plugins.grammars.byte_rules import ByteRules
from logitloom_plugins.grammars.context_free import ContextFreeGrammar
from logitloom_plugins.grammars.recogniser import Recogniser
from logitloom_plugins.grammars.tokens_read import NOTHING_READ, TokensRead

__all__ = ["TokenCompletions"]

_MOST_MADE: Final = 200_000
#: So many tokens are looked at one by one, rather than all tokens of the vocabulary together.
_FEW: Final = 256
_MOST_REMEMBERED: Final = 1 << 16


class TokenCompletions:
    """The tokens that complete texts of a grammar, by the tokens that were read.

    Args:
        grammar: without useless parts (``pruned``).
        vocabulary: the tokens.
        vocab_size: width of the logits.

    Raises:
        BudgetExceeded: if the grammar is too large for a recogniser.
        VocabularyError: if no sequence of tokens writes a text of the grammar.
    """

    def __init__(self, grammar: ContextFreeGrammar, vocabulary: Vocabulary, vocab_size: int) -> None:
        self._rules = ByteRules(grammar, _single_bytes(vocabulary))
        self._vocabulary, self._vocab_size = vocabulary, vocab_size
        self._begin()
        self._lock = threading.RLock()

    def _begin(self) -> None:
        self._recogniser = Recogniser(self._rules)
        self._texts = lift(self._recogniser, self._vocabulary, self._vocab_size)
        self._states: dict[TokensRead, State | None] = {NOTHING_READ: self._texts.start()}
        #: In the memory of the lifted recogniser: inside a string each token leads to the same state.
        self._most: dict[State, int] = self._texts.memory.table("most after")
        self._found: dict[State, tuple[NDArray[np.int32], NDArray[np.int32]]] = self._texts.memory.table("least after")

    def least(self, read: TokensRead) -> int | None:
        """The fewest tokens that write the shortest completion; ``None`` if there is none."""
        with self._lock:
            state = self._state(read)
            known = state is not None and self._recogniser.completion(state) is not None
            return self._texts.least_tokens(state) if known else None

    def most_after(self, read: TokensRead, allowed: Callable[[], TokenSet]) -> int:
        """A bound for the tokens needed after any allowed token; :data:`UNKNOWN` if no bound is known.

        Args:
            read: the tokens that were read.
            allowed: gives the tokens that are allowed then. It is called once for each state of the recogniser.
        """
        with self._lock:
            state = self._state(read)
            bound = None if state is None else self._recogniser.bound(state)
            if bound is None:
                return UNKNOWN
            known = self._most.get(state)
            if known is None:
                known = bound + self._most_growth(allowed().listed(self._vocabulary.size))
                self._texts.memory.note()
                self._most[state] = known
            return known

    def _most_growth(self, ids: NDArray[np.int32]) -> int:
        """The most bytes by which one of some tokens can make the shortest completion longer."""
        if len(ids) > _FEW:
            return int(self._growth.take(ids).max())
        texts, growth, most = self._vocabulary.token_bytes, self._rules.growth, 0
        assert growth is not None
        for token in ids.tolist():
            text = np.frombuffer(texts[token], dtype=np.uint8)
            most = max(most, int(growth[:, text[0]].max() + growth[text[:-1], text[1:]].sum()))
        return most

    @cached_property
    def _growth(self) -> NDArray[np.int32]:
        """By token the bytes by which it can make the shortest completion longer at most."""
        assert self._rules.growth is not None
        flat, offsets = self._vocabulary.flat_bytes, self._vocabulary.offsets
        pairs = flat.astype(np.int32)
        pairs[1:] |= pairs[:-1] << 8 & 0xFF00
        sums = np.zeros(len(flat) + 1, dtype=np.int32)
        np.cumsum(self._rules.growth.ravel().take(pairs), out=sums[1:])
        begin, end = offsets[:-1], offsets[1:]
        texts = (begin < end).nonzero()[0]
        first = flat.take(begin[texts])
        found = np.zeros(len(begin), dtype=np.int32)
        found[texts] = sums.take(end[texts]) - sums.take(begin[texts] + 1) + self._rules.growth.max(axis=0).take(first)
        return found

    def after(self, read: TokensRead, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """``[n] int32``: :meth:`least` after each of some ids (sorted), :data:`UNKNOWN` for ``None``."""
        by_id = np.full(self._vocab_size, UNKNOWN, dtype=np.int32)
        with self._lock:
            state = self._state(read)
            if state is not None and len(ids):
                known, least = self._least_after(state)
                by_id[known] = least
        return by_id.take(ids)

    def _least_after(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The result of :meth:`least` for a state of the recogniser, remembered."""
        known = self._found.get(state)
        if known is None:
            known = self._texts.least_after(state)
            self._texts.memory.note(known)
            self._found[state] = known
        return known

    def _state(self, read: TokensRead) -> State | None:
        """The recogniser's state; ``None`` after a text that no tokens complete."""
        if self._recogniser.made > _MOST_MADE:
            self._begin()
        elif len(self._states) > _MOST_REMEMBERED:
            self._states = {NOTHING_READ: self._texts.start()}
        missing: list[TokensRead] = []
        at = read
        while at not in self._states:
            missing.append(at)
            assert at.before is not None
            at = at.before
        state = self._states[at]
        for each in reversed(missing):
            state = None if state is None else self._texts.advance(state, each.token)
            self._states[each] = state
        return state


@kept_with_vocabulary
def _single_bytes(vocabulary: Vocabulary) -> tuple[int, ...]:
    """The bytes that are tokens."""
    begins = vocabulary.offsets[:-1]
    return tuple(np.unique(vocabulary.flat_bytes[begins[np.diff(vocabulary.offsets) == 1]]).tolist())
