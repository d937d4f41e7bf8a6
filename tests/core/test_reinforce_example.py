"""The example of the documentation: REINFORCE on what a chain samples."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "mkdocs" / "reinforce_plot.py"


@pytest.fixture(scope="module")
def example() -> Any:
    pytest.importorskip("torch", reason="the example trains with PyTorch")
    spec = importlib.util.spec_from_file_location("reinforce_plot", PAGE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.torch
def test_score_is_what_was_sampled_and_the_models_own_is_not(example: Any) -> None:
    told = example.train(12, "score")
    for each in told:
        assert each.score == pytest.approx(each.sampled, abs=1e-4)
        assert each.naive < each.sampled - 2
    assert told[-1].reward > told[0].reward


@pytest.mark.torch
def test_the_figure_shows_both_trainings(example: Any) -> None:
    rounds = [example.Round(0.1 * i, -3.0 + i, -3.0 + i, -9.0) for i in range(3)]
    drawn = example.draw(rounds, rounds)
    assert drawn.count("<polyline") == 5
    assert "chain.score" in drawn
