"""A JSON Schema or a grammar as an argument: a file, or a class of a module."""

from __future__ import annotations

import difflib
import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from logitloom.errors import OptionError
from logitloom.host.loading import is_interruption

__all__ = ["grammar_argument", "schema_argument"]


def grammar_argument(text: str) -> Path | str:
    """The path of a grammar if the file exists; any other text is read, or refused, by the processor.

    Raises:
        OptionError: the text names a pipe that holds no text in UTF-8.
    """
    return _of_path(text) if text.strip() and os.path.exists(text) else text


def _of_path(path: str) -> Path | str:
    """The path, or the text of a pipe: a pipe can be read only once, but each engine reads the schema.

    Raises:
        OptionError: the pipe holds no text in UTF-8.
    """
    found = Path(path)
    if not found.is_fifo():
        return found
    try:
        return found.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise OptionError(f"The pipe {path!r:.100} cannot be read ({error!s:.200}). Give text in UTF-8.") from error


def schema_argument(text: str) -> Any:
    """The schema that a command was given: a path, a JSON Schema as text, or an object as ``MODULE:CLASS``.

    The module is also looked for in the current folder, as by ``python -m``.

    Raises:
        OptionError: the module cannot be imported, or has nothing of that name; or it names a pipe that holds no
            text in UTF-8; or the text is a grammar.
    """
    if text.lstrip().startswith("{") or text.strip() in ("true", "false"):
        return text
    if "::=" in text and not os.path.exists(text):
        raise OptionError(f"{text!r:.100} is a grammar, and no JSON Schema. Give it with --grammar.")
    named = re.fullmatch(r"([\w.]+):([\w.]+)", text)
    if named is None or os.path.exists(text):
        # An empty text, of which a path would make the current folder, is left for the processor to refuse.
        return _of_path(text) if text.strip() else text
    module_name, path = named.groups()
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
    except BaseException as error:
        if is_interruption(error):
            raise
        raise OptionError(
            f"The module {module_name!r:.100} of the schema {text!r:.100} cannot be imported: "
            f"{type(error).__name__}: {error!s:.200}. Give MODULE:CLASS, or a file with a JSON Schema."
        ) from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            near = difflib.get_close_matches(name, dir(found), 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise OptionError(f"There is no {name!r:.100} in {module_name!r:.100}.{hint} Give MODULE:CLASS.") from None
    return found
