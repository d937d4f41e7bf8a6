"""The suite of the kit, and texts: those of the engine are those of logitloom's own loop."""

import pytest

pytest.importorskip("logitloom_tiny_engine", reason="this distribution is not installed")
from logitloom_tiny_engine import to_tiny_engine
from logitloom_tiny_engine.conformance import *  # noqa: F403
from logitloom_tiny_engine.engine import Engine, Request

from logitloom import Vocabulary, errors, load_backend, processors
from logitloom.generation import Generator
from logitloom.testing import ToyModel

WORDS = Vocabulary([*(bytes([97 + i]) for i in range(11)), b""], eos=[11])
PROMPTS = [[1, 2, 3], [4, 5], [6], [1, 2, 3, 4], [4, 5]]

CHAINS = {
    "penalties": [("frequency_penalty", {"penalty": 1.5}), ("no_repeat_ngram", {"n": 2})],
    "prompt": [("repetition_penalty", {"penalty": 1.8})],
    "constraint": [("regex", {"pattern": "(ab|c)*[d-k]{3,}"})],
}


@pytest.mark.parametrize("chain", CHAINS)
def test_texts_are_those_of_our_own_loop(chain):
    model = ToyModel(load_backend("numpy"), vocab=12)
    loaded = processors.load(*CHAINS[chain], tokenizer=WORDS)
    alone = [Generator(model, loaded, max_tokens=7)([prompt])[0] for prompt in PROMPTS]
    engine = Engine(model.row_logits)
    to_tiny_engine(loaded, engine)
    requests = [Request(prompt, len(found.tokens)) for prompt, found in zip(PROMPTS, alone, strict=True)]
    engine.run(requests)
    assert [request.output for request in requests] == [list(found.tokens) for found in alone]


def test_what_the_engine_cannot_run_is_refused():
    engine = Engine(lambda ids: None)
    with pytest.raises(errors.NeedsNotMet, match="The tiny engine may rebuild a row"):
        to_tiny_engine(processors.load("mirostat"), engine)
    with pytest.raises(errors.NeedsNotMet, match="The tiny engine takes one branch|feeds one branch"):
        to_tiny_engine(processors.load(("cfg", {"form": "one_pass"})), engine)
