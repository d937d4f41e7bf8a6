"""Base class of processors whose constraint a grammar engine holds: the state is a row of its states."""

from __future__ import annotations

import threading

from logitloom import Vocabulary
from logitloom.backend import Array
from logitloom.constraints import Constraint
from logitloom.context import Context
from logitloom.errors import NeedsNotMet
from logitloom.processor import Processor
from logitloom.state import Rows
from logitloom_plugins.grammar_engines import handles

__all__ = ["EngineProcessor"]


class EngineProcessor(Processor):
    """A constraint that a grammar engine holds; derive from it and implement :meth:`constraint`.

    The state is :class:`Rows` of the constraint's states, one per sequence.
    """

    stage = "constraint"
    needs = frozenset({"vocabulary"})
    mask_only = True
    preserves_masked = True
    compilable = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_bound", {})
        object.__setattr__(self, "_lock", threading.Lock())

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """The grammar for a vocabulary and a width of the logits; called once for each, then kept."""
        raise NotImplementedError(f"{type(self).__name__} must define constraint(vocabulary, vocab_size).")

    def bound_for(self, context: Context) -> Constraint:
        """The grammar that a generation with this context uses.

        Raises:
            NeedsNotMet: if the context has no vocabulary.
        """
        known: dict[tuple[Vocabulary | None, int], Constraint] = self.__dict__["_bound"]
        key = (context.vocabulary, context.vocab_size)
        found = known.get(key)
        if found is not None:
            return found
        if context.vocabulary is None:
            raise NeedsNotMet(
                f"{type(self).__name__} needs a vocabulary: load the chain with tokenizer=..., or give the context one."
            )
        with self.__dict__["_lock"]:
            if key not in known:
                known[key] = self.constraint(context.vocabulary, context.vocab_size)
        return known[key]

    def init_state(self, context: Context) -> Rows:
        """The constraint's state per row."""
        return Rows([self.bound_for(context).start()] * context.batch)

    def process(self, logits: Array, state: Rows, context: Context) -> tuple[Array, Rows]:
        """Advance by the accepted tokens, then forbid what may not come next."""
        bound = self.bound_for(context)
        rows = handles.advanced(bound, state, context, type(self).__name__)
        return handles.masked(bound, logits, rows, context), rows

    def forced_tokens(self, state: Rows, context: Context) -> list[list[int]]:
        """Per row the tokens that must come next, while exactly one is allowed."""
        return handles.forced(self.bound_for(context), state, context, type(self).__name__)
