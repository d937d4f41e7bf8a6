"""The contract of a grammar engine: the engine reads a schema or a grammar, or refuses it, and gives a constraint.

An engine plug-in (entry-point group ``logitloom.grammars``) is a class that is an :class:`Engine`. The result of
reading is a :class:`CheckedGrammar`. Bound to a vocabulary once, it becomes a :class:`.constraints.Constraint` like any
other.
"""

from __future__ import annotations

from typing import Any, Protocol

from logitloom import Vocabulary
from logitloom.constraints import Constraint
from logitloom.errors import InvalidSignature
from logitloom.host.registry import load_plugin
from logitloom_plugins.grammars.context_free import ContextFreeGrammar as ContextFree

__all__ = ["CheckedGrammar", "Engine", "load_engine"]


class CheckedGrammar(Protocol):
    """A grammar that an engine has checked."""

    def bind(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """The constraint that the grammar is over a vocabulary, for a width of logits.

        The states of a constraint are values; :class:`MatcherConstraint` makes such states for engines whose matchers
        can only be copied, read tokens and go back.
        """
        ...


class Engine(Protocol):
    """The methods of an engine plug-in; the engine refuses every schema or grammar that it cannot enforce exactly."""

    def json_schema(self, schema: Any, *, whitespace: str, formats: bool, strict: bool) -> CheckedGrammar:
        """The grammar of a JSON Schema.

        Args:
            schema: a JSON value.
            whitespace: ``json_dumps``, ``flexible``, ``compact`` or ``one_space``.
            formats: whether ``format`` is enforced.
            strict: refuse what the engine does not enforce, rather than warn.

        Raises:
            UnsupportedSchema: saying what the engine cannot enforce.
        """
        ...

    def lark(self, text: str, *, start: str, max_items: int) -> CheckedGrammar:
        """The grammar that a Lark text describes, in which the longest match decides where a terminal ends.

        Args:
            text: the grammar.
            start: the rule that a whole text follows.
            max_items: most items of the parser in one step.

        Raises:
            UnsupportedGrammar: with line and column, or saying that the engine does not read Lark.
        """
        ...

    def context_free(self, grammar: ContextFree, *, max_items: int) -> CheckedGrammar:
        """The grammar that rules over characters describe, whatever notation they were read from.

        Raises:
            UnsupportedGrammar: saying what the engine cannot do.
        """
        ...


def load_engine(name: str) -> Engine:
    """The engine plug-in of a name.

    Raises:
        UnknownPlugin: if there is none.
        PluginImportError: if it cannot be imported.
        InvalidSignature: if it lacks a method of :class:`Engine`.
    """
    engine: Engine = load_plugin("grammars", name)()
    for method in ("json_schema", "lark", "context_free"):
        if not callable(getattr(engine, method, None)):
            raise InvalidSignature(
                f"The grammar engine {name!r} has no method {method!r}. Add the methods of "
                f"logitloom_plugins.grammars.engine.Engine; one that cannot do its work raises UnsupportedGrammar."
            )
    return engine
