"""Rules in force while a chain is made, at every depth of nested processors.

A processor may load other processors while it is made (combinators do). The rules of the caller of the outermost
``load`` hold for these processors, too: blocked names, and the guard of a server that makes chains for strangers.
"""

from __future__ import annotations

import opcode
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from logitloom.arguments import names
from logitloom.errors import LogitloomError, OptionError, OptionTypeError
from logitloom.host.entry_points import PluginName

__all__ = ["Guard", "Rules", "at_place", "loading", "making_parts", "rules", "text_or_file"]

#: Longer texts name no file.
_LONGEST_PATH = 4096


class Guard(Protocol):
    """The options that a client who is not trusted may set.

    While a guard holds, no option is read as the name of a file: texts are texts, and options that are paths are
    refused.
    """

    def require(self, name: str) -> None:
        """Check, before a processor is imported, that the client may name it.

        Args:
            name: the name as the client gave it, ``name`` or ``name@distribution``.

        Raises:
            LogitloomError: if the client may not name the processor.
        """
        ...

    def options(self, name: str, plugin: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options to use in place of the given options.

        Raises:
            LogitloomError: if they may not be used.
        """
        ...

    def of_parts(self) -> Guard:
        """The guard of processors that no client names, because another processor makes them for itself.

        Any name is allowed, and these processors are not counted. Limits of options hold.
        """
        ...


@dataclass(frozen=True)
class Rules:
    """The rules in force.

    Attributes:
        block: names that must not be loaded, as in :func:`logitloom.processors.load`.
        guard: for chains that come from a client who is not trusted.
    """

    block: frozenset[str] = frozenset()
    guard: Guard | None = None


#: The instruction of a ``raise`` statement.
_RAISE: Final = opcode.opmap["RAISE_VARARGS"]
_RULES: ContextVar[Rules] = ContextVar("logitloom_rules", default=Rules())  # noqa: B039 - it cannot be changed


@contextmanager
def at_place(place: str, name: PluginName | str | None = None) -> Iterator[None]:
    """Put a place before the message of each error of logitloom that is raised inside the ``with`` statement.

    Args:
        place: the place, without ``name``.
        name: what follows ``place``, in quotes; a message that quotes the name already stays as it is.

    Example:
        >>> with at_place("Option 'inner' of 'after'"):
        ...     raise OptionError("Option 'k' of 'top_k' must be >= 1 tokens, but is 0.")
        Traceback (most recent call last):
        logitloom.errors.OptionError: Option 'inner' of 'after': Option 'k' of 'top_k' must be >= 1 tokens, but is 0.
    """
    try:
        yield
    except LogitloomError as error:
        if name is None or repr(name) not in str(error):
            error.args = (f"{place}{'' if name is None else f' {name!r}'}: {error}", *error.args[1:])
        raise


def rules() -> Rules:
    """The rules that hold now, in this thread."""
    return _RULES.get()


@contextmanager
def loading(*, block: Iterable[str] = (), guard: Guard | None = None) -> Iterator[Rules]:
    """Add rules for the processors made inside the block; rules that hold already stay in force.

    Example:
        >>> from logitloom import processors
        >>> with loading(block=["top_k"]):
        ...     processors.load("top_k")
        Traceback (most recent call last):
        logitloom.errors.PluginBlocked: The plug-in 'top_k' (processors) is blocked, by the argument 'block' ...

    Raises:
        OptionTypeError: ``block`` is one text.
    """
    if isinstance(block, str):
        raise OptionTypeError(f"'block' must be a list of names, but is the text {block!r}. Write block=[{block!r}].")
    before = _RULES.get()
    blocked = frozenset(names(block, "block", OptionTypeError))
    try:
        _RULES.set(Rules(before.block | blocked, guard if before.guard is None else before.guard))
        yield _RULES.get()
    finally:
        _RULES.set(before)


@contextmanager
def making_parts() -> Iterator[None]:
    """Mark the processors made inside the block as parts of another processor.

    A client who names ``tool_call`` need not be allowed to name the processors that ``tool_call`` makes.
    """
    before = _RULES.get()
    try:
        _RULES.set(replace(before, guard=None if before.guard is None else before.guard.of_parts()))
        yield
    finally:
        _RULES.set(before)


def is_interruption(error: BaseException) -> bool:
    """Whether an exception comes from someone who wants to end the program, and not from a statement of a plug-in.

    Python itself raises ``KeyboardInterrupt`` at whatever instruction the program has reached, or a handler of the
    signal does.

    Example:
        >>> try:
        ...     raise KeyboardInterrupt
        ... except BaseException as error:
        ...     is_interruption(error)
        False
    """
    if not isinstance(error, KeyboardInterrupt):
        return False
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    if entry is None or entry.tb_frame.f_code.co_code[entry.tb_lasti] != _RAISE:
        return True
    return getattr(signal.getsignal(signal.SIGINT), "__code__", None) is entry.tb_frame.f_code


def text_or_file(
    source: str | os.PathLike[str], kind: str, *, is_text: Callable[[str], bool], remedy: str
) -> tuple[str, str]:
    """The text of an option, or of the file that the option names, and the file's suffix (empty without a file).

    Options that hold a text or the name of a file are read here, so that a guard can rule files out.

    Args:
        source: a text, or a path.
        kind: the kind of text, for messages, such as ``grammar``.
        is_text: whether a text that is the name of no file is meant as a text.
        remedy: a sentence that says what to give.

    Raises:
        OptionError: the text is empty, the file cannot be read, or files are ruled out.
    """
    if isinstance(source, str):
        # Editors of Windows begin files with a byte order mark.
        source = source.removeprefix("\ufeff")
        if not source.strip():
            raise OptionError(f"The {kind} is an empty text. {remedy}")
    if rules().guard is not None:
        if isinstance(source, str):
            return source, ""
        raise OptionError(f"The {kind} is a path, and a request may not name files. Give the {kind} itself.")
    if isinstance(source, str) and is_text(source) and not _is_file(source):
        return source, ""
    path = Path(source)
    try:
        return path.read_text(encoding="utf-8-sig"), path.suffix.lower()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"The {kind} file {os.fspath(source)!r:.100} cannot be read ({reason}). {remedy}") from error


def _is_file(text: str) -> bool:
    try:
        return len(text) < _LONGEST_PATH and os.path.isfile(text)
    except ValueError:
        return False
