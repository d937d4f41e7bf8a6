"""The conditions of a measurement, as the table that heads each page of ``benchmarks/results/``.

    python benchmarks/conditions.py [DISTRIBUTION ...]

A benchmark prints it before its figures: the command, the date, the versions, and the kind of the machine.
"""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import logitloom
from logitloom.host.registry import load_plugin
from logitloom.masks.kernels import load_kernels

#: The rows of the table.
FIELDS = ("command", "date", "versions", "machine")


def versions(distributions: Sequence[str]) -> str:
    """logitloom with its commit, Python, NumPy, and those of the distributions that are installed."""
    here = Path(__file__).resolve().parent
    found = [f"logitloom {logitloom.__version__}"]
    if shutil.which("git"):
        git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=here)
        found[0] += f" ({git.stdout.strip()})" if git.returncode == 0 else ""
    found.append(f"Python {platform.python_version()}")
    for name in dict.fromkeys(("numpy", *distributions)):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def machine() -> str:
    """The model of the CPU and the cores that this process may use; never a host's name."""
    model = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = f"{value.strip()} ({model})"
            break
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores of {model}, {platform.system()}"


def heading(*distributions: str) -> str:
    """The table, for the command that runs now.

    Args:
        distributions: names of installed distributions whose versions matter; those that are missing are left out.
    """
    if "numba" in distributions and find_spec("numba") is not None:
        # Otherwise a first run, and the first steps of each, would measure NumPy.
        load_plugin("kernels", "numba").compile()
        load_kernels()
    threads = os.environ.get("OMP_NUM_THREADS")
    script = Path(sys.argv[0])
    command = shlex.join(["python", f"{script.parent.name}/{script.name}", *sys.argv[1:]])
    values = (
        f"`{f'OMP_NUM_THREADS={threads} ' if threads else ''}{command}`",
        datetime.date.today().isoformat(),
        versions(distributions),
        machine(),
    )
    rows = [f"| {field} | {value} |" for field, value in zip(FIELDS, values, strict=True)]
    return "\n".join(["| measured | |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    print(heading(*sys.argv[1:]))
