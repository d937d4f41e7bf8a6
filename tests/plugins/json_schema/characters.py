"""Where characters lead in an automaton, looked up one by one."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from logitloom_plugins.json_schema.values.moore_machine import MooreMachine


@lru_cache(maxsize=32)
def _block(automaton: MooreMachine, state: int, first: int, end: int, more: int) -> NDArray[np.int32]:
    """By character: the states after a byte of a range and some more that continue it."""
    targets = automaton.next[state].take(automaton.byte_class)[first:end].tolist()
    if not more:
        return np.array(targets, dtype=np.int32)
    dead = np.full(64**more, -1, dtype=np.int32)
    return np.concatenate([dead if at < 0 else _block(automaton, at, 0x80, 0xC0, more - 1) for at in targets])


def after_characters(automaton: MooreMachine, state: int) -> NDArray[np.int32]:
    """``[0x110000]``: the state after each character, -1 for none."""
    two = _block(automaton, state, 0xC2, 0xE0, 1)
    longer = _block(automaton, state, 0xE0, 0xF0, 2), _block(automaton, state, 0xF0, 0xF5, 3)
    return np.concatenate([_block(automaton, state, 0, 0x80, 0), two, longer[0][0x800:], longer[1][0x10000:0x110000]])
