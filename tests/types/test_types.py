"""Type checkers find mistakes of authors, and nothing wrong in what the pages and templates show."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import logitloom
from logitloom.cli.new import KINDS, write
from tests.core.cli.test_new import NAMES

pytestmark = pytest.mark.extras

ROOT = Path(__file__).parent.parent.parent
WRONG = Path(__file__).parent / "wrong_processors.py"


def ran(*arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    core = Path(logitloom.__file__).parent.parent
    # mypy finds what is installed by itself, and refuses to be told.
    shown = [str(core)] if core.name != "site-packages" else []
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(filter(None, [*shown, path])), "PYTHONPATH": str(core)}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def mypy(*paths: Path, more: str = "") -> str:
    """What mypy says of some files, strictly."""
    pytest.importorskip("mypy", reason="needs the package mypy")
    settings = [
        "--strict",
        "--config-file=",
        "--no-error-summary",
        "--ignore-missing-imports",
        "--follow-imports=silent",
    ]
    # Two processes of mypy with one cache disturb each other.
    cache = f"--cache-dir={ROOT / '.mypy_cache' / os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
    done = ran("mypy", *settings, cache, *map(str, paths), path=more)
    assert done.returncode < 2, done.stderr
    return done.stdout


def pyright(folder: Path, *paths: Path) -> dict[str, list[tuple[int, str]]]:
    """By the name of a file, the lines, counted from 1, that pyright's standard rules call wrong, with what it says.

    basedpyright is pyright with its own Node.js, so that it runs without a network.
    """
    pytest.importorskip("basedpyright", reason="needs the package basedpyright")
    project = folder / "pyrightconfig.json"
    project.write_text(json.dumps({"typeCheckingMode": "standard", "include": [str(path) for path in paths]}))
    told = ran("basedpyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(project)).stdout
    found: dict[str, list[tuple[int, str]]] = {path.name: [] for path in paths}
    for told_of in json.loads(told)["generalDiagnostics"]:
        if told_of["severity"] == "error":
            found[Path(told_of["file"]).name].append((told_of["range"]["start"]["line"] + 1, told_of["message"]))
    return found


def marked(*marks: str) -> list[int]:
    lines = WRONG.read_text(encoding="utf-8").splitlines()
    return [n for n, line in enumerate(lines, 1) if line.endswith(tuple(f"# {mark}" for mark in marks))]


#: What authors write to load processors; what follows it is refused.
RIGHT = """
from typing import Any

from logitloom import Context, processors


class Same:
    def process(self, logits: Any, state: Any, context: Context) -> tuple[Any, Any]:
        return logits, state


processors.load(("temperature", {"temperature": 1}), ("top_k", {"k": 3}), ("json", {"schema": {"type": "object"}}))
processors.load(("until", {"trigger": "a", "inner": ["top_k", {"k": 3}]}), "temperature", Same())
processors.load((Same, {}), ["theirs", {"x": 3}], "others", lambda logits: logits, options={"others": {"x": 1}})
"""
REFUSED = ('("top_kk", {"k": 3})', '("top_k", {"k": "3"})', '("top_k", {"kk": 3})', '("top_kk", {"k": "3"})')
FIRST = RIGHT.count("\n") + 1


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What loads processors, and the Python of the tutorial, one block after the other."""
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    assert len(blocks) > 4
    loads = [f"processors.load({pair})" for pair in REFUSED]
    folder = tmp_path_factory.mktemp("types")
    (folder / "tutorial.py").write_text("\n".join(blocks), encoding="utf-8")
    (folder / "loading.py").write_text(RIGHT + "\n".join(loads) + "\n", encoding="utf-8")
    return [WRONG, folder / "loading.py", folder / "tutorial.py"]


@pytest.fixture(scope="module")
def by_mypy(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says of these files and of what is written for authors, in one run."""
    home = tmp_path_factory.mktemp("written")
    sources = [write(kind, NAMES[kind], home) / "src" for kind in KINDS]
    return mypy(*files, *sources, more=os.pathsep.join(map(str, sources)))


@pytest.fixture(scope="module")
def by_pyright(files: list[Path]) -> dict[str, list[tuple[int, str]]]:
    return pyright(files[-1].parent, *files)


def lines_of(name: str, told: str) -> list[int]:
    return sorted({int(n) for n in re.findall(rf"\b{name}\.py:(\d+): error", told)})


def test_mypy_finds_wrong_signatures_needs_stages_and_defaults(by_mypy: str) -> None:
    assert lines_of("wrong_processors", by_mypy) == marked("wrong", "wrong, for mypy"), by_mypy


def test_mypy_refuses_wrong_names_and_options_and_nothing_else(by_mypy: str) -> None:
    assert lines_of("loading", by_mypy) == [*range(FIRST, FIRST + len(REFUSED))], by_mypy


def test_the_tutorial_and_what_is_written_for_authors_are_clean(by_mypy: str) -> None:
    assert [line for line in by_mypy.splitlines() if not re.search(r"\b(wrong_processors|loading)\.py:", line)] == []


def test_pyright_finds_wrong_signatures_stages_and_defaults(by_pyright: dict[str, list[tuple[int, str]]]) -> None:
    assert sorted({line for line, _ in by_pyright["wrong_processors.py"]}) == marked("wrong")


def test_pyright_refuses_wrong_names_and_options_and_nothing_else(
    by_pyright: dict[str, list[tuple[int, str]]],
) -> None:
    assert sorted({line for line, _ in by_pyright["loading.py"]}) == [*range(FIRST, FIRST + len(REFUSED))]


def test_the_tutorial_is_clean_for_pyright(by_pyright: dict[str, list[tuple[int, str]]]) -> None:
    assert by_pyright["tutorial.py"] == []
