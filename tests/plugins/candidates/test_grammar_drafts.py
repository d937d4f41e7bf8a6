"""What a constraint leaves no choice about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from logitloom import load_backend, processors
from logitloom.errors import GenerationError
from logitloom.generation import Generator, Statistics, candidates
from tests.plugins.candidates.catalogue import EOS, VOCABULARY, chain_of, prompts, target_on


def first_draft(**options: Any) -> tuple[list[int], list[int]]:
    made, seen = candidates.load("grammar", options), []

    class Watched:
        init_state, update = staticmethod(made.init_state), staticmethod(made.update)

        def propose(self, state: Any, request: Any) -> Any:
            drafts, state = made.propose(state, request)
            seen.append((list(request.pending[0]), drafts.tokens[0]))
            return drafts, state

    chain = processors.load(("regex", {"pattern": "pabcde"}), tokenizer=VOCABULARY)
    Generator(target_on(load_backend("numpy")), chain, candidates=Watched(), skip_forced=False)([[1, 2]])
    return seen[0]


def test_forced_text_is_drafted_in_the_longest_tokens() -> None:
    pending, draft = first_draft()
    assert [VOCABULARY.token_bytes[t] for t in (*pending, *draft)] == [b"p", b"abc", b"d", b"e", b""]
    assert draft[-1] == EOS


def test_a_tokenizer_says_how_forced_text_is_written() -> None:
    class Letters:
        def encode(self, text: str) -> list[int]:
            return [ord(letter) - ord("a") for letter in text]

    assert first_draft(tokenizer=Letters())[1] == [0, 1, 2, 3, 4, EOS]


def test_grammar_drafts_need_a_vocabulary() -> None:
    with pytest.raises(GenerationError, match="need a vocabulary"):
        Generator(target_on(load_backend("numpy")), eos=(), candidates=candidates.load("grammar"))([[1]])


def test_a_chain_without_constraints_gives_no_drafts() -> None:
    statistics = Statistics()
    generator = Generator(target_on(load_backend("numpy")), chain_of("penalties"), max_tokens=8)
    replace(generator, candidates=candidates.load("grammar"), on_round=statistics.add)(prompts(2))
    assert statistics.drafted == 0
