"""A format that the declared draft does not define is an annotation; other validators judge the same."""

from __future__ import annotations

from typing import Any

import pytest

from logitloom import Vocabulary, processors
from logitloom_plugins.json_schema.folds.machine import accepts
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.schema.schema_document import FORMATS, asserting_only
from tests.plugins.json_schema.schema_data import benchmark
from tests.plugins.json_schema.serialisation import serialise

DRAFTS = {
    name: f"http://json-schema.org/{name}/schema#" for name in ("draft-04", "draft-06", "draft-07")
}  # fmt: skip
#: No instance of any format; of hostname because of its spaces.
WRONG = "% é %"
#: What the automaton for schemas does not enforce.
REFUSED = {"regex", "idn-hostname"}


@pytest.mark.extras
@pytest.mark.parametrize("draft", DRAFTS)
def test_the_formats_of_each_draft_are_those_of_jsonschema(draft: str) -> None:
    validators = pytest.importorskip("jsonschema.validators")
    schema: dict[str, Any] = {"$schema": DRAFTS[draft]}
    validator = validators.validator_for(schema)
    # Checkers leave out what needs a package that is not installed, and know some names in every draft.
    known = set(validator.FORMAT_CHECKER.checkers) & FORMATS - {"idn-email", "regex"}
    for name in FORMATS - {"idn-email", "regex"}:
        asserted = asserting_only({**schema, "format": name}, "auto") != schema
        assert asserted or name not in known, name
        if not asserted:
            assert validator(schema | {"format": name}, format_checker=validator.FORMAT_CHECKER).is_valid(WRONG), name


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("name", sorted(FORMATS - REFUSED))
def test_only_formats_of_the_declared_draft_are_enforced(draft: str, name: str) -> None:
    first = {"date": "draft-07", "time": "draft-07", "idn-email": "draft-07", "iri": "draft-07"}
    first |= {"iri-reference": "draft-07", "relative-json-pointer": "draft-07", "uuid": "2019", "duration": "2019"}
    first |= dict.fromkeys(("json-pointer", "uri-reference", "uri-template"), "draft-06")
    wrong = "%" if name in ("uri-reference", "iri-reference") else "{" if name == "uri-template" else WRONG
    schema = {"$schema": DRAFTS[draft], "type": "string", "format": name}
    for formats, enforced in (("auto", draft >= first.get(name, "draft-04") != "2019"), ("assert", True)):
        machine = compile_schema(schema, SchemaOptions(formats=formats))
        assert accepts(machine, serialise(machine, wrong)) != enforced, formats
    unnamed = compile_schema({"type": "string", "format": name})
    assert not accepts(unnamed, serialise(unnamed, wrong))


def test_an_engine_gets_no_format_that_is_an_annotation() -> None:
    inner = {"$schema": DRAFTS["draft-06"], "items": {"format": "ipv4"}, "not": {"format": "date"}}
    schema = {
        "format": "uuid", "properties": {"format": {"format": "time"}, "x": inner}, "const": {"format": "date"},
        "allOf": [inner, {"format": "x"}],
    }  # fmt: skip
    kept = {"$schema": DRAFTS["draft-06"], "items": {"format": "ipv4"}, "not": {}}
    assert asserting_only(schema, "auto") == {
        "format": "uuid", "properties": {"format": {"format": "time"}, "x": kept}, "const": {"format": "date"},
        "allOf": [kept, {}],
    }  # fmt: skip
    assert "format" not in asserting_only(schema, "annotate")


@pytest.mark.extras
@pytest.mark.parametrize("engine", ["llguidance", "xgrammar"])
def test_a_schema_with_annotated_formats_runs_on_an_engine(engine: str) -> None:
    pytest.importorskip(engine)
    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    schema = {"$schema": DRAFTS["draft-04"], "type": "string", "format": "uuid"}
    for options in ({}, {"formats": "annotate"}):
        chain = processors.load(("json", {"schema": schema, "engine": engine, **options}), tokenizer=words)
        constraint = chain["json"].constraint(words, 257)
        state = constraint.start()
        for byte in b'"no uuid"':
            state = constraint.advance(state, byte + 1)
            assert state is not None
        assert constraint.may_end(state)


#: Instances per schema of the benchmark whose verdict there assumes formats that the schema's draft does not define.
OTHERWISE = {
    "Github_easy---o39165": 3, "Github_easy---o65454": 3, "Github_hard---o65883": 2, "Github_hard---o71307": 1,
    "Github_medium---o71320": 2, "Github_medium---o7516": 2,
}  # fmt: skip


def test_the_benchmark_assumes_formats_of_later_drafts_in_six_schemas() -> None:
    differing: dict[str, int] = {}
    for row in benchmark():
        if asserting_only(row["schema"], "auto") != row["schema"] and not row["name"].startswith("Kubernetes"):
            for formats in ("auto", "assert"):
                machine = compile_schema(row["schema"], SchemaOptions(formats=formats))
                wrong = [t for t in row["tests"] if accepts(machine, serialise(machine, t["data"])) != t["valid"]]
                assert formats == "auto" or not wrong, row["name"]
                # None is stricter than the benchmark.
                assert not any(test["valid"] for test in wrong)
                if wrong:
                    differing[row["name"]] = len(wrong)
    assert differing == OTHERWISE
