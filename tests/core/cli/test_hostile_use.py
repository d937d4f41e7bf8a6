"""Wrong arguments cost no reading of a model, and nothing a shell can do to the command ends in a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from logitloom.cli.main import main
from logitloom.errors import ModelError
from logitloom.host import registry

LONG = "a" * 300


@pytest.fixture
def no_model() -> Any:
    """A loader of models that must not be called."""

    def load(*given: Any, **more: Any) -> None:
        raise AssertionError(f"a model was read: {given}")

    registry.register("unread", load, kind="models")
    yield
    registry.unregister("unread", kind="models")


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--max-tokens", "0"], "at least 1"),
        (["--seed", str(1 << 70)], "--seed"),
        (["--use", "regex"], "misses options (regex: pattern). Give them: --set regex.pattern=VALUE."),
        (["--use", "top_k", "--set", "top_k.k=0"], "must be >= 1"),
        (["--set", "top_k.k=3"], "--set gives options to 'top_k', but --use names no processor. Add --use top_k, or"),
        (["--use", "top_p", "--set", "top_k.k=3"], "gives options to 'top_k', but --use names top_p. Add --use top_k"),
        (["--use", "top_k", "--set", "top_k#2.k=3"], "Options were given for 'top_k#2', but the chain has top_k"),
        (["--raw", "--system", "x"], "--system belongs"),
        (["--draft", "nothing"], "no candidate 'nothing'"),
        (
            ["--draft", "prompt_lookup", "--draft-set", "prompt_lookup.n=3"],
            "logitloom: 'prompt_lookup' has no option 'n'",
        ),
        (["--draft", "prompt_lookup", "--beams", "2"], "--beams cannot use drafts. Leave out --draft, or decode gree"),
        (["--draft", "prompt_lookup", "--contrastive"], "--contrastive cannot use drafts. Leave out --draft"),
        (["--avoid", "x", "--beams", "2"], "--avoid takes tokens back, which --beams cannot follow. Leave out one"),
        (["--draft", "prompt_lookup", "--particles"], "--particles cannot use drafts. Leave out --draft"),
        (["--avoid", "x", "--particles"], "which --particles cannot follow"),
        (["--particles", "0"], "The argument '--particles' must be a whole number of at least 1, but is 0."),
        (["--particles", "--resample-below", "2"], "--resample-below must be from 0 to 1, but is 2.0."),
        (["--resample-below", "0.5"], "--resample-below belongs to --particles, so it needs --particles."),
        (["--particles", "--stream"], "--stream cannot show --particles"),
        (["--particles", "--trace", "x.html"], "--trace cannot show --particles"),
        (["--avoid", "x", "--contrastive"], "which --contrastive cannot follow"),
        (["--avoid", "x", "--draft", "prompt_lookup"], "which --draft cannot follow"),
        (["--contrastive", "0"], "The argument '--contrastive' must be a whole number of at least 1, but is 0."),
        (["--contrastive", "--penalty-alpha", "2"], "--penalty-alpha must be from 0 to 1, but is 2.0."),
        (["--contrastive", "--penalty-alpha", "nan"], "The argument '--penalty-alpha' must be a finite number"),
        (["--beams", "2", "--length-penalty", "inf"], "The argument '--length-penalty' must be a finite number"),
        (["--use", "top_k", "--block", "top_k"], "is blocked, by the argument 'block' (--block of commands) or by the"),
        (["--beams", "0"], "at least 1"),
        (["--return", "3"], "needs --beams"),
        (["--length-penalty", "2"], "--length-penalty belongs to --beams"),
        (["--penalty-alpha", "0.5", "--sample"], "--penalty-alpha belongs to --contrastive"),
        (["--draft", "prompt_lookup", "--draft-set", "max_ngram=3"], "--draft-set takes NAME.OPTION=VALUE"),
        (["--sample", "2", "--stream"], "only be streamed with --json"),
        (["--avoid", ""], "--avoid is given an empty text"),
        (["--draft", "assistant"], "needs the option: model"),
        (["--draft", "assistant", "--draft-set", "assistant.model=3"], "takes the path of a model, but got 3"),
        (["--stream", "--beams", "2"], "--stream cannot show --beams"),
        (["--device", "cuda:7"], "The backend 'numpy' has no device 'cuda:7'"),
        (["--backend", "nothing"], "no backend 'nothing'"),
        (["--json-schema", LONG], "File name too long"),
        (["--json-schema", "no_such_module:Name"], "cannot be imported"),
        (["--json-schema", "fractions:Fractoin"], "Did you mean 'Fraction'?"),
        (["--chain", LONG], "File name too long"),
        (["--use", LONG], "There is no processor"),
    ],
)
def test_what_is_wrong_is_said_before_a_model_is_read(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "hi", "--loader", "unread", *arguments]) == 1
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


def test_too_little_memory_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def load(*given: Any, **more: Any) -> None:
        raise MemoryError("Unable to allocate 938. MiB")

    registry.register("large", load, kind="models")
    try:
        assert main(["generate", "hi", "--loader", "large", "--beams", "100000"]) == 1
    finally:
        registry.unregister("large", kind="models")
    said = capsys.readouterr().err
    assert "The memory is too small: Unable to allocate 938. MiB. Ask for fewer or shorter texts at once." in said


def test_a_missing_drafting_model_is_told_before_the_model_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    read = []

    def load(path: str | None, **more: Any) -> None:
        read.append(path)
        if path is not None:
            raise ModelError(f"There is no model file {path!r}.")

    registry.register("some", load, kind="models")
    try:
        draft = ["--draft", "assistant", "--draft-set", "assistant.model=absent.gguf"]
        assert main(["generate", "hi", "--loader", "some", *draft]) == 1
    finally:
        registry.unregister("some", kind="models")
    assert "There is no model file 'absent.gguf'" in capsys.readouterr().err
    assert read == ["absent.gguf"]


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--vocab-size", "0"], "--vocab-size must be the number of logits, from 1 to"),
        (["--threshold", "7"], "--threshold is a p-value, from 0 to 1, but is 7.0"),
        (["--set", "kye=1"], "has no option 'kye'"),
        (["--set", "key"], "--set takes OPTION=VALUE, but got 'key'"),
    ],
)
def test_detect_says_what_is_wrong_before_a_model_is_read(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("a text")
    command = ["detect", "watermark_greenlist", str(tmp_path / "text.txt"), "--loader", "unread", "--set", "key=1"]
    assert main([*command, *arguments]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "broken.json", "--model", "absent.gguf"],
        ["automaton", "(", "--model", "absent.gguf"],
        ["automaton", "a", "--draw", "a.jpeg", "--model", "absent.gguf"],
    ],
)
def test_what_is_compiled_is_checked_before_a_vocabulary_is_read(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.json").write_text('{"type": "nothing"}')
    assert main(arguments) == 1
    assert "absent.gguf" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["plugins", LONG],
        ["validate", LONG],
        ["detect", LONG],
        ["detect", "watermark_gumbel", LONG],
        ["automaton", "x", "--model", LONG],
        ["doctor", "--server", "http://[::1"],
        ["doctor", "--server", "http://local host:1"],
        ["doctor", "--server", LONG],
        ["doctor", "--model", "x"],
    ],
)
def test_hostile_arguments_get_a_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith("logitloom: ")
    assert "Traceback" not in said


@pytest.mark.extras
def test_a_schema_is_a_class_of_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import dataclasses\n@dataclasses.dataclass\nclass Cat:\n    name: str\n    lives: int\n"
    (tmp_path / "cats_of_a_test.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    pytest.importorskip("pydantic")
    assert main(["validate", "cats_of_a_test:Cat", "--json"]) == 0
    assert '"engine": "table"' in capsys.readouterr().out


def ran(*command: str, shell: str = "") -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "logitloom", *command]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    quoted = ["bash", "-c", f'"$@" {shell}', "-", *line]
    return subprocess.run(quoted, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("shell", "code", "said"),
    [
        ("> /dev/full", 1, "Standard output cannot be used: No space left on device."),
        (">&-", 1, "Standard output is closed"),
        ("| head -1; exit ${PIPESTATUS[0]}", 0, ""),
        ("2>&- > /dev/full", 1, ""),
        ("2> /dev/full > /dev/full", 1, ""),
    ],
)
@pytest.mark.long
def test_output_that_nobody_takes_is_no_traceback(shell: str, code: int, said: str) -> None:
    done = ran("plugins", shell=shell)
    assert done.returncode == code
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)


def test_closed_input_is_no_traceback() -> None:
    done = ran("detect", "watermark_greenlist", "--ids", "-", "--vocab-size", "9", "--set", "key=1", shell="<&-")
    assert done.returncode == 1
    assert "Standard input is closed" in done.stderr


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_input_that_is_no_text_is_no_traceback(locale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    done = ran("detect", "watermark_greenlist", "--vocab-size", "9", "--set", "key=1", shell=r"< <(printf '\xff')")
    assert done.returncode == 1
    assert "Standard input is no text in UTF-8" in done.stderr


def test_an_encoding_without_a_character_is_no_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    (tmp_path / "é.json").write_text('{"type": "null"}')
    done = ran("validate", str(tmp_path / "é.json"))
    assert done.returncode == 0, done.stderr
    assert "\\xe9.json" in done.stdout


@pytest.mark.parametrize("after", [0.08, 0.2, 0.4])
@pytest.mark.long
def test_an_early_interruption_is_no_traceback(after: float) -> None:
    code = "import logitloom_command, sys; print('begun', flush=True); sys.exit(logitloom_command.main())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-c", code, "doctor"], env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    # A fast machine may have ended before.
    assert (process.returncode, said) in ((130, "logitloom: Interrupted.\n"), (0, ""))
