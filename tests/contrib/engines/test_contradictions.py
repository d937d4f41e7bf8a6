"""A truncation before a constraint that keeps no token of the constraint is named at the step, in each engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from logitloom import processors
from logitloom.errors import NoLegalToken
from logitloom_contrib.engines.llama_cpp import to_llama_cpp
from logitloom_contrib.engines.vllm.runner_v1 import RunnerV1
from logitloom_contrib.requests.engine_constraints import no_token_left
from tests.contrib.engines.conftest import EOS, VOCABULARY, WIDTH, encode
from tests.contrib.engines.test_protocols import SwallowingLlama, lists  # noqa: F401
from tests.contrib.engines.vllm.conftest import engine_of, params_of

SPECS: list[tuple[str, dict[str, Any]]] = [("top_k", {"k": 1}), ("temperature", {}), ("regex", {"pattern": "a[0-9]"})]
PROMPT = encode("z")
NAMED = (
    r"'top_k' kept no token that 'regex' allows, which left row 0 .* position 2 after 'a'.*Put 'top_k' behind 'regex'"
)


def logits_of(likeliest: str) -> np.ndarray:
    logits = np.zeros((1, WIDTH), dtype=np.float32)
    logits[0, encode(likeliest)] = 9.0
    return logits


def chain_of() -> Any:
    return processors.load(*SPECS, tokenizer=VOCABULARY)


@pytest.mark.usefixtures("lists")
def test_llama_cpp_names_it() -> None:
    """Its library swallows exceptions, and the adapter raises them when the library's method returns."""
    chain = processors.load(("top_k", {"k": 1}), ("regex", {"pattern": "a[0-9]"}), tokenizer=VOCABULARY)
    model = SwallowingLlama()  # its likeliest token is end-of-sequence
    with pytest.raises(NoLegalToken, match=NAMED.replace("position 2 after 'a'", "position 1")):
        model.create_completion(PROMPT, logits_processor=to_llama_cpp(chain, model))


@pytest.mark.extras
def test_transformers_names_it() -> None:
    torch = pytest.importorskip("torch", reason="transformers needs PyTorch")
    pytest.importorskip("transformers", reason="the package transformers is not installed")
    from logitloom_contrib.engines.transformers import to_transformers

    processor = to_transformers(chain_of())
    processor(torch.tensor([PROMPT]), torch.from_numpy(logits_of("a")))
    with pytest.raises(NoLegalToken, match=NAMED):
        processor(torch.tensor([[*PROMPT, *encode("a")]]), torch.from_numpy(logits_of("b")))


@pytest.mark.extras
def test_mlx_lm_names_it() -> None:
    mx = pytest.importorskip("mlx.core", reason="mlx-lm needs MLX")
    pytest.importorskip("mlx_lm", reason="the package mlx-lm is not installed")
    from logitloom_contrib.engines.mlx_lm import to_mlx_lm

    processor = to_mlx_lm(chain_of())
    processor(mx.array(PROMPT), mx.array(logits_of("a")))
    with pytest.raises(NoLegalToken, match=NAMED):
        processor(mx.array([*PROMPT, *encode("a")]), mx.array(logits_of("b")))


@pytest.mark.extras
@pytest.mark.parametrize(
    ("specs", "said"),
    [
        (SPECS, "'top_k' kept no token that 'regex' allows. Put 'top_k' behind 'regex'."),
        ([*SPECS, ("bad_words", {"phrases": ["5"]})], "Processors top_k, regex, bad_words contradict each other"),
    ],
)
def test_a_request_to_vllm_ends_with_it(specs: list[tuple[str, dict[str, Any]]], said: str) -> None:
    torch = pytest.importorskip("torch", reason="vLLM needs PyTorch")
    runner, output = RunnerV1(engine_of()), list[int]()
    params = params_of([{"use": name, "options": options} for name, options in specs])
    batch = SimpleNamespace(batch_size=1, removed=[], moved=[], added=[(0, params, PROMPT, output)])
    runner.update_state(batch)
    runner.apply(torch.from_numpy(logits_of("a")))
    output += encode("a")
    runner.update_state(None)
    logits = runner.apply(torch.from_numpy(logits_of("b")))
    assert np.flatnonzero(np.isfinite(logits[0].numpy())).tolist() == [EOS]
    assert said in str(runner.requests[0].failure)


def test_a_truncation_before_what_looks_at_logits_has_another_remedy() -> None:
    chain = processors.load(SPECS[0], ("checked", {"check": lambda text, ends: False, "sample": False}))
    said = "'top_k' kept no token that 'checked' allows. Set the options of 'top_k' to keep more."
    assert no_token_left(chain, ()) == said
