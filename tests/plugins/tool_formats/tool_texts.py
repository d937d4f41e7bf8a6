"""Random tools, calls of them, and the texts of calls: written from a format's entries, and by random walks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from logitloom import Vocabulary, processors
from logitloom_plugins.tool_formats.call_reader import CallReader
from logitloom_plugins.tool_formats.tool_format import ToolFormat, tool_format

BYTES = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0], name="bytes")

Call = tuple[str, dict[str, Any]]
Tools = list[dict[str, Any]]

NAMES = ["weather", "get_zip", "now", "search_all", "f", "set-alarm", "browser.search"]
POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "s": {"type": "string", "enum": ["u", "v w"]}},
    "required": ["x"],
}
SCALARS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "maxLength": 5},
    {"type": "string", "enum": ["one", "two words", "3", 'say "it"', "two\nlines", "it's"]},
    {"type": "integer", "minimum": -20, "maximum": 500},
    {"type": "number", "minimum": 0, "maximum": 9},
    {"type": "boolean"},
    {"type": "null"},
    {"type": "string", "pattern": "^[a-z]{2,4}$"},
]
NESTED: list[dict[str, Any]] = [
    {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    {"type": "array", "items": {"type": "string"}},
    {"type": "array", "items": POINT, "minItems": 1, "maxItems": 2},
    {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}},
    POINT,
    {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "at": POINT,
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["title", "tags"],
    },
]
TEXTS = [
    "Rome", "São Paulo", 'a "b"', "x, y", "a\tb", "é{1}", "two\nlines", "it's", "back\\slash", "<b>&amp;</b>", "5",
    "true", "null", "[1]", "日本語 🙂", "", " x ", "a: b", "f(x=1)", "]", "}", "\n", "ok",
]  # fmt: skip


def random_tools(
    form: ToolFormat, random: np.random.Generator, left_out: Collection[str] = (), name: str = ""
) -> Tools:
    """One to three tools with up to four parameters, of types that are not left out, nor names with a pattern."""
    allowed = [one for one in NAMES if re.fullmatch(form.names or ".*", one) and not (name and re.search(name, one))]
    names = random.choice(allowed, size=random.integers(1, 4), replace=False)
    return [{"type": "function", "function": _function(str(name), form, random, left_out)} for name in names]


def _function(name: str, form: ToolFormat, random: np.random.Generator, left_out: Collection[str]) -> dict[str, Any]:
    schemas = [*SCALARS, *(NESTED if form.nested != "none" else ())]
    schemas = [schema for schema in schemas if not _types_in(schema) & {*left_out}]
    for i, schema in enumerate(schemas):
        if "enum" in schema:
            schemas[i] = {**schema, "enum": [value for value in schema["enum"] if can_write(form, value)]}
    keys = ["city", "zip_code", "q", "Unit"][: random.integers(0, 5)]
    properties = {key: schemas[random.integers(len(schemas))] for key in keys}
    required = [key for key in keys if random.random() < 0.6]
    return {"name": name, "parameters": {"type": "object", "properties": properties, "required": required}}


def _types_in(schema: dict[str, Any]) -> set[str]:
    parts = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return {schema["type"]}.union(*map(_types_in, parts))


def random_calls(
    form: ToolFormat,
    tools: Tools,
    random: np.random.Generator,
    most: int,
    kept: Callable[[str], bool] = lambda text: True,
) -> list[Call]:
    """One call or several, with arguments that satisfy the schemas and strings that the format can write."""
    calls = []
    for _ in range(random.integers(1, most + 1)):
        function = tools[random.integers(len(tools))]["function"]
        calls.append((function["name"], _value(function["parameters"], random, kept, form)))
    return calls


def can_write(form: ToolFormat, text: str) -> bool:
    """Whether a string can be written where parameters are written one by one."""
    if any(text_of_format in text for text_of_format in form.unwritten):
        return False
    if form.style != "parameters" or form.strings == "json":
        return True
    unlike = form.unlike and re.fullmatch(form.unlike, text)
    return not unlike and (not form.trimmed or text == text.strip())


def _value(schema: dict[str, Any], random: np.random.Generator, kept: Callable[[str], bool], form: ToolFormat) -> Any:
    if "enum" in schema:
        return str(random.choice([value for value in schema["enum"] if kept(value)]))
    if "pattern" in schema:
        return "".join(random.choice(list("abcz"), size=3))
    kind = schema["type"]
    if kind == "string":
        texts = [text[: schema.get("maxLength")] for text in TEXTS]
        texts = [text for text in texts if can_write(form, text) and kept(text)]
        return texts[random.integers(len(texts))]
    if kind == "integer":
        return int(random.integers(schema.get("minimum", 0), schema.get("maximum", 9)))
    if kind == "array":
        count = random.integers(schema.get("minItems", 0), schema.get("maxItems", 3) + 1)
        return [_value(schema["items"], random, kept, form) for _ in range(count)]
    if kind == "object":
        properties = schema["properties"]
        case = str.lower if form.style == "parameters" else str
        names = sorted(properties, key=case) if form.sorted else list(properties)
        given = [key for key in names if key in schema["required"] or random.random() < 0.5]
        return {key: _value(properties[key], random, kept, form) for key in given}
    if kind == "null":
        return None
    return float(random.integers(1, 18)) / 2 if kind == "number" else bool(random.random() < 0.5)


def written(form: ToolFormat, calls: list[Call]) -> str:
    """The text of calls, put together from the entries of a format."""
    if form.style == "array":
        return form.open + form.call + json.dumps([_object(form, c) for c in calls], ensure_ascii=False) + form.end
    parts = []
    for i, (name, arguments) in enumerate(calls):
        index = str(i) if re.fullmatch(form.index, str(i)) else f"abcdefgh{i}"
        begin = "" if i and form.plain else form.call.replace("{name}", name).replace("{index}", index)
        if form.style == "object":
            separators = (",", ":") if (form.json or {}).get("whitespace") == "compact" else None
            body = json.dumps(_object(form, (name, arguments)), ensure_ascii=False, separators=separators)
        elif form.style == "arguments":
            body = json.dumps(arguments, ensure_ascii=False)
        else:
            body = _members(form, arguments)
        parts.append(begin + body + form.end)
    return form.open + form.separator.join(parts) + form.close


def _object(form: ToolFormat, call: Call) -> dict[str, Any]:
    name, arguments = call
    return {form.name_key: name, form.arguments_key: arguments} if form.name_key else {name: arguments}


def _members(form: ToolFormat, members: dict[str, Any]) -> str:
    parts = []
    for key, value in members.items():
        around = _around(form, form.parameter, form.parameter_end, value).replace("{key}", key)
        parts.append(around.replace("\0", _text(form, value)))
    return form.parameter_separator.join(parts)


def _around(form: ToolFormat, begin: str, end: str, value: Any) -> str:
    names = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    kind = names.get(type(value), "null")
    begin = begin.replace("{string}", str(kind == "string").lower())
    return begin.replace("{type}", (form.types or {}).get(kind, kind)) + "\0" + end


def _text(form: ToolFormat, value: Any) -> str:
    if isinstance(value, str) and form.strings == "raw":
        return form.quote + value + form.quote
    if isinstance(value, bool):
        return form.booleans[not value]
    if isinstance(value, dict) and form.nested == "parameters":
        return _members(form, value).join(form.object)
    if isinstance(value, list) and form.nested == "parameters":
        items = [_around(form, form.item, form.item_end, one).replace("\0", _text(form, one)) for one in value]
        return form.parameter_separator.join(items).join(form.array)
    return json.dumps(value, ensure_ascii=False)


def constraint_of(name: str, tools: list[dict[str, Any]], **options: Any) -> Any:
    chain = processors.load(("tool_call", {"tools": tools, "format": name, **options}), tokenizer=BYTES)
    return chain["tool_call"].constraint(BYTES, BYTES.size)


def reader_of(name: str, tools: Tools, **options: Any) -> Any:
    processor: Any = processors.load(("tool_call", {"tools": tools, "format": name, **options}))["tool_call"]
    return processor.value_reader()


def constraint_and_reader(name: str, tools: Tools, **options: Any) -> tuple[Any, CallReader]:
    """A constraint, and a reader that takes its automaton."""
    chain = processors.load(("tool_call", {"tools": tools, "format": name, **options}), tokenizer=BYTES)
    processor: Any = chain["tool_call"]
    constraint = processor.constraint(BYTES, BYTES.size)
    return constraint, CallReader(constraint.automaton(), processor._sections_and_meaning()[1])


def strings_in(value: Any) -> Iterator[str]:
    """All strings in a value."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, str):
        yield value
    for part in parts:
        yield from strings_in(part)


