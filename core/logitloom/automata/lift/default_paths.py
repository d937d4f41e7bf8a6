"""Subtrees of a vocabulary's trie that a state allows as a whole.

A state that allows almost every token would visit almost every node of the trie. A walk skips a subtree if no character
below its node can leave the default path of the state: every token below the node is allowed. The tokens below a node
are one range of the sorted vocabulary.

The default transition of a state is the one that most ASCII characters take. The default path follows default
transitions. For a state that loops on itself, the default path is the self-loop.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.automaton_kernels import AsciiClasses, AutomatonKernels, Paths, automaton_kernels
from logitloom.automata.deterministic.dfa import Dfa
from logitloom.automata.deterministic.utf8_expansion import Utf8Expansion
from logitloom.automata.lift.above_ascii import EVERYTHING, marks_above_ascii
from logitloom.automata.lift.endless_runs import lost_by_characters, with_endless_runs
from logitloom.automata.lift.trie import HIGH_OTHER, HIGH_PARTIAL, HIGH_WORD, MALFORMED, Trie

__all__ = ["ascii_columns", "default_transitions", "dense_paths", "followed", "levels_of", "reads_on"]

_CEILING_LOG2: Final = np.array([0, 0, *[(n - 1).bit_length() for n in range(2, 1 << 12)]], dtype=np.uint8)

_ZERO: Final = np.uint64(0)


_NO_MARKS: Final = np.zeros(0, dtype=np.uint8)
_NO_KINDS: Final = np.zeros((2, 1), dtype=bool)


def dense_paths(dfa: Dfa, trie: Trie) -> Paths:
    """The paths of all states of an automaton with a whole table."""
    ascii_part = ascii_columns(dfa.byte_class[:128].tobytes())
    made_of = dfa.characters
    # ASCII classes come first in both automata, so the automaton over characters has the same columns for them.
    source = dfa.next if made_of is None else made_of.characters
    known = len(source)
    levels = int(_CEILING_LOG2[min(trie.longest, len(_CEILING_LOG2) - 1)])
    level_of = levels_of(trie, levels)
    kernels = automaton_kernels()
    if kernels is not None and made_of is not None and made_of.high.classes:
        kinds = made_of.high.kinds
        found = kernels.paths(source, ascii_part, made_of.split, kinds, _NO_MARKS, levels)
    else:
        default = default_transitions(source, ascii_part)
        if made_of is None:
            given = marks_above_ascii(dfa.next, dfa.byte_class, default)
        else:
            given = marks_of_characters(made_of, default)
        found = followed(kernels, source, ascii_part, default, given, levels)
    if made_of is not None:
        found = with_endless_runs(found, lost_by_characters(made_of, ascii_part))
    low, high, marks = found
    return Paths(low, high, marks, level_of * (known + 1), known)


def reads_on(paths: Paths, trie: Trie, nodes: NDArray[Any], states: NDArray[Any]) -> NDArray[np.bool_]:
    """For each pair (node, state), whether no character below the node can leave the default path of the state."""
    if paths.known < 0:
        return np.zeros(len(nodes), dtype=bool)
    # All states between the bytes of a character share the last entry, for which the answer is no.
    index = paths.row_of_height.take(trie.height.take(nodes)) + paths.stride * np.minimum(states, paths.known)
    outside: NDArray[np.uint64] = trie.low.take(nodes) & paths.low.take(index)
    outside |= trie.high.take(nodes) & paths.high.take(index)
    outside |= trie.marks.take(nodes) & paths.marks.take(index)
    reads_on: NDArray[np.bool_] = outside == 0
    return reads_on


def levels_of(trie: Trie, levels: int) -> NDArray[np.int64]:
    """``[heights]``: the level of the tables that covers a subtree, by the height of the subtree.

    Level ``n`` covers ``2 ** n`` characters. A higher subtree gets the level ``levels + 1``, which allows the subtree
    only if the state reads texts of any length over the subtree's characters.
    """
    level_of: NDArray[np.int64] = np.full(trie.longest + 1, levels + 1, dtype=np.int64)
    covered = _CEILING_LOG2[: min((1 << levels) + 1, len(level_of))]
    level_of[: len(covered)] = covered
    return level_of


@lru_cache(maxsize=256)
def ascii_columns(byte_class: bytes) -> AsciiClasses:
    """Which columns of a table the ASCII bytes have.

    Args:
        byte_class: the column of each ASCII byte.
    """
    columns, column, sizes = np.unique(
        np.frombuffer(byte_class, dtype=np.uint8), return_inverse=True, return_counts=True
    )
    each = np.uint64(1) << (np.arange(128, dtype=np.uint64) & np.uint64(63))
    bits = np.zeros((2, len(columns)), dtype=np.uint64)
    np.bitwise_or.at(bits[0], column[:64], each[:64])
    np.bitwise_or.at(bits[1], column[64:], each[64:])
    return AsciiClasses(columns, sizes, bits)


def default_transitions(source: NDArray[np.int32], ascii_part: AsciiClasses) -> NDArray[np.int32]:
    """``[states]``: the target of the transition that most ASCII characters take, -1 if no ASCII character has one.

    Args:
        source: ``[states, classes]``, next states.
        ascii_part: from :func:`ascii_columns`.
    """
    by_size = (-ascii_part.sizes).argsort(kind="stable")
    table = source[:, ascii_part.columns[by_size]]
    default: NDArray[np.int32] = table[np.arange(len(table)), (table >= 0).argmax(axis=1)]
    return default


def followed(
    kernels: AutomatonKernels | None,
    source: NDArray[np.int32],
    ascii_part: AsciiClasses,
    default: NDArray[np.int32],
    given: NDArray[np.uint8],
    levels: int,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]:
    """Which characters can leave the default path of each state within 1, 2, 4, ... characters.

    Args:
        kernels: compiled loops, or None.
        source: ``[states, classes]``, next states.
        ascii_part: from :func:`ascii_columns`.
        default: from :func:`default_transitions`.
        given: ``[states]``: the kinds of characters that can leave the default transition, as bits of ``Trie.marks``.
        levels: how many times the number of characters is doubled.

    Returns:
        As :meth:`logitloom.masks.kernels.AutomatonKernels.paths`.
    """
    if kernels is not None:
        return kernels.paths(source, ascii_part, 0, _NO_KINDS, given, levels)
    bits, table = ascii_part.bits, source[:, ascii_part.columns]
    known = len(default)
    leaves = (table != default[:, None]) | (table < 0)
    # One more state at the end stands for dead and for unknown states. Every character leaves its path.
    low = np.append(np.bitwise_or.reduce(np.where(leaves, bits[0], _ZERO), axis=1), ~_ZERO)
    high = np.append(np.bitwise_or.reduce(np.where(leaves, bits[1], _ZERO), axis=1), ~_ZERO)
    marks = np.append(given, np.uint8(255))
    there = np.append(np.where(default < 0, known, default), known)
    rows: list[tuple[NDArray[Any], ...]] = [(low, high, marks)]
    # A path of 2n characters is a path of n characters, followed by the path of n characters from its end.
    for _ in range(levels):
        low, high, marks = low | low[there], high | high[there], marks | marks[there]
        rows.append((low, high, marks))
        there = there[there]
    rows.append((*(np.repeat(part[-1:], known + 1) for part in (low, high, marks)),))
    all_low, all_high, all_marks = (np.concatenate(part) for part in zip(*rows, strict=True))
    return all_low, all_high, all_marks


def marks_of_characters(made_of: Utf8Expansion, default: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Which kinds of characters above ASCII can leave the default transition, read from the automaton over characters.

    Args:
        made_of: the automaton over characters from which the byte automaton was expanded.
        default: ``[states] int32``, the target of the default transition, -1 for none.

    Returns:
        ``[states] uint8``, bits as in ``Trie.marks``.
    """
    if not made_of.high.classes:
        return np.full(len(default), EVERYTHING, dtype=np.uint8)
    targets = made_of.characters[:, made_of.split :]
    # The last column stands for the characters that are in no set, which have no transition.
    leaves = np.ones((len(default), targets.shape[1] + 1), dtype=bool)
    leaves[:, :-1] = (targets != default[:, None]) | (targets < 0)
    word, other = made_of.high.kinds
    by_word, by_other = (leaves & word).any(axis=1), (leaves & other).any(axis=1)
    marks = np.where(by_word, HIGH_WORD, 0) | np.where(by_other, HIGH_OTHER, 0) | MALFORMED
    return np.where(by_word | by_other, marks | HIGH_PARTIAL, marks).astype(np.uint8)
