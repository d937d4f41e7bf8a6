"""The forms in which a schema can be given: JSON values, text, paths, and Python types."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
from collections import Counter
from enum import Enum
from typing import Any, Final, NotRequired, Required, get_args, get_origin, get_type_hints, is_typeddict

from logitloom.display.warning import warn
from logitloom.errors import OptionError
from logitloom.host.loading import text_or_file
from logitloom_plugins.schema_sources.inputs import closed, every_subschema, json_values, unwrapped
from logitloom_plugins.schema_sources.narrowing import finite_numbers, pydantic_generator
from logitloom_plugins.schema_sources.structs import narrow_struct

__all__ = ["is_plain", "plain_schema", "schema_of"]

_TEXT: Final = "The text given as a schema"
_METHODS: Final = ("model_json_schema", "json_schema")
_REMEDY: Final = "Give a path to a JSON file, or the JSON text itself."


def schema_of(source: Any) -> Any:
    """The JSON Schema that something stands for.

    Args:
        source: ``None`` (any JSON value), a schema as a dict or bool, its JSON text, a path to a file with it, a
            pydantic model or ``TypeAdapter``, a dataclass, a ``TypedDict``, an ``Enum``, a class of msgspec or attrs,
            or another type that pydantic knows. A dict, text or file may also be an OpenAI ``response_format``
            (see :func:`~logitloom_plugins.schema_sources.inputs.unwrapped`). Objects of a class have no members
            beside its own, unless the class allows them.

    Raises:
        OptionError: if it is none of these, or a text or file is no JSON.
        UnsupportedSchema: if a ``response_format`` is strict, and the schema breaks a rule of that mode; or if a schema
            holds something that is no value of JSON.

    Example:
        >>> schema_of('{"type": "integer"}')
        {'type': 'integer'}
    """
    if source is None:
        return True
    is_text = isinstance(source, (str, os.PathLike))
    if is_text:
        text, _ = text_or_file(
            source, "schema", is_text=lambda text: text.lstrip()[:1] in ("{", "t", "f"), remedy=_REMEDY
        )
        what = f"The file {os.fspath(source)!r:.100}" if text is not source else _TEXT
        source = _parsed(text, what)
        if not isinstance(source, (dict, bool)):
            kind = {list: "array", str: "string", type(None): "null"}.get(type(source), "number")
            raise OptionError(f"{what} holds a JSON {kind}, but a schema is an object or a boolean. Correct it.")
    if isinstance(source, dict):
        found = unwrapped(source, schema_of)
        return found if is_text or not isinstance(found, dict) else json_values(found)
    if isinstance(source, bool):
        return source
    if isinstance(source, type) and issubclass(source, Enum):
        return _enum(source)
    try:
        return json_values(closed(_of_class(source)))
    except Exception as error:
        if "PydanticUserError" not in (kind.__name__ for kind in type(error).__mro__):
            raise
        raise _unreadable(source, getattr(error, "message", str(error))) from error


def _of_class(source: Any) -> Any:
    for name in _METHODS:
        make = getattr(source, name, None)
        if callable(make):
            # A method that is not pydantic's, or that overrides pydantic's, makes its schema without a generator.
            takes_generator = "schema_generator" in inspect.signature(make).parameters
            return make(schema_generator=pydantic_generator()) if takes_generator else make()
    if getattr(source, "__name__", None) in _METHODS:
        raise OptionError(
            f"A schema was given as a method ({source!r:.80}), not as what it returns. Give the class itself, or call "
            f"the method."
        )
    return _of_msgspec(source) if _is_of_msgspec(source) else _of_type(source)


def _is_of_msgspec(source: Any) -> bool:
    """Whether a type is a class of msgspec or attrs, or has one among its arguments, as ``list[Class]`` does."""
    held = hasattr(source, "__struct_fields__") or hasattr(source, "__attrs_attrs__")
    return held or any(map(_is_of_msgspec, get_args(source)))


def plain_schema(source: Any) -> Any:
    """A source of :func:`schema_of` as tables, lists, texts and numbers: itself, or the JSON text of its schema.

    Example:
        >>> plain_schema({"const": None}), plain_schema({"const": 1})
        ('{"const": null}', {'const': 1})
    """
    if source is None or isinstance(source, os.PathLike) or is_plain(source):
        return source
    return json.dumps(schema_of(source))


def is_plain(value: Any) -> bool:
    """Whether a value consists of tables, lists, texts and numbers, as documents of chains hold them."""
    if isinstance(value, dict):
        return all(is_plain(part) for part in value.values())
    if isinstance(value, (list, tuple)):
        return all(is_plain(part) for part in value)
    return isinstance(value, (str, bool, int, float))


def _parsed(text: str, what: str) -> Any:
    repeated: list[str] = []
    try:
        found = json.loads(
            text,
            parse_constant=functools.partial(_refuse_constant, what),
            object_pairs_hook=functools.partial(_object, repeated),
        )
    except json.JSONDecodeError as error:
        raise OptionError(
            f"{what} is no JSON: {error.msg} in line {error.lineno}, column {error.colno}. Correct it."
        ) from error
    except RecursionError as error:
        raise OptionError(f"{what} is nested too deeply to be read. Nest less.") from error
    except ValueError as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"{what} has an integer of thousands of digits. Write it shorter.") from error
    if repeated:
        warn(
            f"{what} has the key {repeated[0]!r:.60} more than once in one object, and the last one counts. Remove the "
            f"others.",
        )
    return found


def _object(repeated: list[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; a key that is repeated in the object is added to ``repeated``."""
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated.append(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return found


def _refuse_constant(what: str, name: str) -> Any:
    raise OptionError(f"{what} is no JSON: it has {name}, which is no number of JSON. Correct it.")


def _enum(source: type[Enum]) -> Any:
    values = [member.value for member in source]
    if not all(value is None or isinstance(value, (str, int, float, bool)) for value in values):
        raise OptionError(
            f"The enum {source.__name__} has values that are no JSON scalars, so they cannot be written. Give them "
            f"texts or numbers as values."
        )
    return {"title": source.__name__, "enum": values}


def _of_msgspec(source: Any) -> Any:
    """The schema of a type that msgspec knows: its structs, classes of attrs, dataclasses and TypedDicts."""
    try:
        import msgspec
    except ImportError as error:
        raise OptionError(
            f"A schema was given as a class of attrs ({source!r:.80}), and reading those takes msgspec. Install it "
            f"with pip install msgspec, or give a JSON Schema as a dict, text or path."
        ) from error
    try:
        schema = msgspec.json.schema(source)
    except (NameError, TypeError) as error:
        why = " ".join(str(error).split())
        raise OptionError(f"{source!r:.80} cannot be read as a JSON Schema by msgspec: {why}") from error
    narrow_struct(schema, source)
    for _, part in every_subschema(schema):
        finite_numbers(part)
    # Only a reference stands at the root, where tools and strict mode expect the object itself.
    root = schema.pop("$ref", "").removeprefix("#/$defs/")
    return {**schema.get("$defs", {}).get(root, {}), **schema}


def _of_type(source: Any) -> Any:
    try:
        import typing_extensions
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
    except ImportError as error:
        if not isinstance(source, type) and get_origin(source) is None:
            raise _unreadable(source) from None
        kind = "dataclass" if dataclasses.is_dataclass(source) else "TypedDict" if is_typeddict(source) else "type"
        raise OptionError(
            f"A schema was given as a {kind} ({source!r:.80}), and reading those takes pydantic. Install it with "
            f"pip install pydantic, or give a JSON Schema as a dict, text or path."
        ) from error
    try:
        if is_typeddict(source):
            # Before Python 3.12 pydantic does not read typing's own.
            hints = get_type_hints(source, include_extras=True)
            for name in source.__optional_keys__:
                if get_origin(hints[name]) not in (NotRequired, Required):
                    hints[name] = NotRequired[hints[name]]
            make: Any = typing_extensions.TypedDict
            return _of_class(TypeAdapter(make(source.__name__, hints)))
        return _of_class(TypeAdapter(source))
    except (AttributeError, PydanticSchemaGenerationError) as error:  # the former of an object in place of its class
        raise _unreadable(source) from error
    except (PydanticUserError, NameError) as error:
        raise _unreadable(source, getattr(error, "message", str(error))) from error


def _unreadable(source: Any, why: str = "") -> OptionError:
    by = f" by pydantic: {' '.join(why.split()).rstrip('.'):.200}" if why else ""
    return OptionError(
        f"{source!r:.80} cannot be read as a JSON Schema{by}. Give a dict, JSON text, a path, a pydantic model, a "
        f"dataclass, a TypedDict, an Enum, or a class of msgspec or attrs."
    )
