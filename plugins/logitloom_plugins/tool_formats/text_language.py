"""The texts of strings that are written without quotes: their lengths, their patterns, and what parsers misread."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final

from logitloom.automata import Budget, Dfa, compile_automaton, compile_pattern, complement, intersection
from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.folds.string_language import StringLanguage, string_language
from logitloom_plugins.tool_formats.tool_format import ToolFormat

__all__ = ["ANY_STRING", "language_of", "of_length", "restrictions"]

ANY_STRING: Final = StringLanguage(None, 0, None)
#: The most states of one automaton for all restrictions of a text.
_MOST_STATES: Final = 1 << 14


@lru_cache(maxsize=256)
def language_of(schema: str, alone: bool) -> StringLanguage:
    """The strings that satisfy a schema; one object for equal schemas, so that parameters share its constraint.

    Args:
        schema: the schema, as JSON text.
        alone: see :func:`~logitloom_plugins.json_schema.folds.string_language.string_language`.
    """
    return string_language(json.loads(schema), alone=alone)


def restrictions(form: ToolFormat, language: StringLanguage) -> list[Any]:
    """The processors that restrict a text to a language, and to what the parsers of a format read as a string.

    One automaton for all restrictions is used if it is small, because each of its states can be completed. With one
    automaton for the length and one for the borders, a prefix may have completions in each, but no common completion.
    """
    pattern = of_length(language.least, language.most, form.trimmed)
    automata = [_all_but(form.unlike)] if form.unlike else []
    automata += [language.automaton] if language.automaton is not None else []
    together = _together(language.least, language.most, form.trimmed, tuple(automata)) if automata else None
    if together is not None:
        return [("fsm", {"automaton": together})]
    return [("regex", {"pattern": pattern}), *[("fsm", {"automaton": automaton}) for automaton in automata]]


@lru_cache(maxsize=256)
def _together(least: int, most: int | None, trimmed: bool, automata: tuple[Dfa, ...]) -> Dfa | None:
    """The texts of some lengths that all automata accept; ``None`` if there are none, or if the automaton is large."""
    # The automaton of the length of trimmed texts is made of these two sooner than of one pattern.
    patterns = [of_length(least, most, False), *([of_length(0, None, True)] if trimmed else [])]
    whole = [compile_automaton(pattern) for pattern in patterns]
    tables = [automaton for automaton in whole if isinstance(automaton, Dfa)]
    if len(tables) < len(whole):
        return None
    try:
        found = intersection(*automata, *tables, budget=Budget(states=_MOST_STATES), minimal=False)
    except BudgetExceeded:
        return None
    return found if found.accepting.any() else None


def of_length(least: int, most: int | None, trimmed: bool) -> str:
    """The pattern of all texts of some lengths in characters. White space neither begins nor ends a trimmed text."""
    if not trimmed:
        return rf"[\s\S]{{{least},{'' if most is None else most}}}"
    if most is not None and most < 2:
        return rf"\S{{{least},{most}}}"
    between = rf"[\s\S]{{{max(least - 2, 0)},{'' if most is None else most - 2}}}\S"
    if least > 1:
        return rf"\S{between}"
    return rf"\S(?:{between})?" if least else rf"(?:\S(?:{between})?)?"


@lru_cache(maxsize=256)
def _all_but(pattern: str) -> Dfa:
    """All texts that do not match a pattern."""
    return complement(compile_pattern(pattern))
