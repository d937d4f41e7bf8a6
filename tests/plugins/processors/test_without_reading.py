"""Every processor on PyTorch's device ``meta``: its arrays have no values, so a processor that reads one is found.

What runs here waits for no accelerator, and downloads nothing from it.
"""

from __future__ import annotations

from typing import Any

import pytest

from logitloom import Context, Vocabulary, processors
from logitloom.automata import compile_pattern
from tests.plugins.processors.catalogue import SPECS, VOCAB

torch: Any = pytest.importorskip("torch", reason="needs PyTorch")

pytestmark = pytest.mark.torch

WORDS = Vocabulary([b"", *(bytes([letter]) for letter in b"abcdefghijklmnopqrstu<>")], eos=[0])
REGEX = ("regex", {"pattern": "[a-c]{2,8}d?"})
INNER = ("suppress_tokens", {"tokens": [1]})

CASES: dict[str, tuple[str, dict[str, Any]]] = SPECS | {
    "adaptive_p": ("adaptive_p", {}),
    "alternating_codebooks": ("alternating_codebooks", {"offset": 4, "size": 5}),
    "bad_words": ("bad_words", {"phrases": ["ab"]}),
    "bad_words_ids": ("bad_words_ids", {"sequences": [[1, 2], [3]]}),
    "cfg": ("cfg", {"scale": 1.5, "form": "one_pass"}),
    "checked": ("checked", {"check": lambda text, ends: True, "sample": True}),
    "choice": ("choice", {"choices": ["ab", "cd"]}),
    "context_aware": ("context_aware", {"form": "one_pass"}),
    "dynamic_temperature": ("dynamic_temperature", {}),
    "encoder_no_repeat_ngram": ("encoder_no_repeat_ngram", {"n": 2}),
    "encoder_repetition_penalty": ("encoder_repetition_penalty", {"penalty": 1.2}),
    "eos_above": ("eos_above", {"p": 0.2, "eos": [0]}),
    "exponential_decay_length_penalty": ("exponential_decay_length_penalty", {"start": 1, "factor": 1.1, "eos": [0]}),
    "forced_eos": ("forced_eos", {"max_length": 2, "eos": [0]}),
    "fsm": ("fsm", {"automaton": compile_pattern("[a-c]+")}),
    "grammar": ("grammar", {"grammar": 'root ::= "a" root "b" | "b"'}),
    "heal": ("heal", {"removed": [[1]]}),
    "json": ("json", {"schema": {"const": True}}),
    "length_ramp": ("length_ramp", {"target": 3, "eos": [0]}),
    "mirostat": ("mirostat", {}),
    "mirostat_v2": ("mirostat_v2", {}),
    "normalize": ("normalize", {}),
    "p_less": ("p_less", {}),
    "prefix_allowed_tokens": ("prefix_allowed_tokens", {"function": lambda row, ids: [row, 3]}),
    "quadratic": ("quadratic", {"factor": 0.2}),
    "regex": REGEX,
    "remove_invalid": ("remove_invalid", {}),
    "sequence_bias": ("sequence_bias", {"sequences": [[1, 2]], "biases": [1.0]}),
    "stop": ("stop", {"strings": ["ab"]}),
    "stop_repetition": ("stop_repetition", {"times": 3}),
    "top_a": ("top_a", {}),
    "top_h": ("top_h", {}),
    "watermark_delta": ("watermark_delta", {"key": 7}),
    "watermark_dipmark": ("watermark_dipmark", {"key": 7}),
    "watermark_greenlist": ("watermark_greenlist", {"ratio": 0.5, "bias": 1.5}),
    "watermark_gumbel": ("watermark_gumbel", {"key": 7}),
    "watermark_synthid": ("watermark_synthid", {"keys": [5, 9], "ngram_len": 3}),
    "whisper_no_speech": ("whisper_no_speech", {"token": 7, "eos": 0}),
    "whisper_timestamps": ("whisper_timestamps", {"no_timestamps": 17, "eos": 16}),
    "after": ("after", {"trigger": "ab", "inner": INNER}),
    "all_of": ("all_of", {"inner": INNER}),
    "until": ("until", {"trigger": "ab", "inner": INNER}),
    "between": ("between", {"open": "a", "close": "b", "inner": INNER}),
    "budget": ("budget", {"n": 2, "inner": INNER}),
    "thinking": ("thinking", {"budget": 5, "open": "<", "close": ">"}),
}

#: Who reads arrays on the host, and why. The list only gets shorter.
WAITS: dict[str, str] = {
    **dict.fromkeys(("after", "all_of", "between", "budget", "thinking", "until"), "looks for its strings on the host"),
    "checked": "asks a function of the user in the order of the logits",
    "contrastive": "runs a model, whose adapter decides where its logits are",
    "dola": "runs layers of a model, whose adapter decides where its logits are",
    "grammar": "rows of states on the host, fed with tokens of the host",
    "heal": "rows of states on the host, fed with tokens of the host",
    "json": "rows of states on the host, fed with tokens of the host",
    "prefix_allowed_tokens": "calls a function of the user with ids of the host",
    "stop_repetition": "rows of states on the host, fed with tokens of the host",
    "watermark_greenlist": "draws its lists of green tokens on the host",
    "watermark_synthid": "draws its coins on the host",
    "structural_tag": "is made of json and the looking for strings",
    "tool_call": "is made of json and the looking for strings",
}

CHAINS: dict[str, tuple[Any, ...]] = {
    "guidance and four": (CASES["cfg"], CASES["repetition_penalty"], REGEX, CASES["temperature"], CASES["top_p"]),
    "penalties and warps": tuple(CASES[name] for name in ("dry", "presence_penalty", "top_k", "min_p", "xtc")),
    "constraints": (REGEX, CASES["bad_words"], CASES["stop"], CASES["min_tokens"], CASES["top_k"]),
    "n-grams": (CASES["no_repeat_ngram"], CASES["logit_bias"], REGEX, CASES["typical_p"], CASES["top_n_sigma"]),
}


def run_on_meta(*specs: Any) -> None:
    """Three steps of two rows: the start, a token in each row, and several in one."""
    chain = processors.load(*specs, tokenizer=WORDS, debug=False)

    def logits() -> Any:
        return torch.empty((2 * chain.branches, VOCAB), device="meta")

    def tokens(n: int) -> Any:
        return torch.empty((2, n), dtype=torch.int32, device="meta")

    context = Context.start(logits(), prompt=[[1, 2], [3]], max_length=32, branches=chain.branches)
    state = chain.init_state(context)
    out, state = chain.process(logits(), state, context)
    for n in (1, 1) if chain.sees_every_step else (1, 1, 3):
        out, state = chain.process(logits(), state, context.accept(tokens(n)))
    assert out.device.type == "meta"
    assert out.shape == (2, VOCAB)


def test_every_processor_is_tried() -> None:
    installed = {record.name for record in processors.available() if record.distribution == "logitloom"}
    tried = {name for name, _ in CASES.values()} | set(WAITS)
    assert installed - tried == set(), "add it to CASES of this file"


@pytest.mark.parametrize("case", [case for case in CASES if case not in WAITS])
def test_a_processor_reads_nothing_on_the_host(case: str) -> None:
    run_on_meta(CASES[case])


@pytest.mark.parametrize("case", [case for case in CASES if case in WAITS])
def test_a_processor_that_is_named_as_reading_does(case: str) -> None:
    with pytest.raises(Exception, match="meta"):
        run_on_meta(CASES[case])


@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_of_five_reads_nothing_on_the_host(chain: str) -> None:
    assert len(CHAINS[chain]) == 5
    run_on_meta(*CHAINS[chain])
