"""``logitloom doctor``: what works, what is missing with its remedy, what is blocked and what is broken."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import numpy as np
import pytest

from logitloom import processors
from logitloom.cli import doctor
from logitloom.cli.main import main
from logitloom.errors import LogitloomError
from logitloom.generation import candidates
from logitloom.host import entry_points, registry


@pytest.fixture(autouse=True)
def _light(monkeypatch: pytest.MonkeyPatch) -> None:
    """What imports heavy libraries is left out."""
    heavy = ("backends", "engines", "tokenizers", "grammars", "models")
    listed = [f"{r.kind}/{r.name}" for r in registry.available() if r.kind in heavy and r.name != "numpy"]
    monkeypatch.setenv("LOGITLOOM_BLOCK", ",".join(listed))


def test_the_report_names_versions_backends_and_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert f"numpy {np.__version__}" in out
    header = next(line for line in out.splitlines() if line.startswith("BACKEND"))
    assert header.split() == ["BACKEND", "VERSION", "DEVICE", "MEMORY", "COMPILES"]
    assert any(line.split()[:2] == ["numpy", np.__version__] for line in out.splitlines())
    assert out.rstrip().endswith("Everything that is installed works.")


def test_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [backend["name"] for backend in report["backends"]] == ["numpy"]
    assert report["versions"]["numpy"] == np.__version__
    assert "LOGITLOOM_BLOCK" in report["environment"]
    assert report["broken"] == []


def test_what_is_blocked_is_listed() -> None:
    blocked = {(entry["kind"], entry["name"]) for entry in doctor.examine()["blocked"]}
    assert ("models", "llama") in blocked


def test_broken_plugins_are_told_apart_from_missing_ones(
    installed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    installed("import_error")
    installed("missing_extra")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "broken processors/" in out
    assert "could not be imported" in out
    assert "NOT INSTALLED" in out
    assert "pip install '" in out


def test_a_name_that_two_distributions_claim_is_broken(installed: Callable[[str], None]) -> None:
    installed("duplicate_name")
    (entry,) = [e for e in doctor.examine()["broken"] if "Several" in e["error"]]
    assert " and " in entry["distribution"]


def test_a_name_of_a_built_in_is_told_and_nothing_is_broken(
    installed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    installed("shadowing")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "shadowed processors/temperature: The built-in plug-in has this name and is used." in out
    assert "Load the other as temperature@loom-shadow." in out


def test_plugins_for_another_interface_are_broken(installed: Callable[[str], None]) -> None:
    installed("other_interface")
    broken = {entry["name"]: entry["error"] for entry in doctor.examine()["broken"]}
    assert broken.keys() == {"from_the_future", "from_somewhere"}
    assert "declares version 99 of the plug-in interface" in broken["from_the_future"]


UNUSABLE = {
    "processors/stage_that_is_none": "declares the stage 'constrain'; stages are",
    "processors/option_without_dataclass": "The option 'scale' in 'Undeclared' has no effect",
    "processors/required_and_misspelt": r"process\(logit\) does not fit the hook .*Unknown arguments: logit\.",
    "processors/function_of_ids": r"of_ids takes \(input_ids, scores\)",
    "tokenizers/misspelt_reader": r"vocabulary\(tok\) does not fit the hook .*Unknown arguments: tok\.",
    "candidates/no_methods": r"has no method 'init_state'. Add: def init_state\(self, context\)\.",
    "candidates/few_arguments": r"'propose' that cannot be called with \(state, request\).*Write def propose\(",
    "backends/no_hook": "has no method 'backend_adapter'",
    "logitloom.roles/patern": "No task has the name 'patern'. The tasks are .*, pattern,",
}


def test_plugins_that_cannot_be_used_are_broken(installed: Callable[[str], None]) -> None:
    installed("unusable")
    broken = {f"{entry['kind']}/{entry['name']}": entry["error"] for entry in doctor.examine()["broken"]}
    assert broken.keys() == UNUSABLE.keys()
    assert {name: text for name, text in UNUSABLE.items() if not re.search(text, broken[name])} == {}


def load_of(kind: str, name: str) -> object:
    if kind == "candidates":
        return candidates.load(name)
    options = {option.name: 1.0 for option in processors.describe(name).options if option.required}
    return processors.load((name, options))


@pytest.mark.parametrize("folder", ["unusable", "wrong_signature"])
def test_doctor_says_of_processors_and_generators_what_loading_says(
    folder: str, installed: Callable[[str], None]
) -> None:
    installed(folder)
    found = [entry for entry in doctor.examine()["broken"] if entry["kind"] in ("processors", "candidates")]
    assert found
    for entry in found:
        name = f"{entry['name']}@{entry['distribution'].partition(' ')[0]}"
        with pytest.raises(LogitloomError) as raised:
            load_of(entry["kind"], name)
        assert re.sub("@[a-z-]+", "", entry["error"]) == re.sub("@[a-z-]+", "", str(raised.value))


def test_a_sound_generator_of_any_class_is_loaded(installed: Callable[[str], None]) -> None:
    installed("unusable")
    assert candidates.load("sound_generator").update((), [1]) == ()


def test_the_roles_of_logitloom_are_the_tasks() -> None:
    own = {point.name for point in entry_points.installed().points if point.group == registry.ROLE_GROUP}
    assert own == registry.TASKS


def test_entry_points_that_nothing_finds_are_broken(
    installed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    installed("mistaken_names")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "logitloom.procesors/unseen: There is no group of entry points 'logitloom.procesors'" in out
    assert "logitloom.processors/a@b: The name 'a@b' cannot be loaded" in out


def test_a_backend_that_cannot_make_an_array_is_broken() -> None:
    class Plugin:
        def backend_adapter(self, library: str) -> None:
            return None

    registry.register("declining", Plugin, kind="backends")
    try:
        (entry,) = doctor.examine()["broken"]
    finally:
        registry.unregister("declining", kind="backends")
    assert "declined" in entry["error"]
    assert processors.available()
