"""What people give as a schema: response_format, classes of msgspec and attrs, strict mode, misspelt keywords."""

from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import Vocabulary, processors
from logitloom.document import from_document, to_document
from logitloom.errors import LogitloomWarning, OptionError, UnsupportedSchema
from logitloom.host.loading import loading
from logitloom_plugins.schema_sources.inputs import check_keywords, check_strict
from logitloom_plugins.schema_sources.sources import schema_of
from logitloom_plugins.tool_formats.tools import tools_of

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WRAPPED = {"name": "person", "strict": True, "schema": PERSON}


class Guard:
    """Lets everything pass, as the guard of a server does what is on its list."""

    def require(self, name: str) -> None:
        pass

    def options(self, name: str, plugin: Any, given: Any) -> Any:
        return given


@pytest.mark.parametrize(
    "given",
    [
        {"type": "json_schema", "json_schema": WRAPPED},
        {"type": "json_schema", **WRAPPED},
        WRAPPED,
        {"name": "person", "schema": PERSON},
        {"type": "json_object", "schema": PERSON},
        json.dumps({"type": "json_schema", "json_schema": WRAPPED}),
    ],
    ids=["json_schema", "flat", "without a type", "neither type nor strict", "json_object with a schema", "text"],
)
def test_a_response_format_is_its_schema(given: Any) -> None:
    plain = processors.load(("json", {"schema": PERSON}))["json"]
    assert processors.load(("json", {"schema": given}))["json"].fingerprint == plain.fingerprint


def test_json_object_allows_any_object() -> None:
    assert schema_of({"type": "json_object"}) == {"type": "object"}


def test_schemas_that_look_like_a_response_format_stay_schemas() -> None:
    for schema in (
        {"name": "x", "type": "object"},
        {"schema": {}, "title": "x"},
        {"name": "x", "schema": {}, "enum": [1]},
    ):
        assert schema_of(schema) is schema


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"type": "text"}, "has the type 'text', which is no JSON value. Leave out 'json'"),
        ({"type": "structural_tag", "format": {}}, "Use the processor 'structural_tag'"),
        ({"type": "json_schema"}, r"has no JSON Schema at schema: .*Write \{'type': 'json_schema'"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "has no JSON Schema at json_schema/schema"),
        ({"type": "json_schema", "json_schema": []}, "has no JSON Schema at json_schema/schema"),
        ({"type": "json_schema", "json_schema": {**WRAPPED, "strict": "yes"}}, "json_schema/strict .*is 'yes'"),
        ({"name": "x", "schema": "pyproject.toml"}, "has no JSON Schema at schema"),
    ],
    ids=["text", "structural tag", "nothing", "no schema", "no table", "strict", "path"],
)
def test_what_is_no_schema_is_refused_with_its_place(given: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        processors.load(("json", {"schema": given}))


def test_a_request_names_no_file() -> None:
    with loading(guard=Guard()), pytest.raises(OptionError, match="no JSON"):
        processors.load(("json", {"schema": "pyproject.toml"}))


# --- strict mode ---------------------------------------------------------------------------------------------------


def changed(**entries: Any) -> dict[str, Any]:
    return {**PERSON, **entries}


INNER = {"type": "object", "properties": {"x": {}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "array"}, r"its root is \{'type': 'array'\}"),
        (changed(anyOf=[{}]), "no anyOf"),
        (changed(required=["name"]), "at #/required the property 'age' is missing"),
        (changed(additionalProperties=True), "at #/additionalProperties stands True: strict mode demands false"),
        ({"type": "object", "properties": {}}, "at #/additionalProperties stands 'nothing'"),
        (changed(properties={"name": INNER}), "at #/properties/name/additionalProperties"),
        (changed(properties={"name": {"type": ["object", "null"]}}), "at #/properties/name/additionalProperties"),
        (changed(properties={"name": {"anyOf": [{}, INNER]}}), "at #/properties/name/anyOf/1/additionalProperties"),
        (changed(properties={"name": {"items": INNER}}), "at #/properties/name/items/additionalProperties"),
        (changed(**{"$defs": {"a": INNER}}), r"at #/\$defs/a/additionalProperties"),
        (changed(properties={"name": {"allOf": [{}]}}), "has 'allOf' at #/properties/name/allOf"),
        (changed(propertes={}), "'propertes' at #/propertes .did you mean 'properties'"),
        (changed(whatever=1), "unknown keyword 'whatever' at #/whatever"),
    ],
    ids=range(13),
)
def test_strict_mode_names_the_rule_and_the_place(schema: Any, message: str) -> None:
    with pytest.raises(UnsupportedSchema, match=message):
        check_strict(schema, "The schema")
    with pytest.raises(UnsupportedSchema, match=message):
        processors.load(("json", {"schema": {**WRAPPED, "schema": schema}}))


