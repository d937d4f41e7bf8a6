"""Products of automata within a universe."""

from __future__ import annotations

from itertools import product

import pytest

from logitloom.automata import Budget, BudgetTracker, any_text
from logitloom_plugins.json_schema.values import moore_machine
from logitloom_plugins.json_schema.values.ecma_pattern import compile_ecma
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine, joint


def output_after(machine: MooreMachine, text: str) -> object:
    state = machine.walk(text.encode())
    return None if state < 0 else machine.outputs[state]


def test_required_automata_change_no_output_and_leave_fewer_states() -> None:
    automata = [compile_ecma("b"), compile_ecma("^[a-c]{2,3}$"), compile_ecma("a.?c")]
    tracker = BudgetTracker(Budget(), "a test")

    def output(flags: tuple[object, ...]) -> object:
        return (flags[0], flags[2]) if flags[1] else None

    free = joint(automata, any_text(), output, tracker)
    pruned = joint(automata, any_text(), output, tracker, required={1})
    assert pruned.states < free.states / 2
    texts = ["".join(letters) for size in range(5) for letters in product("abcd", repeat=size)]
    outputs = [output_after(pruned, text) for text in texts]
    assert outputs == [output_after(free, text) for text in texts]
    assert {None, (True, False), (False, True), (True, True), (False, False)} == {*outputs}


def test_hundreds_of_automata_are_multiplied_in_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    visited, multiply, found = list[int](), moore_machine._multiplied, []

    def counted(*given: object) -> object:
        both = multiply(*given)  # type: ignore[arg-type]
        visited.append(len(both.next))
        return both

    monkeypatch.setattr(moore_machine, "_multiplied", counted)
    for count in (40, 160):
        visited.clear()
        automata = [compile_ecma(f"^a{index}_") for index in range(count)]
        tracker = BudgetTracker(Budget(), "a test")
        machine = joint(automata, any_text(), lambda flags: flags, tracker)
        found.append(sum(visited))
        for text in ("", "a", "a1", "a1_", "a12_b", f"a{count - 1}_", "b1_", "a01_", "a1\u00e9"):
            assert output_after(machine, text) == tuple([automaton.fullmatch(text) for automaton in automata])
    assert found[1] < 7 * found[0]
