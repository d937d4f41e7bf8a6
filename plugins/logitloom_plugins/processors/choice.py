"""Choice: the text is one of a list."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from logitloom import Vocabulary, option
from logitloom.automata import TokenAutomaton, choice, default_cache
from logitloom.constraints import ConstraintProcessor
from logitloom.errors import OptionError

__all__ = ["Choice"]


@dataclass(frozen=True)
class Choice(ConstraintProcessor):
    """Allow only tokens with which the text can still become one of the choices.

    Choices are texts, or an Enum class whose values (as text) are the choices. If one choice begins another
    (``"a"``, ``"ab"``), end-of-sequence and the rest are both allowed after it.

    Example:
        >>> from logitloom import processors
        >>> words = Vocabulary([b"", b"y", b"es", b"no"], eos=[0])
        >>> chain = processors.load(("choice", {"choices": ["yes", "no"]}), tokenizer=words)
        >>> chain["choice"].constraint(words, 4).row(0).tolist()
        [1, 3]
    """

    choices: tuple[str, ...] | type[Enum] = option(help="The texts, or an Enum class whose values are the texts.")
    longest_tokens: bool = option(  # type: ignore[misc]
        False, help="Where one text must come next, allow only its longest token, so that it skips the model."
    )
    finish_within: int | None = option(  # type: ignore[misc]
        None, help="Most tokens, end-of-sequence included; every text is complete by then.", ge=1, unit="tokens"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.choices, type):
            object.__setattr__(self, "choices", tuple(str(member.value) for member in self.choices))
        if not self.choices:
            raise OptionError("Option 'choices' of 'choice' is empty; give at least one text.")

    @property
    def compilable(self) -> bool:  # type: ignore[override]
        """Whether there are tables for compiled loops; they do not count tokens."""
        return self.finish_within is None

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> TokenAutomaton:
        """From the cache, by the choices and the content of the vocabulary."""
        assert not isinstance(self.choices, type)
        return default_cache().automaton(choice(self.choices), vocabulary, vocab_size=vocab_size)
