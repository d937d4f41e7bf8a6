"""Operations on regular languages, which take automata and return an automaton.

A complement is taken within a universe. The default universe is all well-formed UTF-8, because a complement with
malformed encodings is of no use for text. :func:`any_bytes` is the universe of all byte strings.

Every operation returns a minimal automaton by default, so equal languages have equal fingerprints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import overload

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.compilation import compile_pattern
from logitloom.automata.compilation_budget import Budget, BudgetTracker
from logitloom.automata.deterministic.dense import DenseAutomaton
from logitloom.automata.deterministic.dfa import DEAD, Dfa
from logitloom.automata.deterministic.finite_language import choice, literal, nothing
from logitloom.automata.deterministic.lazy_product import IntersectedAutomaton, UnionAutomaton
from logitloom.automata.deterministic.minimize import minimize
from logitloom.automata.deterministic.product import product
from logitloom.contract import ByteAutomaton
from logitloom.errors import OptionError

__all__ = [
    "any_bytes",
    "any_text",
    "choice",
    "complement",
    "concatenation",
    "difference",
    "intersection",
    "literal",
    "nothing",
    "optional",
    "repeat",
    "star",
    "union",
]

Flags = NDArray[np.bool_]
#: A DFA with a whole table, or a lazy automaton, whose states are computed when they are visited.
Lazy = Dfa | ByteAutomaton


@cache
def any_text() -> Dfa:
    """Every well-formed UTF-8 text, the empty one included."""
    return compile_pattern("(?s:.*)", minimal=True)


@cache
def any_bytes() -> Dfa:
    """Every byte string."""
    return Dfa(np.zeros(256, dtype=np.uint8), [[0]], [True], trim=True)


# --- products ----------------------------------------------------------------------------------------------


@overload
def intersection(first: Dfa, *others: Dfa, budget: Budget | None = None, minimal: bool = True) -> Dfa: ...
@overload
def intersection(first: Lazy, *others: Lazy, budget: Budget | None = None) -> Dfa | IntersectedAutomaton: ...
def intersection(
    first: Lazy, *others: Lazy, budget: Budget | None = None, minimal: bool = True
) -> Dfa | IntersectedAutomaton:
    """The texts that every automaton accepts.

    If one of the automata is lazy (:class:`LazyDfa`, or any automaton over bytes), the result is lazy.

    Raises:
        OptionError: if the result is lazy and empty. An empty result that is not lazy is an empty :class:`Dfa`.
        BudgetExceeded: if the construction exceeds the budget.

    Example:
        >>> both = intersection(compile_pattern("[a-z]*"), compile_pattern(".{3}"))
        >>> both.fullmatch("abc"), both.fullmatch("ab1")
        (True, False)
    """
    whole, lazy = _whole(first, others)
    if lazy:
        return IntersectedAutomaton(lazy)
    return _fold("the intersection", whole[0], whole[1:], np.logical_and, (True, True), budget, minimal)


@overload
def union(first: Dfa, *others: Dfa, budget: Budget | None = None, minimal: bool = True) -> Dfa: ...
@overload
def union(first: Lazy, *others: Lazy, budget: Budget | None = None) -> Dfa | UnionAutomaton: ...
def union(first: Lazy, *others: Lazy, budget: Budget | None = None, minimal: bool = True) -> Dfa | UnionAutomaton:
    """The texts that at least one automaton accepts.

    If one of the automata is lazy (:class:`LazyDfa`, or any automaton over bytes), the result is lazy.
    """
    whole, lazy = _whole(first, others)
    if lazy:
        return UnionAutomaton(lazy)
    return _fold("the union", whole[0], whole[1:], np.logical_or, (False, False), budget, minimal)


def difference(first: Dfa, second: Dfa, *, budget: Budget | None = None, minimal: bool = True) -> Dfa:
    """The texts that the first automaton accepts and the second does not."""
    return _fold("the difference", first, (second,), lambda a, b: a & ~b, (True, False), budget, minimal)


def complement(dfa: Dfa, *, universe: Dfa | None = None, budget: Budget | None = None, minimal: bool = True) -> Dfa:
    """The texts of a universe that an automaton does not accept.

    Args:
        dfa: the automaton.
        universe: the texts to choose from; default: every well-formed UTF-8 text (:func:`any_text`).
        budget: the limits of the construction.
        minimal: whether to minimise the result.

    Example:
        >>> complement(literal("no")).fullmatch("yes")
        True
    """
    return difference(any_text() if universe is None else universe, dfa, budget=budget, minimal=minimal)


def _whole(first: Lazy, others: Sequence[Lazy]) -> tuple[list[Dfa], list[ByteAutomaton]]:
    """All automata as a list of DFAs, if none is lazy; else all of them as automata over bytes, in the second list."""
    given = [first, *others]
    whole = [one for one in given if isinstance(one, Dfa)]
    if len(whole) == len(given):
        return whole, []
    # An automaton that accepts nothing has a state that cannot be completed.
    return [], [DenseAutomaton(one.trimmed()) if isinstance(one, Dfa) else one for one in given]


Combination = Callable[[Flags, Flags], Flags]


def _fold(
    subject: str,
    first: Dfa,
    others: Sequence[Dfa],
    accepts: Combination,
    needs: tuple[bool, bool],
    budget: Budget | None,
    minimal: bool,
) -> Dfa:
    tracker = BudgetTracker(budget, subject)
    result = first.trimmed()
    for other in others:
        before, result = result.states, _product(result, other, accepts, needs, tracker).trimmed()
        # After alternatives that are met most states are alike, and the next product would multiply them.
        if needs == (False, False) and result.states > 2 * (before + other.states):
            result = minimize(result, tracker=tracker)
    return minimize(result, tracker=tracker) if minimal else result


def _product(a: Dfa, b: Dfa, accepts: Combination, needs: tuple[bool, bool], tracker: BudgetTracker) -> Dfa:
    """The product of two automata, which runs both in parallel."""
    found = product((a.byte_class, a.next, a.start), (b.byte_class, b.next, b.start), needs, tracker)
    accepting = accepts(np.append(a.accepting, False)[found.first], np.append(b.accepting, False)[found.second])
    return Dfa(found.byte_class, found.next, accepting)


# --- sequences ---------------------------------------------------------------------------------------------


def concatenation(*dfas: Dfa, budget: Budget | None = None, minimal: bool = True) -> Dfa:
    """One text of each automaton, concatenated; without automata the empty text.

    Example:
        >>> concatenation(literal("n="), compile_pattern("[0-9]+")).fullmatch("n=12")
        True
    """
    if not dfas:
        return literal("")
    follow = [[i + 1] for i in range(len(dfas) - 1)] + [[]]
    return _connected(list(dfas), follow, {len(dfas) - 1}, False, BudgetTracker(budget, "the concatenation"), minimal)


def optional(dfa: Dfa, *, budget: Budget | None = None, minimal: bool = True) -> Dfa:
    """The empty text, or a text of the automaton."""
    return repeat(dfa, 0, 1, budget=budget, minimal=minimal)


def star(dfa: Dfa, *, budget: Budget | None = None, minimal: bool = True) -> Dfa:
    """Any number of texts of the automaton, concatenated."""
    return repeat(dfa, 0, None, budget=budget, minimal=minimal)


def repeat(dfa: Dfa, least: int, most: int | None, *, budget: Budget | None = None, minimal: bool = True) -> Dfa:
    """``least`` to ``most`` texts of the automaton, concatenated; ``most=None`` is no upper limit.

    Raises:
        OptionError: if ``least`` is negative or more than ``most``.
        BudgetExceeded: if the construction exceeds the budget.
    """
    if least < 0 or (most is not None and most < least):
        raise OptionError(
            f"A repetition of {least} to {most} times does not exist. Give 0 <= least <= most, or most=None."
        )
    if most == 0:
        return literal("")
    copies = max(least, 1) if most is None else most
    tracker = BudgetTracker(budget, "the repetition")
    tracker.check_states(copies * dfa.states)
    follow = [[i + 1] for i in range(copies - 1)] + [[] if most is not None else [copies - 1]]
    final = set(range(max(least - 1, 0), copies))
    return _connected([dfa] * copies, follow, final, least == 0, tracker, minimal)


def _connected(
    parts: list[Dfa], follow: list[list[int]], final: set[int], empty: bool, tracker: BudgetTracker, minimal: bool
) -> Dfa:
    """Connect automata: after a text of ``parts[i]`` one of the parts ``follow[i]`` may begin.

    A text may end where a part in ``final`` accepts; the empty text is accepted if ``empty``.
    """
    parts = [part.trimmed() for part in parts]
    classes = np.stack([part.byte_class for part in {id(p): p for p in parts}.values()]).T
    _, representative, byte_class = np.unique(classes, axis=0, return_index=True, return_inverse=True)
    offsets = np.cumsum([0, *[part.states for part in parts]])
    tracker.check_bytes(4 * int(offsets[-1]) * len(representative))
    rows: list[list[int]] = []
    owner: list[int] = []
    accepting: list[bool] = []
    for i, part in enumerate(parts):
        table = part.next[:, part.byte_class[representative]]
        rows += np.where(table >= 0, table + offsets[i], DEAD).tolist()
        owner += [i] * part.states
        accepting += part.accepting.tolist()

    @cache
    def closure(state: int) -> frozenset[int]:
        """The state, and the start states of all parts that may begin in it (an epsilon closure)."""
        found, stack = {state}, [state]
        while stack:
            current = stack.pop()
            begun = follow[owner[current]] if accepting[current] else ()
            new = {int(offsets[i]) + parts[i].start for i in begun} - found
            found |= new
            stack += new
        return frozenset(found)

    first = closure(parts[0].start)
    number = {first: 0}
    queue = [first]

    def numbered(target: frozenset[int]) -> int:
        if target not in number:
            number[target] = len(queue)
            queue.append(target)
            tracker.check_states(len(queue))
        return number[target]

    alone = {DEAD: DEAD}  # by state the number of its closure; most groups have one state
    steps: list[list[int]] = []
    ends: list[bool] = []
    for group in queue:
        ends.append(any(accepting[s] and owner[s] in final for s in group))
        if len(group) == 1:
            targets = rows[next(iter(group))]
            alone.update({t: numbered(closure(t)) for t in targets if t not in alone})
            steps.append([alone[t] for t in targets])
            continue
        live = [{t for t in targets if t >= 0} for targets in zip(*[rows[s] for s in group], strict=True)]
        steps.append([numbered(frozenset().union(*map(closure, some))) if some else DEAD for some in live])
    if empty and not ends[0]:
        # The start state may be entered again later, where the text must not end. So the accepting start is a copy.
        steps.append(list(steps[0]))
        ends.append(True)
        result = Dfa(byte_class.ravel(), steps, ends, len(steps) - 1).trimmed()
    else:
        result = Dfa(byte_class.ravel(), steps, ends).trimmed()
    return minimize(result, tracker=tracker) if minimal else result
