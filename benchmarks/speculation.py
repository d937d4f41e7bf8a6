"""Speculative decoding on the real model: tokens per second with drafts over those without, in one process.

    python benchmarks/speculation.py [--tokens 64] [--backend torch] [--threads 1]

Variants run in turn, and the median of the ratios within a turn is printed, so that a busy machine slows all alike.
With one thread its own time is measured, else the time on the wall. The last part runs the same weights in
transformers.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from conditions import heading

from logitloom import processors
from logitloom.generation import Generator, Statistics, candidates
from logitloom_contrib.llama import load

ARTICLE = (
    "The harbour of Vellmar was founded in 1243 by merchants from the northern islands. For three hundred years it was "
    "the only deep harbour on the coast, and every ship that carried salt, amber or furs had to pay the harbour tax. "
    "In 1561 a storm closed the eastern channel with sand. The merchants moved to Osterby, and Vellmar became a "
    "village of fishermen again. Today about 4,200 people live there, most of them work in the wind parks off shore."
)
CODE = (
    "def area(shape):\n    if shape.kind == 'circle':\n        return 3.14159 * shape.radius ** 2\n"
    "    if shape.kind == 'square':\n        return shape.side ** 2\n    if shape.kind == 'triangle':\n"
    "        return 0.5 * shape.base * shape.height\n    raise ValueError(shape.kind)\n"
)
GROUNDED = [
    f"Repeat the following text word for word, without any change.\n\n{ARTICLE}",
    f"Copy this Python code exactly.\n\n{CODE}",
    f"Quote the first two sentences of this text, then the last one.\n\n{ARTICLE}",
]
FREE = [
    "Write a short story about a lighthouse keeper who finds a map.",
    "Explain why leaves change their colour in autumn.",
    "Give three ideas for a rainy Sunday with children.",
]
NAME = "[A-Z][a-z]{1,10}"
JSON = (
    r'\{"first_name": "' + NAME + r'", "last_name": "' + NAME + r'", "age_in_years": [1-9][0-9]?, "home_address": '
    r'\{"street_name": "' + NAME + r' Street", "city_name": "' + NAME + r'", "postal_code": "[0-9]{5}"\}, '
    r'"is_currently_employed": (true|false)\}'
)
#: Prompts show the form that is asked for, as they do wherever people ask for JSON.
FORM = (
    '{"first_name": "...", "last_name": "...", "age_in_years": 0, "home_address": {"street_name": "... Street", '
    '"city_name": "...", "postal_code": "00000"}, "is_currently_employed": true}'
)
ASKED = [
    f"Invent {who}. Answer with JSON of this form and nothing else:\n{FORM}"
    for who in ("a baker from Leeds", "a nurse from Boston", "a pilot from Perth")
]


def clock() -> float:
    """Seconds: of this thread if it does all the work, so that a busy machine matters less; else on the wall."""
    import torch

    return time.thread_time() if torch.get_num_threads() == 1 else time.perf_counter()


Run = Callable[[], tuple[int, list[tuple[int, ...]]]]


def generating(generator: Generator, prompts: list[list[int]]) -> Run:
    """One generation per prompt: how many tokens, and which."""

    def run() -> tuple[int, list[tuple[int, ...]]]:
        found = [generator([prompt])[0].tokens for prompt in prompts]
        return sum(map(len, found)), found

    return run


def compare(title: str, variants: dict[str, Run], base: str, runs: int, notes: dict[str, Statistics]) -> None:
    """A table of tokens per second, over those of ``base`` in the same turn."""
    speeds: dict[str, list[float]] = {name: [] for name in variants}
    texts: dict[str, list[tuple[int, ...]]] = {}
    for _ in range(runs):
        for name, run in variants.items():
            started = clock()
            count, texts[name] = run()
            speeds[name].append(count / (clock() - started))
    print(f"### {title}\n")
    print(f"| variant | tokens per second | over {base} | same texts | drafts |")
    print("| --- | ---: | ---: | ---: | --- |")
    for name, found in speeds.items():
        ratio = statistics.median(a / b for a, b in zip(found, speeds[base], strict=True))
        same = sum(a == b for a, b in zip(texts[name], texts[base], strict=True))
        note = str(notes[name]).split(", time")[0] if name in notes else ""
        print(f"| {name} | {statistics.median(found):.1f} | {ratio:.2f} | {same} of {len(texts[base])} | {note} |")
    print(flush=True)


def against_transformers(model: Any, prompts: list[list[int]], tokens: int, runs: int) -> None:
    """The same weights in transformers, plain and with its own prompt look-up."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from logitloom_contrib.llama.gguf_file import GGUFFile
    from logitloom_contrib.llama.weights import read_config, read_weights

    file = GGUFFile(model.path)
    c = read_config(file)
    weights = read_weights(file, c)
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=c.vocab_size, hidden_size=c.dim, intermediate_size=c.hidden, num_hidden_layers=c.layers,
            num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, rms_norm_eps=c.rms_eps,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_base}, max_position_embeddings=c.max_length,
            tie_word_embeddings=True, bos_token_id=None, eos_token_id=model.vocabulary.eos[0], pad_token_id=0,
        )
    ).eval()  # fmt: skip
    with torch.no_grad():
        theirs.model.embed_tokens.weight.copy_(torch.tensor(np.asarray(weights.embedding)))
        theirs.model.norm.weight.copy_(torch.tensor(np.asarray(weights.norm)))
        kv = c.kv_heads * c.head_dim
        for layer, w in zip(theirs.model.layers, weights.layers, strict=True):
            q, k, v = np.split(np.asarray(w.qkv), [c.dim, c.dim + kv])
            gate, up = np.split(np.asarray(w.gate_up), 2)
            pairs = [
                (layer.self_attn.q_proj, q), (layer.self_attn.k_proj, k), (layer.self_attn.v_proj, v),
                (layer.self_attn.o_proj, np.asarray(w.attention_output)), (layer.mlp.gate_proj, gate),
                (layer.mlp.up_proj, up), (layer.mlp.down_proj, np.asarray(w.down)),
                (layer.input_layernorm, np.asarray(w.attention_norm)),
                (layer.post_attention_layernorm, np.asarray(w.feed_forward_norm)),
            ]  # fmt: skip
            for module, weight in pairs:
                module.weight.copy_(torch.tensor(np.ascontiguousarray(weight)))

    def generate(**more: Any) -> Run:
        def run() -> tuple[int, list[tuple[int, ...]]]:
            found = []
            for prompt in prompts:
                ids = torch.tensor([prompt])
                with torch.no_grad():
                    out = theirs.generate(
                        ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, **more
                    )
                found.append(tuple(t for t in out[0, len(prompt) :].tolist() if t not in model.vocabulary.eos))
            return sum(map(len, found)), found

        return run

    ours, counted = Generator(model, processors.load(tokenizer=model.vocabulary), max_tokens=tokens), Statistics()
    made = candidates.load("prompt_lookup", {"max_ngram": 2, "num_tokens": 10})
    drafted = replace(ours, candidates=made, on_round=counted.add)
    variants = {
        "transformers": generate(),
        "transformers, prompt look-up": generate(prompt_lookup_num_tokens=10, max_matching_ngram_size=2),
        "logitloom": generating(ours, prompts),
        "logitloom, prompt look-up": generating(drafted, prompts),
    }
    notes = {"logitloom, prompt look-up": counted}
    compare("Text from the prompt, beside transformers", variants, "transformers, prompt look-up", runs, notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--device")
    parser.add_argument("--only", choices=["grounded", "free", "json", "transformers"])
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    import torch

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    print(heading("torch", "transformers"))
    model = load(backend=arguments.backend, device=arguments.device)

    def encoded(texts: list[str]) -> list[list[int]]:
        chat = model.tokenizer.apply_chat_template
        return [model.tokenizer.encode(chat([{"role": "user", "content": text}])) for text in texts]

    grounded, asked = encoded(GROUNDED), encoded(ASKED)
    if arguments.only in (None, "grounded"):
        look_up(model, "Text from the prompt", grounded, arguments)
    if arguments.only in (None, "free"):
        look_up(model, "Free text", encoded(FREE), arguments)
    if arguments.only in (None, "json"):
        constrained(model, asked, arguments)
    if arguments.only in (None, "transformers"):
        against_transformers(model, grounded, arguments.tokens, arguments.runs)


def look_up(model: Any, title: str, prompts: list[list[int]], arguments: argparse.Namespace) -> None:
    plain = Generator(model, processors.load(tokenizer=model.vocabulary), max_tokens=arguments.tokens)
    variants, notes = {"plain": generating(plain, prompts)}, {}
    for name, given in {"prompt_lookup": {"max_ngram": 3}, "ngram_cache": {"num_tokens": 10}}.items():
        notes[name] = Statistics()
        drafted = replace(plain, candidates=candidates.load(name, given), on_round=notes[name].add)
        variants[name] = generating(drafted, prompts)
    compare(title, variants, "plain", arguments.runs, notes)


def constrained(model: Any, asked: list[list[int]], arguments: argparse.Namespace) -> None:
    chain = processors.load(("regex", {"pattern": JSON}), tokenizer=model.vocabulary)
    plain, counted = Generator(model, chain, max_tokens=160, skip_forced=False), Statistics()
    skipping = replace(plain, skip_forced=True)
    made = candidates.load("grammar", {"tokenizer": model.tokenizer})
    variants = {
        "one token a pass": generating(plain, asked),
        "forced tokens skipped": generating(skipping, asked),
        "grammar": generating(replace(skipping, candidates=made, on_round=counted.add), asked),
    }
    compare("Constrained JSON", variants, "one token a pass", arguments.runs, {"grammar": counted})


if __name__ == "__main__":
    main()
