"""Compilation of a pattern to an automaton over bytes: the phases in order, with one budget for all of them."""

from __future__ import annotations

import re
from typing import Final

from logitloom.automata.compilation_budget import Budget, BudgetTracker
from logitloom.automata.deterministic.alphabet import Alphabet, alphabet
from logitloom.automata.deterministic.determinize import determinize
from logitloom.automata.deterministic.dfa import Dfa
from logitloom.automata.deterministic.finite_language import choice
from logitloom.automata.deterministic.lazy_dfa import LazyDfa
from logitloom.automata.deterministic.minimize import minimize
from logitloom.automata.deterministic.subsets import ContextSubsets, Subsets
from logitloom.automata.patterns.anchors import without_decided_anchors
from logitloom.automata.patterns.boundaries import kind_sets
from logitloom.automata.patterns.context_nfa import context_automaton, repeated_atomic_parts, without_boundaries
from logitloom.automata.patterns.nfa import position_automaton
from logitloom.automata.patterns.pattern import (
    LOOK_AROUND,
    Atomic,
    Boundary,
    Characters,
    LookAround,
    Node,
    nodes,
    parse_pattern,
    shortened,
    too_deep,
    unsupported,
)
from logitloom.automata.store.compiled_store import stored_automaton
from logitloom.errors import BudgetExceeded, UnsupportedPattern

__all__ = ["compile_automaton", "compile_pattern", "compile_tree", "compile_tree_automaton"]

# A pattern without any of these characters is a list of texts separated by bars. Surrogates have no encoding.
_NO_PLAIN_TEXT: Final = re.compile(r"[\\.^$*+?{}\[\]()\ud800-\udfff]")

#: Limits up to which an automaton is built whole: states over characters, these states times the positions of the
#: pattern, the sizes of these states (sets of positions) together, and states over bytes. Whether the automaton is
#: whole or lazy must depend on the pattern alone, because a state of one kind has no meaning for the other kind.
_WHOLE_STATES: Final = 2000
_WHOLE_WORK: Final = 1 << 22
_WHOLE_HELD: Final = 1 << 13
_WHOLE_BYTE_STATES: Final = 1 << 16
#: Limits for patterns with counted repeats: positions, and states if a character can be read at several positions. If
#: each character determines its position there are about as many states as positions, otherwise often far more, and
#: trying takes longer than all else.
_WHOLE_COUNTED: Final = 256
_WHOLE_AMBIGUOUS: Final = 48


def compile_pattern(pattern: str, flags: int = 0, *, budget: Budget | None = None, minimal: bool = False) -> Dfa:
    """The automaton of the texts that ``re.fullmatch(pattern, text, flags)`` matches.

    The automaton reads the UTF-8 bytes of a text. UTF-8 cannot encode surrogates, so texts with surrogates do not
    match.

    Args:
        pattern: a regular expression in the syntax of Python's ``re``.
        flags: flags of ``re``.
        budget: the limits of the compilation; ``None`` for the default.
        minimal: whether to merge equivalent states and byte classes, which takes additional time.

    Returns:
        A trim automaton. For most patterns it is minimal or nearly minimal.

    Raises:
        UnsupportedPattern: if the pattern is invalid or not regular; the message names the construct and its position.
        BudgetExceeded: if the compilation takes more states, bytes or seconds than the budget allows.

    Example:
        >>> compile_pattern(r"[0-9]{4}-[0-9]{2}").fullmatch("2024-05")
        True
    """
    tracker = _tracker(pattern, budget)
    return stored_automaton(
        lambda: ("whole", pattern, int(flags), minimal, *_limits(tracker)),
        lambda: _of_pattern(pattern, flags, tracker, minimal),
    )


def _of_pattern(pattern: str, flags: int, tracker: BudgetTracker, minimal: bool) -> Dfa:
    if (found := _listed(pattern, flags, tracker, minimal)) is not None:
        return found
    return _whole(_subsets(parse_pattern(pattern, flags, tracker), pattern, flags, tracker), tracker, minimal)


