"""Patterns of Python's types, in the syntax of Rust's ``regex`` or of ``re``, as patterns of JSON Schema.

A JSON Schema reads a pattern as ECMA-262 does, in which ``\\A`` is no anchor, ``\\s`` has other characters, and
``\\w`` has letters of ASCII alone, so that ``\\W`` has more characters than in the other syntaxes. In a pattern that
is written here a class has the characters that it has in all of the syntaxes.

References:
    ECMA-262, "ECMAScript Language Specification", section 22.2, Patterns.
    The Rust Project, documentation of the crate ``regex``, "Syntax".
"""

from __future__ import annotations

import re
from typing import Any, Final

from logitloom.errors import UnsupportedPattern

__all__ = ["narrow_pattern"]

#: A set, in which a set with a name may stand, an escape, or another character.
_TOKEN: Final = re.compile(
    r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|\\x\{[0-9a-fA-F]+\}|\\U[0-9a-fA-F]{8}|\\.|.", re.DOTALL
)
_IN_SET: Final = re.compile(r"\[:(\^?\w+):\]|\\x\{[0-9a-fA-F]+\}|\\U[0-9a-fA-F]{8}|\\.", re.DOTALL)
_ANCHORS: Final = {r"\A": "^", r"\z": "$", r"\Z": "$"}
_NAMED: Final = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-\/:-@\[-`{-~", "space": r"\t-\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
#: A set in which Rust reads an operation on two sets, another set, or all characters outside a set with a name.
_OF_SETS: Final = re.compile(r"^\[.*(?:&&|--|~~|(?<!\\)\[(?!:\w))", re.DOTALL)
_SPACE: Final = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
#: Characters that are whitespace in any of the syntaxes, and all others.
_ANY_SPACE: Final = rf"{_SPACE}\x1c-\x1f\x85\ufeff"
_NO_SPACE: Final = (
    r"\x00-\x08\x0e-\x1b!-\x84\x86-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff"
    r"\u3001-\ufefe\uff00-\u{10ffff}"
)
#: Letters and what stands in words, of all scripts: at least the characters of ``\w`` in any of the syntaxes.
_WORD: Final = r"\w\p{L}\p{M}\p{N}\p{Pc}\u200c\u200d\u24b6-\u24e9\u{1f130}-\u{1f189}"
#: The characters of each class: outside of sets and in sets, characters that the class has in all syntaxes; in negated
#: sets, the characters that it has in any of the syntaxes.
_ONE: Final = {r"\s": f"[{_SPACE}]", r"\S": f"[{_NO_SPACE}]", r"\W": f"[^{_WORD}]", r"\D": r"\P{Nd}"}
_ONE_OF: Final = {r"\s": _SPACE, r"\S": _NO_SPACE, r"\W": r"\x00-\/:-@\[-^`{-\x7f", r"\D": r"\P{Nd}"}
_NONE_OF: Final = {r"\s": _ANY_SPACE, r"\S": r"\S\ufeff", r"\w": _WORD, r"\d": r"\p{Nd}"}
#: A border of a word is one in all syntaxes in a text of ASCII.
_ASCII: Final = r"^[\x00-\x7f]*$"


def narrow_pattern(schema: dict[str, Any], of_rust: bool) -> None:
    """Write the pattern of a subschema as ECMA-262 reads it, in place; texts on which the syntaxes differ do not match.

    Args:
        schema: of strings; nothing is done to one without a pattern.
        of_rust: whether the pattern has the syntax of Rust's ``regex``; if not, that of Python's ``re``.

    Raises:
        UnsupportedPattern: if the pattern has operations on sets, which ECMA-262 does not have.

    Example:
        >>> schema = {"pattern": r"\\A[[:digit:]]+\\z"}
        >>> narrow_pattern(schema, of_rust=True)
        >>> schema
        {'pattern': '^[0-9]+$'}
    """
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return

    def written(token: re.Match[str]) -> str:
        text = token[0]
        if text[0] != "[":
            return _ANCHORS.get(text) or _ONE.get(text) or _escape(text)
        if of_rust and _OF_SETS.search(text):
            raise UnsupportedPattern(
                f"The pattern {pattern!r:.100} of a class has operations on sets in {text!r:.60}, which patterns of "
                f"JSON Schemas do not have. Write the set as a list of its characters and ranges."
            )
        classes = _NONE_OF if text[1] == "^" else _ONE_OF
        return _IN_SET.sub(lambda part: classes.get(part[0]) or _escape(part[0], part[1] if of_rust else None), text)

    schema["pattern"] = _TOKEN.sub(written, pattern)
    if re.search(r"\\[bB]", re.sub(r"\[.*?\]", "", pattern)) and schema["pattern"].isascii():
        schema["allOf"] = [*schema.get("allOf", []), {"pattern": _ASCII}]


def _escape(text: str, name: str | None = None) -> str:
    """An escape, or a named set within a set, as ECMA-262 has it."""
    if name is not None:
        return _NAMED.get(name, text)
    if text[:2] in (r"\U", r"\x") and len(text) > 2:
        return f"\\u{{{text[2:].strip('{}').lstrip('0') or '0'}}}"
    return r"\x07" if text == r"\a" else text
