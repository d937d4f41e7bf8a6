"""Combinators: processors after, until or between strings, or for a number of tokens; several constraints together.

A combination of constraints is an exact constraint. A combinator is a processor. The functions of this package make
combinators; a chain loads one by its name, like any other processor (``"after"``, ``"until"``, ``"between"``,
``"budget"``, ``"all_of"``). Combinators can be nested.

Example:
    >>> from logitloom import processors
    >>> from logitloom_plugins.combinators import after, budget
    >>> processors.load(after("Answer: ", ("regex", {"pattern": "[0-9]+"})), ("temperature", {"temperature": 0.5}))
    <Chain after(trigger='Answer: ', inner=[('regex', {'pattern': '[0-9]+'})]) -> temperature(temperature=0.5)>
    >>> nested = budget(200, budget(100, ("min_p", {"p": 0.1})), end=True)
"""

from __future__ import annotations

from logitloom_plugins.combinators.after import After, after
from logitloom_plugins.combinators.all_of import AllOf, all_of
from logitloom_plugins.combinators.between import Between, between
from logitloom_plugins.combinators.budget import TokenBudget, budget
from logitloom_plugins.combinators.combinator import Combinator, CombinatorState
from logitloom_plugins.combinators.finish_within import FinishWithin
from logitloom_plugins.combinators.inner import Inner, SharedInners
from logitloom_plugins.combinators.section import Exit, Section
from logitloom_plugins.combinators.until import Until, until

__all__ = [
    "After",
    "AllOf",
    "Between",
    "Combinator",
    "CombinatorState",
    "Exit",
    "FinishWithin",
    "Inner",
    "Section",
    "SharedInners",
    "TokenBudget",
    "Until",
    "after",
    "all_of",
    "between",
    "budget",
    "until",
]
