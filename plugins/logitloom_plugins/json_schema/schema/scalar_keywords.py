"""The keywords of numbers and strings as formulas over atoms.

References:
    JSON Schema Validation, drafts 4 to 2020-12.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from logitloom_plugins.json_schema.schema.document import FORMATS, Node
from logitloom_plugins.json_schema.schema.formula import Formula
from logitloom_plugins.json_schema.schema.keywords import Keywords

__all__ = ["number_formulas", "string_formulas"]

#: Most characters of a format, where that is part of it.
_MOST_CHARACTERS: Final = {"hostname": 253}


def number_formulas(keywords: Keywords, node: Node) -> list[Formula]:
    """What a node demands of numbers, as parts of a conjunction over ``ge gt le lt mult``."""
    parts: list[Formula] = []
    for keyword, strict, atom in (("minimum", "exclusiveMinimum", "g"), ("maximum", "exclusiveMaximum", "l")):
        bound = keywords.number(node, keyword)
        is_flag = node.dialect.number == 4
        if bound is not None:
            parts.append((atom + ("t" if is_flag and node.schema.get(strict) is True else "e"), bound))
        bound = None if is_flag else keywords.number(node, strict)
        if bound is not None:
            parts.append((atom + "t", bound))
    factor = keywords.number(node, "multipleOf")
    if factor is not None:
        if factor <= 0:
            raise keywords.malformed(node, "multipleOf", "a number greater than 0")
        parts.append(("mult", Fraction(factor)))
    return parts


def string_formulas(keywords: Keywords, node: Node) -> list[Formula]:
    """What a node demands of strings, as parts of a conjunction over ``len pat fmt``."""
    schema = node.schema
    parts: list[Formula] = []
    least, most = keywords.count(node, "minLength"), keywords.count(node, "maxLength")
    if least or most is not None:
        parts.append(("len", least or 0, most))
    if "pattern" in schema:
        if not isinstance(schema["pattern"], str):
            raise keywords.malformed(node, "pattern", "a regular expression")
        if keywords.is_sound(node, "pattern", schema["pattern"]):
            parts.append(("pat", schema["pattern"]))
    name = schema.get("format")
    if isinstance(name, str) and name in _asserted(keywords, node) and keywords.is_sound(node, "format", name):
        parts.append(("fmt", name))
        if name in _MOST_CHARACTERS:
            parts.append(("len", 1, _MOST_CHARACTERS[name]))
    return parts


def _asserted(keywords: Keywords, node: Node) -> frozenset[str]:
    """The formats that are enforced in a node."""
    if keywords.formats == "auto":
        return node.dialect.asserted_formats
    return FORMATS if keywords.formats == "assert" else frozenset()
