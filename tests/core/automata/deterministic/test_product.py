"""Products of automata: pairs that are read one by one are those that arrays give."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest

from logitloom.automata import Dfa, compile_pattern
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.deterministic import product as module

PATTERNS = ["[a-z]*", "a{0,250}", "(ab|cd){3,40}x?", "[^x]*x.*", "é+|b", "(a|b)*a(a|b){5}"]


def pairs(first: Dfa, second: Dfa, needs: tuple[bool, bool]) -> module.ProductPairs:
    tables = ((dfa.byte_class, dfa.next, dfa.start) for dfa in (first, second))
    with mock.patch.object(module, "automaton_kernels", return_value=None):
        return module.product(*tables, needs, BudgetTracker())


@pytest.mark.parametrize("needs", [*itertools.product((False, True), repeat=2)])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.long
def test_pairs_read_one_by_one_are_those_of_arrays(pattern: str, needs: tuple[bool, bool]) -> None:
    for other in PATTERNS:
        dfas = compile_pattern(pattern), compile_pattern(other)
        found = []
        for few in (0, 4, 1 << 30):
            with mock.patch.object(module, "_FEW", few):
                found.append(pairs(*dfas, needs))
        assert all(np.array_equal(*parts) for parts in zip(found[0], found[1], strict=True))
        assert all(np.array_equal(*parts) for parts in zip(found[0], found[2], strict=True))


def test_the_levels_of_a_bounded_length_take_no_arrays() -> None:
    with mock.patch.object(module, "_targets", side_effect=AssertionError):
        assert len(pairs(compile_pattern("[a-z]*"), compile_pattern("a{0,250}"), (True, True)).next) == 251
