"""The engine xgrammar: an Earley parser over characters.

References:
    Y. Dong et al., "XGrammar: Flexible and Efficient Structured Generation Engine for Large Language Models", 2024;
    https://github.com/mlc-ai/xgrammar.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import numpy as np
import xgrammar
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata import BudgetTracker
from logitloom.display.warning import warn
from logitloom.errors import BudgetExceeded, UnsupportedGrammar, UnsupportedSchema
from logitloom.vocabulary import kept_with_vocabulary
from logitloom_plugins.grammars.context_free import ContextFreeGrammar, Node, Reference, RuleRepeat, children
from logitloom_plugins.grammars.matcher_constraint import MatcherConstraint
from logitloom_plugins.grammars.notation import to_ebnf
from logitloom_plugins.grammars.xgrammar_keywords import problems
from logitloom_plugins.grammars.xgrammar_process import compile_beside

__all__ = ["XGrammar", "XGrammarGrammar"]

_NAME: Final = f"The engine xgrammar {version('xgrammar')}"
_SCHEMA: Final = (
    "The engine xgrammar does not tell how far the end of a JSON text is; the engine 'table' does, where it runs a "
    "schema."
)
_THREADS: Final = os.cpu_count() or 1
_MOST_NESTED: Final = 20_000
#: Seconds per token of the vocabulary at each position, and per pair of positions, of a grammar.
_PER_TOKEN: Final = 1.1e-7
_PER_PAIR: Final = 6e-6
_MOST_POSITIONS: Final = 1_000_000
#: Literals and sets, and counts of repetitions, in a grammar as the engine prints it.
_CHARACTERS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]')
_COUNTS: Final = re.compile(r"\{(\d+)(?:, *(\d+))?\}")


#: Problems of a schema that a message lists; an error carries all of them.
_SHOWN: Final = 2


class XGrammar:
    """The engine plug-in."""

    def json_schema(
        self, schema: Any, *, whitespace: str = "flexible", formats: bool = True, strict: bool = True
    ) -> XGrammarGrammar:
        """The grammar of a JSON Schema.

        Args:
            schema: a JSON value.
            whitespace: ``flexible``, ``compact`` or ``one_space``; ``json_dumps`` is ``one_space`` here, because the
                engine has one form of separators.
            formats: whether ``format`` is enforced, which the engine cannot.
            strict: refuse what the engine does not enforce, rather than warn.

        Raises:
            UnsupportedSchema: listing each keyword that the engine does not enforce, with its JSON pointer.
        """
        found = [told for told in problems(schema) if formats or told[0] != "format"]
        if found:
            few = (f"{keyword} at {pointer:.60} ({reason:.110})" for keyword, pointer, reason in found[:_SHOWN])
            listed = "; ".join(few) + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
            text = f"{_NAME} does not enforce these keywords: {listed}."
            if strict:
                refusal = UnsupportedSchema(
                    f"{text} Change the schema, use another engine, or set the option 'strict' to false to leave them "
                    f"out."
                )
                refusal.problems = tuple(found)
                raise refusal
            warn(text)
        options: dict[str, Any] = {"any_whitespace": whitespace == "flexible", "strict_mode": False}
        if whitespace != "flexible":
            space = "" if whitespace == "compact" else " "
            options["separators"] = "," + space, ":" + space
        try:
            return XGrammarGrammar(xgrammar.Grammar.from_json_schema(json.dumps(schema), **options))
        except (RuntimeError, ValueError) as error:
            raise UnsupportedSchema(f"{_NAME} refuses the schema: {_last_line(error)}") from error

    def lark(self, text: str, **options: Any) -> XGrammarGrammar:
        """Nothing: the engine reads Lark without a lexer, which is another language.

        Raises:
            UnsupportedGrammar: always.
        """
        del text, options
        raise UnsupportedGrammar(
            f"{_NAME} has no lexer, and in Lark the longest match decides what a text is, so it would allow other "
            f"texts. Write the grammar in GBNF, or use the engine 'llguidance'."
        )

    def context_free(self, grammar: ContextFreeGrammar, *, max_items: int | None = None) -> XGrammarGrammar:
        """The grammar that rules over characters describe.

        Args:
            grammar: the rules.
            max_items: ignored, since the engine has no such limit.

        Raises:
            UnsupportedGrammar: if the engine refuses it.
            BudgetExceeded: if counted repetitions are nested so that the engine would take minutes.
        """
        del max_items
        nested = _nested_counts(grammar)
        if nested > _MOST_NESTED:
            raise BudgetExceeded(
                f"Repetitions within repetitions come to {nested}, and {_NAME} is not asked for more than "
                f"{_MOST_NESTED}, since it would take minutes. Use smaller counts, or the engine 'llguidance'."
            )
        try:
            return XGrammarGrammar(xgrammar.Grammar.from_ebnf(to_ebnf(grammar)), grammar)
        except (RuntimeError, ValueError) as error:
            raise UnsupportedGrammar(f"{_NAME} refuses the grammar: {_last_line(error)}") from error


def _nested_counts(grammar: ContextFreeGrammar) -> int:
    """The largest product of counts of repetitions that stand in each other; 1 if none stands in another."""
    products: dict[str, tuple[int, int]] = {}

    def measured(node: Node) -> tuple[int, int]:
        """Product of counts, and how many repetitions stand in each other."""
        if isinstance(node, Reference):
            if node.name not in products:
                products[node.name] = 1, 0  # for rules that contain themselves
                products[node.name] = measured(grammar.rules[node.name])
            return products[node.name]
        product, depth = max((measured(part) for part in children(node)), default=(1, 0))
        count = max(node.least, node.most or 0) if isinstance(node, RuleRepeat) else 1
        return (product * count, depth + 1) if count > 1 else (product, depth)

    return max((product for product, depth in map(measured, grammar.rules.values()) if depth > 1), default=1)


def _last_line(error: Exception) -> str:
    """The engine's message, without its time stamp and source file."""
    text = str(error).strip()
    return text.partition(".cc:")[2].partition(": ")[2].strip()[:300] or text[:300]


