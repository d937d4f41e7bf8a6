"""``logitloom detect``: whether a text bears a watermark."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from logitloom import processors, registry
from logitloom.cli.generate import parse_setting
from logitloom.cli.terminal import table
from logitloom.errors import OptionError
from logitloom.vocabulary import Vocabulary

__all__ = ["add_parser"]

#: More ids than any vocabulary has.
_MOST_IDS: Final = 1 << 24

EXAMPLES = """examples:
  logitloom detect watermark_greenlist --ids 'ids.json' --vocab-size 49152 --set key=15485863
  logitloom detect watermark_gumbel text.txt --tokenizer tokenizer.json --vocab-size 49152 --set key=42
  cat text.txt | logitloom detect watermark_synthid --tokenizer model-folder --vocab-size 49152 --set 'keys=[1, 2, 3]'
"""


def add_parser(commands: Any) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "detect",
        help="look for a watermark in a text",
        description="Look for the mark of a watermark processor in a text, given as text or as token ids, and print "
        "the statistic and the p-value. Exit code 0 if the p-value is below the threshold, else 1.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("processor", metavar="NAME", help="the processor that marks, such as watermark_greenlist")
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="a file with the text; default: input")
    parser.add_argument("--ids", metavar="FILE", help="a file with a JSON list of token ids, instead of a text")
    parser.add_argument(
        "--tokenizer", metavar="PATH", help="tokenizer of the model, a file or folder of Hugging Face's"
    )
    parser.add_argument(
        "--vocab-size", type=int, metavar="N", help="columns of the logits; default: the tokenizer's ids"
    )
    parser.add_argument("--threshold", type=float, default=0.01, metavar="P", help="p-value of a mark; default: 0.01")
    parser.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE", dest="settings",
        help="an option that the processor had; VALUE is TOML or else text",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, detect, print."""
    options: dict[str, Any] = {}
    for text in arguments.settings:
        _, option, value = parse_setting(f"{arguments.processor}.{text}")
        options[option] = value
    mark = processors.load((arguments.processor, options))[arguments.processor]
    if not hasattr(mark, "detect"):
        raise OptionError(
            f"Processor {arguments.processor!r} leaves no mark that could be detected: it has no method 'detect'. "
            f"Name a watermark, such as watermark_greenlist."
        )
    ids, size = _ids(arguments)
    if not 0 <= size <= _MOST_IDS:
        raise OptionError(f"--vocab-size must be the number of logits, from 1 to {_MOST_IDS}, but is {size}.")
    if not size:
        raise OptionError("Lists of green tokens depend on the number of logits: give --vocab-size or --tokenizer.")
    found = mark.detect(ids, vocab_size=size)
    told = {"processor": arguments.processor, "tokens": len(ids), **found._asdict()}
    told["marked"] = bool(found.p_value < arguments.threshold)
    if arguments.json:
        print(json.dumps(told, indent=2))
    else:
        shown = [
            ("tokens", str(len(ids))), ("scored", str(found.scored)), ("mean", f"{found.mean:.4f}"),
            ("statistic", f"{found.statistic:.3f}"), ("p-value", f"{found.p_value:.3g}"),
            ("marked", "yes" if told["marked"] else "no"),
        ]  # fmt: skip
        print(table(shown, ("", arguments.processor), sys.stdout))
    return 0 if told["marked"] else 1


def _ids(arguments: argparse.Namespace) -> tuple[list[int], int]:
    """The token ids, and the number of logits as far as it is known."""
    size = int(arguments.vocab_size or 0)
    if arguments.ids is not None:
        try:
            ids = json.loads(_read(arguments.ids))
        except (ValueError, RecursionError) as error:
            if isinstance(error, OptionError):
                raise
            raise OptionError(
                f"{arguments.ids} is no JSON: {error!s:.200}. Give a list of token ids, such as [1, 2]."
            ) from None
        if not isinstance(ids, list) or not all(type(token) is int and 0 <= token < 2**31 for token in ids):
            raise OptionError(f"{arguments.ids} must hold a JSON list of token ids, such as [1, 2].")
        return ids, size
    if arguments.tokenizer is None:
        raise OptionError("A text needs the tokenizer that wrote it: give --tokenizer, or --ids with token ids.")
    tokenizer = _tokenizer(arguments.tokenizer)
    vocabulary: Vocabulary = registry.read_vocabulary(tokenizer)
    return list(tokenizer.encode(_read(arguments.file), add_special_tokens=False).ids), size or vocabulary.size


def _tokenizer(path: str) -> Any:
    """A tokenizer of the library tokenizers."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise OptionError(
            "Reading a text needs the package tokenizers: pip install tokenizers. Or give --ids."
        ) from None
    file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise OptionError(f"There is no tokenizer at {file}. Give a tokenizer.json, or the folder that has it.")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself
        raise OptionError(f"{file} is no tokenizer: {error!s:.200}. Give a tokenizer.json.") from error


def _read(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: another encoding, or a path that no file has
        raise OptionError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
