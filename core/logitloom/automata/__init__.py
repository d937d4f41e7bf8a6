"""Regular constraints on text as automata over tokens. The package can be used alone.

Compile a pattern and list the tokens that may come next::

    dfa = compile_pattern(r"[0-9]{4}-[0-9]{2}")          # bytes
    automaton = TokenAutomaton(dfa, vocabulary)           # tokens
    allowed = automaton.row(automaton.start())
    state = automaton.advance(automaton.start(), token)

Automata can be combined (:func:`union`, :func:`intersection`, :func:`complement`, :func:`concatenation`, ...) before
they are lifted to tokens. :func:`compile_automaton` also takes patterns whose whole automaton would be too large: it
returns a :class:`Dfa` or a :class:`LazyDfa`, and :func:`logitloom.constraints.lift` lifts either to tokens. The code
is NumPy and plain Python, and every compilation has a :class:`Budget`.
"""

from __future__ import annotations

from logitloom.automata.algebra import (
    any_bytes,
    any_text,
    choice,
    complement,
    concatenation,
    difference,
    intersection,
    literal,
    nothing,
    optional,
    repeat,
    star,
    union,
)
from logitloom.automata.cache import AutomatonCache, default_cache
from logitloom.automata.catalogues.catalogue import Catalogue
from logitloom.automata.catalogues.catalogue_constraints import catalogue_constraint
from logitloom.automata.compilation import compile_automaton, compile_pattern, compile_tree, compile_tree_automaton
from logitloom.automata.compilation_budget import DEFAULT_BUDGET, Budget, BudgetTracker, at_most, check_deadline
from logitloom.automata.deterministic.aho_corasick import AhoCorasick, Match, StopAutomaton
from logitloom.automata.deterministic.dense import DenseAutomaton
from logitloom.automata.deterministic.dfa import DEAD, Dfa
from logitloom.automata.deterministic.lazy_dfa import LazyDfa
from logitloom.automata.deterministic.lazy_product import IntersectedAutomaton, UnionAutomaton, common_classes
from logitloom.automata.deterministic.minimize import minimize
from logitloom.automata.deterministic.phrases import texts_without
from logitloom.automata.lift.token_automaton import TokenAutomaton
from logitloom.automata.patterns.position_completions import BYTE_ORDER
from logitloom.automata.store.compiled_store import compiled_in, stored_automaton, stored_values

__all__ = [
    "BYTE_ORDER",
    "DEAD",
    "DEFAULT_BUDGET",
    "AhoCorasick",
    "AutomatonCache",
    "Budget",
    "BudgetTracker",
    "Catalogue",
    "DenseAutomaton",
    "Dfa",
    "IntersectedAutomaton",
    "LazyDfa",
    "Match",
    "StopAutomaton",
    "TokenAutomaton",
    "UnionAutomaton",
    "any_bytes",
    "any_text",
    "at_most",
    "catalogue_constraint",
    "check_deadline",
    "choice",
    "common_classes",
    "compile_automaton",
    "compile_pattern",
    "compile_tree",
    "compile_tree_automaton",
    "compiled_in",
    "complement",
    "concatenation",
    "default_cache",
    "difference",
    "intersection",
    "literal",
    "minimize",
    "nothing",
    "optional",
    "repeat",
    "star",
    "stored_automaton",
    "stored_values",
    "texts_without",
    "union",
]
