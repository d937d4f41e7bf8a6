"""FSM: the text is accepted by any automaton built with :mod:`logitloom.automata`."""

from __future__ import annotations

from dataclasses import dataclass

from logitloom import Vocabulary, option
from logitloom.automata import Dfa, default_cache
from logitloom.constraints import ByteAutomaton, Constraint, LimitedProcessor, lift

__all__ = ["Fsm"]


@dataclass(frozen=True)
class Fsm(LimitedProcessor):
    """Allow only tokens with which an automaton over the text's bytes can still reach acceptance.

    Automata come from patterns, lists or search strings and can be combined: union, intersection, difference,
    complement, concatenation, repetition.

    Example:
        >>> from logitloom import processors
        >>> from logitloom.automata import compile_pattern, difference
        >>> dfa = difference(compile_pattern("[a-z]+"), compile_pattern("no"))
        >>> words = Vocabulary([b"", b"n", b"o"], eos=[0])
        >>> automaton = processors.load(("fsm", {"automaton": dfa}), tokenizer=words)["fsm"].constraint(words, 3)
        >>> automaton.row(automaton.advance(automaton.advance(automaton.start(), 1), 2)).tolist()
        [1, 2]
    """

    automaton: Dfa | ByteAutomaton = option(help="An automaton over bytes, from logitloom.automata.")
    longest_tokens: bool = option(  # type: ignore[misc]
        False,
        help="Where one text must come next, allow only its longest token, so that loops need not ask the model "
        "for it.",
    )

    @property
    def compilable(self) -> bool:  # type: ignore[override]
        """Whether there are tables for compiled loops: if the automaton is whole."""
        return isinstance(self.automaton, Dfa)

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """From the cache, by the content of the automaton and of the vocabulary, where the automaton is whole."""
        if not isinstance(self.automaton, Dfa):
            return lift(self.automaton, vocabulary, vocab_size)
        return default_cache().automaton(self.automaton, vocabulary, vocab_size=vocab_size)