class XGrammarGrammar:
    """A grammar that the engine has accepted, and its rules if the grammar was read from rules."""

    def __init__(self, grammar: Any, rules: ContextFreeGrammar | None = None) -> None:
        self.grammar = grammar
        self.rules = rules

    def bind(self, vocabulary: Vocabulary, vocab_size: int) -> _XGrammarConstraint:
        """The grammar for a vocabulary and a width of logits."""
        return _XGrammarConstraint(self.grammar, vocabulary, vocab_size, self.rules)


@kept_with_vocabulary
def _compiler(vocabulary: Vocabulary, vocab_size: int) -> tuple[Any, Any]:
    """The engine's compiler for a vocabulary, and the engine's information about the vocabulary."""
    # Ids without text are special to the engine, so they are never allowed.
    information = xgrammar.TokenizerInfo(
        list(vocabulary.token_bytes[:vocab_size]),
        vocab_size=vocab_size,
        stop_token_ids=[token for token in vocabulary.eos if token < vocab_size],
    )
    return xgrammar.GrammarCompiler(information, max_threads=_THREADS, cache_enabled=False), information


def _compiled(grammar: Any, vocabulary: Vocabulary, vocab_size: int, seconds: float) -> Any:
    """The compiled grammar; compiled in this process if surely fast, else in another process with a time limit."""
    compiler, information = _compiler(vocabulary, vocab_size)
    if estimated_seconds(str(grammar), vocab_size) <= seconds:
        return compiler.compile_grammar(grammar)
    found = compile_beside(grammar.serialize_json(), information.serialize_json(), seconds)
    return xgrammar.CompiledGrammar.deserialize_json(found, information)


def estimated_seconds(text: str, vocab_size: int) -> float:
    """An upper bound of the time to compile a grammar, from the grammar's text as the engine prints it.

    The factors were measured on the slowest grammars that were found: repeated sets, and sets that overlap.

    Example:
        >>> short, long = "root ::= ([a-z]{1, 100})", "root ::= ([a-z]{1, 900})"
        >>> estimated_seconds(short, 50_000) < 1.0 < 9.0 < estimated_seconds(long, 50_000)
        True
    """
    positions = sum(len(found) - 2 if found[0] == '"' else 1 for found in _CHARACTERS.findall(text))
    for count in _COUNTS.findall(text):
        positions *= max(int(number) for number in count if number)
        if positions > _MOST_POSITIONS:
            return math.inf
    return _PER_TOKEN * vocab_size * positions + _PER_PAIR * positions**2


class _XGrammarConstraint(MatcherConstraint):
    def __init__(self, grammar: Any, vocabulary: Vocabulary, vocab_size: int, rules: ContextFreeGrammar | None) -> None:
        self._grammar = grammar
        super().__init__(vocabulary, vocab_size, f"{_NAME}: {grammar}", rules, "" if rules else _SCHEMA)

    def start_threads(self) -> Any:
        return xgrammar.BatchGrammarMatcher(_THREADS)

    def first_matcher(self) -> Any:
        tracker = BudgetTracker(None, "the grammar")
        tracker.check_time()
        return xgrammar.GrammarMatcher(_compiled(self._grammar, self.vocabulary, self.vocab_size, tracker.remaining))

    def accepting(self, matcher: Any) -> bool:
        return bool(matcher.is_completed())

    def copied(self, matcher: Any) -> Any:
        return matcher.fork()

    def read(self, matcher: Any, tokens: Sequence[int]) -> bool:
        return all(map(matcher.accept_token, tokens))

    def go_back(self, matcher: Any, count: int) -> bool:
        matcher.rollback(count)
        return True

    def fill(self, work: list[tuple[Any, int]], buffer: NDArray[np.int32]) -> list[int]:
        if len(work) == 1:
            work[0][0].fill_next_token_bitmask(buffer, work[0][1])
        else:
            matchers, rows = zip(*work, strict=True)
            self.threads.batch_fill_next_token_bitmask(list(matchers), buffer, list(rows))
        return []
