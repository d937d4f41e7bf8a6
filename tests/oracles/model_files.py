"""Model files as transformers reads them, which is the oracle of our own reader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import pytest


@contextmanager
def gguf_read_once() -> Iterator[None]:
    """transformers parses a model file for each thing that it loads, through slices of a memory map, which are slow."""
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    mapped = np.memmap
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "memmap", lambda *given, **more: mapped(*given, **more).view(np.ndarray))
        patch.setattr(gguf, "GGUFReader", lru_cache(gguf.GGUFReader))
        patch.setattr(gguf, "get_tensor_name_map", lru_cache(gguf.get_tensor_name_map))
        yield
