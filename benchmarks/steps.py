"""Steps of constraints beside llguidance: the patterns of ``fsm.py`` and the schemas of ``json_schema.py``.

    OMP_NUM_THREADS=1 python benchmarks/steps.py [--batches 1 8 64]

A figure is the median step of a pattern along random walks, or the mean step of a schema along its instances, at
positions that are visited for the first time and again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

import fsm
import json_schema
import torch
from comparison import Comparison, table
from conditions import heading


def patterns(batches: Sequence[int], names: Sequence[str] | None, passes: int) -> Iterator[Comparison]:
    """Steps along walks of patterns."""
    vocabulary = fsm.tekken()
    engines = [fsm.Ours(vocabulary), fsm.LlGuidance(vocabulary)]
    for rows in batches:
        logits = torch.zeros((rows, vocabulary.size))
        times: list[list[float]] = [[], []]
        for engine in engines:
            engine.start(engine.compile("a+"), logits)(None)
        for name, pattern in fsm.PATTERNS.items():
            if names and name not in names:
                continue
            walks = [fsm.random_walks(pattern, vocabulary, rows, seed) for seed in range(passes + 1)]
            try:
                found = [fsm.step_time(engine, engine.compile(pattern), walks, logits, []) for engine in engines]
            except ValueError:
                continue  # llguidance reads the pattern in another way
            for side in (0, 1):
                times[side].append(found[side])
        yield Comparison(f"regex: a step of {rows} rows", "llguidance", "us", *times, "steps.py")


def schemas(batches: Sequence[int], part: int) -> Iterator[Comparison]:
    """Steps along instances of schemas, per row."""
    vocabulary = json_schema.tekken()
    rows = json_schema.sample()[::part]
    texts = json_schema.tokenized(rows, vocabulary)
    engines = [json_schema.Ours(vocabulary), json_schema.LLGuidance(vocabulary)]
    for batch in batches:
        new: list[list[float]] = [[], []]
        again: list[list[float]] = [[], []]
        for row in rows:
            if not any(valid and len(ids) > 1 for ids, valid in texts[row["name"]]):
                continue
            try:
                found = [
                    json_schema.stepping(engine, [row], texts, batch, vocabulary.size, time.perf_counter)
                    for engine in engines
                ]
            except ZeroDivisionError:
                continue  # one of the two refuses the schema
            for side in (0, 1):
                new[side].append(found[side][0])
                again[side].append(found[side][1])
        for name, times in (("at new positions", new), ("again", again)):
            yield Comparison(f"JSON: a step of {batch} rows {name}, per row", "llguidance", "us", *times, "steps.py")


def comparisons(
    batches: Sequence[int] = (1, 8, 64), names: Sequence[str] | None = None, passes: int = 5, part: int = 8
) -> Iterator[Comparison]:
    """Patterns, then schemas."""
    torch.set_num_threads(1)
    yield from patterns(batches, names, passes)
    yield from schemas(batches, part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    given = parser.parse_args()
    print(heading("numba", "torch", "llguidance", "mistral-common"))
    print(table(list(comparisons(given.batches))))


if __name__ == "__main__":
    main()
