"""Constraints of another distribution, written against the reference alone, are treated as the built-ins are."""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, processors
from tests.downstream.conftest import DISTRIBUTION, FOLDER, MODULE
from tests.downstream.pairs import NESTINGS, PAIRS, loaded

REFERENCE = FOLDER.parents[2] / "docs" / "reference.md"
WORDS = Vocabulary([b"", *(bytes([n]) for n in b"abc-xy"), b"ab", b"bc", b"a-", b"xy", b"c-", b""], eos=[0])
WIDTH = WORDS.size + 2
ROWS, STEPS = 6, 8


def test_it_is_discovered_as_a_distribution() -> None:
    found = {r.name: r for r in processors.available() if r.distribution == DISTRIBUTION}
    assert sorted(found) == ["their_bad_words", "their_regex", "their_stop"]
    assert found["their_regex"].value == f"{MODULE}:TheirRegex"
    assert {type(processors.load(theirs)[theirs[0]]).__module__ for _, theirs in PAIRS.values()} == {MODULE}


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.long
def test_masks_forced_tokens_and_text_ends_are_those_of_the_built_in(name: str, nesting: str) -> None:
    chains = loaded(name, nesting, WORDS)
    dice = np.random.default_rng(5)
    blank = np.zeros((ROWS, WIDTH), np.float32)
    context = step = Context.start(blank, prompt=[[]] * ROWS, max_length=40)
    states = [chain.init_state(context) for chain in chains]
    for _ in range(STEPS):
        told = [
            (chain.forced_tokens(at, step), chain.text_ends(at, step)) for chain, at in zip(chains, states, strict=True)
        ]
        assert told[0] == told[1]
        made = [chain.process(blank, at, step) for chain, at in zip(chains, states, strict=True)]
        assert np.array_equal(made[0][0], made[1][0])
        states = [state for _, state in made]
        allowed = [np.flatnonzero(line == 0) for line in made[0][0]]
        # Seldom the end, which every finished row has left.
        chosen: list[list[int]] = [
            [int(dice.choice(ids[ids > 0] if len(ids) > 1 and dice.random() < 0.9 else ids))] if len(ids) else []
            for ids in allowed
        ]
        step = context.accept(chosen)


@pytest.mark.parametrize("nesting", ["alone", "until of after"])
@pytest.mark.parametrize("name", PAIRS)
def test_states_travel_and_rows_move_as_those_of_the_built_in(name: str, nesting: str) -> None:
    blank = np.zeros((2, WIDTH), np.float32)
    context = Context.start(blank, prompt=[[]] * 2, max_length=40)
    masks: list[Any] = []
    for chain, again in zip(loaded(name, nesting, WORDS), loaded(name, nesting, WORDS), strict=True):
        state = chain.replay([[3], [3, 5]], context)
        masks.append(chain.process(blank, state, context)[0])
        moved = again.load_state(chain.save_state(state), context)
        assert np.array_equal(again.process(blank, moved, context)[0], masks[-1])
    assert np.array_equal(*masks)


def test_it_imports_only_what_the_reference_lists() -> None:
    listed = set(re.findall(r"^::: ([\w.]+)", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    source = (FOLDER / "src" / MODULE / "__init__.py").read_text(encoding="utf-8")
    imported = [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("logitloom")
        for alias in node.names
    ]
    assert len(imported) > 5
    assert [name for module, name in imported if module not in listed and f"{module}.{name}" not in listed] == []
