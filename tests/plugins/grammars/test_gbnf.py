"""Reading GBNF: what it means, and where the text is wrong."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from logitloom import processors
from logitloom.errors import UnsupportedGrammar
from logitloom_plugins.grammars.context_free import pruned, unnested
from logitloom_plugins.grammars.gbnf import parse_gbnf
from tests.cases import examples
from tests.core.automata.vocabularies import mixed
from tests.plugins.grammars.languages import BRACKETS, NODES, are_brackets, language

WRONG: list[tuple[str, int, int, str]] = [
    ('root ::= "a" foo', 1, 14, "'foo' is named here, but defined nowhere"),
    ('root ::= "a" (', 1, 14, "never closed"),
    ('root ::= ("a"\n | "b"\nx ::= "c"', 3, 1, "all brackets before it closed"),
    ('root ::= "a" )', 1, 14, "never opened"),
    ("root ::= [z-a]", 1, 11, "behind its end"),
    ("root ::= [a-z", 1, 10, "never closed"),
    ('root ::= "a', 1, 10, "never closed"),
    ('root ::= "a\n"', 1, 10, "never closed"),
    ('# one\nroot ::= "\\q"', 2, 11, "escape is unknown"),
    ('root ::= "\\x4"', 1, 11, "escape is unknown"),
    ('root ::= "\\ud800"', 1, 11, "no character"),
    ('root ::= "\\U00110000"', 1, 11, "no character"),
    ('root ::= "a"{3,1}', 1, 13, "contradict"),
    ('root ::= "a"{x}', 1, 13, "{m}, {m,} or {m,n}"),
    ('root ::= "a"{9999999999}', 1, 13, "too large"),
    ("root ::= *", 1, 10, "repeats what stands before"),
    ("root ::= <think>", 1, 10, "Tokens"),
    ('root ::= "a"\n  "b"', 2, 3, "A rule (name ::= ...) is expected"),
    ('root ::= "a"\nroot ::= "b"', 2, 1, "second time"),
    ('root := "a"', 1, 1, "A rule (name ::= ...) is expected"),
    ("root ::= 'a'", 1, 10, "double quotes"),
    ("root ::= " + 101 * "(", 1, 110, "nested deeper"),
]


@pytest.mark.parametrize(("text", "line", "column", "reason"), WRONG)
def test_errors_show_line_column_and_a_caret(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(UnsupportedGrammar, match=re.escape(reason)) as error:
        parse_gbnf(text)
    assert (error.value.line, error.value.column) == (line, column)
    first, shown, caret = str(error.value).rsplit("\n", 2)
    assert first.startswith(f"Line {line}, column {column} of the grammar: ")
    wrong = text.split("\n")[line - 1]
    at = len(caret) - 5
    assert caret == " " * (at + 4) + "^"
    assert shown[4:][at : at + 5] == wrong[column - 1 : column + 4]


def test_a_missing_start_names_the_rules_that_there_are() -> None:
    with pytest.raises(UnsupportedGrammar, match="no rule 'root' to start from; it has a, b"):
        parse_gbnf('a ::= "x"\nb ::= "y"')
    assert language(parse_gbnf('a ::= "x"\nb ::= "y"', start="b"), "xy", 2) == {"y"}


SAME: list[tuple[str, str, str]] = [
    ('root ::= "a" | "b"', 'root ::=\n  "a"  # first\n  | "b"\n# end', "ab"),
    ('root ::= ("a" "b")*', 'root ::= (\n "a" # c\n\n "b"\n)*', "ab"),
    ('root ::= "aab"', 'root ::= "\\x61"{2} x-1\nx-1 ::= "\\u0062"', "ab"),
    ("root ::= [ab-]", "root ::= [a-b\\-]", "ab-"),
    ("root ::= [b-d]", "root ::= [db-c]", "abcd"),
    ("root ::= [^b]", "root ::= [ac]", "abc"),
    ('root ::= [\\]"\\\\]', 'root ::= "]" | "\\"" | "\\\\"', ']"\\'),
    ('root ::= "a"{2,}', 'root ::= "a" "a"+', "a"),
    ('root ::= "a"{0} "b"', 'root ::= "b"', "ab"),
    ('root ::= "a"{1,2}', 'root ::= "a" "a"?', "a"),
    ('root ::= "a" |', 'root ::= "a"?', "a"),
    ('root ::= "abc"*', 'root ::= ("a" "b" "c")*', "abc"),
    ("root ::= .", "root ::= [\\x00-\\U0010FFFF]", "a\n日"),
    ('root ::= "a"\r\n\r\n', 'root ::= "a"', "a"),
]


@pytest.mark.parametrize(("left", "right", "letters"), SAME)
def test_two_ways_to_write_one_language(left: str, right: str, letters: str) -> None:
    texts = language(parse_gbnf(left), letters, 5)
    assert texts == language(parse_gbnf(right), letters, 5)
    assert texts


def test_the_judge_itself_knows_brackets() -> None:
    texts = language(parse_gbnf(BRACKETS), "()[]", 6)
    assert len(texts) == 1 + 2 + 8 + 40  # Catalan numbers times two kinds of brackets
    assert all(map(are_brackets, texts))


def test_classes_hold_no_surrogates() -> None:
    rules = parse_gbnf("root ::= [\\uD7FF-\\uE000]\nx ::= [^a]").rules
    assert rules["root"].ranges == ((0xD7FF, 0xD7FF), (0xE000, 0xE000))
    assert rules["x"].ranges == ((0, 0x60), (0x62, 0xD7FF), (0xE000, 0x10FFFF))


def test_long_lines_are_shown_in_part() -> None:
    with pytest.raises(UnsupportedGrammar) as error:
        parse_gbnf("root ::= " + '"ab" ' * 400 + "nowhere")
    *_, shown, caret = str(error.value).split("\n")
    assert len(shown) < 120
    assert shown[len(caret) - 1 :] == "nowhere"


@given(root=NODES, one=NODES, other=NODES)
@examples(100)
def test_repetitions_within_repetitions_are_taken_away_and_no_text_is(root: str, one: str, other: str) -> None:
    grammar = pruned(parse_gbnf(f'root ::= ({root} | x)* | (y | "b"+ | ({one})+)+ "a"\nx ::= {one} | y\ny ::= {other}'))
    assert language(unnested(grammar), "ab", 5) == language(grammar, "ab", 5)


@pytest.mark.extras
def test_runs_of_plain_text_among_tags_may_be_long() -> None:
    """Each character could begin another run, which the engine gave up after a hundred."""
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    words = mixed()
    text = 'root ::= "<p>" part+ "</p>"\npart ::= "<b>" part* "</b>" | text\ntext ::= [^<>&]+ | "&lt;" | "&amp;"'
    made = processors.load(("grammar", {"grammar": text, "max_items": 5_000}), tokenizer=words)["grammar"]
    bound = made.constraint(words, words.size)
    single = {each: token for token, each in reversed([*enumerate(words.token_bytes)])}
    state = bound.start()
    for byte in b"<p>" + b"plain text " * 30 + b"<b>" + b"bold &lt; " * 30 + b"</b></p>":
        assert single[bytes([byte])] in bound.allowed(state)
        state = bound.advance(state, single[bytes([byte])])
    assert bound.may_end(state)
