"""Masks that several threads prepare at once: kernels read them by their addresses."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from logitloom.constraints.memory import _CompiledBatch
from logitloom.masks import mask_row
from logitloom.masks.kernels import ByteTable, StepTables
from logitloom.masks.mask_row import MaskRow, records_of


def test_a_mask_that_two_threads_pack_at_once_has_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    row, given_out = MaskRow(True, range(900), 1000), []

    def interrupted(*values: Any) -> bytes:
        monkeypatch.setattr(mask_row, "struct", struct)
        row.pack()  # by another thread
        given_out.append(row.packed)
        return struct.pack(*values)

    monkeypatch.setattr(mask_row, "struct", SimpleNamespace(pack=interrupted))
    row.pack()
    assert row.dense
    assert given_out == [row.packed]


def test_the_mask_of_a_state_that_two_threads_add_stays_the_first() -> None:
    none = np.zeros(0, dtype=np.int32)
    automaton = ByteTable(np.zeros((1, 1), np.int32), np.ones(1, bool), np.zeros(256, np.uint8))
    texts = np.zeros(0, np.uint8), np.zeros(1, np.int64)
    records = np.full((3, 3), -1, dtype=np.int64)
    tables = StepTables(automaton, *texts, none, np.ones(3, bool), np.zeros(1, bool), records)
    batch, kernels = {}, Any
    compiled = _CompiledBatch(kernels, tables, batch)  # type: ignore[arg-type]
    first, second = MaskRow(True, [1], 100), MaskRow(True, [1], 100)
    compiled.add(0, first)
    compiled.add(0, second)
    assert batch == {0: first}
    assert (records[0] == records_of([first])[0]).all()
    assert (records[1:] == -1).all()
