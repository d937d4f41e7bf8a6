"""The class that vLLM loads: importable everywhere, one for both runners, and never silent."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import pytest

from logitloom import processors
from logitloom.errors import NeedsNotMet
from logitloom_contrib.engines.vllm import interfaces, served_engine, to_vllm
from logitloom_contrib.engines.vllm import vllm_processor as processor
from logitloom_contrib.engines.vllm.runner_v1 import RunnerV1
from logitloom_contrib.engines.vllm.served_engine import CLASS_PATH, ServedEngine, config_of_caller
from logitloom_contrib.engines.vllm.vllm_processor import LogitloomProcessor
from tests.contrib.engines.conftest import VOCABULARY
from tests.contrib.engines.vllm.conftest import config_of, engine_of, one, params_of

REGEX = one("regex", pattern="a+")


class Frontend:
    """Where vLLM validates requests: a class method is called with the parameters alone."""

    def __init__(self, config: Any) -> None:
        self.vllm_config = config

    def admit(self, params: Any) -> None:
        self._validate(params)

    def _validate(self, params: Any) -> None:
        LogitloomProcessor.validate_params(params)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if vLLM were there, with the vocabulary of the tests."""
    monkeypatch.setattr(processor, "MISSING", None)
    monkeypatch.setattr(served_engine, "_vocabulary_of", lambda model: VOCABULARY)
    monkeypatch.setattr(served_engine, "_ENGINES", [])


def test_the_entry_point_is_the_class() -> None:
    (point,) = [p for p in entry_points(group="vllm.logits_processors") if p.name == "logitloom"]
    assert point.value == CLASS_PATH
    assert point.load() is LogitloomProcessor


def test_the_class_is_importable_without_an_array_library() -> None:
    code = (
        "import sys; sys.modules.update(torch=None, vllm=None); "
        "import logitloom_contrib.engines.vllm.vllm_processor as found; print(found.MISSING)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "could not be imported" in done.stdout


@pytest.mark.skipif(interfaces.MISSING is None, reason="vLLM is installed")
def test_without_vllm_the_class_can_be_imported_and_says_why_it_cannot_be_used() -> None:
    with pytest.raises(NeedsNotMet, match=r"could not be imported: model runner V1 .*vllm.*Install vLLM 0\.32"):
        LogitloomProcessor(config_of(), "cpu", False)


@pytest.mark.skipif(interfaces.MISSING is not None, reason="vLLM is not installed")
def test_with_vllm_the_class_serves_both_runners() -> None:
    from vllm.v1.sample.logits_processor import LogitsProcessor as OfV1
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as OfV2

    assert issubclass(LogitloomProcessor, OfV1)
    assert issubclass(LogitloomProcessor, OfV2)


@pytest.mark.torch
def test_the_number_of_arguments_tells_the_runner(installed: None) -> None:
    pytest.importorskip("torch", reason="vLLM hands over torch tensors")
    import torch

    states = SimpleNamespace(max_num_reqs=4, device=torch.device("cpu"))
    first, second = LogitloomProcessor(config_of(), "cpu", False), LogitloomProcessor(config_of(), states)
    assert isinstance(first._runner, RunnerV1)
    assert not isinstance(second._runner, RunnerV1)
    assert not first.is_argmax_invariant()
    assert second.add_request(0, params_of()) is False
    assert second.add_request(1, params_of(REGEX)) is True


@pytest.mark.torch
def test_a_class_that_is_found_twice_runs_once(installed: None) -> None:
    torch = pytest.importorskip("torch", reason="vLLM hands over torch tensors")
    config = config_of()
    first, second = LogitloomProcessor(config, "cpu", False), LogitloomProcessor(config, "cpu", False)
    other = LogitloomProcessor(config_of(), "cpu", False)
    added = SimpleNamespace(batch_size=1, removed=[], moved=[], added=[(0, params_of(REGEX), [5], [])])
    for each in (first, second, other):
        each.update_state(added)
    logits = torch.zeros(1, 128)
    assert second.apply(logits) is logits
    assert torch.isfinite(first.apply(torch.zeros(1, 128))).sum() < 10
    assert torch.isfinite(other.apply(torch.zeros(1, 128))).sum() < 10
    del first
    assert LogitloomProcessor(config, "cpu", False)._idle is False


def test_starting_never_fails_whatever_the_configuration(installed: None) -> None:
    for config in (
        config_of(speculative_config=object()),
        config_of(async_scheduling=True),
        config_of(additional_config={"logitloom": "nonsense"}),
        config_of(additional_config=None),
    ):
        LogitloomProcessor(config, "cpu", False)


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (config_of(speculative_config=object()), "runs speculative decoding on model runner V1"),
        (config_of(async_scheduling=True), f"--logits-processors {CLASS_PATH}"),
        (config_of(model={"is_diffusion": True}), "Diffusion models"),
    ],
)
def test_engines_that_would_drop_chains_refuse_them(installed: None, config: Any, part: str) -> None:
    Frontend(config).admit(params_of())
    with pytest.raises(ValueError, match=r"\.$") as caught:
        Frontend(config).admit(params_of(REGEX))
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "config",
    [
        config_of(),
        config_of(use_v2_model_runner=True, speculative_config=object(), async_scheduling=True),
        config_of(async_scheduling=True, model={"logits_processors": [CLASS_PATH]}),
    ],
)
def test_engines_that_run_chains_admit_them(installed: None, config: Any) -> None:
    Frontend(config).admit(params_of(REGEX))


