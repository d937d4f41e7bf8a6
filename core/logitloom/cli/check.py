"""``logitloom check``: the conformance of what is installed, as a table of plug-ins by backends."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib.util
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logitloom.cli.terminal import say, styled, table
from logitloom.errors import PluginImportError, UnknownPlugin
from logitloom.host import registry
from logitloom.host.entry_points import normalized
from logitloom.host.registry import PluginRecord

if TYPE_CHECKING:
    from logitloom.testing.suites import Finding

__all__ = ["add_parser", "select"]

#: Control codes that move to the beginning of a terminal's line and erase the line.
_BEGIN = "\r\033[K"

EXAMPLES = """examples:
  logitloom check                         everything that is installed, on every backend (many minutes)
  logitloom check --backend numpy         everything, on one backend (a minute)
  logitloom check top_k                   one plug-in
  logitloom check backends/torch          one plug-in of a kind
  logitloom check logitloom-length-ramp   everything of a distribution
  logitloom check --own-environment ./logitloom-calm-down
                                          a package in a virtual environment of its own
"""


def add_parser(commands: Any) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "check",
        help="test installed plug-ins with the conformance kit",
        description="Run the conformance kit on installed plug-ins, on every installed backend. Exit code 1 if a check "
        "failed, or if the one plug-in that was named could not be tested.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", metavar="DISTRIBUTION|NAME", help="what to check (default: everything)")
    parser.add_argument(
        "--backend", action="append", metavar="NAME", dest="backends",
        help="test on this backend only; may be repeated (default: all that are installed)",
    )  # fmt: skip
    parser.add_argument(
        "--skipped", action="store_true", help="also print a table of the checks that did not apply, with the reason"
    )
    parser.add_argument(
        "--own-environment", action="store_true",
        help="install DISTRIBUTION (a folder, a wheel or a requirement of pip) into a virtual environment that is "
        "removed afterwards, and check it there",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Select, test, print."""
    lacking = [name for name in ("pytest", "hypothesis") if importlib.util.find_spec(name) is None]
    if lacking:
        raise PluginImportError(f"The conformance kit needs {' and '.join(lacking)}: pip install 'logitloom[test]'.")
    if arguments.own_environment:
        return _run_there(arguments)
    from logitloom.testing import suites

    records = select(arguments.what)
    if arguments.what is None:
        records = [record for record in records if record.kind in suites.TESTED and record.installed]
    if arguments.backends is not None:
        _check_backends(arguments.backends)
        without = [record for record in records if record.kind == "backends" and record.name not in arguments.backends]
        records = [record for record in records if record not in without]
        if not records:
            raise UnknownPlugin(
                f"Nothing is left to check: --backend {arguments.backends[0]} leaves out the backend "
                f"{without[0].name!r}. Add --backend {without[0].name}, or leave the option out."
            )
    say(f"Checking {len(records)} plug-in{'s' if len(records) != 1 else ''} ...")
    started = time.monotonic()
    findings = suites.run(records, arguments.backends, _CheckProgress())
    if sys.stderr.isatty():
        say(_BEGIN, end="")
    if arguments.json:
        told = [
            {
                **dataclasses.asdict(f),
                "skips": [{"check": c, "reason": r, "times": n} for (c, r), n in f.skips.items()],
                "ok": f.ok,
                "certified": f.certified,
            }
            for f in findings
        ]
        print(json.dumps(told, indent=2))
    else:
        print(_told(findings, arguments.skipped))
    passed, failed, skipped = (
        sum(sum(getattr(f, a).values()) for f in findings) for a in ("passed", "failed", "skipped")
    )
    seconds = time.monotonic() - started
    left_out = sum(len(found.left_out) for found in findings)
    authors = f" ({left_out} left out by the author of the plug-in, which is not certified)" if left_out else ""
    say(f"{passed} checks passed, {failed} failed, {skipped} did not apply{authors}, in {seconds:.0f} s.")
    nothing = arguments.what is not None and all(found.untested for found in findings)
    return 1 if nothing or not all(found.ok for found in findings) else 0


def _run_there(arguments: argparse.Namespace) -> int:
    """Install a package into a new environment, and check each installed distribution with plug-ins there."""
    if arguments.what is None:
        raise UnknownPlugin("Name what to install: logitloom check --own-environment FOLDER.")
    from logitloom.cli.own_environment import own_environment

    more = [part for name in arguments.backends or () for part in ("--backend", name)]
    more += [f"--{name}" for name in ("json", "skipped") if getattr(arguments, name)]
    with own_environment(arguments.what) as there:
        with_plugins = [name for name in there.distributions if _has_plugins(name, there.folder)]
        if not with_plugins:
            raise UnknownPlugin(f"{', '.join(there.distributions)} has no plug-ins of logitloom.")
        return max(there.run("check", name, *more) for name in with_plugins)


