"""The command ``logitloom``: sub-commands, exit codes, and where output goes.

Standard output carries results only; everything said to a person goes to standard error. Exit codes: 0 success,
1 an error of logitloom (one sentence on standard error), 2 wrong usage, 3 a text was cut before its constraints let it
end (``generate``), 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from logitloom.cli import automaton, check, detect, doctor, generate, kernels, new, plugins, validate
from logitloom.cli.terminal import complain, harmless
from logitloom.errors import LogitloomError

__all__ = ["main", "parser"]


class _Parser(argparse.ArgumentParser):
    """A parser whose messages repeat what was given without what would steer a terminal."""

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(harmless(message, sys.stderr if file is None else file), file)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    import logitloom

    top = _Parser(
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
    given = list(sys.argv[1:] if arguments is None else arguments)
    undecodable = next((text for text in given if any("\ud800" <= c <= "\udfff" for c in text)), None)
    if undecodable is not None:
        complain(f"The argument {undecodable!r} is not in the encoding of the terminal. Give it in UTF-8.")
        return 2
    parsed = parser().parse_args(given)
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except LogitloomError as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        complain("Interrupted.")
        return 130
    except BrokenPipeError:
        # The reader of a pipe has gone; give the interpreter somewhere to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


if __name__ == "__main__":
    sys.exit(main())
