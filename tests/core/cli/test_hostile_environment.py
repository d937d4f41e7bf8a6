"""Environment variables with rubbish, and folders that cannot be written: a sentence, or no difference."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logitloom import Vocabulary, processors
from logitloom.automata.cache import AutomatonCache
from logitloom.cli.doctor import mistaken_variables
from logitloom.cli.main import main
from logitloom.errors import LogitloomWarning, OptionError

WORDS = Vocabulary([b"", b"a", b"b"], eos=[0])
#: Loads a chain and runs one step; prints the mask.
STEP = (
    "import numpy as np; from logitloom import Context, Vocabulary, processors;"
    "words = Vocabulary([b'', b'a', b'b'], eos=[0]);"
    "chain = processors.load(('regex', {'pattern': 'a+b'}), tokenizer=words);"
    "x = np.zeros((1, 3), np.float32); context = Context.start(x, vocabulary=words);"
    "print(np.isfinite(chain.process(x, chain.init_state(context), context)[0]).tolist())"
)


def ran(*command: str, folder: Path, **changes: str | None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **changes}
    given = {name: value for name, value in environment.items() if value is not None}
    line = [sys.executable, *command]
    return subprocess.run(line, env=given, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    "changes",
    [
        {"HOME": None, "XDG_CACHE_HOME": None},
        {"HOME": "/nonexistent", "TMPDIR": "/nonexistent"},
        {"PYTHONWARNINGS": "error"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LOGITLOOM_BLOCK": " ,@,x/y/z,top_kk,\x1b[31m"},
        {"LOGITLOOM_CACHE_DIR": "/dev/null"},
    ],
    ids=lambda changes: "-".join(changes),
)
@pytest.mark.long
def test_a_step_is_the_same(changes: dict[str, str | None], tmp_path: Path) -> None:
    done = ran("-c", STEP, folder=tmp_path, **changes)
    assert done.stdout == "[[False, True, False]]\n", done.stderr


@pytest.mark.parametrize("columns", ["0", "1", "-5", "abc", "9" * 30])
@pytest.mark.parametrize("command", [["plugins", "--kind", "models"], ["generate", "--help"]])
def test_any_width_of_the_terminal_will_do(
    columns: str, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # pytest reports this test with the width of the terminal, too, which must be its own then.
    with monkeypatch.context() as patched:
        patched.setenv("COLUMNS", columns)
        try:
            code: object = main(command)
        except SystemExit as end:  # of --help
            code = end.code
    assert code == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(("value", "debug"), [("", False), ("0", False), ("False", False), ("no", False), ("on", True)])
def test_debugging_is_what_the_environment_says(value: str, debug: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGITLOOM_DEBUG", value)
    assert processors.load("temperature").debug is debug


def test_a_value_that_says_neither_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGITLOOM_DEBUG", "rubbish")
    with pytest.raises(OptionError, match="LOGITLOOM_DEBUG is 'rubbish'. Set it to 1 or 0"):
        processors.load("temperature")
    assert processors.load("temperature", debug=True).debug


def test_the_folder_of_a_cache_may_begin_with_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("LOGITLOOM_CACHE_DIR", "~/automata")
    assert AutomatonCache().directory == tmp_path / "automata"


def test_a_cache_that_cannot_be_written_is_a_warning_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = AutomatonCache(directory=tmp_path / "file")
    with pytest.warns(LogitloomWarning, match=r"could not be kept in .*file.* give a directory that can be written"):
        automaton = cache.pattern("a+b", WORDS)
    assert automaton.row(automaton.start()).tolist() == [1]


def test_doctor_names_variables_that_do_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOGITLOOM_BLOCK", "top_kk, backends/cupy,\x1b[31m")
    monkeypatch.setenv("LOGITLOOM_DEBG", "1")
    assert mistaken_variables() == [
        ("LOGITLOOM_DEBG", "No such variable is read. Did you mean LOGITLOOM_DEBUG?"),
        ("LOGITLOOM_BLOCK", "It blocks 'top_kk', which is no plug-in. Did you mean 'top_k'?"),
        ("LOGITLOOM_BLOCK", "It blocks '\\x1b[31m', which is no plug-in. 'logitloom plugins' lists what there is."),
    ]
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "environment/LOGITLOOM_BLOCK: It blocks 'top_kk'" in said
    assert "\x1b[31m" not in said
