"""How many tokens complete a text of a grammar that an engine follows.

An engine says which token may come next. It does not say how far the end is. For this a recogniser, which is made from
the rules of the grammar, reads the same text as the engine and tells its shortest completion.
"""

from __future__ import annotations

import threading
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.constraints import UNKNOWN, State, lift
from logitloom_plugins.grammars.byte_rules import ByteRules
from logitloom_plugins.grammars.context_free import ContextFreeGrammar
from logitloom_plugins.grammars.recogniser import Recogniser
from logitloom_plugins.grammars.tokens_read import NOTHING_READ, TokensRead

__all__ = ["TokenCompletions"]

_MOST_MADE: Final = 200_000
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
        begins = vocabulary.offsets[:-1]
        usable = np.unique(vocabulary.flat_bytes[begins[np.diff(vocabulary.offsets) == 1]])
        self._rules = ByteRules(grammar, usable.tolist())
        self._vocabulary, self._vocab_size = vocabulary, vocab_size
        self._begin()
        known = self._recogniser.growth
        growth = np.zeros(256, dtype=np.int64) if known is None else known
        sums, offsets = np.append(0, np.cumsum(growth.take(vocabulary.flat_bytes))), vocabulary.offsets
        #: The most bytes by which one token can make the shortest completion longer.
        self._growth = int(np.max(sums.take(offsets[1:]) - sums.take(offsets[:-1]), initial=0))
        self._lock = threading.RLock()

    def _begin(self) -> None:
        self._recogniser = Recogniser(self._rules)
        self._texts = lift(self._recogniser, self._vocabulary, self._vocab_size)
        self._states: dict[TokensRead, State | None] = {NOTHING_READ: self._texts.start()}
        #: In the memory of the lifted recogniser: inside a string each token leads to the same state.
        self._found: dict[State, tuple[NDArray[np.int32], NDArray[np.int32]]] = self._texts.memory.table("least after")

    def least(self, read: TokensRead) -> int | None:
        """The fewest tokens that write the shortest completion; ``None`` if there is none."""
        with self._lock:
            state = self._state(read)
            known = state is not None and self._recogniser.completion(state) is not None
            return self._texts.least_tokens(state) if known else None

    def most_after(self, read: TokensRead) -> int:
        """A bound for the tokens needed after any allowed token; :data:`UNKNOWN` if no bound is known."""
        with self._lock:
            state = self._state(read)
            bound = None if state is None else self._recogniser.bound(state)
            return UNKNOWN if bound is None else bound + self._growth

    def after(self, read: TokensRead, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """``[n] int32``: :meth:`least` after each of some ids (sorted), :data:`UNKNOWN` for ``None``."""
        found = np.full(len(ids), UNKNOWN, dtype=np.int32)
        with self._lock:
            state = self._state(read)
            if state is not None and len(ids):
                known, least = self._least_after(state)
                index = np.searchsorted(ids, known)
                there = ids.take(index, mode="clip") == known
                found[index[there]] = least[there]
        return found

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
