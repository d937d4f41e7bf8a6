from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from logitloom.errors import NeedsNotMet
from logitloom_contrib.engines.vllm.misplaced import require_right_key, watch
from logitloom_contrib.engines.vllm.vllm_processor import LogitloomProcessor
from tests.contrib.engines.vllm.conftest import one, params_of


class FakeRequest:
    """What vLLM's request classes have: fields that they do not know are kept, and parameters made of the others."""

    def __init__(self, vllm_xargs: Any = None, **unknown: Any) -> None:
        self.vllm_xargs, self.model_extra = vllm_xargs, unknown

    def to_sampling_params(self, most: int) -> str:
        return f"sampling {most}"

    def to_beam_search_params(self, most: int) -> str:
        return f"beams {most}"


@pytest.fixture
def request_class(monkeypatch: pytest.MonkeyPatch) -> Any:
    own = type("ChatCompletionRequest", (FakeRequest,), dict(vars(FakeRequest)))
    name = "vllm.entrypoints.openai.chat_completion.protocol"
    module = ModuleType(name)
    module.ChatCompletionRequest = own  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("LOGITLOOM_VLLM_SHARED", "")
    for _ in range(2):  # vLLM may call its plug-ins several times
        watch()
    return own


CHAIN = one("regex", pattern="a")


def test_requests_with_a_chain_in_its_place_and_without_pass(request_class: Any) -> None:
    for request in (request_class(), request_class({"logitloom": CHAIN}), request_class({"other": 1}, think="yes")):
        assert request.to_sampling_params(3) == "sampling 3"
    assert request_class({"other": 1}).to_beam_search_params(4) == "beams 4"


@pytest.mark.parametrize("key", ["logitloom", "logit_loom", "LogitLoom", "logitsloom", "logitlom"])
def test_a_chain_at_the_top_of_a_request_is_refused(request_class: Any, key: str) -> None:
    for method in ("to_sampling_params", "to_beam_search_params"):
        with pytest.raises(NeedsNotMet, match="which vLLM ignores.*vllm_xargs"):
            getattr(request_class(**{key: CHAIN}), method)(3)


def test_a_chain_in_a_beam_search_is_refused(request_class: Any) -> None:
    with pytest.raises(NeedsNotMet, match="does not hand on vllm_xargs.*Leave out use_beam_search"):
        request_class({"logitloom": CHAIN}).to_beam_search_params(3)


@pytest.mark.parametrize("key", ["logit_loom", "LogitLoom", "logitsloom", "logitlom", "loom_logit"])
def test_a_misspelt_key_is_refused(request_class: Any, key: str) -> None:
    if key == "loom_logit":  # not like it: somebody else's
        return require_right_key([key])
    with pytest.raises(NeedsNotMet, match=f"'{key}'.*Write 'logitloom'"):
        request_class({key: CHAIN}).to_sampling_params(3)
    with pytest.raises(NeedsNotMet, match=f"'{key}'.*Write 'logitloom'"):
        LogitloomProcessor.validate_params(params_of(**{key: CHAIN}))
