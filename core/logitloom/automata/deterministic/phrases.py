"""Search for many phrases at once, in either case of their letters.

Characters that ``re.IGNORECASE`` takes as equal form a class. The phrases are a prefix trie over these classes. The
UTF-8 bytes of all characters of a class lead to the same node, so there are hardly more states than for one spelling of
each phrase.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from logitloom.automata.compilation_budget import Budget, BudgetTracker
from logitloom.automata.deterministic.aho_corasick import AhoCorasick, search_table
from logitloom.automata.deterministic.dfa import DEAD, Dfa
from logitloom.automata.patterns import char_sets
from logitloom.errors import OptionError

__all__ = ["folded", "texts_without"]


def texts_without(phrases: Sequence[str], *, ignore_case: bool = False, budget: Budget | None = None) -> Dfa:
    """The texts in which none of some phrases occurs.

    Args:
        phrases: texts of at least one character.
        ignore_case: whether letters of either case count, as in ``re`` with ``IGNORECASE``: character by character, so
            that ``"ss"`` is not found in ``"ß"``.
        budget: the limits of the construction.

    Raises:
        OptionError: if there is no phrase, or one of them is empty.
        BudgetExceeded: if a limit is exceeded.

    Example:
        >>> polite = texts_without(["drat", "naïve"], ignore_case=True)
        >>> polite.fullmatch("so naive"), polite.fullmatch("so NAÏVE"), polite.fullmatch("hydratation")
        (True, False, False)

    References:
        A. V. Aho and M. J. Corasick, "Efficient string matching: an aid to bibliographic search", 1975.
    """
    if not ignore_case:
        return AhoCorasick(phrases, budget=budget).avoiding()
    if not phrases or not all(phrases):
        raise OptionError(
            "Phrases to search for are texts that are not empty. Give at least one, and none that is empty."
        )
    tracker = BudgetTracker(budget, "the search automaton")
    children: list[dict[int, int]] = [{}]
    found = [-1]
    # Per node its child per class of characters; the nodes between the bytes of a character have none.
    by_class: dict[tuple[int, str], int] = {}

    def new_node() -> int:
        children.append({})
        found.append(-1)
        if len(children) % 256 == 0:
            tracker.check_states(len(children))
            tracker.check_time()
        return len(children) - 1

    for index, phrase in enumerate(phrases):
        node = 0
        for character in phrase:
            spellings = _spellings(character)
            child = by_class.get((node, spellings[0]))
            if child is None:
                child = by_class[node, spellings[0]] = new_node()
                for spelling in spellings:
                    at = node
                    *first, last = spelling.encode()
                    for byte in first:
                        if byte not in children[at]:
                            children[at][byte] = new_node()
                        at = children[at][byte]
                    children[at][last] = child
            node = child
        found[node] = index
    used = sorted({byte for row in children for byte in row})
    column = {byte: number for number, byte in enumerate(used)}
    classes = np.array([column.get(byte, len(used)) for byte in range(256)], dtype=np.uint8)
    rows = [{column[byte]: child for byte, child in row.items()} for row in children]
    table = search_table(rows, found, len(used) + 1, tracker)
    matched = np.array(found) >= 0
    return Dfa(classes, np.where(matched[table], DEAD, table), ~matched).trimmed()


def folded(text: str) -> str:
    """The text with each character replaced by a representative of the characters that equal it when case is ignored.

    Example:
        >>> folded("Naïve") == folded("NAÏVE"), folded("a") == folded("b")
        (True, False)
    """
    return "".join(_spellings(character)[0] for character in text)


@lru_cache(maxsize=4096)
def _spellings(character: str) -> tuple[str, ...]:
    """The characters that equal one character when case is ignored: the same tuple for each of these characters."""
    chars = char_sets.literal(ord(character), int(re.IGNORECASE))
    low = [chr(point) for point in range(128) if chars.ascii >> point & 1]
    return (*low, *(chr(point) for first, last in chars.high.ranges for point in range(first, last + 1)))
