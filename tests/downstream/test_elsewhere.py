"""Constraints of another distribution, written against the reference alone, are treated as the built-ins are."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, processors
from logitloom.processors import register

FOLDER = Path(__file__).parent / "logitloom-elsewhere" / "src" / "logitloom_elsewhere"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"
WORDS = Vocabulary([b"", *(bytes([n]) for n in b"abc;xy"), b"ab", b"bc", b"a;", b"xy", b"c;", b""], eos=[0])
WIDTH = WORDS.size + 2


@pytest.fixture(scope="module", autouse=True)
def theirs() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("logitloom_elsewhere", FOLDER / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["logitloom_elsewhere"] = module
    spec.loader.exec_module(module)
    register("their_bad_words", module.TheirBadWords)
    register("their_regex", module.TheirRegex)
    register("their_stop", module.TheirStop)
    yield module
    del sys.modules["logitloom_elsewhere"]


PAIRS: dict[str, tuple[Any, Any]] = {
    "bad_words": (["bad_words", {"phrases": ["ab", "c;"]}], ["their_bad_words", {"phrases": ["ab", "c;"]}]),
    "stop": (["stop", {"strings": ["bc", "x;"]}], ["their_stop", {"strings": ["bc", "x;"]}]),
    "regex": (["regex", {"pattern": "(ab|c)+x*"}], ["their_regex", {"pattern": "(ab|c)+x*"}]),
}
AROUND: dict[str, Any] = {
    "alone": lambda inner: tuple(inner),
    "until": lambda inner: ("until", {"trigger": ";", "inner": inner}),
    "after": lambda inner: ("after", {"trigger": "xy", "inner": inner}),
    "between": lambda inner: ("between", {"open": "x", "close": "y", "inner": inner}),
    "budget": lambda inner: ("budget", {"n": 3, "text": ";", "inner": inner}),
    "after until": lambda inner: ("after", {"trigger": "x", "inner": ["until", {"trigger": ";", "inner": inner}]}),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", PAIRS)
def test_masks_and_forced_tokens_are_those_of_the_built_in(name: str, around: str) -> None:
    ours, others = (processors.load(AROUND[around](inner), tokenizer=WORDS) for inner in PAIRS[name])
    for seed in range(8):
        dice = np.random.default_rng(seed)
        blank = np.zeros((1, WIDTH), np.float32)
        context = Context.start(blank, prompt=[[]], max_length=40)
        states, step = [ours.init_state(context), others.init_state(context)], context
        for _ in range(8):
            forced = [chain.forced_tokens(at, step) for chain, at in zip((ours, others), states, strict=True)]
            assert forced[0] == forced[1]
            ends = [chain.text_ends(at, step) for chain, at in zip((ours, others), states, strict=True)]
            assert ends[0] == ends[1]
            made = [chain.process(blank, at, step) for chain, at in zip((ours, others), states, strict=True)]
            assert np.array_equal(made[0][0], made[1][0])
            states = [state for _, state in made]
            token = int(dice.choice(np.flatnonzero(made[0][0][0] == 0)))
            step = context.accept([[token]])
            if token == 0:
                break


def test_it_imports_only_what_the_reference_lists() -> None:
    listed = set(re.findall(r"^::: ([\w.]+)", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    for node in ast.walk(ast.parse((FOLDER / "__init__.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("logitloom"):
            for alias in node.names:
                assert node.module in listed or f"{node.module}.{alias.name}" in listed, alias.name
