"""What engines say about limits of tokens where they cannot tell how far an end is, and masks that they give up."""

from __future__ import annotations

from typing import Any

import pytest

from logitloom import load_backend, processors
from logitloom.constraints import Constraint
from logitloom.errors import BudgetExceeded, OptionError
from logitloom.generation import Generator
from tests.core.automata.vocabularies import mixed, smollm2
from tests.oracles.toy_model import ToyModel

pytestmark = pytest.mark.extras

LARK = 'start: NAME ("," NAME)*\nNAME: /[a-z]+/\n%ignore " "'
SPECS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a schema on llguidance": ("llguidance", "json", {"schema": {"type": "integer"}, "engine": "llguidance"}),
    "a schema on xgrammar": ("xgrammar", "json", {"schema": {"type": "integer"}, "engine": "xgrammar"}),
    "a Lark grammar": ("llguidance", "grammar", {"grammar": LARK}),
}


def generated(name: str, **options: Any) -> list[Any]:
    engine, processor, own = SPECS[name]
    pytest.importorskip(engine, reason=f"the package {engine} is not installed")
    model: Any = ToyModel(load_backend("numpy"), mixed().size, seed=3)
    return list(Generator(model, processors.load((processor, own | options), tokenizer=mixed()), max_tokens=6)([[5]]))


@pytest.mark.parametrize("name", SPECS)
def test_engines_say_that_they_cannot_keep_to_a_limit(name: str) -> None:
    engine = SPECS[name][0]
    cut = rf"may be cut at the limit of 6 tokens.* {engine} does not tell.*'finish_within' of \w+ to 0"
    with pytest.warns(UserWarning, match=cut):
        generated(name)
    with pytest.raises(OptionError, match=rf"within 5. The engine {engine} does not tell how far the end"):
        generated(name, finish_within=5)
    generated(name, finish_within=0)  # no warning


def test_the_refusal_of_a_limit_says_how_a_grammar_gets_one() -> None:
    with pytest.raises(OptionError, match=r"Write the grammar in GBNF"):
        generated("a Lark grammar", finish_within=9)


def overlapping(beginning: str) -> str:
    """A grammar of two hundred terminals that begin alike, behind other texts."""
    text = f"start: {beginning} (" + " | ".join(f"A{number}" for number in range(200)) + ")\n"
    bodies = (f"[a-z]*[0-9]*{'abcdefghij'[at % 10]}{{1,{at + 1}}}[a-z]{{{at + 5}}}y" for at in range(200))
    return text + "\n".join(f"A{number}: /{body}/" for number, body in enumerate(bodies))


def constraint_of(text: str, **options: Any) -> Constraint:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    processor: Any = processors.load(("grammar", {"grammar": text, **options}), tokenizer=smollm2())["grammar"]
    return processor.constraint(smollm2(), smollm2().size)  # type: ignore[no-any-return]


@pytest.mark.long
def test_where_a_mask_takes_too_much_work_bytes_are_allowed() -> None:
    words = smollm2()
    single = {text[0]: token for token, text in reversed([*enumerate(words.token_bytes)]) if len(text) == 1}
    text = overlapping('"(" ')
    given, whole = constraint_of(text), constraint_of(text, max_items=5_000_000)
    state: Any = given.start()
    other: Any = whole.start()
    assert given.allowed(state).listed(words.size).tolist() == whole.allowed(other).listed(words.size).tolist()
    state, other = given.advance(state, single[ord("(")]), whole.advance(other, single[ord("(")])
    with pytest.warns(UserWarning, match=r"Only tokens of one byte are allowed there.* 'max_items' above 50000"):
        given.allowed(state)
    for byte in b"ab1":
        wanted = [token for token in whole.allowed(other).listed(words.size) if len(words.token_bytes[token]) == 1]
        assert given.allowed(state).listed(words.size).tolist() == wanted
        assert given.may_end(state) is whole.may_end(other) is False
        state, other = given.advance(state, single[byte]), whole.advance(other, single[byte])


def test_a_grammar_whose_first_mask_takes_too_much_work_is_refused_before_decoding() -> None:
    with pytest.raises(BudgetExceeded, match=r"Too much is possible at this place .* raise max_items above 50000"):
        constraint_of(overlapping(""))
