"""Finite languages: the automaton of a list of texts, as a prefix trie or minimal."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from logitloom.automata.compilation_budget import Budget, BudgetTracker
from logitloom.automata.deterministic.dfa import DEAD, Dfa
from logitloom.automata.deterministic.minimize import in_breadth_first_order

__all__ = ["choice", "literal", "nothing"]


@cache
def nothing() -> Dfa:
    """The automaton that accepts no text."""
    return Dfa(np.zeros(256, dtype=np.uint8), [[DEAD]], [False], trim=True)


def literal(text: str | bytes) -> Dfa:
    """The automaton that accepts exactly one text.

    Example:
        >>> literal("yes").fullmatch("yes")
        True
    """
    return choice([text])


def choice(
    texts: Iterable[str | bytes],
    *,
    budget: Budget | None = None,
    minimal: bool = True,
    tracker: BudgetTracker | None = None,
) -> Dfa:
    """The automaton that accepts each of several texts.

    Args:
        texts: the texts; repetitions are allowed.
        budget: the limits of the construction.
        minimal: whether to merge equivalent states; if not, the automaton is the prefix trie of the texts.
        tracker: the tracker of a compilation in progress, instead of ``budget``.

    Example:
        >>> yes_or_no = choice(["yes", "no"])
        >>> yes_or_no.fullmatch("no"), yes_or_no.fullmatch("yesno")
        (True, False)
    """
    tracker = tracker if tracker is not None else BudgetTracker(budget, "the choice")
    words = sorted({t.encode() if isinstance(t, str) else bytes(t) for t in texts})
    if not words:
        return nothing()
    used = sorted(set(b"".join(words)))
    byte_class = np.full(256, len(used), dtype=np.int64)
    byte_class[used] = np.arange(len(used))
    # Unused bytes share one more class. If all 256 bytes are used, there is no such class.
    classes = byte_class.tolist()
    width = len(used) + (len(used) < 256)
    children: list[dict[int, int]] = [{}]
    accepting = [False]
    for word in words:
        state = 0
        for byte in word:
            row = children[state]
            state = row.get(classes[byte], DEAD)
            if state == DEAD:
                state = row[classes[byte]] = len(children)
                children.append({})
                accepting.append(False)
        accepting[state] = True
        tracker.check_states(len(children))
    kept = _merged(children, accepting) if minimal else [*range(len(children))]
    tracker.check_bytes(4 * len(kept) * width)
    number = {state: at for at, state in enumerate(kept)}
    sources = np.arange(len(kept)).repeat([len(children[state]) for state in kept])
    columns = [column for state in kept for column in children[state]]
    table = np.full((len(kept), width), DEAD, dtype=np.int32)
    table[sources, columns] = [number[target] for state in kept for target in children[state].values()]
    dfa = Dfa(byte_class.astype(np.uint8), table, [accepting[state] for state in kept], trim=True)
    return in_breadth_first_order(dfa) if minimal else dfa


def _merged(children: list[dict[int, int]], accepting: list[bool]) -> list[int]:
    """Merge the states of a prefix trie after which the same texts are accepted.

    Args:
        children: per state the next states by column, in the order of the columns. A next state has a larger number.
            Merged states are replaced.
        accepting: per state whether it accepts.

    Returns:
        The states that are left, ascending.

    References:
        D. Revuz, "Minimisation of acyclic deterministic automata in linear time", 1992.
    """
    known: dict[tuple[Any, ...], int] = {}
    merged = [*range(len(children))]
    for state in reversed(merged):
        row = children[state]
        for column, target in row.items():
            row[column] = merged[target]
        merged[state] = known.setdefault((accepting[state], *row.items()), state)
    return [state for state, target in enumerate(merged) if state == target]