def compile_tree(tree: Node, pattern: str, *, budget: Budget | None = None) -> Dfa:
    """The automaton of a pattern that was parsed by :func:`logitloom.automata.patterns.pattern.parse_pattern`.

    Args:
        tree: the parsed pattern; the caller may have modified it.
        pattern: the pattern as messages quote it.
        budget: the limits of the compilation; ``None`` for the default.

    Raises:
        UnsupportedPattern: if the tree has look-around, or an atomic part that changes the language.
        BudgetExceeded: if the compilation takes more states, bytes or seconds than the budget allows.

    Example:
        >>> from logitloom.automata.patterns.pattern import Repeat, parse_pattern
        >>> digits = parse_pattern("[0-9]")
        >>> compile_tree(Repeat(digits, 4, 4, True), "[0-9]{4}").fullmatch("2024")
        True
    """
    tracker = _tracker(pattern, budget)
    return stored_automaton(
        lambda: ("tree", *_described(tree), *_limits(tracker)),
        lambda: _whole(_subsets(tree, pattern, 0, tracker), tracker, minimal=False),
    )


def compile_tree_automaton(tree: Node, pattern: str, *, budget: Budget | None = None) -> Dfa | LazyDfa:
    """The automaton of a tree, as :func:`compile_automaton` returns one for a pattern.

    Args:
        tree, pattern, budget: as for :func:`compile_tree`.

    Raises:
        UnsupportedPattern, BudgetExceeded: as :func:`compile_tree`.

    Example:
        >>> from logitloom.automata.patterns.pattern import Repeat, parse_pattern
        >>> automaton = compile_tree_automaton(Repeat(parse_pattern("a.{9}|b"), 0, None, True), "a list")
        >>> automaton.fullmatch("bb"), automaton.fullmatch("ba12345678"), automaton.fullmatch("ba123456789")
        (True, False, True)
    """
    tracker = _tracker(pattern, budget)
    return stored_automaton(
        lambda: ("cheap tree", _WHOLE_AMBIGUOUS, _WHOLE_HELD, *_described(tree), *_limits(tracker)),
        lambda: _cheap(_subsets(tree, pattern, 0, tracker), tracker),
    )


def _described(tree: Node) -> tuple[Node, list[object]]:
    """Values that tell trees apart: a tree's ``repr`` leaves out the characters above ASCII of its sets."""
    return tree, [c.chars.high.ranges for c in nodes(tree, Characters)]


def _whole(found: tuple[Subsets | ContextSubsets, Alphabet], tracker: BudgetTracker, minimal: bool) -> Dfa:
    subsets, letters = found
    table = determinize(subsets, tracker)
    assert table is not None  # without a limit, too many states raise BudgetExceeded
    dfa = letters.expand(*table, tracker)
    return minimize(dfa, tracker=tracker) if minimal else dfa


def compile_automaton(pattern: str, flags: int = 0, *, budget: Budget | None = None) -> Dfa | LazyDfa:
    """The automaton of a pattern: a :class:`Dfa` if the whole table is cheap to build, else a :class:`LazyDfa`.

    The choice depends on the pattern, the flags and the budget's states alone.

    Args:
        pattern: a regular expression in the syntax of Python's ``re``.
        flags: flags of ``re``.
        budget: the limits of the compilation; ``None`` for the default. ``states`` limits the positions of the pattern
            (its characters after counted repeats are expanded), and the states of a :class:`Dfa`.

    Raises:
        UnsupportedPattern: if the pattern is invalid or not regular; the message names the construct and its position.
        BudgetExceeded: if the pattern has more positions than the budget has states, or takes more bytes or seconds.

    Example:
        >>> compile_automaton(r"[0-9]{4}-[0-9]{2}")
        Dfa(states=8, classes=4, table_bytes=392)
        >>> compile_automaton(r".{0,100} Darwin/\\d.{0,100}\\(Mac.{0,100}x")
        LazyDfa(pattern '.{0,100} Darwin/\\d.{0,100}\\(Mac.{0,100}x')
    """
    tracker = _tracker(pattern, budget)
    return stored_automaton(
        lambda: ("cheap", _WHOLE_AMBIGUOUS, _WHOLE_HELD, pattern, int(flags), *_limits(tracker)),
        lambda: _whole_where_cheap(pattern, flags, tracker),
    )


