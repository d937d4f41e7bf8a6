"""``logitloom validate``: which engine runs it, what is unsupported, how large, how fast; exit codes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from logitloom import Vocabulary
from logitloom.cli import validate
from logitloom.cli.main import main
from logitloom.cli.prefix import check_prefix
from logitloom.errors import PluginImportError
from logitloom.host import registry
from tests.core.automata.vocabularies import mixed

FITS = {"type": "array", "items": {"enum": [1, 12]}, "maxItems": 3}
UNIQUE = {"properties": {"a/b": {"not": {"type": "array", "uniqueItems": True}}}}


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """Writes a file and gives its path."""

    def write(content: Any, name: str = "schema.json") -> str:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    return write


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["validate", *arguments, "--json"]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return dict(json.loads(out))


def by_engine(found: dict[str, Any]) -> dict[str, Any]:
    return {entry["engine"]: entry for entry in found["engines"]}


def test_a_regular_schema_runs_on_the_table(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, file(FITS))
    assert found["engine"] == "table"
    entry = by_engine(found)["table"]
    assert entry["runs"]
    assert entry["compile_ms"] > 0
    assert entry["table_bytes"] == 1024 * entry["states"] > 0


def test_options_are_those_of_the_processor(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(FITS)
    compact = by_engine(told(capsys, path, "--set", "whitespace=compact"))["table"]
    assert compact["states"] < by_engine(told(capsys, path))["table"]["states"]
    ascii_only = by_engine(told(capsys, path, "--set", "json.escapes=ascii"))
    assert [name for name, entry in ascii_only.items() if entry["runs"]] == ["table"]


def test_a_vocabulary_adds_the_first_mask(
    file: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitloom.host.registry.read_vocabulary", lambda path: mixed())
    found = told(capsys, file({"const": "ab"}), "--model", "some.gguf")
    assert found["vocabulary_size"] == mixed().size
    runs = [entry for entry in found["engines"] if entry["runs"]]
    assert all(entry["first_mask_ms"] > 0 for entry in runs)
    assert {entry["first_tokens"] for entry in runs} == {1}


def test_a_vocabulary_that_cannot_be_read_or_cannot_write_the_schema_is_told(
    file: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(FITS)
    assert main(["validate", path, "--model", "no.gguf"]) == 1
    assert "no.gguf" in capsys.readouterr().err
    letters = Vocabulary([b"", b"a", b"b"], eos=[0], name="two letters")
    monkeypatch.setattr("logitloom.host.registry.read_vocabulary", lambda path: letters)
    monkeypatch.setattr(validate, "_engines", lambda name: ["table"])
    assert main(["validate", path, "--model", "some.gguf"]) == 1
    assert "two letters" in "".join(capsys.readouterr())


def test_what_is_unsupported_is_listed_by_keyword_and_pointer(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(UNIQUE)
    found = told(capsys, path, code=1)
    assert found["engine"] is None
    (problem,) = by_engine(found)["table"]["problems"]
    assert (problem["keyword"], problem["pointer"]) == ("uniqueItems", "#/properties/a~1b/not/uniqueItems")
    assert problem["reason"]
    assert main(["validate", path]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"{path} cannot run.\n")
    assert "  uniqueItems at #/properties/a~1b/not/uniqueItems: " in out


@pytest.mark.extras
def test_an_engine_that_is_asked_for_must_do_it(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("xgrammar", reason="the package xgrammar is not installed")
    assert told(capsys, file(FITS), "--set", "engine=xgrammar")["engine"] == "xgrammar"
    found = told(capsys, file({"type": "string", "pattern": "a"}), "--set", "engine=xgrammar", code=1)
    assert found["engine"] is None
    assert by_engine(found)["table"]["runs"]
    assert [p["pointer"] for p in by_engine(found)["xgrammar"]["problems"]] == ["#/pattern"]


def test_a_regular_grammar_runs_on_the_table(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, file('root ::= "a" [0-9]', "g.gbnf"), "--grammar")
    assert found["engine"] == "table"
    assert by_engine(found)["table"]["runs"]
    again = told(capsys, file('root ::= "(" root ")" | ""', "g.gbnf"), "--grammar", "--set", "engine=table", code=1)
    assert "compiles regular grammars" in by_engine(again)["table"]["error"]


def test_a_grammar_for_which_no_engine_is_installed_is_told_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = registry.load_plugin

    def without(kind: str, name: str) -> Any:
        if kind == "grammars":
            raise PluginImportError(f"{name} is missing: pip install it.")
        return load(kind, name)

    # First where the name is imported: that module must not keep a patched function for good.
    monkeypatch.setattr("logitloom_plugins.grammars.engine.load_plugin", without)
    monkeypatch.setattr(registry, "load_plugin", without)
    assert main(["validate", "--grammar", 'root ::= "(" root ")" | ""']) == 1
    assert "llguidance is missing: pip install it." in capsys.readouterr().out


@pytest.mark.extras
def test_a_grammar_may_be_given_as_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--grammar", 'root ::= "a"']) == 0
    assert main(["validate", "--grammar", "root ::= digits"]) == 1
    assert "The rule 'digits' is named here, but defined nowhere" in capsys.readouterr().err
    assert main(["validate", "--grammar", "absent.gbnf"]) == 1
    assert "The grammar file 'absent.gbnf' cannot be read" in capsys.readouterr().err


@pytest.mark.extras
def test_grammars_are_validated_too(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    found = told(capsys, file('root ::= "(" root ")" | ""', "g.gbnf"), "--grammar")
    assert found["engine"] == "llguidance"
    path = file('start: "a" b', "g.lark")
    assert main(["validate", path, "--grammar"]) == 1
    out = capsys.readouterr().out
    assert "Line 1, column 8 of the grammar" in out
    assert '      start: "a" b\n             ^' in out


def test_the_table_says_the_same_as_json(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(FITS)
    found = told(capsys, path)
    assert main(["validate", path]) == 0
    first, _, header, *rows = capsys.readouterr().out.splitlines()
    assert first == f"{path} runs on table."
    assert header.split()[:2] == ["ENGINE", "RUNS"]
    assert [row.split()[:2] for row in rows[: len(found["engines"])]] == [
        [entry["engine"], "yes" if entry["runs"] else "no"] for entry in found["engines"]
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["no-file.json"], "no-file.json"), (["no-file.json", "--set", "x"], "OPTION=VALUE"),
     (["no-file.json", "--set", "whitespaces=compact"], "Did you mean 'whitespace'")],
)  # fmt: skip
def test_errors_are_one_sentence_on_standard_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["validate", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("logitloom: ")
    assert message in err


@pytest.mark.parametrize("more", [["no-file.json"], ["{"], ["true", "--set", "whitespaces=compact"]])
def test_no_engine_is_imported_for_mistakes_of_the_user(monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    imported = []
    load = registry.load_plugin
    monkeypatch.setattr(registry, "load_plugin", lambda kind, name: imported.append(kind) or load(kind, name))
    assert main(["validate", *more]) == 1
    assert "grammars" not in imported


def test_the_schema_of_any_value_raises_no_alarm(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Its states have no end, which is no fault: nothing of the output says that a limit was exceeded."""
    assert main(["validate", file({}), "--set", "max_states=2000"]) == 0
    out, err = capsys.readouterr()
    assert "runs on table" in out
    assert "table makes states as texts visit them; counting them in advance stopped at" in out
    assert not re.search("more than|exceed|raise max|error", out + err)


