"""A distribution from elsewhere is discovered, loaded by name and chained, like the built-ins.

The environment variable ``LOGITLOOM_EXPECT_DISTRIBUTIONS`` (names separated by spaces) states what the environment
promises to have installed: a promised distribution that is missing fails, any other one skips.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import pytest

from logitloom import Context, Vocabulary, processors
from logitloom.document import from_document, to_document
from logitloom.rows import tree as state

EXPECT_VARIABLE = "LOGITLOOM_EXPECT_DISTRIBUTIONS"
DISTRIBUTION = "logitloom-length-ramp"
PROMISED = os.environ.get(EXPECT_VARIABLE, "").split()
VOCABULARY = Vocabulary([b"a", b"b", b"", b"c"], eos=[2])


@pytest.fixture(autouse=True)
def _installed():
    try:
        version(DISTRIBUTION)
    except PackageNotFoundError:
        if DISTRIBUTION in PROMISED:
            pytest.fail(f"{EXPECT_VARIABLE} promises {DISTRIBUTION}, but it is not installed", pytrace=False)
        pytest.skip(f"{DISTRIBUTION} is not installed; pip install --no-deps ./contrib/example-processor")


@pytest.mark.parametrize("name", PROMISED)
def test_promised_distributions_are_installed(name):
    assert version(name)


def test_it_is_discovered_from_metadata_alone():
    record = next(r for r in processors.available() if r.name == "length_ramp")
    assert (record.distribution, record.version) == (DISTRIBUTION, version(DISTRIBUTION))
    assert record.value == "logitloom_length_ramp:LengthRamp"


def test_it_is_loaded_by_name_and_described():
    assert [o.name for o in processors.describe("length_ramp").options] == ["target", "strength", "start", "eos"]
    assert processors.load(("length_ramp", {"target": 3})).labels == ("length_ramp",)
    assert "logitloom_length_ramp" in sys.modules


def test_it_is_chained_with_builtins():
    chain = processors.load(
        ("length_ramp", {"target": 2, "start": 0.0, "strength": 8.0}),
        ("temperature", {"temperature": 0.5}),
        ("top_k", {"k": 1}),
        tokenizer=VOCABULARY,
    )
    logits = np.array([[0.0, 3.0, 0.0, 1.0]] * 2, dtype=np.float32)
    context = Context.start(logits, prompt=[[0], [1]])
    lived = chain.init_state(context)
    first, lived = chain.process(logits, lived, context)
    assert first.argmax(axis=1).tolist() == [1, 1]
    second, lived = chain.process(logits, lived, context.accept([[1, 1], [1]]))
    assert second.argmax(axis=1).tolist() == [2, 2]
    np.testing.assert_allclose(second[:, 2], [16.0, 8.0])
    swapped, _ = chain.process(logits, state.take(lived, [1, 0]), context.accept([[], []]))
    np.testing.assert_allclose(swapped[:, 2], [8.0, 16.0])


def test_it_stands_in_chain_documents():
    chain = processors.load(("length_ramp", {"target": 5, "eos": [2]}), "temperature")
    document = to_document(chain)
    assert document["processor"][0] == {"use": "length_ramp", "options": {"target": 5, "eos": [2]}}
    assert to_document(from_document(document)) == document


def test_it_can_be_blocked_and_replaced():
    from logitloom import errors

    with pytest.raises(errors.PluginBlocked):
        processors.load("length_ramp", block=["length_ramp"])
    processors.register("length_ramp", lambda logits: logits, replace=True)
    try:
        assert processors.describe("length_ramp").options == ()
    finally:
        processors.unregister("length_ramp")
    assert processors.describe("length_ramp").options


def test_it_runs_on_every_backend(backend):
    chain = processors.load(("length_ramp", {"target": 2, "start": 0.0, "strength": 8.0, "eos": [2]}))
    host = np.array([[0.0, 3.0, 0.0, 1.0]] * 2, dtype=np.float32)
    logits = backend.asarray(host)
    context = Context.start(logits)
    out, _ = chain.process(logits, chain.init_state(context), context.accept([[1], [1, 1]]))
    np.testing.assert_allclose(
        backend.to_numpy(out), host + np.array([[0, 0, 4, 0], [0, 0, 8, 0]], np.float32), rtol=1e-6
    )
    assert type(out) is type(logits)
