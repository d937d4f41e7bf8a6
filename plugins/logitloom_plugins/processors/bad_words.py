"""Bad words: phrases that the text never contains."""

from __future__ import annotations

from dataclasses import dataclass

from logitloom import Vocabulary, option
from logitloom.automata import Budget, TokenAutomaton, texts_without
from logitloom.constraints import ConstraintProcessor
from logitloom.errors import OptionError

__all__ = ["BadWords"]


@dataclass(frozen=True)
class BadWords(ConstraintProcessor):
    """Forbid every token that would complete a banned phrase in the generated text.

    Phrases are looked for in the text, not among token ids, so no other way to split a phrase into tokens gets
    around the ban. A phrase is found inside words too (``"cat"`` in ``"concatenate"``). Special tokens are not text:
    they are neither forbidden nor do they interrupt a phrase. Ten thousand phrases take about a second, in either case.

    Example:
        >>> from logitloom import processors
        >>> words = Vocabulary([b"</s>", b"b", b"ad", b"a"], eos=[0])
        >>> chain = processors.load(("bad_words", {"phrases": ["bad"]}), tokenizer=words)
        >>> automaton = chain["bad_words"].constraint(words, 4)
        >>> automaton.row(automaton.advance(automaton.start(), 1)).tolist()
        [0, 1, 3]

    References:
        A. V. Aho, M. J. Corasick, "Efficient string matching: an aid to bibliographic search", 1975.
    """

    phrases: tuple[str, ...] = option(help="Texts that must not occur.")
    ignore_case: bool = option(False, help="Whether the phrases are banned in either case.")
    max_states: int = option(1_000_000, help="Most states of the automaton.", ge=1, unit="states")
    max_seconds: float = option(10.0, help="Most time for the compilation.", gt=0, unit="seconds")

    def __post_init__(self) -> None:
        super().__post_init__()
        budget = Budget(states=self.max_states, seconds=self.max_seconds)
        try:
            self.__dict__["_clean"] = texts_without(self.phrases, ignore_case=self.ignore_case, budget=budget)
        except OptionError as error:  # an empty list, or an empty phrase
            raise OptionError(f"Option 'phrases' of 'bad_words': {error}") from None

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> TokenAutomaton:
        """An automaton in which every text is accepted until a phrase is complete."""
        return TokenAutomaton(self.__dict__["_clean"], vocabulary, vocab_size, restricts=False)
