"""The trie of listed texts within all texts tells the same texts apart as a product of automata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitloom.automata import BudgetTracker, any_text
from logitloom_plugins.json_schema.schema.formula import conjunction, disjunction, negation, substitute
from logitloom_plugins.json_schema.values.listed_texts import among_all_texts, texts_alone
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine, joint
from logitloom_plugins.json_schema.values.strings import content_of, outputs_of_lists

TEXTS = st.text(alphabet='ab"\\é一🙂\x00', max_size=5)


def output_of(machine: MooreMachine, text: bytes) -> Any:
    """The output of a text; ``"dead"`` if the machine does not read the text to its end."""
    state = machine.walk(text)
    return "dead" if state < 0 else machine.outputs[state]


@settings(max_examples=200)
@given(st.dictionaries(TEXTS, st.sampled_from([None, 1, 2]), max_size=6), st.lists(TEXTS, max_size=6))
def test_each_text_has_its_output_and_all_others_the_other(
    listed: dict[str, int | None], others: Sequence[str]
) -> None:
    machine = among_all_texts(listed, "other", BudgetTracker())
    for text in {*listed, *others, *[text + "a" for text in listed], *[text[:-1] for text in listed]}:
        assert output_of(machine, text.encode()) == listed.get(text, "other")


@settings(max_examples=200)
@given(st.dictionaries(TEXTS, st.sampled_from([1, 2]), max_size=6), st.lists(st.binary(max_size=4), max_size=8))
def test_it_agrees_with_the_product_on_all_bytes(listed: dict[str, int], others: list[bytes]) -> None:
    tracker = BudgetTracker()
    made = among_all_texts(listed, "other", tracker)
    product = joint([], any_text(), lambda found: found[0] or "other", tracker, texts_alone(listed, tracker))
    ends = [*others, *[text.encode()[:cut] for text in listed for cut in range(1, 9)]]
    for text in [*ends, *[text.encode() + end for text in listed for end in others]]:
        assert output_of(made, text) == output_of(product, text)
    assert made.boundaries == MooreMachine(made.byte_class, made.next, made.outputs).boundaries


LISTS = st.frozensets(TEXTS, max_size=3).map(lambda texts: ("any", texts))
FORMULAS = st.recursive(
    st.one_of(st.booleans(), LISTS),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(conjunction),
        st.lists(inner, min_size=2, max_size=3).map(disjunction),
        inner.map(negation),
    ),
    max_leaves=4,
)


@settings(max_examples=300)
@given(FORMULAS, st.lists(FORMULAS, max_size=2))
def test_the_outputs_of_lists_are_those_of_their_automaton(must: Any, extras: list[Any]) -> None:
    formulas = must, *extras

    def output(holds: Any) -> Any:
        truth = [substitute(formula, holds) is True for formula in formulas]
        return tuple(truth[1:]) if truth[0] else None

    found = set() if must is False else content_of(formulas, output, BudgetTracker()).found
    assert outputs_of_lists(formulas, output) == found
    assert outputs_of_lists((*formulas, ("pat", "a")), output) is None


@pytest.mark.parametrize("listed", [{}, {"": 1}])
def test_few_texts(listed: dict[str, int]) -> None:
    machine = among_all_texts(listed, "other", BudgetTracker())
    assert [output_of(machine, text) for text in (b"", b"x", b"\xff")] == [listed.get("", "other"), "other", "dead"]
