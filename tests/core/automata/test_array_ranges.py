"""Concatenated ranges and different numbers, against NumPy's functions for single ranges and any numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata.array_ranges import distinct, members


@given(st.lists(st.integers(0, 99), max_size=40), st.integers(100, 9_999))
def test_the_different_numbers_of_an_array_ascend(numbers: list[int], size: int) -> None:
    assert distinct(np.array(numbers, dtype=np.int64), size).tolist() == sorted({*numbers})


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 5)), max_size=20))
def test_ranges_are_listed_one_after_the_other(ranges: list[tuple[int, int]]) -> None:
    first, counts = np.array(ranges, dtype=np.int64).reshape(-1, 2).T
    assert members(first, counts).tolist() == [at for begin, count in ranges for at in range(begin, begin + count)]
