"""``logitloom generate --trace``: a page beside the text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logitloom import Context
from logitloom.cli.main import main
from logitloom.errors import GenerationError
from tests.core.cli.test_generate import prompts

__all__ = ["prompts"]  # a fixture


@pytest.mark.usefixtures("prompts")
@pytest.mark.parametrize(
    "way", [[], ["--sample", "2"], ["--beams", "3"], ["--stream"], ["--draft", "prompt_lookup"], ["--heal"]]
)
def test_a_traced_generation_prints_the_same_text_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: list[str]
) -> None:
    command = ["generate", "abcabcab", "--raw", "--loader", "toy", "--max-tokens", "9", "--regex", "[a-c]{12,20}", *way]
    code = main(command)
    assert code in (0, 3)  # 3: the text was cut before the pattern matched
    plain = capsys.readouterr().out
    page = tmp_path / "trace.html"
    assert main([*command, "--trace", str(page)]) == code
    told = capsys.readouterr()
    assert told.out == plain
    assert f"The trace is in {page}" in told.err
    text = page.read_text(encoding="utf-8")
    begin = text.index('id="trace">') + len('id="trace">')
    held = json.loads(text[begin : text.index("</script>", begin)])
    assert held["labels"] == ["regex"]
    texts = [sequence["text"] for sequence in held["sequences"]]
    if "--stream" in way:  # the record follows the row, and the last choice was never processed
        assert plain.startswith(texts[0])
    else:
        assert texts == plain.splitlines()


def test_a_page_that_cannot_be_written_is_an_error_before_the_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "a", "--loader", "none of these", "--trace", str(tmp_path / "trace.txt")]) == 1
    assert "ends in .html" in capsys.readouterr().err


class Failing:
    """Raises ``error`` at its fourth step."""

    needs = frozenset({"length"})
    error: BaseException = GenerationError("It failed.")

    def process(self, logits: Any, state: Any, context: Context) -> Any:
        if context.length[0] >= len("abcabcab") + 3:
            raise self.error
        return logits, state


@pytest.mark.usefixtures("prompts")
@pytest.mark.parametrize(("error", "code"), [(GenerationError("It failed."), 1), (KeyboardInterrupt(), 130)])
def test_what_was_recorded_before_an_error_is_on_the_page(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    register: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
) -> None:
    monkeypatch.setattr(Failing, "error", error)
    register("failing", Failing)
    page = tmp_path / "trace.html"
    command = ["generate", "abcabcab", "--raw", "--loader", "toy", "--max-tokens", "9", "--use", "failing"]
    assert main([*command, "--trace", str(page)]) == code
    assert f"The trace is in {page}: 3 steps." in capsys.readouterr().err
    assert '"labels":["failing"]' in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("prompts")
def test_the_trace_is_not_called_a_processor_without_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "generate",
        "ab",
        "--raw",
        "--loader",
        "toy",
        "--max-tokens",
        "2",
        "--use",
        "top_k",
        "--set",
        "top_k.k=3",
    ]
    main([*command, "--trace", str(tmp_path / "trace.html")])
    assert "No effect: top_k. " in capsys.readouterr().err
