"""Until: processors that apply until a string has been written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logitloom import option
from logitloom_plugins.combinators.combinator import Combinator
from logitloom_plugins.combinators.inner import Inner
from logitloom_plugins.combinators.section import Exit, Section
from logitloom_plugins.combinators.triggers import trigger_texts

__all__ = ["Until", "until"]


@dataclass(frozen=True)
class Until(Combinator):
    """The inner processors until a trigger is written, then other processors, or free text.

    The text is a text that the inner constraints accept, then the trigger, then the text that follows. The trigger ends
    the inner text only where the inner constraints accept that text. Without an inner constraint that restricts the
    text, the first occurrence of the trigger ends it.

    Example:
        >>> import numpy as np
        >>> from logitloom import Context, Vocabulary, processors
        >>> words = Vocabulary([b"", b"7", b";", b"a"], eos=[0])
        >>> chain = processors.load(("until", {"trigger": ";", "inner": ["regex", {"pattern": "77"}]}), tokenizer=words)
        >>> logits = np.zeros((1, 4), dtype=np.float32)
        >>> context = Context.start(logits, vocabulary=words)
        >>> state = chain.init_state(context)
        >>> chain.process(logits, state, context.accept([[1, 1]]))[0], chain.process(logits, state, context)[0]
        (array([[  0., -inf,   0., -inf]], dtype=float32), array([[-inf,   0., -inf, -inf]], dtype=float32))

    References:
        A. V. Aho, M. J. Corasick, "Efficient string matching: an aid to bibliographic search", 1975.
    """

    trigger: str | tuple[str, ...] = option(
        help="The text that ends the part of the inner processors; any one of them if several are given."
    )
    inner: Any = option(
        help="The processors that run first: a name, [name, options], {use, options}, or a list of these."
    )
    then: Any = option((), help="The processors that run after the trigger, written like 'inner'.")
    required: bool = option(False, help="Whether the trigger must be written before the text may end.")

    def sections(self) -> Sequence[Section]:
        """The section up to the trigger, and the section after it."""
        exits = tuple(Exit(string, 1) for string in trigger_texts(self.trigger, "trigger", self.name))
        return [
            Section(Inner(self.inner, self.name, "inner"), exits, may_end=not self.required),
            Section(Inner(self.then, self.name, "then")),
        ]


def until(
    trigger: str | Sequence[str],
    *inner: Any,
    then: Any = (),
    required: bool = False,
    finish_within: int | None = None,
) -> Until:
    """The inner processors until a trigger is written, then other processors, or free text.

    Args and errors are those of :class:`Until`; ``inner`` are processors as ``load`` takes them.
    """
    strings = trigger if isinstance(trigger, str) else tuple(trigger)
    return Until(trigger=strings, inner=list(inner), then=then, required=required, finish_within=finish_within)
