"""Structured outputs that logitloom enforces: vLLM's own manager and requests without a model, then real engines."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.contrib.engines.vllm.conftest import one
from tests.contrib.engines.vllm.smollm2_folder import missing_packages, smollm2_folder

if missing_packages():
    pytest.skip(f"not installed: {', '.join(missing_packages())}", allow_module_level=True)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.extras]

PATTERN = r"\d{3}-\d{4}"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}  # fmt: skip
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "tag", "begin": "<call>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</call>"
    },
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "json": {"json": SCHEMA},
    "json as text": {"json": json.dumps(SCHEMA)},
    "json, compact": {"json": SCHEMA, "disable_any_whitespace": True},
    "json object": {"json_object": True},
    "regex": {"regex": PATTERN},
    "choice": {"choice": ["Paris", "Berlin", "Rome is eternal"]},
    "grammar": {"grammar": 'root ::= "(" root ")" | [a-z]{3}'},
    "structural tag": {"structural_tag": json.dumps(TAG)},
}
PROMPTS = ("John is 35. My phone number is 123-4567, my other phone number is ", "The name of the old man is")
OPTIONS: dict[str, Any] = {
    "enforce_eager": True, "max_model_len": 256, "max_num_seqs": 160, "dtype": "float32", "seed": 0, "block_size": 32,
    "enable_prefix_caching": False, "additional_config": {"logitloom": {"structured_outputs": True}},
}  # fmt: skip


def valid(kind: str, text: str) -> bool:
    if kind.startswith("json") or kind == "structural tag":
        inner = re.fullmatch(r"<call>(.*)</call>", text, re.DOTALL) if kind == "structural tag" else None
        value = json.loads(inner.group(1) if inner else text)
        if kind == "json object":
            return isinstance(value, dict)
        compact = kind != "json, compact" or not re.search(r"[:,{] ", text)
        return compact and set(value) == {"name", "age"} and len(value["name"]) <= 12 and 0 <= value["age"] <= 99
    if kind == "choice":
        return text in KINDS["choice"]["choice"]
    return re.fullmatch({"regex": PATTERN, "grammar": r"(\()*[a-z]{3}(\))*"}[kind], text) is not None


def params_of(kind: str | dict[str, Any], most: int = 48, chain: Any = None, **own: Any) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    given = StructuredOutputsParams(**(KINDS[kind] if isinstance(kind, str) else kind))
    extra = None if chain is None else {"logitloom": chain}
    return SamplingParams(
        **{"temperature": 0.0, "max_tokens": most, "structured_outputs": given, "extra_args": extra} | own
    )


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("LOGITLOOM_SERVER_SECONDS", "20")  # test machines may be busy
        patch.setenv("LOGITLOOM_SERVER_ENGINE_SECONDS", "20")
        patch.setenv("LOGITLOOM_SERVER_ALLOW", "+grammar +structural_tag +checked")
        yield patch


# --- without a model --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def config(environment: Any) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(model=str(smollm2_folder()), **OPTIONS).create_engine_config()


@pytest.fixture(scope="module")
def manager(config: Any) -> Iterator[Any]:
    from vllm.v1.structured_output import StructuredOutputManager

    made = StructuredOutputManager(config)
    yield made
    made.clear_backend()


@pytest.fixture(scope="module")
def frontend(config: Any) -> Any:
    from vllm.v1.engine.input_processor import InputProcessor

    return InputProcessor(config)


def admitted(frontend: Any, name: str, params: Any) -> Any:
    """A request as the engine's process has it, checked by vLLM's own frontend."""
    from vllm.v1.request import Request

    prompt = {"prompt_token_ids": [1, 2, 3]}
    return Request.from_engine_core_request(frontend.process_inputs(name, prompt, params, ("generate",)), None)


def begun(manager: Any, request: Any) -> Any:
    """The request's grammar, when the manager's thread has made it."""
    import concurrent.futures

    manager.grammar_init(request)
    future = request.structured_output_request._grammar
    assert isinstance(future, concurrent.futures.Future)
    future.result(60)
    return request.structured_output_request.grammar


def test_the_classes_have_the_methods_of_vllms_abstract_classes() -> None:
    from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar

    from logitloom_contrib.engines.vllm.grammar_backend import LogitloomBackend, LogitloomGrammar

    for theirs, mine in ((StructuredOutputGrammar, LogitloomGrammar), (StructuredOutputBackend, LogitloomBackend)):
        assert mine.__abstractmethods__ == frozenset()
        for name in theirs.__abstractmethods__:
            expected, found = (list(inspect.signature(getattr(each, name)).parameters) for each in (theirs, mine))
            assert found == expected


@pytest.mark.parametrize("kind", KINDS)
def test_masks_of_draft_positions_are_those_after_the_drafts(frontend: Any, manager: Any, kind: str) -> None:
    """vLLM's manager fills a row for each draft token; each equals the row of a request that has these tokens."""
    request, alone = (admitted(frontend, name, params_of(kind)) for name in ("drafted", "alone"))
    grammar, other = begun(manager, request), begun(manager, alone)
    row = manager.backend.allocate_token_bitmask(1)
    drafts, expected = [], []
    for _ in range(4):
        other.fill_bitmask(row, 0)
        expected.append(row.numpy()[0].copy())
        bits = np.flatnonzero(np.unpackbits(expected[-1].view(np.uint8), bitorder="little"))
        going_on = [int(token) for token in bits if token not in request.sampling_params.all_stop_token_ids]
        if not going_on:
            break
        drafts.append(going_on[len(going_on) // 2])
        assert other.accept_tokens("alone", drafts[-1:])
    drafts = drafts[: len(expected) - 1]
    assert drafts
    assert manager.validate_tokens(request, [*drafts, -1]) == drafts
    found = manager.grammar_bitmask({"drafted": request}, ["drafted"], {"drafted": drafts})
    assert np.array_equal(found, np.stack(expected))
    assert not grammar.is_terminated()
    grammar.fill_bitmask(row, 0)
    assert np.array_equal(row.numpy()[0], expected[0])  # everything was taken back


def test_many_rows_in_several_threads_equal_rows_one_by_one(frontend: Any, manager: Any) -> None:
    names = [f"{kind} {number}" for number in range(18) for kind in KINDS]
    assert len(names) > manager.fill_bitmask_parallel_threshold
    requests = {name: admitted(frontend, name, params_of(name.rpartition(" ")[0])) for name in names}
    for request in requests.values():
        begun(manager, request)
    row = manager.backend.allocate_token_bitmask(1)
    for _ in range(3):
        found = manager.grammar_bitmask(requests, names, {}).copy()
        for name, mask in zip(names, found, strict=True):
            grammar = requests[name].structured_output_request.grammar
            if not grammar.is_terminated():
                grammar.fill_bitmask(row, 0)
                assert np.array_equal(mask, row.numpy()[0])
                bits = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
                assert grammar.accept_tokens(name, [int(bits[len(name) * 7919 % len(bits)])])


@pytest.mark.parametrize(
    ("given", "most", "part"),
    [
        ({"json": {"type": "integer", "minimum": 2, "maximum": 1}}, 48, "No JSON value satisfies the schema"),
        ({"json": "{"}, 48, "is no JSON"),
        ({"json": "/etc/passwd"}, 48, "is no JSON"),
        ({"regex": "("}, 48, r"Pattern '\(' is no valid regular expression"),
        ({"regex": "((a{1000}){1000}){1000}"}, 48, "Compiling"),
        ({"regex": "a{300}"}, 48, "needs .* tokens"),
        ({"choice": []}, 48, "choice"),
        ({"grammar": "root ::= ("}, 48, "This bracket is never closed"),
        ({"structural_tag": "{"}, 48, "is no JSON"),
        ({"structural_tag": '{"type": "structural_tag", "format": {"type": "telegram"}}'}, 48, "telegram"),
        ({"json": SCHEMA, "whitespace_pattern": " "}, 48, "does not read 'whitespace_pattern'.*disable_any_whitespace"),
        ({"json": SCHEMA, "disable_additional_properties": True}, 48, '"additionalProperties": false'),
    ],
)
def test_wrong_constraints_are_refused_with_a_sentence(frontend: Any, given: Any, most: int, part: str) -> None:
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match=part):
        admitted(frontend, "bad", params_of(given, most))


def test_kinds_that_the_operator_did_not_allow_are_refused(environment: Any) -> None:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.exceptions import VLLMValidationError
    from vllm.v1.engine.input_processor import InputProcessor

    settings = {"structured_outputs": True, "allow": ["json", "regex"]}
    options = OPTIONS | {"additional_config": {"logitloom": settings}}
    frontend = InputProcessor(EngineArgs(model=str(smollm2_folder()), **options).create_engine_config())
    admitted(frontend, "good", params_of("json"))
    for kind in ("choice", "grammar", "structural tag"):
        with pytest.raises(VLLMValidationError, match="may not use the processor.*LOGITLOOM_SERVER_ALLOW"):
            admitted(frontend, "bad", params_of(kind))


def test_vllms_own_backends_check_and_run_requests_without_the_setting(environment: Any) -> None:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.exceptions import VLLMValidationError
    from vllm.v1.engine.input_processor import InputProcessor
    from vllm.v1.structured_output import StructuredOutputManager

    config = EngineArgs(model=str(smollm2_folder()), **OPTIONS | {"additional_config": {}}).create_engine_config()
    frontend = InputProcessor(config)
    request = admitted(frontend, "r", params_of("regex"))
    assert request.sampling_params.structured_outputs._backend == "xgrammar"
    grammar = begun(StructuredOutputManager(config), request)
    assert "Xgrammar" in type(grammar).__name__
    with pytest.raises(VLLMValidationError, match="leave one out"):
        admitted(frontend, "r", params_of("regex", chain=one("regex", pattern="[0-4-]*")))


def test_a_request_that_another_backend_checked_ends(frontend: Any, manager: Any) -> None:
    request = admitted(frontend, "foreign", params_of("regex"))
    request.sampling_params.structured_outputs._backend = "xgrammar"
    manager.grammar_init(request)
    with pytest.raises(Exception, match=r"checked this request for the backend 'xgrammar'"):
        request.structured_output_request._grammar.result(60)


def test_an_engine_does_not_start_where_vllm_has_other_methods(
    config: Any, frontend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logitloom.errors import NeedsNotMet
    from logitloom_contrib.engines.vllm import front_door
    from logitloom_contrib.engines.vllm.vllm_processor import LogitloomProcessor

    LogitloomProcessor(config, "cpu", False)
    monkeypatch.setattr(front_door, "_missing", front_door._sentence("a method is missing"))
    with pytest.raises(NeedsNotMet, match="of this release of vLLM: a method is missing"):
        LogitloomProcessor(config, "cpu", False)
    with pytest.raises(Exception, match="of this release of vLLM: a method is missing") as caught:
        admitted(frontend, "r", params_of("regex"))
    assert "Validation" in type(caught.value).__name__


@pytest.mark.parametrize(
    ("kind", "chain", "part"),
    [
        ("regex", one("regex", pattern="[a-z]*"), "must satisfy both: No text satisfies all constraints"),
        ("grammar", one("bad_words", phrases=["(("]), "must satisfy both.*'grammar' has no automaton"),
        ("json", one("min_tokens", n=4), "'min_tokens', which cannot be decided together"),
    ],
)
def test_a_chain_that_contradicts_is_refused(frontend: Any, kind: str, chain: Any, part: str) -> None:
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match=part):
        admitted(frontend, "bad", params_of(kind, chain=chain))


# --- engines ----------------------------------------------------------------------------------------------------------


def engine_of(**more: Any) -> Any:
    """An engine in a process of its own, as vLLM starts it by default."""
    from vllm import LLM

    options = OPTIONS | {"max_num_seqs": 8, "disable_log_stats": False} | more
    return LLM(model=str(smollm2_folder()), **options)


@pytest.fixture(scope="module")
def engine(environment: Any) -> Any:
    return engine_of()


def texts(engine: Any, asked: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    answers = engine.generate([prompt for prompt, _ in asked], [params for _, params in asked], use_tqdm=False)
    return [(answer.outputs[0].text, answer.outputs[0].finish_reason) for answer in answers]


def test_texts_satisfy_their_constraints_with_drafts_and_without(engine: Any, environment: Any) -> None:
    """The second engine hears of it in the environment."""
    cases = [(prompt, kind) for kind in KINDS for prompt in PROMPTS]
    plain = texts(engine, [(prompt, params_of(kind)) for prompt, kind in cases])
    for (_, kind), (text, reason) in zip(cases, plain, strict=True):
        assert reason == "stop"
        assert valid(kind, text), (kind, text)
    ngram = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    environment.setenv("LOGITLOOM_VLLM_STRUCTURED_OUTPUTS", "1")
    drafting = engine_of(speculative_config=ngram, additional_config={})
    assert texts(drafting, [(prompt, params_of(kind)) for prompt, kind in cases]) == plain
    environment.delenv("LOGITLOOM_VLLM_STRUCTURED_OUTPUTS")
    counted = {metric.name: getattr(metric, "value", None) for metric in drafting.get_metrics()}
    assert counted["vllm:spec_decode_num_accepted_tokens"] > 0


def test_texts_are_complete_within_max_tokens(engine: Any) -> None:
    for most in (12, 16):
        for prompt in PROMPTS:
            [(text, reason)] = texts(engine, [(prompt, params_of("json", most))])
            assert reason == "stop"
            assert valid("json", text)


def test_a_chain_and_structured_outputs_both_hold(engine: Any) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    chain = [*one("regex", pattern=r"[^1-3\s]*7[^1-3\s]*"), *one("temperature", temperature=0.8)]
    asked = [
        (prompt, params_of({"json": schema}, 24, chain, temperature=1.0, seed=seed))
        for prompt in PROMPTS
        for seed in range(3)
    ]
    for text, reason in texts(engine, asked):
        assert reason == "stop"
        assert isinstance(json.loads(text)["n"], int)
        assert re.fullmatch(r"[^1-3\s]*7[^1-3\s]*", text)


def test_stop_ids_end_a_text_only_where_it_may_end(engine: Any) -> None:
    [dash] = engine.get_tokenizer().encode("-")
    pattern = "[0-9]{3}[- ][0-9]{4}[a-z-]{0,9}"
    [(free, _)] = texts(engine, [(PROMPTS[0], params_of({"regex": pattern}))])
    assert free[3] == "-"
    [(text, reason)] = texts(engine, [(PROMPTS[0], params_of({"regex": pattern}, stop_token_ids=[dash]))])
    assert reason == "stop"
    assert text[3] == " "
    assert re.fullmatch(pattern, text)
