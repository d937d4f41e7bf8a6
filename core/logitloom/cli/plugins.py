"""``logitloom plugins``: what is installed, and the options of one plug-in."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import sys
from typing import Any

from logitloom import processors
from logitloom.cli.terminal import table
from logitloom.errors import OptionError
from logitloom.host import options as opts
from logitloom.host import registry

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "plugins",
        help="list the installed plug-ins, or describe one",
        description="List the installed plug-ins from their metadata alone, or describe one of them with its options.",
    )
    parser.add_argument("name", nargs="?", help="a plug-in to describe, NAME or KIND/NAME (imports that one plug-in)")
    parser.add_argument("--kind", choices=list(registry.GROUPS), help="list only this kind")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the list, or the description."""
    if arguments.name is not None and arguments.kind:
        raise OptionError(f"--kind lists plug-ins, and {arguments.name!r} is described. Leave out one of them.")
    if arguments.name is not None:
        print(_described(arguments.name, arguments.json))
        return 0
    records = registry.available(arguments.kind)
    if arguments.json:
        listed = [{**dataclasses.asdict(r), "installed": r.installed, "remedy": r.remedy} for r in records]
        print(json.dumps(listed, indent=2))
        return 0
    rows = [[r.kind, r.name, f"{r.distribution} {r.version}".strip() or "registered here", _status(r)] for r in records]
    print(table(rows, ["KIND", "NAME", "DISTRIBUTION", "STATUS"], sys.stdout))
    return 0


def _status(record: registry.PluginRecord) -> str:
    if record.blocked:
        return "blocked"
    if not record.fits:
        return f"needs another version of the plug-in interface: {record.remedy}"
    return "ready" if record.installed else f"missing {', '.join(record.missing)}: {record.remedy}"


def _described(name: str, as_json: bool) -> str:
    kind, _, bare = name.rpartition("/")
    named = [record.kind for record in registry.available() if record.name == bare.partition("@")[0]]
    kind = kind or next(iter(named), "processors")
    facts: list[str] = []
    plain: dict[str, Any]
    if kind == "processors":
        found = processors.describe(bare)
        summary, options = found.summary, found.options
        plain = dataclasses.asdict(found) | {"needs": sorted(found.needs)}
        facts += [f"stage: {found.stage or 'depends on the options'}"]
        facts += [f"needs: {', '.join(sorted(found.needs))}"] if found.needs else []
    else:
        plugin = registry.load_plugin(kind, bare)
        doc = inspect.cleandoc(plugin.__doc__ or "") if callable(plugin) else f"One of {kind}."
        summary, options = doc.partition("\n")[0], opts.declared(plugin)
        plain = {"name": bare, "kind": kind, "summary": summary, "doc": doc}
    if as_json:
        return json.dumps(plain | {"options": [_option(o) for o in options]}, indent=2, default=str)
    facts += [f"also: {', '.join(f'{other}/{bare}' for other in named if other != kind)}"] if len({*named}) > 1 else []
    lines = [f"{bare}: {summary}", *facts]
    for o in options:
        bounds = f"  [{o.range_text}]" if o.range_text else ""
        lines.append(f"  {o.signature}{bounds}\n      {o.help}")
    return "\n".join(lines)


def _option(o: opts.Option) -> dict[str, Any]:
    return {
        "name": o.name,
        "type": o.type_text,
        "required": o.required,
        "default": o.default,
        "range": o.range_text,
        "unit": o.unit,
        "help": o.help,
    }
