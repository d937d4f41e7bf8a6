"""The CuPy backend without a device: the whole kit runs on a stand-in for CuPy, which is compared with the real one.

Each run is a process of its own, because the stand-in takes the name ``cupy`` in ``sys.modules``.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

TESTS = Path(__file__).parents[2]
STAND_IN = TESTS / "fixtures" / "cupy_stand_in"
#: Processors of several kinds: a division, a sort with sums, a maximum, a scattered count, a polynomial that clips.
PROCESSORS = ("TestTemperature", "TestTopP", "TestMinP", "TestFrequencyPenalty", "TestQuadratic")
#: What runs on the stand-in.
KIT = (
    *(f"backends/test_{name}.py" for name in ("conformance", "placement", "token_rows")),
    *(f"processors/test_conformance.py::{name}" for name in PROCESSORS),
    "processors/test_fsm_in_all_ways.py::test_every_width_of_float_is_masked_and_kept",
)


@pytest.fixture(scope="module")
def stand_in() -> ModuleType:
    """The module itself, under a name that hides nobody's CuPy."""
    spec = importlib.util.spec_from_file_location("cupy_stand_in", STAND_IN / "cupy" / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- the backend on the stand-in --------------------------------------------------------------------------


@pytest.mark.extras
def test_backend_and_processors_pass_the_kit_on_the_stand_in(tmp_path: Path) -> None:
    pytest.importorskip("array_api_compat", reason="the package array_api_compat is not installed")
    distribution = tmp_path / "cupy_cuda12x-14.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: cupy-cuda12x\nVersion: 14.0\n")
    path = os.pathsep.join([str(STAND_IN), str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "LOGITLOOM_EXPECT_BACKENDS": "numpy cupy", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "cupy"]
    command += [str(TESTS / "plugins" / part) for part in KIT]
    run = subprocess.run(
        command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    counted = re.search(r"(\d+) passed", run.stdout)
    assert counted is not None
    assert int(counted[1]) >= 350


# -- what the stand-in refuses ----------------------------------------------------------------------------


def test_arrays_do_not_become_arrays_of_numpy_by_themselves(stand_in: Any) -> None:
    x = stand_in.zeros((2, 3))
    with pytest.raises(TypeError, match=r"Please use `\.get\(\)`"):
        np.asarray(x)
    with pytest.raises(TypeError, match="Unsupported type"):
        x + np.zeros((2, 3))
    with pytest.raises(TypeError, match="Unsupported type"):
        np.zeros((2, 3)) + x
    with pytest.raises(TypeError, match="Unsupported type"):
        stand_in.where(x > 0, np.zeros((2, 3)), x)
    with pytest.raises(TypeError, match="Unsupported type"):
        x[:] = np.ones((2, 3))
    assert type(x.get()) is np.ndarray
    assert type(np.add(x, 1)) is stand_in.ndarray
    assert type(x[0, 0]) is stand_in.ndarray


def test_arrays_of_another_device_than_the_current_one_are_refused(stand_in: Any) -> None:
    with stand_in.cuda.Device(1):
        there = stand_in.zeros(3)
    with pytest.raises(ValueError, match="different from the current device"):
        there + 1
    assert there.get().tolist() == [0, 0, 0]


def test_which_of_several_writes_stays_is_not_that_of_numpy(stand_in: Any) -> None:
    x = stand_in.zeros(2)
    x[stand_in.asarray([0, 0])] = stand_in.asarray([1.0, 2.0])
    assert x.get().tolist() == [1, 0]


def test_dtypes_without_kernels_and_other_sorts_are_refused(stand_in: Any) -> None:
    with pytest.raises(ValueError, match="Unsupported dtype"):
        stand_in.asarray(["text"])
    with pytest.raises(ValueError, match="unsupported kind"):
        stand_in.sort(stand_in.zeros(3), kind="mergesort")


# -- the stand-in beside the real one ---------------------------------------------------------------------


def public(module: Any) -> list[str]:
    return [name for name in vars(module) if not name.startswith("_")]


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def documented(method: Any) -> list[str]:
    """The parameters of a compiled method, from the first line of its documentation: names with their defaults."""
    found = re.search(r"\((.*)\)", (method.__doc__ or "").splitlines()[0])
    assert found is not None
    return [re.sub(r"^(int|Py_ssize_t) ", "", part.strip()) for part in found[1].split(",")][1:]


@pytest.mark.cupy
def test_every_name_and_signature_is_that_of_cupy(stand_in: Any) -> None:
    if hasattr(sys.modules.get("cupy"), "_host"):
        pytest.skip("cupy is the stand-in itself")
    cupy = pytest.importorskip("cupy", reason="the package cupy is not installed", exc_type=ImportError)
    own = ("Device", "annotations", "builtins", "contextlib", "inspect", "ml_dtypes", "sys", "types", "np", "ufunc")
    compared = 0
    for name in public(stand_in):
        if name in own:
            continue
        ours, real = getattr(stand_in, name), getattr(cupy, name)
        if isinstance(ours, stand_in.ufunc):
            assert (ours.nin, ours.nout) == (real.nin, real.nout), name
        elif name == "matmul":  # a class of CuPy's own, which takes anything
            inspect.signature(real).bind(*inspect.signature(ours).parameters)
        elif inspect.isfunction(ours):
            assert parameters(ours) == parameters(real), name
        elif isinstance(ours, type) and ours.__module__ == "numpy":
            assert ours is real, name
        else:
            continue
        compared += 1
    assert compared > 100


@pytest.mark.cupy
def test_every_attribute_of_arrays_and_devices_is_that_of_cupy(stand_in: Any) -> None:
    if hasattr(sys.modules.get("cupy"), "_host"):
        pytest.skip("cupy is the stand-in itself")
    cupy = pytest.importorskip("cupy", reason="the package cupy is not installed", exc_type=ImportError)
    assert stand_in.ndarray.__module__ == cupy.ndarray.__module__
    for name, ours in vars(stand_in.ndarray).items():
        if name in ("__dict__", "__weakref__"):
            continue
        real = getattr(cupy.ndarray, name)
        if inspect.isfunction(ours) and not name.startswith("_"):
            told = [str(p).replace(" ", "") for p in list(inspect.signature(ours).parameters.values())[1:]]
            assert told == documented(real), name
    for name in public(stand_in.cuda.Device):
        assert hasattr(cupy.cuda.Device, name)
    told = [str(p) for p in list(inspect.signature(stand_in.ufunc.at).parameters.values())[1:]]
    assert documented(cupy.add.at) == told