@pytest.mark.parametrize("text", ["true", " {} "])
def test_a_schema_may_be_given_as_its_text(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "_COUNTING_SECONDS", 0.05)
    assert told(capsys, text)["engine"] == "table"


#: Windows has no paths of open files.
with_paths_of_pipes = pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="the system has no /dev/fd")


@with_paths_of_pipes
@pytest.mark.parametrize(
    ("text", "more"),
    [
        ('\ufeff{"enum": [1, 12]}', []),
        pytest.param('root ::= "a" root? "b"', ["--grammar"], marks=pytest.mark.extras),
    ],
)
def test_a_pipe_is_read_once_for_all_engines(
    text: str, more: list[str], file: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = os.pipe()
    os.write(ends[1], text.encode())
    os.close(ends[1])
    try:
        piped, named = (told(capsys, path, *more) for path in (f"/dev/fd/{ends[0]}", file(text)))
    finally:
        os.close(ends[0])
    assert [entry["runs"] for entry in piped["engines"]] == [entry["runs"] for entry in named["engines"]]
    assert piped["engine"] == named["engine"]


@with_paths_of_pipes
def test_a_pipe_that_holds_no_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    ends = os.pipe()
    os.write(ends[1], b"{\xff")
    os.close(ends[1])
    assert main(["validate", f"/dev/fd/{ends[0]}"]) == 1
    os.close(ends[0])
    assert "The pipe '/dev/fd/" in capsys.readouterr().err


def test_states_that_cannot_all_be_made_are_said(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = file({"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 400})
    assert main(["validate", path, "--set", "max_states=300"]) == 0
    assert "counting them in advance stopped at" in capsys.readouterr().out
    entry = by_engine(told(capsys, path, "--set", "max_states=300"))["table"]
    assert not entry["complete"]
    assert "300 states" in entry["limit"]


def test_states_are_counted_for_a_second(
    file: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "_COUNTING_SECONDS", 0.05)
    entry = by_engine(told(capsys, file({})))["table"]
    assert (entry["complete"], entry["limit"]) == (False, "0.05 s of processor time")


@pytest.mark.parametrize("position", [0, 255, 256, 300, 767])
def test_a_text_of_several_pieces_goes_wrong_where_a_byte_is_not_allowed(tmp_path: Path, position: int) -> None:
    text = "a" * position + "1" + "a" * (768 - position)
    (tmp_path / "text.txt").write_text(text)
    told = check_prefix("grammar", {"grammar": 'root ::= [a-z]* "."'}, str(tmp_path / "text.txt"))
    assert (told["prefix"], told["character"], told["column"], told["found"]) == (False, position, position + 1, "'1'")
