"""First masks of real regular expressions on a vocabulary of 131,072 ids, beside llguidance.

    python benchmarks/patterns.py FILE

FILE has one JSON object a line with ``pattern`` and ``flags`` (of Python's ``re``), and may be compressed by gzip. A
first mask is everything from the text of a pattern to the tokens that may begin. Times are processor time of the
thread, each the better of two. llguidance reads another syntax: patterns that it refuses are counted and left out of
the comparison.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.automata import peer
from benchmarks.conditions import heading
from logitloom import Vocabulary
from logitloom.automata import Dfa, TokenAutomaton, compile_automaton
from logitloom.automata.lift.trie import vocabulary_trie
from logitloom.constraints import lift
from logitloom.errors import LogitloomError
from tests.core.automata.vocabularies import tekken

#: How llguidance writes flags.
LETTERS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}


def read(path: Path) -> list[tuple[str, int]]:
    """Patterns and flags."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    entries = [json.loads(line) for line in data.decode().splitlines()]
    return [(entry["pattern"], entry["flags"]) for entry in entries]


def ours(pattern: str, flags: int, vocabulary: Vocabulary) -> str:
    """A first mask; which automaton it came from."""
    automaton = compile_automaton(pattern, flags)
    whole = isinstance(automaton, Dfa)
    constraint = TokenAutomaton(automaton, vocabulary) if whole else lift(automaton, vocabulary)
    constraint.allowed(constraint.start())
    return "whole" if whole else "lazy"


def timed(action: Callable[[], str]) -> tuple[str, float]:
    """What happened, and the milliseconds of the better of two."""
    what, best = "", float("inf")
    for _ in range(2):
        begin = time.thread_time()
        try:
            what = action()
        except (LogitloomError, ValueError) as error:
            what = type(error).__name__
        best = min(best, 1e3 * (time.thread_time() - begin))
    return what, best


def line(name: str, values: list[float]) -> str:
    """Median, tails and the worst."""
    ordered = sorted(values)
    shown = [ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.9, 0.99, 1.0)]
    return f"{name:24s}" + "".join(f"{value:10.2f}" for value in shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    patterns = read(parser.parse_args().file)
    warnings.simplefilter("ignore")
    vocabulary = tekken()
    vocabulary_trie(vocabulary)
    their_mask = peer(vocabulary)
    for pattern in ("[a-z]+x", r"\w+ \d\s", r"(?i)é.{0,300}\b"):  # what a process does once
        ours(pattern, 0, vocabulary)

    def theirs(pattern: str, flags: int) -> str:
        letters = "".join(letter for flag, letter in LETTERS.items() if flags & flag)
        assert their_mask is not None
        their_mask(f"(?{letters}:{pattern})" if letters else pattern)
        return "taken"

    print(heading("numba", "llguidance", "mistral-common"))
    mine = [timed(lambda p=pattern, f=flags: ours(p, f, vocabulary)) for pattern, flags in patterns]
    print("logitloom:", dict(collections.Counter(what for what, _ in mine)))
    taken = [ms for what, ms in mine if what in ("whole", "lazy")]
    print(f"{'':24s}{'median':>10s}{'p90':>10s}{'p99':>10s}{'worst':>10s}")
    print(line("logitloom, ms", taken), f"   over 20 ms: {sum(ms > 20 for ms in taken)}")
    if their_mask is None:
        return
    other = [timed(lambda p=pattern, f=flags: theirs(p, f)) for pattern, flags in patterns]
    print("llguidance:", dict(collections.Counter(what for what, _ in other)))
    both = [
        (a, b)
        for (kind, a), (what, b) in zip(mine, other, strict=True)
        if kind in ("whole", "lazy") and what == "taken"
    ]
    print(line("logitloom, of both, ms", [a for a, _ in both]))
    print(line("llguidance, of both, ms", [b for _, b in both]))
    print(line("ratio", [a / b for a, b in both]))


if __name__ == "__main__":
    main()
