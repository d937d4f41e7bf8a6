"""An engine as data, and requests that a server should refuse."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from logitloom_contrib.engines.vllm.served_engine import ServedEngine
from tests.contrib.engines.conftest import EOS, VOCABULARY, WIDTH

MAX_LENGTH = 128


def config_of(**changes: Any) -> Any:
    """What the adapter reads of a ``VllmConfig``."""
    model = {
        "max_model_len": MAX_LENGTH, "get_vocab_size": lambda: WIDTH, "is_diffusion": False, "logits_processors": None
    }  # fmt: skip
    fields: dict[str, Any] = {
        "model_config": SimpleNamespace(**model | changes.pop("model", {})),
        "scheduler_config": SimpleNamespace(async_scheduling=changes.pop("async_scheduling", False)),
        "use_v2_model_runner": False,
        "speculative_config": None,
        "additional_config": {},
        "num_speculative_tokens": 0,
    }
    return SimpleNamespace(**fields | changes)


def engine_of(**changes: Any) -> ServedEngine:
    return ServedEngine(config_of(**changes), environment={}, vocabulary=VOCABULARY)


def params_of(chain: Any = None, *, seed: int | None = None, max_tokens: int | None = 40, **extra: Any) -> Any:
    """What the adapter reads of a request's ``SamplingParams``."""
    given = extra if chain is None else extra | {"logitloom": chain}
    return SimpleNamespace(
        extra_args=given or None, seed=seed, max_tokens=max_tokens, stop_token_ids=[], all_stop_token_ids={EOS}
    )


def one(name: str, **options: Any) -> list[dict[str, Any]]:
    return [{"use": name, "options": options}]


@pytest.fixture
def engine() -> ServedEngine:
    return engine_of()


_NESTED: Any = 1
for _ in range(200):
    _NESTED = [_NESTED]

#: Malformed or hostile values of ``extra_args["logitloom"]`` that JSON can carry, each with a part of the answer.
HOSTILE: dict[str, tuple[Any, str]] = {
    "no JSON": ("regex", "is no JSON"),
    "empty text": ("", "is no JSON"),
    "a number": (7, "is a int"),
    "a list of numbers": ([1, 2], "must have 'use'"),
    "JSON null": ("null", "is a str"),
    "a text in JSON": ('"regex"', "is a str"),
    "no processors": ("[]", "at least one processor"),
    "a schema by itself": ('{"type": "object", "properties": {}}', "list of processors, or a response_format"),
    "a format of text": ('{"type": "text"}', "asks for nothing. Leave it out"),
    "a wrong version": ('{"logitloom": 2, "processor": [{"use": "regex"}]}', "starts with"),
    "an unknown key": ('{"logitloom": 1, "processor": [{"use": "min_p"}], "model": "x"}', "has no 'model'"),
    "a key twice": ('[{"use": "regex", "use": "json"}]', "twice"),
    "not a number": ('[{"use": "temperature", "options": {"temperature": NaN}}]', "no JSON number"),
    "infinity by overflow": ('[{"use": "temperature", "options": {"temperature": 1e999}}]', "no JSON number"),
    "an integer of 400 digits": ('[{"use": "top_k", "options": {"k": ' + "9" * 400 + "}}]", "64 bits"),
    "an integer of 9000 digits": ('[{"use": "top_k", "options": {"k": ' + "9" * 9000 + "}}]", "cannot be read"),
    "deep nesting in text": ("[" * 20_000, "nested too deeply"),
    "deep nesting": (json.dumps([{"use": "json", "options": {"schema": {"enum": _NESTED}}}]), "nested deeper"),
    "half a surrogate pair": ('[{"use": "regex", "options": {"pattern": "\\ud800"}}]', "surrogate"),
    "a text of 2 MB": (json.dumps(one("regex", pattern="a" * 2_000_000)), "is the most"),
    "100 processors": (json.dumps([{"use": "min_p", "options": {"p": 0.1}}] * 100), "is the most"),
    "a processor that does not exist": (json.dumps(one("rm_rf")), "There is no processor"),
    "a processor that runs a model": (json.dumps(one("cfg", scale=2.0)), "may not use"),
    "a processor of another distribution": (json.dumps(one("regex@evil", pattern="a")), "There is no processor"),
    "a path as a processor": (json.dumps(one("../../etc/passwd")), "There is no processor"),
    "code as a processor": (json.dumps(one("os:system", command="true")), "There is no processor"),
    "an unknown option": (json.dumps(one("regex", pattern="a", shell="true")), "no option"),
    "a missing option": (
        json.dumps(one("regex")), "Give them: {'use': 'regex', 'options': {'pattern': ...}}."
    ),
    "an option of a wrong type": (json.dumps(one("regex", pattern=5)), "must be str"),
    "options that are no table": ('[{"use": "regex", "options": ["a"]}]', "must be a table"),
    "a broken pattern": (json.dumps(one("regex", pattern="(")), "no valid regular expression"),
    "a pattern that is not regular": (json.dumps(one("regex", pattern=r"(a)\1")), "Pattern"),
    "a pattern of a billion states": (json.dumps(one("regex", pattern="((a{1000}){1000}){1000}")), "Compiling"),
    "a raised limit": (json.dumps(one("regex", pattern="a", max_states=10**9)), "may be at most"),
    "more time": (json.dumps(one("regex", pattern="a", max_seconds=3600)), "may be at most"),
    "a schema in a file": (json.dumps(one("json", schema="/etc/passwd")), "is no JSON"),
    "a schema elsewhere": (json.dumps(one("json", schema={"$ref": "http://169.254.169.254/"})), "http"),
    "a schema that nothing satisfies": (
        json.dumps(one("json", schema={"type": "integer", "minimum": 2, "maximum": 1})), ""
    ),
    "a position of two billion": (json.dumps(one("force_tokens", tokens={"2000000000": 1})), "may be at most"),
    "a position behind blanks and a sign": (
        json.dumps(one("force_tokens", tokens={" " * 30 + "+2000000000": 1})), "may be at most"
    ),
    "a position with underscores": (json.dumps(one("force_tokens", tokens={"2_000_000_000": 1})), "may be at most"),
    "a position in other digits": (json.dumps(one("force_tokens", tokens={"\uff12" * 10: 1})), "may be at most"),
    "a position of 5000 digits": (json.dumps(one("force_tokens", tokens={"9" * 5000: 1})), "tokens"),
    "a token that no vocabulary has": (json.dumps(one("force_tokens", tokens={"0": 999_999})), "999999"),
    "no choices": (json.dumps(one("choice", choices=[])), "choice"),
    "an empty stop string": (json.dumps(one("stop", strings=[""])), ""),
}  # fmt: skip
