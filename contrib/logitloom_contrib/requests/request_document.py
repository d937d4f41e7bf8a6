"""The chain of a request: a chain document as JSON text or plain data, checked before any object is made from it.

All of these say the same::

    '{"logitloom": 1, "processor": [{"use": "regex", "options": {"pattern": "a+"}}]}'
    {"logitloom": 1, "processor": [{"use": "regex", "options": {"pattern": "a+"}}]}
    [{"use": "regex", "options": {"pattern": "a+"}}]

An OpenAI ``response_format`` stands for the processor that enforces it::

    {"type": "json_schema", "json_schema": {"name": "person", "strict": true, "schema": {"type": "object", ...}}}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from logitloom.document import VERSION
from logitloom.errors import ChainDocumentError, LogitloomError
from logitloom.host import options as opts
from logitloom.host.loading import loading
from logitloom.host.registry import load_plugin
from logitloom_contrib.requests.permissions import Permissions
from logitloom_contrib.response_format import FORMS, processors_of

__all__ = ["KEY", "LIMITED", "RequestDocument", "RequestGuard", "read"]

#: The key of ``extra_args`` and ``vllm_xargs``.
KEY: Final = "logitloom"

_DEEPEST: Final = 64
#: Options with a limit of the operator's -> the permission.
LIMITED: Final = {"max_states": "states", "max_seconds": "seconds"}
_FORMS: Final = "Give a chain document, a list of processors, or a response_format, as JSON text or as plain data."


class RequestDocument(NamedTuple):
    """A request's chain.

    Attributes:
        key: canonical text; equal for requests that want the same chain.
        document: as :func:`logitloom.document.from_document` reads it.
    """

    key: str
    document: dict[str, Any]


def read(given: Any, permissions: Permissions) -> RequestDocument:
    """The chain that a request asks for.

    Args:
        given: ``extra_args["logitloom"]``.
        permissions: the permissions of requests.

    Raises:
        LogitloomError: (always a ``ValueError`` too) saying what is wrong with the document.

    Example:
        >>> read('[{"use": "top_k", "options": {"k": 5}}]', Permissions()).key
        '{"logitloom":1,"processor":[{"use":"top_k","options":{"k":5}}]}'
    """
    value = _parsed(given, permissions) if isinstance(given, str) else given
    if isinstance(value, Mapping) and value.get("type") in FORMS:
        value = processors_of(value)
        if value is None:
            raise ChainDocumentError(
                f"{KEY!r} of the request is a response_format of type 'text', which asks for nothing. Leave it out."
            )
    document = {"logitloom": VERSION, "processor": value} if isinstance(value, (list, tuple)) else value
    if not isinstance(document, Mapping):
        raise ChainDocumentError(f"{KEY!r} of the request is a {type(given).__name__}, {_shown(given)}. {_FORMS}")
    plain: dict[str, Any] = _plain(document, "The chain of the request", 0)
    _check_form(plain)
    guard = RequestGuard(permissions)
    plain["processor"] = [_entry(entry, guard) for entry in plain["processor"]]
    key = json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    if len(key) > permissions.bytes:
        raise ChainDocumentError(_too_long(len(key), permissions))
    return RequestDocument(key, plain)


def _parsed(text: str, permissions: Permissions) -> Any:
    if len(text) > permissions.bytes:
        raise ChainDocumentError(_too_long(len(text), permissions))
    try:
        return json.loads(text, parse_constant=_no_number, object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        raise ChainDocumentError(
            f"{KEY!r} of the request is no JSON: {error.msg} at character {error.pos}, {_shown(text)}. {_FORMS}"
        ) from error
    except RecursionError as error:
        raise ChainDocumentError(f"{KEY!r} of the request is nested too deeply. Nest less.") from error
    except ValueError as error:
        if isinstance(error, LogitloomError):
            raise
        raise ChainDocumentError(f"{KEY!r} of the request cannot be read as JSON: {error}") from error


def _no_number(name: str) -> Any:
    raise ChainDocumentError(f"{KEY!r} of the request holds {name}, which is no JSON number. Give a finite one.")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ChainDocumentError(f"{KEY!r} of the request has {_shown(name)} twice in one table. Give it once.")
        table[name] = value
    return table


def _plain(value: Any, place: str, depth: int) -> Any:
    """A copy in plain dictionaries, lists, texts and finite numbers, which JSON and msgpack both can hold."""
    if depth > _DEEPEST:
        raise ChainDocumentError(f"{place} is nested deeper than {_DEEPEST} levels. Nest less.")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ChainDocumentError(f"{place} holds half a surrogate pair, which is no character.") from error
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise ChainDocumentError(f"{place} holds an integer of more than 64 bits. Give a smaller one.")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ChainDocumentError(f"{place} holds {value!r}, which is no JSON number. Give a finite one.")
        return float(value)
    if isinstance(value, Mapping):
        for name in value:
            if isinstance(name, bool) or not isinstance(name, (str, int)):
                raise ChainDocumentError(f"{place} has the key {_shown(name)}; keys are texts.")
        table = {_plain(str(name), place, depth): _plain(part, place, depth + 1) for name, part in value.items()}
        if len(table) < len(value):
            twice = next(name for name in value if isinstance(name, int) and str(name) in value)
            raise ChainDocumentError(f"{place} has the key {twice} twice, as a number and as a text. Give it once.")
        return table
    if isinstance(value, (list, tuple)):
        return [_plain(part, place, depth + 1) for part in value]
    raise ChainDocumentError(f"{place} holds a {type(value).__name__}, {_shown(value)}. {_FORMS}")


def _check_form(document: dict[str, Any]) -> None:
    if document.get("logitloom") != VERSION or isinstance(document.get("logitloom"), bool):
        raise ChainDocumentError(
            f"A chain document starts with 'logitloom': {VERSION}; that of the request is {_shown(document)}. {_FORMS}"
        )
    extra = sorted(set(document) - {"logitloom", "processor"})
    if extra:
        raise ChainDocumentError(
            f"A chain document has no {_shown(extra[0])}; it has 'logitloom' and 'processor', a list."
        )
    entries = document.get("processor")
    if not isinstance(entries, list) or not entries:
        raise ChainDocumentError(
            f"'processor' of the request's chain must be a list of at least one processor, but is {_shown(entries)}."
        )


def _entry(entry: Any, guard: RequestGuard) -> dict[str, Any]:
    if not isinstance(entry, dict) or not isinstance(entry.get("use"), str) or set(entry) - {"use", "options"}:
        raise ChainDocumentError(
            f"Each processor of the request's chain must have 'use' (a name) and may have 'options', but one is "
            f"{_shown(entry)}."
        )
    name, given = entry["use"], entry.get("options", {})
    with loading(guard=guard):
        values = guard.options(name, load_plugin("processors", name), given)
    return {"use": name, "options": values} if values else {"use": name}


class RequestGuard:
    """The permissions, in force for all objects that are made for one request, at every depth of its chain.

    Args:
        permissions: the permissions of requests.
        named: whether the request names the processors.
    """

    def __init__(self, permissions: Permissions, *, named: bool = True) -> None:
        self.permissions, self._named = permissions, named
        self._made = 0

    def require(self, name: str) -> None:
        """Check that a processor may be named.

        Raises:
            LogitloomError: there is no such processor, or it is not allowed.
        """
        if self._named:
            self.permissions.require(name)

    def of_parts(self) -> RequestGuard:
        """The guard of processors that the request does not name."""
        return RequestGuard(self.permissions, named=False)

    def options(self, name: str, plugin: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a processor, within the operator's limits.

        Raises:
            ChainDocumentError: an option, or the number of processors, is above a limit.
        """
        permissions = self.permissions
        self._made += self._named
        if self._made > permissions.processors:
            raise ChainDocumentError(
                f"The request's chain has more than {permissions.processors} processors, those inside others "
                f"included, and that is the most. Use fewer."
            )
        if not isinstance(given, Mapping):
            raise ChainDocumentError(
                f"The options of {name!r} must be a table, name to value, but are {_shown(given)}."
            )
        values = dict(given)
        for option in opts.declared(plugin):
            if option.name == "schema":
                if isinstance(values.get("schema"), str):
                    values["schema"] = _schema(values["schema"], permissions)
            elif option.name in LIMITED:
                values |= _limited(option, values, name, permissions)
            elif option.name in values and option.type is not Any:
                # Options without a declared type hold schemas or other chains, whose own processors are asked.
                _check_integers(values[option.name], f"Option {option.name!r} of {name!r}", permissions)
        return values


