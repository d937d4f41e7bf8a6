"""Token healing in engines: their own loops write the texts of logitloom's loop, and transformers' healing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from logitloom import Context, processors
from logitloom.document import from_document, to_document
from logitloom.generation import BeamSearch, Generator, heal
from tests.contrib.engines.conftest import PAD, VOCABULARY, WIDTH, encode, tensor

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"),
    pytest.mark.extras,
]

#: They end within "red", "blue", " cat", "co" and "12".
PROMPTS = [encode(text) for text in ("a r", "the blu", "12 ", "xyc", "z1")]
CHAINS: dict[str, tuple[Any, ...]] = {
    "free": (),
    "regex": (("regex", {"pattern": "[a-z]{1,4}( [0-9]+)?"}),),
    "stop": (("stop", {"strings": ["o"]}), ("bad_words", {"phrases": ["a"]})),
}


def chain_of(name: str) -> Any:
    return processors.load(*CHAINS[name], tokenizer=VOCABULARY)


@pytest.mark.torch
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", CHAINS)
def test_transformers_writes_what_the_own_loop_writes(tiny_transformers: Any, name: str, beams: int) -> None:
    pytest.importorskip("torch", reason="transformers needs PyTorch")
    from logitloom_contrib.engines.transformers import TransformersModel, to_transformers

    model, width = tiny_transformers("llama"), max(map(len, PROMPTS))
    ids = tensor([[PAD] * (width - len(row)) + row for row in PROMPTS])
    mask = tensor([[0] * (width - len(row)) + [1] * len(row) for row in PROMPTS])
    processor, inputs = to_transformers(chain_of(name), model).heal(ids, mask)
    out = processor.generate(**inputs, max_new_tokens=8, num_beams=beams, do_sample=False)
    theirs = processor.texts(out, inputs["input_ids"].shape[1])
    strategy = {} if beams == 1 else {"strategy": BeamSearch(beams=beams)}
    ours = Generator(TransformersModel(model), chain_of(name), max_tokens=8, heal=True, **strategy)(PROMPTS)
    assert [found.text for found in theirs] == [found.text for found in ours]
    if name == "regex":
        assert all(re.fullmatch("[a-z]{1,4}( [0-9]+)?", found.text) for found in theirs if found.finish == "eos")


@pytest.mark.torch
@pytest.mark.parametrize("masked", [False, True])
def test_a_row_of_padding_alone_is_an_empty_prompt(masked: bool) -> None:
    pytest.importorskip("torch", reason="transformers needs PyTorch")
    from logitloom_contrib.engines.transformers import to_transformers

    ids = tensor([[PAD] * 3, encode("a r")])
    processor = to_transformers(chain_of("free"), padding=PAD)
    _, inputs = processor.heal(ids, (ids != PAD).long() if masked else None)
    shortened = heal(chain_of("free"), [[], encode("a r")]).prompts
    kept = [row[mask == 1].tolist() for row, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)]
    assert kept == [list(prompt) for prompt in shortened]


@pytest.mark.mlx
@pytest.mark.parametrize("name", CHAINS)
def test_mlx_lm_writes_what_the_own_loop_writes(tiny_mlx: Any, name: str) -> None:
    mx = pytest.importorskip("mlx.core", reason="mlx-lm needs MLX")
    steps = pytest.importorskip("mlx_lm.generate", reason="the package mlx-lm is not installed").generate_step
    from logitloom_contrib.engines.mlx_lm import MlxModel, to_mlx_lm

    model = tiny_mlx()
    own = Generator(MlxModel(model), chain_of(name), max_tokens=8, heal=True)
    for prompt, ours in zip(PROMPTS, own(PROMPTS), strict=True):
        healed = heal(chain_of(name), [prompt])
        processor = to_mlx_lm(healed.chain, max_new_tokens=8)
        shortened = mx.array(healed.prompts[0])
        tokens = [int(token) for token, _ in steps(shortened, model, logits_processors=[processor], max_tokens=8)]
        lost = healed.texts[0].decode()
        assert processor.text(tokens).text == lost + (ours.text or "")


@pytest.mark.torch
@pytest.mark.parametrize("prompt", PROMPTS, ids=range(len(PROMPTS)))
def test_the_extensions_of_transformers_are_the_tokens_that_span_the_end(prompt: list[int]) -> None:
    """Transformers goes back one token and offers those that begin with it; so do we, besides shorter ones."""
    tries = pytest.importorskip("transformers.tokenization_python", reason="the package transformers is not installed")
    texts = {text.decode(): token for token, text in enumerate(VOCABULARY.token_bytes) if text}
    healed = heal(processors.load(tokenizer=VOCABULARY), [prompt])
    lost = healed.texts[0].decode()
    theirs = {texts[text] for text in tries.ExtensionsTrie(texts).extensions(prefix=lost)}
    logits = np.zeros((1, WIDTH), dtype=np.float32)
    context = Context.start(logits, vocabulary=VOCABULARY, prompt=healed.prompts)
    processed, _ = healed.chain.process(logits, healed.chain.init_state(context), context)
    allowed = set(np.flatnonzero(processed[0] > -np.inf).tolist())
    assert {t for t in allowed if VOCABULARY.token_bytes[t].decode().startswith(lost)} == theirs
    assert allowed - theirs == {texts[lost[:n]] for n in range(1, len(lost)) if lost[:n] in texts}


def test_a_healed_chain_is_a_document() -> None:
    """So a request of vLLM can carry it."""
    healed = heal(chain_of("regex"), PROMPTS[:1])
    again = from_document(to_document(healed.chain), tokenizer=VOCABULARY)
    logits = np.zeros((1, WIDTH), dtype=np.float32)
    context = Context.start(logits, vocabulary=VOCABULARY, prompt=healed.prompts)
    masks = [chain.process(logits, chain.init_state(context), context)[0] for chain in (healed.chain, again)]
    np.testing.assert_array_equal(*masks)
    assert np.isfinite(masks[0]).sum() > 1
