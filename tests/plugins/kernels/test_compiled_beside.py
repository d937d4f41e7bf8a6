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
from logitloom.masks.kernels import KernelsNotReady, host_kernels, look_for_kernels_again
from tests.core.automata.vocabularies import small
from tests.plugins.kernels.search import searched

pytest.importorskip("numba", reason="kernels need numba")

from logitloom_plugins.kernels import numba as plugin

pytestmark = pytest.mark.extras


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for notes in which nothing is; kernels are looked for again in the test, and after it."""
    monkeypatch.setattr(plugin, "_folders", lambda: [tmp_path])
    monkeypatch.setattr(plugin, "_modules", [])
    look_for_kernels_again()
    yield tmp_path
    if plugin._watching is not None:
        plugin._watching.join(10)
    look_for_kernels_again()


def note(folder: Path, **changed: Any) -> None:
    told = {"key": plugin._key(), "files": [__file__], **changed}
    (folder / "logitloom-kernels.json").write_text(json.dumps(told))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
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
        assert searched() is None
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
    monkeypatch.setattr(plugin, "_modules", [])
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


def test_the_other_modules_are_compiled_in_a_process_that_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, begin = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **more: begun.append(begin(command, **more)) or begun[-1])
    assert main(["kernels", "compile"]) == 0
    assert [process.poll() for process in begun] == [0]
    (imported,) = {process.args[-1].removeprefix("import ") for process in begun}
    package = plugin.__package__
    assert set(imported.split(", ")) == {f"{package}.{name}" for name in plugin._FUNCTIONS} - {
        f"{package}._numba_loops"
    }
    monkeypatch.setattr(sys, "executable", str(Path("nowhere") / "python"))
    assert main(["kernels", "compile"]) == 0
    assert "files of compiled code are in" in capsys.readouterr().out


#: A process that does work for which kernels pay, and says until when NumPy did it.
WORKING = """
import sys, time
from logitloom.masks.kernels import host_kernels
from logitloom.host import registry
assert host_kernels(1 << 40) is None and host_kernels() is None
end = time.monotonic() + 500
while host_kernels() is None and time.monotonic() < end: time.sleep(0.1)
print(host_kernels() is not None)
"""


def in_a_process(code: str, **changed: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **changed}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)


@pytest.mark.exhaustive
def test_an_empty_cache_is_filled_beside_the_first_process(tmp_path: Path) -> None:
    first = in_a_process(WORKING, NUMBA_CACHE_DIR=str(tmp_path))
    assert first.stdout.split() == ["True"]
    assert first.stderr.count("in a process beside this one") == 1
    second = in_a_process(WORKING, NUMBA_CACHE_DIR=str(tmp_path))
    assert (second.stdout.split(), second.stderr) == (["True"], "")


def test_a_short_run_does_not_import_numba() -> None:
    code = """
import sys, threading
import numpy as np
from logitloom import Context, Vocabulary, processors
words = Vocabulary([b"", *(bytes([i]) for i in range(256))], eos=[0])
logits = np.zeros((1, words.size), dtype=np.float32)
for link in (("regex", {"pattern": "[a-f]{300}"}), ("json", {"schema": {"type": "string"}}), ("top_k", {"k": 3})):
    chain = processors.load(link, tokenizer=words)
    context = Context.start(logits, vocabulary=words, max_new_tokens=400)
    state = chain.init_state(context)
    for token in b'"' + b"a" * 99 if link[0] == "json" else b"a" * 100:
        out, state = chain.process(logits, state, context)
        context = context.accept([[token + 1]])
print("numba" in sys.modules, threading.active_count())
"""
    assert in_a_process(code).stdout.split() == ["False", "1"]


def test_a_process_that_ends_while_kernels_are_loaded_ends_well() -> None:
    code = "from logitloom.host import registry\nfrom logitloom.masks.kernels import host_kernels\n"
    done = in_a_process(code + "host_kernels(1 << 40)\nhost_kernels()\nprint('at once')")
    assert (done.stdout, done.stderr) == ("at once\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_process_loads_kernels_of_its_own() -> None:
    code = """
import os, time
from logitloom.host import registry
from logitloom.masks.kernels import host_kernels
host_kernels(1 << 40)
host_kernels()
time.sleep(0.2)
child = os.fork()
end = time.monotonic() + 300
while host_kernels() is None and time.monotonic() < end: time.sleep(0.01)
if not child: os._exit(0 if host_kernels() is not None else 1)
print(host_kernels() is not None, os.waitpid(child, 0)[1])
"""
    assert in_a_process(code).stdout.split() == ["True", "0"]
