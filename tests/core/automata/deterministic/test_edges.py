"""The graph of a byte automaton for people."""

from __future__ import annotations

from logitloom.automata import compile_pattern
from logitloom.automata.deterministic.edges import edges


def test_edges_hold_exactly_the_steps_of_the_automaton() -> None:
    dfa = compile_pattern("a[0-9]|é")
    found = edges(dfa)
    for (state, after), values in found.items():
        assert all(dfa.walk(bytes([byte]), state) == after for byte in values)
    total = sum(dfa.walk(bytes([byte]), state) >= 0 for state in range(dfa.states) for byte in range(256))
    assert sum(map(len, found.values())) == total
