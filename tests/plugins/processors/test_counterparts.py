"""Every processor of the other libraries has a counterpart, or an entry that says what there is instead."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import Any

import pytest

from logitloom import processors

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def counterparts() -> Any:
    spec = importlib.util.spec_from_file_location("counterparts", ROOT / "docs" / "mkdocs" / "counterparts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.COUNTERPARTS


def test_no_builtin_has_the_name_of_what_has_no_counterpart(counterparts: Any) -> None:
    built_in = {record.name for record in processors.available() if record.distribution == "logitloom"}
    missing = {name for table in counterparts.values() for name, ours in table.items() if ours.note.startswith("none:")}
    assert built_in & missing == set()


@pytest.mark.extras
def test_every_class_of_transformers_has_an_entry(counterparts: Any) -> None:
    theirs = pytest.importorskip("transformers.generation.logits_process", reason="not installed")
    classes = {
        name
        for name, kind in vars(theirs).items()
        if inspect.isclass(kind) and issubclass(kind, theirs.LogitsProcessor) and kind is not theirs.LogitsProcessor
    }
    assert len(classes) > 30
    assert set(counterparts["transformers"]) == classes


@pytest.mark.extras
def test_every_way_of_generating_of_transformers_has_an_entry(counterparts: Any) -> None:
    theirs = pytest.importorskip("transformers.generation.configuration_utils", reason="not installed")
    modes = {mode.value for mode in theirs.GenerationMode}
    assert "contrastive_search" in modes
    assert set(counterparts["transformers, `GenerationMode`"]) == modes


@pytest.mark.extras
def test_every_function_of_mlx_lm_has_an_entry(counterparts: Any) -> None:
    theirs = pytest.importorskip("mlx_lm.sample_utils", reason="not installed")
    functions = {name for name, made in vars(theirs).items() if callable(made) and made.__module__ == theirs.__name__}
    known = {name for name in functions if not name.startswith("_")}
    assert len(known) > 5
    assert known - set(counterparts["mlx-lm"]) == set()


#: Parameters of vLLM that choose no token: what is told, kept, checked, or shown of a text.
OF_VLLM_ELSEWHERE = {
    "detokenize", "extra_args", "flat_logprobs", "include_stop_str_in_output", "logprob_token_ids", "logprobs",
    "max_tokens", "n", "output_kind", "output_text_buffer_length", "prompt_logprob_start", "prompt_logprob_token_ids",
    "prompt_logprobs", "routed_experts_prompt_start", "skip_clone", "skip_reading_prefix_cache", "skip_special_tokens",
    "spaces_between_special_tokens", "stream_interval",
}  # fmt: skip


@pytest.mark.extras
def test_every_parameter_of_vllm_that_chooses_tokens_has_an_entry(counterparts: Any) -> None:
    theirs = pytest.importorskip("vllm.sampling_params", reason="the package vllm is not installed")
    fields = {name for name in theirs.SamplingParams.__struct_fields__ if not name.startswith("_")}
    assert {"top_p", "bad_words"} <= fields
    assert fields - OF_VLLM_ELSEWHERE - set(counterparts["vLLM"]) == set()


@pytest.mark.extras
def test_every_sampler_of_llama_cpp_has_an_entry(counterparts: Any) -> None:
    theirs = pytest.importorskip("llama_cpp.llama_cpp", reason="the package llama_cpp is not installed")
    start = "llama_sampler_init_"
    samplers = {name.removeprefix(start) for name in vars(theirs) if name.startswith(start)}
    # A lazy grammar by patterns differs in what triggers it.
    assert samplers - {"grammar_lazy_patterns"} - set(counterparts["llama.cpp"]) == set()
    assert len(samplers) > 15


def test_every_counterpart_exists_and_what_has_none_says_why(counterparts: Any) -> None:
    installed = {record.name for record in processors.available() if record.distribution == "logitloom"}
    for library, entries in counterparts.items():
        for theirs, found in entries.items():
            assert set(found.ours) <= installed, f"{library}: {theirs}"
            assert found.ours or found.note, f"{library}: {theirs}"
        assert list(entries) == sorted(entries), f"{library} is not in alphabetical order"
