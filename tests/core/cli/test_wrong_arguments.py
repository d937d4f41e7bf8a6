"""Every command x every kind of wrong argument: an exit code and a sentence on standard error, never a traceback."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from logitloom.cli.main import main, parser

#: What a file may hold that it should not.
CONTENTS: dict[str, bytes] = {
    "empty": b"", "binary": b"\x00\xff\xfe\x80", "not UTF-8": b'{"a": "\xff"}', "a deep list": b"[" * 100_000,
    "a deep table": b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "cut": b'{"a": [1, ', "a number": b"5", "null": b"null",
    "a text": b'"x"', "a list": b"[1, 2]", "a list of a text": b'["x"]', "a long number": b"[" + b"9" * 5_000 + b"]",
    "a large number": b"[99999999999999999999]", "NaN": b"[NaN]", "a negative number": b"[-1]", "a half": b"[0.5]",
    "half a surrogate pair": b'{"enum": ["\\ud800"]}', "a null character": b'{"pattern": "\\u0000("}',
    "a chain": b'{"logitloom": 1, "processor": [{"use": 5}]}', "another version": b'{"logitloom": 99}',
    "TOML": b"[a]\nb = 1", "a schema that is none": b'{"type": 5}', "what calls itself": b'{"$ref": "#"}',
}  # fmt: skip
DETECT = ["detect", "watermark_greenlist", "--set", "key=3"]
#: Commands with a file in them.
WITH_FILE: dict[str, list[str]] = {
    "detect, ids": [*DETECT, "--ids", "{file}", "--vocab-size", "16"],
    "detect, text": [*DETECT, "{file}", "--tokenizer", "{file}", "--vocab-size", "16"],
    "validate": ["validate", "{file}", "--set", "max_seconds=0.2", "--set", "max_states=500"],
    "validate, prefix": ["validate", "{file}", "--prefix", "{file}"],
    "validate, grammar": ["validate", "--grammar", "{file}"],
    "generate, chain": ["generate", "--chain", "{file}", "--model", "{file}", "Hello"],
    "generate, model": ["generate", "--model", "{file}", "Hello"],
    "automaton": ["automaton", "a", "--model", "{file}"],
}
#: Wrong values of options: each must be told apart from a fault of the command.
VALUES = ["", "x", "-1", "0", "0.5", "nan", "inf", "1e400", "9" * 30, "[1", "{}", "\x00", "\x1b[31m", "é" * 3000]
WITH_VALUE: dict[str, list[str]] = {
    "detect, processor": ["detect", "{value}", "--ids", "{ids}", "--vocab-size", "16"],
    "detect, vocab-size": [*DETECT, "--ids", "{ids}", "--vocab-size", "{value}"],
    "detect, threshold": [*DETECT, "--ids", "{ids}", "--vocab-size", "16", "--threshold", "{value}"],
    "detect, set": ["detect", "watermark_greenlist", "--ids", "{ids}", "--vocab-size", "16", "--set", "{value}"],
    "detect, key": ["detect", "watermark_greenlist", "--ids", "{ids}", "--vocab-size", "16", "--set", "key={value}"],
    "detect, file": [*DETECT, "--ids", "{value}", "--vocab-size", "16"],
    "validate, file": ["validate", "{value}"],
    "validate, set": ["validate", "{schema}", "--set", "{value}"],
    "validate, max_states": ["validate", "{schema}", "--set", "max_states={value}"],
    "automaton": ["automaton", "{value}"],
    "automaton, max-states": ["automaton", "a", "--max-states", "{value}"],
    "automaton, draw": ["automaton", "a", "--draw", "{value}"],
    "plugins": ["plugins", "{value}"],
    "new": ["new", "{value}", "{value}"],
    "new, name": ["new", "engine", "{value}"],
    "check": ["check", "{value}"],
    "generate, processor": ["generate", "--use", "{value}", "--model", "nothing", "Hello"],
    "generate, sample": ["generate", "--sample", "{value}", "--model", "nothing", "Hello"],
    "generate, beams": ["generate", "--beams", "{value}", "--model", "nothing", "Hello"],
    "generate, particles": ["generate", "--particles", "{value}", "--model", "nothing", "Hello"],
    "generate, max-tokens": ["generate", "--max-tokens", "{value}", "--model", "nothing", "Hello"],
    "generate, set": ["generate", "--set", "{value}", "--model", "nothing", "Hello"],
    "doctor, server": ["doctor", "--server", "{value}"],
    "unknown": ["{value}"],
}


def told(arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The exit code, and what was said to the person."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    try:
        code: Any = main(arguments)
    except SystemExit as ended:
        code = ended.code
    return code, capsys.readouterr().err


def check(code: int, said: str, arguments: list[str]) -> None:
    assert code in (0, 1, 2), (code, said, arguments)
    if code:
        assert code == 2 or re.search(r"[a-z]{2,} .*", said) or not said, (said, arguments)
    assert "Traceback" not in said


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WITH_FILE)
@pytest.mark.long
def test_any_file_is_read_or_refused_with_a_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, content in CONTENTS.items():
        for suffix in (".json", ".toml"):
            path = tmp_path / f"{kind.replace(' ', '-')}{suffix}"
            path.write_bytes(content)
            arguments = [part.replace("{file}", str(path)) for part in WITH_FILE[name]]
            check(*told(arguments, capsys, monkeypatch), arguments)
    for path in (tmp_path, tmp_path / "nothing", Path("/dev/null")):
        arguments = [part.replace("{file}", str(path)) for part in WITH_FILE[name]]
        check(*told(arguments, capsys, monkeypatch), arguments)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WITH_VALUE)
@pytest.mark.long
def test_any_value_of_an_argument_is_taken_or_refused_with_a_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids.json").write_text("[1, 2, 3]")
    (tmp_path / "schema.json").write_text('{"enum": [1]}')
    given = {"{ids}": "ids.json", "{schema}": "schema.json"}
    for value in VALUES:
        arguments = [given.get(part, part.replace("{value}", value)) for part in WITH_VALUE[name]]
        check(*told(arguments, capsys, monkeypatch), arguments)


def test_every_row_is_a_command_but_for_the_wrong_part() -> None:
    for name, row in {**WITH_FILE, **WITH_VALUE}.items():
        if name not in ("unknown", "new"):
            parser().parse_args(["1" if part == "{value}" else part for part in row])


def test_every_command_has_a_row() -> None:
    (commands,) = (action for action in parser()._actions if action.dest == "command")
    rows = {row[0] for row in (*WITH_FILE.values(), *WITH_VALUE.values())}
    # The command kernels takes no values.
    assert set(commands.choices or ()) - {"kernels"} <= rows


@pytest.mark.parametrize("pattern", ["-?[0-9]+", "-[0-9]", r"-\d", "-$"])
def test_a_pattern_may_begin_with_a_dash(pattern: str) -> None:
    assert parser().parse_args(["automaton", pattern, "--json"]).pattern == pattern
    assert parser().parse_args(["generate", "--regex", pattern, "Hi"]).regex == pattern


def test_only_arguments_that_must_be_given_are_told_as_required(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = told(["kernels"], capsys, monkeypatch)
    assert (code, said.rstrip().endswith("required: action")) == (2, True)


def test_what_stands_behind_two_dashes_is_no_option() -> None:
    assert parser().parse_args(["automaton", "--json", "--", "-abc"]).pattern == "-abc"
    assert parser().parse_args(["generate", "--max-tokens", "3", "--", "-a", "--b"]).prompt == ["-a", "--b"]


def test_a_value_with_a_dash_is_told_how_it_is_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = told(["generate", "Hi", "--stop", "-x"], capsys, monkeypatch)
    assert (code, said.splitlines()[-1]) == (2, "A value that begins with - stands behind =, such as --stop=-x.")
    assert parser().parse_args(["generate", "Hi", "--stop=-x"]).stop == ["-x"]


def test_standard_input_is_one_prompt(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = told(["generate", "-", "-"], capsys, monkeypatch)
    assert code == 1
    assert "Standard input is read once, so - can stand for one prompt only. Give the others as text." in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([*DETECT, "text.txt", "--ids", "a.json"], "--ids names the file with the text, so leave out 'text.txt', or"),
        ([*DETECT, "--model", "a", "--tokenizer", "b"], "argument --tokenizer: not allowed with argument --model"),
        (["validate", "{}", "--model", "--prefix", "a"], "argument --prefix: not allowed with argument --model"),
        (["validate", 'root ::= "a"'], """'root ::= "a"' is a grammar, and no JSON Schema. Give it with --grammar."""),
        (["plugins", "top_k", "--kind", "backends"], "--kind lists plug-ins, and 'top_k' is described. Leave out one"),
    ],
)
def test_no_option_is_ignored_beside_another(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        main(given)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["--max_tokens", "3"], "Did you mean --max-tokens?"),
        (["--max-new-tokens=3"], "Did you mean --max-tokens?"),
        (["--schema", "x"], "Did you mean --json-schema?"),
        (["--topk", "3"], "top_k is a processor: generate takes it as --use top_k --set top_k.OPTION=VALUE"),
        (["--temp", "0.7"], "temperature is a processor: generate takes it as --use temperature"),
    ],
)
def test_an_option_that_there_is_not_is_told_apart_from_one_like_it(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = told(["generate", "Hello", *arguments], capsys, monkeypatch)
    assert code == 2
    assert f"unrecognized arguments: {' '.join(arguments)}\n{meant}" in said


def test_each_command_is_compared_with_its_own_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Did you mean --json?" in told(["doctor", "--jsn"], capsys, monkeypatch)[1]
    assert "Did you mean" not in told(["doctor", "nothing"], capsys, monkeypatch)[1]


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("--regex", "Write one pattern, such as A|B."),
        ("--json-schema", 'Write one schema, such as {"anyOf": [A, B]}.'),
        ("--grammar", "Write one grammar."),
        ("--chain", "Write one document."),
        ("--system", "Give it once."),
        ("--draft", "Give it once."),
    ],
)
def test_what_a_text_follows_is_given_once(
    option: str, remedy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = told(["generate", option, "a", "Hello", f"{option}=b"], capsys, monkeypatch)
    assert code == 2
    assert f"argument {option}: given twice, as 'a' and 'b'. {remedy}" in said


@pytest.mark.parametrize("option", ["--chain", "--trace", "--draft", "--stop", "--avoid", "--block"])
def test_an_empty_value_is_refused(
    option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = told(["generate", "--model", "nothing", "Hello", option, ""], capsys, monkeypatch)
    assert (code, said) == (1, f"logitloom: {option} is given an empty text. Give it a value, or leave it out.\n")
