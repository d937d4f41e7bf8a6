"""A tiny random model as a folder that vLLM can serve; its tokens are those of the other tests' vocabulary."""

from __future__ import annotations

from pathlib import Path

from tests.contrib.engines.conftest import EOS, PAD, VOCABULARY, WIDTH

__all__ = ["write_tiny_folder"]


def write_tiny_folder(folder: Path) -> Path:
    """Write model and tokenizer; heads are 32 wide, the least that vLLM takes on a CPU."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WIDTH, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, initializer_range=0.4, eos_token_id=EOS, pad_token_id=PAD,
        bos_token_id=2,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    names = ["<eos>", "<pad>", *(data.decode().replace(" ", "Ġ") for data in VOCABULARY.token_bytes[2:])]
    words = Tokenizer(models.BPE({name: token for token, name in enumerate(names)}, []))
    words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<pad>")
    fast.save_pretrained(folder)
    return folder
