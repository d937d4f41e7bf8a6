"""What only PyTorch has: autograd, inference mode, devices with several spellings, graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from logitloom import load_backend
from logitloom.arrays.backend import Backend, HostTable, backend_of
from tests.cases import EXHAUSTIVE

torch = pytest.importorskip("torch", reason="needs PyTorch")

pytestmark = pytest.mark.torch

OPERATIONS: dict[str, Callable[[Backend, Any, bool], Any]] = {
    "masked_fill": lambda b, x, donate: b.masked_fill(x, x > 0, -1.0, donate),
    "scale": lambda b, x, donate: b.scale(x, 2.0, donate),
    "divide": lambda b, x, donate: b.divide(x, 2.0, donate),
    "add": lambda b, x, donate: b.add(x, x, donate),
    "add_at": lambda b, x, donate: b.add_at(x, torch.tensor([[1, -1], [0, 0]]), 1.0, donate),
    "set_at": lambda b, x, donate: b.set_at(x, torch.tensor([[1, -1], [0, 0]]), 1.0, donate),
    "write_at": lambda b, x, donate: b.write_at(x, torch.tensor([[1], [0]]), torch.ones(2, 1), donate),
    "apply_token_mask": lambda b, x, donate: b.apply_token_mask(x, torch.tensor([[5], [3]], dtype=torch.int32), donate),
}


@pytest.fixture
def native() -> Backend:
    return load_backend("torch")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("donate", [False, True])
def test_logits_that_require_gradients_keep_them_and_stay_as_they_are(
    native: Backend, operation: str, donate: bool
) -> None:
    values = torch.arange(8.0).reshape(2, 4) - 3
    expected = OPERATIONS[operation](native, values.clone(), False)
    given = values.clone().requires_grad_()
    result = OPERATIONS[operation](native, given, donate)
    assert result.requires_grad
    assert torch.equal(result, expected)
    assert torch.equal(given, values)
    result.masked_fill(result == float("-inf"), 0.0).sum().backward()
    assert given.grad is not None


@pytest.mark.parametrize("operation", OPERATIONS)
def test_donated_logits_of_a_finished_inference_mode_are_left_alone(native: Backend, operation: str) -> None:
    with torch.inference_mode():
        values = torch.arange(8.0).reshape(2, 4) - 3
        expected = OPERATIONS[operation](native, values.clone(), True)
    result = OPERATIONS[operation](native, values, True)
    assert torch.equal(result, expected)
    assert torch.equal(values, torch.arange(8.0).reshape(2, 4) - 3)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_donated_logits_are_written_in_place(native: Backend, operation: str) -> None:
    values = torch.arange(8.0).reshape(2, 4)
    assert OPERATIONS[operation](native, values, True).data_ptr() == values.data_ptr()


def test_one_device_has_one_backend(native: Backend) -> None:
    cpu = native.at("cpu")
    assert native.at(torch.device("cpu", 0)) is cpu
    assert native.at(torch.device("cpu")) is cpu
    assert native.at(native.at("meta").device) is native.at("meta")
    assert native.at("meta") is not cpu
    assert native.at("meta").at("cpu") is cpu


def test_creation_follows_the_device(native: Backend) -> None:
    meta = native.at("meta")
    assert meta.xp.zeros((2, 3)).device.type == "meta"
    assert meta.xp.arange(3, device="cpu").device.type == "cpu"
    assert meta.asarray(np.zeros(3)).device.type == "meta"
    assert backend_of(meta.xp.ones(2)) is meta


def test_a_parameter_belongs_to_torch(native: Backend) -> None:
    assert backend_of(torch.nn.Parameter(torch.zeros(2))) is native.at("cpu")


def test_a_class_derived_from_tensor_belongs_to_torch(native: Backend) -> None:
    class Marked(torch.Tensor):
        pass

    assert backend_of(torch.zeros(2).as_subclass(Marked)) is native.at("cpu")


def test_a_graph_finds_the_backend_and_the_namespace(native: Backend) -> None:
    table = HostTable(np.arange(4, dtype=np.float32))
    table.on(native)

    def step(x: Any, index: Any) -> Any:
        backend = backend_of(x)
        xp = backend.xp
        x = backend.take_rows(xp.sort(x, axis=-1) + table.on(backend), index)
        return xp.take_along_axis(xp.concat([x, xp.zeros((2, 4))], axis=0), index[None, :] * 0, axis=-1)

    x, index = torch.randn(2, 4), torch.tensor([1, 0], dtype=torch.int32)
    compiled = torch.compile(step, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x, index), step(x, index))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_machine_code_equals_eager(native: Backend) -> None:
    import shutil

    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("torch.compile needs a C++ compiler on the CPU")

    def step(x: Any, bits: Any, tokens: Any) -> Any:
        x = native.apply_token_mask(x, bits)
        x = native.add_at(native.scale(x, 0.5, True), tokens, -1.0, True)
        x = native.set_at(x, tokens[:, :1], -torch.inf, True)
        x = native.masked_fill(x, x < native.kth_largest(x, 20), -torch.inf, True)
        return native.softmax(x), *native.top_k(x, 3)

    x, bits = torch.randn(3, 70), torch.randint(-(2**31), 2**31 - 1, (3, 3), dtype=torch.int32)
    tokens = torch.tensor([[1, 1, -1], [-1, -1, -1], [0, 99, 5]], dtype=torch.int32)
    before = x.clone()
    compiled = native.compile(step)
    # A size is compiled as it is, the next one for all sizes, and 1 once more by itself.
    for rows in (3, 2, 1) if EXHAUSTIVE else (3, 2):
        got, expected = compiled(x[:rows], bits[:rows], tokens[:rows]), step(x[:rows], bits[:rows], tokens[:rows])
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other)
    assert torch.equal(x, before)
