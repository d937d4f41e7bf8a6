"""Catalogues against brute force, for texts and lists of ids: exactly the tokens that begin some item are allowed."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata import Catalogue, TokenAutomaton, catalogue_constraint, choice
from logitloom.automata.catalogues import catalogue_constraints
from logitloom.constraints import Constraint
from logitloom.errors import OptionError, VocabularyError
from logitloom.testing import ConstraintConformance
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.combinators import FinishWithin

#: Without a token for each byte: "d" occurs only in "cd", so some texts and some states are dead ends.
GAPS = Vocabulary([b"", b"a", b"b", b"c", b"ab", b"cd", b"abc", b"a"], eos=[0], special=[], name="gaps")
BYTES = Vocabulary([b"", *(bytes((byte,)) for byte in range(256)), b"ab", b"bca", b"ca"], eos=[0], name="bytes")
WIDTH = 270

TEXTS = st.lists(st.text("abcd", max_size=5), min_size=1, max_size=40)
IDS = st.lists(st.lists(st.integers(1, 9), max_size=4), min_size=1, max_size=40)


def writable(text: bytes, vocabulary: Vocabulary) -> int | None:
    """The fewest tokens that write a text, by trying every split."""
    fewest: list[int | None] = [0]
    for end in range(1, len(text) + 1):
        parts = [fewest[begin] for begin in range(end) if text[begin:end] in vocabulary.token_bytes]
        fewest.append(min((n + 1 for n in parts if n is not None), default=None))
    return fewest[-1]


def walks(constraint: Constraint, most: int = 300) -> list[tuple[list[int], object]]:
    """The sequences of allowed tokens with the states after them, the shorter first."""
    found: list[tuple[list[int], object]] = [([], constraint.start())]
    for tokens, state in found:
        if len(found) > most:
            break
        for token in constraint.allowed(state).listed(constraint.vocab_size).tolist():
            after = constraint.advance(state, token)
            assert after is not None
            found.append(([*tokens, token], after))
    return found


@pytest.mark.parametrize("small", [0, 32], ids=["level by level", "one by one"])
@pytest.mark.parametrize("vocabulary", [GAPS, BYTES], ids=["gaps", "bytes"])
@given(texts=TEXTS)
def test_a_token_is_allowed_if_its_bytes_begin_what_is_left_of_a_text(
    vocabulary: Vocabulary, small: int, texts: list[str]
) -> None:
    items = Catalogue.of_texts(texts)
    wanted = [text.encode() for text in set(texts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue_constraints, "_SMALL_INTERVAL", small)
        if all(writable(text, vocabulary) is None for text in wanted):
            with pytest.raises(VocabularyError, match="No sequence of tokens"):
                catalogue_constraint(items, vocabulary, WIDTH)
            return
        constraint = catalogue_constraint(items, vocabulary, WIDTH)
        for tokens, state in walks(constraint, 60):
            text = vocabulary.text_bytes(tokens)
            rests = [other[len(text) :] for other in wanted if other.startswith(text)]
            left = [rest for rest in rests if writable(rest, vocabulary) is not None]
            expected = [
                token
                for token, piece in enumerate(vocabulary.token_bytes)
                if piece and any(writable(rest[len(piece) :], vocabulary) is not None for rest in left_of(rests, piece))
            ]
            assert constraint.allowed(state).listed(WIDTH).tolist() == expected
            assert constraint.may_end(state) == (text in wanted)
            least = min((writable(rest, vocabulary) for rest in left), default=None)
            found = constraint.least_tokens(state)
            assert (found is None) == (least is None)
            assert found == least if small else found >= least
            for token in range(1, WIDTH):
                assert (constraint.advance(state, token) is not None) == (token in expected)


def left_of(rests: list[bytes], piece: bytes) -> list[bytes]:
    return [rest for rest in rests if rest.startswith(piece)]


@given(rows=IDS)
def test_an_id_is_allowed_if_it_comes_next_in_a_list(rows: list[list[int]]) -> None:
    vocabulary = Vocabulary([b"", b"a", *[b""] * 8], eos=[0], special=range(2, 10))
    for width in (10, 16):
        constraint = catalogue_constraint(Catalogue.of_ids(rows), vocabulary, width)
        for tokens, state in walks(constraint):
            rests = [row[len(tokens) :] for row in rows if row[: len(tokens)] == tokens]
            assert constraint.allowed(state).listed(width).tolist() == sorted({rest[0] for rest in rests if rest})
            assert constraint.may_end(state) == ([] in rests)
            assert constraint.least_tokens(state) == min(map(len, rests))
            everyone = Constraint.least_after(constraint, state)
            assert [array.tolist() for array in constraint.least_after(state)] == [array.tolist() for array in everyone]
            for token in range(1, width):
                assert (constraint.advance(state, token) is not None) == any(rest[:1] == [token] for rest in rests)


@given(texts=TEXTS, tokens=st.integers(1, 6))
def test_texts_in_time_are_those_of_the_tables(texts: list[str], tokens: int) -> None:
    found = []
    for inner in (
        catalogue_constraint(Catalogue.of_texts(texts), BYTES, WIDTH),
        TokenAutomaton(choice(texts), BYTES, WIDTH),
    ):
        try:
            limited = FinishWithin(inner, tokens)
        except ValueError as error:
            # A catalogue counts by its shortest items in bytes, so its message says "about".
            found.append(str(error).replace("about ", ""))
            continue
        found.append([(taken, limited.may_end(state), limited.forced(state)) for taken, state in walks(limited, 100)])
    assert found[0] == found[1]


def test_a_large_list_allows_only_what_begins_its_items() -> None:
    dice = np.random.default_rng(3)
    texts = [bytes(row).decode() for row in dice.integers(97, 102, size=(6000, 9), dtype=np.uint8)]
    constraint = catalogue_constraint(Catalogue.of_texts(texts), BYTES, WIDTH)
    for _ in range(30):
        state, text = constraint.start(), b""
        while len(ids := constraint.row(state)):
            token = int(dice.choice(ids))
            if token == 0:
                break
            state, text = constraint.advance(state, token), text + BYTES.token_bytes[token]
        assert text.decode() in texts


@pytest.mark.exhaustive
def test_a_million_items_and_256_rows() -> None:
    dice = np.random.default_rng(5)
    rows = dice.integers(1, 257, size=(1_000_000, 4))
    items = Catalogue.of_ids(rows)
    known = set(map(tuple, rows.tolist()))
    assert len(items) == len(known)
    assert items.nbytes <= 20 * len(items) + 4
    constraint = catalogue_constraint(items, BYTES, WIDTH)
    for _ in range(256):
        state, taken = constraint.start(), []
        while not constraint.may_end(state):
            taken.append(int(dice.choice(constraint.row(state))))
            state = constraint.advance(state, taken[-1])
        assert tuple(taken) in known
        assert constraint.row(state).tolist() == [0]


# --- the list itself --------------------------------------------------------------------------------------------------


@given(rows=IDS)
def test_items_are_sorted_and_distinct(rows: list[list[int]]) -> None:
    items = Catalogue.of_ids(rows)
    assert [items.item(index) for index in range(len(items))] == sorted(map(list, set(map(tuple, rows))))
    assert items == Catalogue.of_ids(reversed(rows))
    assert items == pickle.loads(pickle.dumps(items))


def test_an_array_of_ids_is_taken_as_it_is() -> None:
    assert Catalogue.of_ids(np.array([[3, 70000], [3, 1]])) == Catalogue.of_ids([[3, 70000], [3, 1]])


def test_texts_and_ids_differ() -> None:
    assert Catalogue.of_texts(["a"]) != Catalogue.of_ids([[97]])
    assert repr(Catalogue.of_texts(["a", "bc"])) == "Catalogue(2 texts, 15 bytes)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Catalogue.of_texts([]), "needs at least one item"),
        (lambda: Catalogue.of_texts(["\ud800"]), "half a surrogate pair"),
        (lambda: Catalogue.of_ids([[1, -1]]), "holds -1; ids are integers from 0"),
        (lambda: Catalogue.of_ids([[1 << 31]]), "holds 2147483648; ids are"),
        (lambda: Catalogue.of_ids(np.array([[0.5]])), "holds 0.5; ids are"),
    ],
    ids=["no items", "surrogate", "negative", "large", "no integer"],
)
def test_what_is_no_catalogue_is_refused(make, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


@pytest.mark.parametrize(
    ("items", "width", "message"),
    [
        (Catalogue.of_ids([[1, 0]]), 270, "holds the id 0, which is end-of-sequence"),
        (Catalogue.of_ids([[270]]), 270, "holds the id 270, .* not below vocab_size=270"),
        (Catalogue.of_ids([[1]]), 9, "vocab_size=9 is less than the 260 ids"),
        (Catalogue.of_texts(["a"]), 9, "vocab_size=9 is less than the 260 ids"),
    ],
    ids=["end", "wide", "narrow ids", "narrow texts"],
)
def test_items_must_fit_the_vocabulary(items: Catalogue, width: int, message: str) -> None:
    with pytest.raises(VocabularyError, match=message):
        catalogue_constraint(items, BYTES, width)


class TestCatalogues(ConstraintConformance):
    cases = {  # noqa: RUF012 - read only
        "texts": Catalogue.of_texts(["abc", "ab", "bcab", "cab", ""]),
        "many texts": Catalogue.of_texts([f"{n}" for n in range(300)]),
        "ids": Catalogue.of_ids([[1, 2], [1, 2, 3], [5, 1, 200], [5, 2]]),
    }

    def constraint(self, case: str) -> Constraint:
        return catalogue_constraint(self.cases[case], BYTES, WIDTH)
