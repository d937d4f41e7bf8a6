"""Which cases of a test run by default: the others are left to the environment ``exhaustive``, which runs all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from hypothesis import settings

#: Whether this is the environment ``exhaustive``.
EXHAUSTIVE = os.environ.get("LOGITLOOM_EXHAUSTIVE", "") not in ("", "0")


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """Cases for ``parametrize``; those after the first ``count`` are exhaustive. A tuple is several arguments."""
    given = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=[pytest.mark.exhaustive] if n >= count else []) for n, case in enumerate(given)]


def each_once(*given: Iterable[Any]) -> list[Any]:
    """Cases of several arguments for ``parametrize``: every combination of their values.

    By default each value is in a case, as many cases as the longest axis has values; the others are exhaustive.
    """
    axes = [list(axis) for axis in given]
    default = {tuple(n % len(axis) for axis in axes) for n in range(max(map(len, axes)))}
    return [
        pytest.param(
            *(axis[n] for axis, n in zip(axes, place, strict=True)),
            marks=[] if place in default else [pytest.mark.exhaustive],
        )
        for place in product(*(range(len(axis)) for axis in axes))
    ]


def some(count: int) -> int:
    """How many of ``count`` random cases run: one in four by default, but no fewer than five."""
    return count if EXHAUSTIVE else max(min(count, 5), count // 4)


def examples(count: int) -> settings:
    """Marks a test of hypothesis: how many examples it has, of which ``some`` run."""
    return settings(max_examples=some(count))
