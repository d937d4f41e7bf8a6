"""A DFA with eight states that accepts well-formed UTF-8, as tables for checking many byte strings at once.

State 0 is between two characters. States 1 to 3 expect that number of continuation bytes. States 4 to 7 follow the lead
bytes E0, ED, F0 and F4, after which only some continuation bytes are allowed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BOUNDARY", "BROKEN_ROWS", "STEP"]

BOUNDARY: Final = 0


def _step_table() -> NDArray[np.int8]:
    step = np.full((8, 256), -1, dtype=np.int8)
    step[0, 0x00:0x80] = 0
    step[0, 0xC2:0xE0] = 1
    step[0, 0xE0:0xF0] = 2
    step[0, 0xF0:0xF5] = 3
    step[0, [0xE0, 0xED, 0xF0, 0xF4]] = [4, 5, 6, 7]
    for state in (1, 2, 3):
        step[state, 0x80:0xC0] = state - 1
    step[4, 0xA0:0xC0] = 1
    step[5, 0x80:0xA0] = 1
    step[6, 0x90:0xC0] = 2
    step[7, 0x80:0x90] = 2
    return step


def _broken_rows() -> NDArray[np.uint8]:
    masks = np.arange(256)
    rows = np.zeros((256, 256), dtype=np.uint8)
    for state in range(8):
        target = STEP[state].astype(np.int64)
        broken = (target < 0)[:, None] | ((masks[None, :] >> np.maximum(target, 0)[:, None]) & 1 == 1)
        rows |= (broken.astype(np.uint8) << state).astype(np.uint8)
    return rows


STEP: Final = _step_table()
"""``[8, 256] int8``: the state after a byte, -1 if the text is not UTF-8."""

BROKEN_ROWS: Final = _broken_rows()
"""``[256, 256] uint8``: by byte and by the set of states from which the bytes after it are malformed (as bits), the set
of states from which the byte followed by these bytes is malformed."""
