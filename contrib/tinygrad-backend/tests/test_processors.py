"""Built-in processors run on tensors of tinygrad, and the reference model gives the logits that it gives on NumPy."""

import os
import shutil

import numpy as np
import pytest

pytest.importorskip("tinygrad", reason="the library is not installed")
if shutil.which(os.environ.get("CC", "clang")) is None:
    pytest.skip("tinygrad's CPU device needs the compiler clang", allow_module_level=True)

from logitloom import Context, load_backend, processors
from logitloom_contrib.llama import random_model
from logitloom_plugins.conformance import combinators
from logitloom_plugins.conformance import processors as suites

SUITES = [getattr(module, name) for module in (suites, combinators) for name in module.__all__]


@pytest.mark.parametrize("suite", SUITES, ids=[suite.__name__ for suite in SUITES])
def test_a_processor_gives_what_it_gives_on_numpy(suite):
    """The first case, over three steps; each step is a few new kernels, so not all cases are tried."""
    case, told = next(iter(suite.cases)), suite()
    results = []
    for backend in (load_backend("numpy"), load_backend("tinygrad")):
        chain, stories = told.chain(case, backend), told.stories(case)[:2]
        run = told.run(chain, backend, stories)
        results.append([np.array(backend.to_numpy(run.step())) for _ in range(3)])
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def logits_of(model):
    prompts = np.array([[1, 2, 3], [4, 5, -1]], dtype=np.int32)
    first, cache = model.forward(prompts, model.empty_cache(2))
    second, _ = model.forward(np.array([[7], [8]], dtype=np.int32), cache)
    return [model.backend.to_numpy(first), model.backend.to_numpy(second)]


def test_the_reference_model_gives_the_logits_that_it_gives_on_numpy():
    for found, expected in zip(logits_of(random_model("tinygrad")), logits_of(random_model("numpy")), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_states_are_computed_after_each_step():
    """A state that waits would hold the graph of all steps before it."""
    backend = load_backend("tinygrad")
    chain = processors.load(("frequency_penalty", {"penalty": 1.0}), ("no_repeat_ngram", {"n": 2}))
    context = Context.start(backend.asarray(np.zeros((1, 8), dtype=np.float32)), prompt=[[1]], max_length=40)
    state, sizes = chain.init_state(context), []
    for token in range(6):
        logits = backend.asarray(np.zeros((1, 8), dtype=np.float32))
        _, state = chain.process(logits, state, context.accept([[token]]))
        sizes.append(len(state.processors[0].table.uop.toposort()))
    assert len(set(sizes[2:])) == 1
