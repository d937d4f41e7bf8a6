"""The strings that satisfy a schema, as an automaton over UTF-8, for formats that write strings without quotes."""

from __future__ import annotations

from typing import Final, NamedTuple

from logitloom.automata import Dfa, choice, difference, union
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from logitloom_plugins.json_schema.schema.formula import conjunction, parts_of
from logitloom_plugins.json_schema.schema.schema_document import JSONValue

__all__ = ["StringLanguage", "string_language"]

_WORDS: Final = ("null", "false", "true")


class StringLanguage(NamedTuple):
    """The strings that satisfy a schema.

    Attributes:
        automaton: reads them, and strings outside the bounds on the length; ``None`` if the bounds alone decide.
        least: the least number of characters.
        most: the largest number of characters; ``None`` for no bound.
    """

    automaton: Dfa | None
    least: int
    most: int | None


def string_language(schema: JSONValue, *, alone: bool = True) -> StringLanguage:
    """The strings that satisfy a schema; the automaton of the empty language if there are none.

    Args:
        schema: the schema.
        alone: whether the text is a string in any case. Otherwise it may also be the JSON text of another value that
            satisfies the schema; if that may be an array or an object, every text is allowed.

    Raises:
        UnsupportedSchema: if the schema is malformed, or has keywords that cannot be enforced.
        BudgetExceeded: if compiling it takes too many states or seconds.

    Example:
        >>> language = string_language({"type": "string", "pattern": "^a+$", "maxLength": 5})
        >>> language.automaton.fullmatch("aaaaaaa"), language.automaton.fullmatch("b"), language.most
        (True, False, 5)
        >>> both = string_language({"type": ["string", "null"], "pattern": "^a+$"}, alone=False).automaton
        >>> both.fullmatch("a"), both.fullmatch("null"), both.fullmatch("1")
        (True, True, False)
    """
    machine = compile_schema(schema)
    values, root = machine.values, machine.root
    strings = values.of_type(root, "string")
    parts = parts_of(strings[0]) if strings else (("any", frozenset[str]()),)
    others = {kind: values.of_type(root, kind) for kind in values.kinds(root) if kind != "string" and not alone}
    others = {kind: formulas for kind, formulas in others.items() if formulas}
    if others.keys() & {"array", "object"} or (others and not parts):
        return StringLanguage(None, 0, None)
    if others:
        language: Dfa = values.content((conjunction(parts),), plain=True).automaton
        if "number" in others:
            # A text that is a number is read as a number, not as a string.
            language = difference(language, values.number((True,)))
            language = union(language, values.number(others["number"]))
        words = choice([kind for kind in _WORDS if kind in others])
        return StringLanguage(union(language, words), 0, None)
    bounds = [part for part in parts if part[0] == "len"]
    rest = conjunction([part for part in parts if part[0] != "len"])
    automaton = None if rest is True else values.content((rest,), plain=True).automaton
    most = min([bound[2] for bound in bounds if bound[2] is not None], default=None)
    return StringLanguage(automaton, max([bound[1] for bound in bounds], default=0), most)
