"""ONNX Runtime GenAI itself, on a tiny random model that its own builder exports."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import Chain, Vocabulary, processors
from logitloom.errors import LogitloomError, ModelError, NeedsNotMet, VocabularyError
from logitloom.generation import BeamSearch, Generator
from logitloom_plugins.engine_texts import Answer
from tests.contrib.engines.conftest import EOS, PAD, PATTERNS, VOCABULARY, documented, encode
from tests.contrib.engines.test_wrong_arguments import SETTINGS, refused_without_a_sentence
from tests.contrib.engines.text_differences import OnnxGenAiTexts

og = pytest.importorskip("onnxruntime_genai", reason="the package onnxruntime-genai is not installed")
for name in ("torch", "transformers", "onnx_ir"):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"exporting a model needs the package {name}", allow_module_level=True)

from logitloom_contrib.engines.onnx_genai import OnnxGenAiModel, to_onnx_genai  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library needs heads that are a multiple of 16 wide, so this is no model of the other tests."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    written, exported = tmp_path_factory.mktemp("hf"), tmp_path_factory.mktemp("onnx")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.4, eos_token_id=0, pad_token_id=1,
        bos_token_id=2,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(written)
    letters = Tokenizer(
        models.BPE({"<eos>": 0, "<pad>": 1, "<bos>": 2, "Ġ": 3, **{chr(n): n - 29 for n in range(33, 127)}}, [])
    )
    letters.pre_tokenizer, letters.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    letters.add_special_tokens(["<eos>", "<pad>", "<bos>"])
    transformers.PreTrainedTokenizerFast(tokenizer_object=letters, eos_token="<eos>").save_pretrained(written)
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(written), "-o", str(exported)]
    subprocess.run([*command, "-p", "fp32", "-e", "cpu"], check=True, capture_output=True, timeout=300)
    assert (Path(exported) / "model.onnx").exists()
    return Path(exported)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return og.Model(str(folder))


def chain_of(*specs: Any) -> Chain:
    return processors.load(*specs, tokenizer=VOCABULARY)


class TestOnnxGenAiTexts(OnnxGenAiTexts):
    vocabulary: Vocabulary = VOCABULARY  # type: ignore[assignment]
    native: Any

    @pytest.fixture(autouse=True)
    def _model(self, model: Any) -> None:
        self.native = model

    def model(self) -> Any:
        return OnnxGenAiModel(self.native, max_length=64)

    def answer(self, chain: Chain, prompt: Sequence[int], max_tokens: int) -> Answer:
        [text] = to_onnx_genai(chain, self.native).generate([prompt], max_length=len(prompt) + max_tokens)
        return Answer(text.text, text.finish)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_rows_of_a_batch_match_their_pattern(model: Any, pattern: str) -> None:
    processor = to_onnx_genai(chain_of(("regex", {"pattern": pattern})), model, padding=PAD)
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=48, do_sample=True, batch_size=3)
    for _ in range(2):
        generator = og.Generator(model, params)
        prompts = np.full((3, 8), PAD, dtype=np.int32)
        for row, prompt in enumerate(("dog 12", "red cats", "z")):
            prompts[row, 8 - len(encode(prompt)) :] = encode(prompt)
        generator.append_tokens(prompts)
        while not generator.is_done():
            processor(generator)
            generator.generate_next_token()
        for row in range(3):
            text = VOCABULARY.decode(generator.get_sequence(row)[8:].tolist())
            assert re.fullmatch(pattern, text)


def test_a_tokenizer_in_the_place_of_the_model_is_refused() -> None:
    with pytest.raises(NeedsNotMet, match="cannot run cfg with the str that it was given as model"):
        to_onnx_genai(processors.load(("cfg", {"scale": 2.0})), "tokenizer.json")


def test_what_cannot_be_followed_is_refused(model: Any) -> None:
    chain = chain_of(("regex", {"pattern": "a+"}))
    with pytest.raises(NeedsNotMet, match="sequences of its beams only when it is done"):
        to_onnx_genai(chain, model).generate([[5]], num_beams=3)
    with pytest.raises(NeedsNotMet, match="No model is bound"):
        to_onnx_genai(chain).generate([[5]])


def test_a_row_is_what_it_is_alone_however_it_came_about(model: Any) -> None:
    adapter, rng = OnnxGenAiModel(model, max_length=64), np.random.default_rng(0)
    cache, rows = adapter.empty_cache(3), [[], [], []]
    for step in range(12):
        if step % 3 == 1:
            index = rng.integers(0, 3, size=3)
            cache, rows = cache.take_rows(index), [list(rows[i]) for i in index]
        if step % 4 == 2:
            kept = [max(len(row) - int(rng.integers(0, 3)), 0) for row in rows]
            cache, rows = cache.crop(kept), [row[:n] for row, n in zip(rows, kept, strict=True)]
        new = rng.integers(2, 40, size=(3, 2)).astype(np.int32)
        new[0, 1] = -1
        logits, cache = adapter.forward(new, cache, all_positions=step % 2 == 0)
        rows = [row + [t for t in line if t >= 0] for row, line in zip(rows, new.tolist(), strict=True)]
        assert cache.lengths.tolist() == [len(row) for row in rows]
        for i, row in enumerate(rows):
            found = logits[i] if logits.ndim == 2 else logits[i, 0 if i == 0 else 1]
            alone, _ = adapter.forward(np.asarray([row], dtype=np.int32), adapter.empty_cache(1))
            np.testing.assert_allclose(found, alone[0], atol=2e-4)
    with pytest.raises(ModelError, match="cannot be cropped to 99"):
        cache.crop([99, 1, 1])


def test_guidance_and_beams_run_in_our_own_loop(model: Any) -> None:
    adapter = OnnxGenAiModel(model, max_length=64)
    chain = chain_of(("cfg", {"scale": 1.5}), ("regex", {"pattern": PATTERNS[1]}))
    for strategy in ({}, {"strategy": BeamSearch(beams=3)}):
        [found] = Generator(adapter, chain, max_tokens=24, **strategy)([encode("hello")])
        assert re.fullmatch(PATTERNS[1], found.text or "")
    [inside] = to_onnx_genai(chain, model).generate([encode("hello")], max_length=40)
    [ours] = Generator(adapter, chain, max_tokens=24, skip_forced=False)([encode("hello")])
    assert inside.text == ours.text


def letters_of(folder: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def by_hand(model: Any, processor: Any, prompt: Sequence[int], max_length: int) -> list[int]:
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=max_length)
    generator = og.Generator(model, params)
    generator.append_tokens(np.asarray(prompt, dtype=np.int32))
    while not generator.is_done():
        processor(generator)
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)[len(prompt) :]]


def test_texts_end_with_the_ids_of_the_model_where_the_tokenizer_has_none(model: Any, folder: Path) -> None:
    letters = letters_of(folder)
    chain = processors.load(("regex", {"pattern": "[0-9]{3}"}), tokenizer=letters)
    for processor in (to_onnx_genai(chain, model), to_onnx_genai(chain, model, eos=[EOS])):
        [answer] = processor.generate([[5]], max_length=32)
        assert re.fullmatch("[0-9]{3}", answer.text)
        assert answer.finish == "eos"
    with pytest.raises(VocabularyError, match="999"):
        to_onnx_genai(chain, model, eos=[999])


def test_texts_fit_the_default_length_of_the_model(model: Any, folder: Path) -> None:
    schema = {"type": "array", "items": {"type": "string"}, "minItems": 2}
    chain = processors.load(("json", {"schema": schema}), tokenizer=letters_of(folder))
    [answer] = to_onnx_genai(chain, model).generate([[5] * 200])
    assert answer.finish == "eos"
    assert len(json.loads(answer.text)) >= 2


def test_what_one_generator_wrote_is_the_prompt_of_the_next(model: Any) -> None:
    processor = to_onnx_genai(chain_of(("regex", {"pattern": "[0-9]{8}"})), model)
    prompt = encode("call ")
    begun = by_hand(model, processor, prompt, len(prompt) + 5)
    for prompt in (encode("call "), encode("call ") + begun[:3], encode("call ") + begun):
        text = by_hand(model, processor, prompt, len(prompt) + 24)
        assert re.fullmatch("[0-9]{8}", VOCABULARY.decode(text))


@pytest.mark.extras
def test_any_argument_is_taken_or_refused(model: Any) -> None:
    chain = chain_of(("regex", {"pattern": "[a-z]{2}"}))
    entries = {
        "to_onnx_genai": (to_onnx_genai, {"chain": chain, "model": model, **SETTINGS}),
        "OnnxGenAiModel": (OnnxGenAiModel, {"model": model}),
        "call": (to_onnx_genai(chain, model), {"generator": None}),
    }
    assert not list(refused_without_a_sentence(entries))
    for prompts in (5, None, "hello", ["hello"], [5], [[0.5]], [[-1]]):
        with pytest.raises(
            LogitloomError, match=r"'prompts' must be a list of token ids, but is|the id -1; ids are never"
        ):
            to_onnx_genai(chain, model).generate(prompts, max_length=32)


def test_the_blocks_of_the_documentation_run(folder: Path) -> None:
    code = documented("engines/onnx_genai.md", __file__).replace('"folder', f'"{folder}')
    names: dict[str, Any] = {}
    exec(compile(code, "docs/engines/onnx_genai.md", "exec", dont_inherit=True), names)
    assert re.fullmatch("[0-9]{3}-[0-9]{4}", names["answer"].text)
    assert names["answer"].finish == "eos"


def test_a_class_becomes_an_object_as_the_documentation_shows(folder: Path) -> None:
    pytest.importorskip("pydantic", reason="the package pydantic is not installed")
    code = documented("structured-output.md", __file__, "pydantic").replace('"folder', f'"{folder}')
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "docs/structured-output.md", "exec", dont_inherit=True), names)
    assert isinstance(names["person"], names["Person"])
