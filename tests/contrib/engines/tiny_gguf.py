"""A tiny random model in float32 as a file of llama.cpp; its tokens are those of the other tests' vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.contrib.engines.conftest import EOS, PAD, VOCABULARY, WIDTH

__all__ = ["write_tiny_gguf"]

_DIM, _HIDDEN, _LAYERS, _HEADS, _KV_HEADS, _HEAD = 64, 96, 2, 2, 1, 32


def write_tiny_gguf(path: Path, letters: str = "") -> Path:
    """Write it.

    Args:
        path: of the file.
        letters: further tokens of one letter each, at ids that are unused otherwise.
    """
    import gguf

    rng, writer = np.random.default_rng(0), gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(_DIM)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_HIDDEN)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KV_HEADS)
    writer.add_rope_dimension_count(_HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(WIDTH)
    _add_tokenizer(writer, gguf, letters)

    def add(name: str, *shape: int) -> None:
        normal = rng.normal(size=shape).astype(np.float32) * 0.4
        writer.add_tensor(name, np.ones(shape, dtype=np.float32) if len(shape) == 1 else normal)

    add("token_embd.weight", WIDTH, _DIM)
    add("output.weight", WIDTH, _DIM)
    add("output_norm.weight", _DIM)
    for layer in range(_LAYERS):
        add(f"blk.{layer}.attn_norm.weight", _DIM)
        add(f"blk.{layer}.ffn_norm.weight", _DIM)
        add(f"blk.{layer}.attn_q.weight", _HEADS * _HEAD, _DIM)
        add(f"blk.{layer}.attn_k.weight", _KV_HEADS * _HEAD, _DIM)
        add(f"blk.{layer}.attn_v.weight", _KV_HEADS * _HEAD, _DIM)
        add(f"blk.{layer}.attn_output.weight", _DIM, _HEADS * _HEAD)
        add(f"blk.{layer}.ffn_gate.weight", _HIDDEN, _DIM)
        add(f"blk.{layer}.ffn_up.weight", _HIDDEN, _DIM)
        add(f"blk.{layer}.ffn_down.weight", _DIM, _HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: Any, gguf: Any, letters: str) -> None:
    names = ["<eos>", "<pad>", *(data.decode().replace(" ", "Ġ") for data in VOCABULARY.token_bytes[2:])]
    names += [letter.replace("\n", "Ċ") for letter in letters]
    names += [f"[unused{n}]" for n in range(WIDTH - len(names))]
    control, normal, unused = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL, gguf.TokenType.UNUSED
    known = VOCABULARY.size + len(letters)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(names)
    writer.add_token_types([control, control, *[normal] * (known - 2), *[unused] * (WIDTH - known)])
    # The file has to have merges; no text of the tests is tokenized by them.
    writer.add_token_merges(["r e"])
    writer.add_eos_token_id(EOS)
    writer.add_pad_token_id(PAD)
    writer.add_bos_token_id(EOS)
    writer.add_add_bos_token(False)
