"""Texts that branch off: the matcher of an engine goes back, and reads other tokens."""

from __future__ import annotations

import pytest

from logitloom import Vocabulary, processors

pytestmark = pytest.mark.extras

TEXTS = [b"a", b"b", b"aa", b"ab", b"bb", b"aaa", b"bbb", b"abb", b"aab"]
WORDS = Vocabulary([*TEXTS, b""], eos=[len(TEXTS)])


def continued(text: bytes) -> list[int]:
    """The tokens after which a text still begins one of n times "a" and n times "b", found by looking."""
    found = []
    for token, more in enumerate(TEXTS):
        rest = (text + more).lstrip(b"a")
        if set(rest) <= set(b"b") and len(rest) <= len(text + more) - len(rest):
            found.append(token)
    return found


@pytest.mark.parametrize("engine", ["llguidance", "xgrammar"])
def test_a_text_that_branches_off_is_allowed_what_follows_it(engine: str) -> None:
    pytest.importorskip(engine, reason=f"needs {engine}")
    chain = processors.load(("grammar", {"grammar": 'root ::= "a" root "b" | "ab"', "engine": engine}))
    ids = {text: token for token, text in enumerate(TEXTS)}
    for begun, (left, other) in [(b"aa", (b"abb", b"aab")), (b"aaa", (b"bb", b"ab")), (b"aaa", (b"aab", b"abb"))]:
        constraint = chain["grammar"].constraint(WORDS, WORDS.size)
        before = constraint.advance(constraint.start(), ids[begun])
        constraint.allowed(constraint.advance(before, ids[left]))
        found = constraint.allowed(constraint.advance(before, ids[other])).listed(WORDS.size)
        assert found.tolist() == continued(begun + other), begun + other
