"""``logitloom generate``: the text alone on standard output, everything else on standard error."""

from __future__ import annotations

import io
import json
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from logitloom import document, load_backend, processors
from logitloom.cli.main import main, parser
from tests.core.automata.vocabularies import mixed
from tests.oracles.toy_model import ToyModel

WORDS = mixed()


class Tokenizer:
    """One token per byte."""

    def encode(self, text: str) -> list[int]:
        return [2 + byte for byte in text.encode()]

    def apply_chat_template(self, messages: list[dict[str, str]]) -> str:
        return "".join(f"[{m['role']}]{m['content']}" for m in messages)


class Toy(ToyModel):
    """The toy model with a tokenizer, as model plug-ins give one."""

    vocabulary = WORDS
    tokenizer = Tokenizer()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def prompts(register: Callable[..., None]) -> list[list[int]]:
    """Registers the loader ``toy``; what the model was fed is in the list."""
    fed: list[list[int]] = []

    def load(path: Any, backend: str = "numpy", device: Any = None) -> Toy:
        assert path is None
        model = Toy(load_backend(backend), WORDS.size)
        forward = model.forward

        def recording(tokens: np.ndarray, cache: Any, **more: Any) -> Any:
            fed.append(tokens[0].tolist())
            return forward(tokens, cache, **more)

        model.forward = recording  # type: ignore[method-assign]
        return model

    register("toy", load, kind="models")
    return fed


RAW = ["--loader", "toy", "--raw"]


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (lambda: None, "'odd' cannot be called as commands call it: .*Write def .*path=None, backend='numpy', device"),
        (lambda path: None, "'odd' cannot be called as commands call it: .*'backend'"),
        (lambda path, backend, device: 5, "'odd' returned 5, which has no attribute 'forward'. Return a"),
    ],
)
def test_a_loader_of_another_form_is_named(
    loader: Any, message: str, register: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    register("odd", loader, kind="models")
    assert main(["generate", "hi", "--loader", "odd", "--raw"]) == 1
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.usefixtures("prompts")
def test_standard_output_is_exactly_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "go", *RAW, "--regex", r"[a-c]{3}-\d{2}"]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r"[a-c]{3}-\d{2}", out)
    assert err == ""


@pytest.mark.usefixtures("prompts")
def test_several_texts_stand_on_lines(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["a", "b", *RAW, "--choice", "yes", "--choice", "no", "--sample", "2"]
    assert main(["generate", *arguments]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 4
    assert set(lines) <= {"yes", "no"}


@pytest.mark.usefixtures("prompts")
def test_a_terminal_gets_a_line_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["generate", "a", *RAW, "--choice", "abc"]) == 0
    assert terminal.getvalue() == "abc\n"


@pytest.mark.usefixtures("prompts")
@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_stop_strings_end_the_text(capsys: pytest.CaptureFixture[str], stream: list[str]) -> None:
    assert main(["generate", "a", *RAW, "--choice", "one two", "--stop", "e t", "--stop", "x", *stream]) == 0
    assert capsys.readouterr().out == "on"


@pytest.mark.usefixtures("prompts")
def test_json_tells_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "a", *RAW, "--choice", "日本", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["text"], found["finish"], found["prompt"]) == ("日本", "eos", 0)
    assert WORDS.decode(found["tokens"]) == "日本"
    assert [each["token"] for each in found["sampled"]][: len(found["tokens"])] == found["tokens"]
    assert sum(each["logprob"] for each in found["sampled"]) == pytest.approx(found["logprob"], abs=1e-5)


@pytest.mark.usefixtures("prompts")
@pytest.mark.parametrize("extra", [[], ["--stream"]])
def test_json_tells_what_each_token_was_sampled_from(capsys: pytest.CaptureFixture[str], extra: list[str]) -> None:
    options = ["--use", "top_k", "--set", "top_k.k=4", "--sample", "--max-tokens", "5", "--json"]
    assert main(["generate", "a", *RAW, *options, *extra]) == 0
    out = capsys.readouterr().out
    found = [json.loads(line) for line in out.splitlines()] if extra else json.loads(out)
    sampled = [each for piece in found for each in piece["sampled"]]
    assert [each["kept"] for each in sampled] == [4] * len(sampled)
    assert all(each["logprob"] > each["logprob_before"] for each in sampled)
    assert all(0 < each["entropy"] <= np.log(4) for each in sampled)


@pytest.mark.usefixtures("prompts")
def test_a_json_stream_joins_to_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "a", "b", *RAW, "--choice", "日本!", "--json", "--stream"]) == 0
    pieces = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for prompt in (0, 1):
        assert "".join(p["text"] for p in pieces if p["prompt"] == prompt) == "日本!"


def test_the_prompt_may_come_from_standard_input(
    prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("xy"))
    assert main(["generate", "-", *RAW, "--choice", "a"]) == 0
    assert prompts[0][:2] == Tokenizer().encode("xy")
    assert capsys.readouterr().out == "a"


def test_the_chat_template_wraps_the_prompt(prompts: list[list[int]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "hi", "--loader", "toy", "--system", "be", "--choice", "a"]) == 0
    assert bytes(t - 2 for t in prompts[0][:18]) == b"[system]be[user]hi"
    assert capsys.readouterr().out == "a"


