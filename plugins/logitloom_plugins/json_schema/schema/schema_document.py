"""The subschemas of a document, by the keywords that hold them: the draft of each, and the targets of ``$ref``.

References are local: to resources of the document, anchors, and JSON pointers. Nothing is fetched.

References:
    JSON Schema, drafts 4, 6, 7, 2019-09 and 2020-12; https://json-schema.org/specification.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from logitloom.automata import BudgetTracker
from logitloom.errors import UnsupportedSchema

__all__ = [
    "FORMATS",
    "Dialect",
    "Document",
    "JSONValue",
    "SchemaNode",
    "asserting_only",
    "dialect_of",
    "escape_pointer",
    "subschemas",
]

_ONE: Final = (
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LIST: Final = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_MAP: Final = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")

#: A value of a JSON document. Each reader checks the type of the value that it reads, so ``Any``.
JSONValue = Any

#: If there are at least so many subschemas, a check finds out whether the schema contains itself.
_MANY_SUBSCHEMAS: Final = 4096
#: A schema without these keywords has no subschemas, no name to which others can refer, and no base of its own.
_PLACED: Final = frozenset(
    (*_ONE, *_LIST, *_MAP, "$schema", "id", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor")
)
#: A schema without these keywords has the draft and the base of the schema around it.
_OF_RESOURCES: Final = frozenset(("$schema", "id", "$id"))

#: For each dynamic anchor the outermost resource with this anchor, among the resources through which the node was
#: reached.
Scope = tuple[tuple[str, str], ...]


class Dialect(NamedTuple):
    """The differences between drafts, as far as validation is concerned.

    Attributes:
        name: ``draft4``, ``draft6``, ``draft7``, ``2019-09`` or ``2020-12``.
        number: for comparisons: 4, 6, 7, 8 (2019-09), 9 (2020-12).
        asserted_formats: the values of ``format`` that the draft takes as assertions.
    """

    name: str
    number: int
    asserted_formats: frozenset[str]

    @property
    def ref_hides_siblings(self) -> bool:
        """Whether everything beside ``$ref`` is ignored, as up to draft 7."""
        return self.number <= 7

    def asserted(self, formats: str) -> frozenset[str]:
        """The formats that are enforced with ``assert``, ``annotate`` or ``auto`` (as the draft says)."""
        return {"assert": FORMATS, "annotate": _NO_FORMATS}.get(formats, self.asserted_formats)


#: The formats that each draft defines; drafts 5 and 2020-12 define no new ones.
_FORMATS_4: Final = frozenset({"date-time", "email", "hostname", "ipv4", "ipv6", "uri"})
_FORMATS_6: Final = _FORMATS_4 | {"json-pointer", "uri-reference", "uri-template"}
_FORMATS_7: Final = _FORMATS_6 | {
    "date", "idn-email", "idn-hostname", "iri", "iri-reference", "regex", "relative-json-pointer", "time"
}  # fmt: skip
_NO_FORMATS: Final[frozenset[str]] = frozenset()
#: All formats of the specification.
FORMATS: Final = _FORMATS_7 | {"duration", "uuid"}

_LATEST: Final = Dialect("2020-12", 9, frozenset())
#: The dialect of a schema that names no draft: the latest draft, with formats enforced.
_UNNAMED: Final = Dialect("2020-12", 9, FORMATS)
#: By the URI of the meta-schema without scheme and fragment.
_DIALECTS: Final[dict[str, Dialect]] = {
    "json-schema.org/draft-04/schema": Dialect("draft4", 4, _FORMATS_4),
    "json-schema.org/draft-04/hyper-schema": Dialect("draft4", 4, _FORMATS_4),
    "json-schema.org/draft-06/schema": Dialect("draft6", 6, _FORMATS_6),
    "json-schema.org/draft-07/schema": Dialect("draft7", 7, _FORMATS_7),
    "json-schema.org/draft/2019-09/schema": Dialect("2019-09", 8, frozenset()),
    "json-schema.org/draft/2020-12/schema": _LATEST,
    "json-schema.org/schema": _LATEST,
}


def dialect_of(schema: JSONValue, inherited: Dialect | None, pointer: str) -> Dialect:
    """The draft that ``$schema`` names, or the inherited one.

    Raises:
        UnsupportedSchema: if it names a meta-schema that is none of the drafts 4 to 2020-12.

    Example:
        >>> dialect_of({"$schema": "http://json-schema.org/draft-07/schema#"}, None, "").name
        'draft7'
    """
    name = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(name, str):
        return inherited if inherited is not None else _UNNAMED
    found = _DIALECTS.get(name.removesuffix("#").removeprefix("http://").removeprefix("https://"))
    if found is None:
        raise UnsupportedSchema(
            f"The schema at #{pointer} names the meta-schema {name!r:.100}, whose keywords are not known here. "
            f"Known are the drafts 4, 6, 7, 2019-09 and 2020-12; remove $schema or name one of them."
        )
    return found


class SchemaNode(NamedTuple):
    """A subschema at its place in the document: the schema, its base URI, its draft, and its JSON pointer.

    ``scope`` decides the meaning of dynamic references here; it is empty where a document has none.
    """

    schema: JSONValue
    base: str
    dialect: Dialect
    pointer: str
    scope: Scope = ()

    def below(self, schema: JSONValue, relative: str) -> SchemaNode:
        """The node of a subschema, or of a list or table of subschemas, at a relative JSON pointer."""
        pointer = self.pointer + relative
        if not isinstance(schema, dict):
            return self._replace(schema=schema, pointer=pointer)
        if _OF_RESOURCES.isdisjoint(schema):
            return SchemaNode(schema, self.base, self.dialect, pointer, self.scope)
        dialect, base = dialect_of(schema, self.dialect, pointer), self.base
        # A schema of draft 4 inside one of a later draft is no resource, because there "id" identifies nothing.
        own = schema.get("id" if self.dialect.number == dialect.number == 4 else "$id")
        if isinstance(own, str) and not (dialect.ref_hides_siblings and "$ref" in schema):
            base = urljoin(base, urldefrag(own)[0])
        return SchemaNode(schema, base, dialect, pointer, self.scope)


def escape_pointer(part: str) -> str:
    """A property name as it stands in a JSON pointer."""
    return part.replace("~", "~0").replace("/", "~1")


def subschemas(schema: dict[str, JSONValue]) -> Iterator[tuple[str, JSONValue]]:
    """The subschemas directly below a schema, each with its relative JSON pointer."""
    for keyword in _ONE:
        if keyword in schema and isinstance(schema[keyword], (dict, bool)):
            yield f"/{keyword}", schema[keyword]
    for keyword in _LIST:
        if keyword in schema and isinstance(schema[keyword], list):
            for i, part in enumerate(schema[keyword]):
                yield f"/{keyword}/{i}", part
    for keyword in _MAP:
        if keyword in schema and isinstance(schema[keyword], dict):
            for name, part in schema[keyword].items():
                if isinstance(part, (dict, bool)):
                    yield f"/{keyword}/{escape_pointer(name)}", part


def asserting_only(schema: JSONValue, formats: str) -> JSONValue:
    """A copy of a schema without the ``format`` of subschemas in which it is an annotation.

    Args:
        schema: a JSON value.
        formats: ``assert``, ``annotate``, or ``auto`` (as the draft of each subschema says).

    Example:
        >>> asserting_only({"$schema": "http://json-schema.org/draft-04/schema#", "format": "date"}, "auto")
        {'$schema': 'http://json-schema.org/draft-04/schema#'}
    """
    copied = copy.deepcopy(schema)
    pending: list[tuple[JSONValue, Dialect | None]] = [(copied, None)]
    for part, around in pending:
        if isinstance(part, dict):
            dialect = dialect_of(part, around, "")
            if isinstance(part.get("format"), str) and part["format"] not in dialect.asserted(formats):
                del part["format"]
            pending += [(below, dialect) for _, below in subschemas(part)]
    return copied


def _check_finite(root: SchemaNode) -> None:
    """Raise if a schema, a Python object, is part of itself."""
    #: The schemas around the current schema, each with its pointer and an iterator over its remaining parts.
    around: list[tuple[JSONValue, str, Iterator[tuple[str, JSONValue]]]] = []
    opened, finite = set[int](), set[int]()
    below: tuple[str, JSONValue] | None = (root.pointer, root.schema)
    while below is not None or around:
        if below is None:
            finite.add(id(around[-1][0]))
            opened.discard(id(around.pop()[0]))
        else:
            pointer, schema = below
            if id(schema) in opened:
                raise UnsupportedSchema(
                    f"The schema at #{pointer} contains itself: it is the same object as a schema around it, so it has "
                    f"no JSON text. Write a reference in its place, such as {{'$ref': '#'}}."
                )
            if isinstance(schema, dict) and id(schema) not in finite:
                opened.add(id(schema))
                around.append((schema, pointer, subschemas(schema)))
        relative, part = next(around[-1][2], ("", None)) if around else ("", None)
        below = (around[-1][1] + relative, part) if relative else None


class Document:
    """A schema document: its nodes by number, its references resolved.

    Args:
        schema: the root schema.
        tracker: the budget for reading the schema.

    Raises:
        UnsupportedSchema: if the schema, or a part of it that can be reached, is neither an object nor a boolean.
    """

    def __init__(self, schema: JSONValue, tracker: BudgetTracker) -> None:
        self.tracker = tracker
        self.nodes: list[SchemaNode] = []
        self._numbers: dict[tuple[int, str, Scope], int] = {}
        #: Schemas that are not part of the document, kept alive so that no other schema gets the same ``id``.
        self._made: list[JSONValue] = []
        self._resolved: dict[tuple[str, str, Scope], int] = {}
        self._anchors: dict[tuple[str, str], SchemaNode] = {}
        self._dynamic: dict[str, list[SchemaNode]] = {}
        root = SchemaNode(None, "", dialect_of(schema, None, ""), "").below(schema, "")
        self._resources = {"": root}
        self._index(root)
        self.root = self._entered((), root)

    # --- nodes -------------------------------------------------------------------------------------------------

    def number(self, node: SchemaNode) -> int:
        """The number of a node; equal for one schema object below one base."""
        if not isinstance(node.schema, (dict, bool)):
            raise UnsupportedSchema(
                f"The schema at #{node.pointer} is {node.schema!r:.60}, but a schema is an object or a boolean."
            )
        key = (id(node.schema), node.base, node.scope) if isinstance(node.schema, dict) else (int(node.schema), "", ())
        found = self._numbers.get(key)
        if found is None:
            found = len(self._numbers)
            del self.nodes[found:]  # left by an interruption
            self.nodes.append(node)
            self._numbers[key] = found
            if len(self.nodes) % 64 == 0:
                self.tracker.check_states(len(self.nodes), "subschemas")
        return found

    def child(self, parent: SchemaNode, schema: JSONValue, relative: str) -> int:
        """The number of a subschema of a node."""
        node = parent.below(schema, relative)
        return self.number(node) if node.base == parent.base else self._entered(parent.scope, node)

    def meant(self, number: int) -> int:
        """The node that a node without any keyword but ``$ref`` refers to; of other nodes the number itself."""
        seen = set[int]()
        while number not in seen:  # in a circle, which has no meaning, any node will do
            node = self.nodes[number]
            if (
                not isinstance(node.schema, dict)
                or len(node.schema) != 1
                or not isinstance(node.schema.get("$ref"), str)
            ):
                break
            seen.add(number)
            number = self.references(node)[0]
        return number

    def made(self, parent: SchemaNode, schema: JSONValue, relative: str) -> int:
        """The number of a schema that stands for part of another one, and is in no document itself."""
        self._made.append(schema)
        return self.number(parent._replace(schema=schema, pointer=parent.pointer + relative))

    # --- resources ---------------------------------------------------------------------------------------------

    def _index(self, root: SchemaNode) -> None:
        """Note the resources and anchors of the document."""
        stack = [root]
        count = 0
        while stack:
            node = stack.pop()
            count += 1
            if count % 256 == 0:
                self.tracker.check_time()
            if count == _MANY_SUBSCHEMAS:
                _check_finite(root)
            schema, base, dialect = node.schema, node.base, node.dialect
            if not isinstance(schema, dict):
                continue
            # The root of a resource is visited before the schemas within the resource.
            self._resources.setdefault(base, node)
            legacy = schema.get("id" if dialect.number == 4 else "$id")
            if dialect.number == 4 and isinstance(legacy, str):
                # The name is noted even if the base stays the same, because references to it mean this schema.
                self._resources.setdefault(urljoin(base, urldefrag(legacy)[0]), node)
            names: list[JSONValue] = [urldefrag(legacy)[1]] if dialect.number <= 7 and isinstance(legacy, str) else []
            names += [schema.get("$anchor")] if dialect.number >= 8 else []
            dynamic = schema.get("$dynamicAnchor") if dialect.number >= 9 else None
            for name in (*names, dynamic):
                if name and isinstance(name, str):
                    self._anchors.setdefault((base, name), node)
            if dialect.number == 8 and schema.get("$recursiveAnchor") is True:
                dynamic = "$recursiveAnchor"
            if isinstance(dynamic, str):
                self._dynamic.setdefault(dynamic, []).append(node)
            stack += [
                node.below(part, relative)
                for relative, part in subschemas(schema)
                if isinstance(part, dict) and not _PLACED.isdisjoint(part)
            ]

    def references(self, node: SchemaNode) -> list[int]:
        """The numbers of the nodes that ``$ref``, ``$dynamicRef`` and ``$recursiveRef`` of a node point to.

        Raises:
            UnsupportedSchema: if one is remote, or points to nothing.
        """
        found = []
        if isinstance(node.schema.get("$ref"), str):
            found.append(self._resolve(node, "$ref", node.schema["$ref"]))
        if node.dialect.number >= 8 and isinstance(node.schema.get("$dynamicRef"), str):
            reference = node.schema["$dynamicRef"]
            found.append(self._resolve_dynamic(node, "$dynamicRef", reference, urldefrag(reference)[1]))
        if node.dialect.number >= 8 and isinstance(node.schema.get("$recursiveRef"), str):
            found.append(self._resolve_dynamic(node, "$recursiveRef", "#", "$recursiveAnchor"))
        return found

    def _resolve(self, node: SchemaNode, keyword: str, reference: str) -> int:
        key = (reference, node.base, node.scope)
        known = self._resolved.get(key)
        if known is None:
            target = self._target(node, f"The reference {reference!r} at #{node.pointer}/{keyword}", reference)
            known = self._resolved[key] = self._entered(node.scope, target)
        return known

    def _target(self, node: SchemaNode, subject: str, reference: str) -> SchemaNode:
        """The node that a reference points to."""
        uri, fragment = urldefrag(urljoin(node.base, reference))
        if reference[:1] in ("", "#"):
            uri, fragment = node.base, reference[1:]
        found = self._resources.get(uri)
        if found is None:
            name = {"id" if node.dialect.number == 4 else "$id": uri}
            raise UnsupportedSchema(
                f"{subject} points outside the schema, and nothing is fetched. Put the schema that it names under "
                f"$defs, with {name}."
            )
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get((uri, unquote(fragment)))
            if found is None:
                raise UnsupportedSchema(f"{subject} names an anchor that does not exist.")
            return found
        for part in unquote(fragment).split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            schema = found.schema
            if isinstance(schema, dict) and part in schema:
                found = found.below(schema[part], "/" + escape_pointer(part))
            elif isinstance(schema, list) and part.isdigit() and int(part) < len(schema):
                found = found.below(schema[int(part)], "/" + part)
            else:
                raise UnsupportedSchema(f"{subject} points to nothing: there is no {part!r}.")
        return found

    def _entered(self, scope: Scope, node: SchemaNode) -> int:
        """The number of a node whose resource is entered from a scope; anchors of the scope hide those of the node."""
        known = dict(scope)
        for anchor, places in self._dynamic.items():
            if anchor not in known and any(node.base == other.base for other in places):
                known[anchor] = node.base
        return self.number(node._replace(scope=tuple(sorted(known.items()))))

    def _resolve_dynamic(self, node: SchemaNode, keyword: str, reference: str, anchor: str) -> int:
        number = self._resolve(node, keyword, reference)
        first = self.nodes[number]
        mark = first.schema.get(keyword.replace("Ref", "Anchor")) if isinstance(first.schema, dict) else None
        if mark is not True and mark != anchor:
            return number
        outermost = {**dict(first.scope), **dict(node.scope)}.get(anchor)
        for target in self._dynamic.get(anchor, ()):
            if target.base == outermost:
                return self._entered(node.scope, target)
        return number
