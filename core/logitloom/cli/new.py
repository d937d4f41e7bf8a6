"""``logitloom new``: write a complete distribution with a new plug-in; its tests pass without changes."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import keyword
import re
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from logitloom.cli.terminal import say
from logitloom.errors import DuplicatePlugin, ScaffoldError, WriteError
from logitloom.host import registry

__all__ = ["add_parser", "write"]


class _Kind(NamedTuple):
    """A kind of plug-in, as the metadata of its distribution describe it.

    Attributes:
        group: the kind of plug-in, which determines the group of entry points.
        description: a noun phrase for the plug-in, with which a sentence begins.
        point: the object that the entry point names.
    """

    group: str
    description: str
    point: str = "@@PACKAGE@@:@@CLASS@@"


_KINDS = {
    "processor": _Kind("processors", "A logits processor"),
    "constraint": _Kind("processors", "A constraint"),
    "backend": _Kind("backends", "An array backend", "@@PACKAGE@@:@@CLASS@@Plugin [@@NAME@@]"),
    "tokenizer": _Kind("tokenizers", "A tokenizer reader", "@@PACKAGE@@:@@CLASS@@Reader"),
    "candidates": _Kind("candidates", "A candidate generator"),
    "engine": _Kind("engines", "An engine adapter", "@@PACKAGE@@:to_@@NAME@@"),
}

#: Name of a template -> kind of plug-in, a key of ``registry.GROUPS``.
KINDS = {name: kind.group for name, kind in _KINDS.items()}

_EXTRAS = 'test = ["logitloom[test]"]'
_BACKEND_EXTRAS = """# The distribution that brings the library; it may be called otherwise than its module.
@@NAME@@ = ["@@LIBRARY@@"]
test = ["logitloom[test]", "@@LIBRARY@@"]"""

#: File of the folder ``templates/common`` -> its path in the distribution.
_PATHS = {
    "gitignore": ".gitignore",
    "ci.yml": ".github/workflows/test.yml",
    "publish.yml": ".github/workflows/publish.yml",
}

#: Module -> distribution, where the names differ.
_LIBRARIES = {"cupy": "cupy-cuda12x"}


def add_parser(commands: Any) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "new",
        help="begin a plug-in of your own",
        description="Write a complete distribution with a plug-in: pyproject.toml with its entry point, code, a "
        "conformance test, README, licence, a tox matrix, and workflows that test and publish it. Its tests pass as it "
        "is.",
    )
    parser.add_argument("kind", choices=list(KINDS), help="what to write")
    parser.add_argument("name", help="name of the plug-in, such as calm_down; of a backend the module of its library")
    parser.add_argument(
        "--into", default=".", metavar="FOLDER", help="where the distribution's folder is made (default: here)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the distribution, and print the next commands."""
    folder = write(arguments.kind, arguments.name, Path(arguments.into))
    print(folder)
    say(f"Next: cd {folder} && pip install -e '.[test]' && pytest && logitloom check {arguments.name}")
    return 0


def write(kind: str, name: str, into: Path) -> Path:
    """Write a distribution with a plug-in.

    Args:
        kind: ``processor``, ``constraint``, ``backend``, ``tokenizer``, ``candidates`` or ``engine``.
        name: of the plug-in.
        into: the folder in which the distribution's own folder is made.

    Returns:
        The distribution's folder.

    Raises:
        ScaffoldError: the name is no plug-in's name, or taken in its code, or its folder or package exists.
        DuplicatePlugin: an installed plug-in has the name.
        WriteError: the files cannot be written.
    """
    _check_name(kind, name)
    package = f"logitloom_{name}"
    distribution = package.replace("_", "-")
    folder = into / distribution
    if folder.exists():
        raise ScaffoldError(f"There is a {str(folder)!r} already. Move it, or choose another name or --into.")
    if not into.is_dir():
        raise ScaffoldError(f"There is no folder {str(into)!r} to write into. Make it, or choose another --into.")
    if importlib.util.find_spec(package) is not None:
        raise ScaffoldError(f"A package {package!r} is installed already. Uninstall it, or choose another name.")
    words = {
        "NAME": name,
        "CLASS": "".join(part.capitalize() for part in name.split("_")),
        "PACKAGE": package,
        "DISTRIBUTION": distribution,
        "LIBRARY": _LIBRARIES.get(name, name.replace("_", "-")),
        "LOGITLOOM": metadata.version("logitloom"),
        "GROUP": _KINDS[kind].group,
        "DESCRIPTION": _KINDS[kind].description,
    }
    words["POINT"] = _filled(_KINDS[kind].point, words)
    words["EXTRAS"] = _filled(_BACKEND_EXTRAS if kind == "backend" else _EXTRAS, words)
    templates = resources.files("logitloom") / "templates"
    # The files are written inside a temporary folder and moved last: a failure leaves no incomplete distribution.
    try:
        with tempfile.TemporaryDirectory(prefix=f".{distribution}.", dir=into) as temporary:
            new = Path(temporary) / distribution
            # Templates of the kind replace common templates with the same path.
            for relative, template in {**dict(_files(templates / "common")), **dict(_files(templates / kind))}.items():
                path = new / _PATHS.get(relative, relative.replace("src/package/", f"src/{package}/"))
                path.parent.mkdir(parents=True, exist_ok=True)
                text = _filled(template.read_text(encoding="utf-8"), words)
                if path.suffix == ".py":
                    _check_class(text, words)
                path.write_text(text, encoding="utf-8")
            new.rename(folder)
    except OSError as error:
        raise WriteError(f"{str(folder)!r} cannot be written: {error.strerror or error}. Nothing was made.") from error
    return folder


def _files(folder: Traversable, relative: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            yield from _files(entry, f"{relative}{entry.name}/")
        elif entry.name.endswith(".tmpl"):
            yield f"{relative}{entry.name.removesuffix('.tmpl')}", entry


def _filled(text: str, words: dict[str, str]) -> str:
    return re.sub("@@([A-Z]+)@@", lambda found: words[found.group(1)], text)


def _check_class(source: str, words: dict[str, str]) -> None:
    """Raise if a module imports something else under the name of the plug-in's class."""
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    for node in imports:
        if words["CLASS"] in (each.name for each in node.names) and node.module != words["PACKAGE"]:
            raise ScaffoldError(
                f"The class of {words['NAME']!r} would be {words['CLASS']!r}, a name that its code imports from "
                f"{node.module!r}. Choose another name."
            )


def _check_name(kind: str, name: str) -> None:
    if not re.fullmatch("[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name):
        better = re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")
        hint = f" Try {better!r}." if re.fullmatch("[a-z][a-z0-9_]*", better) and not keyword.iskeyword(better) else ""
        raise ScaffoldError(
            f"{name!r} cannot name a plug-in ({kind}): names are lower-case words joined by underscores, such as "
            f"'calm_down', and no Python keywords.{hint}"
        )
    if kind == "backend" and name in sys.stdlib_module_names:
        raise ScaffoldError(
            f"A backend is named as the module of its array library, but {name!r} is a module of Python's own."
        )
    taken = [r for r in registry.available(KINDS[kind]) if r.name == name]
    if taken:
        owner = f"{taken[0].distribution} {taken[0].version}".strip() or "an earlier registration"
        raise DuplicatePlugin(f"The name {name!r} is already taken among {KINDS[kind]} by {owner}. Choose another one.")
