"""What the API server's process compiled to check a request, the engine's process does not compile again."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logitloom.automata import Budget, BudgetTracker, compilation, compiled_in
from logitloom.automata.store import compiled_store
from logitloom_contrib.engines.vllm import shared_folder as shared
from logitloom_contrib.engines.vllm.served_engine import ServedEngine
from logitloom_contrib.requests import chain_cache
from logitloom_plugins.json_schema.grammar import satisfiability
from logitloom_plugins.json_schema.grammar.satisfiability import Satisfiability
from logitloom_plugins.json_schema.values import ecma_pattern
from tests.contrib.engines.conftest import VOCABULARY
from tests.contrib.engines.vllm.conftest import config_of, one, params_of

CHAINS: dict[str, Any] = {
    "regex": one("regex", pattern="(?:[a-f]{1,30}[0-9]|[g-k]{2,40})+"),
    "choice": one("regex", pattern="|".join(f"word{i}{i % 7}" for i in range(3000))),
    "json": one(
        "json", schema={"properties": {"a": {"pattern": "^(?:[a-f]{1,30}[0-9]|[g-k]{2,40})+$"}}}, engine="table"
    ),
    "structure": one("json", schema={"contains": {"multipleOf": 7}, "minContains": 2, "items": {"maximum": 99}}),
}


@pytest.fixture(autouse=True)
def _everything_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_store, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(compiled_store, "_LEAST_SECONDS_OF_VALUES", 0.0)


def served(folder: Path | str | None) -> ServedEngine:
    environment = {} if folder is None else {shared.VARIABLE: str(folder)}
    return ServedEngine(config_of(), environment=environment, vocabulary=VOCABULARY)


def refused(*given: Any, **more: Any) -> Any:
    raise AssertionError("compiled a second time")


@pytest.mark.parametrize("name", CHAINS)
def test_the_engine_compiles_nothing_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    _forget()
    expected = served(tmp_path).chains.get(CHAINS[name])
    assert list(tmp_path.iterdir())
    _forget()
    for phase in ("_subsets", "choice"):
        monkeypatch.setattr(compilation, phase, refused)
    for method in ("_truth_vectors", "_can_be_closed"):
        monkeypatch.setattr(Satisfiability, method, refused)
    assert served(tmp_path).chains.get(CHAINS[name]).first == expected.first
    _forget()
    with pytest.raises(Exception, match="compiled a second time"):
        served(None).chains.get(CHAINS[name])


def test_the_engine_tries_no_chain_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server's process tries a chain on one row before it admits the request; the engine's does not."""
    expected = served(None).chains.get(CHAINS["regex"])
    monkeypatch.setattr(chain_cache.ChainCache, "_try", refused)
    engine = served(None)
    params = params_of(CHAINS["regex"])
    compiled = engine.chain_of(params)
    assert compiled is not None
    assert compiled.first is None
    assert engine.chain_of(params) is compiled
    monkeypatch.undo()
    # The same process may check requests, too: then the chain is tried.
    admitted = engine.chain_of(params, admitting=True)
    assert admitted is not None
    assert admitted.first == expected.first
    assert engine.chain_of(params) is admitted


def test_a_chain_that_nobody_has_tried_is_tried_in_the_engine() -> None:
    environment = {"LOGITLOOM_VLLM_UNCHECKED": "1"}
    engine = ServedEngine(config_of(), environment=environment, vocabulary=VOCABULARY)
    compiled = engine.chain_of(params_of(CHAINS["regex"]))
    assert compiled is not None
    assert compiled.first


