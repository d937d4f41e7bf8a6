"""``logitloom generate`` says what was cut and what has no effect, and a model's text does not steer a terminal."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from logitloom import load_backend
from logitloom.cli.generate import parse_setting
from logitloom.cli.main import main
from logitloom.cli.terminal import complain, harmless
from logitloom.errors import OptionError
from tests.core.cli.toy import WORDS, Toy

RAW = ["--loader", "toy", "--raw"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _toy(register: Callable[..., None]) -> None:
    def load(path: Any, backend: str = "numpy", device: Any = None) -> Toy:
        return Toy(load_backend(backend), WORDS.size)

    register("toy", load, kind="models")


@pytest.mark.parametrize("extra", [[], ["--stream"], ["--json"], ["--json", "--stream"], ["--beams", "2"]])
def test_a_constraint_that_was_cut_is_told_with_exit_code_3(extra: list[str], capsys: Any) -> None:
    long = ["generate", "a", *RAW, "--regex", "[a-c]{200}", "--max-tokens", "5"]
    assert main([*long, "--set", "regex.finish_within=0", *extra]) == 3
    out, err = capsys.readouterr()
    assert "Sequence 0 of prompt 0 was cut by --max-tokens before regex let it end" in err
    if "--json" in extra:
        told = json.loads(out.splitlines()[-1]) if "--stream" in extra else json.loads(out)[0]
        assert told["unfinished"] == ["regex"]


def test_a_limit_that_no_text_fits_into_is_an_error_that_names_the_least(capsys: Any) -> None:
    assert main(["generate", "a", *RAW, "--regex", "[a-c]{200}", "--max-tokens", "5"]) == 1
    said = capsys.readouterr().err
    assert "Allow at least 68 tokens" in said
    assert "or set the option 'finish_within' of regex to 0 for texts that may be cut." in said
    assert main(["generate", "a", *RAW, "--regex", "[a-c]{200}", "--max-tokens", "68"]) == 0


@pytest.mark.parametrize("pattern", ["[a-c]{3}", "[a-c]*"])
def test_a_text_that_may_end_where_it_was_cut_is_complete(pattern: str, capsys: Any) -> None:
    assert main(["generate", "a", *RAW, "--regex", pattern, "--max-tokens", "40", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)[0]["unfinished"] == []
    assert err == ""


def test_without_a_constraint_nothing_is_unfinished(capsys: Any) -> None:
    assert main(["generate", "a", *RAW, "--max-tokens", "3"]) == 0
    assert capsys.readouterr().err == ""


def test_greedy_decoding_says_which_processors_have_no_effect(capsys: Any) -> None:
    sharp = ["--use", "temperature", "--set", "temperature.temperature=0.5", "--use", "top_k", "--set", "top_k.k=3"]
    assert main(["generate", "a", *RAW, "--max-tokens", "2", *sharp]) == 0
    assert "No effect: temperature, top_k." in capsys.readouterr().err
    for other in (["--sample"], ["--beams", "2"]):
        assert main(["generate", "a", *RAW, "--max-tokens", "2", *sharp, *other]) == 0
        assert "No effect" not in capsys.readouterr().err


# -- terminals --------------------------------------------------------------------------------------------

STEERING = ["\x1b[2J", "\x1b]52;c;aGk=\x07", "\x9b31m", "\r", "\b", "\x00", "\x7f", "\u202e", "\u2066", "\u2028"]


@pytest.mark.parametrize("stream", [[], ["--stream"]])
@pytest.mark.parametrize("text", STEERING)
@pytest.mark.long
def test_a_models_text_does_not_steer_a_terminal(text: str, stream: list[str], monkeypatch: Any, capsys: Any) -> None:
    command = ["generate", "a", *RAW, "--choice", f"a{text}b\tc\nd", "--max-tokens", "60", *stream]
    terminal = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", terminal)
        assert main(command) == 0
    shown = terminal.getvalue()
    assert text not in shown
    assert all(c in "\t\n" or c.isprintable() for c in shown)
    assert "b\tc\nd" in shown
    assert main(command) == 0
    assert capsys.readouterr().out == f"a{text}b\tc\nd"


def test_errors_do_not_steer_a_terminal_either(monkeypatch: Any) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    complain("no \x1b[2J \ud800")
    assert terminal.getvalue() == "logitloom: no \\x1b[2J \\ud800\n"
    assert harmless("日本 é\t\n", terminal) == "日本 é\t\n"


# -- arguments --------------------------------------------------------------------------------------------


def test_an_argument_that_cannot_be_decoded_is_wrong_usage(capsys: Any) -> None:
    assert main(["generate", "caf\udce9"]) == 2
    assert "is not in the encoding of the terminal" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ('{"1": -2.5}', {"1": -2.5}),
        ('[{"name": null}]', [{"name": None}]),
        ("{a = 1}", {"a": 1}),
        ("[0-9]{4}", "[0-9]{4}"),
        ('{"a": 1', '{"a": 1'),
        ("null", "null"),
    ],
)
def test_values_are_toml_or_json_or_else_text(value: str, read: Any) -> None:
    assert parse_setting(f"some.option={value}") == ("some", "option", read)


@pytest.mark.parametrize("value", ["123", "true", "[12]", '"123"'])
def test_a_value_of_an_option_that_is_a_text_is_that_text(value: str, capsys: Any) -> None:
    assert main(["generate", "a", *RAW, "--use", "regex", "--set", f"regex.pattern={value}"]) == 0
    assert capsys.readouterr().out == {"[12]": "1", '"123"': "123"}.get(value, value)


def test_nested_toml_is_refused(tmp_path: Any) -> None:
    with pytest.raises(OptionError, match="nested too deeply"):
        parse_setting("top_k.k=" + "[" * 50_000)
    path = tmp_path / "chain.toml"
    path.write_text("logitloom = 1\na = " + "[" * 50_000)
    assert main(["generate", "a", *RAW, "--chain", str(path)]) == 1
