"""From pattern text to the first mask and to all rows, on a vocabulary of 131,072 ids, beside llguidance.

    python benchmarks/automata.py [--runs 7] [pattern name ...]

Prints medians in milliseconds. "first mask" is pattern text to the row of the start state (automaton, token automaton,
ids); for llguidance it is grammar, matcher and bit mask. What belongs to the vocabulary alone (trie,
tokenizer object) is built once before, and timed on a line of its own. Needs mistral-common for the vocabulary;
llguidance is left out if it is not installed.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import math
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from logitloom.automata import TokenAutomaton, compile_pattern
from logitloom.automata.lift.trie import Trie, vocabulary_trie
from logitloom.vocabulary import Vocabulary

PATTERNS = {
    "date": r"\d{4}-\d{2}-\d{2}",
    "ascii date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "iso time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "clock": r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?",
    "email": r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}",
    "short email": r"[a-z]{10}@[a-z]{5}\.[a-z]{3}",
    "ipv4": r"((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "json": r'\{"name": "[^"]{1,20}", "age": [0-9]{1,3}, "tags": \[("[a-z]+"(, "[a-z]+")*)?\]\}',
    "json spaced": r'\{\s*"name"\s*:\s*"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"\s*,\s*"age"\s*:\s*(0|[1-9][0-9]*)\s*\}',
    "url": r"https?://([a-zA-Z0-9-]+\.)+[a-zA-Z]{2,6}(/[^\s?#]*)?(\?[^\s#]*)?(#\S*)?",
    "phone": r"\(?\d{3}\)?[-. ]?\d{3}[-. ]?\d{4}",
    "float": r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?",
    "integer": r"-?(0|[1-9][0-9]*)",
    "choice": r"yes|no|maybe",
    "100 choices": "|".join(f"option number {i}" for i in range(100)),
    "not Z": r"[^Z]*",
    "Z": r"Z*",
    "words": r"\w+",
    "dot": r".*",
    "anything": r"(?s:.*)",
    "sentence": r"[A-Z][a-z]*( [a-z]+)*\.",
    "colour": r"#[0-9a-fA-F]{6}",
    "base64": r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
    "identifier": r"[a-zA-Z_][a-zA-Z0-9_]*",
    "bold": r"\*\*[^*\n]+\*\*",
    "element": r"<([a-z]+)>[^<>]*</[a-z]+>",
    "csv": r'("[^"]*"|[^,"\n]*)(,("[^"]*"|[^,"\n]*))*',
    "string 100": r'"[^"]{0,100}"',
    "sql": r"(?i:select|insert|update) \w+",
    "answer": r"A: [\w \.\*\-=\+,\?/]{10,50}\. The answer is [1-9][0-9]{0,9}\.",
    "1000 dots": r".{0,1000}",
    "word counts": r"(\w{1,20} ){1,5}",
}


def tekken() -> Vocabulary:
    """The Tekken vocabulary that is bundled with mistral-common."""
    spec = importlib.util.find_spec("mistral_common")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("This benchmark reads its vocabulary from mistral-common: pip install mistral-common")
    path = Path(spec.submodule_search_locations[0]) / "data" / "tekken_240911.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    special = data["config"]["default_num_special_tokens"]
    texts = data["vocab"][: data["config"]["default_vocab_size"] - special]
    table = [b""] * special + [base64.b64decode(entry["token_bytes"]) for entry in texts]
    return Vocabulary(table, eos=[2], special=range(special), name="tekken")


def median(action: Callable[[], Any], runs: int) -> float:
    """Median milliseconds of an action, after one run that does not count; fewer runs if they are slow."""
    action()
    times: list[float] = []
    while len(times) < runs and sum(times) < 2000:
        begin = time.perf_counter()
        action()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def peer(vocabulary: Vocabulary) -> Callable[[str], Any] | None:
    """First mask by llguidance: a function of the pattern, or None if it is not installed."""
    try:
        import llguidance
        import llguidance.numpy
    except ImportError:
        return None

    from logitloom_plugins.grammars.llguidance import engine_tokenizer

    begin = time.perf_counter()
    tokenizer = engine_tokenizer(vocabulary, vocabulary.size)
    print(f"llguidance tokenizer: {(time.perf_counter() - begin) * 1e3:.0f} ms")
    bits = llguidance.numpy.allocate_token_bitmask(1, vocabulary.size)

    def first_mask(pattern: str) -> Any:
        matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_regex(pattern))
        llguidance.numpy.fill_next_token_bitmask(matcher, bits)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return bits

    return first_mask


def geometric_mean(values: list[float]) -> float:
    """Of positive numbers."""
    return math.exp(statistics.fmean(map(math.log, values)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    vocabulary = tekken()
    print(f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}")
    print(f"vocabulary trie: {median(lambda: Trie(vocabulary), 3):.0f} ms, {vocabulary_trie(vocabulary).nodes} nodes")
    theirs = peer(vocabulary)
    head = f"{'pattern':12s} {'dfa':>7s} {'row':>7s} {'first mask':>10s} {'llguidance':>10s} {'ratio':>6s}"
    print(head + f" {'all rows':>8s} {'states':>7s} {'bytes':>5s} {'tokens':>6s} {'KiB':>7s}  row")
    ours: list[float] = []
    others: list[float] = []
    for name, pattern in PATTERNS.items():
        if options.names and name not in options.names:
            continue
        dfa = compile_pattern(pattern)
        compiling = median(lambda p=pattern: compile_pattern(p), options.runs)  # type: ignore[misc]

        def first_mask(pattern: str = pattern) -> Any:
            automaton = TokenAutomaton(compile_pattern(pattern), vocabulary)
            return automaton.allowed(automaton.start())

        first = median(first_mask, options.runs)
        tables = median(lambda d=dfa: TokenAutomaton(d, vocabulary).tables(), 3)  # type: ignore[misc]
        size = TokenAutomaton(dfa, vocabulary).tables()
        row = first_mask()
        other = math.nan
        if theirs is not None:
            other = median(lambda p=pattern: theirs(p), options.runs)  # type: ignore[misc]
            others.append(other)
        ours.append(first)
        print(
            f"{name:12s} {compiling:7.2f} {first - compiling:7.2f} {first:10.2f} {other:10.2f} {other / first:5.1f}x"
            f" {tables:8.1f} {dfa.states:7d} {dfa.classes:5d} {size.next.shape[1]:6d} {size.nbytes / 1024:7.0f}"
            f"  {len(row.ids)} {'allowed' if row.allowed else 'forbidden'}",
            flush=True,
        )
    print(f"\ngeometric mean, first mask: {geometric_mean(ours):.2f} ms; slowest {max(ours):.1f} ms", end="")
    if others:
        print(f"; llguidance {geometric_mean(others):.2f} ms; slowest {max(others):.1f} ms", end="")
        print(f"; ratio {geometric_mean(others) / geometric_mean(ours):.2f}x")


if __name__ == "__main__":
    main()