def refused_at(constraint: Any, text: str) -> int | None:
    """The place of the first byte that is not allowed; the length if the text may not end; None if all is allowed."""
    state = constraint.start()
    for place, byte in enumerate(text.encode()):
        state = constraint.advance(state, 1 + byte)
        if state is None:
            return place
    return None if constraint.may_end(state) else len(text.encode())


#: What a random walk tries to write beside single characters.
_PIECES = [
    "é", "日", "🙂", "\\n", '\\"', "\\\\", "\\u00e9", "true", "null", "12", "-0.5e3", "&lt;", "</", "{x", "it's", ", "
]  # fmt: skip


_CHARACTERS = [bytes([byte]) for byte in b'abc XYZ019{}[]",:.-truefalsn\\<>_=/|\n\t']


def walk(name: str, constraint: Any, random: np.random.Generator, *, most: int = 4000) -> str:
    """A text that a constraint allows, with a call. Strings are short: what ends them in the format is tried often."""
    form = tool_format(name)
    ends = [form.quote or form.parameter_end or '"', '"', ",", "}", "]", form.item_end or "]"]
    entries = (form.end, form.close, form.first_trigger, form.parameter_end)
    tags = [entry.strip() for entry in entries if entry.strip()]
    state, text, refused = constraint.start(), bytearray(), 0
    while len(text) < most:
        if constraint.may_end(state) and len(text) > 20 and random.random() < 0.3:
            return text.decode()
        tried = random.random()
        if tried < 0.25:
            piece = ends[random.integers(len(ends))].encode()
        elif tried < 0.27 and tags:
            piece = tags[random.integers(len(tags))].encode()  # a string may have it
        elif tried < 0.35:
            piece = _PIECES[random.integers(len(_PIECES))].encode()
        else:
            piece = _CHARACTERS[random.integers(len(_CHARACTERS))]
        taken, reached = 0, state
        for byte in piece:
            following = constraint.advance(reached, 1 + byte)
            if following is None:
                break
            reached, taken = following, taken + 1
        if taken < len(piece) and (piece[0] >= 128 or taken == 0):
            legal = constraint.allowed(state).listed(BYTES.size).tolist()
            if not legal:
                return text.decode()
            refused += 1
            if len(legal) > 4 and refused % 50:
                continue
            legal = [token for token in legal if token <= 128] or legal
            piece, taken = bytes([int(random.choice(legal)) - 1]), 1
            reached = constraint.advance(state, 1 + piece[0])
        text += piece[:taken]
        state = reached
    raise AssertionError(f"no end after {bytes(text)!r}")


__all__ = [
    "BYTES",
    "TEXTS",
    "Call",
    "Tools",
    "can_write",
    "constraint_and_reader",
    "constraint_of",
    "random_calls",
    "random_tools",
    "reader_of",
    "refused_at",
    "strings_in",
    "walk",
    "written",
]
