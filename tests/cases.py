"""Which cases of a test run by default: the others are left to the environment ``exhaustive``, which runs all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

#: Whether this is the environment ``exhaustive``.
EXHAUSTIVE = os.environ.get("LOGITLOOM_EXHAUSTIVE", "") not in ("", "0")


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """Cases for ``parametrize``; those after the first ``count`` are exhaustive. A tuple is several arguments."""
    given = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=[pytest.mark.exhaustive] if n >= count else []) for n, case in enumerate(given)]
