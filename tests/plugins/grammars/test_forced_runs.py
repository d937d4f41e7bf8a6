"""Forced tokens of grammar engines come in bounded runs, because each takes a mask."""

from __future__ import annotations

import pytest

from logitloom import Vocabulary, processors

pytestmark = pytest.mark.extras

WORDS = Vocabulary([b"", *(bytes([byte]) for byte in range(256))], eos=[0])


@pytest.mark.parametrize("engine", ["llguidance", "xgrammar"])
def test_a_long_forced_text_is_told_in_runs(engine: str) -> None:
    pytest.importorskip(engine, reason=f"the package {engine} is not installed")
    chain = processors.load(["grammar", {"grammar": f'root ::= "{"x" * 900}"', "engine": engine}], tokenizer=WORDS)
    constraint = chain["grammar"].constraint(WORDS, WORDS.size)
    run = constraint.forced(constraint.start())
    assert run == [1 + ord("x")] * constraint.most_forced
    assert len(run) < 900


def test_the_tokenizer_of_the_engine_takes_the_longest_tokens() -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    from logitloom_plugins.grammars.llguidance import _Wrapped

    wrapped = _Wrapped(Vocabulary([b"", b"x", b"xx"], eos=[0]), 3)
    assert wrapped("xxxxxyx") == [2, 2, 1, 1]
    assert wrapped(b"") == []
