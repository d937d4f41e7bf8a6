"""What engines that do not tell how far an end is say where the number of tokens is limited."""

from __future__ import annotations

from typing import Any

import pytest

from logitloom import load_backend, processors
from logitloom.errors import OptionError
from logitloom.generation import Generator
from tests.core.automata.vocabularies import mixed
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
    cut = rf"may be cut at the limit of 6 tokens.* {engine} does not tell.*finish_within=0"
    with pytest.warns(UserWarning, match=cut):
        generated(name)
    with pytest.raises(OptionError, match=rf"within 5. The engine {engine} does not tell how far the end"):
        generated(name, finish_within=5)
    generated(name, finish_within=0)  # no warning


def test_the_refusal_of_a_limit_says_how_a_grammar_gets_one() -> None:
    with pytest.raises(OptionError, match=r"Write the grammar in GBNF"):
        generated("a Lark grammar", finish_within=9)
