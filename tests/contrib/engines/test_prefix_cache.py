"""Caches of stored sequences are lists of rows: moved, joined and shortened without touching what is stored."""

from __future__ import annotations

import pytest

from logitloom.errors import ModelError
from logitloom.rows import tree as row_state
from logitloom_contrib.engines._stored_beginnings import PrefixCache


def test_rows_move_join_and_shorten_as_a_list_does() -> None:
    cache = PrefixCache([("a", 5), ("b", 3), (None, 0)])
    moved = row_state.take(cache, [1, 1, 0])
    assert moved.rows == (("b", 3), ("b", 3), ("a", 5))
    joined = row_state.concat([moved, cache])
    assert joined.lengths.tolist() == [3, 3, 5, 5, 3, 0]
    assert joined.crop([3, 1, 0, 5, 3, 0]).rows == (("b", 3), ("b", 1), (None, 0), ("a", 5), ("b", 3), (None, 0))
    assert joined.row_count() == 6
    assert cache.rows == (("a", 5), ("b", 3), (None, 0))


@pytest.mark.parametrize("wanted", [-1, 6])
def test_a_row_is_only_shortened(wanted: int) -> None:
    with pytest.raises(ModelError, match=f"Row 0 of the cache holds 5 tokens and cannot be cropped to {wanted}"):
        PrefixCache([("a", 5)]).crop([wanted])