def test_a_strict_tool_keeps_the_rules_of_strict_mode() -> None:
    parameters = changed(required=["name"])
    with pytest.raises(
        UnsupportedSchema, match="parameters of the tool 'f' is strict, but at #/required the property 'age'"
    ):
        tools_of([{"type": "function", "function": {"name": "f", "strict": True, "parameters": parameters}}])
    assert tools_of([{"name": "f", "strict": False, "parameters": parameters}])[0].parameters == parameters


def test_strict_mode_takes_what_keeps_its_rules() -> None:
    nullable = {"type": ["string", "null"]}
    node = {**changed(properties={"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "s": nullable})}
    check_strict({**node, "required": ["next", "s"]}, "The schema")
    assert tools_of([{"name": "f", "strict": True, "parameters": PERSON}])[0].parameters == PERSON


# --- unknown keywords ------------------------------------------------------------------------------------------------


def test_a_misspelt_keyword_is_a_warning_and_with_strict_an_error() -> None:
    schema = {"type": "object", "properties": {"a": {"minimun": 1}}, "propertes": {}}
    said = (
        r"'propertes' at #/propertes .did you mean 'properties'\?., "
        "'minimun' at #/properties/a/minimun .did you mean 'minimum'"
    )
    with pytest.warns(UserWarning, match=said + r".*\. They restrict nothing\. Correct or remove them"):
        processors.load(("json", {"schema": schema}))
    with pytest.raises(UnsupportedSchema, match=said) as caught:
        processors.load(("json", {"schema": schema, "strict": True}))
    assert ("minimun", "#/properties/a/minimun", "unknown keyword (did you mean 'minimum'?)") in caught.value.problems


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"format": "datetime"}, r"'format: datetime' at #/items/format \(did you mean 'date-time'\?\)"),
        ({"type": "string", "format": "URI"}, r"'format: URI' at #/items/format \(did you mean 'uri'\?\)"),
        ({"type": ["string"], "nullable": True}, r"'nullable' at #/items/nullable \(add the type 'null'\)"),
        ({"$ref": "#/$defs/a", "nullable": True}, r"'nullable' at #/items/nullable \(add the type 'null'\)"),
    ],
)
def test_a_misspelt_format_or_nullable_is_a_warning_and_with_strict_an_error(part: Any, said: str) -> None:
    schema = {"items": part, "$defs": {"a": {"type": "string"}}}
    with pytest.warns(UserWarning, match=rf"keyword without effect {said}\. It restricts nothing\. Correct or remove"):
        processors.load(("json", {"schema": schema}))
    with pytest.raises(UnsupportedSchema, match=rf"keyword without effect {said}\. Correct or remove"):
        processors.load(("json", {"schema": schema, "strict": True}))


