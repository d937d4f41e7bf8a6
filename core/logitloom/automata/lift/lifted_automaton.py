"""Lift an automaton over bytes to a constraint over the tokens of a vocabulary.

Tokens are byte strings, so a token leads from a state to the state after its bytes, and is allowed if that state
exists. One walk of the vocabulary's trie finds the allowed tokens of a state, and computes the automaton's states that
the walk visits. The results are remembered in one bounded object. An automaton with a whole table is the dense case
(:mod:`.token_automaton`): the same walk, and tables for devices.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import shown
from logitloom.automata.array_ranges import distinct, in_order_of_appearance
from logitloom.automata.automaton_kernels import automaton_kernels
from logitloom.automata.lift import trie_walk
from logitloom.automata.lift.compiled_walk import compiled_set
from logitloom.automata.lift.level_walk import WalkTable, level_walk, token_set_of, token_set_of_mask, walked_set
from logitloom.automata.lift.lift_memory import MOST_VISITED_BYTES, LiftMemory
from logitloom.automata.lift.tokens_within import tokens_within, tokens_within_characters
from logitloom.automata.lift.trie import Trie, vocabulary_trie
from logitloom.automata.lift.visited import Account, BoundedStates, TooMuchWork, VisitedStates, WatchedStates
from logitloom.contract import (
    FINISHED,
    UNKNOWN,
    ByteAutomaton,
    Constraint,
    Layers,
    NearEnd,
    State,
    TextTokens,
    TokenSet,
)
from logitloom.errors import InvalidSignature, VocabularyError
from logitloom.host.hookspecs import TextEnd
from logitloom.masks.kernels import KernelFailed
from logitloom.vocabulary import Vocabulary

__all__ = ["LiftedAutomaton"]

_NO_IDS: Final = np.zeros(0, dtype=np.int32)
#: From so many token sets on, states that allow the same tokens are recognised.
_FEW_SETS: Final = 4
#: The largest number of states that a search for an accepting state visits: byte by byte, and token by token.
_MOST_SEARCHED: Final = 4096
_MOST_WALKED: Final = 256
#: The most work of the transitions of one mask, in units of :attr:`VisitedStates.work`.
_MOST_WORK: Final = 8000
#: The work after which the cache of visited states is replaced before a walk.
_MOST_KEPT: Final = 16 * _MOST_WORK
#: The most work of a mask near a limit on tokens: of the transitions, and of the completions of the states that the
#: tokens lead to. A completion takes ``_OF_A_COMPLETION`` units, and one for each of its tokens.
_MOST_WORK_NEAR: Final = 5500
_OF_A_COMPLETION: Final = 8
#: Above this part of the work, in fifths, no transitions are read.
_READ_NEAR: Final = 4


class LiftedAutomaton(Constraint):
    """An automaton over bytes as a constraint; made by :func:`logitloom.constraints.lift`.

    The constraint has the states of the automaton. If the vocabulary lacks single-byte tokens, there can be states from
    which bytes reach acceptance and tokens do not. Such a state is never entered if a bounded search detects it.
    """

    exact_least = False

    def __init__(
        self, automaton: ByteAutomaton, vocabulary: Vocabulary, vocab_size: int | None = None, *, restricts: bool = True
    ) -> None:
        self._automaton = automaton
        self.vocabulary = vocabulary
        self.vocab_size = vocabulary.size if vocab_size is None else int(vocab_size)
        self.restricts = restricts
        self._passes_textless = not restricts
        vocabulary.check_width(self.vocab_size)
        self._trie: Trie = vocabulary_trie(vocabulary)
        #: Whether the state after a token can differ from the state after its bytes.
        self._counts_tokens = automaton.counts_tokens
        self._forces_ends = automaton.forces_ends
        self.ends_texts = type(automaton).text_end is not ByteAutomaton.text_end
        if not self._has_text():
            raise VocabularyError(self._no_text_message())

    def _no_text_message(self) -> str:
        return (
            f"No sequence of tokens of {self.vocabulary.name} writes a text that the automaton accepts. Use a "
            f"vocabulary that has its bytes, or an automaton that needs no others."
        )

    @cached_property
    def memory(self) -> LiftMemory:
        """The memory of the constraint, which has the visited states, too."""
        return LiftMemory(self._automaton)

    @cached_property
    def _textless(self) -> NDArray[np.int32]:
        """Ids without text: special tokens, unused ids, padding of the vocabulary."""
        if self.vocab_size == self.vocabulary.size:
            return self._trie.textless
        padding = np.arange(self.vocabulary.size, self.vocab_size, dtype=np.int32)
        return np.concatenate([self._trie.textless, padding])

    @cached_property
    def _free(self) -> NDArray[np.int32]:
        """Ids without text that are allowed in every state in which the text may continue."""
        if not self._passes_textless:
            return _NO_IDS
        return self._textless[~np.isin(self._textless, self.vocabulary.eos)]

    @cached_property
    def _free_ids(self) -> frozenset[int]:
        return frozenset(self._free.tolist())

    def __reduce__(self) -> tuple[Any, ...]:
        return _lifted, (self._automaton, self.vocabulary, self.vocab_size, self.restricts)

    def __repr__(self) -> str:
        return f"lift({self._automaton!r}, {self.vocabulary.name!r}, vocab_size={self.vocab_size})"

    @property
    def fingerprint(self) -> bytes:
        """A hash of the automaton, the vocabulary and the width."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (b"lifted", self._automaton.fingerprint, self.vocabulary.fingerprint.encode()):
            digest.update(len(part).to_bytes(8, "little") + part)
        digest.update(f"{self.vocab_size} {self.restricts}".encode())
        return digest.digest()

    # --- methods of Constraint ------------------------------------------------------------------------------------

    def start(self) -> State:
        """The start state of the automaton."""
        return self._automaton.start()

    def may_end(self, state: State) -> bool:
        """Whether the automaton accepts."""
        return self._automaton.accepts(state)

    def finish(self, state: State) -> State:
        """The state itself if the text has ended in the state, because the state records the end; else ``FINISHED``."""
        return state if self._automaton.text_end(state).finished else FINISHED

    def text_end(self, state: State) -> TextEnd:
        """The result of the automaton's ``text_end``."""
        return self._automaton.text_end(state)

    def automaton(self) -> ByteAutomaton:
        """The automaton that was lifted."""
        return self._automaton

    def allowed(self, state: State) -> TokenSet:
        """The ids that the automaton can read, without end-of-sequence ids."""
        memory = self.memory
        known = memory.sets.get(state)
        if known is None:
            known = self._found(state)
            known.ids.setflags(write=False)
            memory.note(known.ids)
            memory.sets[state] = known
        return known

    def advance(self, state: State, token: int) -> State | None:
        """The state after the bytes of a token and its border; ``None`` if it is not allowed."""
        text = self.vocabulary.token_bytes[token] if 0 <= token < self.vocabulary.size else b""
        if self._forces_ends and self._automaton.must_end(state):
            return None
        if not text:
            return state if token in self._free_ids else None
        visited = self._room()
        number = visited.follow(visited.number(state), text)
        if number < 0:
            return None
        reached: State | None = visited.values[number]
        if self._counts_tokens:
            reached = self._automaton.token_border(reached)
        return reached if reached is not None and self._can_end(reached) else None

    def least_tokens(self, state: State) -> int | None:
        """An upper bound on the least number of tokens to an accepting state: the tokens of a short text.

        The text is that of the automaton's ``completions_of`` which needs fewest, or else one shortest in bytes; if the
        automaton counts tokens, each of its bytes is a token. ``None`` if a bounded search finds no accepting state.
        """
        if self.may_end(state):
            return 0
        known = self.memory.least.get(state, UNKNOWN)
        if known == UNKNOWN:
            texts = () if self._counts_tokens else self._automaton.completions_of(state)
            known = min((n for text in texts if (n := self._fewest_tokens(text)) is not None), default=None)
            if known is None:
                text = self._shortest(state)
                if text is not None:
                    known = len(text) if self._counts_tokens else self._fewest_tokens(text)
            self.memory.note()
            self.memory.least[state] = known
        return known

    def least_after(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The allowed ids and a bound for :meth:`least_tokens` after each, computed once per distinct next state.

        If a bound is known for any token (:meth:`most_after`), a bounded amount of work is done. The tokens with which
        the completion of the text can begin come first, then shorter tokens. The others have the bound of any token.
        The result depends on the state alone, not on what is remembered, nor on the kernels.
        """
        if self._forces_ends and self._automaton.must_end(state):
            return super().least_after(state)
        any_token = self.most_after(state)
        if any_token < UNKNOWN:
            return self._bounded_least_after(state, any_token)
        ids, which, values = self._successors_of(state)
        least = np.full(len(values), -1, dtype=np.int32)
        for index, value in enumerate(values):
            reached = self._entered(value)
            if reached is not None:
                found = self.least_tokens(reached)
                least[index] = UNKNOWN if found is None else found
        by_id = np.full(self.vocab_size, -1, dtype=np.int32)
        by_id[ids] = least.take(which)
        if len(self._free):
            here = self.least_tokens(state)
            by_id[self._free] = UNKNOWN if here is None else here
        allowed = (by_id >= 0).nonzero()[0]
        return allowed.astype(np.int32), by_id.take(allowed)

    def completions_after(
        self, state: State, among: frozenset[int] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """As :meth:`least_after`; the numbers count the tokens of the automaton's completions.

        Args:
            state: the state.
            among: the bytes of which completions are made; only for automata with a whole table.
        """
        assert among is None
        return self.least_after(state)

    def allowed_within(self, state: State, most: int) -> TokenSet | None:
        """Found by a walk that decides many tokens together; ``None`` for automata without ``near_end``.

        The work is bounded as for :meth:`least_after`. The tokens with which the completion of the text can begin are
        always found.
        """
        near = self._near_end
        if near is None or (self._forces_ends and self._automaton.must_end(state)):
            return None
        if most < 0:
            return TokenSet(True, _NO_IDS)
        memory = self.memory
        known = memory.within.get((state, most))
        if known is None:
            known = self._within(state, most, near)
            known.ids.setflags(write=False)
            memory.note(known.ids)
            memory.within[state, most] = known
        return known

    def _within(self, state: State, most: int, near: NearEnd) -> TokenSet:
        trie = self._trie
        account, table = self._near_a_limit()

        def fits(value: State) -> bool:
            return (needed := self._completed(value, account)) is not None and needed <= most

        between = near.bound_between(state)
        if between is not None and between <= most:
            fit = self.allowed(state).mask(self.vocab_size)
            fit[trie_walk.tokens_at(trie, trie.within.nonzero()[0])[0]] = False
            fit[self._free] = False
            fit[tokens_within_characters(trie, table, state, near, most, fits)] = True
        else:
            fit = np.zeros(self.vocab_size, dtype=bool)
            fit[tokens_within(trie, table, state, near, self._layers(near, most), most, fits)] = True
        text = self._automaton.completion(state) or b""
        beginnings, at = trie_walk.tokens_at(trie, np.array(trie_walk.nodes_along(trie, text), dtype=np.int64))
        for token, index in zip(beginnings.tolist(), at.tolist(), strict=True):
            rest = self._fewest_tokens(text[index + 1 :])
            fit[token] |= rest is not None and rest <= most
        here = self.least_tokens(state)
        fit[self._free] = here is not None and here <= most
        return token_set_of_mask(fit)

    def _layers(self, near: NearEnd, most: int) -> tuple[Layers, Layers, Layers | None]:
        known = self.memory.layers.get(most)
        if known is None:
            known = self.memory.layers[most] = near.layers(most)
            self.memory.note(nbytes=24 * len(known[0].away))
        return known

    def _near_a_limit(self) -> tuple[Account, BoundedStates]:
        """The account of a mask near a limit on tokens, and the visited states that the walk of the mask may read."""
        account = Account(_MOST_WORK_NEAR)
        return account, BoundedStates(self._room(), account, _READ_NEAR * account.most // 5)

    def _completed(self, state: State, account: Account) -> int | None:
        """The tokens of the completion of a state; ``None`` if there is none, or if the account is used up."""
        if not account.take(_OF_A_COMPLETION):
            return None
        found = self.least_tokens(state)
        account.taken += found or 0
        return found

    def least_of(self, state: State, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """``[n] int32``: as :meth:`least_after` for some allowed ids; ``UNKNOWN`` for ids without a known text."""
        any_token = self.most_after(state)
        if any_token < UNKNOWN:
            by_id, _ = self._bounded_by_id(state, any_token)
        else:
            by_id = np.full(self.vocab_size, -1, dtype=np.int32)
            reached, least = self.least_after(state)
            by_id[reached] = least
        found = by_id.take(ids)
        found[found < 0] = UNKNOWN
        return found

    def _bounded_least_after(self, state: State, any_token: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        by_id, was_cut = self._bounded_by_id(state, any_token)
        allowed = self.allowed(state).listed(self.vocab_size) if was_cut else np.flatnonzero(by_id >= 0)
        return allowed.astype(np.int32), by_id.take(allowed)

    def _bounded_by_id(self, state: State, any_token: int) -> tuple[NDArray[np.int32], bool]:
        """By id the bound of :meth:`least_after`, -1 if no text is known to go on, and whether tokens were left out.

        Tokens that were left out have the bound ``any_token``. If there are such tokens, forbidden tokens have this
        bound, too.
        """
        account, table = self._near_a_limit()
        ids, which, values = self._read_from(state, table.visited, table)
        was_cut = table.was_cut
        # In the order of the walk, because numbers of states depend on what is remembered.
        least = np.full(len(values), any_token, dtype=np.int32)
        for index in in_order_of_appearance(which, len(values)).tolist():
            found = self._completed(values[index], account)
            least[index] = any_token if found is None else min(found, any_token)
        by_id = np.full(self.vocab_size, any_token if was_cut else -1, dtype=np.int32)
        by_id[ids] = least.take(which)
        text = self._automaton.completion(state) or b""
        along = np.array(trie_walk.nodes_along(self._trie, text), dtype=np.int64)
        beginnings, at = trie_walk.tokens_at(self._trie, along)
        for token, index in zip(beginnings.tolist(), at.tolist(), strict=True):
            rest = self._fewest_tokens(text[index + 1 :])
            by_id[token] = any_token if rest is None else min(by_id[token], rest)
        here = self.least_tokens(state)
        by_id[self._free] = UNKNOWN if here is None else here
        return by_id, was_cut

    def successors(self, state: State) -> tuple[NDArray[np.int32], list[State], NDArray[np.intp]]:
        """The allowed ids that have text, the distinct states after them, and per id the index of its state."""
        ids, which, values = self._successors_of(state)
        entered = [self._entered(value) for value in values]
        kept = np.array([reached is not None for reached in entered], dtype=bool)
        number = np.cumsum(kept) - 1
        chosen = kept.take(which) if len(values) else np.zeros(0, dtype=bool)
        return ids[chosen], [reached for reached in entered if reached is not None], number.take(which[chosen])

    def most_after(self, state: State, enough: int = 0) -> int:
        """What the automaton's ``completion_bound`` says."""
        found = None if self._completion_bound is None else self._completion_bound(state)
        return UNKNOWN if found is None else found

    @cached_property
    def _completion_bound(self) -> Callable[[State], int | None] | None:
        if self._counts_tokens:
            return None
        near = self._near_end
        return self._automaton.completion_bound(self._text_tokens) if near is None else near.bound

    @cached_property
    def _near_end(self) -> NearEnd | None:
        return None if self._counts_tokens else self._automaton.near_end(self._text_tokens)

    @property
    def _text_tokens(self) -> TextTokens:
        single = frozenset(np.flatnonzero(self._trie.single >= 0).tolist())
        fewest = partial(trie_walk.fewest_tokens, self._trie)
        return TextTokens(self._longest_token, single, fewest, self._trie.after_tails)

    @cached_property
    def _longest_token(self) -> int:
        return int(np.diff(self.vocabulary.offsets).max(initial=0))

    def _fewest_tokens(self, text: bytes) -> int | None:
        # Completions of states often have the same end.
        known, fewest = self.memory.written
        if not known.endswith(text):
            begin = bisect_left(range(len(text)), True, key=lambda at: known.endswith(text[at:]))
            after = fewest[len(known) - len(text) + begin :]
            self.memory.written = known, fewest = text, trie_walk.fewest_tokens(self._trie, text, after)
        return fewest[len(known) - len(text)]

    # --- token sets -----------------------------------------------------------------------------------------------

    def _room(self) -> VisitedStates:
        """The visited states; a new object if they have become too many."""
        visited = self.memory.visited
        if visited.nbytes > MOST_VISITED_BYTES or visited.work > _MOST_KEPT:
            visited = self.memory.visited = VisitedStates(self._automaton)
        return visited

    def _found(self, state: State) -> TokenSet:
        if self._forces_ends and self._automaton.must_end(state):
            return TokenSet(True, np.zeros(0, dtype=np.int32))
        # If all states have completions, no state has to be asked whether a text can end after it.
        always_ends = self._trie.every_byte or self.most_after(state) < UNKNOWN
        if self._counts_tokens or not always_ends:
            return self._found_by_walk(state)
        # The first masks are wanted soon, and most patterns have few.
        tried = len(self.memory.sets) < _FEW_SETS
        read = self._read(state) if tried else None
        if read is not None:
            return read
        alike = self._automaton.beginnings(state, self._longest_token)
        shared = alike is not None and alike != state
        part, whole = self._walked(state if alike is None else alike, shared, tried)
        if shared and not whole:
            found, whole = self._walked(state, False, tried)
            part = found if whole else part
        return part if whole else self._with_completion(part, state)

    def _walked(self, state: State, shared: bool, tried: bool) -> tuple[TokenSet, bool]:
        """The tokens of a state that bounded work finds, and whether they are all.

        A walk that looks for subtrees everywhere decides. This walk reads no state that a faster walk leaves out, so
        the result depends neither on the remembered states nor on the kernels.

        Args:
            state: the state.
            shared: whether other states begin the same texts.
            tried: whether a faster walk has been given up.
        """
        known = self.memory.parts.get(state)
        if known is not None:
            return known
        found, whole = None if tried else self._read(state), True
        if found is None:
            table = BoundedStates(self._room(), Account(_MOST_WORK))
            found, whole = self._by_levels(table, state), not table.was_cut
            self.memory.was_cut = table.was_cut
        if shared or not whole:
            self.memory.note(found.ids)
            self.memory.parts[state] = found, whole
        return found, whole

    def _read(self, state: State) -> TokenSet | None:
        """The tokens of a state; ``None`` if a fast walk takes too much work, or if the last walk left states out."""
        if self.memory.was_cut:
            return None
        kernels, trie, table = automaton_kernels(), self._trie, WatchedStates(self._room(), _MOST_WORK)
        with suppress(TooMuchWork):
            if kernels is not None:
                with suppress(KernelFailed):
                    ids = self._free, self._textless, self.vocab_size
                    found, _ = compiled_set(kernels, trie, table, table.visited.number(state), *ids)
                    return found if table.is_within else None
            found = self._by_levels(table, state)
            return found if table.is_within else None
        return None

    def _by_levels(self, table: WatchedStates | BoundedStates, state: State) -> TokenSet:
        walked = level_walk(self._trie, table, [(0, table.visited.number(state))])
        return walked_set(self._trie, walked, self._free, self._textless, self.vocab_size)

    def _with_completion(self, part: TokenSet, state: State) -> TokenSet:
        """The given tokens of a state, and the tokens with which the completion of the state can begin."""
        along = trie_walk.nodes_along(self._trie, self._automaton.completion(state) or b"")
        more, _ = trie_walk.tokens_at(self._trie, np.array(along, dtype=np.int64))
        ids = np.concatenate([part.listed(self.vocab_size), more, self._free])
        return token_set_of(distinct(ids, self.vocab_size).astype(np.int32), self.vocab_size)

    def _found_by_walk(self, state: State) -> TokenSet:
        ids, which, values = self._successors_of(state)
        kept = np.array([self._entered(value) is not None for value in values], dtype=bool)
        ids = np.concatenate([ids[kept.take(which)], self._free]) if len(values) else self._free.copy()
        return token_set_of(ids, self.vocab_size)

    def _entered(self, state: State) -> State | None:
        """The state after a token whose bytes lead to ``state``; ``None`` if it must not be entered."""
        reached = self._automaton.token_border(state) if self._counts_tokens else state
        return reached if reached is not None and self._can_end(reached) else None

    def _successors_of(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int64], list[State]]:
        """The tokens that can be read in a state, per token the index of its next state, and these next states."""
        visited = self._room()
        return self._read_from(state, visited, visited)

    def _read_from(
        self, state: State, visited: VisitedStates, table: WalkTable
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], list[State]]:
        """:meth:`_successors_of` with visited states, or with a bounded table of visited states."""
        trie = self._trie
        walked = level_walk(trie, table, [(0, visited.number(state))], keep_states=True)
        ids, at = trie.order.take(walked.positions(trie)), walked.states_after(trie)
        # Numbers are small, so a table of them is faster than sorting.
        place = np.zeros(int(at.max(initial=-1)) + 1, dtype=np.int64)
        place[at] = 1
        distinct = place.nonzero()[0]
        place[distinct] = np.arange(len(distinct))
        return ids, place.take(at), [visited.values[number] for number in distinct.tolist()]

    # --- reachability of acceptance -------------------------------------------------------------------------------

    def _has_text(self) -> bool:
        """Whether any text is accepted. If each byte is a token, only first bytes are tested, else a bounded search."""
        automaton, start = self._automaton, self._automaton.start()
        try:
            hash(start)
        except TypeError:
            raise InvalidSignature(
                f"A state of the automaton {type(automaton).__name__} is {shown(start)}, but states are immutable "
                f"values with a hash: numbers, bytes, tuples."
            ) from None
        if not self._trie.every_byte:
            return self._can_end(start)
        visited = self._room()
        number = visited.number(start)
        return automaton.accepts(start) or any(visited.follow(number, bytes((byte,))) >= 0 for byte in range(256))

    def _can_end(self, state: State) -> bool:
        """Whether some sequence of tokens reaches acceptance; ``True`` if a bounded search cannot decide.

        The result depends on the state alone, not on earlier searches.
        """
        if self._trie.every_byte:
            return True
        known = self.memory.ends.get(state)
        if known is None:
            known = self.most_after(state) < UNKNOWN or self._is_completed(state) or self._finds_end(state)
            self.memory.note()
            self.memory.ends[state] = known
        return known

    def _is_completed(self, state: State) -> bool:
        """Whether tokens write one of the completions that the automaton tells."""
        texts = () if self._counts_tokens else self._automaton.completions_of(state)
        return any(self._fewest_tokens(text) is not None for text in texts)

    def _finds_end(self, state: State) -> bool:
        text, visited = self._search(state)
        if text is None and visited is not None and self._singles_write_all:
            self._note_dead(visited)
            return False
        return text is not None or self._reaches_end(state)

    def _note_dead(self, states: list[State]) -> None:
        """Remember that no sequence of tokens reaches acceptance from some states."""
        self.memory.note(entries=len(states))
        self.memory.ends.update(dict.fromkeys(states, False))

    @cached_property
    def _singles_write_all(self) -> bool:
        """Whether single-byte tokens write every text that tokens can write, and lead to the same states."""
        return not self._counts_tokens and bool((self._trie.single[np.unique(self.vocabulary.flat_bytes)] >= 0).all())

    def _shortest(self, state: State) -> bytes | None:
        """A shortest text to acceptance, written with single-byte tokens; ``None`` if a bounded search finds none."""
        return self._search(state)[0]

    def _search(self, state: State) -> tuple[bytes | None, list[State] | None]:
        """A shortest text to acceptance, written with single-byte tokens, and the states that the search has reached.

        The text is ``None`` if there is none, or if the search met its bound. The states are ``None`` unless there is
        no text.
        """
        automaton = self._automaton
        visited = self._room()
        singles = [(byte, visited.byte_class[byte]) for byte in np.flatnonzero(self._trie.single >= 0).tolist()]
        usable = list({column: byte for byte, column in reversed(singles)}.values())
        before: dict[State, tuple[State, int] | None] = {state: None}
        queue = [state]
        for origin in queue:
            if automaton.accepts(origin):
                text = bytearray()
                while (step := before[origin]) is not None:
                    origin = step[0]
                    text.append(step[1])
                return bytes(reversed(text)), None
            if len(queue) > _MOST_SEARCHED:
                return None, None
            number = visited.number(origin)
            for byte in usable:
                after = visited.follow(number, bytes((byte,)))
                if after < 0:
                    continue
                reached: State | None = visited.values[after]
                if self._counts_tokens:
                    reached = automaton.token_border(reached)
                if reached is not None and reached not in before:
                    before[reached] = (origin, byte)
                    queue.append(reached)
        return None, queue

    def _reaches_end(self, state: State) -> bool:
        """Whether a sequence of any tokens reaches acceptance; ``True`` if a bounded search cannot decide.

        If not, no sequence reaches it from any visited state either, and all of them are remembered.
        """
        automaton = self._automaton
        seen: dict[State, None] = {state: None}
        queue = [state]
        for origin in queue:
            if automaton.accepts(origin) or len(queue) > _MOST_WALKED:
                return True
            for value in self._successors_of(origin)[2]:
                reached = automaton.token_border(value) if self._counts_tokens else value
                if reached is not None and reached not in seen:
                    seen[reached] = None
                    queue.append(reached)
        self._note_dead(queue)
        return False


def _lifted(automaton: ByteAutomaton, vocabulary: Vocabulary, vocab_size: int, restricts: bool) -> LiftedAutomaton:
    return LiftedAutomaton(automaton, vocabulary, vocab_size, restricts=restricts)
