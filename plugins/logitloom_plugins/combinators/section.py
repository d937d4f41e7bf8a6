"""Sections: consecutive parts of a text, each with its own constraints."""

from __future__ import annotations

from dataclasses import dataclass

from logitloom_plugins.combinators.inner import Inner

__all__ = ["Exit", "Section"]


@dataclass(frozen=True)
class Exit:
    """A string that ends a section.

    Attributes:
        string: the string, which is searched in the text of the section.
        section: number of the section that begins after the string.
        at_start: whether the string ends the section only at the section's start. The inner constraint need not accept
            the empty text in this case.
    """

    string: str
    section: int
    at_start: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a text with its own processors.

    Attributes:
        inner: the processors of the section; ``None`` (or without processors) for free text.
        exits: the strings that end the section.
        budget: the largest number of tokens in the section. When they are spent, one of the exits is forced, or section
            ``after`` begins.
        after: number of the section that follows a spent budget, if there are no exits.
        may_end: whether the text may end in the section (if the inner constraints also allow it).
        ends: whether only end-of-sequence is allowed.
        follows: numbers of sections that may begin without a string, wherever the text of this section may end.

    Example:
        A forced text is a section with a budget of 0 tokens: ``Section(exits=(Exit("</think>", 2),), budget=0)``.
    """

    inner: Inner | None = None
    exits: tuple[Exit, ...] = ()
    budget: int | None = None
    after: int | None = None
    may_end: bool = True
    ends: bool = False
    follows: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.inner is not None and not self.inner.links:
            object.__setattr__(self, "inner", None)
