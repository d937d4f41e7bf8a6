"""Cutting grammars into lexemes: large where that is exact, and never larger."""

from __future__ import annotations

import random
import re
from itertools import product

import pytest

from logitloom.automata import BudgetTracker
from logitloom_plugins.grammars.context_free import Chars, pruned
from logitloom_plugins.grammars.gbnf import parse_gbnf
from logitloom_plugins.grammars.lexemes import _Cutting, lexed
from logitloom_plugins.grammars.notation import to_lark
from tests.plugins.grammars.languages import REGULAR


def count(text: str) -> int:
    return len(lexed(pruned(parse_gbnf(text))).lexemes)


@pytest.mark.parametrize("label", [label for label, (text, _) in REGULAR.items() if "root " not in text[6:]])
def test_without_recursion_there_is_one_lexeme(label: str) -> None:
    assert count(REGULAR[label][0]) == 1


@pytest.mark.parametrize(
    ("text", "lexemes"),
    [
        ('root ::= "(" root ")" | [a-z]* "end"', 3),  # what follows is a bracket, so the longest match is right
        ('root ::= "(" root "e" | [a-z]* "end"', 5),  # one by one: ( e n d and a-z
        ('root ::= "let" root | [a-z]+', 4),
        ('root ::= "let " root | [A-Z]+', 2),
        ('root ::= "[" (text ("," text)*)? "]" | "<" root ">"\ntext ::= "\\"" [^"]* "\\""', 3),
        ('root ::= "a" root "a" | ""', 1),
    ],
)
def test_lexemes_are_as_large_as_is_exact(text: str, lexemes: int) -> None:
    assert count(text) == lexemes


#: Bodies of lexemes over ``a`` and ``b`` that share texts, begin one another, or do neither.
BODIES = ('"a"', '"ab"', '"abb"', '"a" "b"*', '"a"+', "[ab]{2}", '("ab")+', '"b" [a-c]', '"é"', '[é-ü]+ "a"', '"bé"')
TEXTS = ["".join(text) for size in range(1, 6) for text in product("abcéü", repeat=size)]


@pytest.mark.parametrize("seed", range(12))
def test_lexemes_are_compared_as_their_texts_are(seed: int) -> None:
    dice = random.Random(seed)
    bodies = dice.sample(BODIES, 5)
    grammar = pruned(parse_gbnf("root ::= " + " | ".join(f"{body} root" for body in bodies) + ' | "."'))
    cutting = _Cutting(grammar, frozenset({"root"}), set(), {}, BudgetTracker(subject="the grammar"))
    count = len(cutting.lexemes)
    following = [set(dice.sample(range(count), 2)) for _ in range(count)]
    same, longer = cutting._compared([sum(1 << each for each in after) for after in following])
    matched = [re.compile(cutting._pattern(node)).fullmatch for node in cutting.lexemes]
    of = [{text.encode() for text in TEXTS if match(text)} for match in matched]
    beginnings = [{text[:size] for text in texts for size in range(1, len(text) + 1)} for texts in of]
    heads = [{text[:1] for j in following[i] for text in of[j]} for i in range(count)]
    pairs = [*product(range(count), repeat=2)]
    assert same == {(i, j) for i, j in pairs if i != j and of[i] & of[j]}
    assert longer == {
        (i, j)
        for i, j in pairs
        if not isinstance(cutting.lexemes[j], Chars)
        and any(text + head in beginnings[j] for text in of[i] for head in heads[i])
    }


def test_many_words_stay_whole() -> None:
    words = [f"{i:03}" for i in range(700)]
    text = 'root ::= "(" root ")" | ' + " | ".join(f'"word {word}"' for word in words)
    assert count(text) == 702


def test_the_lexemes_of_a_large_grammar_are_found() -> None:
    keywords = [f"key{i}word" for i in range(60)]
    text = "root ::= " + " | ".join(f'"{word}"' for word in keywords) + ' | "(" root ("," root)* ")"'
    assert count(text) == 4
    assert len(to_lark(lexed(pruned(parse_gbnf(text)))).splitlines()) == 6


def test_repetitions_too_large_to_compare_are_cut() -> None:
    assert count('root ::= "(" root ")" | [a-z]{0,100000}') == 3
