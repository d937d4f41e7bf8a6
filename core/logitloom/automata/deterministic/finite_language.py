"""Finite languages: the automaton of a list of texts, as a prefix trie or minimal."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from logitloom.automata.compilation_budget import Budget, BudgetTracker
from logitloom.automata.deterministic.dfa import DEAD, Dfa
from logitloom.automata.deterministic.minimize import minimize

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
    tracker.check_bytes(4 * len(children) * width)
    table = np.full((len(children), width), DEAD, dtype=np.int32)
    for state, row in enumerate(children):
        for column, target in row.items():
            table[state, column] = target
    dfa = Dfa(byte_class.astype(np.uint8), table, accepting, trim=True)
    return minimize(dfa, tracker=tracker) if minimal else dfa
