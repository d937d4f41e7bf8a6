"""A folder that pip installs distributions to, without dependencies or network, and a Python that sees it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

import logitloom
from logitloom.host import registry

__all__ = ["InstalledSite", "require_distributions"]


def require_distributions(*names: str) -> None:
    """Skip the test if a distribution is missing.

    Modules are not looked for: after a look for pip the import of setuptools fails in this process, and with it the
    first compilation of PyTorch.
    """
    installed = {re.sub("[-_.]+", "-", each.name).lower() for each in importlib.metadata.distributions()}
    for name in names:
        if name not in installed:
            pytest.skip(f"the distribution {name} is not installed")


class InstalledSite:
    """Some distributions, installed.

    Args:
        home: an empty folder.
        sources: the folders of the distributions.
        backends: the array backends that are left; others are blocked, so that importing them takes no time.
        needed: packages without which the test is skipped.
    """

    def __init__(
        self, home: Path, sources: Iterable[Path], backends: Iterable[str] = ("numpy",), needed: Iterable[str] = ()
    ) -> None:
        require_distributions("hatchling", "pip", *needed)
        self.home, folder = home, home / "site"
        core = str(Path(logitloom.__file__).parent.parent)
        path = os.pathsep.join([str(folder), core, *filter(None, [os.environ.get("PYTHONPATH")])])
        blocked = [r.name for r in registry.available("backends") if r.name not in set(backends)]
        self.environment = {
            **os.environ,
            "PYTHONPATH": path,
            "PYTHONDONTWRITEBYTECODE": "1",
            "LOGITLOOM_BLOCK": ",".join(f"backends/{name}" for name in blocked),
        }
        self.environment.pop("LOGITLOOM_EXPECT_BACKENDS", None)
        how = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder)]
        self.run("-m", "pip", *how, *map(str, sources))

    def run(self, *arguments: str) -> str:
        """What Python says, which must succeed."""
        command, more = [sys.executable, *arguments], {"cwd": self.home, "env": self.environment}
        ran = subprocess.run(command, capture_output=True, text=True, check=False, **more)
        assert ran.returncode == 0, f"{arguments}:\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def tests(self, folders: Iterable[Path]) -> int:
        """Run copies of some folders of tests in one process, all of which must pass; how many there were."""
        # Beside no conftest.py of ours.
        home = Path(tempfile.mkdtemp(dir=self.home))
        copies = [shutil.copytree(folder, home / str(number)) for number, folder in enumerate(folders)]
        settings = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", f"--rootdir={self.home}"]
        told = self.run("-m", "pytest", *settings, *map(str, copies))
        passed = re.search(r"(\d+) passed", told)
        assert passed is not None, told
        return int(passed[1])
