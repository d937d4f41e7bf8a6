"""The benchmarks import what is there: nothing runs them but somebody who wants their figures."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def is_ours(module: str) -> bool:
    """Whether a module belongs to the project."""
    return module.split(".")[0] in ("logitloom", "logitloom_plugins", "logitloom_contrib", "tests")


@pytest.mark.extras
@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_what_a_benchmark_imports_is_there(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.module is None or not is_ours(node.module):
            continue
        try:
            module = importlib.import_module(node.module)
        except ModuleNotFoundError as error:
            if is_ours(str(error.name)):
                raise
            continue  # a library that is not installed
        for name in node.names:
            submodule = f"{node.module}.{name.name}"
            assert hasattr(module, name.name) or importlib.util.find_spec(submodule), submodule
