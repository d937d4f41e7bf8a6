"""``stop_repetition``: the oracle splits the last tokens into groups and compares them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Context, Vocabulary, load_backend, processors
from logitloom.errors import OptionError
from logitloom.generation import Generator
from logitloom.host.hookspecs import TextEnd
from tests.oracles.toy_model import ToyModel

EOS, SPECIAL = 0, 4
WORDS = Vocabulary([b"", b"a", b"bb", b"ccc", b""], eos=[EOS], special=[SPECIAL])
options = st.fixed_dictionaries(
    {"times": st.integers(2, 3), "shortest": st.integers(1, 2), "longest": st.integers(2, 4),
     "keep": st.none() | st.integers(1, 2)}
)  # fmt: skip


def begin(given_options: dict[str, Any], rows: int = 1) -> tuple[Any, Context]:
    chain = processors.load(("stop_repetition", given_options), tokenizer=WORDS)
    logits = np.zeros((rows, WORDS.size), dtype=np.float32)
    return chain, Context.start(logits, vocabulary=WORDS)


def repeated(tokens: list[int], asked: dict[str, Any]) -> int:
    """The size of the group of which the last tokens are equal copies; 0 for none."""
    for size in range(asked["shortest"], asked["longest"] + 1):
        last = tokens[-size * asked["times"] :]
        groups = [last[n : n + size] for n in range(0, len(last), size)]
        if len(last) == size * asked["times"] and all(group == groups[0] for group in groups):
            return size
    return 0


@given(asked=options, tokens=st.lists(st.sampled_from([1, 2, 3, SPECIAL]), max_size=14))
def test_the_text_ends_after_so_many_equal_groups(asked: dict[str, Any], tokens: list[int]) -> None:
    chain, context = begin(asked)
    written = [token for token in tokens if token != SPECIAL]
    ends = [n for n in range(1, len(written) + 1) if repeated(written[:n], asked)]
    (found,) = chain.text_ends(chain.init_state(context), context.accept([tokens])) or []
    logits = np.zeros((1, WORDS.size), dtype=np.float32)
    masked, _ = chain.process(logits, chain.init_state(context), context.accept([tokens]))
    if not ends:
        assert not found.finished
        assert np.isfinite(masked).all()
        return
    size = repeated(written[: ends[0]], asked)
    gone = (asked["times"] - (asked["keep"] or asked["times"])) * size
    assert found == TextEnd(True, len(WORDS.text_bytes(written[ends[0] - gone :])))
    assert np.flatnonzero(np.isfinite(masked[0])).tolist() == [EOS]


@given(asked=options, tokens=st.lists(st.sampled_from([1, 2, 3]), max_size=14))
def test_what_may_be_cut_is_held_back(asked: dict[str, Any], tokens: list[int]) -> None:
    """What was not held when a token came belongs to the text at its end."""
    chain, context = begin(asked)
    shown = 0
    for n in range(1, len(tokens) + 1):
        (found,) = chain.text_ends(chain.init_state(context), context.accept([tokens[:n]])) or []
        length = len(WORDS.text_bytes(tokens[:n])) - found.hold
        assert length >= shown
        if found.finished:
            break
        shown = length


def test_a_loop_ends_rows_and_streams_agree() -> None:
    model = ToyModel(load_backend("numpy"), vocab=WORDS.size, seed=1)
    endless = "logit_bias", {"bias": {EOS: -100.0, SPECIAL: -100.0}}
    chain = processors.load(endless, ("stop_repetition", {"times": 2, "keep": 1}), tokenizer=WORDS)
    made = Generator(model, chain, max_tokens=30)
    prompts = [[1], [2, 3], [3, 1, 1]]
    found = made(prompts)
    assert {g.finish for g in found} == {"stop"}
    for g in found:
        size = repeated(list(g.tokens), {"times": 2, "shortest": 1, "longest": 64})
        assert (g.text or "").encode() == WORDS.text_bytes(g.tokens[: len(g.tokens) - size])
    texts = dict.fromkeys(range(3), "")
    for piece in made.stream(prompts):
        texts[piece.prompt] += piece.text
    assert list(texts.values()) == [g.text for g in found]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"shortest": 3, "longest": 2}, "'shortest' of 'stop_repetition' is 3"), ({"times": 2, "keep": 3}, "'keep' of")],
)
def test_options_that_contradict_each_other_are_refused(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        processors.load(("stop_repetition", wrong))
