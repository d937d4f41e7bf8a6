"""What a grammar engine is to a processor: it reads a schema or a grammar, or refuses it, and gives a constraint.

An engine plug-in (entry-point group ``logitloom.grammars``) is a class that is an :class:`Engine`. What it has read is
a :class:`Grammar`, which is bound to a vocabulary once and is then a :class:`~logitloom.constraints.Constraint` like
any other.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from logitloom.backend import Array
from logitloom.constraints import FINISHED, Constraint
from logitloom.context import Context
from logitloom.errors import IllegalToken
from logitloom.masks.mask_row import MaskRow
from logitloom.state import Rows
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.grammar_engines.context_free import Grammar as ContextFree

__all__ = ["Engine", "Grammar", "advanced", "forced", "masked"]


class Grammar(Protocol):
    """A grammar that an engine has checked."""

    def bind(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """The constraint that the grammar is over a vocabulary, for a width of logits.

        Its states are values like those of any constraint; :class:`MatcherConstraint` makes them for engines whose
        matchers can only be copied and advanced.
        """
        ...


class Engine(Protocol):
    """What an engine plug-in can be asked; whatever it cannot enforce exactly it refuses."""

    def json_schema(self, schema: Any, *, whitespace: str, formats: bool, strict: bool) -> Grammar:
        """The grammar of a JSON Schema.

        Args:
            schema: a JSON value.
            whitespace: ``flexible``, ``compact`` or ``one_space``.
            formats: whether ``format`` is enforced.
            strict: refuse what the engine does not enforce, rather than warn.

        Raises:
            UnsupportedSchema: saying what the engine cannot enforce.
        """
        ...

    def lark(self, text: str, *, start: str, longest_tokens: bool, max_items: int) -> Grammar:
        """The grammar that a Lark text describes, in which the longest match decides where a terminal ends.

        Args:
            text: the grammar.
            start: the rule that a whole text follows.
            longest_tokens: where one text must come next, allow one way to cut it into tokens only.
            max_items: most items of the parser in one step.

        Raises:
            UnsupportedGrammar: with line and column, or saying that the engine does not read Lark.
        """
        ...

    def context_free(self, grammar: ContextFree, *, longest_tokens: bool, max_items: int) -> Grammar:
        """The grammar that rules over characters describe, whatever notation they were read from.

        Raises:
            UnsupportedGrammar: saying what the engine cannot do.
        """
        ...


def _after(constraint: Constraint, state: Any, token: int) -> Any:
    if state is FINISHED or token == -1:
        return state
    if token in constraint.vocabulary.eos:
        return FINISHED if constraint.may_end(state) else None
    return constraint.advance(state, token)


def advanced(constraint: Constraint, rows: Rows, context: Context, name: str) -> Rows:
    """The states after the tokens that each row accepted.

    Raises:
        IllegalToken: naming the row and the token.
    """
    if context.tokens is None:
        return rows
    result = []
    for row, (state, tokens) in enumerate(zip(rows, context.backend.to_numpy(context.tokens).tolist(), strict=True)):
        for token in tokens:
            following = _after(constraint, state, token)
            if following is None:
                raise IllegalToken(
                    f"{name}: row {row} accepted token {token} ({constraint.vocabulary.describe(token)}), which is not "
                    f"allowed there. Sample from the processed logits, or roll the row back.",
                    row=row,
                )
            state = following
        result.append(state)
    return Rows(result)


def masked(constraint: Constraint, logits: Array, rows: Rows, context: Context) -> Array:
    """The logits with -inf for every token that its row's state does not allow."""
    size = constraint.vocab_size
    found = dict(zip(going := [s for s in dict.fromkeys(rows) if s is not FINISHED],
                     (members.mask(size) for members in constraint.allowed_many(going)), strict=True))  # fmt: skip
    masks: list[MaskRow] = []
    for state in rows:
        mask = found[state].copy() if state is not FINISHED else np.zeros(size, dtype=bool)
        if state is FINISHED or constraint.may_end(state):
            mask[[token for token in constraint.vocabulary.eos if token < size]] = True
        masks.append(MaskRow(True, mask.nonzero()[0].astype(np.int32), size))
    return context.backend.apply_token_rows(logits, masks, context.donate)


def forced(constraint: Constraint, rows: Rows, context: Context, name: str) -> list[list[int]]:
    """Per row the tokens that must come next."""
    runs = []
    for state in advanced(constraint, rows, context, name):
        run = [] if state is FINISHED else constraint.forced(state)
        for token in run:
            state = constraint.advance(state, token)
        ends = [token for token in constraint.vocabulary.eos if token < constraint.vocab_size]
        if state is not FINISHED and len(ends) == 1 and constraint.may_end(state):
            run = run if len(constraint.allowed(state).listed(constraint.vocab_size)) else [*run, ends[0]]
        runs.append(run)
    return runs
