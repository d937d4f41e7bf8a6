"""A constraint that begins within a token: first the rest of a given text must be written, then its own text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.constraints import UNKNOWN, ByteAutomaton, Constraint, State, TokenSet, lift
from logitloom.host.hookspecs import TextEnd

__all__ = ["AfterPrompt", "Rest"]


class Rest(NamedTuple):
    """A state in which some bytes must be written before the constraint begins.

    Attributes:
        text: the bytes to be written, at least one.
        then: the state of the constraint after them.
    """

    text: bytes
    then: State


class _RestThenText(ByteAutomaton):
    """An automaton with further states: :class:`Rest`."""

    def __init__(self, inner: ByteAutomaton) -> None:
        self.inner = inner

    @property
    def fingerprint(self) -> bytes:
        return b"rest, then " + self.inner.fingerprint

    def start(self) -> State:
        return self.inner.start()

    def step(self, state: State, byte: int) -> State | None:
        if not isinstance(state, Rest):
            return self.inner.step(state, byte)
        if state.text[0] != byte:
            return None
        return Rest(state.text[1:], state.then) if len(state.text) > 1 else state.then

    def accepts(self, state: State) -> bool:
        return not isinstance(state, Rest) and self.inner.accepts(state)

    def alternatives(self, state: State) -> Sequence[State]:
        return (state,) if isinstance(state, Rest) else self.inner.alternatives(state)

    def completion(self, state: State) -> bytes | None:
        if not isinstance(state, Rest):
            return self.inner.completion(state)
        behind = b"" if self.inner.accepts(state.then) else self.inner.completion(state.then)
        return None if behind is None else state.text + behind

    @property
    def forces_ends(self) -> bool:
        return self.inner.forces_ends

    def must_end(self, state: State) -> bool:
        return not isinstance(state, Rest) and self.inner.must_end(state)

    @property
    def counts_tokens(self) -> bool:
        return self.inner.counts_tokens

    def token_border(self, state: State) -> State | None:
        return state if isinstance(state, Rest) else self.inner.token_border(state)


class AfterPrompt(Constraint):
    """A constraint whose rows may begin with required bytes before the constrained text.

    A state is one of the inner constraint or a :class:`Rest`. The bytes and the inner automaton are one automaton
    over bytes, so a token may write the last of these bytes and the first of the inner text. While bytes are left, no
    token without text is allowed.

    Args:
        inner: a constraint with an automaton over bytes.

    Example:
        >>> from logitloom import Vocabulary
        >>> from logitloom.automata import TokenAutomaton, compile_pattern
        >>> words = Vocabulary([b"", b"1", b":", b":1", b":x", b"x"], eos=[0])
        >>> digits = AfterPrompt(TokenAutomaton(compile_pattern("1+"), words))
        >>> digits.row(Rest(b":", digits.start())).tolist()
        [2, 3]
    """

    def __init__(self, inner: Constraint) -> None:
        self.inner = inner
        self.vocabulary, self.vocab_size = inner.vocabulary, inner.vocab_size
        self.restricts, self.ends_texts = inner.restricts, inner.ends_texts
        automaton = inner.automaton()
        assert automaton is not None
        self._begin = lift(_RestThenText(automaton), self.vocabulary, self.vocab_size)
        self._after_rest = self.memory.remembering("tokens after a rest", self._find_after_rest)

    @property
    def fingerprint(self) -> bytes:
        """The fingerprint of the inner constraint, marked."""
        return hashlib.blake2b(self.inner.fingerprint, digest_size=16, person=b"after prompt").digest()

    def _of(self, state: State) -> Constraint:
        return self._begin if isinstance(state, Rest) else self.inner

    def start(self) -> State:
        """The start of the inner constraint."""
        return self.inner.start()

    def advance(self, state: State, token: int) -> State | None:
        """The remaining rest, or the state of the inner constraint."""
        return self._of(state).advance(state, token)

    def allowed(self, state: State) -> TokenSet:
        """The tokens that write some of the rest, or all of it and a beginning of the inner text."""
        return self._of(state).allowed(state)

    def allowed_many(self, states: Sequence[State]) -> list[TokenSet]:
        """As :meth:`allowed`; the inner constraint is asked for all of its states together."""
        inner = iter(self.inner.allowed_many([state for state in states if not isinstance(state, Rest)]))
        return [self._begin.allowed(state) if isinstance(state, Rest) else next(inner) for state in states]

    def may_end(self, state: State) -> bool:
        """Never before the rest is written."""
        return self._of(state).may_end(state)

    def forced(self, state: State) -> list[int]:
        """The forced tokens of the inner constraint; before them, tokens of the rest are found one by one."""
        return super().forced(state) if isinstance(state, Rest) else self.inner.forced(state)

    def least_tokens(self, state: State) -> int | None:
        """As the inner constraint says; before it, one token more than after the best token of the rest."""
        if not isinstance(state, Rest):
            return self.inner.least_tokens(state)
        least = int(self._after_rest(state)[1].min(initial=UNKNOWN))
        return None if least >= UNKNOWN else least + 1

    def least_after(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """As the inner constraint says, the tokens of the rest included."""
        return self._after_rest(state) if isinstance(state, Rest) else self.inner.least_after(state)

    def _find_after_rest(self, state: Rest) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        # Each token leads to a shorter rest, or into the inner text, so the numbers are those of the inner constraint.
        ids, states, which = self._begin.successors(state)
        each = (self.least_tokens(after) for after in states)
        least = np.array([UNKNOWN if found is None else found for found in each], dtype=np.int32)
        order = ids.argsort()
        return ids[order], least.take(which[order])

    def allowed_within(self, state: State, most: int) -> TokenSet | None:
        """As the inner constraint says; ``None`` before it."""
        return None if isinstance(state, Rest) else self.inner.allowed_within(state, most)

    def most_after(self, state: State, enough: int = 0) -> int:
        """As the inner constraint says; unknown before it."""
        return UNKNOWN if isinstance(state, Rest) else self.inner.most_after(state, enough)

    def finish(self, state: State) -> State:
        """As the inner constraint says."""
        return self.inner.finish(state)

    def text_end(self, state: State) -> TextEnd:
        """As the inner constraint says; the rest is no part of its text."""
        return TextEnd(False, 0) if isinstance(state, Rest) else self.inner.text_end(state)
