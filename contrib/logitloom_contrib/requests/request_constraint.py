"""The constraint of one request behind an engine's interface for constraints, whatever the engine.

Engines ask such an object for the mask of each position (draft tokens included), tell it which tokens were kept, and
take tokens back. States are values, so the object is a list of states: accepting tokens appends states, taking tokens
back cuts the list, and a copy is a copy of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom import Context
from logitloom.constraints import ConstraintMemory, ConstraintProcessor
from logitloom.errors import GenerationError, LogitloomError
from logitloom.masks.mask_row import MaskRow
from logitloom_contrib.requests.request import LOG

__all__ = ["RequestConstraint"]


class RequestConstraint:
    """The constraint of a request, and its state after each token of the request.

    Many objects may share one memory, also in different threads; each object is used by one thread at a time.

    Args:
        memory: the constraint, with what is remembered of its states.
        start: the constraint's state before the first token.
        most: most tokens that the engine generates for the request, the token that ends it included; ``None``: unknown.
        stops: further ids that end the request. They are allowed where the text may end; elsewhere they are forbidden,
            unless no other token is allowed.
        generated: gives the number of tokens that the engine has generated for the request, draft tokens left out;
            default: those that were accepted here. Tokens that came before the constraint began (reasoning) count
            against ``most``, too.

    Attributes:
        failure: why the request has to end: an error of its constraint; ``None`` if there was none.

    Example:
        >>> from logitloom import Vocabulary, processors
        >>> words = Vocabulary([b"", b"a", b"b"], eos=[0])
        >>> chain = processors.load(("regex", {"pattern": "ab*"}), tokenizer=words)
        >>> text = RequestConstraint.begin(chain["regex"], Context.start(np.zeros((1, 3)), vocabulary=words))
        >>> text.validate_tokens([1, 2, 1]), text.accept_tokens([1, 2]), text.accept_tokens([1])
        ([1, 2], True, False)
        >>> bitmask = np.zeros((1, 1), dtype=np.int32)
        >>> text.fill_bitmask(bitmask, 0)
        >>> bitmask.tolist()  # the bits of 0 (the end) and 2
        [[5]]
    """

    def __init__(
        self,
        memory: ConstraintMemory,
        start: Any,
        *,
        most: int | None = None,
        stops: Collection[int] = (),
        generated: Callable[[], int] | None = None,
    ) -> None:
        self._memory, self._states = memory, [start]
        self._most, self._generated, self._before = most, generated, 0
        own, size = memory.constraint.vocabulary.eos, memory.constraint.vocab_size
        self._stops = frozenset(stop for stop in stops if stop not in own and 0 <= stop < size)
        self._ends = self._stops.union(end for end in own if end < size)
        self._stop_bits, self._end_bits = _packed(self._stops, size), _packed(self._ends, size)
        self.failure: str | None = None

    @classmethod
    def begin(cls, processor: ConstraintProcessor, context: Context, **given: Any) -> RequestConstraint:
        """The constraint of a processor, at the beginning of the text of a context with one row.

        Args:
            processor: the constraint; its option ``finish_within`` and the limit of the context hold.
            context: of the start: vocabulary, width, prompt and ``max_new_tokens`` of the request.
            given: ``stops`` and ``generated``.

        Raises:
            LogitloomError: there is no such constraint, or the limit is too small for any text.
        """
        state = processor.init_state(context)
        left = getattr(state, "left", None)
        return cls(
            processor.memory(context), processor.host_states(state, context)[0],
            most=None if left is None else int(left[0]), **given,
        )  # fmt: skip

    def copy(self) -> RequestConstraint:
        """An object of its own with the same tokens."""
        made = RequestConstraint(
            self._memory, self._states[0], most=self._most, stops=self._stops, generated=self._generated
        )
        made._states, made._before, made.failure = self._states[:], self._before, self.failure
        return made

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        """Add tokens to the text, if it may go on with all of them; otherwise nothing changes.

        Tokens after the end of the text are ignored, as engines send them where a request ignores its end.
        """
        if self.is_terminated():
            return self.failure is None
        states = self._states_after(tokens, self._states[-1])
        if len(states) < len(tokens) and not self._is_over(states):
            return False
        self._states += states
        return self.failure is None

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        """The longest prefix of draft tokens that the masks of their positions allow, the end of the text included;
        nothing changes.
        """
        state, left, valid = self._states[-1], self._left(), 0
        for state_after in [] if self.failure is not None else self._states_after(tokens, state):
            if not self._fits(state, None if left is None else left - valid, tokens[valid]):
                break
            state, valid = state_after, valid + 1
        return list(tokens[:valid])

    def rollback(self, count: int) -> None:
        """Take back the last ``count`` tokens.

        Raises:
            GenerationError: the text has fewer.
        """
        if not 0 <= count < len(self._states):
            raise GenerationError(
                f"The engine takes back {count} tokens of a text of {len(self._states) - 1}. Take back at most those "
                f"that were accepted."
            )
        del self._states[len(self._states) - count :]

    def reset(self) -> None:
        """Take back all tokens, and an error."""
        del self._states[1:]
        self._before, self.failure = 0, None

    def is_terminated(self) -> bool:
        """Whether the text is over: it accepted a token that ends it."""
        return self._is_over(self._states)

    def fill_bitmask(self, bitmask: NDArray[np.int32], row: int) -> None:
        """Write the mask of the next token.

        An error of the constraint ends its request: the mask then allows only what ends the request, and no token is
        accepted any more.

        Args:
            bitmask: ``[rows, ceil(vocab_size / 32)] int32``; bit ``i % 32`` of word ``i // 32`` allows id ``i``.
            row: which row is written.
        """
        if self.failure is None and not self.is_terminated():
            try:
                bitmask[row] = self._bits(self._states[-1])
                return
            except Exception as error:  # a plug-in may raise anything, and other requests must go on
                self._fail(error)
        bitmask[row] = self._end_bits

    # --- parts ----------------------------------------------------------------------------------------------------

    def _is_over(self, states: Sequence[Any]) -> bool:
        return bool(states) and bool(states[-1] == self._memory.finished)

    def _fail(self, error: Exception) -> None:
        self.failure = str(error) or type(error).__name__
        named = "" if isinstance(error, LogitloomError) else f"{type(error).__name__}: "
        LOG.error("logitloom ends a request after %d tokens: %s%s", len(self._states) - 1, named, self.failure)

    def _states_after(self, tokens: Sequence[int], state: Any) -> list[Any]:
        """The states after each token, up to the end of the text or the first token that is not allowed."""
        memory, reached = self._memory, []
        for token in tokens:
            if token < 0 or state == memory.finished:
                break
            try:
                ends = token in self._ends and memory.may_end(state)
                state = memory.finished if ends else memory.reach([state], [[token]])[0].state
            except Exception as error:  # as in fill_bitmask
                self._fail(error)
                break
            if state == memory.dead:
                break
            reached.append(state)
        return reached

    def _left(self) -> int | None:
        """How many tokens the request may still have."""
        if self._most is None:
            return None
        accepted = len(self._states) - 1
        if self._generated is not None:
            # Of the positions of a step, the first one has no draft tokens that were accepted here alone.
            self._before = max(self._before, self._generated() - accepted)
        return self._most - self._before - accepted

    def _within(self, state: Any, left: int | None) -> MaskRow | None:
        """The mask under the limit on tokens, if the limit changes the mask of the state; ``None`` otherwise."""
        if left is None:
            return None
        found = self._memory.mask_within(self._memory.node(state), left)
        # Nothing fits any more if the engine went beyond its limit: the text goes on.
        return None if found is None or (found.allowed and not len(found.ids)) else found

    def _fits(self, state: Any, left: int | None, token: int) -> bool:
        """Whether the limit on tokens allows a token that the state allows."""
        try:
            found = self._within(state, left)
        except Exception as error:  # as in fill_bitmask
            self._fail(error)
            return False
        return found is None or token in self._stops or bool((found.ids == token).any()) == found.allowed

    def _bits(self, state: Any) -> NDArray[np.int32]:
        memory, limited = self._memory, self._within(state, self._left())
        bits = memory.bits([memory.node(state)])[0] if limited is None else memory.bits_of(limited)
        if not self._stops:
            return bits
        if memory.may_end(state):
            return bits | self._stop_bits
        others = bits & ~self._stop_bits
        return others if others.any() else bits


def _packed(ids: Collection[int], vocab_size: int) -> NDArray[np.int32]:
    words = np.zeros(-(-vocab_size // 32), dtype=np.uint32)
    for token in ids:
        words[token // 32] |= np.uint32(1 << token % 32)
    return words.view(np.int32)