def _schema(text: str, permissions: Permissions) -> Any:
    """A schema's JSON text as data: a text that is no JSON would be taken for the name of a file."""
    schema = _plain(_parsed(text, permissions), "The text given as 'schema'", 0)
    if not isinstance(schema, (dict, bool)):
        raise ChainDocumentError(f"'schema' must be a JSON Schema (a table, true or false), but is {_shown(schema)}.")
    return schema


def _limited(option: opts.Option, values: dict[str, Any], name: str, permissions: Permissions) -> dict[str, Any]:
    most = getattr(permissions, LIMITED[option.name])
    given = values.get(option.name, min(option.default, most) if option.default is not None else most)
    if isinstance(given, (int, float)) and not isinstance(given, bool) and given > most:
        raise ChainDocumentError(
            f"Option {option.name!r} of {name!r} may be at most {most:g} on this server, but is {_shown(given)}."
        )
    return {option.name: given}


def _check_integers(value: Any, place: str, permissions: Permissions) -> None:
    """Refuse very large integers, which cost memory or overflow and have no other use."""
    if isinstance(value, dict):
        for name, part in value.items():
            _check_integers(_integer_key(name), place, permissions)
            _check_integers(part, place, permissions)
    elif isinstance(value, list):
        for part in value:
            _check_integers(part, place, permissions)
    elif isinstance(value, (int, float)) and value == int(value) and abs(value) > permissions.integer:
        raise ChainDocumentError(
            f"{place} holds {_shown(value)}; integers of options may be at most {permissions.integer} on this server."
        )


def _integer_key(name: str) -> int:
    """The integer that a key of an option stands for; 0 if the key is no integer."""
    try:
        return int(name)
    except ValueError:
        return 0


def _too_long(length: int, permissions: Permissions) -> str:
    return f"{KEY!r} of the request has {length} characters, and {permissions.bytes} is the most. Send less."


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.100}"
    except (RecursionError, ValueError):  # nested too deeply; an integer of thousands of digits
        return f"a {type(value).__name__}"
