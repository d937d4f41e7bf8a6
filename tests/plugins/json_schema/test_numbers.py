"""Numbers in the forms in which programs print very large and very small ones."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from logitloom import Vocabulary, processors
from logitloom.automata import Budget, BudgetTracker, minimize
from logitloom_plugins.json_schema.folds.machine import accepts
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.values.numbers import _multiples, states_of_multiples

SCHEMAS: list[dict[str, Any]] = [
    {"minimum": 0},
    {"maximum": 10},
    {"exclusiveMinimum": 0},
    {"exclusiveMaximum": 0},
    {"minimum": -5, "maximum": 1000},
    {"type": "integer"},
    {"type": "integer", "maximum": -3},
]


def holds(schema: dict[str, Any], text: str) -> bool:
    value = Decimal(text)
    # Whole numbers are written without digits after the point.
    if schema.get("type") == "integer" and ("." in text or value != value.to_integral_value()):
        return False
    return (
        value >= schema.get("minimum", value)
        and value <= schema.get("maximum", value)
        and (value > schema["exclusiveMinimum"] if "exclusiveMinimum" in schema else True)
        and (value < schema["exclusiveMaximum"] if "exclusiveMaximum" in schema else True)
    )


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("mantissa", ["1", "-7", "2.5", "-1.25"])
@pytest.mark.long
def test_every_exponent_that_is_printed_is_read(schema: dict[str, Any], mantissa: str) -> None:
    machine = compile_schema({"type": "number", **schema}, SchemaOptions(integers="any"))
    for exponent in [*range(0, 330), 999, 1000, 3070]:
        for sign, least in (("+", 16), ("-", 5)):
            for digits in (f"{exponent}", f"{exponent:02}", f"{exponent:04}"):
                text = f"{mantissa}e{sign}{digits}"
                expected = least <= exponent <= 307 and holds(schema, text)
                assert accepts(machine, text) == expected, text


LISTED: list[dict[str, Any]] = [
    {"enum": [0, 1, 10, 0.5, 0.05, 0.50001, -2, -2.50, 100.0]},
    {"type": "integer", "enum": [0, 1, 10, 0.5, -2]},
    {"type": "integer", "minimum": -3, "maximum": 12},
    {"type": "integer", "multipleOf": 0.5, "exclusiveMaximum": 10},
    {"type": "number", "not": {"enum": [1, 0.5]}, "maximum": 11},
    {"type": "number", "anyOf": [{"const": 1}, {"enum": [2, 0.5]}, {"minimum": 4, "maximum": 10}]},
    {"type": "number", "anyOf": [{"type": "integer"}, {"minimum": 0.75, "maximum": 10}]},
    {"type": "number", "oneOf": [{"enum": [1, 2, 0.5]}, {"enum": [2, 3]}]},
    {"type": ["integer", "null"]},
]


def is_valid(schema: dict[str, Any], value: Decimal) -> bool:
    """What the keywords say of a number, without an automaton."""
    if schema.get("type") in ("integer", ["integer", "null"]) and value != value.to_integral_value():
        return False
    wanted = {Decimal(str(number)) for number in schema.get("enum", [schema.get("const", 0)])}
    branches = [is_valid(branch, value) for branch in schema.get("anyOf", schema.get("oneOf", ()))]
    return (
        (value in wanted or not {"enum", "const"} & schema.keys())
        and value >= schema.get("minimum", value)
        and value <= schema.get("maximum", value)
        and (value < schema.get("exclusiveMaximum", value + 1))
        and not value % Decimal(str(schema.get("multipleOf", 1) if "multipleOf" in schema else value or 1))
        and not ("not" in schema and is_valid(schema["not"], value))
        and ("anyOf" not in schema or any(branches))
        and ("oneOf" not in schema or sum(branches) == 1)
    )


def plain(value: Decimal) -> str:
    return str(int(value)) if value == value.to_integral_value() else f"{value.normalize():f}"


@pytest.mark.parametrize("schema", LISTED, ids=str)
@pytest.mark.parametrize("integers", ["plain", "any"])
def test_each_valid_number_can_be_written_and_no_other(schema: dict[str, Any], integers: str) -> None:
    machine = compile_schema(schema, SchemaOptions(integers=integers))
    digits = ["0", "1", "2", "3", "7", "10", "12", "100", "1000"]
    texts = [f"{sign}{whole}" for sign in ("", "-") for whole in digits]
    texts += [f"{text}.{rest}" for text in texts for rest in ("0", "5", "50", "05", "50001", "500010", "500", "75")]
    for text in texts:
        value = Decimal(text)
        may_be_written = integers == "any" or text.removeprefix("-") == plain(abs(value))
        if accepts(machine, text):
            assert is_valid(schema, value), text
        elif may_be_written and not ("." in text and value == value.to_integral_value() and text[-2:] != ".0"):
            assert not is_valid(schema, value), text


@pytest.mark.parametrize(
    "schema", [{"type": "integer"}, {"enum": [2023]}, {"const": 2023.0}, {"type": ["integer", "null"]}]
)
def test_integers_are_written_without_fraction_and_exponent_unless_asked_for(schema: dict[str, Any]) -> None:
    texts = ("2023", "2023.0", "2.023e3")
    assert [accepts(compile_schema(schema), text) for text in texts] == [True, False, False]
    as_json_schema = compile_schema(schema, SchemaOptions(integers="any"))
    assert [accepts(as_json_schema, text) for text in texts] == [True, True, False]


def test_a_number_that_is_no_integer_in_draft_4_keeps_its_fraction() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "enum": [1.0], "not": {"type": "integer"}}
    machine = compile_schema(schema)
    assert [accepts(machine, text) for text in ("1", "1.0", "1.00")] == [False, True, True]


WHOLE = ("1", "7", "12", "75", "1000", "3600", "4096", "86400", "1e30")
FACTORS = (*WHOLE, "0.01", "0.07", "0.3", "2.5", "0.0625", "33.75")


@pytest.mark.parametrize("sign", [1, -1])
def test_integers_of_many_digits_are_read_to_the_last_digit(sign: int) -> None:
    large = sign * 7**40
    for schema in ({"enum": [large, 1]}, {"minimum": large, "maximum": large, "type": "integer"}):
        read = [number for number in range(large - 20, large + 20) if accepts(compile_schema(schema), str(number))]
        assert read == [large]


@pytest.mark.parametrize("factor", FACTORS)
def test_multiples_are_read_in_the_fewest_states(factor: str) -> None:
    """Against division: digits of multiples and of their neighbours, with zeros after the point and without."""
    unit = Fraction(factor)
    dfa = _multiples(unit, BudgetTracker(Budget(), "multiples"))
    for number in [*range(120), 999, 10**6, 10**9 - 1]:
        for value in (unit * number, unit * number + 1, unit * number + Fraction(1, 8), Fraction(number)):
            digits = f"{value.numerator * 10**12 // value.denominator:013}"
            whole, fraction = digits[:-12], digits[-12:].rstrip("0")
            for text in [f"{whole}.{fraction}"] if fraction else [whole, f"{whole}.0", f"{whole}.000"]:
                assert dfa.fullmatch(text) == (value % unit == 0), text
    # Two more states: numbers that no digits complete, and numbers with an exponent.
    assert dfa.states <= states_of_multiples(unit) + 2
    if unit.denominator == 1:
        assert minimize(dfa).states == dfa.states == states_of_multiples(unit) + 2


def test_large_round_multiples_are_taken_within_bounds() -> None:
    machine = compile_schema({"type": "integer", "multipleOf": 86400, "minimum": 0, "maximum": 10**10})
    assert [accepts(machine, text) for text in ("0", "86400", "172800", "86401", "-86400", "100000051200")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


def test_a_list_of_numbers_takes_states_as_its_digits_do() -> None:
    machine = compile_schema({"type": "integer", "enum": [*range(10_000)]})
    numbers = machine.values.number(machine.values.of_type(machine.root, "number"))
    assert numbers.states <= 1 + 2 + 10_000 + 1000 + 100 + 10
    assert accepts(machine, "9999")
    assert not accepts(machine, "10000")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("json", {"schema": {"type": "integer"}}),
        (
            "tool_call",
            {
                "tools": [
                    {
                        "name": "f",
                        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
                    }
                ],
                "format": "hermes",
            },
        ),
    ],
)
def test_the_option_goes_through_what_writes_json(name: str, options: dict[str, Any]) -> None:
    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    texts = {"json": "1.0", "tool_call": '<tool_call>\n{"name": "f", "arguments": {"n": 1.0}}\n</tool_call>'}
    for integers in ("plain", "any"):
        own = {**options, "integers": integers} if name == "json" else {**options, "json": {"integers": integers}}
        chain = processors.load((name, own), tokenizer=words)
        constraint = chain[name].constraint(words, words.size)
        state = constraint.start()
        for byte in texts[name].encode():
            state = constraint.advance(state, byte + 1) if state is not None else None
        assert (state is not None) == (integers == "any")
