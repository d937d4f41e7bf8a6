"""The distribution of this folder, as it is when it is installed: found by its entry points.

``tox -e third-party`` installs it with pip. Elsewhere its metadata are written to a folder of the test's own.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from logitloom.host import registry
from tests.contrib.engines.conftest import tiny_mlx, tiny_transformers

__all__ = ["tiny_mlx", "tiny_transformers"]

DISTRIBUTION = "logitloom-elsewhere"
FOLDER = Path(__file__).parent / DISTRIBUTION
MODULE = DISTRIBUTION.replace("-", "_")


@pytest.fixture(scope="module", autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The distribution is installed."""
    try:
        version(DISTRIBUTION)
    except PackageNotFoundError:
        pass
    else:
        yield
        return
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    site = tmp_path_factory.mktemp("site")
    metadata = site / f"{MODULE}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items()), ""]
    (metadata / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    before = [*sys.path]
    sys.path[:0] = [str(site), str(FOLDER / "src")]
    importlib.invalidate_caches()
    registry.refresh()
    yield
    sys.path[:] = before
    sys.modules.pop(MODULE, None)
    importlib.invalidate_caches()
    registry.refresh()
