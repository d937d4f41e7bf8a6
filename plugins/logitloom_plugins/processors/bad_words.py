"""Bad words: phrases that the text never contains."""

from __future__ import annotations

import re
from dataclasses import dataclass

from logitloom import Vocabulary, option
from logitloom.automata import (
    AhoCorasick,
    TokenAutomaton,
    any_bytes,
    compile_pattern,
    concatenation,
    difference,
    union,
)
from logitloom.constraints import ConstraintProcessor

__all__ = ["BadWords"]


@dataclass(frozen=True)
class BadWords(ConstraintProcessor):
    """Forbid every token that would complete a banned phrase in the generated text.

    Phrases are looked for in the text, not among token ids, so no other way to split a phrase into tokens gets
    around the ban. A phrase is found inside words too (``"cat"`` in ``"concatenate"``). Special tokens are not text:
    they are neither forbidden nor do they interrupt a phrase.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        AhoCorasick(self.phrases)  # refuses an empty list and empty phrases

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> TokenAutomaton:
        """An automaton in which every text is accepted until a phrase is complete."""
        if not self.ignore_case:
            return TokenAutomaton(AhoCorasick(self.phrases).avoiding(), vocabulary, vocab_size, restricts=False)
        phrases = [compile_pattern(re.escape(phrase), int(re.IGNORECASE)) for phrase in self.phrases]
        found = concatenation(any_bytes(), phrases[0] if len(phrases) == 1 else union(*phrases), any_bytes())
        return TokenAutomaton(difference(any_bytes(), found), vocabulary, vocab_size, restricts=False)
