"""JSON-Schema-Test-Suite, draft 2020-12: what compiles is never wrong, and more compiles than with the peers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from logitloom.errors import LogitloomError
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from tests.plugins.json_schema.peers import Judge, LLGuidance, Ours, XGrammar
from tests.plugins.json_schema.schema_data import suite
from tests.plugins.json_schema.serialisation import serialise


def required_groups() -> list[tuple[str, dict[str, Any]]]:
    return list(suite())


def test_every_verdict_of_the_required_tests_is_right() -> None:
    wrong, judged = [], 0
    for keyword, group in required_groups():
        try:
            machine = compile_schema(group["schema"], SchemaOptions(integers="any"))
        except LogitloomError:
            continue
        for test in group["tests"]:
            judged += 1
            if Ours().accepts(machine, serialise(machine, test["data"])) != test["valid"]:
                wrong.append((keyword, group["description"], test["description"]))
    assert not wrong
    assert judged > 1000


@pytest.mark.extras
def test_more_schemas_compile_than_with_the_peers(capsys: pytest.CaptureFixture[str]) -> None:
    judges: list[Judge] = [Ours(), LLGuidance(), XGrammar()]
    compiled = {judge.name: Counter[str]() for judge in judges}
    wrong = {judge.name: Counter[str]() for judge in judges}
    misjudged: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for keyword, group in required_groups():
        total[keyword] += 1
        for judge in judges:
            before = wrong[judge.name].total()
            grammar = judge.compiled(group["schema"])
            if grammar is None:
                continue
            compiled[judge.name][keyword] += 1
            for test in group["tests"]:
                # Instances of the suite have few members, so their own order is schema order nearly everywhere.
                text = json.dumps(test["data"], separators=(",", ":"))
                if judge.name == Ours.name:
                    text = serialise(grammar, test["data"])
                wrong[judge.name][keyword] += judge.accepts(grammar, text) != test["valid"]
            misjudged[judge.name] += wrong[judge.name].total() > before
    with capsys.disabled():
        print(f"\n{'compiled/wrong':24}{'groups':>8}" + "".join(f"{judge.name:>16}" for judge in judges))
        for keyword in [*sorted(total), "all"]:
            row = [
                (c.total(), w.total()) if keyword == "all" else (c[keyword], w[keyword])
                for c, w in ((compiled[judge.name], wrong[judge.name]) for judge in judges)
            ]
            count = total.total() if keyword == "all" else total[keyword]
            print(f"{keyword:24}{count:>8}" + "".join(f"{f'{c}/{w}':>16}" for c, w in row))
    # The page of comparisons says the same: groups, then wrong instances.
    page = " ".join((Path(__file__).parents[3] / "docs" / "comparison.md").read_text(encoding="utf-8").split())
    assert f"{compiled[Ours.name].total()} of {total.total()} groups of schemas and judges every instance" in page
    for judge in judges[1:]:
        told = (
            f"{judge.name} compiles {compiled[judge.name].total()}, of which {misjudged[judge.name]} have an instance "
            f"that is judged wrongly ({wrong[judge.name].total()} instances)"
        )
        assert told in page
    ours = compiled[Ours.name].total()
    assert ours > max(compiled[judge.name].total() for judge in judges[1:])
    assert wrong[Ours.name].total() == 0


@pytest.mark.parametrize(
    "name",
    ["date", "date-time", "duration", "email", "idn-email", "ipv4", "ipv6", "iri", "iri-reference", "json-pointer",
     "relative-json-pointer", "time", "uri", "uri-reference", "uri-template", "uuid"],
)  # fmt: skip
def test_formats_accept_and_reject_what_the_optional_tests_say(name: str) -> None:
    options = SchemaOptions(formats="assert")
    for keyword, group in suite("optional/format"):
        if keyword != name or group["schema"].get("format") != name:
            continue
        machine = compile_schema(group["schema"], options)
        for test in group["tests"]:
            text = serialise(machine, test["data"])
            assert Ours().accepts(machine, text) == test["valid"], (test["description"], text)


def test_hostnames_without_a_labels_are_judged_as_the_optional_tests_say() -> None:
    machine = compile_schema({"format": "hostname"})
    for keyword, group in suite("optional/format"):
        for test in group["tests"] if keyword == "hostname" else ():
            data = test["data"]
            if not isinstance(data, str) or "xn--" not in data.lower():
                assert Ours().accepts(machine, serialise(machine, data)) == test["valid"], test["description"]
