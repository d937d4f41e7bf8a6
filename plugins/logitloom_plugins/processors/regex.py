"""Regex: the text matches a regular expression."""

from __future__ import annotations

import re
from dataclasses import dataclass

from logitloom import Vocabulary, option
from logitloom.automata import Budget, Dfa, LazyDfa, compile_automaton, default_cache
from logitloom.automata.patterns.pattern import shortened
from logitloom.constraints import Constraint, LimitedProcessor, lift
from logitloom.errors import UnsupportedPattern

__all__ = ["Regex"]


@dataclass(frozen=True)
class Regex(LimitedProcessor):
    """Allow only tokens with which the text can still match a regular expression, as ``re.fullmatch`` would.

    The syntax is Python's. Constructs that are not regular (back-references, look-around) are refused when the
    processor is made, as is a pattern with more positions than ``max_states``. The automaton is built whole where
    building is cheap; otherwise its states are computed as texts reach them.

    Example:
        >>> from logitloom import processors
        >>> words = Vocabulary([b"", b"a", b"b", b"ab"], eos=[0])
        >>> chain = processors.load(("regex", {"pattern": "(ab)+"}), tokenizer=words)
        >>> chain["regex"].constraint(words, 4).row(0).tolist()
        [1, 3]

    References:
        B. Willard, R. Louf, "Efficient guided generation for large language models", 2023.
    """

    pattern: str = option(help="The regular expression the whole text must match.")
    ignore_case: bool = option(False, help="Whether letters match in either case.")
    max_states: int = option(100_000, help="Most states of the automaton.", ge=1, unit="states")
    max_seconds: float = option(10.0, help="Most time for the compilation.", gt=0, unit="seconds")
    longest_tokens: bool = option(  # type: ignore[misc]
        False,
        help="Where one text must come next, allow only its longest token, so that loops need not ask the model "
        "for it.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # Whatever is wrong with the pattern is said now, not when decoding starts.
        automaton = compile_automaton(self.pattern, self._flags, budget=self._budget)
        if isinstance(automaton, Dfa) and not automaton.accepting.any():
            raise UnsupportedPattern(
                f"No text matches the pattern {shortened(self.pattern)} of 'regex', so nothing could be written. Look "
                f"for an empty character set, or an anchor that contradicts its neighbours."
            )
        object.__setattr__(self, "_automaton", automaton)

    @property
    def compilable(self) -> bool:  # type: ignore[override]
        """Whether the automaton is built whole: only then its tables run in compiled loops."""
        return isinstance(self.__dict__["_automaton"], Dfa)

    @property
    def _flags(self) -> int:
        return int(re.IGNORECASE) if self.ignore_case else 0

    @property
    def _budget(self) -> Budget:
        return Budget(states=self.max_states, seconds=self.max_seconds)

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """From the cache, by pattern and content of the vocabulary, where the automaton is whole."""
        automaton: Dfa | LazyDfa = self.__dict__["_automaton"]
        if not isinstance(automaton, Dfa):
            return lift(automaton, vocabulary, vocab_size)
        return default_cache().pattern(
            self.pattern, vocabulary, flags=self._flags, vocab_size=vocab_size, budget=self._budget,
            compiled=automaton,
        )  # fmt: skip
