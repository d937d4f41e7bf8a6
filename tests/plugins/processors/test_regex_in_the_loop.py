"""``regex`` in the decoding loop: what an error tells, and forced tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from logitloom import load_backend, processors
from logitloom.errors import IllegalToken, NoLegalToken
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial
from tests.oracles.toy_model import ToyModel
from tests.plugins.processors.constraining import WIDTH, WORDS

SINGLE = {WORDS.token_bytes[t]: t for t in range(2, 258)}
PROMPTS = [[300], [301, 302]]


@dataclass(frozen=True)
class Insists:
    """A sampler that does not look at the logits: letters ``a``, then in row 1 a digit."""

    samples: int = 1

    def choose(self, backend: Any, logits: Any, seeds: Any, lengths: Any) -> Any:
        picked = [SINGLE[b"1"] if n == 4 else SINGLE[b"a"] for n in backend.to_numpy(lengths)]
        return backend.asarray(np.asarray(picked, dtype=np.int32)), backend.asarray(np.zeros(len(picked), np.float32))


def generator(*specs: Any, strategy: Any = None, **more: Any) -> Generator:
    chain = processors.load(*specs, tokenizer=WORDS)
    model = ToyModel(load_backend("numpy"), WIDTH, seed=2)
    return Generator(model, chain, strategy or Greedy(), max_tokens=12, **more)


@pytest.mark.parametrize("skip", [True, False])
def test_an_illegal_token_names_row_processor_and_the_text_so_far(skip: bool) -> None:
    made = generator(("regex", {"pattern": "[a-z]{8}"}), strategy=Insists(), skip_forced=skip)
    with pytest.raises(IllegalToken, match=r"Sequence 1 after 'aa1'.*regex: row 1 accepted token \d+ \('1'\)") as error:
        made(PROMPTS)
    assert error.value.row == 1


def test_a_row_without_a_legal_token_names_row_processor_and_the_text_so_far() -> None:
    everything = {"tokens": [t for t, text in enumerate(WORDS.token_bytes) if b"1" in text]}
    made = generator(("regex", {"pattern": "ab1"}), ("suppress_tokens", everything))
    with pytest.raises(
        NoLegalToken,
        match=r"'suppress_tokens' contradict each other: together they left row 0 .* after 'ab'",
    ):
        made(PROMPTS[:1])


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(3), BeamSearch(3, samples=3)])
@pytest.mark.parametrize("pattern", [r"[ab]{2,4}-\d\d", "(foobar|日本é)(12|Z)", "a{12}b?|é{1,3}"])
def test_every_finished_text_matches(strategy: Any, pattern: str) -> None:
    for found in generator(("regex", {"pattern": pattern}), strategy=strategy)(PROMPTS, seed=1):
        assert found.finish == "length" or re.fullmatch(pattern, found.text or "")


@pytest.mark.parametrize("longest", [False, True])
def test_greedy_text_is_the_same_whether_forced_tokens_skip_the_model(longest: bool) -> None:
    spec = ("regex", {"pattern": "[ab](foobar1|12--Z)[ab]foo", "longest_tokens": longest})
    skipping, asking = generator(spec), generator(spec, skip_forced=False)
    assert [g.tokens for g in skipping(PROMPTS)] == [g.tokens for g in asking(PROMPTS)]
    assert skipping.model.calls <= asking.model.calls  # type: ignore[attr-defined]
    if longest:
        assert skipping.model.calls < asking.model.calls  # type: ignore[attr-defined]
        assert all(g.forced > 0 for g in skipping(PROMPTS))
