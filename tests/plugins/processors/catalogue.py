"""Every built-in processor, with options under which it does something to small random rows."""

from __future__ import annotations

from typing import Any

#: Width of the logits that these options fit.
VOCAB = 24

SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    "dry": ("dry", {"breakers": [], "breaker_ids": [5], "allowed_length": 1}),
    "dry-window": ("dry", {"breakers": [], "allowed_length": 1, "window": 5, "max_match": 3}),
    "epsilon_cutoff": ("epsilon_cutoff", {"epsilon": 0.03}),
    "eta_cutoff": ("eta_cutoff", {"epsilon": 0.05}),
    "force_tokens": ("force_tokens", {"tokens": {1: 3, 4: 2}}),
    "frequency_penalty": ("frequency_penalty", {"penalty": 0.7}),
    "frequency_penalty-window": ("frequency_penalty", {"penalty": 0.7, "window": 3, "include_prompt": True}),
    "logit_bias": ("logit_bias", {"bias": {2: 1.5, 3: -2.0}}),
    "logit_bias-ban": ("logit_bias", {"bias": {4: float("-inf")}}),
    "min_p": ("min_p", {"p": 0.05}),
    "min_tokens": ("min_tokens", {"n": 3, "eos": [0, 7]}),
    "no_repeat_ngram": ("no_repeat_ngram", {"n": 2}),
    "presence_penalty": ("presence_penalty", {"penalty": 0.7}),
    "presence_penalty-window": ("presence_penalty", {"penalty": 0.7, "window": 3, "include_prompt": True}),
    "repetition_penalty": ("repetition_penalty", {"penalty": 1.4}),
    "repetition_penalty-window": ("repetition_penalty", {"penalty": 1.4, "window": 3}),
    "suppress_tokens": ("suppress_tokens", {"tokens": [1, 6]}),
    "suppress_tokens-begin": ("suppress_tokens", {"tokens": [1, 6], "begin": True}),
    "temperature": ("temperature", {"temperature": 0.7}),
    "top_k": ("top_k", {"k": 12}),
    "top_n_sigma": ("top_n_sigma", {"n": 1.5}),
    "top_p": ("top_p", {"p": 0.9}),
    "typical_p": ("typical_p", {"p": 0.8}),
    "xtc": ("xtc", {"threshold": 0.08, "probability": 0.5}),
}
