"""All comparisons with peers in one sitting: quantiles, ratios, and where logitloom is behind.

    python benchmarks/report.py [--quick] [--only NAME ...] [--write]

Every part runs in a process of its own, one after another, on one thread of the array libraries (the service takes what
it takes by default). An hour on two cores; ``--quick`` takes less of every sample and about five minutes. ``--write``
puts the whole into ``benchmarks/results/report.md``, and its table and what is behind between the marks of
``docs/comparison.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from comparison import Comparison, losses, table
from conditions import heading

from logitloom.masks.kernels import load_kernels

ROOT = Path(__file__).resolve().parents[1]
RESULT, PAGE = ROOT / "benchmarks" / "results" / "report.md", ROOT / "docs" / "comparison.md"
MARKS = ("<!-- begin of the report -->", "<!-- end of the report -->")
DISTRIBUTIONS = ("numba", "torch", "transformers", "llguidance", "xgrammar", "mistral-common")


class Part(NamedTuple):
    """A module of ``benchmarks`` with a function ``comparisons``, and its arguments: all, and for ``--quick``."""

    whole: dict[str, Any]
    quick: dict[str, Any]
    threads: int | None = 1


PARTS: dict[str, Part] = {
    "samplers": Part({"turns": 41}, {"turns": 5, "rows": [1, 8]}),
    "first_use": Part({"part": 1}, {"part": 12}),
    "steps": Part({}, {"batches": [8], "names": ["date", "email", "json"], "passes": 2, "part": 24}),
    "service": Part({}, {"rows": 8, "steps": 60}, threads=None),
    "footprint": Part({}, {"schemas": 40, "requests": 500}),
    "loading": Part({"runs": 15}, {"runs": 4}),
}


def measured(name: str, quick: bool) -> list[Comparison]:
    """The comparisons of one part, from a process of its own."""
    threads = PARTS[name].threads
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    command = [sys.executable, __file__, "--part", name, *(["--quick"] if quick else [])]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"The part {name!r} of the report ended with exit code {done.returncode}.")
    return [Comparison(*fields) for fields in json.loads(done.stdout)]


def run_part(name: str, quick: bool) -> str:
    """In the process of a part: its comparisons as JSON. What the modules print goes to standard error."""
    part = PARTS[name]
    load_kernels()
    with contextlib.redirect_stdout(sys.stderr):
        found = list(importlib.import_module(name).comparisons(**(part.quick if quick else part.whole)))
    return json.dumps(found)


def page(comparisons: Sequence[Comparison]) -> str:
    """The part of a page between the marks."""
    return f"{table(comparisons)}\n\nBehind, in the median or at p99:\n\n{losses(comparisons)}"


def replaced(text: str, new: str) -> str:
    """A page with another text between its marks."""
    before, begin, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        raise SystemExit(f"{PAGE.name} lacks the marks {MARKS[0]} and {MARKS[1]}.")
    return f"{before}{begin}\n\n{new}\n\n{end}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        print(run_part(given.part, given.quick))
        return
    comparisons: list[Comparison] = []
    print(heading(*DISTRIBUTIONS), flush=True)
    for name in given.only:
        begin = time.perf_counter()
        comparisons += measured(name, given.quick)
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    print(page(comparisons))
    if given.write:
        text = f"# All comparisons with peers\n\n{heading(*DISTRIBUTIONS)}\n{page(comparisons)}\n"
        RESULT.write_text(text, encoding="utf-8")
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), page(comparisons)), encoding="utf-8")


if __name__ == "__main__":
    main()
