"""How many tokens complete a text of a grammar that an engine follows.

An engine says which token may come next, but not how far the end is. For this a recogniser, which is made from the
rules of the grammar, reads the same text as the engine and tells its shortest completion.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata import array_ranges
from logitloom.constraints import UNKNOWN, State, TokenSet, lift
from logitloom.process_memory import ProcessLock
from logitloom.vocabulary import kept_with_vocabulary
from logitloom_plugins.grammars.byte_rules import ByteRules
from logitloom_plugins.grammars.context_free import ContextFreeGrammar
from logitloom_plugins.grammars.recogniser import Recogniser
from logitloom_plugins.grammars.tokens_read import NOTHING_READ, TokensRead

__all__ = ["TokenCompletions"]

_MOST_MADE: Final = 200_000
#: At most this many tokens are measured by themselves; for more, all tokens of the vocabulary are measured once.
_FEW: Final = 4096
_MOST_REMEMBERED: Final = 1 << 16


class _Members(NamedTuple):
    """Allowed tokens, as an engine listed them, their ids, and the fewest tokens after each."""

    members: TokenSet
    ids: NDArray[np.int32]
    least: NDArray[np.int32]


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
        self._lock = ProcessLock()

    def _begin(self) -> None:
        self._recogniser = Recogniser(self._rules)
        self._texts = lift(self._recogniser, self._vocabulary, self._vocab_size)
        self._states: dict[TokensRead, State | None] = {NOTHING_READ: self._texts.start()}
        #: By state and the identity of listed ids: inside a string each token leads to the same state.
        self._most: dict[tuple[State, int], int] = self._texts.memory.table("most after")
        #: By the identity of an array of ids, the array and the most bytes by which one of the ids makes the shortest
        #: completion longer. The array is kept here, so that no other array gets the same identity.
        self._grown: dict[int, tuple[NDArray[np.int32], int]] = self._texts.memory.table("growth of token sets")
        #: By state and the identity of listed ids the ids and the fewest tokens after each.
        self._found: dict[tuple[State, int], _Members] = self._texts.memory.table("least after")

    def least(self, read: TokensRead) -> int | None:
        """The fewest tokens that write the shortest completion; ``None`` if there is none."""
        with self._lock:
            state = self._state(read)
            known = state is not None and self._recogniser.completion(state) is not None
            return self._texts.least_tokens(state) if known else None

    def towards_end(self, read: TokensRead) -> NDArray[np.int32]:
        """The tokens after which :meth:`least` is smaller."""
        with self._lock:
            state = self._state(read)
            here = self.least(read)
            if here is None:
                return np.zeros(0, dtype=np.int32)
            ids, least = self._texts.least_after(state)
            found: NDArray[np.int32] = ids[least < here]
            return found

    def most_after(self, read: TokensRead, members: TokenSet) -> int:
        """A bound for the tokens needed after any allowed token; :data:`UNKNOWN` if no bound is known.

        The bound is the least one once :meth:`after` was asked for the state of the recogniser and these tokens.

        Args:
            read: the tokens that were read.
            members: the tokens that are allowed then.
        """
        with self._lock:
            state = self._state(read)
            bound = None if state is None else self._recogniser.bound(state)
            if bound is None:
                return UNKNOWN
            key = state, id(members.ids)
            known = self._most.get(key)
            if known is None:
                known = bound + self._most_growth(members)
                self._texts.memory.note(members.ids)
                self._most[key] = known
            return known

    def _most_growth(self, members: TokenSet) -> int:
        """The most bytes by which one of some tokens can make the shortest completion longer."""
        key = id(members.ids)
        known = self._grown.get(key)
        if known is None:
            known = members.ids, self._largest_growth(members)
            self._texts.memory.note(members.ids)
            self._grown[key] = known
        return known[1]

    def _largest_growth(self, members: TokenSet) -> int:
        if not members.allowed:
            return int(self._growth.max(where=members.mask(self._vocab_size), initial=0))
        many = len(members.ids) > _FEW
        growth = self._growth.take(members.ids) if many else self._growth_of(members.ids)
        return int(growth.max(initial=0))

    @cached_property
    def _growth(self) -> NDArray[np.int32]:
        """``[vocab_size]``: the bytes by which each token can make the shortest completion longer at most."""
        offsets, found = self._vocabulary.offsets, np.zeros(self._vocab_size, dtype=np.int32)
        texts = np.diff(offsets).nonzero()[0]
        found[texts] = self._growth_of_texts(_byte_pairs(self._vocabulary), offsets.take(texts))
        return found

    def _growth_of(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """The same for some tokens, all of which have text."""
        offsets = self._vocabulary.offsets
        begin, length = offsets.take(ids), np.diff(offsets).take(ids)
        pairs = _byte_pairs(self._vocabulary).take(array_ranges.members(begin, length))
        return self._growth_of_texts(pairs, np.cumsum(length) - length)

    def _growth_of_texts(self, pairs: NDArray[np.uint16], begin: NDArray[np.int64]) -> NDArray[np.int32]:
        """The same for consecutive texts, which are given as pairs of neighbouring bytes."""
        growth = self._rules.growth
        assert growth is not None
        if not len(begin):
            return np.zeros(0, dtype=np.int32)
        by_byte = growth.ravel().take(pairs)
        # Any byte may stand before a token.
        by_byte[begin] = growth.max(axis=0).take(pairs.take(begin) & 0xFF)
        # Sums of short runs are differences of running sums, whose bits above 32 are not needed.
        before = np.zeros(len(by_byte) + 1, dtype=np.int32)
        np.cumsum(by_byte, out=before[1:])
        found: NDArray[np.int32] = before.take(np.append(begin[1:], len(by_byte))) - before.take(begin)
        return found

    def after(self, read: TokensRead, members: TokenSet) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The allowed ids, and ``[n] int32``: :meth:`least` after each, :data:`UNKNOWN` for ``None``.

        Args:
            read: the tokens that were read.
            members: the tokens that are allowed then.
        """
        with self._lock:
            state = self._state(read)
            key = state, id(members.ids)
            known = self._found.get(key)
            if known is None:
                ids = members.listed(self._vocab_size)
                none = state is None or not len(ids)
                least = np.full(len(ids), UNKNOWN, dtype=np.int32) if none else self._texts.least_of(state, ids)
                known = _Members(members, ids, least)
                self._texts.memory.note((members.ids, known.ids, known.least))
                self._found[key] = known
                # No allowed token leads farther away.
                most = int(known.least.max(initial=0))
                self._most[key] = min(most, self._most.get(key, most))
            return known.ids, known.least

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
def _byte_pairs(vocabulary: Vocabulary) -> NDArray[np.uint16]:
    """For each byte of the texts the byte before it and the byte itself, as one number."""
    pairs = vocabulary.flat_bytes.astype(np.uint16)
    pairs[1:] |= pairs[:-1] << 8
    return pairs


@kept_with_vocabulary
def _single_bytes(vocabulary: Vocabulary) -> tuple[int, ...]:
    """The bytes that are tokens."""
    begins = vocabulary.offsets[:-1]
    return tuple(np.unique(vocabulary.flat_bytes[begins[np.diff(vocabulary.offsets) == 1]]).tolist())
