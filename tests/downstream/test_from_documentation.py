"""Distributions that were written from the documentation alone are installed, and pass their suites."""

from __future__ import annotations

import ast
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.installed_site import InstalledSite

pytestmark = pytest.mark.extras

ROOT = Path(__file__).parents[2]
HERE = [ROOT / "tests" / "downstream" / name for name in ("logitloom-surprise", "logitloom-tiny-engine")]
TINYGRAD = ROOT / "contrib" / "tinygrad-backend"
REFERENCE = ROOT / "docs" / "reference.md"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> InstalledSite:
    return InstalledSite(tmp_path_factory.mktemp("downstream"), [*HERE, TINYGRAD], ("numpy", "tinygrad"))


def test_their_suites_pass(site: InstalledSite) -> None:
    assert site.tests(folder / "tests" for folder in HERE) > 60


def test_they_are_certified_where_they_are_installed(site: InstalledSite) -> None:
    for name, kind in (("logitloom-surprise", "processors"), ("logitloom-tiny-engine", "engines")):
        assert re.search(rf"{kind} +\w+ .*\d+ ok", site.run("-m", "logitloom", "check", name))


def test_the_backend_for_tinygrad_is_found_whether_its_library_is_there_or_not(site: InstalledSite) -> None:
    assert re.search(r"backends +tinygrad", site.run("-m", "logitloom", "plugins"))


@pytest.mark.exhaustive
def test_the_suite_of_the_backend_for_tinygrad_passes(site: InstalledSite) -> None:
    pytest.importorskip("tinygrad", reason="needs the package tinygrad")
    if shutil.which(os.environ.get("CC", "clang")) is None:
        pytest.skip("the compiler clang, which tinygrad needs on the CPU, is not installed")
    assert site.tests([TINYGRAD / "tests"]) > 150


@pytest.mark.parametrize("folder", [*HERE, TINYGRAD], ids=lambda folder: folder.name)
def test_they_import_only_what_the_reference_lists(folder: Path) -> None:
    listed = set(re.findall(r"^::: ([\w.]+)", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    for path in (folder / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "logitloom":
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                assert node.module in listed or names <= listed, f"{path}: {names - listed}"
