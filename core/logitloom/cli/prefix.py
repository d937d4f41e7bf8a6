"""``logitloom validate --prefix``: whether a text is a prefix of a text that a schema or a grammar allows."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from logitloom import processors
from logitloom.cli.terminal import styled
from logitloom.constraints import Constraint, State
from logitloom.errors import OptionError
from logitloom.generation.finished_value import text_state
from logitloom.generation.partial_values import value_reader_of

__all__ = ["check_prefix", "show_prefix"]

#: Most possible characters and ranges of characters of a position that are shown.
_MOST_SHOWN: Final = 12


def check_prefix(name: str, options: dict[str, Any], file: str) -> dict[str, Any]:
    """Read a text under a processor. A final line break that is not allowed is no part of the text: editors add it.

    Args:
        name: the processor's name.
        options: its options.
        file: the file with the text; ``-`` for standard input.

    Returns:
        ``prefix``: whether the text is a prefix of an allowed text; ``complete``: whether it is an allowed text;
        ``characters``: its number of characters. If it is no prefix, the position of the error: ``character`` (from
        0), ``line`` and ``column`` (from 1), ``found``, and ``expected`` (the possible continuations: characters and
        ranges of characters). ``path`` points into a JSON value.

    Raises:
        OptionError: if the file cannot be read.
        LogitloomError: if the processor cannot be made.
    """
    if any("flexible" in (o.choices or ()) for o in processors.describe(name).options if o.name == "whitespace"):
        options = {"whitespace": "flexible", **options}  # a text is asked about, not how a model should write it
    processor = processors.load([name, options])[name]
    text = _read(file)
    told = _told(processor, text)
    without = re.sub(rb"\r?\n\Z", b"", text)
    if without != text and not told["prefix"] and told["character"] == len(without.decode("utf-8", "replace")):
        told = _told(processor, without)
    return told


def _told(processor: Any, text: bytes) -> dict[str, Any]:
    constraint, state, position = text_state(processor.constraint, text)
    if position < len(text):
        return _failure(processor, constraint, state, text, position)
    told = {"prefix": True, "complete": constraint.may_end(state), "characters": len(text.decode("utf-8", "replace"))}
    return told | _path(processor, text)


def show_prefix(told: dict[str, Any], file: str) -> str:
    """What :func:`check_prefix` found, for people."""
    path = f" (in {told['path']})" if told.get("path") else ""
    if told["prefix"]:
        state = "is a whole text" if told["complete"] else f"is a prefix of an allowed text{path}"
        return f"{file} {styled(state, 'green', sys.stdout)}."
    said = f"{file} {styled('is no prefix', 'red', sys.stdout)} of an allowed text: it goes wrong in line "
    said += f"{told['line']}, column {told['column']}{path}, at {told['found']}."
    return said + (f" There could stand {', '.join(told['expected'])}." if told["expected"] else "")


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise OptionError(
            f"The file {file!r:.100} given by --prefix cannot be read ({error.strerror}). Give a file with the text, "
            f"or - for standard input."
        ) from error


def _failure(processor: Any, constraint: Constraint, state: State, text: bytes, position: int) -> dict[str, Any]:
    while position and text[position] & 0xC0 == 0x80:
        position -= 1  # the first byte of the character
    before = text[:position].decode("utf-8", "replace")
    ids = [token for token in constraint.allowed(state).listed(constraint.vocab_size).tolist() if token < 256]
    expected = _characters(ids) + ["the end of the text"] * constraint.may_end(state)
    return {
        "prefix": False,
        "complete": False,
        "character": len(before),
        "line": before.count("\n") + 1,
        "column": len(before) - before.rfind("\n"),
        "found": repr(text[position : position + 4].decode("utf-8", "replace")[:1]),
        "expected": expected,
    } | _path(processor, text[:position])


def _characters(first: Sequence[int]) -> list[str]:
    """The characters that begin with some bytes, in sorted order: each, or ranges of three and more."""
    runs: list[list[int]] = []
    for byte in (byte for byte in first if byte < 128):
        if runs and byte == runs[-1][-1] + 1:
            runs[-1].append(byte)
        else:
            runs.append([byte])
    named: list[str] = []
    for run in runs:
        shown = [repr(chr(byte)) for byte in run]
        named += shown if len(run) < 3 else [f"{shown[0]} to {shown[-1]}"]
    named += ["a character beyond ASCII"] * any(byte >= 128 for byte in first)
    return named if len(named) <= _MOST_SHOWN else [*named[:_MOST_SHOWN], "others"]


def _path(processor: Any, text: bytes) -> dict[str, Any]:
    """The location in a JSON value that a text writes at its end, as a JSON pointer."""
    reader = value_reader_of(processor)
    path = None if reader is None else reader.add(text.decode("utf-8", "ignore")).path
    parts = [str(part).replace("~", "~0").replace("/", "~1") for part in path or ()]
    return {"path": "#/" + "/".join(parts)} if parts else {}
