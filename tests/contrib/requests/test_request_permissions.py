"""What the operator allows holds at every depth of a request's chain, and no option names a file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logitloom import Vocabulary, processors
from logitloom.errors import ChainDocumentError
from logitloom.host.options import declared
from logitloom.host.registry import available, load_plugin
from logitloom_contrib.requests.chain_cache import ChainCache
from logitloom_contrib.requests.permissions import Permissions
from tests.contrib.engines.vllm.conftest import engine_of, one, params_of

COMBINATORS = {
    "after": ("inner", {"trigger": "a"}),
    "all_of": ("inner", {}),
    "between": ("inner", {"open": "a", "close": "b"}),
    "budget": ("then", {"n": 2}),
    "thinking": ("then", {"open": "a", "close": "b", "begin": "outside"}),
    "until": ("inner", {"trigger": "a"}),
}
SECRET = "root ::= secret-of-the-operator"


def served(*allowed: str, **limits: Any) -> Any:
    return engine_of(additional_config={"logitloom": {"allow": ["+" + name for name in allowed], **limits}})


def nested(combinator: str, inner: Any, depth: int = 1) -> list[dict[str, Any]]:
    """A chain in which a processor stands ``depth`` combinators deep."""
    option, others = COMBINATORS[combinator]
    for _ in range(depth - 1):
        inner = {"use": combinator, "options": {**others, option: inner}}
    return one(combinator, **{**others, option: inner})


def answer(engine: Any, chain: Any) -> str:
    """What a request is told; empty if it is admitted."""
    try:
        engine.admit(params_of(chain))
    except ValueError as error:
        return str(error)
    return ""


def refusal(engine: Any, chain: Any) -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        engine.admit(params_of(chain))
    return str(caught.value)


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("combinator", COMBINATORS)
def test_a_processor_that_is_not_allowed_is_refused_inside_others(combinator: str, depth: int) -> None:
    for inner in (["grammar", {"grammar": 'root ::= "a"'}], {"use": "grammar", "options": {"grammar": "x"}}, "grammar"):
        said = refusal(served(*COMBINATORS), nested(combinator, inner, depth))
        assert "may not use the processor 'grammar'" in said


@pytest.mark.parametrize("combinator", COMBINATORS)
def test_limits_hold_inside_others(combinator: str) -> None:
    engine = served(*COMBINATORS, states=50, integer=1000)
    assert "50" in refusal(engine, nested(combinator, ["regex", {"pattern": "a{200}"}]))
    assert "may be at most" in refusal(engine, nested(combinator, ["regex", {"pattern": "a", "max_states": 51}]))
    assert "may be at most 1000" in refusal(engine, nested(combinator, ["top_k", {"k": 1001}]))
    many = [{"use": "min_p", "options": {"p": 0.1}}] * 16
    assert "is the most" in refusal(engine, nested(combinator, many))
    engine.admit(params_of(nested(combinator, ["regex", {"pattern": "b"}])))


def test_a_schema_inside_another_processor_may_hold_large_integers() -> None:
    schema = {"type": "integer", "enum": [0, 1], "maximum": 2**53}
    served("after", integer=10).admit(params_of(nested("after", ["json", {"schema": schema}])))


def chains_of(*allowed: str) -> ChainCache:
    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    permissions = Permissions(allow=frozenset(allowed), seconds=60, engine_seconds=60)
    return ChainCache(permissions, words, words.size, engine="a server")


@pytest.mark.parametrize("form", ["qwen3_coder", "seed_oss", "gemma4", "muse_glimmer", "hermes"])
def test_a_request_that_may_name_tool_call_need_not_name_its_parts(form: str) -> None:
    parameters: dict[str, Any] = {f"text{n}": {"type": "string", "maxLength": n + 1} for n in range(20)}
    parameters["day"] = {"type": "string", "format": "date"}
    tool = {"name": "look", "parameters": {"type": "object", "properties": parameters}}
    chains = chains_of("tool_call")
    chains.get(one("tool_call", tools=[tool], format=form))
    with pytest.raises(ChainDocumentError, match="may not use the processor 'json'"):
        chains.get(one("json", schema=True))


def test_limits_hold_for_the_parts_of_tool_call() -> None:
    tool = {"name": "look", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    with pytest.raises(ChainDocumentError, match="may be at most 60 on this server, but is 61"):
        chains_of("tool_call").get(one("tool_call", tools=[tool], json={"max_seconds": 61}))


def test_an_unknown_name_and_a_forbidden_one_are_told_apart() -> None:
    engine = served("after")
    for chain in (one("rm_rf"), nested("after", "rm_rf"), one("regex@nobody")):
        assert "There is no processor" in refusal(engine, chain)
    for chain in (one("grammar", grammar="x"), nested("after", "grammar"), one("regex@logitloom", pattern="a")):
        assert "may not use the processor" in refusal(engine, chain)


# -- files ------------------------------------------------------------------------------------------------

_OPENED: list[str] = []
_watching = False


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event in ("open", "os.stat", "os.listdir", "os.scandir") and arguments:
        _OPENED.append(str(arguments[0]))


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """Names of the files that Python opens meanwhile."""
    global _watching
    if not _HOOKS:
        sys.addaudithook(_audit)
        _HOOKS.append(_audit)
    _OPENED.clear()
    _watching = True
    try:
        yield _OPENED
    finally:
        _watching = False


_HOOKS: list[Any] = []


def text_options() -> list[tuple[str, str]]:
    """Every option of every processor of ours that takes a text, a path or anything."""
    found = []
    for record in available("processors"):
        if record.distribution != "logitloom":
            continue
        for option in declared(load_plugin("processors", record.name)):
            if any(kind in option.type_text for kind in ("str", "Path", "Any")):
                found.append((record.name, option.name))
    return found


#: What else a processor needs to be made.
REST = {
    "after": {"trigger": "a", "inner": []}, "all_of": {}, "between": {"open": "a", "close": "b"}, "budget": {"n": 1},
    "choice": {}, "tool_call": {}, "until": {"trigger": "a", "inner": []}, "thinking": {}, "json": {},
}  # fmt: skip


@pytest.mark.parametrize(("name", "option"), text_options())
def test_no_option_of_a_request_is_read_as_a_file(name: str, option: str, tmp_path: Path) -> None:
    engine = served(*(record.name for record in available("processors")))
    secret = tmp_path / "secret"
    secret.write_text(SECRET, encoding="utf-8")
    for value in (str(secret), f"file://{secret}", [str(secret)], {"$ref": f"file://{secret}"}, f"\n{secret}"):
        with opened_files() as opened:
            options = {**REST.get(name, {}), option: value}
            for chain in (one(name, **options), nested("after", {"use": name, "options": options}, 2)):
                assert "secret-of-the-operator" not in answer(engine, chain)
        assert not [path for path in opened if "secret" in path]


def test_a_grammar_and_a_schema_that_name_files_are_read_as_texts(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"enum": ["' + SECRET + '"]}', encoding="utf-8")
    assert processors.load(("json", {"schema": str(file)}))["json"].machine is not None
    engine = served("grammar", "after")
    assert "JSON" in refusal(engine, one("json", schema=str(file)))
    assert "JSON" in refusal(engine, nested("after", ["json", {"schema": str(file)}]))
    assert "file" not in refusal(engine, one("grammar", grammar=str(file)))


def test_a_processor_whose_option_is_a_path_gets_none_from_requests(tmp_path: Path) -> None:
    from dataclasses import dataclass

    from logitloom import option

    @dataclass(frozen=True)
    class Reads:
        """A processor with a file."""

        file: Path | None = option(None, help="A file.")

        def process(self, logits: Any, state: Any) -> tuple[Any, Any]:
            return logits, state

    processors.register("reads", Reads)
    try:
        engine = served("reads", "after")
        engine.admit(params_of(one("reads")))
        for chain in (one("reads", file=str(tmp_path)), nested("after", ["reads", {"file": str(tmp_path)}])):
            assert "a request may not name files" in refusal(engine, chain)
        assert processors.load(("reads", {"file": str(tmp_path)}))["reads"].file == tmp_path
    finally:
        processors.unregister("reads")


def test_the_document_of_a_request_is_json_after_all_checks() -> None:
    from logitloom_contrib.requests.permissions import Permissions
    from logitloom_contrib.requests.request_document import read

    request = read(nested("after", ["regex", {"pattern": "a"}]), Permissions(allow=frozenset({"after", "regex"})))
    assert json.loads(request.key) == request.document


def test_the_processors_of_a_request_share_its_seconds() -> None:
    """Sixteen patterns, each within the limit, are not sixteen times as many seconds."""
    slow = [one("regex", pattern=f"(?:a|b)*a(?:a|b){{11}}{i}")[0] for i in range(16)]
    engine = engine_of(additional_config={"logitloom": {"seconds": 0.05, "states": 100_000}})
    begin = time.thread_time()
    with pytest.raises(ValueError, match=r"0\.05 seconds"):
        engine.admit(params_of(slow))
    assert time.thread_time() - begin < 2.0
