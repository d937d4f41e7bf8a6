"""Warnings name the line of the program that called the library."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from logitloom import Context, Vocabulary, processors
from logitloom.display.warning import warn
from logitloom.errors import LogitloomWarning

VOCABULARY = Vocabulary([bytes([byte]) for byte in range(256)] + [b""], eos=[256])


def _chain_of(*asked):
    """Load a chain and begin a generation, as a program's own helper would."""
    chain = processors.load(*asked, tokenizer=VOCABULARY)
    return chain.init_state(
        Context.start(np.zeros((1, 257), np.float32), prompt=[[65]], vocabulary=VOCABULARY, max_length=9)
    )


@pytest.mark.parametrize(
    "asked",
    [
        ("json", {"schema": {"propertes": {}}}),
        ("json", {"schema": '{"type": "object", "type": "object"}'}),
        ("json", {"schema": {"type": "array", "contains": {"const": 1}, "uniqueItems": True}, "strict": False}),
        ("dry", {"multiplier": 1.0, "breakers": ["two letters"]}),
    ],
    ids=["a misspelt keyword", "a repeated key", "a keyword without support", "breakers of no token"],
)
def test_a_warning_names_the_line_outside_of_the_library(asked):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        _chain_of(asked)
    places = {(each.filename, each.category) for each in found}
    assert places == {(__file__, LogitloomWarning)}
    assert {each.lineno for each in found} < {_chain_of.__code__.co_firstlineno + line for line in range(1, 4)}


def test_a_warning_without_a_program_above_the_library_is_given_all_the_same():
    names = {"__name__": "logitloom_elsewhere", "warn": warn}
    with pytest.warns(LogitloomWarning, match="Alone"):
        exec("warn('Alone.')", names)
