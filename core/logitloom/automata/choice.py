"""Finite languages: some given texts, as a prefix tree or minimal."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from logitloom.automata.budget import Budget, BudgetTracker
from logitloom.automata.dfa import DEAD, Dfa
from logitloom.automata.minimize import minimize

__all__ = ["choice", "literal", "nothing"]


@cache
def nothing() -> Dfa:
    """No text at all."""
    return Dfa(np.zeros(256, dtype=np.uint8), [[DEAD]], [False], trim=True)


def literal(text: str | bytes) -> Dfa:
    """Exactly one text.

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
    """One of several texts.

    Args:
        texts: the texts; repetitions are allowed.
        budget: what it may cost.
        minimal: whether to merge equal endings; off, the automaton is the texts' prefix tree.
        tracker: a budget that is already being spent, instead of ``budget``.

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
    # All 256 byte values in use leave no class for the others, because there are none.
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
    tracker.check_bytes(4 * len(children) * width)
    table = np.full((len(children), width), DEAD, dtype=np.int32)
    for state, row in enumerate(children):
        for column, target in row.items():
            table[state, column] = target
    dfa = Dfa(byte_class.astype(np.uint8), table, accepting, trim=True)
    return minimize(dfa, tracker=tracker) if minimal else dfa
