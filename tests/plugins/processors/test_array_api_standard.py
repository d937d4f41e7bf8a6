"""Built-in processors use nothing of an array library that the standard does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from logitloom import Backend
from logitloom_plugins.conformance import combinators, processors
from tests.plugins.strict_backend import strict_backend

pytest.importorskip("array_api_strict", reason="needs the package array-api-strict")

pytestmark = pytest.mark.extras

SUITES = [getattr(module, name) for module in (processors, combinators) for name in module.__all__]
CASES = [(suite, case) for suite in SUITES for case in suite.cases]


@pytest.fixture(scope="module")
def strict() -> Iterator[Backend]:
    with strict_backend() as backend:
        yield backend


@pytest.mark.parametrize(
    ("suite", "case"), CASES, ids=[f"{suite.__name__.removeprefix('Test')}-{case}" for suite, case in CASES]
)
@pytest.mark.long
def test_a_processor_runs_on_the_standard_alone(strict: Any, suite: Any, case: str) -> None:
    marks = getattr(suite, "pytestmark", [])
    for mark in marks if isinstance(marks, list) else [marks]:
        if mark.name == "skipif" and mark.args[0]:
            pytest.skip(mark.kwargs["reason"])
    suite().test_any_number_of_tokens_may_come_at_once(strict, case)
    suite().test_batches_of_one_and_of_none_are_taken(strict, case)
    if suite().declared(case, "compilable"):
        suite().test_compiled_equals_eager(strict, case)
