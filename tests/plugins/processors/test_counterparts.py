"""Every processor of the other libraries has a counterpart, or an entry that says what there is instead."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import Any

import pytest

from logitloom import processors

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def counterparts() -> Any:
    spec = importlib.util.spec_from_file_location("counterparts", ROOT / "docs" / "mkdocs" / "counterparts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.COUNTERPARTS


@pytest.mark.extras
def test_every_class_of_transformers_has_an_entry(counterparts: Any) -> None:
    theirs = pytest.importorskip("transformers.generation.logits_process", reason="not installed")
    classes = {
        name
        for name, kind in vars(theirs).items()
        if inspect.isclass(kind) and issubclass(kind, theirs.LogitsProcessor) and kind is not theirs.LogitsProcessor
    }
    assert len(classes) > 30
    assert set(counterparts["transformers"]) == classes


@pytest.mark.extras
def test_every_way_of_generating_of_transformers_has_an_entry(counterparts: Any) -> None:
    theirs = pytest.importorskip("transformers.generation.configuration_utils", reason="not installed")
    modes = {mode.value for mode in theirs.GenerationMode}
    assert "contrastive_search" in modes
    assert set(counterparts["transformers, `GenerationMode`"]) == modes


@pytest.mark.extras
def test_every_function_of_mlx_lm_has_an_entry(counterparts: Any) -> None:
    theirs = pytest.importorskip("mlx_lm.sample_utils", reason="not installed")
    functions = {name for name, made in vars(theirs).items() if callable(made) and made.__module__ == theirs.__name__}
    known = {name for name in functions if not name.startswith("_")}
    assert len(known) > 5
    assert known - set(counterparts["mlx-lm"]) == set()


def test_every_counterpart_exists_and_what_has_none_says_why(counterparts: Any) -> None:
    installed = {record.name for record in processors.available() if record.distribution == "logitloom"}
    for library, entries in counterparts.items():
        for theirs, found in entries.items():
            assert set(found.ours) <= installed, f"{library}: {theirs}"
            assert found.ours or found.note, f"{library}: {theirs}"
        assert list(entries) == sorted(entries), f"{library} is not in alphabetical order"
