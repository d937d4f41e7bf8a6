"""The operations of ``Backend``, the kit's checks and the reference model keep to the array API standard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from logitloom.testing import BackendConformance
from logitloom_contrib.llama import random_model
from tests.plugins.strict_backend import strict_backend

pytest.importorskip("array_api_strict", reason="needs the package array-api-strict")

pytestmark = pytest.mark.extras


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    with strict_backend():
        yield


class TestArrayApiStrict(BackendConformance):
    """With no operation of its own."""

    backends = ("array_api_strict",)


def logits_of(model: Any) -> list[Any]:
    prompts = np.array([[1, 2, 3], [4, 5, -1]], dtype=np.int32)
    first, cache = model.forward(prompts, model.empty_cache(2))
    second, cache = model.forward(np.array([[7], [8]], dtype=np.int32), cache)
    third, _ = model.forward(np.array([[7, 1], [8, -1]], dtype=np.int32), cache, all_positions=True)
    return [model.backend.to_numpy(first), model.backend.to_numpy(second), model.backend.to_numpy(third)[:, 0]]


def test_the_reference_model_runs_on_the_standard_alone() -> None:
    for found, expected in zip(logits_of(random_model("array_api_strict")), logits_of(random_model()), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)
