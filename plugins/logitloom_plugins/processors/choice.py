"""Choice: the text is one of a list."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

from logitloom import Vocabulary, option
from logitloom.automata import Catalogue, catalogue_constraint, default_cache
from logitloom.constraints import Constraint, LimitedProcessor
from logitloom.errors import OptionError

__all__ = ["Choice"]

#: So many texts, of together so many bytes, become tables; the bytes bound the number of states.
_MOST_TABLED: Final = 4096
_MOST_TABLED_BYTES: Final = 100_000


@dataclass(frozen=True)
class Choice(LimitedProcessor):
    """Allow only tokens with which the text can still become one of the choices.

    Choices are texts, lists of token ids, or an Enum class whose values (as text) are the choices. If one choice begins
    another (``"a"``, ``"ab"``), end-of-sequence and the rest are both allowed after it. Ids count as they are, special
    tokens too, as the semantic ids of generative retrieval need; a text may be split into tokens in any way.

    Up to 4,096 texts of together 100,000 bytes become tables, also for compiled loops. More texts, and lists of ids,
    stay a sorted list in which each step is a binary search: a million is ready in seconds. Give such texts as a
    :class:`~logitloom.automata.Catalogue`, which takes the bytes of the texts and 4 more per text (lists of ids: 4
    bytes an id).

    Example:
        >>> from logitloom import processors
        >>> words = Vocabulary([b"", b"y", b"es", b"no"], eos=[0])
        >>> chain = processors.load(("choice", {"choices": ["yes", "no"]}), tokenizer=words)
        >>> chain["choice"].constraint(words, 4).row(0).tolist()
        [1, 3]
        >>> from logitloom.automata import Catalogue
        >>> items = Catalogue.of_ids([[2, 1], [2, 3]])
        >>> chain = processors.load(("choice", {"choices": items}), tokenizer=words)
        >>> chain["choice"].constraint(words, 4).row((0, 2, 0)).tolist()
        [2]
    """

    choices: tuple[str, ...] | tuple[tuple[int, ...], ...] | type[Enum] | Catalogue = option(
        help="The texts, lists of token ids, an Enum class whose values are the texts, or a catalogue of either."
    )
    longest_tokens: bool = option(  # type: ignore[misc]
        False,
        help="Where one text must come next, allow only its longest token, so that loops need not ask the model "
        "for it.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.choices, type):
            object.__setattr__(self, "choices", tuple(str(member.value) for member in self.choices))
        if not self.choices:
            raise OptionError("Option 'choices' of 'choice' is empty; give at least one text.")

    @property
    def compilable(self) -> bool:  # type: ignore[override]
        """Whether there are tables for compiled loops."""
        return self._catalogue is None

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """Tables come from the cache, by the choices and the content of the vocabulary."""
        if self._catalogue is not None:
            return catalogue_constraint(self._catalogue, vocabulary, vocab_size)
        return default_cache().texts(self._texts, vocabulary, vocab_size=vocab_size)

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Lists of ids are no texts: they may hold special tokens, and ids that only the logits have."""
        if self._catalogue is None or not self._catalogue.holds_ids:
            super().check_vocabulary(vocabulary)

    @property
    def _texts(self) -> tuple[str, ...]:
        """The choices that are given as texts."""
        choices = self.choices
        return () if isinstance(choices, (type, Catalogue)) else tuple(one for one in choices if isinstance(one, str))

    @cached_property
    def _catalogue(self) -> Catalogue | None:
        """The choices as a sorted list, unless there are tables."""
        choices = self.choices
        assert not isinstance(choices, type)
        if isinstance(choices, Catalogue):
            return choices
        if not isinstance(choices[0], str):
            return Catalogue.of_ids(choices)
        texts = self._texts
        if len(texts) <= _MOST_TABLED and sum(len(text.encode()) for text in texts) <= _MOST_TABLED_BYTES:
            return None
        return Catalogue.of_texts(texts)
