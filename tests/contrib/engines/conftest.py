"""Tiny random models, and a vocabulary small enough to read."""

from __future__ import annotations

import string
from typing import Any

import pytest

from logitloom import Vocabulary

#: End of sequence, padding, and an id that the tokenizer does not know (models pad their vocabularies).
EOS, PAD, WIDTH = 0, 1, 128
_TEXTS = [*string.ascii_lowercase, *string.digits, *" -@.", "red", "blue", " cat", "dog ", "co", "om", "12", "3-"]
VOCABULARY = Vocabulary([b"", b"", *(text.encode() for text in _TEXTS)], eos=[EOS], special=[PAD], name="letters")

PATTERNS = (
    r"\d{3}-\d{4}",
    r"(red|green|blue|yellow) (cat|dog|bird) [0-9]{2}",
    r"[a-z]{2,5}@[a-z]{2,4}\.(com|org|net)",
)


def encode(text: str) -> list[int]:
    return [2 + _TEXTS.index(letter) for letter in text]


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
            model = transformers.LlamaForCausalLM(config)
        else:
            config = transformers.GPT2Config(
                vocab_size=WIDTH, n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.4, **ids
            )
            model = transformers.GPT2LMHeadModel(config)
        made[kind, seed] = model.eval()
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
