"""The command ``logitloom``: sub-commands, exit codes, and where output goes.

Standard output carries results only; everything said to a person goes to standard error. Exit codes: 0 success,
1 an error of logitloom (one sentence on standard error), 2 wrong usage, 3 a text was cut before its constraints let it
end (``generate``), 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from logitloom.cli import automaton, check, detect, doctor, generate, kernels, new, plugins, validate
from logitloom.cli.terminal import complain, harmless, warnings_said
from logitloom.errors import LogitloomError, LogitloomWarning
from logitloom.host import registry
from logitloom.host.entry_points import installed

__all__ = ["main", "parser"]


class _CommandParser(argparse.ArgumentParser):
    """A parser whose messages repeat the given arguments with terminal control characters written out.

    A sub-command takes options between its other arguments, too: ``detect NAME --set key=7 FILE``.
    """

    _intermixed = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As the method of the base class, which ``parse_known_intermixed_args`` calls in turn."""
        if self._intermixed or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._intermixed = True
        try:
            mixed = super().parse_known_args if "--" in (args or ()) else self.parse_known_intermixed_args
            found, unknown = mixed(args, namespace)
        finally:
            self._intermixed = False
        if unknown:
            self._refuse(unknown)
        return found, unknown

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        """The error for arguments that a sub-command does not have, with what may have been meant."""
        message = f"unrecognized arguments: {' '.join(unknown)}"
        processors = {record.name.replace("_", "-"): record.name for record in registry.available("processors")}
        options = [option[2:] for option in self._option_string_actions if option.startswith("--")]
        known = {**processors, **dict.fromkeys(options)}
        for word in unknown:
            given = word.partition("=")[0].replace("_", "-").removeprefix("--")
            begun = [name for name in processors if len(given) > 2 and name.startswith(given)]
            if len(begun) != 1:
                begun = difflib.get_close_matches(given, known, n=1, cutoff=0.7)
            near = [given] if given in known else begun
            if not word.startswith("--") or not near:
                continue
            name = known[near[0]]
            if name is None:
                message += f"\nDid you mean --{near[0]}?"
            else:
                message += f"\n{name} is a processor: generate takes it as --use {name} --set {name}.OPTION=VALUE, and "
                message += f"'logitloom plugins {name}' tells its options."
        self.error(message)

    def _parse_optional(self, arg_string: str) -> Any:
        """As the method of the base class, but a text such as ``-?[0-9]+``, with neither a letter nor a dash after its
        first dash, is a value.
        """
        return None if re.match("-[^-a-zA-Z]", arg_string) else super()._parse_optional(arg_string)

    def error(self, message: str) -> NoReturn:
        """As the method of the base class, with the remedy for values that begin with a dash."""
        option = re.match("argument (-.*): expected (?:one|at least one) argument", message)
        if option:
            message += f"\nA value that begins with - stands behind =, such as {option[1]}=-x."
        super().error(message)

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(harmless(message, sys.stderr if file is None else file), file)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    import logitloom

    top = _CommandParser(
        prog="logitloom",
        description="Steer language models with logits processors that are loaded by name.",
    )
    top.add_argument("--version", action="version", version=f"logitloom {logitloom.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (generate, automaton, validate, detect, plugins, new, check, doctor, kernels):
        module.add_parser(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    if sys.stderr is None:  # closed: there is nobody to talk to
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the end of the process
    try:
        if sys.stdout is None:
            complain("Standard output is closed, so there is no place for the result. Leave it open, or name a file.")
            return 1
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard_output()
        return 0  # the reader of the pipe has what it wanted
    except OSError as error:
        _discard_output()
        what = "Standard output" if error.filename is None else f"{error.filename!r:.100}"
        with contextlib.suppress(OSError):  # standard error may be as full
            complain(f"{what} cannot be used: {error.strerror or error}.")
        _discard_output()
        return 1


def _run(given: list[str]) -> int:
    undecodable = next((text for text in given if any("\ud800" <= c <= "\udfff" for c in text)), None)
    if undecodable is not None:
        complain(f"The argument {undecodable!r:.100} is not in the encoding of the terminal. Give it in UTF-8.")
        return 2
    # What a terminal or file cannot show, in an encoding that is not UTF-8, is written out.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with warnings_said():
            parsed = parser().parse_args(given)
            return int(parsed.run(parsed))
    except SystemExit:  # of argparse, after help, or after a message about wrong usage
        sys.stdout.flush()
        raise
    except (LogitloomError, LogitloomWarning) as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        complain("Interrupted.")
        return 130
    except MemoryError as error:
        complain(f"The memory is too small: {str(error) or 'nothing is left'}. Ask for fewer or shorter texts at once.")
        return 1
    except Exception as error:
        # Libraries that read the entry points of all distributions fail at one damaged file.
        damage = installed().damage
        if not damage:
            raise
        name, wrong = damage[0]
        complain(f"{type(error).__name__}: {error!s:.200}. The distribution {name!r} may be the reason. {wrong}")
        return 1


def _discard_output() -> None:
    """Point broken output streams to the null device, so that the interpreter can flush them when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
