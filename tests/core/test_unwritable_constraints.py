"""A constraint that no text of a vocabulary satisfies is refused when the chain is made, if the tokenizer is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, processors
from logitloom.errors import LogitloomError, VocabularyError

#: Texts of a, b and c alone.
FEW = Vocabulary([b"", b"a", b"b", b"ab", b"c"], eos=[0], name="three letters")
BYTES = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0], name="all bytes")
CONSTRAINTS: dict[str, Any] = {
    "regex": {"pattern": "[a-c]x"},
    "lazy regex": {"pattern": "[a-c]{0,400}x[a-c]{0,400}x"},
    "choice": {"choices": ["x", "yz"]},
    "json": {"schema": {"enum": ["a"]}, "engine": "table"},
    "until": {"trigger": "x", "inner": ["regex", {"pattern": "a+"}]},
    "after": {"trigger": "a", "inner": ["regex", {"pattern": "x"}], "required": True},
}


def name_of(case: str) -> str:
    return case.rpartition(" ")[2]


@pytest.mark.parametrize("case", CONSTRAINTS)
def test_what_cannot_be_written_is_refused_when_the_chain_is_made(case: str) -> None:
    spec = (name_of(case), CONSTRAINTS[case])
    with pytest.raises(VocabularyError) as refused:
        processors.load(spec, tokenizer=FEW)
    # Without a tokenizer it cannot be known, and it is said as soon as there is one.
    chain = processors.load(spec)
    with pytest.raises(VocabularyError) as later:
        chain.configure(tokenizer=FEW)
    assert str(later.value) == str(refused.value)
    context = Context.start(np.zeros((1, FEW.size), dtype=np.float32), vocabulary=FEW)
    with pytest.raises(VocabularyError) as last:
        chain.init_state(context)
    assert str(last.value) == str(refused.value)
    assert FEW.name in str(refused.value)


@pytest.mark.parametrize("case", CONSTRAINTS)
def test_the_same_loads_where_every_byte_is_a_token(case: str) -> None:
    chain = processors.load((name_of(case), CONSTRAINTS[case]), tokenizer=BYTES)
    context = Context.start(np.zeros((1, BYTES.size), dtype=np.float32), vocabulary=BYTES)
    chain.init_state(context)


def test_a_combinator_of_processors_that_are_no_constraints_is_checked_too() -> None:
    inner = {"trigger": "a", "inner": [["regex", {"pattern": "x+"}], ["temperature", {"temperature": 0.5}]]}
    with pytest.raises(LogitloomError, match="three letters|no token"):
        processors.load(("after", inner), tokenizer=FEW)


def test_what_can_be_written_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = processors.load(("regex", {"pattern": "(ab)+c"}), tokenizer=FEW)
    made = chain["regex"].memory(Context.start(np.zeros((1, FEW.size), dtype=np.float32), vocabulary=FEW))
    monkeypatch.setattr(type(chain["regex"]), "constraint", None)
    again = chain.configure(tokenizer=FEW)
    assert again["regex"].memory(Context.start(np.zeros((1, FEW.size), dtype=np.float32), vocabulary=FEW)) is made
