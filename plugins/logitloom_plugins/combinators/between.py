"""Between: processors that apply between two strings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logitloom import option
from logitloom_plugins.combinators.combinator import Combinator
from logitloom_plugins.combinators.inner import Inner
from logitloom_plugins.combinators.section import Exit, Section
from logitloom_plugins.combinators.triggers import trigger_texts

__all__ = ["Between", "between"]


@dataclass(frozen=True)
class Between(Combinator):
    """Free text, with text under the inner processors between an opening and a closing string.

    After an opening string the closing string must come before the text may end. The inner processors start anew after
    each opening string. The closing string ends the inner text only where the inner constraints accept that text, so it
    may also occur inside (``}}`` may close nested objects).

    Example:
        >>> import numpy as np
        >>> from logitloom import Context, Vocabulary, processors
        >>> words = Vocabulary([b"", b"(", b")", b"7", b"a"], eos=[0])
        >>> spec = ("between", {"open": "(", "close": ")", "inner": ["regex", {"pattern": "7*"}]})
        >>> chain = processors.load(spec, tokenizer=words)
        >>> logits = np.zeros((2, 5), dtype=np.float32)
        >>> context = Context.start(logits, vocabulary=words)
        >>> chain.process(logits, chain.init_state(context), context.accept([[4], [1]]))[0]
        array([[  0.,   0.,   0.,   0.,   0.],
               [-inf, -inf,   0.,   0., -inf]], dtype=float32)

    References:
        A. V. Aho, M. J. Corasick, "Efficient string matching: an aid to bibliographic search", 1975.
    """

    open: str | tuple[str, ...] = option(
        help="The text after which the inner processors run; any one of them if several are given."
    )
    close: str | tuple[str, ...] = option(help="The text that ends the span; any one of them if several are given.")
    inner: Any = option(
        (), help="The processors that run there: a name, [name, options], {use, options}, or a list of these."
    )
    repeat: bool = option(True, help="Whether another span may be opened after one was closed.")
    required: bool = option(False, help="Whether the text must contain a span before it may end.")

    def sections(self) -> Sequence[Section]:
        """The sections before, between and after the strings."""
        opening = tuple(Exit(string, 1) for string in trigger_texts(self.open, "open", self.name))
        closing = tuple(Exit(string, 2) for string in trigger_texts(self.close, "close", self.name))
        return [
            Section(exits=opening, may_end=not self.required),
            Section(Inner(self.inner, self.name, "inner"), closing, may_end=False),
            Section(exits=opening if self.repeat else ()),
        ]


def between(
    open: str | Sequence[str],
    close: str | Sequence[str],
    *inner: Any,
    repeat: bool = True,
    required: bool = False,
    finish_within: int | None = None,
) -> Between:
    """Free text, with text under the inner processors between an opening and a closing string.

    Args and errors are those of :class:`Between`; ``inner`` are processors as ``load`` takes them.
    """
    opening = open if isinstance(open, str) else tuple(open)
    closing = close if isinstance(close, str) else tuple(close)
    return Between(
        open=opening, close=closing, inner=list(inner), repeat=repeat, required=required, finish_within=finish_within
    )
