"""What an engine's process pays for chains that the API server's process has compiled to check them (vLLM).

    python benchmarks/second_process.py [--every 1]

Each chain is made as vLLM's adapter makes it, with the default permissions and the 131,072 ids of Tekken, in a process
that was forked for it: as the API server, as the engine with the folder that both share, and as an engine that has no
folder and tries the chain again. What is made once per process (parsers, sets of characters, the vocabulary's trie) was
made before the fork. Times are processor time of one thread, in ms.

Chains: the schemas of the sample in ``../shared/data`` (or ``LOGITLOOM_TEST_DATA``), random schemas of many keywords at
once, hostile schemas, and patterns whose automata are large or visited lazily.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import pickle
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from conditions import heading
from json_schema import sample

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from logitloom.errors import ChainDocumentError
from logitloom_contrib.requests.chain_cache import ChainCache
from logitloom_contrib.requests.permissions import Permissions
from tests.core.automata.vocabularies import tekken
from tests.plugins.json_schema.test_budget import ADVERSARIAL, made_up

PATTERNS = {
    "counted words": "(?:[a-z]{1,20} ){1,40}end",
    "user agents": r".{0,100} Darwin/\d.{0,100}\(Mac.{0,100}x",
    "far choice": "(?:a|b)*a(?:a|b){400}",
    "words": "|".join(f"word{i}{i % 7}" for i in range(4000)),
    "letters of all languages": r"(?:\w{1,60}[ ,.;]){1,60}",
    "counted alternatives": "(?:" + "|".join(f"{chr(97 + i)}{{1,50}}" for i in range(26)) + "){1,12}",
    "dates in a list": r"(?:\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?:Z|[+-]\d{2}:\d{2})(?:, )?){1,60}",
    "borders": r"(?:\bfoo\b|\bbar\b|.{0,40}baz\b){1,60}",
    "many sets": "(?:" + "|".join(f"[a-{chr(98 + i % 24)}]{{1,9}}{i}" for i in range(300)) + ")*",
}


ROLES = ("API server", "engine", "engine without the folder")


class Case(NamedTuple):
    """A chain of one processor, with its group."""

    group: str
    name: str
    use: str
    options: dict[str, Any]


def cases(every: int) -> Iterator[Case]:
    """All chains."""
    for row in sample()[::every]:
        yield Case("schemas of the sample", row["name"], "json", {"schema": row["schema"], "engine": "table"})
    for seed in range(0, 300, every):
        schema = made_up(random.Random(seed), 1 + seed % 3)
        yield Case("random schemas", f"seed {seed}", "json", {"schema": schema, "engine": "table"})
    for name, schema in ADVERSARIAL.items():
        yield Case("hostile schemas", name, "json", {"schema": schema, "engine": "table"})
    for name, pattern in PATTERNS.items():
        yield Case("patterns", name, "regex", {"pattern": pattern})


def forked(task: Callable[[], Any]) -> Any:
    """What a function gives in a process of its own; ``None`` if that ends without an answer."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        signal.alarm(60)
        with os.fdopen(into, "wb") as pipe, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pickle.dump(task(), pipe)
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(said) if said else None


def work(case: Case, shared: Path | None, role: str) -> float | None:
    """Processor time of one chain in ms; ``None`` if it is refused."""
    cache = ChainCache(Permissions(bytes=8 << 20), tekken(), tekken().size, shared, engine="vLLM")
    gc.collect()
    gc.disable()
    begin = time.thread_time()
    try:
        cache.get([{"use": case.use, "options": case.options}], role == "API server", tried=role == "engine")
    except ChainDocumentError:
        return None
    return 1e3 * (time.thread_time() - begin)


def quantiles(values: list[float]) -> str:
    """Median, 90 and 99 of a hundred, the largest, and how many are above 20."""
    found = sorted(values)
    at = [found[min(len(found) - 1, int(part * len(found)))] for part in (0.5, 0.9, 0.99)]
    return " | ".join(f"{value:.1f}" for value in (*at, found[-1])) + f" | {sum(value > 20 for value in found)}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--slowest", type=int, default=0, help="print so many single chains as well")
    given = parser.parse_args()
    warm = {"properties": {"a": {"pattern": r"\w+", "format": "date-time"}, "b": {"type": "number"}}}
    work(Case("", "", "json", {"schema": warm}), None, "API server")
    work(Case("", "", "regex", {"pattern": r"\w+ \bx"}), None, "API server")
    print(heading("numba"))
    found: dict[str, list[Any]] = {}
    refused: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(given.every):
            times = []
            for role in ROLES:
                shared = None if role == "engine without the folder" else Path(folder)
                times.append(forked(functools.partial(work, case, shared, role)))
                if times[-1] is None:
                    refused[case.group] = refused.get(case.group, 0) + 1
                    break
            else:
                found.setdefault(case.group, []).append((*times, case.name))
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        files = len(list(Path(folder).iterdir()))
    print("| chains | process | number | median | p90 | p99 | most | above 20 ms |\n|---|---|---|---|---|---|---|---|")
    for group, rows in found.items():
        for place, role in enumerate(ROLES):
            print(f"| {group} | {role} | {len(rows)} | {quantiles([row[place] for row in rows])} |")
    print(f"\nRefused: {refused}. {files} files, {size / 1e6:.1f} MB.")
    for group, rows in found.items():
        for row in sorted(rows, key=lambda row: -row[2])[: given.slowest]:
            print(f"{group}: {row[3]}: {row[0]:.1f} {row[1]:.1f} {row[2]:.1f}")


if __name__ == "__main__":
    main()
