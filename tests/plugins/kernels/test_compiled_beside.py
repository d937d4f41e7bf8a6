"""Kernels that are not on disk yet: NumPy works at once, and running chains take the kernels when they are ready."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import Context, processors
from logitloom.cli.main import main
from logitloom.masks.kernels import KernelsNotReady, host_kernels
from tests.core.automata.vocabularies import small

pytest.importorskip("numba", reason="kernels need numba")

from logitloom_plugins.kernels import numba as plugin

pytestmark = pytest.mark.extras


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for notes in which nothing is; kernels are looked for again in the test, and after it."""
    monkeypatch.setattr(plugin, "_folders", lambda: [tmp_path])
    host_kernels.cache_clear()
    yield tmp_path
    if plugin._watching is not None:
        plugin._watching.join(10)
    host_kernels.cache_clear()


def note(folder: Path, **changed: Any) -> None:
    told = {"key": plugin._key(), "files": [__file__], **changed}
    (folder / "logitloom-kernels.json").write_text(json.dumps(told))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


def test_a_running_chain_takes_the_kernels_when_they_are_ready(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ready = threading.Event()

    def compiled() -> None:
        ready.wait(60)
        note(folder)

    monkeypatch.setattr(plugin, "_compile_in_child", compiled)
    words = small(*"abcdefgh", "ab", "abc")
    chain = processors.load(("regex", {"pattern": "[a-f]*"}), tokenizer=words)
    logits = np.zeros((2, words.size), dtype=np.float32)
    context = Context.start(logits, vocabulary=words)
    found, state = [], chain.init_state(context)
    for step in range(4):
        out, state = chain.process(logits, state, context)
        found.append(np.isneginf(out).tolist())
        context = context.accept([[2], [3]])
        if step == 1:
            assert host_kernels() is None
            ready.set()
            until(lambda: host_kernels() is not None)
    assert found[0] == found[1] == found[2] == found[3]
    assert chain["regex"].constraint(words, words.size) is not None
    told = capsys.readouterr().err
    assert told.count("in a process beside this one") == 1
    assert not [*folder.glob("*.lock")]


def test_processes_do_not_compile_at_the_same_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> None:
        pytest.fail("another process compiles")

    monkeypatch.setattr(plugin, "_compile_in_child", never)
    (folder / "logitloom-kernels.lock").touch()
    assert host_kernels() is None
    note(folder)
    until(lambda: host_kernels() is not None)
    old = time.time() - 2 * plugin._LEFT_OVER
    os.utime(folder / "logitloom-kernels.lock", (old, old))
    assert plugin._lock().exists()  # what was left over is taken


@pytest.mark.parametrize(
    "changed", [{"key": "of other versions"}, {"files": ["/no/such/file"]}, {"files": []}], ids=str
)
def test_a_note_of_something_else_does_not_count(folder: Path, changed: dict[str, Any]) -> None:
    note(folder)
    assert plugin._on_disk()
    note(folder, **changed)
    assert not plugin._on_disk()
    (folder / "logitloom-kernels.json").write_text("{")
    assert not plugin._on_disk()


def test_a_failure_is_told_once_and_numpy_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_compile_in_child", lambda: "There is no compiler here.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert host_kernels() is None
        assert plugin._watching is not None
        plugin._watching.join(60)
        assert host_kernels() is None
    assert [str(each.message) for each in caught if "NumPy" in str(each.message)] == [
        "Going on with NumPy, without compiled kernels. There is no compiler here."
    ]


def test_folders_that_cannot_be_written_to_cost_nothing_but_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "_folders", lambda: [tmp_path / "file" / "folder"])
    (tmp_path / "file").write_text("no folder")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(KernelsNotReady):
            plugin.NumbaKernels()
        assert plugin._watching is not None
        plugin._watching.join(60)
    assert "No folder can be written to" in str(caught[-1].message)
    plugin._write_note([__file__])  # nor does it raise an error


def test_the_command_compiles_and_names_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "compile"]) == 0
    assert "files of compiled code are in" in capsys.readouterr().out
    assert main(["kernels", "compile", "rust"]) == 1
    assert "'rust'" in capsys.readouterr().err


@pytest.mark.exhaustive
def test_an_empty_cache_is_filled_beside_the_first_process(tmp_path: Path) -> None:
    code = "from logitloom.masks.kernels import host_kernels; print(host_kernels() is None)"
    command, paths = [sys.executable, "-c"], os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths}
    waiting = (
        f"{code}\nimport time\nend = time.monotonic() + 500\n"
        "while host_kernels() is None and time.monotonic() < end: time.sleep(1)\nprint(host_kernels() is None)"
    )
    first = subprocess.run([*command, waiting], env=environment, capture_output=True, text=True, check=True)
    assert first.stdout.split() == ["True", "False"]
    assert first.stderr.count("in a process beside this one") == 1
    second = subprocess.run([*command, code], env=environment, capture_output=True, text=True, check=True)
    assert second.stdout.split() == ["False"]
    assert second.stderr == ""
