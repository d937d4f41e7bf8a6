"""``logitloom automaton``: sizes and times of a pattern's automaton, and its picture."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from logitloom.automata import compile_pattern
from logitloom.cli.main import main
from tests.core.automata.vocabularies import mixed


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["automaton", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_sizes_are_those_of_the_automaton(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "[ab]{3}|c")
    dfa = compile_pattern("[ab]{3}|c")
    assert (found["states"], found["byte_classes"]) == (dfa.states, dfa.classes)
    assert found["compile_ms"] > 0
    assert found["pattern"] == "[ab]{3}|c"


def test_the_table_and_json_agree(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "a{1200}")
    assert main(["automaton", "a{1200}"]) == 0
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert {name.strip() for name in lines} == {name.replace("_", " ") for name in found}
    assert f"{found['states']:,}" in [value.strip() for value in lines.values()]


def test_ignoring_case_changes_the_automaton(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "abc", "--ignore-case")["byte_classes"] >= told(capsys, "abc")["byte_classes"]


def test_a_model_adds_token_classes_and_tables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitloom.host.registry.read_vocabulary", lambda path: mixed())
    found = told(capsys, "ab|12", "--model", "some.gguf")
    assert found["vocabulary_size"] == mixed().size
    assert found["token_classes"] > 2
    assert found["token_table_bytes"] > 4 * mixed().size
    assert found["first_row_tokens"] > 0


@pytest.mark.parametrize("model", [False, True])
def test_a_pattern_that_runs_lazily_is_told_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: bool
) -> None:
    monkeypatch.setattr("logitloom.host.registry.read_vocabulary", lambda path: mixed())
    given = ["(a|b)*a(a|b){30}", "--max-states", "500", *(["--model", "some.gguf"] if model else [])]
    found = told(capsys, *given)
    assert found["states"] == "computed as texts reach them"
    assert ("first_row_tokens" in found) == model
    assert not {"byte_classes", "token_classes"} & set(found)
    assert main(["automaton", *given, "--draw", "graph.svg"]) == 1
    assert "more than 500 states, so it cannot be drawn" in capsys.readouterr().err


def test_what_no_processor_would_run_is_refused_with_an_option_that_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["automaton", "(ab){300}", "--max-states", "500"]) == 1
    assert "takes more than 500" in capsys.readouterr().err
    assert told(capsys, "(ab){300}", "--max-states", "700")["states"] > 500


@pytest.mark.parametrize("arguments", [["("], [r"(a)\1"], ["a", "--model", "no-such-file.gguf"]])
def test_errors_are_sentences_on_standard_error(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(["automaton", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("logitloom: ")


def test_an_empty_path_of_a_drawing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["automaton", "a", "--draw", ""]) == 1
    assert "--draw writes .svg or .png files" in capsys.readouterr().err


@pytest.mark.extras
@pytest.mark.parametrize("kind", ["svg", "png"])
def test_drawing_with_matplotlib(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    path = tmp_path / f"graph.{kind}"
    assert main(["automaton", "(ab|c)*d", "--draw", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG" if kind == "png" else b"<?xml")
    assert "states" in capsys.readouterr().out


@pytest.mark.extras
@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz's program dot is not installed")
@pytest.mark.parametrize("kind", ["svg", "png"])
def test_drawing_with_graphviz(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("graphviz", reason="needs graphviz")
    path = tmp_path / f"graph.{kind}"
    assert main(["automaton", r"(a\|b|c)*d", "--draw", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG" if kind == "png" else b"<?xml")


def test_without_any_drawing_library_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] in ("matplotlib", "graphviz")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "graphviz", None)
    assert main(["automaton", "a", "--draw", str(tmp_path / "a.svg")]) == 1
    assert "pip install 'logitloom[draw]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pattern", "file", "message"),
    [
        ("a", "a.pdf", ".svg or .png"),
        ("a", "no/folder/a.svg", "does not exist"),
        ("a{400}", "a.svg", "401 states"),
        ("(a|b)*a(a|b){9}", "a.svg", "1024 states"),
    ],
)
def test_what_cannot_be_drawn_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pattern: str, file: str, message: str
) -> None:
    assert main(["automaton", pattern, "--draw", str(tmp_path / file)]) == 1
    assert message in capsys.readouterr().err
