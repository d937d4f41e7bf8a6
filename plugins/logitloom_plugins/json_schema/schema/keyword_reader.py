"""Reading the values of keywords, whatever they mean."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from logitloom.automata import Budget
from logitloom.errors import UnsupportedSchema
from logitloom_plugins.json_schema.schema.formula import Formula, substitute
from logitloom_plugins.json_schema.schema.references import Document, Node, escape_pointer

__all__ = ["KeywordReader", "StringLanguages", "exact"]


class StringLanguages(NamedTuple):
    """What the keywords of strings can be enforced with.

    Attributes:
        formats: formats that are regular languages.
        format_lengths: most characters of some of them.
        irregular_formats: other formats, and why they are not regular.
        pattern_problem: of a pattern why no automaton can be made of it, ``None`` if one can; asked with whether its
            counted repeats may be counted beside the automaton, and the budget.
    """

    formats: Collection[str]
    format_lengths: Mapping[str, int]
    irregular_formats: Mapping[str, str]
    pattern_problem: Callable[[str, bool, Budget | None], str | None]


def exact(value: Any) -> Decimal:
    """The number that a JSON text shows, without binary rounding."""
    return value if isinstance(value, Decimal) else Decimal(repr(value) if isinstance(value, float) else value)


class KeywordReader(ABC):
    """Reads the values of keywords; what a node means by all of its keywords is said by who derives from it.

    Args:
        document: the schema.
        strings: which formats and patterns can be enforced.
        formats: ``"assert"``, ``"annotate"`` or ``"auto"`` (as the draft says).
        additional_properties: whether objects with ``properties`` but no ``additionalProperties`` are open.
        repeatable: nodes whose ``uniqueItems`` is left out.

    Attributes:
        problems: keywords that cannot be enforced and are left out: pointers and names, and why.
    """

    def __init__(
        self,
        document: Document,
        strings: StringLanguages,
        *,
        formats: str = "auto",
        additional_properties: bool = True,
        repeatable: frozenset[int] = frozenset(),
    ) -> None:
        self.document = document
        self.strings = strings
        #: Held by whoever reads on: what is found out of a schema is remembered here.
        self.lock = threading.RLock()
        self.repeatable = repeatable
        #: Nodes with uniqueItems of which it depends on the others whether it can be enforced.
        self.unclear: list[int] = []
        self.formats = formats
        self.additional_properties = additional_properties
        self.problems: dict[tuple[str, str], str] = {}
        self._sound: set[str] = set()

    @abstractmethod
    def of(self, number: int, kind: str) -> Formula:
        """What a node demands of values of one type."""

    def of_nodes(self, formula: Formula, kind: str) -> Formula:
        """A formula over nodes as one over the atoms of a type."""
        return substitute(formula, lambda atom: self.of(atom[1], kind))

    def refuse(self, node: Node, keyword: str, reason: str) -> None:
        """Note that a keyword cannot be enforced."""
        self.problems.setdefault((node.pointer + "/" + escape_pointer(keyword), keyword), reason)

    def is_sound(self, node: Node, keyword: str, pattern: str) -> bool:
        """Whether an automaton can be made of a pattern; if not, that is noted."""
        if pattern not in self._sound:
            problem = self.strings.pattern_problem(pattern, keyword == "pattern", self.document.tracker.budget)
            if problem is not None:
                self.refuse(node, keyword, problem)
                return False
            self._sound.add(pattern)
        return True

    def pattern_properties(self, node: Node) -> dict[str, Any]:
        """The ``patternProperties`` of a node of which automata can be made."""
        table = self.table(node, "patternProperties")
        return {name: part for name, part in table.items() if self.is_sound(node, "patternProperties", name)}

    def table(self, node: Node, keyword: str) -> dict[str, Any]:
        """The value of a keyword that must be an object; empty without it."""
        table = node.schema.get(keyword, {})
        if not isinstance(table, dict):
            raise self.malformed(node, keyword, "an object")
        return table

    def malformed(self, node: Node, keyword: str, wanted: str) -> UnsupportedSchema:
        """The error for a keyword whose value is of the wrong kind."""
        return UnsupportedSchema(
            f"The keyword {keyword!r} at {node.pointer or '#'} has the value {node.schema[keyword]!r:.60}, and "
            f"{wanted} is expected. Correct the schema."
        )

    def constant(self, node: Node, value: Any, relative: str) -> int:
        """The number of a node that only one value satisfies."""
        return self.document.made(node, {"enum": [value]}, relative)

    def child(self, node: Node, schema: Any, relative: str) -> Formula:
        """A subschema as a formula over nodes."""
        if isinstance(schema, bool):
            return schema
        if schema == {}:
            return True
        return ("s", self.document.child(node, schema, relative))

    def _bound(self, node: Node, keyword: str) -> Decimal | None:
        value = node.schema.get(keyword)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise self.malformed(node, keyword, "a number")
        return exact(value)

    def count(self, node: Node, keyword: str) -> int | None:
        """The value of a keyword that must be a whole number, 0 or more; ``None`` without it."""
        value = self._bound(node, keyword)
        if value is None:
            return None
        if value != int(value) or value < 0:
            raise self.malformed(node, keyword, "an integer, 0 or more")
        return int(value)
