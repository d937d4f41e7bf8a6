"""``logitloom kernels compile``: compile the kernels of installed plug-ins beforehand, for images and installations."""

from __future__ import annotations

import argparse
import time
from typing import Any

from logitloom.errors import UnknownPlugin
from logitloom.host import registry

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "kernels",
        help="compile the kernels beforehand",
        description=(
            "Compile the kernels of plug-ins of the group logitloom.kernels now, for example while an image is built. "
            "Otherwise they are compiled in a process beside the first one that wants them, and NumPy does their work "
            "until then."
        ),
    )
    parser.add_argument("action", choices=["compile"])
    parser.add_argument(
        "names", nargs="*", default=[], metavar="NAME", help="plug-ins (default: all that are installed)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compile the kernels of each plug-in, and print the plug-in's message and the time."""
    found = {r.name: r for r in registry.available("kernels") if r.installed and not r.blocked}
    for name in arguments.names:
        if name not in found:
            raise UnknownPlugin(f"There are no kernels {name!r} that are installed and not blocked: {sorted(found)}.")
    for name in arguments.names or found:
        plugin = registry.load_plugin("kernels", name)
        begin = time.perf_counter()
        told = plugin.compile() if hasattr(plugin, "compile") else f"{name}: nothing is compiled beforehand."
        print(f"{told} ({time.perf_counter() - begin:.1f} s)")
    return 0
