"""The graph of a byte automaton for display: the edges between states, with their bytes."""

from __future__ import annotations

from collections.abc import Iterable

from logitloom.automata.deterministic.dfa import DEAD, Dfa

__all__ = ["edges", "label"]


def edges(dfa: Dfa) -> dict[tuple[int, int], list[int]]:
    """The bytes that lead from one state to another, for all pairs of states with a transition."""
    found: dict[tuple[int, int], list[int]] = {}
    for state in range(dfa.states):
        for byte, after in enumerate(dfa.by_byte[state].tolist()):
            if after != DEAD:
                found.setdefault((state, after), []).append(byte)
    return found


def label(values: Iterable[int]) -> str:
    """Bytes as ranges of characters: ``0-9 a-f``, others in hexadecimal.

    >>> label([48, 49, 50, 97, 10])
    '0a 0-2 a'
    """
    ranges: list[list[int]] = []
    for byte in sorted(values):
        if ranges and byte == ranges[-1][1] + 1 and _printable(byte) == _printable(ranges[-1][1]):
            ranges[-1][1] = byte
        else:
            ranges.append([byte, byte])
    shown = [_character(a) if a == b else f"{_character(a)}-{_character(b)}" for a, b in ranges]
    return " ".join(shown[:8]) + (" …" if len(shown) > 8 else "")


def _printable(byte: int) -> bool:
    return 0x21 <= byte < 0x7F


def _character(byte: int) -> str:
    return chr(byte) if _printable(byte) else "space" if byte == 0x20 else f"{byte:02x}"
