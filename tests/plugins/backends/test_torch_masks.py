"""The Triton kernels of masks, run by Triton's interpreter on the CPU, against the plain operations."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("triton", reason="needs Triton")

from logitloom_plugins.backends.torch import TorchBackend  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def kernels() -> Iterator[ModuleType]:
    """The module as it is where Triton interprets: what a kernel is, is decided when it is defined."""
    found = importlib.util.find_spec("logitloom_plugins.backends._torch_masks")
    assert found is not None
    assert found.origin is not None
    spec = importlib.util.spec_from_file_location("interpreted_torch_masks", found.origin)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        spec.loader.exec_module(module)
        yield module


def logits_of(batch: int, vocab: int, dtype: Any, strided: bool) -> Any:
    values = torch.from_numpy(np.random.default_rng(batch + vocab).normal(size=(batch, vocab + 5))).to(dtype)
    values[:, :3] = -torch.inf
    return values[:, :vocab] if strided else values[:, :vocab].contiguous()


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("batch", "vocab", "dtype"),
    [(1, 31, "float32"), (2, 2048, "float16"), (1, 2049, "bfloat16"), (2, 4100, "float32"), (1, 64, "float64"),
     (0, 64, "float32")],
)  # fmt: skip
def test_the_kernels_write_what_the_plain_operations_write(
    kernels: ModuleType, dtype: str, batch: int, vocab: int, in_place: bool
) -> None:
    plain, rng = TorchBackend(torch.device("cpu")), np.random.default_rng(vocab)
    words, classes = -(-vocab // 32), 7
    bits = torch.from_numpy(rng.integers(-(2**31), 2**31, (batch, words + 2), dtype=np.int64).astype(np.int32))[:, 1:-1]
    allowed = torch.from_numpy(rng.integers(0, 2, (batch, classes)).astype(np.bool_))
    token_class = torch.from_numpy(rng.integers(0, classes, vocab).astype(np.int32))
    for strided in (False, True):
        given = logits_of(batch, vocab, getattr(torch, dtype), strided)
        expected = plain.apply_token_mask(given.clone(), bits.contiguous())
        before = given.clone()
        found = kernels.apply_token_mask(given, bits, in_place)
        assert torch.equal(found, expected)
        assert (found is given) == in_place
        assert in_place or torch.equal(given, before)
        given = logits_of(batch, vocab, getattr(torch, dtype), strided)
        expected = plain.apply_class_mask(given.clone(), allowed, token_class)
        assert torch.equal(kernels.apply_class_mask(given, allowed, token_class, in_place), expected)


def test_the_backend_of_a_device_takes_them_and_leaves_them_out_where_it_must(kernels: ModuleType) -> None:
    plain, device = TorchBackend(torch.device("cpu")), TorchBackend(torch.device("cpu"))
    device.on_host, device.masks = False, kernels
    calls = []
    bits, allowed = torch.tensor([[5], [3]], dtype=torch.int32), torch.tensor([[True, False], [False, True]])
    kind = torch.tensor([0, 1, 1, 0], dtype=torch.int32)
    with pytest.MonkeyPatch.context() as patch:
        packed = kernels.apply_token_mask
        patch.setattr(kernels, "apply_token_mask", lambda *given: calls.append("packed") or packed(*given))
        for donate in (False, True):
            x = torch.arange(8.0).reshape(2, 4)
            expected = plain.apply_token_mask(x.clone(), bits)
            assert torch.equal(device.apply_token_mask(x.clone(), bits, donate), expected)
            expected = plain.apply_class_mask(x.clone(), allowed, kind)
            assert torch.equal(device.apply_class_mask(x.clone(), allowed, kind, donate), expected)
        assert calls == ["packed", "packed"]
        with_gradient = torch.arange(8.0).reshape(2, 4).requires_grad_()
        assert device.apply_token_mask(with_gradient, bits, True).requires_grad
        turned = torch.arange(8.0).reshape(4, 2).T
        assert torch.equal(device.apply_token_mask(turned, bits), plain.apply_token_mask(turned, bits))
        assert calls == ["packed", "packed"]
