from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom_contrib.llama.weights import LlamaConfig

#: Sizes of the model files that tests write.
TINY = LlamaConfig(
    vocab_size=24, layers=2, dim=32, hidden=64, heads=4, kv_heads=2, head_dim=8, max_length=128, rms_eps=2.0**-20
)

WriteModel = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny_config() -> LlamaConfig:
    return TINY


@pytest.fixture
def write_model(tmp_path: Path) -> WriteModel:
    """Writes a tiny model with gguf's own writer: ``write_model(tensors, **changed metadata)``; None leaves out."""
    gguf = pytest.importorskip("gguf", reason="writing model files needs the package gguf")

    def write(
        tensors: dict[str, np.ndarray], *, architecture: str = "llama", quantisation: str = "F32", **changes: Any
    ) -> Path:
        path = tmp_path / f"{architecture}.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        metadata = {
            "block_count": TINY.layers,
            "context_length": TINY.max_length,
            "embedding_length": TINY.dim,
            "feed_forward_length": TINY.hidden,
            "attention.head_count": TINY.heads,
            "attention.head_count_kv": TINY.kv_heads,
            "attention.layer_norm_rms_epsilon": TINY.rms_eps,
        }
        for key, value in {**metadata, **{k.replace("__", "."): v for k, v in changes.items()}}.items():
            if value is None:
                continue
            add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
            add[type(value)](f"llama.{key}", value)
        for name, values in tensors.items():
            kind = gguf.GGMLQuantizationType[quantisation if values.ndim == 2 else "F32"]
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


@pytest.fixture
def tiny_tensors() -> dict[str, np.ndarray]:
    """Random tensors of a tiny model, under their names in GGUF files."""
    rng = np.random.default_rng(5)
    c = TINY
    attention, shared = c.heads * c.head_dim, c.kv_heads * c.head_dim
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (c.vocab_size, c.dim), "output_norm.weight": (c.dim,)}
    for i in range(c.layers):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (c.dim,),
            f"blk.{i}.attn_q.weight": (attention, c.dim),
            f"blk.{i}.attn_k.weight": (shared, c.dim),
            f"blk.{i}.attn_v.weight": (shared, c.dim),
            f"blk.{i}.attn_output.weight": (c.dim, attention),
            f"blk.{i}.ffn_norm.weight": (c.dim,),
            f"blk.{i}.ffn_gate.weight": (c.hidden, c.dim),
            f"blk.{i}.ffn_up.weight": (c.hidden, c.dim),
            f"blk.{i}.ffn_down.weight": (c.dim, c.hidden),
        }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
