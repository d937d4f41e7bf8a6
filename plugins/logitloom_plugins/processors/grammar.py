"""Grammar: the text follows a context-free grammar."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from logitloom import Vocabulary, option
from logitloom.automata import Budget, BudgetTracker, Dfa, LazyDfa, at_most, compile_tree_automaton
from logitloom.constraints import Constraint, LimitedProcessor, lift
from logitloom.errors import BudgetExceeded, OptionError, PluginImportError, UnsupportedGrammar
from logitloom.host.fingerprint import fingerprint_of
from logitloom.host.loading import text_or_file
from logitloom.host.options import values
from logitloom_plugins.grammars.context_free import ContextFreeGrammar as ContextFree
from logitloom_plugins.grammars.context_free import RuleChoice, naming_depth, pruned, unnested, written_out
from logitloom_plugins.grammars.engine import Engine, load_engine
from logitloom_plugins.grammars.gbnf import parse_gbnf
from logitloom_plugins.grammars.regular import regular_tree

__all__ = ["Grammar"]

_GBNF_RULE: Final = re.compile(r"^[ \t]*[A-Za-z0-9_-]+[ \t]*::=", re.MULTILINE)
_RULES: Final = re.compile(r"\n|:(?![\\/])")  # rather than a path, even one with a drive letter
_REMEDY: Final = "Give the path of a text file in UTF-8, or the grammar itself (it has rules, so it has a colon)."
#: Most characters of a grammar with every rule written out. llguidance refuses larger grammars, after a time that
#: grows with their depth.
_MOST_WRITTEN_OUT: Final = 1_000_000
#: Greatest depth of rules that name each other. From about 2,000 on llguidance runs out of stack, which ends the
#: process.
_DEEPEST: Final = 500
_MOST_LARK_RULES: Final = 1_500
_LARK_RULE: Final = re.compile(r"^[ \t]*[?!]?[a-z_]\w*[^:\n\"/]*:", re.MULTILINE)
_TOO_DEEP: Final = (
    f"The rules of the grammar name each other too deeply: at most {_DEEPEST} rules may wait for one that they name. "
    f"Name fewer in a row."
)
#: Characters of a regular grammar that becomes an automaton, where every rule is written out.
_MOST_POSITIONS: Final = 20_000
_SUFFIXES: Final = {".gbnf": "gbnf", ".lark": "lark"}


@dataclass(frozen=True)
class Grammar(LimitedProcessor):
    """Allow only tokens with which the text can still follow a context-free grammar, recursive ones included.

    ``gbnf`` is the notation of llama.cpp: rules over characters, ``root ::= "(" root ")" | ""``. ``lark`` is
    llguidance's dialect of Lark, in which a terminal takes the longest match. Whatever is wrong with a grammar is said
    when the processor is made, with line and column.

    Example:
        >>> from logitloom import processors
        >>> words = Vocabulary([b"", b"(", b")", b"()", b"x"], eos=[0])
        >>> brackets = 'root ::= "(" root ")" root | ""'
        >>> chain = processors.load(("grammar", {"grammar": brackets}), tokenizer=words)
        >>> made = chain["grammar"].constraint(words, 5)
        >>> made.allowed(made.start()).ids.tolist(), made.may_end(made.start())
        ([1, 3], True)

    References:
        llama.cpp, "GBNF guide". Lark documentation, "Grammar reference"; https://lark-parser.readthedocs.io.
    """

    own_engines: ClassVar[tuple[str, ...]] = ("table",)  # beside the plug-ins

    grammar: str | Path = option(help="The grammar: its text, or the path of a file with it.")
    syntax: str = option(
        "auto",
        help="The notation; 'auto' takes a grammar with ::= as GBNF, any other as Lark.",
        choices=("auto", "gbnf", "lark"),
    )
    start: str | None = option(None, help="The rule of the whole text; default: 'root' in GBNF, 'start' in Lark.")
    engine: str = option(
        "auto",
        help="'table' compiles regular GBNF to an automaton; others are engines, such as 'llguidance' and 'xgrammar'; "
        "'auto' takes the table where it can, else an installed engine.",
    )
    longest_tokens: bool = option(  # type: ignore[misc]
        False,
        help="Where one text must come next, allow only its longest token, so that loops need not ask the model "
        "for it.",
    )
    max_size: int = option(500_000, help="Most characters of the grammar.", ge=1, unit="characters")
    max_items: int = option(
        50_000, help="Most items of llguidance's parser in one step; the engine's other limits grow with it.", ge=1
    )
    max_seconds: float = option(
        10.0, help="Most time for compiling the grammar, the engine's own time not included.", gt=0, unit="seconds"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        text, suffix = text_or_file(self.grammar, "grammar", is_text=_has_rules, remedy=_REMEDY)
        if len(text) > self.max_size:
            raise OptionError(
                f"The grammar has {len(text)} characters, and the option max_size is {self.max_size}. Shorten the "
                f"grammar, or raise the option."
            )
        object.__setattr__(self, "_text", text)
        syntax = self.syntax
        if syntax == "auto":
            syntax = _SUFFIXES.get(suffix) or ("gbnf" if _GBNF_RULE.search(text) else "lark")
        try:
            with at_most(self.max_seconds):
                object.__setattr__(self, "_grammar", self._gbnf(text) if syntax == "gbnf" else self._lark(text))
        except RecursionError as error:
            raise BudgetExceeded(_TOO_DEEP) from error

    @property
    def compilable(self) -> bool:  # type: ignore[override]
        """Whether the grammar is an automaton that is built whole: only then its tables run in compiled loops."""
        table = self.__dict__["_grammar"]
        return isinstance(table, RegularGrammar) and isinstance(table.automaton, Dfa)

    @property
    def fingerprint(self) -> str:
        """The same for equal options; a file counts as the text that was read from it."""
        return fingerprint_of({**values(self), "grammar": self.__dict__["_text"]}, "options of 'grammar'")

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """The engine's grammar over the tokens of a vocabulary.

        Raises:
            UnsupportedGrammar: if no token can begin a text.
        """
        with at_most(self.max_seconds):
            bound: Constraint = self.__dict__["_grammar"].bind(vocabulary, vocab_size)
        start = bound.start()
        if not len(bound.allowed(start).listed(vocab_size)) and not bound.may_end(start):
            raise UnsupportedGrammar(
                f"No token of {vocabulary.name} can begin a text of the grammar, so nothing could be written. Look for "
                f"rules that never end, and for characters that the tokenizer does not have."
            )
        return bound

    def _gbnf(self, text: str) -> Any:
        start = "root" if self.start is None else self.start
        rules = pruned(parse_gbnf(text, start=start))
        if rules.rules[start] == RuleChoice(()):
            raise UnsupportedGrammar(
                f"No text follows the rule {start!r}: each of its alternatives is endless, or has an empty character "
                f"class. Give the rule an alternative that ends."
            )
        table = self._table(rules)
        if table is not None:
            return table
        rules = unnested(rules)
        if written_out(rules) > _MOST_WRITTEN_OUT:
            raise BudgetExceeded(
                f"The parts of the grammar that do not contain themselves have more than "
                f"{_MOST_WRITTEN_OUT} characters where every rule is written out. Write rules that name others twice "
                f"as repetitions."
            )
        if naming_depth(rules) > _DEEPEST:
            raise BudgetExceeded(_TOO_DEEP)
        engine = self._engine(("llguidance", "xgrammar"))
        return engine.context_free(rules, max_items=self.max_items)

    def _table(self, rules: ContextFree) -> RegularGrammar | None:
        """The grammar as an automaton; ``None`` if another engine has to read it."""
        if self.engine not in ("auto", "table"):
            return None
        clock = BudgetTracker(Budget(seconds=self.max_seconds), "the grammar")
        try:
            tree = regular_tree(rules, most=_MOST_POSITIONS)
            if tree is not None:
                automaton = compile_tree_automaton(tree, "the grammar", budget=Budget(seconds=self.max_seconds))
                return RegularGrammar(automaton)
        except (BudgetExceeded, RecursionError):
            if self.engine == "table" or clock.remaining <= 0:
                raise
            return None
        if self.engine == "auto":
            return None
        raise UnsupportedGrammar(
            "The engine 'table' compiles regular grammars: where rules contain each other, they stand last in each "
            "sequence, or first in each. Use engine='auto', which takes another engine for others."
        )

    def _lark(self, text: str) -> Any:
        if self.engine == "table":
            raise UnsupportedGrammar(
                "The engine 'table' reads GBNF; of Lark, a terminal takes the longest match, which llguidance's lexer "
                "does. Use engine='llguidance', or write the grammar as GBNF."
            )
        if len(_LARK_RULE.findall(text)) > _MOST_LARK_RULES:
            raise BudgetExceeded(
                f"The grammar has more than {_MOST_LARK_RULES} rules, and the engine may run out of stack where they "
                f"name each other in a row. Use fewer rules, or GBNF, of which the depth is known."
            )
        engine = self._engine(("llguidance",))
        return engine.lark(text, start="start" if self.start is None else self.start, max_items=self.max_items)

    def _engine(self, known: tuple[str, ...]) -> Engine:
        if self.engine != "auto":
            return load_engine(self.engine)
        try:
            return load_engine(known[0])
        except PluginImportError as missing:
            for name in known[1:]:
                with contextlib.suppress(PluginImportError):
                    return load_engine(name)
            raise missing from missing.__cause__


class RegularGrammar(NamedTuple):
    """A grammar as an automaton over bytes.

    Attributes:
        automaton: built whole where this is cheap, else lazy.
    """

    automaton: Dfa | LazyDfa

    def bind(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """The automaton over the tokens of a vocabulary."""
        return lift(self.automaton, vocabulary, vocab_size)


def _has_rules(text: str) -> bool:
    return _RULES.search(text) is not None
