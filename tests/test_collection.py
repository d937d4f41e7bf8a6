"""No case is lost: what one environment leaves out another one runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parent.parent
#: A folder with cases of array libraries, tests that are long, and tests of optional packages.
COLLECTED = "tests/core/generation"


def collected(expression: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", COLLECTED]
    environment = {name: value for name, value in os.environ.items() if name != "TOX_ENV_NAME"}
    environment |= {
        "LOGITLOOM_EXPECT_BACKENDS": "numpy torch mlx jax",
        "PYTEST_ADDOPTS": "",
        "LOGITLOOM_EXHAUSTIVE": "",
    }
    chosen = ["-m", expression] if expression else []
    told = subprocess.run([*command, *chosen], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert told.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), told.stdout
    return {line for line in told.stdout.splitlines() if line.startswith(COLLECTED)}


def test_each_case_is_in_an_environment() -> None:
    every, by_default = collected("exhaustive or not exhaustive"), collected("")
    numpy, full, jax, weights = (
        collected("not library and not extras and not exhaustive"),
        collected("(extras or promised) and not jax and not weights and not exhaustive"),
        collected("jax and promised and not weights and not exhaustive"),
        collected("weights and not exhaustive"),
    )
    elsewhere = collected("library and not promised and not extras and not exhaustive")
    assert numpy
    assert full
    assert jax
    assert weights
    assert len(numpy | full | jax | weights) == len(numpy) + len(full) + len(jax) + len(weights)
    assert numpy | full | jax | weights | elsewhere == by_default
    assert by_default == collected("not exhaustive")
    assert by_default | collected("exhaustive") == every
    assert not by_default & collected("exhaustive")
