"""Products of automata within a universe."""

from __future__ import annotations

from itertools import product

from logitloom.automata import Budget, BudgetTracker, any_text
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
