"""What ``logitloom new`` writes can be installed, and its own tests pass as it is written.

All kinds are installed into one folder, without dependencies and without a network, and tested in one process.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import logitloom
from logitloom import registry
from logitloom.cli.new import KINDS, write
from tests.core.cli.test_new import NAMES

#: The distributions are built with hatchling, and the backend is that of array-api-strict.
pytestmark = pytest.mark.extras


class Site:
    """Six distributions, and a folder that pip installed them to."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder = home, home / "site"
        core = str(Path(logitloom.__file__).parent.parent)
        path = os.pathsep.join([str(self.folder), core, *filter(None, [os.environ.get("PYTHONPATH")])])
        # Other backends are blocked, so that importing their libraries takes no time here.
        ours = [r.name for r in registry.available("backends") if r.name not in ("numpy", "array_api_strict")]
        self.environment = {
            **os.environ,
            "PYTHONPATH": path,
            "PYTHONDONTWRITEBYTECODE": "1",
            "LOGITLOOM_BLOCK": ",".join(f"backends/{name}" for name in ours),
        }
        self.environment.pop("LOGITLOOM_EXPECT_BACKENDS", None)
        self.written = {kind: write(kind, NAMES[kind], home) for kind in KINDS}
        how = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(self.folder)]
        self.run("-m", "pip", *how, *map(str, self.written.values()))

    def run(self, *arguments: str) -> str:
        """What Python says, which must succeed."""
        command = [sys.executable, *arguments]
        ran = subprocess.run(
            command, cwd=self.home, env=self.environment, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert ran.returncode == 0, f"{arguments}:\n{ran.stdout}{ran.stderr}"
        return ran.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    names = {re.sub("[-_.]+", "-", d.name).lower() for d in importlib.metadata.distributions()}
    for package in ("hatchling", "pip", "array-api-strict"):
        if package not in names:
            pytest.skip(f"the package {package} is not installed")
    return Site(tmp_path_factory.mktemp("scaffolds"))


def test_their_own_tests_pass(site: Site) -> None:
    folders = [str(folder / "tests") for folder in site.written.values()]
    told = site.run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", f"--rootdir={site.home}", *folders
    )  # fmt: skip
    passed = re.search(r"(\d+) passed", told)
    assert passed is not None
    assert int(passed[1]) > 200


def test_each_is_found_by_its_name(site: Site) -> None:
    told = site.run("-m", "logitloom.cli.main", "plugins")
    for name in NAMES.values():
        assert re.search(rf"\b{name}\b", told), name


def test_it_is_certified_where_it_is_installed(site: Site) -> None:
    told = site.run("-m", "logitloom.cli.main", "check", "logitloom-small-engine")
    assert re.search(r"engines +small_engine +\d+ ok", told)
