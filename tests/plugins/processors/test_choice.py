"""``choice``: texts are exactly the choices, each reachable by every way to split it into tokens."""

from __future__ import annotations

from enum import Enum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Backend, Vocabulary, load_backend, processors
from logitloom.automata import Catalogue, TokenAutomaton
from logitloom.automata.catalogues.catalogue_constraints import TextCatalogue
from logitloom.errors import LogitloomError, OptionError
from logitloom.rows.tree import take
from tests.plugins.processors.constraining import WIDTH, WORDS, begin, step


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


# --- more choices than tables hold ------------------------------------------------------------------------------------


@given(
    st.sets(st.sampled_from(["a", "ab", "abc", "12", "123", "é", "日本", "foo", "foobar", "Z Z", "[a]"]), min_size=1)
)
def test_the_texts_of_a_catalogue_are_the_choices(choices: set[str]) -> None:
    spec = ("choice", {"choices": Catalogue.of_texts(choices)})
    assert reachable(load_backend("numpy"), spec) == {choice.encode() for choice in choices}


@pytest.mark.parametrize("value", [len, int, Enum("Flag", []), [["a"]], ["a", [1]], [[1.5]]])
def test_what_is_no_list_of_choices_is_refused(value: object) -> None:
    with pytest.raises(OptionError, match="Option 'choices' of 'choice'"):
        processors.load(("choice", {"choices": value}), tokenizer=WORDS)


def test_long_lists_become_catalogues() -> None:
    few, many = [f"{n}" for n in range(4096)], [f"{n}" for n in range(4097)]
    small, large = (processors.load(("choice", {"choices": texts}), tokenizer=WORDS)["choice"] for texts in (few, many))
    assert isinstance(small.constraint(WORDS, WIDTH), TokenAutomaton)
    assert isinstance(large.constraint(WORDS, WIDTH), TextCatalogue)
    assert (small.compilable, large.compilable) == (True, False)
    long = ["a" * 60_000, "b" * 60_000]
    assert not processors.load(("choice", {"choices": long}), tokenizer=WORDS)["choice"].compilable


def test_lists_of_ids_are_followed_by_the_end(backend: Backend) -> None:
    (end,) = WORDS.eos
    chain, context, at = begin(backend, ("choice", {"choices": [[5, 6], [5, 7, 5], [8]]}))
    first, at = step(backend, chain, at, context)
    second, at = step(backend, chain, at, context, [[5]])
    third, _ = step(backend, chain, at, context, [[6]])
    assert (first, second, third) == ([{5, 8}], [{6, 7}], [{end}])


def test_lists_may_hold_ids_that_only_the_logits_have() -> None:
    """A padded model has more ids than its tokenizer, and a vocabulary without all bytes is checked at load."""
    words = Vocabulary([b"", b"a"], eos=[0])
    chain = processors.load(("choice", {"choices": [[1, 3]]}), tokenizer=words)
    assert chain["choice"].constraint(words, 4).start() == (0, 1, 0)


def test_end_of_sequence_is_no_part_of_a_choice() -> None:
    with pytest.raises(LogitloomError, match="Leave end-of-sequence out of the items"):
        begin(load_backend("numpy"), ("choice", {"choices": [[5, WORDS.eos[0]]]}))


def test_beams_over_thousands_of_choices_write_only_choices() -> None:
    dice = np.random.default_rng(7)
    texts = {bytes(row).decode() for row in dice.integers(97, 100, size=(5000, 12), dtype=np.uint8)}
    backend = load_backend("numpy")
    chain, context, state = begin(backend, ("choice", {"choices": sorted(texts)}), rows=32)
    allowed, state = step(backend, chain, state, context)
    written: list[list[int]] = [[] for _ in allowed]
    done = set()
    for _ in range(14):
        taken = [[int(dice.choice(sorted(ids)))] for ids in allowed]
        for row, (token,) in enumerate(taken):
            done |= {row} if token in WORDS.eos else set()
            written[row] += [] if row in done else [token]
        parents = dice.permutation(32)
        allowed, state = step(backend, chain, state, context, taken)
        allowed, state = [allowed[p] for p in parents], take(state, parents)
        written, done = [list(written[p]) for p in parents], {row for row, p in enumerate(parents) if p in done}
        allowed = [ids or {-1} for ids in allowed]
    assert done
    for row in range(32):
        text = WORDS.text_bytes(written[row]).decode()
        assert text in texts if row in done else any(other.startswith(text) for other in texts)
