"""``choice``: texts are exactly the choices, each reachable by every way to split it into tokens."""

from __future__ import annotations

from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Backend, load_backend, processors
from logitloom.errors import LogitloomError, OptionError
from tests.plugins.processors.constraining import WORDS, begin, step


class Colour(Enum):
    RED = "ab"
    DEEP_RED = "abc"
    TWELVE = 12


def reachable(backend: Backend, spec: object) -> set[bytes]:
    """All texts that can be written, by following every allowed token."""
    chain, context, at = begin(backend, spec)
    texts: set[bytes] = set()
    seen: set[bytes] = set()
    todo: list[tuple[int, ...]] = [()]
    while todo:
        tokens = todo.pop()
        (allowed,), _ = step(backend, chain, at, context, [list(tokens)])
        text = WORDS.text_bytes(tokens)
        if allowed & set(WORDS.eos):
            texts.add(text)
        for token in allowed - set(WORDS.eos):
            longer = text + WORDS.token_bytes[token]
            if longer not in seen:
                seen.add(longer)
                todo.append((*tokens, token))
    return texts


@given(
    st.sets(st.sampled_from(["a", "ab", "abc", "12", "123", "é", "日本", "foo", "foobar", "Z Z", "[a]"]), min_size=1)
)
def test_the_texts_are_the_choices(choices: set[str]) -> None:
    spec = ("choice", {"choices": sorted(choices)})
    assert reachable(load_backend("numpy"), spec) == {choice.encode() for choice in choices}


def test_an_enum_class_gives_its_values(backend: Backend) -> None:
    assert reachable(backend, ("choice", {"choices": Colour})) == {b"ab", b"abc", b"12"}


def test_the_same_chain_can_be_used_twice() -> None:
    backend = load_backend("numpy")
    chain, context, at = begin(backend, ("choice", {"choices": ["ab", "12"]}))
    first = step(backend, chain, at, context)[0]
    step(backend, chain, at, context, [[sorted(first[0])[0]]])
    assert step(backend, chain, chain.init_state(context), context)[0] == first


def test_an_empty_choice_may_end_at_once() -> None:
    assert reachable(load_backend("numpy"), ("choice", {"choices": ["", "a"]})) == {b"", b"a"}


class NoColour(Enum):
    pass


@pytest.mark.parametrize("choices", [[], NoColour])
def test_no_choices_are_an_error(choices: object) -> None:
    with pytest.raises(OptionError, match=r"at least one text|no strings|empty"):
        processors.load(("choice", {"choices": choices}))


def test_something_else_than_texts_is_an_error() -> None:
    with pytest.raises(LogitloomError, match="choices"):
        processors.load(("choice", {"choices": 5}))
