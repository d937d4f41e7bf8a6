"""``benchmarks/gpu.py`` as far as a CPU can show it: its parts run, and what cannot run says why."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(scope="module")
def gpu() -> ModuleType:
    path = Path(__file__).parent.parent / "benchmarks" / "gpu.py"
    spec = importlib.util.spec_from_file_location("gpu_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.exhaustive
def test_every_part_measures_or_says_why_not(
    gpu: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(gpu.PARTS, "other libraries")  # what it runs is benchmarks/backends.py
    gpu.main(["--device", "cpu", "--seconds", "0.001", "--vocab", "300", "--batches", "1", "3", "--copy", "1000"])
    told = capsys.readouterr().out
    assert "the CPU (no figures of a device)" in told
    assert told.count("| packed, in place | ") == 2
    for name in gpu.CHAINS:
        assert told.count(f"| {name} | ") == 2
    assert told.count("| peaked | ") == 2
    assert "Skipped: vLLM is not installed." in told or "Skipped: no --model FOLDER was given." in told


def test_without_a_device_it_says_so(gpu: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    gpu.main([])
    assert capsys.readouterr().out.startswith("Nothing was measured: PyTorch")
