"""Files of Hugging Face tokenizers: ``tokenizer.json``, and what the files beside it say about the end of a text."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from logitloom.errors import VocabularyError

__all__ = ["end_ids", "ends_beside", "opened", "tokenizer_file"]


def tokenizer_file(path: Any) -> Path | None:
    """The ``tokenizer.json`` that a path leads to: the file, or the folder that has it; None for anything else."""
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
        return None
    try:
        found = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
        return found if found.suffix == ".json" and found.is_file() else None
    except (OSError, ValueError):  # no file has such a name
        return None


def opened(file: Path) -> Any:
    """The tokenizer in a file, read once as long as the file stays as it is.

    Raises:
        VocabularyError: if the file holds none, or the package tokenizers is not installed.
    """
    return _opened(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _opened(file: Path, modified: int) -> Any:
    del modified
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise VocabularyError(
            f"Reading {str(file)!r} needs the package tokenizers. Install it: pip install 'logitloom[huggingface]'."
        ) from None
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself
        raise VocabularyError(
            f"{str(file)!r} is no tokenizer: {error!s:.200}. Give a tokenizer.json, or the folder that has it."
        ) from error


def ends_beside(file: Path) -> list[str | int]:
    """What ends a text: the token in ``tokenizer_config.json``, and the ids in ``generation_config.json``.

    Raises:
        VocabularyError: if one of these files cannot be read.
    """
    told = _json(file.parent / "tokenizer_config.json").get("eos_token")
    text = told.get("content") if isinstance(told, dict) else told
    return [*([text] if isinstance(text, str) else []), *end_ids(file.parent / "generation_config.json")]


def end_ids(file: Path) -> list[int]:
    """The ids that end a text according to a ``generation_config.json``; none if there is no such file.

    Raises:
        VocabularyError: if the file cannot be read.
    """
    ends = _json(file).get("eos_token_id")
    return [] if ends is None else [int(i) for i in (ends if isinstance(ends, list) else [ends])]


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VocabularyError(
            f"{file} could not be read for the ids that end a sequence: {error}. Repair or remove the file."
        ) from error
    return found if isinstance(found, dict) else {}
