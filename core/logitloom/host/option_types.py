"""Names and options of the built-in processors, for type checkers and editors.

Made from the declarations of the processors by ``python -m tests.option_types``; do not edit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

__all__ = ["BuiltInName", "BuiltInOptions"]

#: Every built-in processor.
BuiltInName = Literal[
    "adaptive_p",
    "after",
    "all_of",
    "alternating_codebooks",
    "bad_words",
    "bad_words_ids",
    "between",
    "budget",
    "cfg",
    "checked",
    "choice",
    "context_aware",
    "contrastive",
    "dola",
    "dry",
    "dynamic_temperature",
    "encoder_no_repeat_ngram",
    "encoder_repetition_penalty",
    "eos_above",
    "epsilon_cutoff",
    "eta_cutoff",
    "exponential_decay_length_penalty",
    "force_tokens",
    "forced_eos",
    "frequency_penalty",
    "fsm",
    "grammar",
    "heal",
    "json",
    "logit_bias",
    "min_p",
    "min_tokens",
    "mirostat",
    "mirostat_v2",
    "no_repeat_ngram",
    "normalize",
    "p_less",
    "prefix_allowed_tokens",
    "presence_penalty",
    "quadratic",
    "regex",
    "remove_invalid",
    "repetition_penalty",
    "sequence_bias",
    "stop",
    "stop_repetition",
    "structural_tag",
    "suppress_tokens",
    "temperature",
    "thinking",
    "tool_call",
    "top_a",
    "top_h",
    "top_k",
    "top_n_sigma",
    "top_p",
    "typical_p",
    "until",
    "watermark_delta",
    "watermark_dipmark",
    "watermark_greenlist",
    "watermark_gumbel",
    "watermark_synthid",
    "whisper_no_speech",
    "whisper_timestamps",
    "xtc",
]


class BuiltInOptions(TypedDict, total=False):
    """Every option of any of them, with the types that it has there."""

    a: float
    across_prompt: bool
    additional_properties: bool
    allowed_length: int
    alpha: float
    amateur_temperature: float
    automaton: Any
    base: float
    beams: int
    begin: bool | str
    beta: float
    bias: Mapping[int, float] | float
    biases: Sequence[float]
    breaker_ids: Sequence[int]
    breakers: Sequence[str]
    budget: int | None
    by_mass: bool
    candidates: int
    center: Literal["unconditional", "conditional"]
    chat_template: str | None
    check: Any
    choice: Any
    choices: Any
    close: Sequence[str] | str
    context_tokens: Sequence[int] | int | None
    curve: float
    decay: float
    end: bool
    engine: str
    eos: Sequence[int] | int | None
    epsilon: float
    escapes: str
    eta: float
    exponent: float
    factor: float
    finish_within: int | None
    form: Literal["two_pass", "one_pass"]
    format: Any
    formats: str
    function: Any
    grammar: os.PathLike[str] | str
    h: float
    high: float
    history_size: int
    ignore_case: bool
    in_order: bool
    include: bool
    include_prompt: bool
    inner: Any
    integers: str
    json: Mapping[str, Any]
    k: int
    keep: Sequence[int] | int | None
    keep_forbidden: bool
    key: int
    keys: Sequence[int]
    layers: Sequence[int]
    longest: int
    longest_tokens: bool
    low: float
    m: int
    max_initial: int | None
    max_items: int
    max_length: int
    max_match: int
    max_seconds: float
    max_size: int
    max_states: int
    max_whitespace: int
    min_keep: int
    mix: float
    model: Any
    multiplier: float
    n: float
    negative_prompt: Mapping[str, Any] | Sequence[Sequence[int] | str] | Sequence[int] | str | None
    ngram_len: int
    no_timestamps: int
    normalize: bool | None
    observe: Literal["own", "chosen"]
    offset: int
    open: Sequence[str] | str
    p: float
    parallel: bool
    pattern: str
    penalty: float
    phrases: Sequence[str]
    probability: float
    prompts: Sequence[Sequence[int]]
    question: Mapping[str, Any] | Sequence[Sequence[int] | str] | Sequence[int] | str | None
    questions: int
    ratio: float
    reasoning: str | None
    relaxed: bool
    removed: Sequence[Sequence[int]]
    repeat: bool
    required: bool
    sample: bool
    scale: float
    schedule: Sequence[Sequence[float]] | None
    schema: Any
    scheme: Literal["lefthash", "selfhash"]
    separator: str
    sequences: Sequence[Sequence[int]]
    shortest: int
    size: int
    skip_first: bool
    start: int | str | None
    strict: bool | None
    strings: Sequence[str]
    syntax: str
    table_seed: int
    table_size: int
    tag: Any
    target: float
    tau: float
    temperature: float
    text: str
    then: Any
    threshold: float | None
    times: int
    token: int
    tokens: Mapping[int, int] | Sequence[int]
    tools: Any
    top_k: int | None
    trigger: Sequence[str] | str
    weighting: Literal["beta", "difference"]
    whitespace: str
    width: int
    window: int | None
