"""What ``logitloom new`` writes can be installed, and its own tests pass as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from logitloom.cli.new import KINDS, write
from tests.core.cli.test_new import NAMES
from tests.installed_site import InstalledSite

#: The distributions are built with hatchling, and the backend is that of array-api-strict.
pytestmark = pytest.mark.extras


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    home = tmp_path_factory.mktemp("scaffolds")
    return [write(kind, NAMES[kind], home) for kind in KINDS]


@pytest.fixture(scope="module")
def site(written: list[Path], tmp_path_factory: pytest.TempPathFactory) -> InstalledSite:
    backends = ("numpy", "array_api_strict")
    return InstalledSite(tmp_path_factory.mktemp("site"), written, backends, needed=["array-api-strict"])


def test_their_own_tests_pass(site: InstalledSite, written: list[Path]) -> None:
    assert site.tests(folder / "tests" for folder in written) > 200


def test_each_is_found_by_its_name(site: InstalledSite) -> None:
    told = site.run("-m", "logitloom", "plugins")
    for name in NAMES.values():
        assert re.search(rf"\b{name}\b", told), name


def test_it_is_certified_where_it_is_installed(site: InstalledSite) -> None:
    told = site.run("-m", "logitloom", "check", "logitloom-small-engine")
    assert re.search(r"engines +small_engine +\d+ ok", told)
