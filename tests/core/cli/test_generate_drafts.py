"""``logitloom generate --draft``: the same text, and on request how the drafts fared."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from logitloom import load_backend
from logitloom.cli.main import main
from tests.core.cli.test_generate import RAW, WORDS, Toy

STATISTICS = re.compile(
    r"\d+ tokens in \d+\.\d\d s, \d+\.\d tokens/s\n"
    r"(\d+) of (\d+) drafted tokens accepted \((\d+) %\), (\d+\.\d\d) tokens per target pass, "
    r"time: drafts \d+ %, target \d+ %, chain \d+ %\n"
)


@pytest.fixture(autouse=True)
def paths(register: Callable[..., None]) -> list[Any]:
    """Registers the loader ``toy``; the paths that were asked for are in the list."""
    asked: list[Any] = []

    def load(path: Any, backend: str = "numpy", device: Any = None) -> Toy:
        asked.append(path)
        # A drafting model is the same model with some noise.
        model = Toy(load_backend(backend), WORDS.size)
        if path is not None:
            model.tables = model.tables + Toy(load_backend(backend), WORDS.size, seed=1).tables * 0.2
        return model

    register("toy", load, kind="models")
    return asked


def text_and_report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    assert main(["generate", "go go go", *RAW, "--max-tokens", "24", *arguments]) == 0
    out, err = capsys.readouterr()
    return out, err


DRAFTS: dict[str, list[str]] = {
    "prompt_lookup": ["--draft-set", "prompt_lookup.max_ngram=1"],
    "ngram_cache": ["--draft-set", "ngram_cache.num_tokens=3"],
    "grammar": [],
    "assistant": ["--draft-set", "assistant.model=small.gguf", "--draft-set", "assistant.confidence_threshold=0.0"],
    "universal": ["--draft-set", "universal.model=small.gguf", "--draft-set", "universal.schedule=heuristic"],
    "assistant_retokenized": ["--draft-set", "assistant_retokenized.model=small.gguf"],
}


@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("constraint", [[], ["--regex", r"(ab|cd)[a-f]{4}-(go )*xyz"]], ids=["free", "regex"])
@pytest.mark.parametrize("stream", [[], ["--stream"]], ids=["whole", "stream"])
@pytest.mark.long
def test_drafts_leave_the_text_as_it_is(
    capsys: pytest.CaptureFixture[str], name: str, constraint: list[str], stream: list[str]
) -> None:
    plain, _ = text_and_report(capsys, *constraint)
    drafted, report = text_and_report(capsys, *constraint, *stream, "--draft", name, *DRAFTS[name])
    assert drafted == plain
    assert report == ""


def test_the_drafting_model_is_loaded_from_its_own_file(capsys: pytest.CaptureFixture[str], paths: list[Any]) -> None:
    text_and_report(capsys, "--draft", "assistant", *DRAFTS["assistant"])
    assert paths == ["small.gguf", None]


def test_statistics_tell_how_drafts_fared(capsys: pytest.CaptureFixture[str]) -> None:
    _, report = text_and_report(capsys, "--draft", "assistant", *DRAFTS["assistant"], "--stats")
    found = STATISTICS.fullmatch(report)
    assert found is not None, report
    accepted, drafted, percent = map(int, found.groups()[:3])
    assert 0 < accepted <= drafted
    assert percent == round(100 * accepted / drafted)
    assert float(found[4]) > 1


def test_without_drafts_there_is_nothing_to_tell_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert "drafted" not in text_and_report(capsys, "--stats")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--draft", "no_such_drafts"], "no_such_drafts"),
        (["--draft", "prompt_lookup", "--draft-set", "max_ngram=3"], "NAME.OPTION=VALUE"),
        (["--draft", "prompt_lookup", "--draft-set", "ngram_cache.num_tokens=3"], "which is 'prompt_lookup'"),
        (["--draft", "prompt_lookup", "--draft-set", "prompt_lookup.max_ngram=0"], "max_ngram"),
        (["--draft", "prompt_lookup", "--draft-set", "prompt_lookup.depth=2"], "depth"),
        (["--draft-set", "prompt_lookup.max_ngram=3"], "--draft-set sets options of --draft"),
        (["--draft", "assistant"], "model"),
        (["--draft", "early_exit", "--draft-set", "early_exit.layers=1"], "first_layers"),
        (["--draft", "prompt_lookup", "--beams", "2"], "--beams cannot use drafts"),
    ],
)
def test_errors_name_what_is_wrong(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(["generate", "x", *RAW, *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("logitloom: ")
    assert message in err
    assert "Traceback" not in err