def test_formats_of_libraries_and_nullable_beside_null_are_not_reported() -> None:
    parts = [{"format": name} for name in ("uuid4", "int64", "password", "base64", "binary", "path", "uri")]
    parts += [{"type": ["string", "null"], "nullable": True}, {"type": "string", "nullable": False}, {"nullable": True}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_keywords({"anyOf": parts}, error=True)


def test_annotations_are_no_misspellings() -> None:
    schema = {
        "x-order": 1,
        "discriminator": {},
        "markdownDescription": "",
        "enum": [1],
        "properties": {"propertes": {}},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_keywords({**schema, "const": {"propertes": 1}}, error=False)
        check_keywords(True, error=True)
    with pytest.raises(
        UnsupportedSchema, match=r"unknown keyword 'markdownDescription' at #/markdownDescription\. Correct"
    ):
        check_keywords(schema, error=True)


def test_many_unknown_keywords_are_counted() -> None:
    schema: Any = {f"unknown{i}": 1 for i in range(5000)}
    with pytest.raises(UnsupportedSchema, match="'unknown7' at #/unknown7 and 4992 more"):
        check_keywords(schema, error=True)
    schema["not"] = schema  # in Python a table may hold itself
    with pytest.raises(UnsupportedSchema, match="and 4992 more"):
        check_keywords(schema, error=True)


# --- classes ---------------------------------------------------------------------------------------------------------


@pytest.mark.extras
def test_classes_of_msgspec_and_attrs_are_schemas_and_tools() -> None:
    msgspec = pytest.importorskip("msgspec", reason="the package msgspec is not installed")
    attrs = pytest.importorskip("attrs", reason="the package attrs is not installed")
    inner = attrs.make_class("Inner", {"x": attrs.field(type=int)})
    outer = attrs.make_class("Outer", {"inner": attrs.field(type=inner)})
    struct = msgspec.defstruct("Struct", [("a", int), ("b", str, "x")])
    point: dict[str, Any] = {
        "title": "Inner",
        "type": "object",
        "properties": {"x": {"type": "integer"}},
        "required": ["x"],
    }
    point["additionalProperties"] = False
    found = schema_of(outer)
    assert found["$defs"]["Inner"] == point
    assert found["properties"] == {"inner": {"$ref": "#/$defs/Inner"}}
    assert schema_of({"name": "s", "schema": struct})["required"] == ["a"]
    tool = tools_of([struct])[0]
    assert tool.name == "Struct"
    assert tool.parameters["properties"]["b"] == {"type": "string", "default": "x"}
    with pytest.raises(OptionError, match=r"Bad.* cannot be read as a JSON Schema by msgspec: "):
        schema_of(msgspec.defstruct("Bad", [("a", complex)]))


def test_a_class_of_attrs_without_msgspec_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    of_attrs = type("OfAttrs", (), {"__attrs_attrs__": ()})
    with pytest.raises(
        OptionError, match="class of attrs .*OfAttrs.* takes msgspec. Install it with pip install msgspec"
    ):
        schema_of(of_attrs)


@dataclasses.dataclass
class Point:
    x: int
    y: int | None = None


@pytest.mark.extras
def test_a_chain_with_a_class_travels_as_a_document() -> None:
    pytest.importorskip("pydantic", reason="the package pydantic is not installed")
    chain = processors.load(("json", {"schema": Point}), ("tool_call", {"tools": [Point], "choice": "Point"}))
    document = to_document(chain)
    assert json.loads(document["processor"][0]["options"]["schema"])["properties"]["y"]["default"] is None
    assert json.loads(json.dumps(document)) == document
    again = from_document(document)
    assert again["json"].fingerprint == chain["json"].fingerprint
    vocabulary = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    both = [one["tool_call"].constraint(vocabulary, vocabulary.size).fingerprint for one in (chain, again)]
    assert both[0] == both[1]


def test_a_schema_that_documents_can_hold_stays_as_it_is() -> None:
    chain = processors.load(("json", {"schema": WRAPPED}))
    assert to_document(chain)["processor"] == [{"use": "json", "options": {"schema": WRAPPED}}]
    text = to_document(processors.load(("json", {"schema": {"const": None}})))["processor"][0]["options"]["schema"]
    assert text == '{"const": null}'
    with pytest.raises(OptionError, match="'tools' of 'tool_call' is no JSON"):
        tools_of("[")


@pytest.mark.extras
def test_objects_of_a_class_are_closed_unless_it_allows_more() -> None:
    pydantic = pytest.importorskip("pydantic", reason="the package pydantic is not installed")

    class Inner(pydantic.BaseModel):
        x: int

    class Open(pydantic.BaseModel, extra="allow"):
        inner: Inner
        table: dict[str, int]

    found = schema_of(Open)
    assert found["additionalProperties"] is True
    assert found["$defs"]["Inner"]["additionalProperties"] is False
    assert found["properties"]["table"]["additionalProperties"] == {"type": "integer"}
    assert "additionalProperties" not in Inner.model_json_schema()
    assert schema_of(Point)["additionalProperties"] is False
    assert "additionalProperties" not in schema_of({"properties": {}})


@pytest.mark.parametrize("schema", [{1: 2}, {"type": "object", None: 1}, {"properties": {"a": {float("inf"): 3}}}])
def test_a_keyword_that_is_no_text_is_refused(schema: Any) -> None:
    with pytest.raises(UnsupportedSchema, match="keys of JSON objects are texts"):
        check_keywords(schema, error=False)


def test_what_is_no_type_needs_no_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    for wrong in (5, [{"type": "string"}], sys, len):
        with pytest.raises(OptionError, match="cannot be read as a JSON Schema. Give a dict, JSON text, a path"):
            processors.load(("json", {"schema": wrong}))
    with pytest.raises(OptionError, match="given as a type .*pip install pydantic"):
        processors.load(("json", {"schema": list[int]}))


def test_a_key_that_an_object_of_a_schema_has_twice_is_told(tmp_path: Path) -> None:
    text = '{"type": "object", "properties": {"a": {"type": "integer", "type": "string"}}}'
    with pytest.warns(
        LogitloomWarning, match="has the key 'type' more than once in one object, and the last one counts"
    ):
        found = schema_of(text)
    assert found["properties"] == {"a": {"type": "string"}}
    path = tmp_path / "twice.json"
    path.write_text(text)
    with pytest.warns(LogitloomWarning, match=r"twice\.json' has the key 'type' more than once"):
        schema_of(path)


@pytest.mark.parametrize("entry", ["parameters", "input_schema", "inputSchema"])
def test_the_schema_of_arguments_has_the_names_of_the_usual_apis(entry: str) -> None:
    assert tools_of([{"name": "f", entry: PERSON}])[0].parameters == PERSON


@pytest.mark.parametrize("entry", ["paramters", "params", "inputschema"])
def test_an_entry_that_looks_like_the_schema_of_arguments_is_not_ignored(entry: str) -> None:
    with pytest.raises(OptionError, match=f"The tool 'f' has the entry '{entry}', which is ignored. Did you mean '"):
        tools_of([{"name": "f", "description": "d", entry: PERSON}])
    assert tools_of([{"name": "f", "outputSchema": PERSON}])[0].parameters["properties"] == {}


class Colour(str, Enum):  # noqa: UP042 - a member of this class reads as its name
    RED = "red"
    BLUE = "blue"


class Size(Enum):
    S = 1
    M = ("m", None)


def test_a_schema_may_hold_what_python_makes_of_values_of_json() -> None:
    given = {
        "type": ("object", "null"),
        "properties": {Colour.RED: {"enum": (Colour.RED, Size.S, Size.M)}, "b": {"const": np.float64(1.5)}},
        "required": [Colour.RED],
    }
    found = schema_of(given)
    assert json.dumps(found) == json.dumps(
        {
            "type": ["object", "null"],
            "properties": {"red": {"enum": ["red", 1, ["m", None]]}, "b": {"const": 1.5}},
            "required": ["red"],
        }
    )
    assert {type(name) for name in [*found["properties"], *found["required"]]} == {str}
    assert given["required"][0] is Colour.RED  # the user's own is not touched
    assert schema_of(PERSON) is PERSON
    shared = {"enum": (Colour.RED,)}
    found = schema_of({"properties": {"a": shared, "b": shared}})
    assert found["properties"]["a"] is found["properties"]["b"]


def test_a_text_of_a_member_of_an_enum_is_its_value() -> None:
    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    chain = processors.load(("json", {"schema": {"enum": [Colour.RED]}, "escapes": "minimal"}), tokenizer=words)
    constraint = chain["json"].constraint(words, words.size)
    assert words.decode(constraint.forced(constraint.start())) == '"red"'


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"const": b"x"}, r"has b'x' at #/const, which is no value of JSON\. Write a text"),
        ({"properties": {"a/b": {"enum": [1, {2}]}}}, r"has \{2\} at #/properties/a~1b/enum/1, which is no value"),
        ({"default": object}, r"has <class 'object'> at #/default"),
        ({"minimum": np.int64(3)}, r"has np.int64\(3\) at #/minimum|has 3 at #/minimum"),
        ({"properties": {1: {}}}, r"has the key 1 at #/properties, and keys of JSON objects are texts"),
        ({"const": [{None: 1}]}, r"has the key None at #/const/0, and keys"),
    ],
)
def test_what_is_no_value_of_json_is_refused_with_its_place(schema: Any, told: str) -> None:
    with pytest.raises(UnsupportedSchema, match=told):
        processors.load(("json", {"schema": schema}))


@pytest.mark.extras
def test_examples_of_a_class_may_be_any_values() -> None:
    pydantic = pytest.importorskip("pydantic", reason="the package pydantic is not installed")

    class Day(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(json_schema_extra={"examples": [{"day": date(2020, 1, 1)}]})
        day: date

    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    assert processors.load(("json", {"schema": Day}), tokenizer=words)["json"].machine is not None
