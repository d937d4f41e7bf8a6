"""``logitloom doctor``: what is installed, what works, and what to do about the rest."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import platform
import sys
from importlib import metadata
from typing import Any, Final

from logitloom import processors
from logitloom.arguments import printable, shown
from logitloom.arrays.backend import Backend
from logitloom.chain import Chain
from logitloom.chain.links import Link
from logitloom.cli.server_check import KEY_VARIABLE, check_server
from logitloom.cli.terminal import styled, table
from logitloom.errors import LogitloomError, OptionError
from logitloom.generation.candidates import require_methods
from logitloom.host import options, registry
from logitloom.host.entry_points import installed, name_and_version
from logitloom.host.loading import is_interruption
from logitloom.host.plugin_manager import PluginManager

__all__ = ["add_parser", "examine", "mistaken"]

#: What logitloom itself stands on.
_FOUNDATIONS = ("logitloom", "numpy", "pluggy", "packaging", "tomli-w")
#: The hook that every plug-in of a kind implements, for kinds that are asked through hooks.
_HOOKS: Final = {"backends": "backend_adapter", "tokenizers": "vocabulary"}
#: Environment variables that logitloom reads.
_VARIABLES: Final = (registry.BLOCK_VARIABLE, "LOGITLOOM_CACHE_DIR", "LOGITLOOM_DEBUG", "LOGITLOOM_EXPECT_BACKENDS")


def add_parser(commands: Any) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="tell what is installed, what works and what is missing",
        description="Import every plug-in, check its declarations and methods, and report versions, backends with "
        "their devices, missing extras, and blocked and broken plug-ins. Exit code 1 if something is broken; a "
        "missing extra is not.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--server", metavar="URL", help="ask a running server instead for an answer that only a chain can give"
    )
    parser.add_argument(
        "--model", metavar="NAME", help="with --server: which of its models to ask (default: the first of /v1/models)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the report; 1 if something is broken, or if the server does not run chains."""
    if arguments.server is not None:
        asked = check_server(arguments.server, model=arguments.model)
        print(json.dumps(asked, indent=2) if arguments.json else _told_of_server(asked))
        return 0 if asked["runs_chains"] else 1
    if arguments.model is not None:
        raise OptionError("--model names a model of a server to ask, so it needs --server.")
    report = examine()
    print(json.dumps(report, indent=2) if arguments.json else _told(report))
    return 1 if report["broken"] else 0


def examine() -> dict[str, Any]:
    """The report: versions, the environment, backends, and what is missing, blocked, shadowed and broken."""
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in _FOUNDATIONS}}
    backends, missing, blocked, broken = [], [], [], []
    for record in registry.available():
        told = {
            "kind": record.kind,
            "name": record.name,
            "distribution": f"{record.distribution} {record.version}".strip(),
        }
        if record.blocked:
            blocked.append(told)
            continue
        if not record.installed:
            missing.append({**told, "requires": list(record.missing), "remedy": record.remedy})
            continue
        try:
            _require_usable(record.kind, record.full_name, registry.load_plugin(record.kind, record.full_name))
            if record.kind == "backends":
                backends.append(_backend(registry.load_backend(record.name)))
        except BaseException as error:  # whatever it raises, the report goes on with the next one
            if is_interruption(error):
                raise
            said = str(error) if isinstance(error, LogitloomError) else printable(f"{type(error).__name__}: {error}")
            broken.append({**told, "error": said})
    broken += [
        {"kind": "distributions", "name": name, "distribution": name, "error": wrong}
        for name, wrong in installed().damage
    ]
    broken += [
        {"kind": group, "name": name, "distribution": owner, "error": wrong} for group, name, owner, wrong in mistaken()
    ]
    broken += [
        {"kind": "environment", "name": name, "distribution": "", "error": wrong}
        for name, wrong in mistaken_variables()
    ]
    twice = _claimed_twice()
    broken += [entry for entry in twice if entry["used"] is None]
    return {
        "versions": versions,
        "environment": {
            "platform": platform.platform(),
            "executable": sys.executable,
            **{
                name: value
                for name, value in sorted(os.environ.items())
                if name.startswith("LOGITLOOM_") and name != KEY_VARIABLE
            },
        },
        "backends": backends,
        "missing": missing,
        "blocked": blocked,
        "shadowed": [entry for entry in twice if entry["used"] is not None],
        "broken": broken,
    }


def _require_usable(kind: str, name: str, plugin: Any) -> None:
    """Raise as the host would where it uses a plug-in that was imported; no processor or generator is made."""
    if kind == "processors":
        if isinstance(plugin, type):
            Chain([Link(name, name, plugin)])  # its declarations
            PluginManager().add(plugin, name, required="process")
        else:
            processors.load(name)
    elif kind == "candidates":
        options.declared(plugin)
        require_methods(plugin, name)
    elif kind in _HOOKS:
        PluginManager().add(plugin() if isinstance(plugin, type) else plugin, name, required=_HOOKS[kind])


