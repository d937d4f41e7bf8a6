"""JSON: the text is a JSON value that satisfies a schema."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from logitloom import Vocabulary, option
from logitloom.automata import Budget, BudgetTracker, at_most
from logitloom.constraints import Constraint, LimitedProcessor, lift
from logitloom.errors import BudgetExceeded, LogitloomError, PluginImportError, UnsupportedPattern, UnsupportedSchema
from logitloom.host.fingerprint import fingerprint_of
from logitloom.host.options import values
from logitloom_plugins.grammars.engine import CheckedGrammar, load_engine
from logitloom_plugins.json_schema.folds.contradictions import contradiction
from logitloom_plugins.json_schema.folds.machine import STATE_BYTES, Machine
from logitloom_plugins.json_schema.folds.schema_automaton import SchemaAutomaton
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.grammar.layout import POLICIES, Whitespace
from logitloom_plugins.json_schema.schema.schema_document import asserting_only
from logitloom_plugins.json_schema.tokens.schema_constraint import SchemaConstraint, can_write
from logitloom_plugins.json_text.json_reader import JsonReader
from logitloom_plugins.schema_sources.inputs import check_keywords
from logitloom_plugins.schema_sources.sources import plain_schema, schema_of

__all__ = ["Json"]

#: Messages stay shorter than this.
_LONGEST_MESSAGE: Final = 500


@dataclass(frozen=True)
class Json(LimitedProcessor):
    """Allow only tokens with which the text can still become a JSON value that satisfies a schema.

    Three engines can do it. ``table`` is an automaton made for the schema, exact or refused: every complete text is
    valid, and every valid instance can be written (members in schema order). ``llguidance`` and ``xgrammar`` are those
    libraries. ``auto`` takes the automaton; for schemas that exceed the automaton's budget, or have keywords that it
    does not enforce, ``auto`` takes ``llguidance``. Without a schema, any JSON value is allowed.

    Example:
        >>> from logitloom import processors
        >>> words = Vocabulary([b"", b"1", b"2", b"[", b"]", b","], eos=[0])
        >>> schema = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1, "maxItems": 2}
        >>> chain = processors.load(("json", {"schema": schema, "whitespace": "compact"}), tokenizer=words)
        >>> constraint = chain["json"].constraint(words, 6)
        >>> constraint.allowed(constraint.start()).ids.tolist()
        [3]

    References:
        JSON Schema, drafts 4 to 2020-12; https://json-schema.org/specification.
    """

    compilable = False

    schema: Any = option(
        None, help="A schema (dict, JSON text, path), an OpenAI response_format, or a class (pydantic, dataclass, ...)."
    )
    engine: str = option(
        "auto",
        help="The engine; 'auto' compiles to tables, and uses a grammar engine where that cannot be exact.",
        choices=("auto", "table", "llguidance", "xgrammar"),
    )
    whitespace: str = option(
        "json_dumps",
        help="Whitespace between values: 'json_dumps' as that writes it (compact, a space after commas and colons, or "
        "indented by 2 or 4, in a whole text alike), 'compact' none, 'one_space' one space after commas and colons, "
        "'flexible' any.",
        choices=POLICIES,
    )
    max_whitespace: int = option(
        40, help="Most whitespace between two values with 'flexible'.", ge=0, unit="characters"
    )
    escapes: str = option(
        "any",
        help="Escapes in strings: 'any' allows all, 'minimal' only those that JSON requires, 'ascii' requires "
        "them for characters outside ASCII.",
        choices=("any", "minimal", "ascii"),
    )
    integers: str = option(
        "plain",
        help="How integers are written: 'plain' without fraction and exponent, 'any' in each form whose value is whole "
        "(2023.0), as JSON Schema reads them.",
        choices=("plain", "any"),
    )
    formats: str = option(
        "auto",
        help="Whether the keyword format is enforced: 'auto' as the draft says, 'assert' always, 'annotate' never.",
        choices=("auto", "assert", "annotate"),
    )
    additional_properties: bool = option(
        True, help="Value of additionalProperties where a schema has properties and does not say it."
    )
    strict: bool | None = option(
        None,
        help="Whether keywords that cannot be enforced, and unknown ones, are refused; if not, a warning names "
        "them. Default: only those that cannot be enforced are refused.",
    )
    max_states: int = option(100_000, help="Most states of the automaton.", ge=1, unit="states")
    max_seconds: float = option(10.0, help="Most processor time for the compilation.", gt=0, unit="seconds")

    def __post_init__(self) -> None:
        super().__post_init__()
        # Whatever is wrong with the schema is said now, not when decoding starts.
        table, grammar = self._compiled()
        if table is not None and not table.satisfiable:
            raise _unsatisfiable(table)
        object.__setattr__(self, "_table_automaton", table)
        object.__setattr__(self, "_grammar", grammar)

    @staticmethod
    def plain_option(name: str, value: Any) -> Any:
        """For documents of chains: a schema that is a class, or contains ``None``, is written as its JSON text."""
        return plain_schema(value) if name == "schema" else value

    def value_reader(self) -> JsonReader:
        """A reader of the value in the text so far; see :class:`logitloom.generation.Partial`."""
        return JsonReader()

    @property
    def machine(self) -> Machine | None:
        """The visited part of the automaton over bytes; ``None`` if the schema runs on another engine."""
        table: SchemaAutomaton | None = self.__dict__["_table_automaton"]
        return None if table is None else table.machine

    @property
    def runs_on(self) -> str:
        """The engine that was taken: ``table``, ``llguidance`` or ``xgrammar``."""
        if self.machine is not None:
            return "table"
        return "xgrammar" if self.engine == "xgrammar" else "llguidance"

    def sizes(self, most_seconds: float | None = None) -> dict[str, Any]:
        """States and bytes of the automaton with every state made that can be within the budget; else nothing.

        Args:
            most_seconds: seconds of processor time after which no more states are made; None: ``max_seconds``.

        ``complete`` says whether every state was made, so that no text can reach a state beyond the budget; if not,
        ``limit`` names the limit that was exceeded. Some schemas have infinitely many states, such as schemas that
        count members.
        """
        if self.machine is None:
            return {}
        most = self.max_seconds if most_seconds is None else min(most_seconds, self.max_seconds)
        machine, begin = self.machine.fresh(), time.thread_time()
        limit = None
        try:
            for number, _ in enumerate(machine.states):  # grows on the way
                with machine.lock:
                    machine.codes.every_code(number)
                if time.thread_time() - begin > most:
                    limit = f"{most:g} s of processor time"
                    break
        except BudgetExceeded as error:
            limit = str(error)
        found = {
            "states": len(machine.states),
            "table_bytes": STATE_BYTES * len(machine.states),
            "complete": limit is None,
        }
        return found if limit is None else {**found, "limit": limit}

    @property
    def fingerprint(self) -> str:
        """The same for equal options; a schema counts as its JSON document, whatever the document's source."""
        return fingerprint_of({**values(self), "schema": self.__dict__["_document"]}, "options of 'json'")

    def _compiled(self) -> tuple[SchemaAutomaton | None, CheckedGrammar | None]:
        """The automaton made for the schema, or the grammar of an engine."""
        document = schema_of(self.schema)
        check_keywords(document, error=bool(self.strict))
        object.__setattr__(self, "_document", document)
        if self.engine in ("llguidance", "xgrammar"):
            with at_most(self.max_seconds):
                return None, self._by_library(self.engine, document)
        # Processor time of all engines that are tried.
        clock = BudgetTracker(Budget(seconds=self.max_seconds), "the schema")
        try:
            return self._table(document, self.strict is not False or self.engine == "auto"), None
        except (BudgetExceeded, UnsupportedSchema, UnsupportedPattern) as error:
            # A malformed schema names no keywords that another engine might enforce.
            if self.engine == "table" or (isinstance(error, UnsupportedSchema) and not error.problems):
                raise
            # The engine looks at the rest of a listed text in each step.
            if clock.remaining <= 0 or _longest_listed(document) > self.max_states:
                raise
            try:
                with clock.for_all():
                    return None, self._by_library("llguidance", document)
            except LogitloomError as other:
                if self.strict is False and isinstance(error, UnsupportedSchema):
                    return self._table(document, False), None
                hinted = f"{error} The engine llguidance might run it: pip install 'logitloom[llguidance]'."
                if isinstance(other, PluginImportError) and len(hinted) < _LONGEST_MESSAGE:
                    error.args = (hinted,)
                raise error from None

    def _table(self, document: Any, strict: bool) -> SchemaAutomaton:
        whitespace = Whitespace(self.whitespace, self.max_whitespace)
        options = SchemaOptions(
            whitespace, self.escapes, self.formats, self.additional_properties, strict, self.integers
        )
        budget = Budget(states=self.max_states, seconds=self.max_seconds)
        return SchemaAutomaton(compile_schema(document, options, budget))

    def _by_library(self, name: str, document: Any) -> CheckedGrammar:
        unlike = [
            f"{option}={value!r}"
            for option, value, only in (
                ("escapes", self.escapes, "any"),
                ("integers", self.integers, "plain"),
                ("additional_properties", self.additional_properties, True),
            )
            if value != only
        ]
        if unlike:
            raise UnsupportedSchema(
                f"The engine {name} has no options {', '.join(unlike)}. Use the engine 'table', or the default."
            )
        strict = self.strict is not False or self.engine == "auto"
        engine = load_engine(name)
        # Every format that is left is an assertion.
        asserted = asserting_only(document, self.formats)
        return engine.json_schema(asserted, whitespace=self.whitespace, formats=True, strict=strict)

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """The automaton, or the engine's grammar, over the tokens of a vocabulary.

        Raises:
            VocabularyError: if the tokens cannot write any value.
        """
        table: SchemaAutomaton | None = self.__dict__["_table_automaton"]
        if table is None:
            with at_most(self.max_seconds):
                bound: Constraint = self.__dict__["_grammar"].bind(vocabulary, vocab_size)
            return bound
        if not can_write(self.__dict__["_document"], vocabulary):
            # A text may then reach a state that bytes can leave and tokens cannot; the general walk looks ahead.
            return lift(table, vocabulary, vocab_size)
        return SchemaConstraint(table, vocabulary, vocab_size)


def _unsatisfiable(table: SchemaAutomaton) -> UnsupportedSchema:
    place, is_endless = contradiction(table.machine)
    why = f"none satisfies the schema at {place:.200}. Correct the keywords that contradict each other there"
    if is_endless:
        why = f"each value of the schema at {place:.200} contains another one. Make a member on the way optional"
    return UnsupportedSchema(f"No JSON value satisfies the schema of 'json', because {why}.")


def _longest_listed(document: Any) -> int:
    """The number of characters of the longest text in ``const`` and ``enum``."""
    longest, waiting = 0, [(document, False)]
    while waiting:
        value, listed = waiting.pop()
        if isinstance(value, dict):
            waiting += [(part, listed or key in ("const", "enum")) for key, part in value.items()]
        elif isinstance(value, list):
            waiting += [(part, listed) for part in value]
        elif isinstance(value, str) and listed:
            longest = max(longest, len(value))
    return longest
