"""After: processors that apply once a string has been written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logitloom import option
from logitloom_plugins.combinators.combinator import Combinator
from logitloom_plugins.combinators.inner import Inner
from logitloom_plugins.combinators.section import Exit, Section
from logitloom_plugins.combinators.triggers import trigger_texts

__all__ = ["After", "after"]


@dataclass(frozen=True)
class After(Combinator):
    """Free text, then, after a trigger, text under the inner processors.

    The free text ends with the first occurrence of the trigger. The inner text begins directly after the trigger, even
    within a token.

    Example:
        >>> import numpy as np
        >>> from logitloom import Context, Vocabulary, processors
        >>> words = Vocabulary([b"", b"n:", b"7", b":", b":7"], eos=[0])
        >>> chain = processors.load(("after", {"trigger": ":", "inner": ["regex", {"pattern": "7+"}]}), tokenizer=words)
        >>> logits = np.zeros((1, 5), dtype=np.float32)
        >>> context = Context.start(logits, vocabulary=words)
        >>> free, state = chain.process(logits, chain.init_state(context), context)
        >>> ruled, state = chain.process(logits, state, context.accept([[1]]))
        >>> free, ruled
        (array([[0., 0., 0., 0., 0.]], dtype=float32), array([[-inf, -inf,   0., -inf, -inf]], dtype=float32))

    References:
        A. V. Aho, M. J. Corasick, "Efficient string matching: an aid to bibliographic search", 1975.
    """

    trigger: str | tuple[str, ...] = option(
        help="The text after which the inner processors run; any one of them if several are given."
    )
    inner: Any = option(
        help="The processors that run then: a name, [name, options], {use, options}, or a list of these."
    )
    required: bool = option(False, help="Whether the trigger must be written before the text may end.")

    def sections(self) -> Sequence[Section]:
        """The section up to the trigger, and the section after it."""
        exits = tuple(Exit(string, 1) for string in trigger_texts(self.trigger, "trigger", self.name))
        return [Section(exits=exits, may_end=not self.required), Section(Inner(self.inner, self.name, "inner"))]


def after(trigger: str | Sequence[str], *inner: Any, required: bool = False, finish_within: int | None = None) -> After:
    """Free text, then, after a trigger, text under the inner processors.

    Args and errors are those of :class:`After`; ``inner`` are processors as ``load`` takes them.
    """
    strings = trigger if isinstance(trigger, str) else tuple(trigger)
    return After(trigger=strings, inner=list(inner), required=required, finish_within=finish_within)