def test_shortcuts_stand_before_samplers_and_behind_penalties() -> None:
    from logitloom.cli.generate import build_chain

    def labels(*arguments: str) -> tuple[str, ...]:
        return build_chain(parser().parse_args(["generate", "x", *arguments])).labels

    use = ["--use", "frequency_penalty", "--use", "temperature", "--use", "top_k", "--set", "top_k.k=3"]
    assert labels("--regex", "a", "--stop", "b", *use) == ("frequency_penalty", "regex", "stop", "temperature", "top_k")
    assert labels("--use", "stop", "--set", "stop.strings=['x']", "--stop", "b") == ("stop", "stop#2")
    assert labels("--choice", "a") == ("choice",)
    assert labels("--use", "top_k") == ("top_k",)


def test_shortcuts_take_more_options() -> None:
    from logitloom.cli.generate import build_chain

    arguments = ["generate", "x", "--regex", "a", "--set", "regex.ignore_case=true", "--use", "top_k"]
    chain = build_chain(parser().parse_args(arguments))
    assert chain["regex"].ignore_case
    assert chain["regex"].pattern == "a"


@pytest.mark.usefixtures("prompts")
@pytest.mark.parametrize("in_file", [True, False])
def test_a_schema_shapes_the_text(tmp_path: Any, capsys: pytest.CaptureFixture[str], in_file: bool) -> None:
    given = '{"type": "array", "items": {"enum": [12, "ab"]}, "minItems": 2, "maxItems": 2}'
    if in_file:
        path = tmp_path / "schema.json"
        path.write_text(given, encoding="utf-8")
        given = str(path)
    assert main(["generate", "a", *RAW, "--json-schema", given, "--set", "json.whitespace=compact"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 2
    assert set(found) <= {12, "ab"}


@pytest.mark.extras
@pytest.mark.usefixtures("prompts")
@pytest.mark.parametrize(("name", "text"), [("g.gbnf", 'root ::= "ab" [12]'), ("g.lark", 'start: "ab" /[12]/')])
def test_a_grammar_shapes_the_text(tmp_path: Any, capsys: pytest.CaptureFixture[str], name: str, text: str) -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with warnings.catch_warnings(action="default"):
        assert main(["generate", "a", *RAW, "--grammar", str(path)]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch("ab[12]", out)
    # The engine does not tell how far the end of a text of a Lark grammar is.
    assert ("Set the option 'finish_within' of grammar to 0 if they may be cut." in err) == (name == "g.lark")


def test_shortcuts_extend_a_document(tmp_path: Any) -> None:
    from logitloom.cli.generate import build_chain

    path = tmp_path / "chain.toml"
    path.write_text(document.to_toml(processors.load("temperature")), encoding="utf-8")
    chain = build_chain(parser().parse_args(["generate", "x", "--chain", str(path), "--regex", "a"]))
    assert chain.labels == ("regex", "temperature")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--regex", "(a"], "pattern"),
        (["--regex", r"(a)\1"], "back-reference"),
        (["--stop", ""], "empty"),
        (["--json-schema", "no-schema.json"], "no-schema.json"),
        (["--json-schema", ""], "The schema is an empty text."),
        (["--grammar", " "], "The grammar is an empty text."),
        (["--grammar", "no-grammar.lark"], "no-grammar.lark"),
        (["--use", "no_such_thing"], "no_such_thing"),
        (["--use", "top_k", "--set", "top_k"], "NAME.OPTION=VALUE"),
        (["--use", "top_k", "--set", "top_k.k=0"], "k"),
        (["--chain", "missing.toml", "--use", "top_k"], "not both"),
        (["--chain", "missing.toml"], "missing.toml"),
        (["--loader", "no_such_model"], "no_such_model"),
    ],
)
@pytest.mark.usefixtures("prompts")
def test_errors_are_one_sentence_on_standard_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    loader = [] if "--loader" in arguments else ["--loader", "toy"]
    assert main(["generate", "x", "--raw", *loader, *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("logitloom: ")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [[], ["generate"], ["generate", "x", "--regex", "a", "--choice", "b"], ["other"]])
def test_wrong_usage_exits_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "usage:" in err


@pytest.mark.usefixtures("prompts")
def test_an_interruption_exits_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*args: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("logitloom.cli.generate.Generator", interrupted)
    assert main(["generate", "x", *RAW]) == 130
    assert capsys.readouterr().err == "logitloom: Interrupted.\n"


@pytest.mark.usefixtures("prompts")
def test_statistics_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "a", *RAW, "--choice", "ab", "--stats"]) == 0
    out, err = capsys.readouterr()
    assert out == "ab"
    assert re.fullmatch(r"\d+ tokens in \d+\.\d\d s, \d+\.\d tokens/s\n", err)


def test_an_option_that_is_a_processor_is_told_how_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["generate", "x", "--top-k=5", "--other", "1"])
    said = " ".join(capsys.readouterr().err.split())
    assert "unrecognized arguments: --top-k=5 --other 1" in said
    assert said.endswith("--use top_k --set top_k.OPTION=VALUE, and 'logitloom plugins top_k' tells its options.")


def test_one_text_where_several_are_expected_is_told_to_be_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "x", "--use", "stop", "--set", "stop.strings=ab"]) == 1
    assert capsys.readouterr().err.endswith("but is 'ab' (str). Give a list: ['ab'].\n")


@pytest.mark.parametrize("flag", ["--sample", "--beams"])
def test_numbers_of_sequences_are_named_as_options(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "x", flag, "0"]) == 1
    assert f"The argument '{flag}' must be a whole number of at least 1, but is 0." in capsys.readouterr().err
