"""Adapt a constraint that reads whole tokens to an automaton over bytes; its texts begin and end at token borders."""

# ruff: noqa: D102 - the methods of Constraint and ByteAutomaton are documented there

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.constraints import ByteAutomaton, Constraint, State, TokenSet
from logitloom.host.hookspecs import TextEnd
from logitloom_plugins.combinators.triggers import token_texts

__all__ = ["AtTokens", "at_tokens"]


class _Within(NamedTuple):
    """A state of the constraint, and the bytes of the unfinished token after it."""

    state: State
    begun: bytes = b""


class AtTokens(Constraint):
    """A constraint without an automaton over bytes, extended by an automaton that advances the constraint at token
    borders only.

    The text may end at a token border only. If the text begins within a token, the rest of that token must be a token.

    Args:
        inner: the constraint.
    """

    def __init__(self, inner: Constraint) -> None:
        self.inner = inner
        self.vocabulary, self.vocab_size = inner.vocabulary, inner.vocab_size
        self.restricts, self.ends_texts = inner.restricts, inner.ends_texts
        self._steps = _TokenSteps(inner)

    @cached_property
    def fingerprint(self) -> bytes:
        return b"at tokens " + self.inner.fingerprint

    def start(self) -> State:
        return _Within(self.inner.start())

    def advance(self, state: State, token: int) -> State | None:
        after = self.inner.advance(_within(state).state, token)
        return None if after is None else _Within(after)

    def allowed(self, state: State) -> TokenSet:
        return self.inner.allowed(_within(state).state)

    def may_end(self, state: State) -> bool:
        return self._steps.accepts(state)

    def text_end(self, state: State) -> TextEnd:
        return self._steps.text_end(state)

    def least_tokens(self, state: State) -> int | None:
        at, begun = _within(state)
        return None if begun else self.inner.least_tokens(at)

    def least_after(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return self.inner.least_after(_within(state).state)

    def allowed_within(self, state: State, most: int) -> TokenSet | None:
        return self.inner.allowed_within(_within(state).state, most)

    def most_after(self, state: State, enough: int = 0) -> int:
        return self.inner.most_after(_within(state).state, enough)

    def automaton(self) -> ByteAutomaton:
        return self._steps


def at_tokens(automaton: ByteAutomaton | None) -> bool:
    """Whether an automaton changes its state at token borders only; the texts of such an automaton end at token
    borders.
    """
    return getattr(automaton, "at_tokens", False)


class _TokenSteps(ByteAutomaton):
    at_tokens = True

    def __init__(self, inner: Constraint) -> None:
        self.inner = inner
        self._texts = token_texts(inner.vocabulary)
        self._mask_of = inner.memory.remembering("masks of tokens", self._find_mask)

    @property
    def fingerprint(self) -> bytes:
        return b"token steps " + self.inner.fingerprint

    def start(self) -> State:
        return _Within(self.inner.start())

    def step(self, state: State, byte: int) -> State | None:
        at, begun = _within(state)
        begun += bytes([byte])
        followed = self._mask_of(at)[self._texts.order[self._texts.range_of(begun)]]
        return _Within(at, begun) if followed.any() else None

    def _find_mask(self, state: State) -> NDArray[np.bool_]:
        return self.inner.allowed(state).mask(self.inner.vocab_size)

    def accepts(self, state: State) -> bool:
        at, begun = _within(state)
        return not begun and self.inner.may_end(at)

    def token_border(self, state: State) -> State | None:
        at, begun = _within(state)
        if not begun:
            return state
        after = (self.inner.advance(at, token) for token in self._texts.ids_of(begun))
        return next((_Within(found) for found in after if found is not None), None)

    def text_end(self, state: State) -> TextEnd:
        at, begun = _within(state)
        return TextEnd(False, 0) if begun else self.inner.text_end(at)


def _within(state: State) -> _Within:
    return state  # type: ignore[return-value]
