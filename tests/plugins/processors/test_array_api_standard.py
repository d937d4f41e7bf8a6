"""Built-in processors use nothing of an array library that the standard does not have.

The backend is the one that ``logitloom new backend array_api_strict`` writes: it overrides no operation, and the
library refuses everything that the array API standard does not promise.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from logitloom import load_backend, registry
from logitloom.cli.new import write
from logitloom_plugins.conformance import combinators, processors

pytest.importorskip("array_api_strict", reason="needs the package array-api-strict")

pytestmark = pytest.mark.extras

SUITES = [getattr(module, name) for module in (processors, combinators) for name in module.__all__]
CASES = [(suite, case) for suite in SUITES for case in suite.cases]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if any(record.name == "array_api_strict" for record in registry.available("backends")):
        yield load_backend("array_api_strict")
        return
    folder = write("backend", "array_api_strict", tmp_path_factory.mktemp("strict"))
    spec = importlib.util.spec_from_file_location(
        "logitloom_array_api_strict", folder / "src" / "logitloom_array_api_strict" / "__init__.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    registry.register("array_api_strict", module.ArrayApiStrictPlugin, kind="backends")
    yield load_backend("array_api_strict")
    registry.unregister("array_api_strict", kind="backends")


@pytest.mark.parametrize(
    ("suite", "case"), CASES, ids=[f"{suite.__name__.removeprefix('Test')}-{case}" for suite, case in CASES]
)
def test_a_processor_runs_on_the_standard_alone(strict: Any, suite: Any, case: str) -> None:
    marks = getattr(suite, "pytestmark", [])
    for mark in marks if isinstance(marks, list) else [marks]:
        if mark.name == "skipif" and mark.args[0]:
            pytest.skip(mark.kwargs["reason"])
    suite().test_any_number_of_tokens_may_come_at_once(strict, case)
    suite().test_batches_of_one_and_of_none_are_taken(strict, case)
    if suite().declared(case, "compilable"):
        suite().test_compiled_equals_eager(strict, case)