def test_a_caller_whose_configuration_cannot_be_seen_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    LogitloomProcessor.validate_params(params_of())
    with pytest.raises(ValueError, match="LOGITLOOM_VLLM_UNCHECKED=1"):
        LogitloomProcessor.validate_params(params_of(REGEX))
    monkeypatch.setenv("LOGITLOOM_VLLM_UNCHECKED", "1")
    LogitloomProcessor.validate_params(params_of(REGEX))


def test_the_configuration_of_the_caller_is_found() -> None:
    config = config_of()

    class Asking(Frontend):
        def _validate(self, params: Any) -> None:
            params.append(config_of_caller())

    found: list[Any] = []
    Asking(config).admit(found)
    assert found == [config]
    assert config_of_caller() is None


def test_one_engine_is_one_object() -> None:
    config = config_of()
    assert ServedEngine.of(config) is ServedEngine.of(config)
    assert ServedEngine.of(config) is not ServedEngine.of(config_of())


def test_requests_that_nothing_could_end_are_refused() -> None:
    engine = engine_of()
    engine._vocabulary = VOCABULARY.with_eos([])
    request = params_of(one("temperature", temperature=0.5))
    request.all_stop_token_ids = set()
    with pytest.raises(ValueError, match="stop_token_ids"):
        engine.admit(request)


def test_a_request_ends_with_what_the_engine_stops_at() -> None:
    request = params_of()
    request.all_stop_token_ids = {9, 7}
    assert engine_of().ends(request) == (7, 9, *VOCABULARY.eos)


def test_what_a_chain_becomes_is_what_a_request_says() -> None:
    chain = processors.load(("regex", {"pattern": "a+"}), ("top_k", {"k": 5}))
    engine = engine_of()
    keys = set()
    for text in (False, True):
        extra = to_vllm(chain, text=text)
        json.dumps(extra)
        compiled = engine.chain_of(SimpleNamespace(extra_args=extra))
        assert compiled is not None
        assert compiled.chain.labels == ("regex", "top_k")
        keys.add(compiled.key)
    assert len(keys) == 1


def test_a_chain_that_needs_a_model_becomes_nothing() -> None:
    with pytest.raises(NeedsNotMet, match="vLLM cannot run"):
        to_vllm(processors.load(("cfg", {"scale": 1.5})))


@pytest.mark.parametrize("own", [[], ["z"]])
def test_the_engine_leaves_out_what_a_stop_leaves_out(engine: ServedEngine, own: list[str]) -> None:
    params = params_of(one("stop", strings=["red", "a"]))
    params.stop, params.include_stop_str_in_output, params.detokenize = list(own), False, True
    for _ in range(2):  # parameters may be used again
        engine.admit(params)
    assert params.stop == [*own, "red", "a"]
    assert not params.include_stop_str_in_output
    assert params.output_text_buffer_length == 2


@pytest.mark.parametrize(("own", "keeps"), [([], False), (["z"], True)])
def test_the_engine_cuts_texts_behind_what_a_stop_keeps(engine: ServedEngine, own: list[str], keeps: bool) -> None:
    params = params_of(one("stop", strings=["red"], include=True))
    params.stop, params.include_stop_str_in_output, params.detokenize = list(own), keeps, True
    for _ in range(2):
        engine.admit(params)
    assert (params.stop, params.include_stop_str_in_output) == ([*own, "red"], True)
    assert params.output_text_buffer_length == 0


def test_a_request_that_leaves_out_its_own_stop_strings_goes_on_doing_so(engine: ServedEngine) -> None:
    params = params_of(one("stop", strings=["red"], include=True))
    params.stop, params.include_stop_str_in_output, params.detokenize = ["z"], False, True
    engine.admit(params)
    assert (params.stop, params.include_stop_str_in_output) == (["z"], False)


def test_a_request_that_keeps_its_stop_strings_contradicts_a_chain_that_does_not(engine: ServedEngine) -> None:
    params = params_of(one("stop", strings=["red"]))
    params.stop, params.include_stop_str_in_output, params.detokenize = ["z"], True, True
    with pytest.raises(NeedsNotMet, match=r"include_stop_str_in_output.*'red'.*include=true"):
        engine.admit(params)
