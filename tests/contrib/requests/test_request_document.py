"""What requests say, in every form, and what is refused before anything is made of it."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logitloom import Vocabulary, processors
from logitloom.automata import TokenAutomaton
from logitloom.errors import LogitloomError, OptionError
from logitloom_contrib.requests import chain_cache
from logitloom_contrib.requests.chain_cache import ChainCache
from logitloom_contrib.requests.permissions import SAFE, Permissions
from logitloom_contrib.requests.request_document import _distinct, read
from logitloom_plugins.combinators.section_automaton import CombinedAutomaton
from logitloom_plugins.combinators.triggers import TokenTexts
from tests.contrib.engines.vllm.conftest import HOSTILE, engine_of, one, params_of

CHAIN = [{"use": "regex", "options": {"pattern": "[a-z]+"}}, {"use": "min_p", "options": {"p": 0.1}}]
DOCUMENT = {"logitloom": 1, "processor": CHAIN}


@pytest.mark.parametrize("form", [CHAIN, tuple(CHAIN), DOCUMENT, json.dumps(CHAIN), json.dumps(DOCUMENT, indent=3)])
def test_every_form_of_one_chain_is_the_same_request(form: Any) -> None:
    assert read(form, Permissions()).key == read(CHAIN, Permissions()).key


def test_a_response_format_is_the_processor_that_enforces_it() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "strict": False, "schema": {"const": 1}}}
    wanted = read(one("json", schema=form), Permissions()).key
    assert read(form, Permissions()).key == read(json.dumps(form), Permissions()).key == wanted
    tag = {"type": "structural_tag", "format": {"type": "any_text"}}
    allowed = Permissions(allow=SAFE | {"structural_tag"})
    assert read(tag, allowed).document["processor"] == [{"use": "structural_tag", "options": {"tag": tag}}]
    with pytest.raises(LogitloomError, match="asks for nothing"):
        read({"type": "text"}, Permissions())


def test_the_limits_of_the_operator_are_part_of_what_is_made() -> None:
    request = read(one("regex", pattern="a"), Permissions(states=77, seconds=0.5))
    assert request.document["processor"][0]["options"] == {"pattern": "a", "max_states": 77, "max_seconds": 0.5}


def test_a_request_may_ask_for_less_than_the_limits() -> None:
    options = read(one("regex", pattern="a", max_states=5), Permissions()).document["processor"][0]["options"]
    assert options["max_states"] == 5


def test_members_of_a_schema_keep_their_order() -> None:
    schemas = [{"properties": {"a": {}, "b": {}}}, {"properties": {"b": {}, "a": {}}}]
    keys = {read(one("json", schema=schema), Permissions()).key for schema in schemas}
    assert len(keys) == 2


def test_schemas_may_hold_large_integers_and_come_as_text() -> None:
    schema = {"type": "integer", "maximum": 2**53}
    assert read(one("json", schema=json.dumps(schema)), Permissions()).key == read(
        one("json", schema=schema), Permissions()
    ).key  # fmt: skip


def test_a_table_that_is_no_plain_data_is_refused() -> None:
    for value in (object(), {"use": object()}, [{"use": "regex", "options": {"pattern": b"a"}}], {1.5: 2}):
        with pytest.raises(ValueError, match="request"):
            read(value, Permissions())


def test_a_key_that_is_given_twice_is_refused_after_one_look_at_each_key() -> None:
    """The work is counted in comparisons of keys: as many as there are keys."""

    class Key(str):
        compared = 0
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            Key.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    pairs = [(Key(f"k{n}"), n) for n in range(2000)]
    assert len(_distinct(list(pairs))) == 2000
    with pytest.raises(LogitloomError, match="'k1999' twice"):
        _distinct([*pairs, (Key("k1999"), 0)])
    assert Key.compared < 10 * len(pairs)


def test_equal_keys_of_plain_data_are_refused() -> None:
    with pytest.raises(LogitloomError, match="key 7 twice, as a number and as a text"):
        read(one("logit_bias", bias={7: 1.0, "7": 2.0}), Permissions())


def test_reading_a_request_counts_within_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(given: Any, permissions: Permissions) -> Any:
        until = time.thread_time() + 0.3
        while time.thread_time() < until:
            pass
        return read(given, permissions)

    monkeypatch.setattr(chain_cache, "read", slow)
    chains = ChainCache(Permissions(engine_seconds=0.25), None, 8, engine="an engine")
    with pytest.raises(LogitloomError, match=r"Reading and compiling .* takes longer than the 0\.25 seconds"):
        chains.get(one("top_k", k=3), admitting=True)


@pytest.mark.parametrize(("count", "part"), [(1, "schemas, or raise"), (3, "give fewer than its 3 tools, or raise")])
def test_a_refusal_for_the_time_names_the_tools_and_the_setting(count: int, part: str) -> None:
    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    permissions = Permissions(allow=SAFE | {"tool_call"}, engine_seconds=1e-9, seconds=1000.0)
    chains = ChainCache(permissions, words, 257, engine="an engine")
    tools = [{"name": f"t{number}"} for number in range(count)]
    with pytest.raises(LogitloomError, match=f"{part} the operator's setting LOGITLOOM_SERVER_ENGINE_SECONDS"):
        chains.get(one("tool_call", tools=tools), admitting=True)


@pytest.mark.parametrize(
    ("own", "remedy"),
    [
        ({}, r"or raise the operator's setting LOGITLOOM_SERVER_STATES\.$"),
        ({"max_states": 50}, r"or raise the operator's setting LOGITLOOM_SERVER_STATES\.$"),
        ({"max_states": 20}, r"or raise max_states\.$"),
    ],
)
def test_a_refusal_names_what_may_be_raised(own: dict[str, int], remedy: str) -> None:
    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    chains = ChainCache(Permissions(states=50), words, 257, engine="an engine")
    with pytest.raises(LogitloomError, match=remedy):
        chains.get(one("json", schema={"const": "x" * 60}, **own))


def test_a_refusal_lists_options_by_their_names() -> None:
    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    with pytest.raises(OptionError) as own:
        processors.load(("regex", {"patern": "a"}))
    with pytest.raises(LogitloomError) as told:
        ChainCache(Permissions(), words, 257, engine="an engine").get(one("regex", patern="a"))
    assert str(told.value) == str(own.value)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(LogitloomError, match="nested deeper"):
        read(loop, Permissions())


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_requests_are_refused_with_a_sentence(case: str) -> None:
    given, part = HOSTILE[case]
    with pytest.raises(ValueError, match=r"\w+ .*\.") as caught:
        engine_of().admit(params_of(given))
    message = str(caught.value)
    assert part in message
    assert len(message) < 2000


def test_there_are_enough_hostile_requests() -> None:
    assert len(HOSTILE) >= 30


def test_requests_without_a_chain_are_none_of_our_business() -> None:
    engine = engine_of(speculative_config=object())
    engine.admit(params_of())
    engine.admit(params_of(other=5))


# -- permissions -----------------------------------------------------------------------------------------


def test_safe_processors_exist_and_run_no_model() -> None:
    from logitloom import processors

    for name in sorted(SAFE):
        described = processors.describe(name)
        assert "model" not in described.needs
        assert not any("Path" in option.type_text for option in described.options)


#: Built-ins that requests may not name unless the operator says so.
KEPT = {
    "runs a model, or a second branch": {"cfg", "context_aware", "contrastive", "dola"},
    "its state must see every step": {"adaptive_p", "mirostat", "mirostat_v2"},
    "a mark is the operator's": {
        "watermark_delta", "watermark_dipmark", "watermark_greenlist", "watermark_gumbel", "watermark_synthid"
    },
    "holds processors, or is made of several": {"after", "all_of", "between", "budget", "heal", "structural_tag",
                                                "thinking", "tool_call", "until"},
    "takes an object, or a grammar engine": {"fsm", "grammar"},
    "takes a function": {"checked", "prefix_allowed_tokens"},
    "for models that vLLM does not sample by requests": {"alternating_codebooks", "whisper_no_speech",
                                                         "whisper_timestamps"},
}  # fmt: skip


def test_each_built_in_is_safe_or_kept_for_a_reason() -> None:
    from logitloom import processors

    every = {record.name for record in processors.available() if record.distribution == "logitloom"}
    kept = set().union(*KEPT.values())
    assert not SAFE & kept
    assert every == SAFE | kept, "add it to SAFE of logitloom_contrib.requests.permissions, or to KEPT of this file"


@pytest.mark.parametrize(
    ("text", "allowed"),
    [("regex, json", {"regex", "json"}), ("+mine", SAFE | {"mine"}), ("regex +mine", {"regex", "mine"}), ("", set())],
)
def test_the_operator_says_what_requests_may_name(text: str, allowed: set[str]) -> None:
    assert Permissions.read({"LOGITLOOM_SERVER_ALLOW": text}, None).allow == allowed
    assert Permissions.read({}, {"allow": text.replace(",", " ").split()}).allow == allowed


def test_the_additional_config_wins() -> None:
    read_ = Permissions.read({"LOGITLOOM_SERVER_STATES": "5", "LOGITLOOM_SERVER_SECONDS": "0.25"}, {"states": 7})
    assert (read_.states, read_.seconds) == (7, 0.25)


@pytest.mark.parametrize(
    ("environment", "config"),
    [
        ({"LOGITLOOM_SERVER_STATES": "many"}, None),
        ({"LOGITLOOM_SERVER_SECONDS": "nan"}, None),
        ({"LOGITLOOM_SERVER_BYTES": "1.5"}, None),
        ({}, {"states": 0}),
        ({}, {"unknown": 1}),
        ({}, {"allow": 5}),
        ({}, "regex"),
    ],
)
def test_wrong_settings_refuse_requests_and_not_the_engine(environment: dict[str, str], config: Any) -> None:
    engine = engine_of(additional_config={"logitloom": config} if config is not None else {})
    engine._environment = environment
    engine.admit(params_of())
    with pytest.raises(ValueError, match=r"logitloom|LOGITLOOM"):
        engine.admit(params_of(one("regex", pattern="a")))


def test_a_name_that_is_not_allowed_is_refused() -> None:
    engine = engine_of(additional_config={"logitloom": {"allow": ["choice"]}})
    engine.admit(params_of(one("choice", choices=["a"])))
    with pytest.raises(ValueError, match=r"may not use the processor 'regex'; they may use choice\."):
        engine.admit(params_of(one("regex", pattern="a")))


def test_a_refusal_names_as_many_allowed_processors_as_fit() -> None:
    allowed = frozenset(f"processor_{number}" for number in range(400))
    with pytest.raises(ValueError, match=r"they may use processor_0, .*, processor_\d+ and \d+ more\.") as refusal:
        Permissions(allow=allowed).require("regex")
    assert len(str(refusal.value)) < 500
    shown = str(refusal.value).partition("may use ")[2].partition(" and ")[0].split(", ")
    assert f" and {400 - len(shown)} more" in str(refusal.value)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The clock of admissions: each call of these methods takes a second, and nothing else takes time."""
    asked: list[str] = []
    fake = SimpleNamespace(thread_time=lambda: float(len(asked)), monotonic=time.monotonic)
    monkeypatch.setattr(chain_cache, "time", fake)

    def counted(name: str, method: Any) -> Any:
        def called(*args: Any, **more: Any) -> Any:
            asked.append(name)
            return method(*args, **more)

        return called

    for owner, name in [
        (TokenAutomaton, "least_tokens"), (TokenAutomaton, "allowed"), (TokenTexts, "begun_in"), (TokenTexts, "ids_of"),
        (CombinedAutomaton, "read"), (CombinedAutomaton, "inside"),
    ]:  # fmt: skip
        monkeypatch.setattr(owner, name, counted(name, getattr(owner, name)))
    return asked


