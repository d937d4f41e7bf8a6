"""Regular grammars as automata: against ``re``, against every text of a grammar, and against llguidance."""

from __future__ import annotations

import random
import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitloom import processors
from logitloom.automata import compile_tree
from logitloom.errors import BudgetExceeded, UnsupportedGrammar
from logitloom_plugins.grammars.context_free import (
    Chars,
    ContextFreeGrammar,
    Node,
    Reference,
    RuleChoice,
    RuleRepeat,
    RuleSequence,
    pruned,
)
from logitloom_plugins.grammars.gbnf import parse_gbnf
from logitloom_plugins.grammars.regular import regular_tree
from tests.cases import EXHAUSTIVE
from tests.core.automata.vocabularies import mixed
from tests.plugins.grammars.languages import ARITHMETIC, BRACKETS, LISTS, REGULAR

#: Mutual recursion: right-linear, left-linear, through choices and options, and two groups one after the other.
LINEAR: dict[str, tuple[str, str]] = {
    "mutual": ('root ::= "a" other | "b"\nother ::= "b" root | "a"', "(ab)*(b|aa)"),
    "mutual, left": ('root ::= other "a" | "b"\nother ::= root "b" | "a"', "(b|aa)(ba)*"),
    "option": ('root ::= "a" (root | "b" root)?', "a(b?a)*"),
    "two groups": ('root ::= "a" root | more\nmore ::= more "b" | "b" ("a" | "b")', "a*b[ab]b*"),
    "itself alone": ('root ::= root | "a" rest\nrest ::= rest | "b" rest | ""', "ab*"),
    "loops through empty": ('root ::= gap root | "b"\ngap ::= "" | "a"', "a*b"),
}
NOT_LINEAR = {
    "middle": 'root ::= "a" root "b" | ""',
    "twice": 'root ::= root root | "a"',
    "both ends": 'root ::= "a" other | "b"\nother ::= root "a"',
    "brackets": BRACKETS,
    "arithmetic": ARITHMETIC,
    "lists": LISTS,
}


def automaton(text: str) -> Any:
    tree = regular_tree(pruned(parse_gbnf(text)), most=10_000)
    assert tree is not None
    return compile_tree(tree, "the grammar")


@pytest.mark.parametrize("name", LINEAR)
def test_linear_recursion_is_solved(name: str) -> None:
    grammar, pattern = LINEAR[name]
    found = automaton(grammar)
    for text in ("".join(letters) for n in range(8) for letters in product("ab", repeat=n)):
        assert found.fullmatch(text) == bool(re.fullmatch(pattern, text)), text


@pytest.mark.parametrize("name", REGULAR)
def test_regular_grammars_are_their_patterns(name: str) -> None:
    grammar, pattern = REGULAR[name]
    found, dice = automaton(grammar), random.Random(name)
    letters = 'abdefnothr,-1290é日本A😀 \n"' + "".join(re.findall("[a-z]", grammar))
    texts = ["".join(dice.choices(letters, k=dice.randint(0, 6))) for _ in range(300)]
    texts += [
        "foobar",
        "日本",
        "2024-05-06",
        "friend",
        "end",
        "aéé",
        "let let it",
        "aab1,22",
        "the-abc",
        "ab12",
        "x1\n",
    ]
    for text in texts:
        assert found.fullmatch(text) == bool(re.fullmatch(pattern, text)), text


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_other_recursion_is_left_to_engines(name: str) -> None:
    assert regular_tree(pruned(parse_gbnf(NOT_LINEAR[name])), most=10_000) is None
    with pytest.raises(UnsupportedGrammar, match="The engine 'table' compiles regular grammars"):
        processors.load(("grammar", {"grammar": NOT_LINEAR[name], "engine": "table"}))


A, B = Chars(((97, 97),)), Chars(((98, 98),))
LEAVES = st.sampled_from([A, B, RuleSequence(()), Reference("root"), Reference("other")])
NODES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: RuleChoice(tuple(parts))),
        st.lists(inner.filter(lambda part: part != RuleSequence(())), min_size=2, max_size=3).map(
            lambda parts: RuleSequence(tuple(parts))
        ),
        inner.filter(lambda part: part != RuleSequence(())).map(lambda part: RuleRepeat(part, 0, 1)),
    ),
    max_leaves=6,
)


def texts_of(grammar: ContextFreeGrammar, longest: int) -> set[str]:
    """All texts up to a length, by putting in what the rules are known to stand for until nothing is new."""
    known: dict[str, set[str]] = {name: set() for name in grammar.rules}

    def of(node: Node) -> set[str]:
        if isinstance(node, Chars):
            return {chr(node.ranges[0][0])}
        if isinstance(node, Reference):
            return known[node.name]
        if isinstance(node, RuleChoice):
            return set().union(*map(of, node.options))
        if isinstance(node, RuleRepeat):
            return of(node.part) | {""}
        found = {""}
        for part in node.parts:
            found = {a + b for a in found for b in of(part) if len(a + b) <= longest}
        return found

    while True:
        before = {name: len(texts) for name, texts in known.items()}
        for name, node in grammar.rules.items():
            known[name] = known[name] | of(node)
        if before == {name: len(texts) for name, texts in known.items()}:
            return known[grammar.start]


@settings(max_examples=300 if EXHAUSTIVE else 30)
@given(root=NODES, other=NODES)
def test_random_grammars_have_their_texts(root: Node, other: Node) -> None:
    grammar = pruned(ContextFreeGrammar({"root": root, "other": other}, "root"))
    if grammar.rules["root"] == RuleChoice(()):
        return
    tree = regular_tree(grammar, most=10_000)
    if tree is None:
        return
    found, texts = compile_tree(tree, "the grammar"), texts_of(grammar, 5)
    for text in ("".join(letters) for n in range(6) for letters in product("ab", repeat=n)):
        assert found.fullmatch(text) == (text in texts), text


@pytest.mark.extras
@pytest.mark.parametrize("name", [*REGULAR, *LINEAR])
def test_masks_on_random_walks_are_those_of_llguidance(name: str) -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    grammar = {**REGULAR, **LINEAR}[name][0]
    words, dice = mixed(), np.random.default_rng(3)
    table, peer = (
        processors.load(("grammar", {"grammar": grammar, "engine": engine}))["grammar"].constraint(words, words.size)
        for engine in ("table", "llguidance")
    )
    for _ in range(4):
        here, there = table.start(), peer.start()
        for _ in range(12):
            allowed = table.allowed(here).listed(words.size)
            np.testing.assert_array_equal(allowed, peer.allowed(there).listed(words.size))
            assert table.may_end(here) == peer.may_end(there)
            if not len(allowed):
                break
            token = int(dice.choice(allowed))
            here, there = table.advance(here, token), peer.advance(there, token)


def test_a_regular_grammar_needs_no_engine() -> None:
    made = processors.load(("grammar", {"grammar": 'root ::= "a" root | "b"'}))["grammar"]
    assert made.compilable
    assert made.constraint(mixed(), mixed().size).states == 2


def test_what_is_too_large_is_refused_or_left_to_engines() -> None:
    doubling = 'root ::= r20\nr0 ::= "ab"\n' + "\n".join(f"r{n} ::= r{n - 1} r{n - 1}" for n in range(1, 21))
    with pytest.raises(BudgetExceeded, match="more than 20000 characters where every rule is written out"):
        processors.load(("grammar", {"grammar": doubling, "engine": "table"}))
    with pytest.raises(UnsupportedGrammar, match="The engine 'table' reads GBNF"):
        processors.load(("grammar", {"grammar": 'start: "a"\n', "engine": "table"}))
