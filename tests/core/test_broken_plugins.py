"""A broken plug-in breaks nothing else, whatever it raises while it is imported or made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RAISED = {
    "sys.exit()": "import sys; sys.exit()",
    "sys.exit(3)": "import sys; sys.exit(3)",
    "a generator's end": "raise GeneratorExit('x')",
    "an interruption": "raise KeyboardInterrupt",
    "an interruption in a function": "def f(): raise KeyboardInterrupt('x')\nf()",
    "a cancellation": "import asyncio; raise asyncio.CancelledError()",
    "a base exception": "class Own(BaseException): pass\nraise Own('x')",
    "one that cannot be told": "class Own(Exception):\n    def __str__(self): raise ValueError\nraise Own",
    "recursion": "def f(): f()\nf()",
    "no memory": "raise MemoryError",
    "a syntax error": "def (",
    "what steers a terminal": "raise ValueError('\\x1b[2J\\x9b1m')",
    "half a surrogate pair": "raise ValueError('\\ud800')",
    "nothing to find": "pass",
}
METADATA = "Metadata-Version: 2.1\nName: broken-plugins\nVersion: 1.0\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with one installed distribution of broken plug-ins."""
    info = tmp_path / "broken_plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    lines = []
    for kind in ("processors", "tokenizers", "kernels", "backends", "grammars"):
        lines.append(f"[logitloom.{kind}]")
        for number, code in enumerate(RAISED.values()):
            (tmp_path / f"broken_{number}.py").write_text(code)
            lines.append(f"a_broken_{number} = broken_{number}:Plugin")
    (info / "entry_points.txt").write_text("\n".join(lines))
    return tmp_path


def ran(site: Path, *command: str) -> subprocess.CompletedProcess[str]:
    paths = [str(site), *(path for path in sys.path if path)]
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_doctor_reports_every_broken_plugin(site: Path) -> None:
    done = ran(site, "-m", "logitloom", "doctor", "--json")
    report = json.loads(done.stdout)
    found = [entry for entry in report["broken"] if entry["distribution"] == "broken-plugins 1.0"]
    assert len(found) == 5 * len(RAISED)
    assert all("could not be imported" in entry["error"] for entry in found)
    assert done.returncode == 1
    assert "numpy" in [backend["name"] for backend in report["backends"]]


def test_an_entry_point_that_names_something_else_is_refused_with_what_it_must_name(tmp_path: Path) -> None:
    info = tmp_path / "other_things-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-things\nVersion: 1.0\n")
    (tmp_path / "other_things.py").write_text("LIMIT = 3")
    kinds = {
        "processors": "a processor class", "engines": "a function", "grammars": "a class", "candidates": "a class",
        "models": "a function", "kernels": "a class",
    }  # fmt: skip
    groups = [f"[logitloom.{kind}]\nof_{kind} = other_things:LIMIT\nmodule_{kind} = other_things" for kind in kinds]
    (info / "entry_points.txt").write_text("\n".join(groups))
    report = json.loads(ran(tmp_path, "-m", "logitloom", "doctor", "--json").stdout)
    found = {entry["name"]: entry["error"] for entry in report["broken"] if entry["distribution"] == "other-things 1.0"}
    assert len(found) == 2 * len(kinds)
    for kind, must_be in kinds.items():
        start = f"The plug-in 'of_{kind}' ({kind}) of other-things 1.0 is 3, found at other_things:LIMIT, but must be "
        assert found[f"of_{kind}"].startswith(start + must_be)
        assert found[f"of_{kind}"].endswith("Correct its entry point.")
    done = ran(tmp_path, "-m", "logitloom", "generate", "Hi", "--max-tokens=2", "--use=module_processors")
    assert done.returncode == 1
    assert "Correct its entry point." in done.stderr
    assert "Traceback" not in done.stderr


