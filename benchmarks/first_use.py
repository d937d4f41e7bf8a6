"""What is new to a process: fresh JSON requests, masks at new positions, and patterns, beside llguidance.

    python benchmarks/first_use.py [--part 4] [--offset 0] [--patterns FILE] [--clock wall]

For every n-th schema of the sample, and every n-th pattern, on the 131,072 ids of Tekken:

* compile and first mask: the schema's or pattern's text to the tokens that may begin;
* one mask at a new position: masks along the first two valid instances of a schema, each position for the first time;
* fresh request: compiling, and all masks along these two instances.

What belongs to the vocabulary alone is made before by both. Who goes first changes from one piece of work to the next.
On a busy machine ``--clock cpu`` measures the processor time of the thread.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from comparison import Comparison, table
from conditions import heading
from json_schema import ROOT, LLGuidance, Ours, Tokenizer, sample
from patterns import LETTERS, ours, peer, read

from logitloom.errors import LogitloomError
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from tests.core.automata.vocabularies import tekken
from tests.plugins.json_schema.serialisation import serialise

DATA = Path(os.environ.get("LOGITLOOM_TEST_DATA", ROOT.parent / "shared" / "data"))
LONGEST = 400
Clock = Callable[[], float]


def request(engine: Any, schema: Any, texts: Sequence[Sequence[int]], clock: Clock) -> tuple[float, list[float]]:
    """Milliseconds to the first mask, and microseconds of each mask along the texts."""
    begin = clock()
    run = engine.start(schema)
    engine.mask(run)
    first, masks = 1e3 * (clock() - begin), []
    for ids in texts:
        state = engine.restart(run)
        for token in ids:
            begin = clock()
            engine.mask(state)
            masks.append(1e6 * (clock() - begin))
            if not engine.advance(state, token):
                raise ValueError("a valid instance was refused")
    return first, masks


def schemas(part: int, offset: int, clock: Clock) -> Iterator[Comparison]:
    """JSON: first masks, masks at new positions, and whole requests."""
    vocabulary = tekken()
    tokenize = Tokenizer(vocabulary)
    engines = [Ours(vocabulary), LLGuidance(vocabulary)]
    for engine in engines:
        engine.mask(engine.start({"type": "object"}))
    first: list[tuple[float, ...]] = []
    whole: list[tuple[float, ...]] = []
    masks: tuple[list[float], list[float]] = ([], [])
    for turn, row in enumerate(sample()[offset::part]):
        try:
            machine = compile_schema(row["schema"])
            valid = [test["data"] for test in row["tests"] if test["valid"]][:2]
            texts = [tokenize(serialise(machine, data).encode()) for data in valid]
            texts = [ids for ids in texts if len(ids) <= LONGEST]
            gc.collect()
            gc.disable()
            order = (0, 1) if turn % 2 else (1, 0)
            found = {side: request(engines[side], row["schema"], texts, clock) for side in order}
        except (LogitloomError, ValueError):
            continue  # one of the two refuses it
        finally:
            gc.enable()
        first.append(tuple(found[side][0] for side in (0, 1)))
        if texts:
            whole.append(tuple(found[side][0] + sum(found[side][1]) / 1e3 for side in (0, 1)))
            for side in (0, 1):
                masks[side].extend(found[side][1])
    for work, unit, (mine, theirs) in (
        ("JSON: compile and first mask", "ms", zip(*first, strict=True)),
        ("JSON: one mask at a new position", "us", masks),
        ("JSON: fresh request", "ms", zip(*whole, strict=True)),
    ):
        yield Comparison(work, "llguidance", unit, list(mine), list(theirs), "first_use.py")


def patterns(path: Path, part: int, offset: int, clock: Clock) -> Iterator[Comparison]:
    """Regular expressions: first masks of those that both take."""
    vocabulary = tekken()
    their_mask = peer(vocabulary)
    assert their_mask is not None
    for pattern in ("[a-z]+x", r"\w+ \d\s", r"(?i)é.{0,300}\b"):  # what a process does once
        ours(pattern, 0, vocabulary)
    their_mask("[a-z]+x")
    times: tuple[list[float], list[float]] = ([], [])
    for turn, (pattern, flags) in enumerate(read(path)[offset::part]):
        letters = "".join(letter for flag, letter in LETTERS.items() if flags & flag)
        actions = (
            lambda p=pattern, f=flags: ours(p, f, vocabulary),
            lambda p=pattern, f=letters: their_mask(f"(?{f}:{p})" if f else p),
        )
        spent = [0.0, 0.0]
        try:
            for side in (0, 1) if turn % 2 else (1, 0):
                begin = clock()
                actions[side]()
                spent[side] = 1e3 * (clock() - begin)
        except (LogitloomError, ValueError):
            continue
        for side in (0, 1):
            times[side].append(spent[side])
    yield Comparison("regex: compile and first mask", "llguidance", "ms", *times, "first_use.py")


def comparisons(
    part: int = 1, offset: int = 0, path: Path | None = None, clock: Clock = time.perf_counter
) -> Iterator[Comparison]:
    """All of them, where the samples are present."""
    warnings.simplefilter("ignore")
    yield from schemas(part, offset, clock)
    yield from patterns(path or DATA / "regex-patterns" / "patterns.jsonl.gz", part, offset, clock)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--part", type=int, default=1, help="take every n-th schema and pattern")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--patterns", type=Path, help="patterns instead of those of the sample")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    given = parser.parse_args()
    clock = time.perf_counter if given.clock == "wall" else time.thread_time
    print(heading("numba", "llguidance", "mistral-common"))
    print(table(list(comparisons(given.part, given.offset, given.patterns, clock))))


if __name__ == "__main__":
    main()
