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
    return ran("mypy", *settings, cache, *map(str, paths), path=more).stdout


def pyright(folder: Path, *paths: Path) -> list[tuple[int, str]]:
    """The lines, counted from 1, that pyright's standard rules call wrong, with what it says.

    basedpyright is pyright with its own Node.js, so that it runs without a network.
    """
    pytest.importorskip("basedpyright", reason="needs the package basedpyright")
    project = folder / "pyrightconfig.json"
    project.write_text(json.dumps({"typeCheckingMode": "standard", "include": [str(path) for path in paths]}))
    told = ran("basedpyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(project)).stdout
    found = json.loads(told)["generalDiagnostics"]
    return [(d["range"]["start"]["line"] + 1, d["message"]) for d in found if d["severity"] == "error"]


def marked(*marks: str) -> list[int]:
    lines = WRONG.read_text(encoding="utf-8").splitlines()
    return [n for n, line in enumerate(lines, 1) if line.endswith(tuple(f"# {mark}" for mark in marks))]


def test_mypy_finds_wrong_signatures_needs_stages_and_defaults() -> None:
    told = mypy(WRONG)
    lines = sorted({int(n) for n in re.findall(r"wrong_processors\.py:(\d+): error", told)})
    assert lines == marked("wrong", "wrong, for mypy"), told


def test_pyright_finds_wrong_signatures_stages_and_defaults(tmp_path: Path) -> None:
    assert sorted({line for line, _ in pyright(tmp_path, WRONG)}) == marked("wrong")


@pytest.fixture
def tutorial(tmp_path: Path) -> Path:
    """The Python of the tutorial, one block after the other."""
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    assert len(blocks) > 4
    file = tmp_path / "tutorial.py"
    file.write_text("\n".join(blocks), encoding="utf-8")
    return file


def test_the_code_of_the_tutorial_is_clean(tutorial: Path) -> None:
    assert mypy(tutorial) == ""


def test_the_code_of_the_tutorial_is_clean_for_pyright(tutorial: Path) -> None:
    assert pyright(tutorial.parent, tutorial) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_for_authors_is_clean(kind: str, tmp_path: Path) -> None:
    source = write(kind, NAMES[kind], tmp_path) / "src"
    assert mypy(source, more=str(source)) == ""