@pytest.mark.parametrize(
    ("taken", "shared_part", "refused_for"),
    [
        (0.2, 0.0, None),
        (1.2, 0.0, "the 2 seconds that requests to this server may take"),
        (0.9, 0.0, "the 0.25 seconds for which a request may keep all others waiting"),
        (0.9, 0.6, "the 0.25 seconds for which a request may keep all others waiting"),
        (1.2, 1.1, None),
        (2.1, 2.1, "the 2 seconds that requests to this server may take"),
    ],
)
def test_the_seconds_of_a_request_are_those_of_both_processes(
    taken: float, shared_part: float, refused_for: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the engine's process makes again counts twice, and has a limit of its own; what it reads counts once."""
    clock = [0.0]

    def slow(*given: Any, **more: Any) -> Any:
        clock[0] += taken
        compiled_store._STORE.stored.seconds += shared_part
        return made(*given, **more)

    made = chain_cache.from_document
    fake = SimpleNamespace(thread_time=lambda: clock[0], monotonic=time.monotonic)
    monkeypatch.setattr(chain_cache, "time", fake)
    monkeypatch.setattr(chain_cache, "from_document", slow)
    frontend, engine = served(None), served(None)
    if refused_for is None:
        frontend.admit(params_of(CHAINS["regex"]))
    else:
        with pytest.raises(
            ValueError,
            match=rf"\(regex\) takes longer than {refused_for}, .* does again and the first",
        ):
            frontend.admit(params_of(CHAINS["regex"]))
    # The engine's process has no such limit, so that it never ends what was admitted.
    assert engine.chain_of(params_of(CHAINS["regex"])) is not None


def test_the_time_of_what_is_stored_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(compiled_store, "time", SimpleNamespace(thread_time=lambda: float(next(ticks))))

    def outer() -> Any:
        compiled_store.stored_automaton(lambda: ("inner",), lambda: automaton)
        return automaton

    automaton = compilation.compile_pattern("a+")
    with compiled_in(tmp_path) as stored:
        compiled_store.stored_automaton(lambda: ("outer",), outer)
        assert stored.seconds == next(ticks) - 1  # from the first look at the clock to the last
    with compiled_in(tmp_path) as read:
        compiled_store.stored_automaton(lambda: ("outer",), refused)
        compiled_store.stored_automaton(lambda: ("lazy",), lambda: 5)
        assert read.seconds == 0.0
    with compiled_in(None) as nowhere:
        compiled_store.stored_automaton(lambda: ("outer",), outer)
        assert nowhere.seconds == 0.0


def test_no_request_answers_for_what_a_process_makes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request imports modules, loads compiled loops and makes the vocabulary's trie: not the request's time,
    whether it is met when the request is read or when its chain is made."""
    clock, deadlines = [0.0], []

    def slow(*given: Any) -> None:
        clock[0] += 5.0
        deadlines.append(BudgetTracker(Budget(seconds=math.inf)).remaining)

    def reading(given: Any, permissions: Any) -> Any:
        if not deadlines:
            slow()  # modules are imported where their processors are first named
        return read(given, permissions)

    fake = SimpleNamespace(thread_time=lambda: clock[0], monotonic=time.monotonic)
    read = chain_cache.read
    monkeypatch.setattr(chain_cache, "time", fake)
    monkeypatch.setattr(chain_cache, "prepare", slow)
    monkeypatch.setattr(chain_cache, "read", reading)
    served(None).admit(params_of(CHAINS["regex"]))
    assert clock[0] == 5.0
    assert deadlines == [math.inf]


def test_hostile_patterns_do_not_hold_up_the_engine(tmp_path: Path) -> None:
    """A pattern that is visited lazily is compiled in both processes: many positions are refused in the first."""
    tmp_path.chmod(0o700)
    environment = {shared.VARIABLE: str(tmp_path), "LOGITLOOM_SERVER_ENGINE_SECONDS": "0.004"}
    engine = ServedEngine(config_of(), environment=environment, vocabulary=VOCABULARY)
    with pytest.raises(ValueError, match=r"longer than the 0\.004 seconds for which a request may keep all others"):
        engine.admit(params_of(one("regex", pattern=r"(?:\d{0,90}){0,90}b")))


def _forget() -> None:
    """What this process remembers of patterns, as another one would not."""
    satisfiability._number.cache_clear()
    ecma_pattern._compiled.cache_clear()


_CHILD = """
import sys
from logitloom.automata import compilation
from logitloom_contrib.requests.chain_cache import prepare
from tests.contrib.engines.vllm.test_shared_folder import CHAINS, VOCABULARY, refused, served
import os
prepare(VOCABULARY)
compilation._subsets = refused
print(served(os.environ["LOGITLOOM_VLLM_SHARED"]).chains.get(CHAINS["regex"]).first.hex())
"""


def test_a_child_process_finds_the_folder_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv(shared.VARIABLE, raising=False)
    shared.offer_shared_folder()
    folder = os.environ[shared.VARIABLE]
    shared.offer_shared_folder()
    assert os.environ[shared.VARIABLE] == folder
    assert os.stat(folder).st_mode & 0o777 == 0o700
    expected = served(folder).chains.get(CHAINS["regex"]).first.hex()
    found = subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, text=True, check=False)
    assert found.stdout.strip() == expected, found.stderr
    shared._remove(folder, os.getpid() + 1)
    assert Path(folder).exists()
    shared._remove(folder, os.getpid())
    assert not Path(folder).exists()


def test_a_folder_of_others_is_not_used(tmp_path: Path) -> None:
    assert shared.shared_folder({}) is None
    assert shared.shared_folder({shared.VARIABLE: ""}) is None
    assert shared.shared_folder({shared.VARIABLE: str(tmp_path / "gone")}) is None
    tmp_path.chmod(0o700)
    assert shared.shared_folder({shared.VARIABLE: str(tmp_path)}) == tmp_path
    for mode in (0o770, 0o702, 0o777):
        tmp_path.chmod(mode)
        assert shared.shared_folder({shared.VARIABLE: str(tmp_path)}) is None
    tmp_path.chmod(0o700)
