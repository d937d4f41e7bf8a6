"""Sections: consecutive parts of a text, each with its own constraints."""

from __future__ import annotations

from dataclasses import dataclass

from logitloom_plugins.combinators.inner import Inner

__all__ = ["Exit", "Section"]


@dataclass(frozen=True)
class Exit:
    """A string that ends a section.

    Attributes:
        string: what is looked for in the text of the section.
        section: number of the section that begins after it.
        at_start: whether it counts only at the very beginning of the section. An inner constraint need not allow the
            empty text for it.
    """

    string: str
    section: int
    at_start: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a text with rules of its own.

    Attributes:
        inner: the processors that rule it; ``None`` (or without processors) for free text.
        exits: strings that end it.
        budget: how many tokens it may have. When they are spent, one of the exits is forced, or ``after`` begins.
        after: number of the section that follows a spent budget without exits.
        may_end: whether the text may end in it (if the inner constraints allow it, too).
        ends: nothing but end-of-sequence is allowed.

    Example:
        A text that is forced is a section without any room: ``Section(exits=(Exit("</think>", 2),), budget=0)``.
    """

    inner: Inner | None = None
    exits: tuple[Exit, ...] = ()
    budget: int | None = None
    after: int | None = None
    may_end: bool = True
    ends: bool = False

    def __post_init__(self) -> None:
        if self.inner is not None and not self.inner.links:
            object.__setattr__(self, "inner", None)
