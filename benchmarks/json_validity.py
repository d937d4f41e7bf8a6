"""Documents that a real model writes for schemas of JSONSchemaBench: how many are complete, how many of them valid.

    python benchmarks/json_validity.py [--schemas 200] [--tokens 64]

SmolLM2-135M-Instruct writes one document per schema and sequence, by beam search (3 beams), sampling (3 sequences),
greedy decoding with prompt lookup, and greedy decoding that skips forced tokens, the schemas taking turns; those
with the shortest instances are taken. Each complete document is parsed and validated by the jsonschema package;
each incomplete one must be the beginning of a document.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.conditions import heading  # noqa: E402
from logitloom.errors import LogitloomError  # noqa: E402
from logitloom_contrib.llama import load  # noqa: E402
from tests.plugins.json_schema.decoding_ways import WAYS, shortest_first, written  # noqa: E402
from tests.plugins.json_schema.schema_data import benchmark  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=64, help="most tokens of a document")
    parser.add_argument("--backend", default="numpy")
    given = parser.parse_args()
    print(heading("jsonschema"))
    model = load(backend=given.backend)
    counts = {way: Counter[str]() for way in WAYS}
    begin = time.perf_counter()
    done = 0
    for row in shortest_first(benchmark()):
        if done == given.schemas:
            break
        way = list(WAYS)[done % len(WAYS)]
        try:
            found = list(written(model, row["schema"], way, given.tokens))
        except LogitloomError as error:
            print(f"refused: {row['name']}: {error}"[:200], flush=True)
            counts[way]["refused"] += 1
            continue
        done += 1
        counts[way]["schemas"] += 1
        for one in found:
            counts[way]["documents"] += 1
            counts[way]["complete"] += one.complete
            counts[way]["wrong"] += one.wrong is not None
            counts[way]["forced"] += one.forced
            if one.wrong is not None:
                print(f"WRONG: {row['name']}: {one.wrong}: {one.text}", flush=True)
        if done % 20 == 0:
            print(f"\n{done} schemas, {time.perf_counter() - begin:.0f} s\n{table(counts)}", flush=True)
    print(f"\n{table(counts)}")


def table(counts: dict[str, Counter[str]]) -> str:
    """A table in Markdown."""
    head = ("schemas", "documents", "complete", "wrong", "forced")
    lines = ["| way | " + " | ".join(head) + " |", "|" + " --- |" * (len(head) + 1)]
    for way, count in counts.items():
        lines.append(f"| {way} | " + " | ".join(str(count[name]) for name in head) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
