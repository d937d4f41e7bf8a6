"""What the backend of MLX makes up for in MLX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.mlx
mx = pytest.importorskip("mlx.core", reason="the library is not installed")


@pytest.mark.parametrize("name", ["all", "any"])
def test_mlx_is_never_asked_to_reduce_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from logitloom_plugins.backends.mlx import MlxBackend

    given = getattr(mx, name)

    def refusing(x: Any, **named: Any) -> Any:
        assert x.size, "MLX may never return from this call"
        return given(x, **named)

    monkeypatch.setattr(mx, name, refusing)
    xp = MlxBackend().xp
    for shape in ((0,), (3, 0), (0, 3), (2, 0, 3), (2, 3)):
        for axis in (None, *range(len(shape))):
            for keepdims in (False, True):
                made = getattr(xp, name)(xp.zeros(shape, dtype=xp.int32) == 1, axis=axis, keepdims=keepdims)
                expected = getattr(np, name)(np.zeros(shape) == 1, axis=axis, keepdims=keepdims)
                assert made.dtype == mx.bool_
                np.testing.assert_array_equal(np.array(made), expected, strict=True)