def mistaken() -> list[tuple[str, str, str, str]]:
    """Entry points of the installed distributions that can never be loaded.

    Returns:
        Per entry point its group, its name, its distribution, and a sentence with the fault and the remedy.
    """
    known = {*registry.GROUPS.values(), registry.INTERFACE_GROUP, registry.ROLE_GROUP}
    found = []
    points = installed().points
    for group in sorted({point.group for point in points}):
        near = difflib.get_close_matches(group, known, 1, 0.85)
        for point in (point for point in points if point.group == group):
            if group == registry.ROLE_GROUP and point.name not in registry.TASKS:
                wrong = f"No task has the name {point.name!r}. The tasks are {', '.join(sorted(registry.TASKS))}."
            elif group in known and (group == registry.INTERFACE_GROUP or not registry.name_problem(point.name)):
                continue
            elif group in known:
                wrong = f"{registry.name_problem(point.name)} Rename the entry point."
            elif near or group.startswith("logitloom."):
                hint = f"Did you mean {near[0]!r}?" if near else f"The groups are {', '.join(sorted(known))}."
                wrong = f"There is no group of entry points {group!r}, so nothing finds it. {hint}"
            else:
                continue
            owner = "unknown" if point.dist is None else name_and_version(point.dist)[0]
            found.append((group, point.name, owner, wrong))
    return found


def mistaken_variables() -> list[tuple[str, str]]:
    """Environment variables without effect, each with a sentence that states the fault and the remedy."""
    found = []
    for variable in os.environ:
        near = difflib.get_close_matches(variable, _VARIABLES, 1, 0.85)
        if near and variable not in _VARIABLES:
            found.append((printable(variable), f"No such variable is read. Did you mean {near[0]}?"))
    records = registry.available()
    for entry in os.environ.get(registry.BLOCK_VARIABLE, "").split(","):
        kind, _, name = entry.strip().partition("@")[0].rpartition("/")
        if name and not any(record.name == name and kind in ("", record.kind) for record in records):
            near = difflib.get_close_matches(name, {record.name for record in records}, 1)
            hint = f"Did you mean {near[0]!r}?" if near else "'logitloom plugins' lists what there is."
            found.append((registry.BLOCK_VARIABLE, f"It blocks {shown(entry.strip())}, which is no plug-in. {hint}"))
    return found


def _backend(backend: Backend) -> dict[str, Any]:
    array = backend.asarray([0.0, 1.0], "float32")  # a library that cannot make an array is broken
    return {
        "name": backend.name,
        "version": _version_of(backend.name),
        "device": str(backend.device if backend.device is not None else getattr(array, "device", "host")),
        "on_host": backend.on_host,
        "compiles": backend.compiles,
    }


def _version_of(module: str) -> str:
    try:
        owners = metadata.packages_distributions().get(module, [])
        return metadata.version(owners[0]) if owners else "unknown"
    except Exception:  # one distribution with damaged metadata, perhaps another one
        return str(getattr(sys.modules.get(module), "__version__", "unknown"))


def _claimed_twice() -> list[dict[str, Any]]:
    owners: dict[tuple[str, str], list[str]] = {}
    for record in registry.available():
        if record.distribution and not record.blocked:
            owners.setdefault((record.kind, record.name), []).append(record.distribution)
    return [_twice(kind, name, found) for (kind, name), found in owners.items() if len(found) > 1]


def _twice(kind: str, name: str, owners: list[str]) -> dict[str, Any]:
    if registry.BUILT_IN in owners:
        used = f"{name}@{registry.BUILT_IN}"
        others = " or ".join(f"{name}@{owner}" for owner in owners if owner != registry.BUILT_IN)
        error = f"The built-in plug-in has this name and is used. Load the other as {others}."
    else:
        used = None
        error = f"Several distributions have this name. Load it as {name}@{owners[0]}, or uninstall one."
    return {"kind": kind, "name": name, "distribution": " and ".join(owners), "used": used, "error": error}


def _told(report: dict[str, Any]) -> str:
    parts = [
        "\n".join(f"{name} {version}" for name, version in report["versions"].items()),
        "\n".join(f"{name}: {printable(value)}" for name, value in report["environment"].items()),
    ]
    rows = [
        [b["name"], b["version"], b["device"], "host" if b["on_host"] else "device", "yes" if b["compiles"] else "no"]
        for b in report["backends"]
    ]
    parts.append(table(rows, ["BACKEND", "VERSION", "DEVICE", "MEMORY", "COMPILES"], sys.stdout))
    if report["missing"]:
        remedies: dict[str, list[str]] = {}
        for entry in report["missing"]:
            remedies.setdefault(entry["remedy"], []).append(f"{entry['kind']}/{entry['name']}")
        rows = [[", ".join(names), remedy] for remedy, names in sorted(remedies.items())]
        parts.append(table(rows, ["NOT INSTALLED", "TO INSTALL"], sys.stdout))
    if report["blocked"]:
        rows = [[f"{entry['kind']}/{entry['name']}", entry["distribution"]] for entry in report["blocked"]]
        parts.append(table(rows, ["BLOCKED", "DISTRIBUTION"], sys.stdout))
    for entry in report["shadowed"]:
        parts.append(f"{styled('shadowed', 'yellow', sys.stdout)} {entry['kind']}/{entry['name']}: {entry['error']}")
    for entry in report["broken"]:
        parts.append(f"{styled('broken', 'red', sys.stdout)} {entry['kind']}/{entry['name']}: {entry['error']}")
    if not report["broken"]:
        parts.append(styled("Everything that is installed works.", "green", sys.stdout))
    return "\n\n".join(parts)


def _told_of_server(asked: dict[str, Any]) -> str:
    where = f"{asked['url']} ({asked['model']})"
    if asked["runs_chains"]:
        return styled(f"{where} runs chains. Requests bring them as {asked['place']}.", "green", sys.stdout)
    lines = [styled(f"{where} does not run chains: answers are not constrained.", "red", sys.stdout)]
    lines += [f"A chain as {place} gave: {answer[:300]}" for place, answer in asked["answers"].items()]
    lines.append("Install logitloom where the server runs, and see docs/engines.md for engines that run chains.")
    return "\n".join(lines)
