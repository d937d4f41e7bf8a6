"""Pattern text to byte automaton: the phases in order, one budget for all."""

from __future__ import annotations

import re
from typing import Final

from logitloom.automata.alphabet import alphabet
from logitloom.automata.boundaries import kind_sets
from logitloom.automata.budget import Budget, Meter
from logitloom.automata.choice import choice
from logitloom.automata.context_nfa import context_automaton, repeated_atomic_parts, without_boundaries
from logitloom.automata.determinize import ClassTable, determinize, determinize_in_context, without_dead_ends
from logitloom.automata.dfa import Dfa
from logitloom.automata.minimize import minimize
from logitloom.automata.nfa import has_boundaries, position_automaton
from logitloom.automata.pattern import Atomic, Node, parse_pattern, shortened, too_deep, unsupported
from logitloom.automata.plain_syntax import plain_tree
from logitloom.errors import UnsupportedPattern
from logitloom.masks.kernels import host_kernels

__all__ = ["compile_pattern"]

# What makes a pattern more than texts with bars between them; surrogates have no encoding.
_NO_PLAIN_TEXT: Final = re.compile(r"[\\.^$*+?{}\[\]()\ud800-\udfff]")


def compile_pattern(pattern: str, flags: int = 0, *, budget: Budget | None = None, minimal: bool = False) -> Dfa:
    """The automaton of the texts that ``re.fullmatch(pattern, text, flags)`` matches.

    It reads the UTF-8 bytes of a text. Texts with surrogates have no UTF-8 and are matched by no automaton.

    Args:
        pattern: a regular expression in the syntax of Python's ``re``.
        flags: flags of ``re``.
        budget: what the compilation may cost; ``None`` for the default.
        minimal: whether to merge equivalent states and byte classes; off, the automaton is made sooner.

    Returns:
        A trim automaton. It has at most a few states more than the minimal one for most patterns.

    Raises:
        UnsupportedPattern: if the pattern is invalid or not regular; names construct and position.
        BudgetExceeded: if it takes more states, bytes or seconds than the budget allows.

    Example:
        >>> compile_pattern(r"[0-9]{4}-[0-9]{2}").fullmatch("2024-05")
        True
    """
    host_kernels()  # the first time this may take seconds, which are none of the budget's
    meter = Meter(budget, f"pattern {shortened(pattern)}" if isinstance(pattern, str) else "a pattern")
    tree = None
    if isinstance(pattern, str):
        meter.check_pattern_length(len(pattern))
        if flags == 0 and not _NO_PLAIN_TEXT.search(pattern):
            # Long lists of texts are common, and parsers are slow on them.
            return choice(pattern.split("|"), meter=meter, minimal=minimal)
        tree = plain_tree(pattern, flags)
    if tree is None:
        tree = parse_pattern(pattern, flags, meter)

    def refuse(part: Atomic) -> UnsupportedPattern:
        return unsupported(pattern, part.name, part.ordinal, bool(flags & 64))

    try:
        if has_boundaries(tree):
            for part in repeated_atomic_parts(tree):
                raise refuse(part)
            position_automaton(without_boundaries(tree), meter, refuse)
            dfa = _with_boundaries(tree, meter)
        else:
            nfa = position_automaton(tree, meter, refuse)
            letters = alphabet(nfa.chars)
            table = determinize(nfa, letters.members, letters.classes, meter)
            if not all(nfa.follow[1:]) or not nfa.first:
                table = without_dead_ends(table)
            dfa = letters.lower(*table, meter)
    except RecursionError as error:
        raise too_deep(meter) from error
    return minimize(dfa, meter=meter) if minimal else dfa


def _with_boundaries(tree: Node, meter: Meter) -> Dfa:
    nfa = context_automaton(tree, meter)
    kinds = kind_sets()
    letters = alphabet([*nfa.chars, *kinds])
    kind_of = [0] * letters.classes
    for kind, chars in enumerate(kinds):
        for c in letters.members[chars]:
            kind_of[c] = kind
    table: ClassTable = determinize_in_context(nfa, letters.members, kind_of, letters.classes, meter)
    return letters.lower(*table, meter)
