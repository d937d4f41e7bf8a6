"""The subschemas of a document, and what ``$ref`` means in it: local resources, anchors and JSON pointers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from logitloom.automata import BudgetTracker
from logitloom.errors import UnsupportedSchema
from logitloom_plugins.json_schema.schema.dialects import Dialect, dialect_of

__all__ = ["Document", "Node", "applicators", "escape_pointer"]

_ONE: Final = (
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LIST: Final = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_MAP: Final = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")


#: For each dynamic anchor the outermost resource on the way here that has it.
Scope = tuple[tuple[str, str], ...]


class Node(NamedTuple):
    """One subschema in its place: the schema, the URI it is resolved against, its draft, its JSON pointer.

    ``scope`` says what dynamic references mean here; it is empty where a document has none.
    """

    schema: Any
    base: str
    dialect: Dialect
    pointer: str
    scope: Scope = ()


def escape_pointer(part: str) -> str:
    """A property name as it stands in a JSON pointer."""
    return part.replace("~", "~0").replace("/", "~1")


def applicators(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The subschemas directly below a schema, each with its relative JSON pointer."""
    for keyword in _ONE:
        value = schema.get(keyword)
        if isinstance(value, (dict, bool)):
            yield f"/{keyword}", value
    for keyword in _LIST:
        value = schema.get(keyword)
        if isinstance(value, list):
            for i, part in enumerate(value):
                yield f"/{keyword}/{i}", part
    for keyword in _MAP:
        value = schema.get(keyword)
        if isinstance(value, dict):
            for name, part in value.items():
                if isinstance(part, (dict, bool)):
                    yield f"/{keyword}/{escape_pointer(name)}", part


