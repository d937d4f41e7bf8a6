"""``logitloom detect``: whether a text bears a watermark."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from logitloom import processors
from logitloom.cli.default_loader import default_loader, load_model
from logitloom.cli.generate import settings_of
from logitloom.cli.once import Once
from logitloom.cli.terminal import said_by_user, table
from logitloom.errors import OptionError
from logitloom.generation.token_prefix import continuation_ids
from logitloom.host import registry
from logitloom.processor import NEEDS

__all__ = ["add_parser"]

_MARKED: Final = {True: "yes", False: "no", None: "not known: no token of the text could be scored"}
#: More ids than any vocabulary has.
_MOST_IDS: Final = 1 << 24

EXAMPLES = """examples:
  logitloom generate "Tell a story." --json --use watermark_greenlist --set watermark_greenlist.key=7 > story.json
  logitloom detect watermark_greenlist story.json --set key=7
  logitloom detect watermark_greenlist --ids ids.json --vocab-size 49152 --set key=15485863
  logitloom detect watermark_gumbel text.txt --tokenizer tokenizer.json --vocab-size 49152 --set key=42
  cat text.txt | logitloom detect watermark_synthid --tokenizer model-folder --vocab-size 49152 --set 'keys=[1, 2, 3]'
"""


def add_parser(commands: Any) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "detect",
        help="look for a watermark in a text",
        description="Look for the mark of a watermark processor in a text, given as text or as token ids, and print "
        "the statistic and the p-value. Exit code 0 if the p-value is below the threshold, else 1. A text too short to "
        "score is neither marked nor unmarked ('marked' of --json is null).",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("processor", metavar="NAME", help="the processor that marks, such as watermark_greenlist")
    parser.add_argument(
        "file", metavar="FILE", nargs="?",
        help="a file with the text, or with what generate --json printed; default: input",
    )  # fmt: skip
    parser.add_argument(
        "--ids", action=Once, metavar="FILE",
        help="a file with a JSON list of token ids, or what generate --json printed",
    )  # fmt: skip
    reader = parser.add_mutually_exclusive_group()
    reader.add_argument("--model", metavar="PATH", help="the model, as for generate (default: its default)")
    parser.add_argument("--loader", default=default_loader(), metavar="NAME", help="plug-in (default: %(default)s)")
    reader.add_argument("--tokenizer", metavar="PATH", help="instead of a model: a file or folder with its tokenizer")
    parser.add_argument(
        "--vocab-size",
        type=int,
        metavar="N",
        help="columns of the logits; default: the model's, or the tokenizer's ids",
    )
    parser.add_argument("--threshold", type=float, default=0.01, metavar="P", help="p-value of a mark; default: 0.01")
    parser.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE", dest="settings",
        help="an option that the processor had; VALUE is TOML, JSON, or else text",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, detect, print."""
    if arguments.ids is not None and arguments.file is not None:
        raise OptionError(f"--ids names the file with the text, so leave out {arguments.file!r}, or leave out --ids.")
    chain = processors.load([arguments.processor, settings_of(arguments.settings, arguments.processor)])
    [link] = chain.links
    if not hasattr(link.processor or link.factory, "detect"):
        raise OptionError(
            f"Processor {arguments.processor!r} leaves no mark that could be detected: it has no method 'detect'. "
            f"Name a watermark, such as watermark_greenlist."
        )
    chain.require(NEEDS, engine="'logitloom detect'", setting=lambda _, name: f"--set {name}=VALUE")
    mark = chain[link.label]
    if arguments.vocab_size is not None and not 0 < arguments.vocab_size <= _MOST_IDS:
        raise OptionError(
            f"--vocab-size must be the number of logits, from 1 to {_MOST_IDS}, but is {arguments.vocab_size}."
        )
    if not 0 <= arguments.threshold <= 1:
        raise OptionError(f"--threshold is a p-value, from 0 to 1, but is {arguments.threshold}.")
    texts, size = _texts(arguments)
    told = []
    for ids in texts:
        found = mark.detect(ids, vocab_size=size)
        # A text in which no token was scored may bear a mark or not.
        marked = bool(found.p_value < arguments.threshold) if found.scored else None
        told.append({"processor": arguments.processor, "tokens": len(ids), **found._asdict(), "marked": marked})
    if arguments.json:
        print(json.dumps(told[0] if len(told) == 1 else told, indent=2))
    else:
        print("\n\n".join(_shown(each) for each in told))
    return 0 if all(each["marked"] for each in told) else 1


def _shown(told: dict[str, Any]) -> str:
    """The result for one text, as a table."""
    rows = [
        ("tokens", str(told["tokens"])), ("scored", str(told["scored"])), ("mean", f"{told['mean']:.4f}"),
        ("statistic", f"{told['statistic']:.3f}"), ("p-value", f"{told['p_value']:.3g}"),
        ("marked", _MARKED[told["marked"]]),
    ]  # fmt: skip
    return table(rows, ("", told["processor"]), sys.stdout)


def _texts(arguments: argparse.Namespace) -> tuple[list[list[int]], int]:
    """The token ids of each text, and the number of logits."""
    size = arguments.vocab_size
    given = _read(next(path for path in (arguments.ids, arguments.file, "-") if path is not None))
    texts = _generated(given)
    if texts is None and arguments.ids is not None:
        texts = [_listed(given, arguments.ids)]
    if texts is not None and size is not None:
        return texts, size
    if arguments.tokenizer is None:
        model = load_model(arguments.loader, arguments.model)
        tokenizer, width = (None if texts is not None else model.tokenizer), int(model.vocab_size)
    else:
        tokenizer, width = arguments.tokenizer, registry.read_vocabulary(arguments.tokenizer).size
    if texts is None:
        texts = [continuation_ids(given, tokenizer)]
    return texts, width if size is None else size


def _generated(text: str) -> list[list[int]] | None:
    """The tokens of each sequence that ``generate --json`` printed, whole or in pieces; None for another text."""
    try:
        found = [json.loads(line) for line in text.splitlines()] if text.startswith("{") else json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
        return None
    sequences: dict[tuple[Any, Any], list[int]] = {}
    for each in found:
        tokens = each.get("tokens")
        if not _are_ids(tokens) or not {"prompt", "sample"} <= each.keys():
            return None
        sequences.setdefault((each["prompt"], each["sample"]), []).extend(tokens)
    return list(sequences.values())


def _listed(text: str, path: str) -> list[int]:
    """The ids in a JSON list."""
    try:
        ids = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{path} is no JSON: {error!s:.200}. Give a list of token ids, such as [1, 2].") from None
    if not _are_ids(ids):
        raise OptionError(
            f"{path} must hold a JSON list of token ids, such as [1, 2], or what generate --json printed."
        )
    found: list[int] = ids
    return found


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(token) is int and 0 <= token < 2**31 for token in value)


def _read(path: str) -> str:
    if path == "-":
        return said_by_user()
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: another encoding, or a path that no file has
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"{path} cannot be read: {reason}. Give a file in UTF-8.") from None
