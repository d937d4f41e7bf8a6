"""Lazy unions and intersections of automata over bytes: product states are computed when they are visited.

A state of a product is a tuple of states. In a union every state can be completed, because one of its components can.
In an intersection some states are dead ends, which cannot be completed. An intersection has no dead ends if all
automata but one accept in every state, as automata of banned phrases do, and always read the bytes in the completions
of the remaining automaton. Otherwise a state can be completed if all automata have a common text
(:mod:`~logitloom.automata.deterministic.common_texts`). If none is found, one search of the whole product decides. An
automaton whose states are sets of positions (:class:`~logitloom.automata.LazyDfa`) has too many states for this
search. A set of positions can be completed exactly if one of its positions can. So the search visits tuples of
positions; their number is at most the product of the patterns' lengths. See
:meth:`~logitloom.constraints.ByteAutomaton.alternatives`.

References:
    Y. Bar-Hillel, M. Perles, E. Shamir, "On formal properties of simple phrase structure grammars", 1961: the product
    of nondeterministic automata accepts the intersection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.deterministic.common_texts import CommonTexts, States
from logitloom.automata.deterministic.dense import DenseAutomaton
from logitloom.automata.deterministic.whole_product import WholeProduct
from logitloom.contract import ByteAutomaton, State, TextTokens
from logitloom.errors import BudgetExceeded, OptionError
from logitloom.host.hookspecs import TextEnd

__all__ = ["IntersectedAutomaton", "UnionAutomaton", "common_classes"]

#: The largest number of transitions that the search visits at construction, which takes about a second, and later.
_MOST_STEPS: Final = 600_000
_MOST_STEPS_LATER: Final = 20_000
#: Number of states for which the product remembers whether an accepting state can be reached.
_REMEMBERED: Final = 1 << 16


def common_classes(columns: Sequence[NDArray[Any]]) -> NDArray[np.uint8]:
    """``[256] uint8``: byte classes such that bytes of one class have equal entries in each of the arrays ``[256]``."""
    classes: NDArray[Any] = np.unique(np.stack(columns), axis=1, return_inverse=True)[1]
    return classes.ravel().astype(np.uint8)


class _LazyProduct(ByteAutomaton):
    """The product of several automata."""

    def __init__(self, automata: Sequence[ByteAutomaton]) -> None:
        self.automata = tuple(automata)

    @cached_property
    def fingerprint(self) -> bytes:
        """A hash of the fingerprints of the automata."""
        parts = repr([automaton.fingerprint for automaton in self.automata]).encode()
        return hashlib.blake2b(parts, digest_size=16, person=type(self).__name__.encode()[:16]).digest()

    def start(self) -> State:
        """The tuple of all start states."""
        return tuple(automaton.start() for automaton in self.automata)

    def byte_classes(self) -> NDArray[np.uint8] | None:
        """The byte classes that no automaton distinguishes; ``None`` if an automaton has none."""
        columns = [column for automaton in self.automata if (column := automaton.byte_classes()) is not None]
        return common_classes(columns) if len(columns) == len(self.automata) else None


class UnionAutomaton(_LazyProduct):
    """The union of several automata. A component of a state is ``None`` if its automaton is dead.

    Args:
        automata: at least two, of which the methods for token borders and ends of texts are not used.

    Example:
        >>> from logitloom.automata import DenseAutomaton, compile_pattern
        >>> both = UnionAutomaton([DenseAutomaton(compile_pattern(one)) for one in ("ab", "a+")])
        >>> state = both.step(both.start(), ord("a"))
        >>> both.accepts(state), both.step(state, ord("b")) is None, both.step(state, ord("c")) is None
        (True, False, True)
    """

    def step(self, state: State, byte: int) -> State | None:
        """The tuple of next states, with ``None`` for dead automata; ``None`` if all are dead."""
        parts = zip(self.automata, _parts(state), strict=True)
        after = tuple(None if part is None else automaton.step(part, byte) for automaton, part in parts)
        return None if all(part is None for part in after) else after

    def accepts(self, state: State) -> bool:
        """Whether one of the automata accepts."""
        parts = zip(self.automata, _parts(state), strict=True)
        return any(part is not None and automaton.accepts(part) for automaton, part in parts)

    def alternatives(self, state: State) -> Sequence[State]:
        """The alternatives of each component, with all other components dead."""
        return [
            tuple(one if i == index else None for i in range(len(self.automata)))
            for index, (automaton, part) in enumerate(zip(self.automata, _parts(state), strict=True))
            if part is not None
            for one in automaton.alternatives(part)
        ]


class IntersectedAutomaton(_LazyProduct):
    """The intersection of several automata. A state is a tuple of one state of each automaton, from which all automata
    can accept a common text.

    If neither completions nor the search of the product decide about a state, because the product is too large, the
    state counts as dead.

    Args:
        automata: at least two.
        subject: the name of the automata in messages.

    Raises:
        OptionError: if the intersection is empty.
        BudgetExceeded: if a bounded search cannot decide whether the intersection is empty.

    Example:
        >>> from logitloom.automata import DenseAutomaton, compile_pattern
        >>> both = IntersectedAutomaton([DenseAutomaton(compile_pattern(one)) for one in ("a*b", "..")])
        >>> state = both.step(both.start(), ord("a"))
        >>> both.step(state, ord("a")) is None, both.accepts(both.step(state, ord("b")))
        (True, True)
    """

    #: The index of an automaton whose completions complete every tuple of states; ``None`` if none is known.
    completing: int | None
    #: The bytes of which these completions are made, if the automaton by itself has others.
    completion_alphabet: frozenset[int] | None = None

    def __init__(self, automata: Sequence[ByteAutomaton], subject: str = "automata of this intersection") -> None:
        super().__init__(automata)
        self._counts_tokens = any(automaton.counts_tokens for automaton in automata)
        self._forces_ends = any(automaton.forces_ends for automaton in automata)
        classes = self.byte_classes()
        self._column: list[int] = list(range(256)) if classes is None else classes.tolist()
        self._bytes = list({column: byte for byte, column in enumerate(self._column)}.values())
        #: Per tuple that the search visited, whether it can be completed. Later results are cached in ``_known``.
        self._found: dict[States, bool] = {}
        self._known: dict[States, bool] = {}
        self._subject = subject
        #: Whether the whole product was searched, or is too large for it.
        self._searched = self._too_large = False
        start = tuple(automaton.start() for automaton in automata)
        self.completing = None if self._counts_tokens else self._completing_one()
        if self._counts_tokens or not (self.completing is not None or self._decided(start)):
            self._search(_MOST_STEPS)

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_whole", "_texts")}
        return kept | {"_known": {}}

    @cached_property
    def _texts(self) -> CommonTexts:
        return CommonTexts(self.automata, self._stepped, self._bytes)

    def completions_of(self, state: State) -> Sequence[bytes]:
        """A shortest text, if the automata have whole tables and few pairs of states together, or the completion of the
        automaton whose completions complete every tuple. Else the texts that are found with the completions of all.
        """
        states = _parts(state)
        if self._counts_tokens:
            return ()
        if self.completing is not None:
            text = self.automata[self.completing].completion(states[self.completing])
        elif (whole := self._whole) is not None:
            text = whole.completion(states)
        else:
            return self._texts.completions(states)
        return () if text is None else (text,)

    def completion(self, state: State) -> bytes | None:
        """The shortest of the :meth:`completions_of`."""
        return min(self.completions_of(state), key=lambda text: (len(text), text), default=None)

    @cached_property
    def _whole(self) -> WholeProduct | None:
        """The product as a whole table, if it is small; ``None`` for lazy automata, and if one of them ends texts."""
        tables = [one for one in self.automata if type(one) is DenseAutomaton]
        if len(tables) < len(self.automata) or any(one.closing.any() or one.hold is not None for one in tables):
            return None
        try:
            return WholeProduct([one.dfa for one in tables])
        except BudgetExceeded:
            return None

    def completion_bound(self, tokens: TextTokens) -> Callable[[State], int | None] | None:
        """The bound of the automaton whose completions complete every tuple, or of the shortest texts of a small
        product; else ``None``.
        """
        if self.completing is None:
            most = None if self._whole is None else self._whole.longest(tokens)
            return None if most is None else lambda state: most
        number = self.completing
        bound = self.automata[number].completion_bound(tokens)
        return None if bound is None else lambda state: bound(_parts(state)[number])

    def _completing_one(self) -> int | None:
        """The number of the automaton whose completions all others read, if all others accept in every state.

        The completions of a whole table are made of the bytes that the others always read, if they have others.
        """
        read = [automaton.always_read() for automaton in self.automata]
        narrow = [number for number, every in enumerate(read) if every is None] or [0]
        one = self.automata[narrow[0]]
        used = one.completion_bytes()
        if len(narrow) > 1 or used is None:
            return None
        every = frozenset(range(256)).intersection(*[known for known in read if known is not None])
        if not used <= every:
            other = one.completed_with(every) if every and type(one) is DenseAutomaton else None
            if other is None:
                return None
            self.completion_alphabet = every
            self.automata = (*self.automata[: narrow[0]], other, *self.automata[narrow[0] + 1 :])
        return narrow[0]

    def _decided(self, states: States) -> bool | None:
        """Whether a tuple can be completed; ``None`` if completions do not tell."""
        if self._texts.common(states):
            return True
        byte, is_dead = self._texts.nearby(states)
        return True if byte is not None else False if is_dead else None

    def _search(self, most_steps: int) -> None:
        """Find the completable tuples: visit all reachable ones, then search backwards from the accepting ones."""
        start = tuple(automaton.start() for automaton in self.automata)
        before: dict[States, list[States]] = {part: [] for part in self._split(start)}
        queue, tracker = [*before], BudgetTracker(None, f"the {self._subject}")
        for number, state in enumerate(queue):
            if number % 256 == 0:
                tracker.check_time()
            for byte in self._bytes:
                after = self._stepped(state, byte)
                if after is None:
                    continue
                # An automaton that counts tokens has other states inside a token than at the border of a token.
                ended = self._bordered(after) if self._counts_tokens else after
                for found in {after, ended} - {None}:
                    assert found is not None
                    for part in self._split(found):
                        if part not in before:
                            before[part] = []
                            queue.append(part)
                        if found == ended:
                            before[part].append(state)
            if len(queue) * len(self._bytes) > most_steps:
                raise BudgetExceeded(
                    f"The {self._subject} have more than {len(queue) - 1} states together, too many to find the texts "
                    f"that satisfy all. Write them as one constraint."
                )
        live = {state for state in queue if self.accepts(state)}
        queue = [*live]
        for state in queue:
            for earlier in before[state]:
                if earlier not in live:
                    live.add(earlier)
                    queue.append(earlier)
        self._found, self._searched = {state: state in live for state in before}, True
        if not self._can_end(start):
            raise OptionError(f"No text satisfies all {self._subject}. Leave one out.")

    def _split(self, states: States) -> Iterator[States]:
        return product(*[one.alternatives(part) for one, part in zip(self.automata, states, strict=True)])

    def _can_end(self, states: States) -> bool:
        """Whether a text can be completed from a tuple of states, which may be sets that the search did not visit."""
        if self.completing is not None:
            return True
        known = self._found.get(states)
        known = self._known.get(states) if known is None else known
        if known is None and not self._searched:
            known = self._decided(states)
            if known is None and not self._too_large:
                try:
                    self._search(_MOST_STEPS_LATER)
                except BudgetExceeded:
                    self._too_large = True
                else:
                    return self._can_end(states)
            self._known[states] = known = bool(known)
        if known is None:
            parts = [*self._split(states)]
            if parts == [states]:
                # A state within a character cannot be split. The search visited single positions only, so read on.
                after = (self._stepped(states, byte) for byte in self._bytes)
                known = any(one is not None and self._can_end(one) for one in after)
            else:
                known = any(
                    self._found.get(part) or (part not in self._found and self._can_end(part)) for part in parts
                )
            self._known[states] = known
        if len(self._known) >= _REMEMBERED:
            self._known = {}
        return known

    def step(self, state: State, byte: int) -> State | None:
        """The tuple of next states, if acceptance is reachable from it; else ``None``."""
        after = self._stepped(_parts(state), byte)
        return after if after is not None and (self._counts_tokens or self._can_end(after)) else None

    def _stepped(self, states: States, byte: int) -> States | None:
        reached = []
        for automaton, state in zip(self.automata, states, strict=True):
            after = automaton.step(state, byte)
            if after is None:
                return None
            reached.append(after)
        found = tuple(reached)
        # Where one text must end, all end.
        return None if self._forces_ends and self.must_end(found) and not self.accepts(found) else found

    def accepts(self, state: State) -> bool:
        """Whether all automata accept."""
        return all(automaton.accepts(part) for automaton, part in zip(self.automata, _parts(state), strict=True))

    def alternatives(self, state: State) -> Sequence[State]:
        """Every tuple of alternatives that can be completed."""
        return [part for part in self._split(_parts(state)) if self._counts_tokens or self._can_end(part)]

    def must_end(self, state: State) -> bool:
        """Whether the text must end in one of the automata."""
        return any(automaton.must_end(part) for automaton, part in zip(self.automata, _parts(state), strict=True))

    @property
    def forces_ends(self) -> bool:
        """Whether one of the automata does."""
        return self._forces_ends

    def token_border(self, state: State) -> State | None:
        """The states of all automata after a token border, if acceptance is reachable from them; else ``None``."""
        if not self._counts_tokens:
            return state
        after = self._bordered(_parts(state))
        return after if after is not None and self._can_end(after) else None

    @property
    def counts_tokens(self) -> bool:
        """Whether one of the automata does."""
        return self._counts_tokens

    def _bordered(self, states: States) -> States | None:
        reached = []
        for automaton, state in zip(self.automata, states, strict=True):
            after = automaton.token_border(state)
            if after is None:
                return None
            reached.append(after)
        return tuple(reached)

    def text_end(self, state: State) -> TextEnd:
        """The end according to an automaton whose text has ended; if none has ended, the end that holds most bytes."""
        found = [automaton.text_end(part) for automaton, part in zip(self.automata, _parts(state), strict=True)]
        return max(found)


def _parts(state: State) -> States:
    return state  # type: ignore[return-value]