def _has_plugins(name: str, folder: Path) -> bool:
    found = metadata.distributions(name=name, path=[str(path) for path in folder.glob("**/site-packages")])
    return any(point.group in registry.GROUPS.values() for each in found for point in each.entry_points)


class _CheckProgress:
    """Prints the progress of the checks: on a terminal in one line, elsewhere one line per plug-in at its first check.

    pytest captures output while checks run, so the object keeps the standard error stream of its creation.
    """

    def __init__(self) -> None:
        self._stream, self._last = sys.stderr, ""

    def __call__(self, done: int, total: int, plugin: str) -> None:
        text = f"{done} of {total} checks, {plugin}"
        if self._stream.isatty():
            print(_BEGIN + text, end="", file=self._stream, flush=True)
        elif plugin != self._last:
            self._last = plugin
            print(text, file=self._stream, flush=True)


def _check_backends(names: Sequence[str]) -> None:
    known = {record.name: record for record in registry.available("backends")}
    installed = ", ".join(sorted(name for name, record in known.items() if record.installed))
    for name in names:
        if name not in known:
            raise UnknownPlugin(f"There is no backend of the name {name!r}. Installed are: {installed}.")
        if not known[name].installed:
            raise PluginImportError(f"What the backend {name!r} requires is not installed: {known[name].remedy}.")


def select(what: str | None) -> list[PluginRecord]:
    """The plug-ins that a name, ``kind/name``, ``name@distribution`` or distribution stands for; all for None.

    Raises:
        UnknownPlugin: if there is none.
    """
    records = registry.available()
    if what is None:
        return records
    kind, _, name = what.rpartition("/")
    bare, _, owner = name.partition("@")
    found = [r for r in records if r.name == bare and kind in ("", r.kind)]
    if owner:
        found = [r for r in found if normalized(r.distribution) == normalized(owner)]
    if not found and not kind:
        found = [r for r in records if r.distribution and normalized(r.distribution) == normalized(what)]
    if not found:
        distributions = sorted({r.distribution for r in records if r.distribution})
        near = difflib.get_close_matches(name, {*distributions, *(r.name for r in records)}, 1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise UnknownPlugin(
            f"There is no plug-in and no distribution with plug-ins of the name {what!r}. {hint}'logitloom plugins' "
            f"lists the plug-ins; distributions: {', '.join(distributions)}."
        )
    return found


def _told(findings: Sequence[Finding], skipped: bool = False) -> str:
    claims = Counter((found.kind, found.name) for found in findings)

    def named(found: Finding) -> str:
        return f"{found.name}@{found.distribution}" if claims[found.kind, found.name] > 1 else found.name

    tested = [found for found in findings if not found.untested]
    backends = sorted({name for found in tested for name in (*found.passed, *found.failed, *found.skipped) if name})
    backends.sort(key=lambda name: (name != "numpy", name))
    parts = []
    if tested:
        rows = [[f.kind, named(f), *(_cell(f, backend) for backend in ("", *backends))] for f in tested]
        parts.append(table(rows, ["KIND", "NAME", "ANYWHERE", *(name.upper() for name in backends)], sys.stdout))
    for found in tested:
        for failure in found.failures:
            where = ", ".join(part for part in (failure.backend, failure.case) if part)
            head = f"{styled('failed', 'red', sys.stdout)} {found.kind}/{named(found)} {failure.check}"
            lines = [f"{head} ({where})" if where else head, failure.message]
            parts.append("\n  ".join([*lines, f"Usual causes: {failure.usually}"] if failure.usually else lines))
    left_out = [
        [f"{found.kind}/{named(found)}", check, reason] for found in tested for check, reason in found.left_out.items()
    ]
    if left_out:
        parts.append(table(left_out, ["NOT CERTIFIED", "LEFT OUT BY ITS AUTHOR", "WHY"], sys.stdout))
    if skipped:
        rows = [
            [f"{found.kind}/{named(found)}", check, str(count), reason]
            for found in tested
            for (check, reason), count in sorted(found.skips.items())
        ]
        parts.append(table(rows, ["PLUG-IN", "DID NOT APPLY", "TIMES", "WHY"], sys.stdout) if rows else "")
    untested = [[f"{found.kind}/{named(found)}", found.untested] for found in findings if found.untested]
    if untested:
        parts.append(table(untested, ["NOT TESTED", "WHY"], sys.stdout))
    return "\n\n".join(parts)


def _cell(found: Finding, backend: str) -> str:
    failed, passed = found.failed.get(backend, 0), found.passed.get(backend, 0)
    if failed:
        return f"{failed} of {failed + passed} failed"
    return f"{passed} ok" if passed else "skipped" if found.skipped.get(backend) else "-"
