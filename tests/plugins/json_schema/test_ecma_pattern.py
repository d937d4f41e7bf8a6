"""Patterns as JSON Schema means them: found anywhere, with quantifiers that cost no more states than they must."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import pytest

from logitloom.automata import Budget
from logitloom.errors import BudgetExceeded, UnsupportedPattern
from logitloom_plugins.json_schema.folds.machine import accepts
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from logitloom_plugins.json_schema.values.ecma_pattern import compile_ecma, counted_length

jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")

pytestmark = pytest.mark.extras

TEXTS = ["".join(letters) for n in range(5) for letters in itertools.product("ab{", repeat=n)]
ITEMS = ["a", "[ab]", "(ab)", "(?:a|b)", "(a|ba)", ".", r"\{", "(?:b{2})", "((a+b)*)", "[{]", "[^a]"]
QUANTIFIERS = ["", "", "*", "+", "{1,3}", "{0,2}", "{2,}", "?", "+?", "{1,2}?", "{2}"]


@pytest.mark.parametrize("seed", range(8))
def test_random_patterns_are_found_where_re_finds_them(seed: int) -> None:
    rnd = random.Random(seed)
    for _ in range(40):
        parts = ["".join(rnd.choice(ITEMS) + rnd.choice(QUANTIFIERS) for _ in range(rnd.randint(1, 3))) for _ in "ab"]
        pattern = rnd.choice(["", "^"]) + rnd.choice([parts[0], "|".join(parts)]) + rnd.choice(["", "$"])
        oracle, found = re.compile(pattern.replace("$", r"\Z")), compile_ecma(pattern)
        for text in TEXTS:
            assert found.fullmatch(text) == (oracle.search(text) is not None), (pattern, text)


@pytest.mark.parametrize(
    "pattern", ["[a-z]{1,2048}", "^a{1,2048}", "a{3,2048}$", "(ab|c){2,2048}", "x[a-z]{1,2048}|.{9,99999}"]
)
def test_open_ends_take_no_states_for_what_may_follow_anyway(pattern: str) -> None:
    assert compile_ecma(pattern).states < 200


@pytest.mark.parametrize("pattern", ["a{5,2}", "^a{5,2}", "a{5,2}$", "^a{500,200}$", "*a", "a**"])
def test_what_is_no_pattern_is_none_at_open_ends_either(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern):
        compile_ecma(pattern)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("^[a-z][^\\n]{0,65535}$", (1, 65536)),
        ("^.{65536}$", (65536, 65536)),
        ("^a.{200}b.{0,300}$", (202, 502)),
        (r"^a{3}[b-c]{2}\d{1,200}-$", (7, 206)),
        ("^(a){1,200}$", (1, 200)),
        ("^.{1,200}?$", (1, 200)),
        ("^.{1,100}$", None),  # short
        (r"^a{1,200}\$", None),
        ("a{1,200}$", None),
        ("^a+b{1,200}$", None),
        ("^a{1,200}b{1,200}$", None),
        ("^(ab){1,200}$", None),
    ],
)
def test_one_long_repeat_between_parts_of_fixed_length_is_counted(
    pattern: str, expected: tuple[int, int] | None
) -> None:
    assert counted_length(pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"a(?=b)", "uses a look-around ('(?=' at position 1)"),
        (r"^(?!a)b(?<=c)", "uses a look-around ('(?<=' at position 7)"),
        (r"(a)\1", r"Pattern '(a)\1': the back-reference '\\1' is not regular. Write the pattern without it."),
        (r"\p{Emoji}", r"Pattern '\p{Emoji}': the property of characters '\\p{Emoji}' is not known here."),
        *[
            (
                rf"\p{{{name}}}",
                rf"Pattern '\p{{{name}}}': the property of characters '\\p{{{name}}}' is not known here.",
            )
            for name in ("anything=Lu", "=Lu", "sc=gc=Lu", "sc=Lu", "gc=Latin", "gc=ASCII", "Lz", "gc=Lx")
        ],
        (r"(?x: a)", "Pattern '(?x: a)': the group '(?x:' is not known here."),
        ("[z-a]", "Pattern '[z-a]' is no valid regular expression: bad character range"),
        ("(a", "Pattern '(a' is no valid regular expression: missing ), unterminated subpattern. Correct the pattern."),
        ("^" + "a{1,999}b" * 9, None),
    ],
)
def test_errors_quote_the_pattern_as_it_was_written(pattern: str, text: str | None) -> None:
    if text is None:
        with pytest.raises(BudgetExceeded) as caught:
            compile_ecma(pattern, Budget(states=50))
        text = f"Compiling pattern '{pattern[:57]}...' takes more than 50"
    else:
        with pytest.raises(UnsupportedPattern) as caught:
            compile_ecma(pattern)
    assert text in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        (r"a+\n", ["a\n", "xaa\ny"], ["a"]),
        (r"^\\w*" + "\n$", ["\\\n", "\\ww\n"], ["\\w", "\\w\n\n"]),
        ("(?i)^[^a]$", ["b", "B"], ["a", "A"]),
        (r"^[\s-x]$", ["-", "x", "\ufeff", "\u2028"], ["a", "_"]),
        (r"^\u{1F600}[\ud83d\ude01-\ud83d\ude03]\cJ\x41$", ["\U0001f600\U0001f602\nA"], ["\U0001f600\U0001f605\nA"]),
        (r"^[]|[^]{3}$", ["abc", "\n\n\n", "abcd"], ["ab"]),
        (r"^(?=.*b)(?!.*c)a", ["ab", "axb"], ["a", "abc", "b"]),
        (r"^\p{Lu}\P{Lu}[\p{Greek}_]$", ["Aaα", "É__"], ["aaα", "AAα", "Aaa"]),
        (r"^\p{gc=Lu}\P{General_Category=Uppercase_Letter}$", ["Aa"], ["AA"]),
        (r"^\p{LC}\P{Cased_Letter}\p{Currency_Symbol}$", ["ǅª€", "a1$", "A_£"], ["ªa€", "aA€", "a1+"]),
        (r"^\p{sc=Greek}\p{Script=Greek}\p{scx=Greek}\P{Script_Extensions=Greek}$", ["αααa"], ["αααα"]),
    ],
)
def test_what_ecma_writes_otherwise_than_python(pattern: str, found: list[str], not_found: list[str]) -> None:
    automaton = compile_ecma(pattern)
    assert [text for text in (*found, *not_found) if automaton.fullmatch(text)] == found


@pytest.mark.parametrize("negated", [False, True])
def test_counted_repeats_accept_what_the_pattern_matches(negated: bool) -> None:
    pattern = "^x[a-cé]{2}[^0-9]{3,300}-$"
    schema = {"type": "string", "pattern": pattern}
    machine = compile_schema({"type": "string", "not": schema} if negated else schema)
    middles = ["", "a", "--", "€" * 3, "y" * 300, "y" * 301, "1" * 9]
    for text in ["", *(start + middle + end for start in ("xab", "xéc", "yab") for middle in middles for end in "-y")]:
        matches = re.search(pattern, text) is not None
        assert accepts(machine, json.dumps(text, ensure_ascii=False)) == (matches != negated), text


LONG = {"pattern": "^[a-z]{1,300}$"}


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [LONG], "maxLength": 200},
        {"allOf": [LONG, {"anyOf": [LONG, {"pattern": "^1"}]}]},
        {"allOf": [LONG, {"pattern": "^[^b]{2,400}$"}]},
        {"allOf": [LONG, {"anyOf": [{"minLength": 1, "maxLength": 300, "pattern": "b"}, {"pattern": "^a"}]}]},
        {"oneOf": [LONG, {"pattern": "^[a-z]{1,5000}$"}]},
        {"anyOf": [LONG, {"pattern": "^[0-9]{200,5000}$"}]},
        {"not": LONG},
        {"if": LONG, "then": {"maxLength": 2}, "else": {"pattern": "^1"}},
        {**LONG, "enum": ["a", "b" * 200, "b" * 301, "1"]},
    ],
)
def test_counted_repeats_beside_other_keywords(schema: dict[str, Any]) -> None:
    schema = {"type": "string", **schema}
    machine, judge = compile_schema(schema), jsonschema.Draft202012Validator(schema)
    for text in [letter * n for letter in "ab1" for n in (0, 1, 2, 3, 199, 200, 201, 300, 301, 400, 401)] + [
        "ab",
        "ba",
    ]:
        assert accepts(machine, json.dumps(text)) == judge.is_valid(text), (schema, text)


def test_a_repeat_of_many_thousand_characters_compiles() -> None:
    machine = compile_schema({"type": "string", "pattern": "^[^\\n\\r]{1,65535}$"})
    assert accepts(machine, json.dumps("a" * 65535))
    assert not accepts(machine, json.dumps("a" * 65536))
    assert not accepts(machine, '""')


def test_a_pattern_is_compiled_once_however_its_arguments_are_given() -> None:
    once = compile_ecma("^x{0,7}[ab]$")
    assert compile_ecma("^x{0,7}[ab]$", None) is once
    assert compile_ecma("^x{0,7}[ab]$", None, False) is once
