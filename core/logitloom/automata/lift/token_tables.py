"""The tables for devices: for all states at once, the allowed tokens and the next states.

A token maps each state to the state after its bytes. Many tokens are the same function (for ``[0-9]+``, all tokens of
digits), so there are far fewer classes of tokens than tokens. The functions are the states of an automaton over bytes
whose start state is the identity. One pass over the vocabulary's trie computes the functions: equal functions are
merged when they appear, and a prefix after which every state is dead is dropped with its subtree.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.deterministic.dfa import DEAD, Dfa
from logitloom.automata.lift.level_walk import WalkTable, level_walk
from logitloom.automata.lift.trie import Trie

__all__ = ["TokenClasses", "TooManyFunctions", "token_classes"]

_UNKNOWN: Final = -2
_WORD: Final = 4  # bytes of a state
_AT_ONCE: Final = 1 << 19
#: The cost of computing one function, besides the cost of its states, in units of one examined state.
_OF_A_FUNCTION: Final = 144
#: Entries of a table of classes that cost as much as a state.
_ENTRIES_OF_A_STATE: Final = 2


class TooManyFunctions(Exception):
    """The functions of tokens would take more work than they may take."""


class TokenClasses(NamedTuple):
    """``of_token`` is ``[vocabulary] int32``, 0 for tokens that no state allows; ``next`` is ``[states, classes]``."""

    of_token: NDArray[np.int32]
    next: NDArray[np.int32]


class _Functions(WalkTable):
    """The functions found so far, and the function after each by byte class.

    Function 0 maps every state to the dead state; function 1 is the identity. A function is stored as two rows,
    ``[2, n]``: the ``n`` states that the function does not map to the dead state, and the images of these states. In a
    large automaton ``n`` is small after one byte.
    """

    def __init__(self, dfa: Dfa, tracker: BudgetTracker, most_work: int | None) -> None:
        self.tracker = tracker
        self.work, self.most_work = 0, most_work
        self.width, self.byte_class = dfa.classes, dfa.byte_class
        self.table_of_bytes = dfa.next
        every = np.tile(np.arange(dfa.states, dtype=np.int32), (2, 1))
        self.pairs = [every[:, :0], every]
        self.index = {b"": 0, every.tobytes(): 1}
        self.bytes = 0
        self.then = np.full((64, self.width), _UNKNOWN, dtype=np.int32)
        self.then[0] = 0

    def step(self, states: NDArray[Any], read: NDArray[np.uint8]) -> NDArray[np.int32]:
        """The function after one more byte. Numbers are less by 1, so that a walk drops the function of dead states."""
        key = (states.astype(np.int64) + 1) * self.width + self.byte_class.take(read)
        result: NDArray[np.int32] = self.then.ravel()[key]
        unknown = key[result == _UNKNOWN]
        if len(unknown):
            asked = np.zeros(self.then.size, dtype=bool)
            asked[unknown] = True
            self._find(np.flatnonzero(asked))
            result = self.then.ravel()[key]
        return result - 1

    def _find(self, asked: NDArray[np.int64]) -> None:
        """Compute entries of ``then``, given by their flat indices: many at once, because each is small."""
        functions, classes = np.divmod(asked, self.width)
        sizes = np.array([self.pairs[function].shape[1] for function in functions.tolist()])
        self.take(int(sizes.sum()) + _OF_A_FUNCTION * len(asked))
        parts = (np.cumsum(sizes) // _AT_ONCE).tolist()
        begin = 0
        while begin < len(asked):
            end = bisect_right(parts, parts[begin], lo=begin)
            self._find_some(functions[begin:end].tolist(), classes[begin:end], sizes[begin:end])
            self.tracker.check_time()
            begin = end

    def _find_some(self, functions: list[int], classes: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        targets = np.concatenate([self.pairs[function][1] for function in functions])
        reached = self.table_of_bytes[targets, classes.repeat(sizes)]
        alive = reached >= 0
        ends = (_WORD * np.append(0, alive.cumsum())[sizes.cumsum()]).tolist()
        from_bytes = np.concatenate([self.pairs[function][0] for function in functions])[alive].tobytes()
        to_bytes = reached[alive].tobytes()
        begin = 0
        for function, byte_class, end in zip(functions, classes.tolist(), ends, strict=True):
            key = from_bytes[begin:end] + to_bytes[begin:end]
            begin = end
            number = self.index.get(key)
            if number is None:
                number = self.index[key] = len(self.index)
                self.pairs.append(np.frombuffer(key, dtype=np.int32).reshape(2, -1))
                self.bytes += len(key)
                if number == len(self.then):
                    grown = np.full((2 * number, self.width), _UNKNOWN, dtype=np.int32)
                    grown[:number] = self.then
                    self.then = grown
                self.tracker.check_bytes(self.bytes + self.then.nbytes, "the functions of its tokens")
            self.then[function, byte_class] = number

    def take(self, work: int) -> None:
        """Count work before it is done; raise :class:`TooManyFunctions` above the limit."""
        self.work += work
        if self.most_work is not None and self.work > self.most_work:
            raise TooManyFunctions

    def table(self, functions: list[int]) -> NDArray[np.int32]:
        """``[states, functions] int32``: the image of each state, ``DEAD`` for none."""
        result = np.full((len(functions), len(self.table_of_bytes)), DEAD, dtype=np.int32)
        for row, function in enumerate(functions):
            pairs = self.pairs[function]
            result[row, pairs[0]] = pairs[1]
        return np.ascontiguousarray(result.T)


def token_classes(
    dfa: Dfa, trie: Trie, size: int, tracker: BudgetTracker, most_work: int | None = None
) -> TokenClasses:
    """Classes of tokens that are the same function on the states of an automaton.

    Args:
        dfa: the automaton.
        trie: the trie of the vocabulary.
        size: length of ``of_token``; ids that are not in the trie are in class 0.
        tracker: the budget tracker.
        most_work: the most states that the functions may look at, costs of functions and tables included; unlimited by
            default. The count is the same in every process.

    Returns:
        Class 0 holds the tokens that lead from every state to ``DEAD``; classes are numbered by first appearance
        in the order of the trie.

    Raises:
        TooManyFunctions: if more work than ``most_work`` would be done.
    """
    functions = _Functions(dfa, tracker, most_work)
    walked = level_walk(trie, functions, [(0, 0)], keep_states=True)
    of_sorted = np.zeros(len(trie.order), dtype=np.int32)
    of_sorted[walked.positions(trie)] = walked.states_after(trie) + 1
    used = np.zeros(len(functions.index), dtype=bool)
    used[of_sorted] = True
    used[0] = True
    number = (np.cumsum(used) - 1).astype(np.int32)
    of_token = np.zeros(size, dtype=np.int32)
    of_token[trie.order] = number[of_sorted]
    tracker.check_bytes(4 * dfa.states * int(number[-1] + 1))
    functions.take(dfa.states * int(number[-1] + 1) // _ENTRIES_OF_A_STATE)
    return TokenClasses(of_token, functions.table(np.flatnonzero(used).tolist()))
