"""TokenBudget: processors that apply to a number of tokens, and the text after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logitloom import option
from logitloom.errors import OptionError
from logitloom_plugins.combinators.combinator import Combinator
from logitloom_plugins.combinators.inner import Inner
from logitloom_plugins.combinators.section import Exit, Section

__all__ = ["TokenBudget", "budget"]


@dataclass(frozen=True)
class TokenBudget(Combinator):
    """The inner processors for ``n`` tokens, then a forced text, then other processors, or free text, or the end.

    Tokens are counted per row from the start of the budget's section, so budgets can be nested. A budget does not end
    inside a character: in free text the last tokens are restricted so that the last character becomes complete. Under
    constraints that restrict the inner text, the budget ends at the first token border after ``n`` tokens where that
    text may end.

    Example:
        >>> import numpy as np
        >>> from logitloom import Context, Vocabulary, processors
        >>> words = Vocabulary([b"", b"a", b".", b"b"], eos=[0])
        >>> chain = processors.load(("budget", {"n": 2, "text": ".", "end": True}), tokenizer=words)
        >>> context = Context.start(np.zeros((2, 4), dtype=np.float32), vocabulary=words)
        >>> chain.forced_tokens(chain.init_state(context), context.accept([[1], [1, 3]]))
        [[], [2, 0]]

    References:
        N. Muennighoff et al., "s1: Simple test-time scaling", 2025 (budget forcing).
    """

    forces_longest = True

    n: int = option(help="The number of tokens of the first part.", ge=0, unit="tokens")
    inner: Any = option(
        (), help="The processors that run meanwhile: a name, [name, options], {use, options}, or a list of these."
    )
    text: str = option("", help="A text that is forced after those tokens.")
    then: Any = option((), help="The processors that run afterwards, written like 'inner'.")
    end: bool = option(False, help="Whether the text must end afterwards.")

    @property
    def name(self) -> str:
        """The name of the processor, for messages."""
        return "budget"

    def sections(self) -> Sequence[Section]:
        """The section with the budget, the forced text if there is one, and the last section."""
        then = Inner(self.then, self.name, "then")
        if self.end and then.links:
            raise OptionError(
                f"Processor {self.name!r} has end=True, which ends the text, and is to continue with "
                f"{', '.join(link.label for link in then.links)}. Leave out 'then' or 'end'."
            )
        last = Section(ends=True) if self.end else Section(then)
        forced = [Section(exits=(Exit(self.text, 2),), budget=0)] if self.text else []
        return [Section(Inner(self.inner, self.name, "inner"), budget=self.n, after=1), *forced, last]


def budget(
    n: int, *inner: Any, text: str = "", then: Any = (), end: bool = False, finish_within: int | None = None
) -> TokenBudget:
    """The inner processors for ``n`` tokens, then a forced text, then other processors, or free text, or the end.

    Args and errors are those of :class:`TokenBudget`; ``inner`` are processors as ``load`` takes them.
    """
    return TokenBudget(n=n, inner=list(inner), text=text, then=then, end=end, finish_within=finish_within)