def _limits(tracker: BudgetTracker) -> tuple[int, int]:
    return tracker.budget.states, tracker.budget.table_bytes


def _whole_where_cheap(pattern: str, flags: int, tracker: BudgetTracker) -> Dfa | LazyDfa:
    if (found := _listed(pattern, flags, tracker, minimal=False)) is not None:
        return found
    return _cheap(_subsets(parse_pattern(pattern, flags, tracker), pattern, flags, tracker), tracker)


def _cheap(found: tuple[Subsets | ContextSubsets, Alphabet], tracker: BudgetTracker) -> Dfa | LazyDfa:
    subsets, letters = found
    positions = subsets.count
    limit = min(_WHOLE_STATES, _WHOLE_WORK // positions, tracker.budget.states)
    if subsets.nfa.order.exist and not (positions <= _WHOLE_COUNTED and subsets.is_deterministic):
        limit = 0 if positions > _WHOLE_COUNTED else min(limit, _WHOLE_AMBIGUOUS)
    table = None if limit < positions // 2 else determinize(subsets, tracker, limit, _WHOLE_HELD)
    if table is not None:
        try:
            return letters.expand(*table, tracker.narrowed(_WHOLE_BYTE_STATES))
        except BudgetExceeded:
            tracker.check_time()
    return LazyDfa(subsets, letters, tracker.subject)


def _tracker(pattern: str, budget: Budget | None) -> BudgetTracker:
    return BudgetTracker(budget, f"pattern {shortened(pattern)}" if isinstance(pattern, str) else "a pattern")


def _listed(pattern: str, flags: int, tracker: BudgetTracker, minimal: bool) -> Dfa | None:
    """The automaton of a pattern that is a list of texts separated by bars; ``None`` for other patterns."""
    if not isinstance(pattern, str) or flags != 0 or _NO_PLAIN_TEXT.search(pattern):
        return None
    # Long lists of texts are common, and the standard library's parser is slow on them.
    tracker.check_pattern_length(len(pattern))
    return choice(pattern.split("|"), tracker=tracker, minimal=minimal)


def _subsets(tree: Node, pattern: str, flags: int, tracker: BudgetTracker) -> tuple[Subsets | ContextSubsets, Alphabet]:
    """The subset automaton of a pattern, and its alphabet."""

    def refuse(part: Atomic) -> UnsupportedPattern:
        return unsupported(pattern, part.name, part.ordinal, bool(flags & 64))

    found: set[type] = set(map(type, nodes(tree, object)))
    if LookAround in found:
        raise unsupported(pattern, LOOK_AROUND, next(nodes(tree, LookAround)).ordinal)
    try:
        if Boundary in found:
            tree = without_decided_anchors(tree)
        if Boundary not in found or not any(nodes(tree, Boundary)):
            nfa = position_automaton(tree, tracker, refuse)
            letters = alphabet(nfa.sets, tracker)
            return Subsets(nfa, letters.members, letters.classes), letters
        for part in repeated_atomic_parts(tree):
            raise refuse(part)
        if any(nodes(tree, Atomic)):
            position_automaton(without_boundaries(tree), tracker, refuse)  # checks the atomic parts
        context = context_automaton(tree, tracker)
    except RecursionError as error:
        raise too_deep(tracker) from error
    kinds = kind_sets()
    letters = alphabet([*context.chars, *kinds], tracker)
    kind_of = [0] * letters.classes
    for kind, chars in enumerate(kinds):
        for c in letters.members[chars]:
            kind_of[c] = kind
    return ContextSubsets(context, letters.members, kind_of, letters.classes), letters
