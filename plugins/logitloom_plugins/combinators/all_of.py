"""AllOf: constraints that one text satisfies together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logitloom import option
from logitloom.errors import OptionError
from logitloom_plugins.combinators.combinator import Combinator
from logitloom_plugins.combinators.inner import Inner
from logitloom_plugins.combinators.section import Section

__all__ = ["AllOf", "all_of"]


@dataclass(frozen=True)
class AllOf(Combinator):
    """A text that satisfies several constraints together.

    In a chain each constraint forbids tokens by itself. Two constraints may allow a beginning that each of them can
    complete, although no text satisfies both. In ``all_of`` a token is allowed if a text that satisfies all constraints
    can still be completed after the token. Other inner processors run as in a chain.

    Example:
        >>> import numpy as np
        >>> from logitloom import Context, Vocabulary, processors
        >>> words = Vocabulary([b"", b"a", b"b", b"c"], eos=[0])
        >>> both = [["choice", {"choices": ["ab", "ba", "ca"]}], ["bad_words", {"phrases": ["ca"]}]]
        >>> chain = processors.load(("all_of", {"inner": both}), tokenizer=words)
        >>> logits = np.zeros((1, 4), dtype=np.float32)
        >>> context = Context.start(logits, vocabulary=words)
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[-inf,   0.,   0., -inf]], dtype=float32)

    References:
        M. O. Rabin, D. Scott, "Finite automata and their decision problems", 1959 (the product of automata).
    """

    inner: Any = option(help="The processors: a list of names, [name, options] or {use, options}.")

    @property
    def name(self) -> str:
        """The name of the processor, for messages."""
        return "all_of"

    def sections(self) -> Sequence[Section]:
        """One section, which is the whole text."""
        inner = Inner(self.inner, self.name, "inner")
        if not inner.links:
            raise OptionError("The option 'inner' of 'all_of' is empty. Give the processors that a text satisfies.")
        return [Section(inner)]


def all_of(*inner: Any, finish_within: int | None = None) -> AllOf:
    """A text that satisfies several constraints together.

    Args and errors are those of :class:`AllOf`; ``inner`` are processors as ``load`` takes them.
    """
    return AllOf(inner=list(inner), finish_within=finish_within)
