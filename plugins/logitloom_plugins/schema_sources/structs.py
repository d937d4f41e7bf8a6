"""Schemas of msgspec's types, narrowed to the texts that msgspec reads.

msgspec's schema of a ``datetime`` that may lack a zone allows any string, its schema of a ``dict`` says nothing about
keys that are not strings, and its schema of ``bytes`` limits their length only roughly. ``msgspec.inspect`` tells the
types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from logitloom_plugins.schema_sources.narrowing import DATE, TIME, ZONE, pattern_of_base64
from logitloom_plugins.schema_sources.number_patterns import names_of_numbers
from logitloom_plugins.schema_sources.regexes import narrow_pattern

__all__ = ["narrow_struct"]

#: Types of ``msgspec.inspect`` -> the format that describes their strings.
_FORMATS: Final[dict[str, str]] = {
    "DateType": "date", "DecimalType": "decimal", "TimeDeltaType": "duration", "UUIDType": "uuid"
}  # fmt: skip
_BYTES: Final = ("ByteArrayType", "BytesType", "MemoryViewType")
#: Keywords that msgspec gives the types above and those of :func:`_text`.
_REPLACED: Final = ("contentEncoding", "format", "maxLength", "minLength")
#: Bounds of numbers: their keywords, and msgspec's names.
_BOUNDS: Final = {
    "minimum": "ge", "exclusiveMinimum": "gt", "maximum": "le", "exclusiveMaximum": "lt", "multipleOf": "multiple_of"
}  # fmt: skip


def narrow_struct(schema: dict[str, Any], source: Any) -> None:
    """Narrow the schema that msgspec makes of a type, in place.

    Args:
        schema: from ``msgspec.json.schema(source)``.
        source: the type.
    """
    from msgspec.inspect import type_info

    _Narrowing(schema.get("$defs", {})).visit(type_info(source), schema)


class _Narrowing:
    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions, self._seen = definitions, set[int]()

    def visit(self, kind: Any, part: dict[str, Any]) -> None:
        """Narrow the schema of a type, and the schemas of the types that it holds."""
        kind, part = _bare(kind), self._followed(part)
        if id(part) in self._seen:
            return
        self._seen.add(id(part))
        narrow_pattern(part, of_rust=False)
        text = _text(kind)
        if text is not None:
            for keyword in _REPLACED:
                part.pop(keyword, None)
            part.update(text)
        for inner, below in self._below(kind, part):
            self.visit(inner, below)

    def _below(self, kind: Any, part: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The types that a type holds, each with its schema."""
        if hasattr(kind, "key_type"):
            names = _names(_bare(kind.key_type))
            if names is not None:
                part["propertyNames"] = names
            yield kind.value_type, part.get("additionalProperties", {})
        elif hasattr(kind, "item_type"):
            yield kind.item_type, part.get("items", {})
        elif hasattr(kind, "item_types"):
            yield from zip(kind.item_types, part.get("prefixItems", ()), strict=True)
        elif hasattr(kind, "fields"):
            listed = part.get("prefixItems", ())[-len(kind.fields) :] if kind.fields else ()
            for index, field in enumerate(kind.fields):
                yield field.type, part["properties"][field.encode_name] if "properties" in part else listed[index]
        elif hasattr(kind, "types"):
            options = [*self._options(part)]
            for each in map(_bare, kind.types):
                yield from ((each, option) for option in options if self._fits(each, self._followed(option)))

    def _options(self, part: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for option in part["anyOf"]:
            yield from self._options(option) if "anyOf" in option else (option,)

    def _followed(self, part: dict[str, Any]) -> dict[str, Any]:
        name = part.get("$ref", "").removeprefix("#/$defs/")
        return self._definitions.get(name, part) if name else part

    def _fits(self, kind: Any, option: dict[str, Any]) -> bool:
        """Whether an option of a union is the schema of a type: at most one has the type's JSON type and tag."""
        listed = hasattr(kind, "item_type") or hasattr(kind, "item_types") or getattr(kind, "array_like", False)
        listed = listed or type(kind).__name__ == "NamedTupleType"
        named = hasattr(kind, "key_type") or hasattr(kind, "fields")
        wanted = "array" if listed else "object" if named else "string" if _text(kind) is not None else None
        if wanted != option.get("type"):
            return False
        if getattr(kind, "tag_field", None) is None:
            return True
        tag = option["prefixItems"][0] if listed else option["properties"].get(kind.tag_field)
        return bool(tag == {"enum": [kind.tag]})


def _bare(kind: Any) -> Any:
    while type(kind).__name__ == "Metadata":
        kind = kind.type
    return kind


def _text(kind: Any) -> dict[str, Any] | None:
    """What a schema says of a type whose values are written as strings of a form."""
    name = type(kind).__name__
    if name in _FORMATS:
        return {"format": _FORMATS[name]}
    if name in ("DateTimeType", "TimeType"):
        zone = {True: ZONE, False: "", None: f"{ZONE}?"}[kind.tz]
        return {"pattern": f"^(?:{f'{DATE}T' if name == 'DateTimeType' else ''}{TIME}{zone})$"}
    if name in _BYTES:
        return {"pattern": pattern_of_base64(kind.min_length or 0, kind.max_length)}
    return None


def _names(kind: Any) -> dict[str, Any] | None:
    """The schema of the names that are read as keys of a type; ``None`` where msgspec's own schema is kept."""
    name = type(kind).__name__
    if name in ("EnumType", "LiteralType"):
        values = [member.value for member in kind.cls] if name == "EnumType" else kind.values
        return {
            "enum": [str(value) for value in values if isinstance(value, (int, str)) and not isinstance(value, bool)]
        }
    if name in ("IntType", "FloatType"):
        bounds = {keyword: getattr(kind, own) for keyword, own in _BOUNDS.items() if getattr(kind, own) is not None}
        return names_of_numbers({"type": "integer" if name == "IntType" else "number", **bounds})
    if name == "UnionType":
        parts = [_names(_bare(each)) for each in kind.types]
        return None if None in parts else {"anyOf": parts}
    return {"enum": []} if name in ("BoolType", "NoneType") else _text(kind)
