"""A chain beside vLLM's own constraints: refused by name where the two may leave a request no token."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from logitloom.errors import NeedsNotMet
from logitloom_contrib.engines.vllm.runner_v1 import RunnerV1
from logitloom_contrib.engines.vllm.served_engine import ServedEngine
from logitloom_contrib.requests.engine_constraints import engine_constraints, no_token_left
from tests.contrib.engines.conftest import EOS, WIDTH, encode
from tests.contrib.engines.vllm.conftest import one, params_of

DIGITS = one("regex", pattern="[0-9]{3}")
GRAMMAR = SimpleNamespace(choice=["red"], all_constraints_none=lambda: False)
NO_GRAMMAR = SimpleNamespace(all_constraints_none=lambda: True)


def asking(chain: Any, **own: Any) -> Any:
    params = params_of(chain)
    vars(params).update(own)
    return params


@pytest.mark.parametrize("chain", [DIGITS, one("bad_words", phrases=["a"]), one("min_tokens", n=4)])
def test_structured_outputs_beside_a_constraint_are_refused(engine: ServedEngine, chain: Any) -> None:
    with pytest.raises(NeedsNotMet, match=rf"structured_outputs, response_format, .*'{chain[0]['use']}'.*leave one"):
        engine.admit(asking(chain, structured_outputs=GRAMMAR))


def test_structured_outputs_beside_a_sampler_run(engine: ServedEngine) -> None:
    engine.admit(asking(one("top_k", k=4) + one("repetition_penalty", penalty=1.2), structured_outputs=GRAMMAR))
    engine.admit(asking(DIGITS, structured_outputs=NO_GRAMMAR))


def test_allowed_ids_that_cannot_begin_a_text_of_the_chain_are_refused(engine: ServedEngine) -> None:
    engine.admit(asking(DIGITS, allowed_token_ids=encode("a7")))
    engine.admit(asking(one("top_k", k=1), allowed_token_ids=encode("a")))
    with pytest.raises(NeedsNotMet, match=r"allowed_token_ids \(2, 3, 4, 5, 6, \.\.\.\) may begin.*'regex'"):
        engine.admit(asking(DIGITS, allowed_token_ids=encode("abcdefg")))
    with pytest.raises(NeedsNotMet, match=r"allowed_token_ids \(99999, -3\)"):
        engine.admit(asking(DIGITS, allowed_token_ids=[99_999, -3]))


@pytest.mark.extras
@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, "Processors regex, bad_words contradict each other"),
        ({"min_tokens": 4}, "the chain (regex, bad_words) and the request's min_tokens together"),
    ],
)
def test_a_request_without_a_legal_token_is_told_whose_doing_it_is(
    engine: ServedEngine, own: dict[str, Any], expected: str
) -> None:
    torch = pytest.importorskip("torch")
    chain = one("regex", pattern="a[0-9]") + one("bad_words", phrases=list("0123456789"))
    runner, output = RunnerV1(engine), encode("a")
    added = [(0, asking(chain, **own), [2], output)]
    runner.update_state(SimpleNamespace(batch_size=1, removed=[], moved=[], added=added))
    logits = runner.apply(torch.zeros(1, WIDTH))
    assert np.flatnonzero(np.isfinite(logits[0].numpy())).tolist() == [EOS]
    assert expected in str(runner.requests[0].failure)


def test_the_options_that_forbid_tokens_are_those_that_were_set() -> None:
    assert engine_constraints(SimpleNamespace(min_tokens=0, bad_words=["x"], structured_outputs=GRAMMAR)) == (
        "bad_words", "structured_outputs"
    )  # fmt: skip
    assert "request's a, b together" in no_token_left(SimpleNamespace(labels=["regex", "stop"]), ["a", "b"])  # type: ignore[arg-type]
