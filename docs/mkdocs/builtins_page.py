"""Writes the page of built-in plug-ins from what each says about itself.

The site gets it with pictures when it is built. Readers of the repository have ``docs/processors.md``, the same without
pictures, and the options of candidate generators in ``docs/speculation.md``; ``python docs/mkdocs/builtins_page.py``
writes both, and tests compare.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from logitloom import processors
from logitloom.host import registry
from logitloom.host.options import Option, declared
from logitloom.host.registry import PluginRecord
from logitloom.processors import Description

# MkDocs runs this file by its path, and its neighbour is no installed module.
sys.path.insert(0, str(Path(__file__).parent))
import counterparts
import effects
from docstring_markup import without_roles

__all__ = ["on_files", "render", "with_generators"]

PAGE = "processors.md"
SPECULATION = "speculation.md"
OPTION_COLUMNS = ("option", "type", "default", "range", "meaning")
DISTRIBUTION = "logitloom"


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add the page to the site (an event of MkDocs)."""
    from mkdocs.structure.files import File

    written = files.get_file_from_path(PAGE)
    if written is not None:
        files.remove(written)
    files.append(File.generated(config, PAGE, content=render()))
    return files


def render(pictures: bool = True) -> str:
    """The page, in Markdown: a table of processors, a section for each, then the other kinds."""
    mine = [record for record in registry.available() if record.distribution == DISTRIBUTION]
    described = [processors.describe(f"{r.name}@{r.distribution}") for r in mine if r.kind == "processors"]
    described = [_renamed(told) for told in described]
    parts = [
        "# Processors",
        "What is shipped with logitloom. This page is written from the declarations in the code; "
        "`logitloom plugins` shows the same at the command line, with whatever else is installed.",
    ]
    drawn = [
        "The pictures are drawn from the processors as they are: the same seventeen tokens each time, with their "
        "probabilities before (grey) and after (blue), × for what is forbidden. The last token, `end`, is the end of "
        "sequence.",
        effects.style(),
    ]
    parts += [
        *(drawn if pictures else []),
        _table(
            ("name", "stage", "what it does"),
            [(f"[`{d.name}`](#{d.name})", d.stage or "of its options", without_roles(d.summary)) for d in described],
        ),
        *[_section(told, pictures) for told in described],
        counterparts.table(),
        "## Other plug-ins",
        "Loaded by name like processors, when they are needed. The adapters for "
        "SGLang and ExLlamaV3 have never run inside these engines.",
        _table(
            ("kind", "name", "install"),
            [(r.kind, f"`{r.name}`", _install(r)) for r in mine if r.kind != "processors"],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _renamed(told: Description) -> Description:
    return replace(told, name=told.name.partition("@")[0])


def _section(told: Description, pictures: bool) -> str:
    facts = [f"stage `{told.stage}`" if told.stage else "the stage depends on the options"]
    facts += [f"needs {', '.join(sorted(told.needs))}"] if told.needs else []
    facts += [f"{told.effect.writes} logits"] if told.effect else ["what it writes depends on its options"]
    facts += ["keeps the order of the tokens"] if told.effect and told.effect.keeps_order else []
    options = _table(OPTION_COLUMNS, [_cells(option) for option in told.options])
    effect = effects.EFFECTS.get(told.name)
    picture = [] if effect is None or not pictures else [effects.draw(told.name, effect)]
    head = [f"## {told.name}" + (f" {{ #{told.name} }}" if pictures else ""), f"*{'; '.join(facts)}*"]
    return "\n\n".join([*head, *picture, _prose(told.doc), options])


def _cells(o: Option) -> tuple[str, ...]:
    """An option as a line of a table with the columns of ``OPTION_COLUMNS``."""
    return (
        f"`{o.name}`",
        f"`{o.type_text}`",
        "required" if o.required else f"`{o.default!r}`",
        " ".join(filter(None, (o.range_text, o.unit))),
        o.help,
    )


def render_generators() -> str:
    """The options of the built-in candidate generators, a line for each with the generators that have it."""
    owners: dict[tuple[str, ...], list[str]] = {}
    for record in registry.available("candidates"):
        if record.distribution == DISTRIBUTION:
            for option in declared(registry.load_plugin("candidates", record.full_name)):
                owners.setdefault(_cells(option), []).append(f"`{record.name}`")
    lines = [(*cells[:1], ", ".join(names), *cells[1:]) for cells, names in owners.items()]
    return _table((OPTION_COLUMNS[0], "of", *OPTION_COLUMNS[1:]), lines)


def with_generators(page: str) -> str:
    """The page about speculative decoding with the table of options between its marks."""
    before, begin, rest = page.partition("<!-- options -->\n")
    _, end, after = rest.partition("\n<!-- end of options -->")
    return f"{before}{begin}\n{render_generators()}\n{end}{after}"


def _prose(doc: str) -> str:
    """A docstring as Markdown: examples stay indented and so become code, references become paragraphs."""
    text, _, references = without_roles(doc).replace("``", "`").partition("References:\n")
    text = text.replace("Example:\n", "**Example**\n\n")
    return f"{text}**References**\n\n{inspect.cleandoc(references)}" if references else text


def _install(record: PluginRecord) -> str:
    return f"`pip install '{record.distribution}[{record.extra}]'`" if record.extra else "always there"


def _table(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    def row(cells: tuple[str, ...]) -> str:
        return (
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ").replace("``", "`") for cell in cells) + " |"
        )

    return "\n".join([row(head), row(("---",) * len(head)), *[row(line) for line in lines]]) if lines else "No options."


if __name__ == "__main__":
    pages = Path(__file__).parent.parent
    (pages / PAGE).write_text(render(pictures=False), encoding="utf-8")
    speculation = pages / SPECULATION
    speculation.write_text(with_generators(speculation.read_text(encoding="utf-8")), encoding="utf-8")
