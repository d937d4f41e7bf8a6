"""Grammars that may take xgrammar long are compiled in a process that is ended in time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from logitloom import Vocabulary, processors
from logitloom.errors import BudgetExceeded, UnsupportedGrammar
from tests.plugins.processors.test_grammar_budget import ADVERSARIAL

pytestmark = pytest.mark.extras

WORDS = Vocabulary([b"", *[bytes([byte]) for byte in range(256)], b"ab", b'"x'], eos=[0])
GRAMMAR = 'root ::= "ab" root? | [x-z]{2,5} "é" | "\\"" [^"]* "\\""'


def constraint(grammar: str, **options: Any) -> Any:
    pytest.importorskip("xgrammar")
    given = {"grammar": grammar, "engine": "xgrammar", **options}
    return processors.load(("grammar", given))["grammar"].constraint(WORDS, WORDS.size)


def masks(made: Any, text: bytes) -> list[Any]:
    state, found = made.start(), []
    for byte in text:
        found.append((made.allowed(state).listed(WORDS.size).tolist(), made.may_end(state)))
        state = made.advance(state, byte + 1)
    return [*found, made.may_end(state)]


def test_what_is_compiled_beside_allows_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = constraint(GRAMMAR)
    xgrammar = sys.modules["logitloom_plugins.grammars.xgrammar"]
    monkeypatch.setattr(xgrammar, "estimated_seconds", lambda *_: float("inf"))
    asked = []
    beside = xgrammar.compile_beside
    monkeypatch.setattr(xgrammar, "compile_beside", lambda *given: (asked.append(given), beside(*given))[1])
    for _ in range(2):
        made = constraint(GRAMMAR)
        for text in ("abab", "xxyé", '"ab é"'):
            assert masks(made, text.encode()) == masks(plain, text.encode())
    assert len(asked) == 2


def test_a_grammar_that_takes_the_engine_half_a_minute_is_refused_in_time() -> None:
    hard = ADVERSARIAL["lexemes that are hard"]
    with pytest.raises(BudgetExceeded, match=r"with the engine xgrammar takes longer than 0\.\d+ seconds. Write it"):
        constraint(hard, max_seconds=0.5)
    # The next one gets another process.
    made = constraint(f"root ::= {'[a-z] ' * 200}", max_seconds=0.5)
    assert made.allowed(made.start()).listed(WORDS.size).tolist() == [*range(ord("a") + 1, ord("z") + 2), 257]


ANSWERS = 'import sys; print("{}", flush=True); sys.stdin.readline(); '


def refusing(error: str, memory: bool) -> str:
    """A process that answers each grammar like this."""
    told = json.dumps({"error": error, "memory": memory})
    return f'import sys; print("{{}}", flush=True); [print({told!r}, flush=True) for _ in sys.stdin]'


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("", UnsupportedGrammar, "did not start"),
        (ANSWERS + "sys.exit(3)", UnsupportedGrammar, r"ended its process \(exit status 3\)"),
        (ANSWERS + "import time; time.sleep(99)", BudgetExceeded, "takes longer than 0.01 seconds"),
        (refusing("no", memory=False), UnsupportedGrammar, "cannot compile the grammar: no"),
        (refusing("bad", memory=True), BudgetExceeded, "cannot compile the grammar: bad"),
    ],
)
def test_whatever_becomes_of_the_process_is_a_sentence(
    code: str, error: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logitloom_plugins.grammars import xgrammar_process

    monkeypatch.setattr(xgrammar_process, "_PATIENCE", 1.0)
    compiler = xgrammar_process.Compiler([sys.executable, "-c", code])
    for _ in range(2):  # by the same process, or by a new one
        with pytest.raises(error, match=said):
            compiler.compiled("{}", json.dumps("t"), 0.01)


def test_nothing_is_left_of_processes_that_had_to_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from logitloom_plugins.grammars import xgrammar_process
    from tests.fuzz.interrupted import instructions, interrupted

    started: list[Any] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    compiler = xgrammar_process.Compiler([sys.executable, "-c", ANSWERS + "sys.exit(3)"])

    def refused() -> None:
        with pytest.raises(UnsupportedGrammar, match="exit status 3"):
            compiler.compiled("g", "t", 1.0)

    count = instructions(refused)
    for at in (count // 3, count // 2, count - count // 4):
        interrupted(refused, at)
    refused()
    assert len(started) > 2
    assert all(each.returncode is not None and each.stdin.closed and each.stdout.closed for each in started)


@pytest.mark.exhaustive
def test_memory_is_limited() -> None:
    pytest.importorskip("resource")
    with pytest.raises(BudgetExceeded, match=r"cannot compile the grammar: std::bad_alloc|takes longer than"):
        constraint(ADVERSARIAL["lexemes that are hard"], max_seconds=5.0)


def test_an_answer_that_nobody_waited_for_goes_to_no_other_grammar() -> None:
    from logitloom_plugins.grammars import xgrammar_process
    from tests.fuzz.interrupted import instructions, interrupted

    code = "import json, sys; print('{}', flush=True)\nfor line in sys.stdin:\n    "
    code += "print(json.dumps({'compiled': json.loads(line)['grammar']}), flush=True)"
    compiler = xgrammar_process.Compiler([sys.executable, "-c", code])
    count = instructions(lambda: compiler.compiled("a", "t", 1.0))
    for number, at in enumerate(range(0, count, max(1, count // 12))):
        interrupted(lambda number=number: compiler.compiled(f"lost {number}", "t", 1.0), at)
        assert compiler.compiled(f"kept {number}", "t", 1.0) == f"kept {number}"