CODE = """
import json, warnings
import numpy as np
from logitloom import Context, Vocabulary, errors, processors
from logitloom.host import registry
from logitloom.masks.kernels import load_kernels
told = []
for record in processors.available():
    if record.distribution == "broken-plugins":
        try:
            processors.load(record.name)
        except errors.PluginImportError as error:
            told.append(str(error).encode("utf-8", "replace").decode())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    load_kernels()
    words = Vocabulary([b"", b"a", b"b"], eos=[0])
    chain = processors.load(("regex", {"pattern": "a+"}), tokenizer=words)
    logits = np.zeros((1, 3), dtype=np.float32)
    context = Context.start(logits, vocabulary=words)
    out, _ = chain.process(logits, chain.init_state(context), context)
try:
    registry.read_vocabulary(object())
except errors.VocabularyError as error:
    told.append(str(error).encode("utf-8", "replace").decode())
print(json.dumps({"told": told, "out": np.isfinite(out).tolist(), "warned": [str(w.message)[:200] for w in caught]}))
"""


def test_everything_else_works_beside_broken_plugins(site: Path) -> None:
    done = ran(site, "-c", CODE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["told"]) == len(RAISED) + 1
    assert all("Other plug-ins are not affected" in text for text in found["told"][:-1])
    assert "a_broken_0" in found["told"][-1]
    assert not any(character in text for text in found["told"] for character in "\x1b\x9b")
    assert found["out"] == [[False, True, False]]
    assert sum("Going on with NumPy" in text for text in found["warned"]) >= 1


# -- kernels that do not work ------------------------------------------------------------------------------

PATTERN = """
import json, warnings
import numpy as np
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from logitloom import Context, Vocabulary, processors
    from logitloom.masks.kernels import load_kernels
    load_kernels()
    words = Vocabulary([b"", b"a", b"b", b"ab", b"1"], eos=[0])
    for name, options in (("regex", {"pattern": "(a|b)+1?"}), ("choice", {"choices": ["ab", "b1"]}),
                          ("stop", {"strings": ["ab"]}), ("bad_words", {"phrases": ["b1"]})):
        chain = processors.load((name, options), tokenizer=words)
        logits = np.zeros((2, 5), dtype=np.float32)
        context = Context.start(logits, vocabulary=words)
        state = chain.init_state(context)
        out, state = chain.process(logits, state, context)
        out, state = chain.process(logits, state, context.accept([[2], [2]]))
        print(json.dumps(np.isfinite(out).tolist()))
print(json.dumps([str(w.message) for w in caught if "NumPy" in str(w.message)]))
"""


@pytest.mark.extras
def test_without_a_compiler_numpy_does_the_work_after_one_warning(tmp_path: Path) -> None:
    pytest.importorskip("numba", reason="kernels need numba")
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with_jit, without = (
        subprocess.run(
            [sys.executable, "-c", PATTERN],
            env={**os.environ, **paths, **extra},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        for extra in ({}, {"NUMBA_DISABLE_JIT": "1"})
    )
    assert without.returncode == 0, without.stderr
    *rows, warned = without.stdout.splitlines()
    assert rows == with_jit.stdout.splitlines()[:-1]
    assert len(json.loads(warned)) == 1
    assert "NUMBA_DISABLE_JIT" in warned


@pytest.mark.extras
def test_kernels_that_give_wrong_results_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="kernels need numba")
    from logitloom.errors import BackendUnsupported, LogitloomWarning
    from logitloom.host import registry
    from logitloom_plugins.kernels.numba import NumbaKernels

    NumbaKernels.compile()
    assert NumbaKernels()
    monkeypatch.setattr("logitloom_plugins.kernels.numba._modules", [])
    monkeypatch.setattr("logitloom_plugins.kernels._numba_loops.write", lambda *arguments: None)
    with pytest.raises(BackendUnsupported, match="wrong result"):
        NumbaKernels.compile()
    with pytest.warns(LogitloomWarning, match="Going on with NumPy.*wrong result"):
        assert registry._first_kernels(wait=True) is None