class Document:
    """A schema document: its nodes by number, its references resolved.

    Args:
        schema: the root schema.
        tracker: the budget that reading it may spend.

    Raises:
        UnsupportedSchema: if the schema, or a part of it that can be reached, is neither an object nor a boolean.
    """

    def __init__(self, schema: Any, tracker: BudgetTracker) -> None:
        self.tracker = tracker
        self.nodes: list[Node] = []
        self._numbers: dict[tuple[int, str, Scope], int] = {}
        self._kept: list[Any] = []
        self._resolved: dict[tuple[str, str, Scope], int] = {}
        self._resources: dict[str, tuple[Any, Dialect, str]] = {}
        self._anchors: dict[tuple[str, str], tuple[Any, Dialect, str]] = {}
        self.dynamic: dict[str, list[tuple[str, Any, Dialect, str]]] = {}
        dialect = dialect_of(schema, None, "")
        self._resources[""] = (schema, dialect, "")
        self._index(schema, "", dialect, "")
        root = self._resources[""]
        base = self._base_of(schema, "", dialect)
        self._resources.setdefault(base, root)
        self.root = self.number(Node(schema, base, dialect, "", self._entered((), base)))

    # --- nodes -------------------------------------------------------------------------------------------------

    def number(self, node: Node) -> int:
        """The number of a node; equal for one schema object below one base."""
        if not isinstance(node.schema, (dict, bool)):
            raise UnsupportedSchema(
                f"The schema at {node.pointer or '#'} is {node.schema!r:.60}, but a schema is an object or a boolean."
            )
        key = (id(node.schema), node.base, node.scope) if isinstance(node.schema, dict) else (int(node.schema), "", ())
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.nodes)
            self.nodes.append(node)
            if len(self.nodes) % 64 == 0:
                self.tracker.check_states(len(self.nodes), "subschemas")
        return found

    def child(self, parent: Node, schema: Any, relative: str) -> int:
        """The number of a subschema of a node."""
        pointer = parent.pointer + relative
        dialect, base = parent.dialect, parent.base
        if isinstance(schema, dict) and ("$id" in schema or "id" in schema or "$schema" in schema):
            dialect = dialect_of(schema, dialect, pointer)
            base = self._base_of(schema, base, dialect)
        scope = parent.scope if base == parent.base else self._entered(parent.scope, base)
        return self.number(Node(schema, base, dialect, pointer, scope))

    def made(self, parent: Node, schema: Any, relative: str) -> int:
        """The number of a schema that stands for part of another one, and is in no document itself."""
        self._kept.append(schema)
        return self.number(Node(schema, parent.base, parent.dialect, parent.pointer + relative, parent.scope))

    # --- resources ---------------------------------------------------------------------------------------------

    def _base_of(self, schema: Any, base: str, dialect: Dialect) -> str:
        if not isinstance(schema, dict):
            return base
        own = schema.get(dialect.id_keyword)
        if not isinstance(own, str) or (dialect.ref_hides_siblings and "$ref" in schema):
            return base
        own = urldefrag(own)[0]
        return urljoin(base, own) if own else base

    def _index(self, schema: Any, base: str, dialect: Dialect, pointer: str) -> None:
        stack = [(schema, base, dialect, pointer)]
        count = 0
        while stack:
            schema, base, dialect, pointer = stack.pop()
            count += 1
            if count % 256 == 0:
                self.tracker.check_time()
            if not isinstance(schema, dict):
                continue
            dialect = dialect_of(schema, dialect, pointer)
            own = self._base_of(schema, base, dialect)
            if own != base:
                self._resources.setdefault(own, (schema, dialect, pointer))
                base = own
            here = (schema, dialect, pointer)
            legacy = schema.get(dialect.id_keyword)
            if dialect.number <= 7 and isinstance(legacy, str) and urldefrag(legacy)[1]:
                self._anchors.setdefault((base, urldefrag(legacy)[1]), here)
            if dialect.number >= 8 and isinstance(schema.get("$anchor"), str):
                self._anchors.setdefault((base, schema["$anchor"]), here)
            if dialect.number >= 9 and isinstance(schema.get("$dynamicAnchor"), str):
                self._anchors.setdefault((base, schema["$dynamicAnchor"]), here)
                self.dynamic.setdefault(schema["$dynamicAnchor"], []).append((base, schema, dialect, pointer))
            if dialect.number == 8 and schema.get("$recursiveAnchor") is True:
                self.dynamic.setdefault("$recursiveAnchor", []).append((base, schema, dialect, pointer))
            for relative, part in applicators(schema):
                stack.append((part, base, dialect, pointer + relative))

    def resolve(self, node: Node, reference: str, keyword: str = "$ref") -> int:
        """The number of the node that a reference points to.

        Raises:
            UnsupportedSchema: if it is remote, or points to nothing.
        """
        key = (reference, node.base, node.scope)
        known = self._resolved.get(key)
        if known is None:
            known = self._resolved[key] = self._resolve(node, reference, keyword)
        return known

    def _resolve(self, node: Node, reference: str, keyword: str) -> int:
        where = f"{node.pointer or '#'}/{keyword}"
        if reference.startswith("#"):
            target, fragment = node.base, reference[1:]
        else:
            target, fragment = urldefrag(urljoin(node.base, reference) if reference else node.base)
        found = self._resources.get(target)
        if found is None:
            raise UnsupportedSchema(
                f"The reference {reference!r} at {where} points outside the schema, and nothing is fetched. Put the "
                f"schema it names under $defs with that $id."
            )
        schema, dialect, pointer = found
        if not fragment:
            return self._target(node, schema, target, dialect, pointer)
        if not fragment.startswith("/"):
            anchored = self._anchors.get((target, unquote(fragment)))
            if anchored is None:
                raise UnsupportedSchema(f"The reference {reference!r} at {where} names an anchor that does not exist.")
            schema, dialect, pointer = anchored
            return self._target(node, schema, target, dialect, pointer)
        base = target
        for part in unquote(fragment)[1:].split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(schema, dict) and part in schema:
                schema = schema[part]
            elif isinstance(schema, list) and part.isdigit() and int(part) < len(schema):
                schema = schema[int(part)]
            else:
                raise UnsupportedSchema(
                    f"The reference {reference!r} at {where} points to nothing: there is no {part!r}."
                )
            pointer += "/" + escape_pointer(part)
            if isinstance(schema, dict):
                dialect = dialect_of(schema, dialect, pointer)
                base = self._base_of(schema, base, dialect)
        return self._target(node, schema, base, dialect, pointer)

    def _target(self, node: Node, schema: Any, base: str, dialect: Dialect, pointer: str) -> int:
        return self.number(Node(schema, base, dialect, pointer, self._entered(node.scope, base)))

    def _entered(self, scope: Scope, base: str) -> Scope:
        """The scope after entering a resource: what is further out comes first."""
        if not self.dynamic:
            return ()
        known = dict(scope)
        for anchor, places in self.dynamic.items():
            if anchor not in known and any(base == other for other, _, _, _ in places):
                known[anchor] = base
        return tuple(sorted(known.items()))

    def resolve_dynamic(self, node: Node, keyword: str) -> int:
        """The number of the node that ``$dynamicRef`` or ``$recursiveRef`` points to at a node."""
        recursive = keyword == "$recursiveRef"
        reference = "#" if recursive else node.schema[keyword]
        anchor = "$recursiveAnchor" if recursive else urldefrag(reference)[1]
        number = self.resolve(node, reference, keyword)
        first = self.nodes[number]
        marked = isinstance(first.schema, dict) and (
            first.schema.get("$recursiveAnchor") is True if recursive else first.schema.get("$dynamicAnchor") == anchor
        )
        if not marked:
            return number
        outermost = dict(first.scope).get(anchor)
        if node.scope:
            outermost = dict(node.scope).get(anchor, outermost)
        for base, schema, dialect, pointer in self.dynamic.get(anchor, ()):
            if base == outermost:
                return self._target(node, schema, base, dialect, pointer)
        return number
