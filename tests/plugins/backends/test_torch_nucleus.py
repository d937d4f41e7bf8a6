"""The Triton kernel of the nucleus, run by Triton's interpreter on the CPU, against sums in double precision."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("triton", reason="needs Triton")

from logitloom_plugins.backends.torch import TorchBackend  # noqa: E402

pytestmark = pytest.mark.torch

#: Sums are functions of Triton's own, and Triton decides at its import whether they are compiled or interpreted.
IN_INTERPRETER = """
import sys, torch
from logitloom_plugins.backends._torch_nucleus import nucleus_threshold
torch.save([nucleus_threshold(x, p) for x, p in torch.load(sys.argv[1])], sys.argv[2])
"""

#: Vocabulary, dtype, and masses. A program reads 2,048 logits at a time, which takes Triton's interpreter seconds.
SMALL = [(2, "float32", (0.4,)), (50, "float16", (0.0, 0.4, 0.95, 0.99999))]
LARGE = [(2048, "bfloat16", (0.4,)), (4100, "float32", (0.95, 0.99999))]

Thresholds = Callable[[Sequence[tuple[Any, float]]], list[Any]]


@pytest.fixture
def thresholds(tmp_path: Path) -> Thresholds:
    """What the kernel finds for pairs of logits and a mass."""

    def found(cases: Sequence[tuple[Any, float]]) -> list[Any]:
        torch.save(list(cases), tmp_path / "cases")
        command = [sys.executable, "-c", IN_INTERPRETER, str(tmp_path / "cases"), str(tmp_path / "found")]
        subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, check=True)
        given: list[Any] = torch.load(tmp_path / "found")
        return given

    return found


def exact(x: Any, p: float) -> tuple[Any, Any]:
    """The least and the largest threshold of a row for masses between ``p - 1e-5`` and ``p + 1e-5``."""
    descending = np.sort(x.astype(np.float64))[::-1]
    mass = np.exp(descending - descending[0])
    before = np.cumsum(mass / mass.sum()) - mass / mass.sum()
    least, largest = (descending[max(1, int((before < bound).sum())) - 1] for bound in (p + 1e-5, p - 1e-5))
    return least, largest


@pytest.mark.parametrize("shapes", [SMALL, pytest.param(LARGE, marks=pytest.mark.exhaustive)], ids=["small", "large"])
def test_it_finds_the_least_logit_of_the_nucleus(
    thresholds: Thresholds, shapes: list[tuple[int, str, tuple[float, ...]]]
) -> None:
    cases = []
    for vocab, dtype, masses in shapes:
        given = torch.from_numpy(np.random.default_rng(vocab).normal(size=(6, vocab + 3))).to(getattr(torch, dtype))
        given[1, 1:], given[2], given[3, 1::2] = -torch.inf, 1.0, -torch.inf
        given[4], given[5] = (given[4] > 1).to(given.dtype), given[5] * 20 - 300
        cases += [(given[:, :vocab].contiguous(), masses[0]), *((given[:, :vocab], p) for p in masses)]
    # A row has the same border in every batch.
    *together, alone = thresholds([*cases, (cases[-1][0][:1], cases[-1][1])])
    assert torch.equal(together[-1][:1], alone)
    for (x, p), found in zip(cases, together, strict=True):
        assert found.shape == (6, 1)
        assert found.dtype == x.dtype
        for row, threshold in zip(x.float().numpy(), found.float().numpy()[:, 0], strict=True):
            least, largest = exact(row, p)
            assert least <= threshold <= largest
            assert threshold in row


def test_nothing_is_forbidden_in_rows_without_a_distribution(thresholds: Thresholds) -> None:
    x = torch.zeros(3, 10)
    x[0, 4], x[1, 4], x[2] = torch.nan, torch.inf, -torch.inf
    found, none = thresholds([(x, 0.9), (x[:0], 0.9)])
    assert torch.isneginf(found).all()
    assert none.shape == (0, 1)


def test_the_backend_of_a_device_takes_it_and_sorts_where_it_must() -> None:
    plain, device, calls = TorchBackend(torch.device("cpu")), TorchBackend(torch.device("cpu")), []

    def kernel(x: Any, p: float) -> Any:
        calls.append(x)
        return plain.nucleus_threshold(x, p)

    device.on_host = False
    device.nuclei = SimpleNamespace(DTYPES=frozenset({torch.float32}), nucleus_threshold=kernel)
    x = torch.from_numpy(np.random.default_rng(2).normal(size=(4, 40)).astype(np.float32))
    expected = plain.nucleus_threshold(x, 0.7)
    assert torch.equal(device.nucleus_threshold(x, 0.7), expected)
    assert torch.equal(device.nucleus_threshold(x.clone().requires_grad_(), 0.7), expected)
    assert len(calls) == 2
    assert torch.equal(device.nucleus_threshold(x.double(), 0.7).float(), expected)
    assert device.nucleus_threshold(x.T, 0.7).shape == (40, 1)
    assert len(calls) == 2
