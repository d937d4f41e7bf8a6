"""Constraints over the matchers of a grammar engine: the state is the tokens, the matcher is a cached value.

A matcher of an engine changes when it reads a token, exists in one process only, and cannot be compared. So it is no
state. The state is the sequence of tokens (:class:`TokensRead`). One matcher reads a text that grows token by
token, and is stored under each state that it goes through. For a state that the stored matcher has already left, a copy
of this matcher is made and goes back to the state.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.constraints import UNKNOWN, Constraint, State, TokenSet
from logitloom.errors import BudgetExceeded, LogitloomError, StateMismatch, VocabularyError
from logitloom.process_memory import ProcessLock, renewed_in_children
from logitloom_plugins.grammars.completions import TokenCompletions
from logitloom_plugins.grammars.context_free import ContextFreeGrammar as ContextFree
from logitloom_plugins.grammars.tokens_read import NOTHING_READ, TokensRead

__all__ = ["MatcherConstraint"]

#: The most memory for the matchers of one constraint, and a rough estimate for one matcher, which grows with each
#: token.
_CAPACITY: Final = 128 << 20
_MATCHER_BYTES: Final = 8 << 10
_TOKEN_BYTES: Final = 64
_PLACE_BYTES: Final = 320


class _Reader:
    """A matcher, and the states that the matcher went through since it was made; the last state is the current one."""

    __slots__ = ("matcher", "places")

    def __init__(self, matcher: Any, place: TokensRead) -> None:
        self.matcher = matcher
        self.places = [place]

    @property
    def nbytes(self) -> int:
        """The size in memory, roughly."""
        return _MATCHER_BYTES + _TOKEN_BYTES * self.places[0].length + _PLACE_BYTES * len(self.places)


class MatcherConstraint(Constraint):
    """A grammar bound to a vocabulary, over the matchers of an engine; a subclass says how the matchers are used.

    Subclasses implement the seven abstract methods, which get matchers in place of states. One thread at a time calls
    these methods.

    Args:
        vocabulary: needs at least one end-of-sequence id.
        vocab_size: width of the logits; ids from ``vocabulary.size`` on are never allowed.
        grammar: the engine, its version, the grammar and the limits: all that decides the matchers.
        rules: the same grammar as rules, without useless parts, if they are known: only then can the constraint tell
            how many tokens complete a text.
        unlimited_because: why the rules are not known, in sentences.

    Raises:
        VocabularyError: if the vocabulary cannot end a text.
    """

    _buffer: NDArray[np.int32]
    _made_completions: TokenCompletions | None
    _first: Any

    exact_least = False
    most_forced = 64  # each of them takes a mask of the engine

    def __init__(
        self,
        vocabulary: Vocabulary,
        vocab_size: int,
        grammar: str,
        rules: ContextFree | None = None,
        unlimited_because: str = "",
    ) -> None:
        if not vocabulary.eos:
            raise VocabularyError(
                f"{vocabulary.name} has no end-of-sequence id, so no text could ever end. Use Vocabulary.with_eos."
            )
        self.vocabulary = vocabulary
        self.vocab_size = vocab_size
        self.words = (vocab_size + 31) // 32
        self._grammar_text = grammar
        self._rules = rules
        self.unlimited_because = unlimited_because
        self._kept_bits: NDArray[np.uint32] = self._bits_of_texts()
        #: Token sets by the bits of their masks, and by the tokens that were read.
        self._sets: dict[bytes, TokenSet] = self.memory.table("token sets")
        self._allowed: dict[TokensRead, TokenSet] = self.memory.table("token sets by text")
        self._lock = ProcessLock()
        self._begin()
        self._unread()  # the engine's objections to the grammar are raised now
        renewed_in_children(self, MatcherConstraint._begin)

    @property
    def fingerprint(self) -> bytes:
        """A hash of the engine, its version, the grammar and the vocabulary."""
        parts = (self._grammar_text, self.vocabulary.fingerprint, str(self.vocab_size))
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).digest()

    # --- what a subclass implements -------------------------------------------------------------------------------

    @abstractmethod
    def start_threads(self) -> Any:
        """The engine's executor that computes several masks at once, for :attr:`threads`; made once in each process."""

    @abstractmethod
    def first_matcher(self) -> Any:
        """A matcher that has read nothing."""

    @abstractmethod
    def accepting(self, matcher: Any) -> bool:
        """Whether the text may end here."""

    @abstractmethod
    def copied(self, matcher: Any) -> Any:
        """A copy: reading or going back with one matcher does not change the other matcher."""

    @abstractmethod
    def read(self, matcher: Any, tokens: Sequence[int]) -> bool:
        """Let a matcher read tokens with text; ``False`` if they are not allowed. A forbidden token changes nothing."""

    @abstractmethod
    def go_back(self, matcher: Any, count: int) -> bool:
        """Let a matcher forget the last tokens; ``False`` if it cannot."""

    @abstractmethod
    def fill(self, work: list[tuple[Any, int]], buffer: NDArray[np.int32]) -> list[int]:
        """Write the mask of each matcher into the row of ``buffer`` that is given with it, without holding the GIL.

        Returns:
            The rows whose masks the engine gave up, because they take too much work.
        """

    def less_work(self, state: TokensRead, matcher: Any) -> TokenSet:
        """Some of the allowed tokens of a text, always with a way to the end, found with less work than all of them.

        Args:
            state: the tokens that were read.
            matcher: the matcher that gave up computing the mask of this text.

        Raises:
            BudgetExceeded: if less work does not find any.
        """
        raise NotImplementedError(f"{type(self).__name__} gives no mask up.")

    # --- the contract ---------------------------------------------------------------------------------------------

    def start(self) -> TokensRead:
        """The empty sequence of tokens."""
        return NOTHING_READ

    def advance(self, state: State, token: int) -> TokensRead | None:
        """The state after one more token, ``None`` if the token is not allowed."""
        if not 0 <= token < min(self.vocabulary.size, self.vocab_size) or not self.vocabulary.token_bytes[token]:
            return None
        read = _tokens_read(state)
        following = read.then(token)
        with self._lock:
            if following not in self._readers:
                reader = self._reader(read)
                try:
                    if not self.read(reader.matcher, [token]):
                        return None
                    reader.places.append(following)
                except BaseException:
                    # Also after an interruption: the matcher may have read a token that is not among its places.
                    self._drop(reader)
                    raise
                self._readers[following] = reader
                self._make_room(_PLACE_BYTES)
        return following

    def may_end(self, state: State) -> bool:
        """Whether the matcher accepts the text that it has read."""
        with self._lock:
            return self.accepting(self._matcher(_tokens_read(state)))

    def allowed(self, state: State) -> TokenSet:
        """The tokens that the engine allows."""
        return self._allowed.get(_tokens_read(state)) or self.allowed_many([state])[0]

    def allowed_many(self, states: Sequence[State]) -> list[TokenSet]:
        """The tokens that the engine allows in each state, found by its threads at once."""
        texts = [*map(_tokens_read, states)]
        found = {read: members for read in texts if (members := self._allowed.get(read)) is not None}
        missing = [read for read in dict.fromkeys(texts) if read not in found]
        if missing:
            found.update(zip(missing, self._filled(missing), strict=True))
            self.memory.note(entries=len(missing))
            self._allowed.update((read, found[read]) for read in missing)
        return [found[read] for read in texts]

    def _filled(self, states: list[TokensRead]) -> list[TokenSet]:
        with self._lock:
            if len(self._buffer) < len(states):
                self._buffer = np.zeros((len(states), self.words), dtype=np.int32)
            # The engine changes a matcher even when it computes a mask, so the lock covers the whole loop.
            try:
                work = [(self._matcher(state), row) for row, state in enumerate(states)]
                given_up = self.fill(work, self._buffer)
                found = [self._token_set(self._buffer[row]) for row in range(len(states))]
                for row in given_up:
                    found[row] = self._completable(states[row], self.less_work(states[row], work[row][0]))
            except LogitloomError:
                self._start_anew()
                raise
            if given_up:
                self._start_anew()
            return found

    def _completable(self, state: TokensRead, some: TokenSet) -> TokenSet:
        """Some allowed tokens of a text, and those on a shortest way to the end, which a limit of tokens may need."""
        if self._completions is None:
            return some
        return TokenSet(True, np.union1d(some.ids, self._completions.towards_end(state)).astype(np.int32))

    def _start_anew(self) -> None:
        """Drop all matchers: a failed matcher is of no more use, nor are the matchers that share its lexer."""
        self._first = None
        self.forget()

    # --- distance to the end --------------------------------------------------------------------------------------

    def least_tokens(self, state: State) -> int | None:
        """The fewest tokens that write the shortest text to an end; ``None`` without rules, or if they are too large.

        The number is an upper bound: a text of more bytes may take fewer tokens.
        """
        if self._completions is None:
            return super().least_tokens(state)
        return self._completions.least(_tokens_read(state))

    def least_after(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The tokens that the engine allows, and :meth:`least_tokens` after each."""
        members = self.allowed(state)
        if self._completions is None:
            ids = members.listed(self.vocab_size)
            return ids, np.full(len(ids), UNKNOWN, dtype=np.int32)
        return self._completions.after(_tokens_read(state), members)

    def most_after(self, state: State, enough: int = 0) -> int:
        """A bound by what the bytes of the allowed tokens can open in the grammar."""
        if self._completions is None:
            return UNKNOWN
        return self._completions.most_after(_tokens_read(state), self.allowed(state))

    @property
    def _completions(self) -> TokenCompletions | None:
        if self._rules is not None and self._made_completions is None:
            try:
                self._made_completions = TokenCompletions(self._rules, self.vocabulary, self.vocab_size)
            except (BudgetExceeded, VocabularyError) as error:
                self._rules, self.unlimited_because = None, str(error)
        return self._made_completions

    # --- matchers -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        # A forked child makes its own threads and matchers, because the parent's do not work there.
        self._buffer = np.zeros((0, self.words), dtype=np.int32)
        self.forget()
        self._first = None
        self._threads: Any = None
        self._made_completions = None

    @property
    def threads(self) -> Any:
        """The executor that :meth:`start_threads` made in this process."""
        if self._threads is None:
            self._threads = self.start_threads()
        return self._threads

    def forget(self) -> None:
        """Drop all matchers; they are made again by reading tokens when they are needed."""
        with self._lock:
            #: By state the reader whose matcher is in the state, or was in it and went on.
            self._readers: dict[TokensRead, _Reader] = {}
            #: The same readers, each once, the most recently used reader last.
            self._used: OrderedDict[_Reader, None] = OrderedDict()
            self._room = _CAPACITY

    def _make_room(self, nbytes: int) -> None:
        """Reserve memory; the least recently used matchers are dropped if there is too little."""
        self._room -= nbytes
        while self._room < 0 and len(self._used) > 1:
            self._drop(next(iter(self._used)))

    def _drop(self, reader: _Reader) -> None:
        for place in reader.places:
            if self._readers.get(place) is reader:
                del self._readers[place]
        del self._used[reader]
        self._room += reader.nbytes

    def _matcher(self, state: TokensRead) -> Any:
        """The matcher that has read exactly some tokens, to be asked; only that of a reader may be changed."""
        return self._unread() if state.before is None else self._reader(state).matcher

    def _unread(self) -> Any:
        if self._first is None:
            self._first = self.first_matcher()
        return self._first

    def _reader(self, state: TokensRead) -> _Reader:
        """The reader whose matcher has read exactly some tokens."""
        found = self._readers.get(state)
        if found is None or found.places[-1] != state:
            found = _Reader(self._made(state), state)
            # ``_used`` first, so that after an interruption every reader in ``_readers`` can still be dropped.
            self._used[found] = None
            self._readers[state] = found
            self._make_room(found.nbytes)
        else:
            self._used.move_to_end(found)
        return found

    def _made(self, state: TokensRead) -> Any:
        """A new matcher that has read some tokens: a copy of the nearest matcher, rolled back, then fed the rest."""
        at, missing = state, list[int]()
        while at.before is not None:
            nearest = self._readers.get(at)
            if nearest is not None:
                matcher = self.copied(nearest.matcher)
                more = nearest.places[-1].length - at.length
                if not more or self.go_back(matcher, more):
                    break
            missing.append(at.token)
            at = at.before
        else:
            matcher = self.copied(self._unread())
        if missing and not self.read(matcher, missing[::-1]):
            raise StateMismatch(
                f"A state of {state.length} tokens was given to a grammar that does not allow them: "
                f"{self.vocabulary.decode(state.tokens())!r:.200}. Give a state to an equal constraint only."
            )
        return matcher

    # --- masks ----------------------------------------------------------------------------------------------------

    def _bits_of_texts(self) -> NDArray[np.uint32]:
        """``[words]``: the ids below ``vocab_size`` that are no end-of-sequence ids."""
        kept = np.zeros(32 * self.words, dtype=bool)
        kept[: self.vocab_size] = True
        kept[[token for token in self.vocabulary.eos if token < self.vocab_size]] = False
        return np.packbits(kept, bitorder="little").view(np.uint32)

    def _token_set(self, row: NDArray[np.int32]) -> TokenSet:
        """The ids of a mask. Equal masks have one set: most states of a text have the mask of an earlier one."""
        allowed = row.view(np.uint32) & self._kept_bits
        key = allowed.tobytes()
        known: TokenSet | None = self._sets.get(key)
        if known is None:
            many = int(np.bitwise_count(allowed).sum()) > self.vocab_size // 2
            ids = _ids_of(~allowed if many else allowed)
            ids = ids[: np.searchsorted(ids, self.vocab_size)]
            ids.flags.writeable = False
            known = TokenSet(not many, ids)
            self.memory.note(ids, nbytes=len(key))
            self._sets[key] = known
        return known


def _ids_of(bits: NDArray[np.uint32]) -> NDArray[np.int32]:
    """The numbers of the bits that are set."""
    used = bits.nonzero()[0]
    if 4 * len(used) > len(bits):
        return np.unpackbits(bits.view(np.uint8), bitorder="little").view(np.bool_).nonzero()[0].astype(np.int32)
    at = np.unpackbits(bits[used].view(np.uint8), bitorder="little").view(np.bool_).nonzero()[0]
    return (32 * used.take(at >> 5) + (at & 31)).astype(np.int32)


def _tokens_read(state: State) -> TokensRead:
    if isinstance(state, TokensRead):
        return state
    raise StateMismatch(f"The state of a grammar is TokensRead, but got {state!r:.100}. Use Constraint.start.")
