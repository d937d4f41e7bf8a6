"""What ``import logitloom`` costs beside ``import numpy``: medians over fresh interpreters, taken in turn.

Usage: python benchmarks/import_time.py [--runs 30]

Byte code is compiled beforehand, as an installation does, into a folder of the run's own.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from functools import cache

STATEMENTS = {
    "nothing": "pass",
    "numpy": "import numpy",
    "logitloom": "import logitloom",
    "logitloom, chain of two": "from logitloom import processors; processors.load(('top_k', {'k': 5}), 'temperature')",
    "logitloom, listing plug-ins": "from logitloom import processors; processors.available()",
}
TIMED = "import time; start = time.perf_counter()\n{}\nprint(time.perf_counter() - start)"


@cache
def _byte_code() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="byte-code-")


def milliseconds(statement: str) -> float:
    """Time of a statement inside a fresh interpreter, whose own start is not counted.

    The first call for a statement compiles its byte code, also where the environment forbids to keep it: an editable
    installation would be compiled in each interpreter otherwise, and the others not.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = _byte_code().name
    command = [sys.executable, "-c", TIMED.format(statement)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=30, help="interpreters per statement")
    runs = parser.parse_args().runs
    for statement in STATEMENTS.values():
        milliseconds(statement)  # byte code is compiled and files are cached
    times: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(runs):  # in turn, so that a busy moment hits all alike
        for name, statement in STATEMENTS.items():
            times[name].append(milliseconds(statement))
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}, medians of {runs}")
    print(f"{'import':30} {'ms':>8} {'/ numpy':>8}")
    for name, median in medians.items():
        print(f"{name:30} {median:8.1f} {median / medians['numpy']:8.2f}")


if __name__ == "__main__":
    main()
