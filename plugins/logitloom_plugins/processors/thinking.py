"""Thinking: a reasoning span with a budget, and constraints for the answer only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logitloom import Context, Vocabulary, option
from logitloom.errors import NeedsNotMet, OptionError
from logitloom_plugins.combinators import Combinator, Exit, Inner, Section
from logitloom_plugins.combinators.triggers import trigger_texts

__all__ = ["Thinking"]


@dataclass(frozen=True)
class Thinking(Combinator):
    """A reasoning span of at most ``budget`` tokens, then the answer, which alone the processors of ``then`` rule.

    A row starts inside the span if its prompt opened it, as many chat templates do. The span cannot end before it is
    closed. When the budget is spent, the closing text is forced, as much of it as has not been written yet; its
    own tokens do not count. The budget does not cut a character in two.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> words = Vocabulary([b"", b"<t>", b"</", b"t>", b"hm", b"yes", b"no", b"<", b">", b"t", b"/"], eos=[0])
        >>> options = {"budget": 1, "open": "<t>", "close": "</t>", "then": ["choice", {"choices": ["yes"]}]}
        >>> chain = processors.load(("thinking", options), tokenizer=words)
        >>> context = Context.start(np.zeros((2, 11), dtype=np.float32), vocabulary=words, prompt=[[], [1]])
        >>> state = chain.init_state(context)
        >>> chain.forced_tokens(state, context), chain.forced_tokens(state, context.accept([[1, 4], [4]]))
        ([[1], []], [[2, 3, 5, 0], [2, 3, 5, 0]])

    References:
        N. Muennighoff et al., "s1: Simple test-time scaling", 2025 (budget forcing).
    """

    forces_longest = True

    budget: int | None = option(None, help="Most tokens of the span; default: no limit.", ge=0, unit="tokens")
    then: Any = option(
        (), help="The processors that run in the answer: a name, [name, options], {use, options}, or a list of these."
    )
    inner: Any = option((), help="The processors that run in the span, written like 'then'.")
    open: str = option("<think>", help="The text that opens the span.")
    close: str | tuple[str, ...] = option(
        "</think>", help="The text that closes the span; any one of them if several are given."
    )
    separator: str = option("", help="A text that is forced between the closing text and the answer.")
    begin: str = option(
        "auto",
        help="Whether rows start inside the span: 'auto' reads it from the prompt's text, 'inside' means always, "
        "'outside' never.",
        choices=("auto", "inside", "outside"),
    )
    required: bool = option(
        True, help="Whether a row that starts outside the span must open one; if not, it may answer at once."
    )

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The prompt, too, if it says whether a span is open."""
        return super().needs | ({"prompt"} if self.begin == "auto" else set())

    def sections(self) -> Sequence[Section]:
        """Outside, the span, the separator, the answer."""
        (opening,) = trigger_texts(self.open, "open", self.name)
        closing = trigger_texts(self.close, "close", self.name)
        if opening in closing:
            raise OptionError(f"Options 'open' and 'close' of {self.name!r} are both {opening!r}. Give two texts.")
        if self.required:
            outside = Section(exits=(Exit(opening, 1),), budget=0)
        else:
            outside = Section(Inner(self.then, self.name, "then"), exits=(Exit(opening, 1, at_start=True),))
        exits = tuple(Exit(text, 2) for text in closing)
        span = Section(Inner(self.inner, self.name, "inner"), exits, budget=self.budget, may_end=False)
        between = [Section(exits=(Exit(self.separator, 3),), budget=0)] if self.separator else []
        return [outside, span, *between, Section(Inner(self.then, self.name, "then"))]

    @property
    def first_section(self) -> int:
        """The span if a text begins in it."""
        return int(self.begin == "inside")

    def first_sections(self, context: Context) -> list[int]:
        """Per row the number of its first section: the span if the row starts in a span."""
        if self.begin != "auto":
            return super().first_sections(context)
        if context.prompt is None or context.vocabulary is None:
            raise NeedsNotMet(
                f"Processor {self.name!r} must know whether the prompt opened a span, but the context has no prompt. "
                f"Say so with the option 'begin' ('inside' or 'outside')."
            )
        return [int(self._is_open(prompt, context.vocabulary)) for prompt in context.prompt]

    def _is_open(self, prompt: Sequence[int], vocabulary: Vocabulary) -> bool:
        text = b"".join(
            vocabulary.special_text.get(token, "").encode() or vocabulary.text_bytes([token]) for token in prompt
        )
        closed = max(text.rfind(close.encode()) for close in trigger_texts(self.close, "close", self.name))
        return text.rfind(self.open.encode()) > closed
