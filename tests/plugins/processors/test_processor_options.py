"""Wrong options are refused with the value, the place and the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, errors, processors

LOGITS = np.zeros((1, 10), dtype=np.float32)

OUT_OF_RANGE = [
    ("min_p", {"p": 1.5}),
    ("min_p", {"p": 0.5, "min_keep": 0}),
    ("top_p", {"p": -0.1}),
    ("typical_p", {"p": 0.0}),
    ("epsilon_cutoff", {"epsilon": 1.0}),
    ("eta_cutoff", {"epsilon": 0.0}),
    ("top_n_sigma", {"n": -1.0}),
    ("xtc", {"threshold": 0.0}),
    ("xtc", {"probability": 1.1}),
    ("repetition_penalty", {"penalty": 0.0}),
    ("repetition_penalty", {"penalty": 1.5, "window": 0}),
    ("presence_penalty", {"penalty": float("nan")}),
    ("frequency_penalty", {"penalty": float("inf")}),
    ("dry", {"base": 0.5}),
    ("dry", {"allowed_length": 0}),
    ("dry", {"breakers": ["\n", ""]}),
    ("logit_bias", {"bias": {1: float("inf")}}),
    ("logit_bias", {"bias": {1: float("nan")}}),
    ("logit_bias", {"bias": {-1: 1.0}}),
    ("suppress_tokens", {"tokens": [-1]}),
    ("force_tokens", {"tokens": {0: -1}}),
    ("force_tokens", {"tokens": {-1: 3}}),
    ("min_tokens", {"n": -1}),
    ("no_repeat_ngram", {"n": 0}),
    ("temperature", {"temperature": 0.0}),
    ("top_k", {"k": 0}),
]


@pytest.mark.parametrize(("name", "options"), OUT_OF_RANGE, ids=str)
def test_values_out_of_range_are_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(errors.OptionError, match=name):
        processors.load((name, options))


BEYOND = [
    ("suppress_tokens", {"tokens": [10]}),
    ("suppress_tokens", {"tokens": list(range(300))}),
    ("force_tokens", {"tokens": {0: 10}}),
    ("logit_bias", {"bias": {10: 1.0}}),
    ("xtc", {"keep": [10]}),
    ("min_tokens", {"n": 1, "eos": [10]}),
    ("dry", {"breakers": [], "breaker_ids": [10]}),
    ("forced_eos", {"max_length": 2, "eos": [10]}),
    ("eos_above", {"p": 0.2, "eos": [10]}),
    ("exponential_decay_length_penalty", {"start": 1, "factor": 1.1, "eos": [10]}),
    ("bad_words_ids", {"sequences": [[1, 10]]}),
    ("sequence_bias", {"sequences": [[10, 1]], "biases": [1.0]}),
    ("whisper_no_speech", {"token": 10, "eos": 0}),
    ("heal", {"removed": [[1, 10]]}),
]


@pytest.mark.parametrize(("name", "options"), BEYOND, ids=[name for name, _ in BEYOND])
def test_ids_beyond_the_logits_are_refused_at_the_start(name: str, options: dict[str, Any]) -> None:
    words = Vocabulary([b"", *(bytes([letter]) for letter in b"abcdefghi")], eos=[0])
    with pytest.raises(errors.OptionError, match=rf"{name}.* names the token 10, but the logits have ids 0 to 9"):
        processors.load((name, options), tokenizer=words).init_state(Context.start(LOGITS, prompt=[[]], max_length=4))


@pytest.mark.parametrize(
    ("name", "options", "need"),
    [
        ("repetition_penalty", {"penalty": 1.5}, "prompt"),
        ("presence_penalty", {"penalty": 1.5, "include_prompt": True}, "prompt"),
        ("frequency_penalty", {"penalty": 1.5, "include_prompt": True}, "prompt"),
        ("dry", {}, "vocabulary"),
        ("dry", {"breakers": []}, "history"),
        ("no_repeat_ngram", {"n": 2}, "history"),
        ("min_tokens", {"n": 2}, "vocabulary"),
    ],
)
def test_unmet_needs_are_named(name: str, options: dict[str, Any], need: str) -> None:
    with pytest.raises(errors.NeedsNotMet, match=f"{name}' needs {need}"):
        processors.load((name, options)).init_state(Context.start(LOGITS))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("repetition_penalty", {"penalty": 1.5, "include_prompt": False}),
        ("presence_penalty", {"penalty": 1.5}),
        ("suppress_tokens", {"tokens": [1]}),
        ("min_tokens", {"n": 2, "eos": [1]}),
    ],
)
def test_needs_follow_the_options(name: str, options: dict[str, Any]) -> None:
    processors.load((name, options)).init_state(Context.start(LOGITS))


def test_a_minimum_length_without_any_end_of_sequence_is_refused() -> None:
    chain = processors.load(("min_tokens", {"n": 2}), tokenizer=None)
    context = Context.start(LOGITS, vocabulary=Vocabulary([b"a", b"b"], name="toy"))
    with pytest.raises(errors.NeedsNotMet, match=r"no end-of-sequence id in toy.*option 'eos'"):
        chain.init_state(context)


def test_every_processor_is_described_with_its_options_and_a_reference() -> None:
    from tests.plugins.processors.catalogue import SPECS

    for name in sorted({name for name, _ in SPECS.values()}):
        description = processors.describe(name)
        assert description.summary.endswith(".")
        assert "References:" in description.doc
        assert all(option.help for option in description.options)
