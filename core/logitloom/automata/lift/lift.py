"""Lift an automaton over bytes to a constraint over the tokens of a vocabulary.

Tokens are byte strings, so a token leads from a state to the state after its bytes, and is allowed if that state
exists. One walk of the vocabulary's trie finds the allowed tokens of a state, and computes the automaton's states that
the walk visits. The results are kept in caches of bounded size.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import members
from logitloom.automata.automaton_kernels import (
    ENDLESS,
    NO_PATHS,
    SHORT,
    AutomatonKernels,
    WalkProgress,
    automaton_kernels,
)
from logitloom.automata.lift import trie_walk
from logitloom.automata.lift.row_walk import SORTED_BY_MASK, reads_on
from logitloom.automata.lift.trie import Trie, vocabulary_trie
from logitloom.automata.lift.visited import TooMuchWork, VisitedStates
from logitloom.automata.lift.walk_memory import MEMORY, note
from logitloom.contract import FINISHED, UNKNOWN, ByteAutomaton, Constraint, State, TokenSet
from logitloom.errors import VocabularyError
from logitloom.host.hookspecs import TextEnd
from logitloom.masks.kernels import ByteTable, KernelFailed
from logitloom.vocabulary import Vocabulary

__all__ = ["LiftedAutomaton", "lift"]

#: Limits of the caches: bytes of the table of visited states, bytes of token sets, and number of successors.
_MOST_TABLE_BYTES: Final = 32 << 20
_MOST_SET_BYTES: Final = 64 << 20
_MOST_SUCCESSORS: Final = 1 << 16
#: From so many token sets on, states that allow the same tokens are recognised.
_FEW_SETS: Final = 4
#: The largest number of states that a search for an accepting state visits: byte by byte, and token by token.
_MOST_SEARCHED: Final = 4096
_MOST_WALKED: Final = 256
#: The most work of the transitions of one walk, in units of :attr:`VisitedStates.work`. After half of it the cache of
#: visited states is replaced before a walk, and after a quarter a walk looks for subtrees that are allowed as a whole.
_MOST_WORK: Final = 6000
#: Near a limit on tokens: the most work of the transitions of one walk, and of the completions of the states that the
#: tokens lead to. A completion takes ``_OF_A_COMPLETION`` units, and one for each of its tokens.
_MOST_WORK_NEAR: Final = 4500
_MOST_COMPLETED: Final = 12_000
_OF_A_COMPLETION: Final = 8
#: If fewer tokens than this remain below the nodes of a walk, the walk continues node by node, which is faster.
_THIN: Final = 512
#: With more tokens than this below the nodes of a walk, the walk looks for subtrees that are allowed as a whole.
_MANY: Final = 8192


def lift(
    automaton: ByteAutomaton, vocabulary: Vocabulary, vocab_size: int | None = None, *, restricts: bool = True
) -> LiftedAutomaton:
    """The constraint that allows a token exactly if the automaton can read its bytes.

    Args:
        automaton: the automaton over bytes.
        vocabulary: the bytes of each id.
        vocab_size: width of the model's logits, at least ``vocabulary.size``, which is the default.
        restricts: whether the text is restricted to the automaton's language. If not, ids without text (special tokens,
            the padding of a vocabulary) are allowed and do not change the state.

    Raises:
        VocabularyError: if the width is too small, or no sequence of tokens writes an accepted text.

    Example:
        >>> class Brackets(ByteAutomaton):
        ...     fingerprint = b"brackets"
        ...     def start(self): return 0
        ...     def step(self, depth, byte):
        ...         depth += {ord("("): 1, ord(")"): -1}.get(byte, 0)
        ...         return depth if depth >= 0 else None
        ...     def accepts(self, depth): return depth == 0
        >>> words = Vocabulary([b"</s>", b"(", b")", b"))", b"x"], eos=[0])
        >>> constraint = lift(Brackets(), words)
        >>> constraint.allowed(1).listed(5).tolist(), constraint.advance(2, 3), constraint.may_end(0)
        ([1, 2, 4], 0, True)
    """
    return LiftedAutomaton(automaton, vocabulary, vocab_size, restricts=restricts)


class LiftedAutomaton(Constraint):
    """An automaton over bytes as a constraint; made by :func:`lift`.

    Its states are those of the automaton. If the vocabulary lacks single-byte tokens, there can be states from which
    bytes reach acceptance and tokens do not. Such a state is never entered if a bounded search detects it.
    """

    exact_least = False

    def __init__(
        self, automaton: ByteAutomaton, vocabulary: Vocabulary, vocab_size: int | None = None, *, restricts: bool = True
    ) -> None:
        self._automaton = automaton
        self.vocabulary = vocabulary
        self.vocab_size = vocabulary.size if vocab_size is None else int(vocab_size)
        self.restricts = restricts
        vocabulary.check_width(self.vocab_size)
        self._trie: Trie = vocabulary_trie(vocabulary)
        padding = np.arange(vocabulary.size, self.vocab_size, dtype=np.int32)
        self._textless: NDArray[np.int32] = np.concatenate([self._trie.textless, padding])
        #: Ids without text that are allowed in every state in which the text may continue.
        self._free: NDArray[np.int32] = self._textless[:0]
        if not restricts:
            self._free = self._textless[~np.isin(self._textless, vocabulary.eos)]
        self._free_ids = frozenset(self._free.tolist())
        #: Whether the state after a token can differ from the state after its bytes.
        self._has_borders = type(automaton).token_border is not ByteAutomaton.token_border
        self._must_end = type(automaton).must_end is not ByteAutomaton.must_end
        self.ends_texts = type(automaton).text_end is not ByteAutomaton.text_end
        self.forget()
        if not self._has_text():
            raise VocabularyError(
                f"No sequence of tokens of {vocabulary.name} writes a text that the automaton accepts. Use a "
                f"vocabulary that has its bytes, or an automaton that needs no others."
            )

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

    def forget(self) -> None:
        """Clear all caches. Other threads may use the constraint meanwhile; no result changes."""
        self._visited = VisitedStates(self._automaton)
        self._sets: dict[State, TokenSet] = {}
        #: The sets of states that begin the same texts as others (see :meth:`ByteAutomaton.beginnings`) and of states
        #: whose walk takes too much work, each with whether the set is whole.
        self._alike: dict[State, tuple[TokenSet, bool]] = {}
        #: Whether the last walk was cut. The next one then begins with nothing that is remembered, as it would end.
        self._dear = False
        self._set_bytes = 0
        self._successors: dict[tuple[State, int], State | None] = {}
        self._least: dict[State, int | None] = {}
        #: A text that was asked for, and the fewest tokens for each of its ends.
        self._written: tuple[bytes, list[int | None]] = (b"", [0])
        #: Per state whether a sequence of tokens reaches acceptance.
        self._ends: dict[State, bool] = {}

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
        sets = self._sets
        known = sets.get(state)
        if known is None:
            known = self._found(state)
            known.ids.setflags(write=False)
            if self._set_bytes > _MOST_SET_BYTES:
                self._sets, self._alike, self._set_bytes = {}, {}, 0
            self._set_bytes += known.ids.nbytes
            self._sets[state] = known
        return known

    def advance(self, state: State, token: int) -> State | None:
        """The state after the bytes of a token and its border; ``None`` if it is not allowed."""
        key = (state, token)
        successors = self._successors
        if key in successors:
            return successors[key]
        reached = self._advanced(state, token)
        if len(successors) >= _MOST_SUCCESSORS:
            self._successors = successors = {}
        successors[key] = reached
        return reached

    def _advanced(self, state: State, token: int) -> State | None:
        text = self.vocabulary.token_bytes[token] if 0 <= token < self.vocabulary.size else b""
        if self._must_end and self._automaton.must_end(state):
            return None
        if not text:
            return state if token in self._free_ids else None
        visited = self._room()
        number = visited.follow(visited.number(state), text)
        if number < 0:
            return None
        reached: State | None = visited.values[number]
        if self._has_borders:
            reached = self._automaton.token_border(reached)
        return reached if reached is not None and self._can_end(reached) else None

    def least_tokens(self, state: State) -> int | None:
        """An upper bound on the least number of tokens to an accepting state: the tokens of a short text.

        The text is the automaton's ``completion``, or else one shortest in bytes; if the automaton looks at the borders
        of tokens, each of its bytes is a token. ``None`` if a bounded search finds no accepting state.
        """
        if self.may_end(state):
            return 0
        if state not in self._least:
            text = self._automaton.completion(state)
            found = None if text is None else self._fewest_tokens(text)
            if found is None:
                text = self._shortest(state)
                if text is not None:
                    found = len(text) if self._has_borders else self._fewest_tokens(text)
            least = self._least if len(self._least) < _MOST_SUCCESSORS else {}
            least[state] = found
            self._least = least
        return self._least[state]

    def least_after(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The allowed ids and a bound for :meth:`least_tokens` after each, computed once per distinct next state.

        If a bound is known for any token (:meth:`most_after`), a bounded amount of work is done. The tokens with which
        the completion of the text can begin come first, then shorter tokens. The others have the bound of any token.
        The result depends on the state alone, not on what is remembered, nor on the kernels.
        """
        if self._must_end and self._automaton.must_end(state):
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

    def _bounded_least_after(self, state: State, any_token: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        read, was_cut = None, False
        if not self._dear:
            visited = self._room()
            with suppress(TooMuchWork):
                read = self._read_from(state, visited, partial(visited.step, most=_MOST_WORK_NEAR))
        if read is None:
            visited = self._visited = VisitedStates(self._automaton)
            read = self._read_from(state, visited, partial(visited.step, most=_MOST_WORK_NEAR, cut=True))
            was_cut = self._dear = visited.was_cut
        ids, which, values = read
        # In the order of the walk, because numbers of states depend on what is remembered.
        first = np.zeros(len(values), dtype=np.int64)
        first[which[::-1]] = np.arange(len(which))[::-1]
        least = np.full(len(values), any_token, dtype=np.int32)
        work = 0
        for index in first.argsort().tolist():
            found = self.least_tokens(values[index])
            least[index] = found = any_token if found is None else min(found, any_token)
            work += _OF_A_COMPLETION + found
            if work > _MOST_COMPLETED:
                break
        by_id = np.full(self.vocab_size, any_token if was_cut else -1, dtype=np.int32)
        by_id[ids] = least.take(which)
        text = self._automaton.completion(state) or b""
        beginnings, at = trie_walk.tokens_at(
            self._trie, np.array(trie_walk.nodes_along(self._trie, text), dtype=np.int64)
        )
        for token, index in zip(beginnings.tolist(), at.tolist(), strict=True):
            rest = self._fewest_tokens(text[index + 1 :])
            by_id[token] = any_token if rest is None else min(by_id[token], rest)
        here = self.least_tokens(state)
        by_id[self._free] = UNKNOWN if here is None else here
        allowed = self.allowed(state).listed(self.vocab_size) if was_cut else np.flatnonzero(by_id >= 0)
        return allowed.astype(np.int32), by_id.take(allowed)

    def successors(self, state: State) -> tuple[NDArray[np.int32], list[State], NDArray[np.intp]]:
        """The allowed ids that have text, the distinct states after them, and per id the index of its state."""
        ids, which, values = self._successors_of(state)
        entered = [self._entered(value) for value in values]
        kept = np.array([reached is not None for reached in entered], dtype=bool)
        number = np.cumsum(kept) - 1
        chosen = kept.take(which) if len(values) else np.zeros(0, dtype=bool)
        return ids[chosen], [reached for reached in entered if reached is not None], number.take(which[chosen])

    def most_after(self, state: State) -> int:
        """The bytes of the longest completion that the automaton may need after one more token, if all are tokens."""
        if self._has_borders:
            return UNKNOWN
        found = self._automaton.longest_completion(state, self._longest_token, self._writable)
        return UNKNOWN if found is None else found

    @cached_property
    def _longest_token(self) -> int:
        return int(np.diff(self.vocabulary.offsets).max(initial=0))

    @cached_property
    def _writable(self) -> frozenset[int]:
        return frozenset(np.flatnonzero(self._trie.single >= 0).tolist())

    def _fewest_tokens(self, text: bytes) -> int | None:
        # Completions of states often have the same end.
        known, fewest = self._written
        if not known.endswith(text):
            begin = bisect_left(range(len(text)), True, key=lambda at: known.endswith(text[at:]))
            after = fewest[len(known) - len(text) + begin :]
            self._written = known, fewest = text, trie_walk.fewest_tokens(self._trie, text, after)
        return fewest[len(known) - len(text)]

    # --- token sets -----------------------------------------------------------------------------------------------

    def _room(self) -> VisitedStates:
        """The cache of visited states; a new one if it has become too large."""
        visited = self._visited
        if visited.nbytes > _MOST_TABLE_BYTES or visited.work > _MOST_WORK // 2:
            visited = self._visited = VisitedStates(self._automaton)
        return visited

    def _found(self, state: State) -> TokenSet:
        if self._must_end and self._automaton.must_end(state):
            return TokenSet(True, np.zeros(0, dtype=np.int32))
        # Where all states have completions, nobody has to ask of each whether a text can end after it.
        always_ends = self._trie.every_byte or self.most_after(state) < UNKNOWN
        if self._has_borders or not always_ends:
            return self._found_by_walk(state)
        # The first masks are wanted soon, and most patterns have few.
        known = len(self._sets) >= _FEW_SETS
        alike = self._alike_state(state) if known else None
        part, whole = self._walked(state if alike is None else alike, alike is not None)
        if whole:
            return part
        if alike is not None:
            found, whole = self._walked(state, False)
            return found if whole else self._with_completion(part, state)
        alike = None if known else self._alike_state(state)
        if alike is not None:
            part, whole = self._walked(alike, True)
        return part if whole else self._with_completion(part, state)

    def _alike_state(self, state: State) -> State | None:
        return self._automaton.beginnings(state, self._longest_token)

    def _walked(self, state: State, shared: bool) -> tuple[TokenSet, bool]:
        """The tokens of a state that bounded work finds, and whether they are all.

        The last of three walks makes no transition that the first two leave out. So the result does not depend on what
        is remembered, nor on the kernels.

        Args:
            state: the state.
            shared: whether other states begin the same texts.
        """
        if state in self._alike:
            return self._alike[state]
        kernels, found = automaton_kernels(), None
        with suppress(TooMuchWork):
            if kernels is not None and not self._dear:
                with suppress(KernelFailed):
                    found = self._found_by_kernels(kernels, state)
            if found is None and not self._dear:
                found = self._token_set(self._ids_of(self._levels(self._room(), state)))
        whole = found is not None
        if found is None:
            visited = self._visited = VisitedStates(self._automaton)
            found = self._token_set(self._ids_of(self._levels(visited, state, cut=True)))
            self._dear, whole = visited.was_cut, not visited.was_cut
        if shared or not whole:
            self._alike[state] = found, whole
        return found, whole

    def _with_completion(self, part: TokenSet, state: State) -> TokenSet:
        """Some of the tokens of a state, and those with which its completion can begin."""
        below = trie_walk.nodes_along(self._trie, self._automaton.completion(state) or b"")
        more = self._ids_of([(self._trie.first.take(below), self._trie.own.take(below))])
        return self._token_set(np.union1d(part.listed(self.vocab_size), more))

    def _ids_of(self, spans: list[tuple[NDArray[Any], NDArray[Any]]]) -> NDArray[np.int32]:
        """The ids of some ranges of ``Trie.order``, and those that are allowed in every state."""
        first = np.concatenate([one for one, _ in spans])
        last = np.concatenate([one for _, one in spans])
        return np.concatenate([self._trie.order.take(members(first, last - first)), self._free])

    def _levels(
        self, visited: VisitedStates, state: State, cut: bool = False
    ) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """A walk level by level that looks for subtrees that are allowed as a whole.

        Args:
            visited: the cache of visited states.
            state: the state.
            cut: whether transitions above the bound on work are left out. The first bytes of tokens are always read.
                With it, the walk also looks for such subtrees below few tokens, where this takes longer than reading.

        Returns:
            The ranges of ``Trie.order`` of the tokens that were found, as their first and last positions.

        Raises:
            TooMuchWork: if the transitions would exceed the bound, without ``cut``.
        """
        trie = self._trie
        nodes, states = np.zeros(1, dtype=np.int64), np.array([visited.number(state)], dtype=np.int32)
        spans: list[tuple[NDArray[Any], NDArray[Any]]] = []
        most = None if cut else _MOST_WORK
        while len(nodes):
            dear = cut or visited.work > _MOST_WORK // 4
            if dear or int((trie.last.take(nodes) - trie.own.take(nodes)).sum()) > _MANY:
                whole = reads_on(visited.paths(trie, states), trie, nodes, states)
                spans.append((trie.own.take(nodes[whole]), trie.last.take(nodes[whole])))
                nodes, states = nodes[~whole], states[~whole]
            below, counts = trie_walk.children(trie, nodes)
            reached = visited.step(states.repeat(counts), trie.byte.take(below), most, cut)
            most = _MOST_WORK
            alive = (reached >= 0).nonzero()[0]
            nodes, states = below.take(alive), reached.take(alive)
            spans.append((trie.first.take(nodes), trie.own.take(nodes)))
            inner = (trie.child_count.take(nodes) > 0).nonzero()[0]
            nodes, states = nodes.take(inner), states.take(inner)
        return spans

    def _found_by_walk(self, state: State) -> TokenSet:
        ids, which, values = self._successors_of(state)
        kept = np.array([self._entered(value) is not None for value in values], dtype=bool)
        ids = np.concatenate([ids[kept.take(which)], self._free]) if len(values) else self._free.copy()
        return self._token_set(ids)

    def _entered(self, state: State) -> State | None:
        """The state after a token whose bytes lead to ``state``; ``None`` if it must not be entered."""
        reached = self._automaton.token_border(state) if self._has_borders else state
        return reached if reached is not None and self._can_end(reached) else None

    def _token_set(self, ids: NDArray[np.int32]) -> TokenSet:
        listed = 2 * len(ids) <= self.vocab_size
        if listed and len(ids) <= SORTED_BY_MASK:
            return TokenSet(True, np.sort(ids))
        mask = np.zeros(self.vocab_size, dtype=bool)
        mask[ids] = True
        return TokenSet(listed, (mask if listed else ~mask).nonzero()[0].astype(np.int32))

    def _successors_of(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int64], list[State]]:
        """The tokens that can be read in a state, per token the index of its next state, and these next states."""
        visited = self._room()
        return self._read_from(state, visited, visited.step)

    def _read_from(
        self, state: State, visited: VisitedStates, step: trie_walk.Step
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], list[State]]:
        trie = self._trie
        nodes, reached = [], []
        start = np.array([visited.number(state)], dtype=np.int32)
        for found, states in trie_walk.levels(trie, step, np.zeros(1, dtype=np.int64), start):
            nodes.append(found)
            reached.append(states)
        ids, which = trie_walk.tokens_at(trie, np.concatenate(nodes))
        at = np.concatenate(reached).take(which)
        # Numbers are small, so a table of them is faster than sorting.
        place = np.zeros(int(at.max(initial=-1)) + 1, dtype=np.int64)
        place[at] = 1
        distinct = place.nonzero()[0]
        place[distinct] = np.arange(len(distinct))
        return ids, place.take(at), [visited.values[number] for number in distinct.tolist()]

    def _found_by_kernels(self, kernels: AutomatonKernels, state: State) -> TokenSet:
        """The token set by the compiled walk. It returns unknown transitions to the caller, which computes them."""
        trie, visited = self._trie, self._room()
        with MEMORY.room(trie.nodes, len(trie.order)) as (pairs, notes):
            pairs[0] = 0, visited.number(state)
            at, paths, limit = WalkProgress(0, 1, 0, len(pairs), 0), NO_PATHS, SHORT
            while True:
                automaton = ByteTable(visited.table, visited.every_row, visited.byte_class)
                at = kernels.walk(automaton, trie.records, trie.byte, paths, pairs, notes, at, limit)
                if at.begin < at.end and limit == SHORT:
                    # Earlier walks have computed the transitions of a large part of the trie.
                    paths, limit = visited.paths(trie), ENDLESS
                    continue
                if at.begin < at.end:
                    below = self._one_by_one(visited, pairs[at.begin : at.end].tolist())
                    at = at._replace(found=note(notes, trie.first.take(below), trie.own.take(below), at.found))
                left = pairs[at.special :]
                if not len(left):
                    break
                nodes, states = left[:, 0], -2 - left[:, 1]
                if visited.nbytes > _MOST_TABLE_BYTES:
                    visited, states = self._renumbered(visited, states)
                    left[:, 1] = -2 - states
                alive = visited.step(states, trie.byte.take(nodes), _MOST_WORK) >= 0
                further = int((trie.last.take(nodes) - trie.own.take(nodes)).sum(where=alive))
                if paths.known >= 0 or further > _MANY or visited.work > _MOST_WORK // 4:
                    paths = visited.paths(trie)
                limit = 0 if further < _THIN else ENDLESS
                at = WalkProgress(0, 0, 0, len(pairs), at.found, at.special)
            if visited.work > _MOST_WORK:
                raise TooMuchWork
            return TokenSet(*kernels.collect(notes, trie.order, at.found, self._free, self._textless, self.vocab_size))

    def _one_by_one(self, visited: VisitedStates, pairs: list[list[int]]) -> NDArray[np.int64]:
        """The nodes below pairs of a node and a state at which the state is alive, found node by node."""
        child_start, child_count, byte = self._trie.views
        found = []
        while pairs:
            node, state = pairs.pop()
            begin = child_start[node]
            for child in range(begin, begin + child_count[node]):
                reached = visited.after(state, byte[child])
                if reached >= 0:
                    found.append(child)
                    pairs.append([child, reached])
        return np.array(found, dtype=np.int64)

    def _renumbered(
        self, visited: VisitedStates, numbers: NDArray[np.int32]
    ) -> tuple[VisitedStates, NDArray[np.int32]]:
        """A new cache of visited states for a walk in progress, and the numbers of its current states in the cache."""
        fresh = self._visited = VisitedStates(self._automaton)
        distinct, index = np.unique(numbers, return_inverse=True)
        renumbered = [fresh.number(visited.values[number]) for number in distinct.tolist()]
        return fresh, np.array(renumbered, dtype=np.int32)[index.ravel()]

    # --- reachability of acceptance -------------------------------------------------------------------------------

    def _has_text(self) -> bool:
        """Whether any text is accepted. If each byte is a token, only first bytes are tested, else a bounded search."""
        automaton, start = self._automaton, self._automaton.start()
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
        known = self._ends.get(state)
        if known is None:
            ends = self._ends if len(self._ends) < _MOST_SUCCESSORS else {}
            known = ends[state] = (
                self.most_after(state) < UNKNOWN or self._is_completed(state) or self._finds_end(state, ends)
            )
            self._ends = ends
        return known

    def _is_completed(self, state: State) -> bool:
        """Whether tokens write the completion that the automaton tells."""
        text = None if self._has_borders else self._automaton.completion(state)
        return text is not None and self._fewest_tokens(text) is not None

    def _finds_end(self, state: State, ends: dict[State, bool]) -> bool:
        text, visited = self._search(state)
        if text is None and visited is not None and self._singles_write_all:
            ends.update(dict.fromkeys(visited, False))
            return False
        return text is not None or self._reaches_end(state, ends)

    @cached_property
    def _singles_write_all(self) -> bool:
        """Whether single-byte tokens write every text that tokens can write, and lead to the same states."""
        return not self._has_borders and bool((self._trie.single[np.unique(self.vocabulary.flat_bytes)] >= 0).all())

    def _shortest(self, state: State) -> bytes | None:
        """A shortest text to acceptance, written with single-byte tokens; ``None`` if a bounded search finds none."""
        return self._search(state)[0]

    def _search(self, state: State) -> tuple[bytes | None, list[State] | None]:
        """The same, and if there is none at all, the states that such texts reach; ``None`` if the bound was met."""
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
                if self._has_borders:
                    reached = automaton.token_border(reached)
                if reached is not None and reached not in before:
                    before[reached] = (origin, byte)
                    queue.append(reached)
        return None, queue

    def _reaches_end(self, state: State, ends: dict[State, bool]) -> bool:
        """Whether a sequence of any tokens reaches acceptance; ``True`` if a bounded search cannot decide.

        If not, it cannot from any visited state either, and ``ends`` records all of them.
        """
        automaton = self._automaton
        seen: dict[State, None] = {state: None}
        queue = [state]
        for origin in queue:
            if automaton.accepts(origin) or len(queue) > _MOST_WALKED:
                return True
            for value in self._successors_of(origin)[2]:
                reached = automaton.token_border(value) if self._has_borders else value
                if reached is not None and reached not in seen:
                    seen[reached] = None
                    queue.append(reached)
        ends.update(dict.fromkeys(queue, False))
        return False


def _lifted(automaton: ByteAutomaton, vocabulary: Vocabulary, vocab_size: int, restricts: bool) -> LiftedAutomaton:
    return lift(automaton, vocabulary, vocab_size, restricts=restricts)