def test_the_first_steps_and_the_distances_to_the_end_count_as_time_of_the_engine(calls: list[str]) -> None:
    def admit(seconds: float, pattern: str) -> str:
        store = ChainCache(Permissions(engine_seconds=seconds, seconds=1000.0), words, 3, engine="a server")
        calls.clear()
        return store.get(one("regex", pattern=pattern), admitting=True).chain.labels[0]

    words = Vocabulary([b"", b"a", b"b"], eos=[0])
    chain_cache.prepare(words)
    assert admit(1000.0, "a+b") == "regex"
    assert {"least_tokens", "allowed"} <= set(calls)
    needed = len(calls)
    assert admit(needed, "a+b") == "regex"
    with pytest.raises(LogitloomError, match="does again and the first steps"):
        admit(needed - 1, "a+b")


_MANY_STATES: Any = ["regex", {"pattern": "(a|b)*a(a|b){10}"}]
#: Chains whose work is in the engine's process, in what the shared folder does not hold.
NESTED = {
    "after": one("after", trigger="b", inner=_MANY_STATES),
    "until": one("until", trigger="ab", inner=["after", {"trigger": "b", "inner": _MANY_STATES}]),
    "between": one(
        "between", open="a", close="c", inner=["between", {"open": "a", "close": "c", "inner": _MANY_STATES}]
    ),
    "late": one("after", trigger="caca", inner=["until", {"trigger": "a", "inner": _MANY_STATES}]),
}


@pytest.mark.parametrize("name", NESTED)
def test_a_request_that_is_refused_for_its_work_is_refused_in_other_words_too(
    name: str, calls: list[str], tmp_path: Path
) -> None:
    letters = [b"a", b"b", b"c"]
    words = Vocabulary(
        [b"", *(b"".join(each) for n in (1, 2, 3, 4) for each in itertools.product(letters, repeat=n))], eos=[0]
    )
    allow = SAFE | {"after", "until", "between"}
    chain_cache.prepare(words, allow)

    def admit(seconds: float, text: str) -> None:
        calls.clear()
        permissions = Permissions(allow=allow, engine_seconds=seconds, seconds=1e9)
        ChainCache(permissions, words, words.size, tmp_path, engine="a server").get(text, admitting=True)

    admit(1e9, json.dumps(NESTED[name]))
    needed = len(calls)
    assert needed > 10
    for number in range(3):
        other_words = json.dumps([*NESTED[name], *one("temperature", temperature=1.0 + number)])
        with pytest.raises(LogitloomError, match="keep all others waiting") as refusal:
            admit(needed // 2, other_words)
        assert name.replace("late", "after") in str(refusal.value)
        assert len(calls) >= needed // 2
