"""The way of vLLM's structured outputs to logitloom, with modules that stand for vLLM's."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from logitloom.errors import NeedsNotMet, OptionError
from logitloom_contrib.engines.vllm import front_door
from logitloom_contrib.engines.vllm.misplaced import watch
from logitloom_contrib.engines.vllm.served_engine import STRUCTURED_VARIABLE, ServedEngine
from logitloom_contrib.response_format import KINDS, constraint_entry
from tests.contrib.engines.conftest import VOCABULARY
from tests.contrib.engines.vllm.conftest import config_of


def engine_of(environment: dict[str, str], **own: Any) -> ServedEngine:
    return ServedEngine(config_of(additional_config=own), environment=environment, vocabulary=VOCABULARY)


@pytest.fixture
def fake_vllm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``vllm.sampling_params`` and ``vllm.v1.structured_output`` with the methods that are wrapped."""

    class SamplingParams:
        structured_outputs = None

        def _validate_structured_outputs(
            self, model_config: Any, structured_outputs_config: Any, tokenizer: Any
        ) -> Any:
            self.checked = model_config

    class StructuredOutputManager:
        def __init__(self, vllm_config: Any) -> None:
            self.backend = None

        def _create_grammar(self, request: Any) -> str:
            return f"vLLM's own of {request}"

    for name in ("vllm", "vllm.v1"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, own in (("vllm.sampling_params", SamplingParams), ("vllm.v1.structured_output", StructuredOutputManager)):
        module = ModuleType(name)
        setattr(module, own.__name__, own)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(front_door, "_missing", front_door._missing)
    monkeypatch.setenv("LOGITLOOM_VLLM_SHARED", "")
    monkeypatch.delenv(STRUCTURED_VARIABLE, raising=False)
    return SimpleNamespace(params=SamplingParams, manager=StructuredOutputManager)


@pytest.mark.parametrize(
    ("environment", "own", "expected"),
    [
        ({}, {}, False),
        ({STRUCTURED_VARIABLE: ""}, {}, False),
        ({STRUCTURED_VARIABLE: "0"}, {}, False),
        ({STRUCTURED_VARIABLE: "1"}, {}, True),
        ({}, {"structured_outputs": True}, True),
        ({STRUCTURED_VARIABLE: "1"}, {"structured_outputs": False}, False),
    ],
)
def test_the_operator_asks_for_it(environment: dict[str, str], own: dict[str, Any], expected: bool) -> None:
    engine = engine_of(environment, logitloom=own | {"seconds": 7})
    assert engine.enforces_structured_outputs is expected
    assert engine.chains.permissions.seconds == engine.structured_chains.permissions.seconds == 7
    assert engine.structured_chains.permissions.allow == engine.chains.permissions.allow | {"all_of"}


@pytest.mark.parametrize("value", ["yes", 2, None, [], {"on": 1}])
def test_a_setting_that_is_neither_on_nor_off_is_refused(value: Any) -> None:
    with pytest.raises(OptionError, match=r"'logitloom\.structured_outputs' in vLLM's additional config must be 1"):
        _ = engine_of({}, logitloom={"structured_outputs": value}).enforces_structured_outputs
    if isinstance(value, str):
        with pytest.raises(OptionError, match=STRUCTURED_VARIABLE):
            _ = engine_of({STRUCTURED_VARIABLE: value}).enforces_structured_outputs


def test_vllm_does_what_it_did_without_the_setting(fake_vllm: Any) -> None:
    for _ in range(2):  # vLLM may call its plug-ins several times
        watch()
    front_door.require_front_door(engine_of({STRUCTURED_VARIABLE: "1"}))
    params, manager = fake_vllm.params(), fake_vllm.manager(config_of())
    params._validate_structured_outputs("model", None, None)
    assert params.checked == "model"
    assert manager.backend is None
    assert manager._create_grammar("r") == "vLLM's own of r"


def test_a_request_is_refused_whose_engine_cannot_be_seen(fake_vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watch()
    params = fake_vllm.params()
    params.structured_outputs = "anything"
    params._validate_structured_outputs("model", None, None)
    assert params.checked == "model"
    monkeypatch.setenv(STRUCTURED_VARIABLE, "1")
    with pytest.raises(NeedsNotMet, match="does not show its configuration"):
        params._validate_structured_outputs("model", None, None)


def test_an_engine_whose_backend_is_named_does_not_start(fake_vllm: Any) -> None:
    watch()
    config = config_of(
        additional_config={"logitloom": {"structured_outputs": True}},
        structured_outputs_config=SimpleNamespace(backend="xgrammar"),
    )
    with pytest.raises(NeedsNotMet, match=r"names the backend 'xgrammar'.*Leave one of them out"):
        fake_vllm.manager(config)


def test_a_release_with_other_methods_is_refused_by_name(fake_vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asking, silent = engine_of({STRUCTURED_VARIABLE: "1"}), engine_of({})
    changes = {
        "_validate_structured_outputs": (fake_vllm.params, lambda self, config, tokenizer: None),
        "_create_grammar": (fake_vllm.manager, None),
        "__init__": (fake_vllm.manager, lambda self, vllm_config, executor: None),
    }
    for name, (owner, changed) in changes.items():
        with monkeypatch.context() as patch:
            if changed is None:
                patch.delattr(owner, name)
            else:
                patch.setattr(owner, name, changed)
            watch()  # nobody asked for it in the environment
            front_door.require_front_door(silent)
            expected = rf"structured outputs of this release of vLLM: vllm\..*{name} (takes|is missing)"
            with pytest.raises(NeedsNotMet, match=expected):
                front_door.require_front_door(asking)
            patch.setenv(STRUCTURED_VARIABLE, "1")
            with pytest.raises(NeedsNotMet, match=expected):
                watch()
    watch()
    front_door.require_front_door(asking)


def test_an_engine_without_the_plug_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_door, "_missing", front_door._sentence("it did not run the plug-in logitloom"))
    with pytest.raises(NeedsNotMet, match="did not run the plug-in"):
        front_door.require_front_door(engine_of({STRUCTURED_VARIABLE: "1"}))


def test_kinds_are_processors() -> None:
    texts = {"choice": '["a"]', "structural_tag": '{"type": "structural_tag"}'}
    for kind, (name, option) in KINDS.items():
        entry = constraint_entry(kind, texts.get(kind, "a"))
        assert entry["use"] == name
        assert set(entry["options"]) == {option}
    assert constraint_entry("json_object", "", whitespace="compact")["options"]["whitespace"] == "compact"
    with pytest.raises(NeedsNotMet, match="no constraint of the kind 'lark'; it has json_object, json"):
        constraint_entry("lark", "")
    for text in ("[", "[" * 100_000):
        with pytest.raises(NeedsNotMet, match="kind 'choice' is no JSON"):
            constraint_entry("choice", text)
