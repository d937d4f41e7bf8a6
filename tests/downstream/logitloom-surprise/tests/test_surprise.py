"""The suite of the kit, the formula, and what the sampler is for."""

import math

import numpy as np
import pytest

pytest.importorskip("logitloom_surprise", reason="this distribution is not installed")
from logitloom_surprise.conformance import *  # noqa: F403

from logitloom import Context, errors, load_backend, processors
from logitloom.engines import bind
from logitloom.generation import Generator, Multinomial
from logitloom.testing import ToyModel


def test_the_limit_follows_what_was_chosen():
    chain = processors.load(("surprise_control", {"target": 2.0, "rate": 0.5}))
    logits = np.zeros((2, 4), dtype=np.float32)
    context = Context.start(logits)
    _, state = chain.process(logits, chain.init_state(context), context)
    told = context.accept([[1], []], chosen_logprob=[[-3.0 * math.log(2.0)], []])
    _, state = chain.process(logits, state, told)
    np.testing.assert_allclose(state.processors[0], [4.0 - 0.5 * (3.0 - 2.0), 4.0], rtol=1e-6)


@pytest.mark.parametrize("target", [1.0, 2.5])
def test_the_mean_surprise_of_a_text_is_the_target(target):
    model = ToyModel(load_backend("numpy"), vocab=64)
    chain = processors.load(("surprise_control", {"target": target}))
    (found,) = Generator(model, chain, max_tokens=200, strategy=Multinomial(), record=True)([[1, 2]], seed=3)
    bits = np.asarray([each.logprob for each in found.sampled]) / -math.log(2.0)
    assert abs(bits[40:].mean() - target) < 0.35


def test_an_engine_that_does_not_tell_the_probability_refuses_it():
    with pytest.raises(errors.NeedsNotMet, match="chosen_logprob"):
        bind(processors.load("surprise_control"), "some engine", {"every_step"})
