"""The contract of constraints: :class:`Constraint` over tokens, and :class:`ByteAutomaton` over bytes.

A constraint is an immutable value over one vocabulary. Everything that deals with constraints (the processor base,
combinators, forced tokens, decoding loops, engine adapters, the conformance kit) uses the methods of
:class:`Constraint` and nothing else. Most constraints are automata over bytes; their authors write a
:class:`ByteAutomaton` and let :func:`logitloom.constraints.lift` find the tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import shown
from logitloom.errors import InvalidSignature
from logitloom.host.entry_points import PluginName
from logitloom.host.hookspecs import TextEnd
from logitloom.masks.kernels import ByteTable
from logitloom.state_memory import StateMemory
from logitloom.vocabulary import Vocabulary

__all__ = [
    "FINISHED",
    "UNKNOWN",
    "ByteAutomaton",
    "CompiledStep",
    "Constraint",
    "Ended",
    "Layers",
    "NearEnd",
    "Run",
    "State",
    "TextTokens",
    "TokenSet",
    "TokenTables",
    "check_constraint",
]

State = Hashable
"""A state of a constraint or of an automaton: immutable, hashable, and picklable; equal states allow equal texts."""

UNKNOWN: Final = 2**31 - 1
"""In arrays of numbers of tokens: a constraint cannot tell."""


class Ended(Enum):
    """The states of rows that go no further. The processor base adds these states; constraints never see them.

    Where states are numbers (:attr:`Constraint.states`), arrays of states hold the value of the member.
    """

    #: After end-of-sequence.
    FINISHED = -2
    #: After a token that is not allowed.
    DEAD = -1


FINISHED: Final = Ended.FINISHED
"""What :meth:`Constraint.finish` returns where nothing is left to say about a text."""


class TokenSet(NamedTuple):
    """A set of token ids, written the shorter way.

    Attributes:
        allowed: whether ``ids`` are the members, or all that are not members.
        ids: ``[n] int32``, distinct, sorted, read-only.
    """

    allowed: bool
    ids: NDArray[np.int32]

    def mask(self, size: int) -> NDArray[np.bool_]:
        """``[size] bool``: which ids are members."""
        mask = np.full(size, not self.allowed)
        mask[self.ids] = self.allowed
        return mask

    def listed(self, size: int) -> NDArray[np.int32]:
        """``[n] int32``: the members below ``size``, sorted."""
        return self.ids if self.allowed else self.mask(size).nonzero()[0].astype(np.int32)

    def __contains__(self, token: object) -> bool:
        found = int(np.searchsorted(self.ids, token))  # type: ignore[call-overload]
        return (found < len(self.ids) and bool(self.ids[found] == token)) == self.allowed


class TokenTables(NamedTuple):
    """A finite constraint as arrays, for devices and compiled loops.

    Rows are the states, which are the integers from 0 on, then one finished row, then one dead row, so that ``-2`` and
    ``-1`` are the right rows wherever negative indices count from the end. Use :meth:`total` for libraries and kernels
    in which negative indices do not count from the end.

    Attributes:
        token_class: ``[vocab_size] int32``, the column of each id. End-of-sequence ids have the last column.
        next: ``[rows, classes] int32``, -1 for dead, -2 for finished.
        allowed: ``[rows, classes] bool``.
        accepting: ``[rows] bool``; these allow end-of-sequence.
        start: the first state.
    """

    token_class: NDArray[np.int32]
    next: NDArray[np.int32]
    allowed: NDArray[np.bool_]
    accepting: NDArray[np.bool_]
    start: int

    def total(self) -> NDArray[np.int32]:
        """``next`` with row numbers in place of -1 and -2: the last row is dead, the last but one finished."""
        return np.where(self.next >= 0, self.next, len(self.next) + self.next).astype(np.int32)

    @property
    def nbytes(self) -> int:
        """Size in memory, in bytes."""
        return self.token_class.nbytes + self.next.nbytes + self.allowed.nbytes + self.accepting.nbytes


class CompiledStep(NamedTuple):
    """What :meth:`Constraint.compiled_step` returns; see the protocol of kernels.

    Attributes:
        automaton: next states by byte.
        accepting: ``[states + 2] bool``, where the text may end; the last rows are the finished and the dead state.
        closing: ``[states] bool``, where the text must end at the border of two tokens.
    """

    automaton: ByteTable
    accepting: NDArray[np.bool_]
    closing: NDArray[np.bool_]


class Run(NamedTuple):
    """A set of characters, and how many of them an automaton can read.

    Attributes:
        characters: every text of at most so many characters of the set can be read.
        ascii: the ASCII characters of the set: bit ``c`` for each character ``c`` below 128.
        words: whether the set holds every character above ASCII that ``\\w`` matches; surrogates are no characters.
        others: whether the set holds every other character above ASCII.
    """

    characters: int
    ascii: int
    words: bool
    others: bool


class TextTokens(NamedTuple):
    """What the tokens of a vocabulary can write.

    Attributes:
        longest: the bytes of the longest token.
        single: the bytes that are tokens.
        fewest: for a text and the results for its last ends, the fewest tokens that write each end of the text, the
            longest first; ``None`` where no tokens do. The result for the empty end is 0.
        after_tails: the bytes that follow the end of a character in a token that begins within the character.
    """

    longest: int
    single: frozenset[int]
    fewest: Callable[[bytes, Sequence[int | None]], list[int | None]]
    after_tails: frozenset[int] = frozenset(range(256))


class Layers(NamedTuple):
    """Which characters texts read shortly before they reach some target states.

    Attributes:
        away: by part of a state, as the automaton numbers the parts, the fewest characters to a target state.
        low, high: ``[layers] uint64``: the ASCII characters, 0-63 and 64-127, that texts read one, two, ... characters
            before a target state.
        above: ``[layers] bool``: whether texts read characters above ASCII there.
    """

    away: Sequence[int]
    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    above: NDArray[np.bool_]


class NearEnd(Protocol):
    """What an automaton tells about the tokens of its completions; with it, a walk decides many tokens together."""

    def bound(self, state: State) -> int | None:
        """See :meth:`ByteAutomaton.completion_bound`."""
        ...

    def bound_between(self, state: State) -> int | None:
        """:meth:`bound` after tokens that end between two characters; ``None`` within a character."""
        ...

    def fits(self, state: State, most: int) -> bool | None:
        """Whether the completion of a state takes at most so many tokens; ``None`` if only counting can tell."""
        ...

    def runs(self, state: State, most: int) -> Sequence[Run]:
        """Texts whose prefixes, the empty one included, all lead to states that need at most ``most`` tokens.

        Prefixes with characters of the second result of :meth:`layers` may lead to states that need more tokens.
        """
        ...

    def layers(self, most: int) -> tuple[Layers, Layers, Layers | None]:
        """The characters before states that need at most ``most`` tokens, before states that may need more, and before
        states from which a character above ASCII and the rest of the text are completed in at most ``most`` tokens.

        The third result is ``None`` where a token may end such a character and go on with the rest of the text.
        """
        ...

    def away(self, state: State, layers: Layers) -> int:
        """A lower bound on the characters to a target state of ``layers``; a begun character counts."""
        ...

    def is_within(self, state: State) -> bool:
        """Whether a state is within a character."""
        ...


class ByteAutomaton(ABC):
    """A deterministic automaton over bytes: a pure function of state and byte; most authors write one.

    States are immutable, hashable and picklable. If states are numbers, the numbering must not depend on which states
    were visited before. The same state means the same in every process that has an automaton with an equal
    :attr:`fingerprint`.
    """

    @property
    @abstractmethod
    def fingerprint(self) -> bytes:
        """Equal for automata that behave alike state by state, in every process."""

    @abstractmethod
    def start(self) -> State:
        """The state before the first byte."""

    @abstractmethod
    def step(self, state: State, byte: int) -> State | None:
        """The state after one more byte (0 to 255); ``None`` if no accepted text has this prefix."""

    @abstractmethod
    def accepts(self, state: State) -> bool:
        """Whether the text may end in a state."""

    # --- optional -------------------------------------------------------------------------------------------------

    def steps(
        self, states: Sequence[State], which: NDArray[np.intp], read: NDArray[np.uint8]
    ) -> tuple[list[State], NDArray[np.intp]]:
        """The next states of many pairs of a state and a byte, for automata that find them faster together.

        Args:
            states: some states.
            which, read: ``[n]`` each: the index of the state of each pair, and the byte.

        Returns:
            The next states, each at least once; and ``[n]``, the index of the next state of each pair, -1 for ``None``.
        """
        number: dict[State, int] = {}
        pairs = zip(which.tolist(), read.tolist(), strict=True)
        after = [self.step(states[at], byte) for at, byte in pairs]
        index = [-1 if reached is None else number.setdefault(reached, len(number)) for reached in after]
        return list(number), np.array(index, dtype=np.intp)

    def byte_classes(self) -> NDArray[np.uint8] | None:
        """``[256] uint8``: bytes of one class lead every state to the same state; ``None`` if nothing is known."""
        return None

    def work(self, state: State) -> int | None:
        """How much work all transitions of a state take, in units of about five microseconds of a processor.

        The bound on the work of a mask counts this number, so the number must be the same in every process. ``None`` if
        the work grows with the bytes of the state alone.
        """
        return None

    def must_end(self, state: State) -> bool:
        """Whether the text must end at the border of two tokens in this state, although bytes of one token may follow.

        Automata that search for strings need this method, because a stop string may end inside a token. Such a state
        accepts.
        """
        return False

    @property
    def forces_ends(self) -> bool:
        """Whether :meth:`must_end` may be true in some state; by default if it is defined."""
        return type(self).must_end is not ByteAutomaton.must_end

    def token_border(self, state: State) -> State | None:
        """The state after the last byte of a token, for automata that count tokens; ``None`` if it may not end here."""
        return state

    @property
    def counts_tokens(self) -> bool:
        """Whether :meth:`token_border` may return another state than the given one; by default if it is defined.

        The allowed tokens are then found by the state after each of them, and completions are not asked for.
        """
        return type(self).token_border is not ByteAutomaton.token_border

    def text_end(self, state: State) -> TextEnd:
        """Whether the text is over in this state, and how many bytes at its end do not belong to it."""
        return TextEnd(False, 0)

    def completion(self, state: State) -> bytes | None:
        """A short text from this state on with which the text is accepted; ``None`` if the automaton cannot tell.

        After the first bytes of a completion, the completion of the new state is the rest, so the number of tokens that
        write it decreases. Automata in which a bounded search may not reach the end implement this method, so that
        texts can be complete in time.
        """
        return None

    def completions_of(self, state: State) -> Sequence[bytes]:
        """Several texts like :meth:`completion`, of which the one with the fewest tokens counts.

        After the first bytes of one of them, the rest is among the completions of the new state. By default the
        completion alone.
        """
        text = self.completion(state)
        return () if text is None else (text,)

    def completion_bytes(self) -> frozenset[int] | None:
        """The bytes of which the completions of all states are made; ``None`` if a state has none, or if unknown."""
        return None

    def always_read(self) -> frozenset[int] | None:
        """The bytes that every state reads; ``None`` if a state does not accept, or if unknown.

        The intersection of such an automaton and another one has no dead ends if the :meth:`completion_bytes` of the
        other automaton are among these bytes.
        """
        return None

    def completion_bound(self, tokens: TextTokens) -> Callable[[State], int | None] | None:
        """A function that bounds how many tokens :meth:`completion` needs after one more token.

        The function gets a state and returns a bound, the same in every process, or ``None`` if no text can end after
        the state. While more tokens are left than the bound, completions are not looked for. The method returns
        ``None`` if there is no such function, or if tokens cannot write all completions. The default
        uses :meth:`near_end`.

        Args:
            tokens: the tokens of the vocabulary.
        """
        near = self.near_end(tokens)
        return None if near is None else near.bound

    def near_end(self, tokens: TextTokens) -> NearEnd | None:
        """More about the tokens of completions than :meth:`completion_bound` tells, which is asked if this is ``None``.

        Args:
            tokens: the tokens of the vocabulary.
        """
        return None

    def alternatives(self, state: State) -> Sequence[State]:
        """States that together accept the same texts as this state: for a state that is a set, one for each member.

        A search for the end of a text looks at alternatives, because there are few, and at sets only where it must. A
        state without alternatives returns itself. If states on the way to such a state had alternatives, the states a
        few bytes later must have alternatives again.
        """
        return (state,)

    def runs(self, state: State) -> Sequence[Run]:
        """Sets of characters of which this state reads any text up to some length; none if nothing is known.

        A state between the bytes of a character has none. The tokens of such texts are allowed without reading their
        bytes, so a first mask takes less time for a pattern with ``.{0,200}``. Runs may be too short and sets too
        small.
        """
        return ()

    def beginnings(self, state: State, length: int) -> State | None:
        """One of the states from which the same bytes can be read, up to ``length``; ``None`` if nothing is known.

        The returned state is the same for as many of these states as possible. Whether a text may end there does not
        matter. Such states allow the same tokens, so one mask is computed for all of them: for most states of
        ``[a-z]{400,600}``.
        """
        return None


class Constraint(ABC):
    """Which tokens may come next. An immutable, thread-safe value over one vocabulary, shared by threads and rows.

    The host allows end-of-sequence ids exactly where :meth:`may_end` is true, and the host keeps the finished state. So
    a constraint deals only with tokens that continue a text. What the constraint and the host remember of states (token
    sets, successors, distances) stands in its bounded :attr:`memory`; dropping it changes speed, never a result.

    Attributes:
        vocabulary: the bytes of each id.
        vocab_size: width of the model's logits, at least ``vocabulary.size``.
        restricts: whether the text is restricted to a language. If not, the constraint only watches the text (stop
            strings, bans), and ids without text (special tokens) pass and change nothing.
        ends_texts: whether :meth:`text_end` says anything.
        states: the number of states if they are the integers from 0 up, else ``None``.
        gives_way: whether :meth:`least_after` also has ids that are not allowed, which may come if the number of tokens
            is limited and no allowed id fits.
        unlimited_because: why it is unknown how many tokens complete a text, in sentences; empty if it is known.
        exact_least: whether :meth:`least_tokens` is the least number, not a bound above it. Messages about bounds say
            "about".
        most_forced: the most tokens of one answer of :meth:`forced` as it is defined here.
    """

    vocabulary: Vocabulary
    vocab_size: int
    restricts: bool = True
    ends_texts: bool = False
    states: int | None = None
    gives_way: bool = False
    unlimited_because: str = ""
    exact_least: bool = True
    most_forced: int = 4096

    @property
    @abstractmethod
    def fingerprint(self) -> bytes:
        """Equal for equal constraints over equal vocabularies, in every process."""

    @abstractmethod
    def start(self) -> State:
        """The state before the first token."""

    @abstractmethod
    def advance(self, state: State, token: int) -> State | None:
        """The state after one more token; ``None`` if the text can no longer be accepted.

        Every id of :meth:`allowed` leads to a state. A constraint may also return a state for an id that it does not
        allow, if the text can still be accepted (an engine may go on after a stop string was found).

        Args:
            state: from :meth:`start`, :meth:`advance` or :meth:`finish`.
            token: an id that is no end-of-sequence id.
        """

    @abstractmethod
    def allowed(self, state: State) -> TokenSet:
        """The ids that may come next, without end-of-sequence ids."""

    @abstractmethod
    def may_end(self, state: State) -> bool:
        """Whether the text may end here, that is, whether end-of-sequence is allowed."""

    # --- what is remembered of states --------------------------------------------------------------------------------

    @cached_property
    def memory(self) -> StateMemory:
        """The remembered results for this constraint's states: tables with one common bound in bytes."""
        return StateMemory()

    def forget(self) -> None:
        """Drop what is remembered of states. Other threads may use the constraint meanwhile; no result changes."""
        self.memory.clear()

    # --- optional, with defaults made from the methods above ----------------------------------------------------------

    def allowed_many(self, states: Sequence[State]) -> list[TokenSet]:
        """:meth:`allowed` of several states; engines that use several threads implement it."""
        return [self.allowed(state) for state in states]

    def forced(self, state: State) -> list[int]:
        """The forced tokens: the run in which each token is the only allowed continuation, without end-of-sequence."""
        run: list[int] = []
        reached: State | None = state
        while reached is not None and len(run) < self.most_forced and not self.may_end(reached):
            members = self.allowed(reached)
            if not members.allowed or len(members.ids) != 1:
                break
            run.append(int(members.ids[0]))
            reached = self.advance(reached, run[-1])
        return run

    def least_tokens(self, state: State) -> int | None:
        """Least number of tokens to a state where the text may end: exact, or a sound upper bound.

        A bound must decrease: if it is ``n > 0``, some allowed token leads to a state whose bound is at most ``n - 1``.
        ``None`` if the constraint cannot tell.
        """
        return 0 if self.may_end(state) else None

    def least_after(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The allowed ids, and for each :meth:`least_tokens` of the state after it, :data:`UNKNOWN` for ``None``.

        Returns:
            ``[n] int32``, sorted as :meth:`allowed` lists them, and ``[n] int32``.
        """
        ids = self.allowed(state).listed(self.vocab_size)
        known: dict[State, int] = {}
        least = np.empty(len(ids), dtype=np.int32)
        for n, token in enumerate(ids.tolist()):
            after = self.advance(state, token)
            if after not in known:
                found = self.least_tokens(after)
                known[after] = UNKNOWN if found is None else found
            least[n] = known[after]
        return ids, least

    def allowed_within(self, state: State, most: int) -> TokenSet | None:
        """The ids of :meth:`least_after` after which at most ``most`` tokens are needed.

        ``None`` if this method would take as long as :meth:`least_after`, which is then called instead.
        """
        return None

    def most_after(self, state: State, enough: int = 0) -> int:
        """An upper bound on :meth:`least_tokens` after any allowed token, if known without a search.

        :data:`UNKNOWN` if there is no such bound. :meth:`least_after` is asked only if the bound is unknown or exceeds
        the number of tokens left.

        Args:
            state: the state.
            enough: the number of tokens left after the next one. A smaller bound makes no difference, so a bound of
                ``enough`` tokens need not be improved.
        """
        return UNKNOWN

    def finish(self, state: State) -> State:
        """The state after end-of-sequence; if the constraint ends texts, the state tells where the text ends."""
        return FINISHED

    def text_end(self, state: State) -> TextEnd:
        """Whether the text is over in this state, and how many bytes at its end do not, or may not, belong to it."""
        return TextEnd(False, 0)

    def row(self, state: State) -> NDArray[np.int32]:
        """``[n] int32``, sorted: the ids that the host allows, end-of-sequence included where the text may end."""
        ids = self.allowed(state).listed(self.vocab_size)
        ends = [token for token in self.vocabulary.eos if token < self.vocab_size]
        return np.sort(np.append(ids, np.array(ends, dtype=np.int32))) if self.may_end(state) else ids

    def compiled_step(self) -> CompiledStep | None:
        """The arrays for compiled steps of a batch; ``None`` if tokens do not follow one table over bytes."""
        return None

    def tables(self) -> TokenTables | None:
        """All states as arrays for devices and compiled loops, or ``None`` if :attr:`states` is ``None``.

        Raises:
            BudgetExceeded: if the tables are too large.
        """
        return None

    def automaton(self) -> ByteAutomaton | None:
        """The automaton over bytes from which this constraint was lifted, or ``None``; combinators read the automaton.

        The automaton has the states of the constraint: a token leads where its bytes lead.
        """
        return None


def check_constraint(constraint: Any, owner: PluginName | str, vocab_size: int) -> None:
    """Raise unless a processor's method ``constraint`` returned one of the right width.

    Raises:
        InvalidSignature: naming the processor and what to return.
    """
    answers = ("start", "advance", "allowed", "may_end")
    if isinstance(constraint, type) or not all(hasattr(constraint, name) for name in answers):
        raise InvalidSignature(
            f"The method 'constraint' of {owner} must return a logitloom.constraints.Constraint, but returned "
            f"{shown(constraint)}. Of an automaton over bytes make one: lift(automaton, vocabulary, vocab_size)."
        )
    absent = next((name for name in ("vocabulary", "vocab_size") if not hasattr(constraint, name)), None)
    if absent is not None:
        raise InvalidSignature(
            f"The constraint {type(constraint).__name__} of {owner} has no attribute {absent!r}. Keep the arguments of "
            f"the method 'constraint' as its attributes vocabulary and vocab_size."
        )
    if constraint.vocab_size != vocab_size:
        raise InvalidSignature(
            f"The constraint {type(constraint).__name__} of {owner} is for logits of {constraint.vocab_size} columns, "
            f"but there are {vocab_size}. Make it for the argument vocab_size: lift(automaton, vocabulary, vocab_size)."
        )
