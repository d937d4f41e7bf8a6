"""Cutting grammars into lexemes: large where that is exact, and never larger."""

from __future__ import annotations

import pytest

from logitloom_plugins.grammars.context_free import pruned
from logitloom_plugins.grammars.gbnf import parse_gbnf
from logitloom_plugins.grammars.lexemes import lexed
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


def test_the_lexemes_of_a_large_grammar_are_found() -> None:
    keywords = [f"key{i}word" for i in range(60)]
    text = "root ::= " + " | ".join(f'"{word}"' for word in keywords) + ' | "(" root ("," root)* ")"'
    assert count(text) == 4
    assert len(to_lark(lexed(pruned(parse_gbnf(text)))).splitlines()) == 6


def test_repetitions_too_large_to_compare_are_cut() -> None:
    assert count('root ::= "(" root ")" | [a-z]{0,100000}') == 3
