"""Installed distributions with damaged metadata break nothing else, and ``doctor`` names them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

METADATA = "Metadata-Version: 2.1\nName: damaged-plugins\nVersion: 1.0\n"
GOOD = "[logitloom.processors]\nhalve = halving:Halve\n"
#: What the files of the distribution hold; ``None``: there is no such file.
FILES: dict[str, tuple[str | bytes | None, str | bytes | None]] = {
    "a line without =": (METADATA, f"{GOOD}broken line\n"),
    "a name alone in another group": (METADATA, f"[console_scripts]\nbroken\n{GOOD}"),
    "a file that is no text": (METADATA, b"\xff\xfe\x00[logitloom.processors]\n"),
    "nothing but a bracket": (METADATA, "[\n="),
    "no metadata": (None, GOOD),
    "empty metadata": ("", GOOD),
    "metadata that are no text": (b"\xff\xfe\x00", GOOD),
    "a requirement that is none": (f"{METADATA}Requires-Dist: ===\n", f"{GOOD}halve = halving:Halve [x]\n"),
    "a version that is none": (METADATA.replace("1.0", "one"), GOOD),
}
#: Those whose entry points cannot all be read.
NAMED = ("a line without =", "a name alone in another group", "a file that is no text")


@pytest.fixture(params=FILES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def site(case: str, tmp_path: Path) -> Path:
    """A folder with one damaged distribution."""
    info = tmp_path / "damaged_plugins-1.0.dist-info"
    info.mkdir()
    (tmp_path / "halving.py").write_text("def Halve(logits): return logits / 2\n")
    for name, content in zip(("METADATA", "entry_points.txt"), FILES[case], strict=True):
        if content is not None:
            (info / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path


def ran(site: Path, *command: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    blocked = "backends/jax,backends/mlx,backends/torch,backends/cupy"
    environment = {**os.environ, "PYTHONPATH": path, "LOGITLOOM_BLOCK": blocked}
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.long
def test_other_plugins_load(site: Path, case: str) -> None:
    code = "from logitloom import processors as p; print(p.load(('top_k', {'k': 2})), [r.name for r in p.available()])"
    done = ran(site, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "<Chain top_k" in done.stdout
    if "no text" not in case or "metadata" in case:
        assert ("'halve'" in done.stdout) == ("halve" in str(FILES[case][1]))


@pytest.mark.long
def test_the_doctor_names_what_cannot_be_read(site: Path, case: str) -> None:
    done = ran(site, "-m", "logitloom", "doctor", "--json")
    report = json.loads(done.stdout)
    found = [entry for entry in report["broken"] if entry["kind"] == "distributions"]
    assert [entry["name"] for entry in found] == (["damaged-plugins"] if case in NAMED else [])
    for entry in found:
        assert "entry_points.txt" in entry["error"]
        assert entry["error"].endswith(("Correct it.", "Install it again."))


@pytest.mark.parametrize("case", ["a line without ="], indirect=True)
def test_a_library_that_fails_at_a_damaged_distribution_is_told_in_a_sentence(site: Path) -> None:
    # The checks are written with hypothesis, which reads the entry points of all distributions when it is imported.
    done = ran(site, "-m", "logitloom", "check", "top_k")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "The distribution 'damaged-plugins' may be the reason. Its entry_points.txt has the line" in done.stderr
