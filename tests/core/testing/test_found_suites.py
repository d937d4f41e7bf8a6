"""Suites are found wherever a plug-in may bring them, and a module that cannot be imported is a finding."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from logitloom.host import registry
from logitloom.testing import suites

HALVE = "class Halve:\n    def process(self, logits, state, context): return logits / 2, state\n"
SUITE = """
from logitloom.testing import ProcessorConformance
class TestHalve(ProcessorConformance):
    processor = "halve_of_a_test"
"""
BROKEN = "raise ValueError('\\x1b[2J no')"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield tmp_path
    registry.unregister("halve_of_a_test")


def found(module: str) -> tuple[list[str], list[str]]:
    """The names of the suites for the processor of a module, and why it is not tested."""
    importlib.invalidate_caches()
    registry.register("halve_of_a_test", importlib.import_module(module).Halve)
    (record,) = [r for r in registry.available("processors") if r.name == "halve_of_a_test"]
    named, untested = suites.find([record], ["numpy"])
    return [suite.__name__ for suite in named.values()], [finding.untested for finding in untested]


def test_a_plugin_that_is_one_module_is_tested_with_its_defaults(folder: Path) -> None:
    (folder / "one_module_a.py").write_text(HALVE)
    assert found("one_module_a") == (["WithDefaults"], [])


def test_a_plugin_that_is_one_module_may_bring_its_suite_itself(folder: Path) -> None:
    (folder / "one_module_b.py").write_text(HALVE + SUITE)
    assert found("one_module_b") == (["TestHalve"], [])


@pytest.mark.parametrize(
    ("content", "names", "why"),
    [
        (SUITE, ["TestHalve"], []),
        (None, ["WithDefaults"], []),
        (BROKEN, [], ["ValueError: \\x1b[2J no"]),
        ("import sys; sys.exit('no')", [], ["SystemExit: no"]),
        ("raise KeyboardInterrupt('no')", [], ["KeyboardInterrupt: no"]),
    ],
)
def test_a_package_brings_its_suites_beside_the_plugin(
    folder: Path, content: str | None, names: list[str], why: list[str]
) -> None:
    package = folder / f"package_{len(content or '')}"
    package.mkdir()
    (package / "__init__.py").write_text(HALVE)
    if content is not None:
        (package / "conformance.py").write_text(content)
    assert found(package.name) == (names, why)
