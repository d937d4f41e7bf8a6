"""Random tools, calls of them, and the texts of calls: written from a format's entries, and by random walks."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import numpy as np

from logitloom import Vocabulary, processors
from logitloom_plugins.tool_formats.tool_format import ToolFormat, tool_format

BYTES = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0], name="bytes")
JSON_STYLE = {"whitespace": "one_space", "escapes": "minimal", "additional_properties": False}

Call = tuple[str, dict[str, Any]]


def random_tools(random: np.random.Generator, *, nested: bool, left_out: Collection[str] = ()) -> list[dict[str, Any]]:
    """One to three tools with up to four parameters, of types that are not left out."""
    names = random.choice(["weather", "get_zip", "now", "search_all", "f"], size=random.integers(1, 4), replace=False)
    return [{"type": "function", "function": _function(str(name), random, nested, left_out)} for name in names]


def _function(name: str, random: np.random.Generator, nested: bool, left_out: Collection[str]) -> dict[str, Any]:
    schemas: list[dict[str, Any]] = [
        {"type": "string"}, {"type": "string", "maxLength": 5}, {"enum": ["one", "two words", "3"], "type": "string"},
        {"type": "integer", "minimum": -20, "maximum": 500}, {"type": "number", "minimum": 0, "maximum": 9},
        {"type": "boolean"}, {"type": "string", "pattern": "^[a-z]{2,4}$"},
    ]  # fmt: skip
    if nested:
        point = {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "s": {"enum": ["u", "v w"]}},
            "required": ["x"],
        }
        schemas += [{"type": "array", "items": {"type": "integer"}, "maxItems": 3}, point]
    schemas = [schema for schema in schemas if schema["type"] not in left_out]
    keys = ["city", "zip_code", "q", "Unit"][: random.integers(0, 5)]
    properties = {key: schemas[random.integers(len(schemas))] for key in keys}
    required = [key for key in keys if random.random() < 0.6]
    return {"name": name, "parameters": {"type": "object", "properties": properties, "required": required}}


def random_calls(tools: list[dict[str, Any]], random: np.random.Generator, most: int) -> list[Call]:
    """One call or several, with arguments that satisfy the schemas."""
    calls = []
    for _ in range(random.integers(1, most + 1)):
        function = tools[random.integers(len(tools))]["function"]
        schema = function["parameters"]
        given = [k for k in schema["properties"] if k in schema["required"] or random.random() < 0.5]
        calls.append((function["name"], {key: _value(schema["properties"][key], random) for key in given}))
    return calls


def _value(schema: dict[str, Any], random: np.random.Generator) -> Any:
    if "enum" in schema:
        return str(random.choice(schema["enum"]))
    if "pattern" in schema:
        return "".join(random.choice(list("abcz"), size=3))
    if schema["type"] == "string":
        return str(random.choice(["Rome", "São", 'a "b"', "x, y", "tab", "é{1}", "ok"]))[
            : schema.get("maxLength")
        ].strip()
    if schema["type"] == "integer":
        return int(random.integers(-20, 500)) if "minimum" in schema else int(random.integers(0, 9))
    if schema["type"] == "array":
        return [int(random.integers(0, 99)) for _ in range(random.integers(0, 4))]
    if schema["type"] == "object":
        return {"x": int(random.integers(9)), **({"s": "v w"} if random.random() < 0.5 else {})}
    return float(random.integers(1, 18)) / 2 if schema["type"] == "number" else bool(random.random() < 0.5)


def written(form: ToolFormat, calls: list[Call], tools: list[dict[str, Any]]) -> str:
    """The text of calls, put together from the entries of a format."""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    if form.style == "array":
        return form.open + form.call + json.dumps([_object(form, c) for c in calls], ensure_ascii=False) + form.end
    parts = []
    for i, (name, arguments) in enumerate(calls):
        begin = "" if i and form.plain else form.call.replace("{name}", name).replace("{index}", str(i))
        if form.style == "object":
            body = json.dumps(_object(form, (name, arguments)), ensure_ascii=False)
        elif form.style == "arguments":
            body = json.dumps(arguments, ensure_ascii=False)
        else:
            properties = schemas[name]["properties"]
            texts = [_parameter(form, key, value, properties[key]) for key, value in arguments.items()]
            body = form.parameter_separator.join(texts)
        parts.append(begin + body + form.end)
    return form.open + form.separator.join(parts) + form.close


def _object(form: ToolFormat, call: Call) -> dict[str, Any]:
    name, arguments = call
    return {form.name_key: name, form.arguments_key: arguments} if form.name_key else {name: arguments}


def _parameter(form: ToolFormat, key: str, value: Any, schema: dict[str, Any]) -> str:
    raw = isinstance(value, str) and form.strings == "raw"
    text = form.quote + value + form.quote if raw else json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        text = form.booleans[not value]
    kind = "number" if schema["type"] == "integer" else schema["type"]
    begin = form.parameter.replace("{type}", kind).replace("{string}", str(raw).lower())
    return (begin + "\0" + form.parameter_end).replace("{key}", key).replace("\0", text)


def constraint_of(name: str, tools: list[dict[str, Any]], **options: Any) -> Any:
    chain = processors.load(("tool_call", {"tools": tools, "format": name, **options}), tokenizer=BYTES)
    return chain["tool_call"].constraint(BYTES, BYTES.size)


def refused_at(constraint: Any, text: str) -> int | None:
    """The place of the first byte that is not allowed; the length if the text may not end; None if all is allowed."""
    state = constraint.start()
    for place, byte in enumerate(text.encode()):
        if 1 + byte not in constraint.allowed(state):
            return place
        state = constraint.advance(state, 1 + byte)
    return None if constraint.may_end(state) else len(text.encode())


def ids(constraint: Any, state: Any) -> set[int]:
    return set(constraint.allowed(state).listed(BYTES.size).tolist())


def walk(name: str, constraint: Any, random: np.random.Generator, *, most: int = 1500) -> str:
    """A text that a constraint allows, with a call. Free text is short: it ends with what ends it in the format."""
    form = tool_format(name)
    ends = [form.quote or form.parameter_end or '"', '"', ","]
    state, text, wanted = constraint.start(), bytearray(), b""
    for _ in range(most):
        legal = ids(constraint, state)
        if constraint.may_end(state) and text and (not legal or (len(text) > 20 and random.random() < 0.3)):
            return text.decode()
        if not wanted and len(legal) > 40 and random.random() < 0.3:
            wanted = random.choice(ends).encode()
        if wanted and 1 + wanted[0] in legal:
            token, wanted = 1 + wanted[0], wanted[1:]
        else:
            plain = sorted(legal & {1 + byte for byte in b'abc XYZ019{}[]",:.-truefalsn\\<>_=/|\n'}) or sorted(legal)
            token, wanted = int(random.choice(plain)), b""
        text.append(token - 1)
        state = constraint.advance(state, token)
    raise AssertionError(f"no end after {bytes(text)!r}")


__all__ = [
    "BYTES",
    "JSON_STYLE",
    "Call",
    "constraint_of",
    "random_calls",
    "random_tools",
    "refused_at",
    "walk",
    "written",
]
