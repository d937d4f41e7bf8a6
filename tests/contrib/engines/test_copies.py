"""Every adapter can be copied and pickled, before and after it was called; the copies pass the kit as it does."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from logitloom import processors
from logitloom.host.registry import available
from logitloom.testing import EngineConformance
from logitloom.testing.engine import Follow
from logitloom_contrib import conformance
from logitloom_contrib.engines.vllm import to_vllm
from tests.contrib.engines.conftest import VOCABULARY, WIDTH, encode, tensor

pytestmark = pytest.mark.extras

SUITES: dict[str, type[EngineConformance]] = {
    suite.engine: suite
    for suite in vars(conformance).values()
    if isinstance(suite, type) and issubclass(suite, EngineConformance) and suite.engine
}
#: Adapters that return no object of their own: plain data for a request, and nothing.
PLAIN = {"vllm", "sglang"}
WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy of options": lambda made: copy.deepcopy({"logits_processor": [made]})["logits_processor"][0],
    "pickle": lambda made: pickle.loads(pickle.dumps(made)),
}


def test_each_adapter_of_this_distribution_is_tried() -> None:
    assert {record.name for record in available("engines") if record.distribution == "logitloom"} == set(SUITES)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("engine", sorted(set(SUITES) - PLAIN))
@pytest.mark.long
def test_copies_of_a_used_adapter_pass_the_kit(engine: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [record] = [record for record in available("engines") if record.name == engine]
    suite, made = SUITES[engine](), []
    module, name = record.value.split(" ")[0].split(":")
    # The suite says what is missing before its adapter is looked at.
    suite.open(processors.load(Follow(), debug=False))
    original = getattr(sys.modules[module], name)

    def used(*given: Any, **options: Any) -> Any:
        made.append(original(*given, **options))
        return made[-1]

    monkeypatch.setattr(sys.modules[module], name, used)
    suite.open(processors.load(Follow(), debug=False))([[1, 2]], np.zeros((1, 16), dtype=np.float32))
    monkeypatch.setattr(sys.modules[module], name, lambda *given, **options: WAYS[way](made[0]))
    assert WAYS[way](made[0]) is not made[0]
    suite.test_rows_that_grow_keep_their_states()
    suite.test_two_generations_do_not_meet()


def test_the_parameters_of_a_request_are_plain_data() -> None:
    given = to_vllm(processors.load(("top_k", {"k": 5})))
    assert pickle.loads(pickle.dumps(given)) == copy.deepcopy(given) == given


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_generates_what_its_original_does_and_shares_the_model(tiny_transformers: Any, way: str) -> None:
    torch = pytest.importorskip("torch")
    from logitloom_contrib.engines.transformers import to_transformers

    # A model that gave its hidden states once cannot be pickled, so this one is the test's own.
    model = tiny_transformers(seed=7)
    chain = processors.load(("regex", {"pattern": "[a-c]{3,9}"}), tokenizer=VOCABULARY)
    processor = to_transformers(chain, model)
    ids = tensor([encode("hello there")])
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 12, "do_sample": False, "num_beams": 2}
    expected = processor.generate(ids, **options)
    copied = WAYS[way](processor)
    assert torch.equal(copied.generate(ids, **options), expected)
    assert torch.equal(processor.generate(ids, **options), expected)
    if way != "pickle":
        assert copied._model is model
        assert copied.chain is chain


@pytest.mark.parametrize("way", WAYS)
def test_a_copied_tracker_replays_the_rows_that_it_is_asked_about(way: str) -> None:
    from logitloom_contrib.row_tracking import RowTracker

    chain = processors.load(("regex", {"pattern": "red"}), tokenizer=VOCABULARY)
    tracker, blank = RowTracker(chain, eos=VOCABULARY.eos), np.zeros((1, WIDTH), dtype=np.float32)
    prompt, red = encode("tel"), encode("red")
    tracker.process(blank, np.array([prompt]), prompt_lengths=[3])
    copied = WAYS[way](tracker)
    for n in (1, 2):
        ids = np.array([[*prompt, *red[:n]]])
        expected = tracker.process(blank, ids, prompt_lengths=[3])
        assert np.array_equal(copied.process(blank, ids, prompt_lengths=[3]), expected)
        assert np.isfinite(expected).sum() < WIDTH
