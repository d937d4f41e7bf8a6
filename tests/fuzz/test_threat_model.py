"""Every promise of the threat model names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/security.md").read_text(encoding="utf-8").split("## Who may send what")[1].split("\n")
    if line.startswith("| ")
][1:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_a_promise_names_exists_and_holds_tests(row: list[str]) -> None:
    who, _sends, promise, shown = row
    named = re.findall(r"`([^`]+)`", shown)
    assert who
    assert promise or who == "clients of other servers"
    assert named, f"No test shows the promise to {who}."
    folder = ROOT
    for name in named:
        # A name alone stands in the folder of the one before it.
        path = ROOT / name if "/" in name else folder / name
        folder = path.parent
        files = sorted(path.glob("test_*.py")) if path.is_dir() else [path]
        assert files, f"{name} holds no tests."
        for file in files:
            assert file.is_file(), f"{name} does not exist."
            assert re.search(r"^(?:async )?def test_", file.read_text(encoding="utf-8"), re.MULTILINE), file
