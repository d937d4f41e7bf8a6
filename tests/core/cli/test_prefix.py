"""``logitloom validate --prefix``: prefixes of valid texts, whole texts, and where others go wrong."""

from __future__ import annotations

import ast
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from logitloom.cli.main import main
from tests.cases import EXHAUSTIVE

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"enum": [1, 2]}}},
    "required": ["name", "tags"],
    "additionalProperties": False,
}
VALUE = {"name": "Zoë\n", "tags": [1, 2]}


@pytest.fixture
def schema(tmp_path: Path) -> str:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    return str(file)


def told(schema: str, text: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    file = Path(schema).parent / "text"
    file.write_text(text, encoding="utf-8")
    code = main(["validate", schema, "--prefix", str(file), "--json", *more])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("indent", [None, 2])
def test_every_prefix_of_a_valid_text_is_one(
    schema: str, capsys: pytest.CaptureFixture[str], indent: int | None
) -> None:
    text = json.dumps(VALUE, ensure_ascii=False, indent=indent)
    for n in [*range(0, len(text), 1 if EXHAUSTIVE else 3), len(text)]:
        code, found = told(schema, text[:n], capsys)
        assert (code, found["prefix"], found["complete"], found["characters"]) == (0, True, n == len(text), n)


@pytest.mark.parametrize(
    ("text", "place", "expected", "path"),
    [
        ("[", (0, 1, 1), ["'{'"], None),
        ('{"name": "é", "tags": [1, 3', (26, 1, 27), None, "#/tags/1"),
        ('{\n"name": 7', (10, 2, 9), None, "#/name"),
        ('{"name": "", "tags": [1]}}', (25, 1, 26), ["the end of the text"], None),
        ('{"n": 1', (3, 1, 4), ["'a'"], None),
    ],
)
def test_the_place_where_a_text_goes_wrong_is_named(
    schema: str, capsys: pytest.CaptureFixture[str], text: str, place: Any, expected: Any, path: str | None
) -> None:
    code, found = told(schema, text, capsys)
    assert (code, found["prefix"], found["complete"]) == (1, False, False)
    assert (found["character"], found["line"], found["column"]) == place
    assert found.get("path") == path
    assert expected is None or found["expected"] == expected


def characters(expected: list[str]) -> set[str]:
    """The ASCII characters that the possible continuations name."""
    ends = [[ast.literal_eval(end) for end in part.split(" to ")] for part in expected if part.startswith(("'", '"'))]
    return {chr(code) for first, *last in ends for code in range(ord(first), ord((last or [first])[0]) + 1)}


@pytest.mark.parametrize("before", ['{"name": "a", "tags": [1', '{"name": "', '{"name": "", "tags": []}'])
def test_what_could_stand_in_a_place_is_what_may_follow(
    schema: str, capsys: pytest.CaptureFixture[str], before: str
) -> None:
    def may_follow(character: str) -> bool:
        found = told(schema, f"{before}{character}z", capsys)[1]
        return bool(found["prefix"] or found["character"] > len(before))

    _, wrong = told(schema, f"{before}\x01", capsys)
    assert characters(wrong["expected"]) == {chr(code) for code in range(128) if may_follow(chr(code))}


def test_a_long_list_of_what_could_stand_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "grammar.gbnf"
    file.write_text('root ::= [acegikmoqsuwy] "b"')
    expected = told(str(file), "b", capsys, "--grammar")[1]["expected"]
    assert expected == [*(repr(letter) for letter in "acegikmoqsuw"), "others"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_final_line_break_that_is_not_allowed_is_no_part_of_the_text(
    schema: str, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    text = json.dumps(VALUE)
    for n in (3, 12, len(text)):
        code, found = told(schema, text[:n] + end, capsys)
        assert (code, found["complete"]) == (0, n == len(text))
    code, found = told(schema, text + end + end, capsys)
    assert (code, found["character"]) == (1, len(text))
    code, found = told(schema, f"[{end}", capsys)
    assert (code, found["character"]) == (1, 0)


def test_people_get_a_sentence(
    schema: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(text: str) -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        main(["validate", schema, "--prefix", "-"])
        return capsys.readouterr().out

    assert said('{"name": "a') == "- is a prefix of an allowed text (in #/name).\n"
    assert said('{"name": "a", "tags": []}') == "- is a whole text.\n"
    assert said('{"n": ') == (
        "- is no prefix of an allowed text: it goes wrong in line 1, column 4, at '\"'. There could stand 'a'.\n"
    )


def test_a_grammar_can_be_asked_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "grammar.gbnf"
    file.write_text('root ::= "a" [0-9]+')
    assert told(str(file), "a1", capsys, "--grammar")[1]["complete"]
    code, found = told(str(file), "b", capsys, "--grammar")
    assert (code, found["expected"]) == (1, ["'a'"])


def test_a_file_that_is_not_there_is_named(schema: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", schema, "--prefix", "no/such"]) != 0
    assert "'no/such' given by --prefix cannot be read (No such file or directory)" in capsys.readouterr().err
