"""Stop repetition: the text ends when its last tokens repeat themselves."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from logitloom import Vocabulary, option
from logitloom.constraints import Constraint, ConstraintProcessor, State, TokenSet
from logitloom.errors import OptionError
from logitloom.host.hookspecs import TextEnd

__all__ = ["StopRepetition"]


class _Written(NamedTuple):
    """A state.

    Attributes:
        tail: the last tokens with text, as many as the search needs; none after the end.
        cut: bytes at the end of an ended text that do not belong to it; -1 before the end.
    """

    tail: tuple[int, ...] = ()
    cut: int = -1


@dataclass(frozen=True)
class StopRepetition(ConstraintProcessor):
    """After so many equal groups of tokens in a row allow nothing but end-of-sequence, and say where the text ends.

    The last ``p * times`` tokens are a repetition if they are ``times`` equal groups of ``p`` tokens, for any ``p``
    from ``shortest`` to ``longest``. Special tokens and the prompt do not count. The state is the last tokens of the
    row.

    Example:
        >>> import numpy as np
        >>> from logitloom import Context, processors
        >>> words = Vocabulary([b"</s>", b"la ", b"di ", b"da"], eos=[0])
        >>> chain = processors.load(("stop_repetition", {"times": 3, "keep": 1}), tokenizer=words)
        >>> context = Context.start(np.zeros((1, 4), dtype=np.float32), vocabulary=words)
        >>> chain.text_ends(chain.init_state(context), context.accept([[3, 1, 2, 1, 2, 1, 2]]))
        [TextEnd(finished=True, hold=12)]

    References:
        A. Holtzman et al., "The curious case of neural text degeneration", 2019 (repetition as the failure of
        likelihood-maximizing decoding).
    """

    compilable = False

    times: int = option(4, help="How many equal groups of tokens in a row end the text.", ge=2)
    longest: int = option(64, help="Most tokens of a group.", ge=1, le=1024, unit="tokens")
    shortest: int = option(1, help="Least tokens of a group.", ge=1, unit="tokens")
    keep: int | None = option(None, help="How many of the groups stay in the text; default: all.", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shortest > self.longest:
            raise OptionError(
                f"Option 'shortest' of 'stop_repetition' is {self.shortest}, which is above 'longest', {self.longest}. "
                f"Raise 'longest' or lower 'shortest'."
            )
        if self.keep is not None and self.keep > self.times:
            raise OptionError(
                f"Option 'keep' of 'stop_repetition' is {self.keep}, but the text ends after {self.times} groups. Give "
                f"at most {self.times}."
            )

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """A constraint that allows everything until the text repeats itself."""
        return _Repetition(self, vocabulary, vocab_size)


class _Repetition(Constraint):
    restricts = False
    ends_texts = True

    def __init__(self, options: StopRepetition, vocabulary: Vocabulary, vocab_size: int) -> None:
        self.vocabulary, self.vocab_size = vocabulary, vocab_size
        self.times, self.longest, self.shortest = options.times, options.longest, options.shortest
        self.keep = options.times if options.keep is None else options.keep
        ends = [token for token in vocabulary.eos if token < vocab_size]
        self._sets = (
            TokenSet(False, np.array(sorted(ends), dtype=np.int32)),
            TokenSet(True, np.zeros(0, dtype=np.int32)),
        )
        for found in self._sets:
            found.ids.setflags(write=False)

    @property
    def fingerprint(self) -> bytes:
        """Of the vocabulary and the options."""
        options = self.times, self.longest, self.shortest, self.keep, self.vocab_size, self.vocabulary.fingerprint
        return hashlib.blake2b(repr(options).encode(), digest_size=16, person=b"stop repetition").digest()

    def start(self) -> State:
        """No tokens."""
        return _Written()

    def advance(self, state: State, token: int) -> State | None:
        """The last tokens with one more, or the end of the text."""
        text = self.vocabulary.token_bytes[token] if 0 <= token < self.vocabulary.size else b""
        before = _written(state)
        if before.cut >= 0:
            return _Written((), before.cut + len(text))
        if not text:
            return state
        tail = (*before.tail[1 - self.times * self.longest :], token)
        groups = range(self.shortest, min(self.longest, len(tail) // self.times) + 1)
        repeated = next((p for p in groups if tail[-1] == tail[-1 - p] and self._repeats(tail, p)), 0)
        if not repeated:
            return _Written(tail)
        gone = (self.times - self.keep) * repeated
        return _Written((), len(self.vocabulary.text_bytes(tail[len(tail) - gone :])))

    def _repeats(self, tail: tuple[int, ...], size: int) -> bool:
        end = len(tail)
        return tail[end - size * (self.times - 1) :] == tail[end - size * self.times : end - size]

    def allowed(self, state: State) -> TokenSet:
        """Everything, or nothing after the end."""
        return self._sets[_written(state).cut >= 0]

    def may_end(self, state: State) -> bool:
        """Always."""
        del state
        return True

    def finish(self, state: State) -> State:
        """A text that has ended keeps its state, which says where the text ends."""
        return state if _written(state).cut >= 0 else super().finish(state)

    def text_end(self, state: State) -> TextEnd:
        """The end of the text; before the end, the bytes that a begun repetition would cut."""
        tail, cut = _written(state)
        if cut >= 0:
            return TextEnd(True, cut)
        held = 0
        for size in range(self.shortest, min(self.longest, len(tail)) + 1) if self.keep < self.times else ():
            run = 0
            while run < len(tail) - size and tail[-1 - run] == tail[-1 - run - size]:
                run += 1
            held = max(held, run - (self.keep - 1) * size)
        return TextEnd(False, len(self.vocabulary.text_bytes(tail[len(tail) - held :])))


def _written(state: State) -> _Written:
    return state  # type: ignore[return-value]
