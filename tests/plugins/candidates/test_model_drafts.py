"""Generators that draft with a model: what they keep, learn and leave alone."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from logitloom import Vocabulary, load_backend, processors
from logitloom.errors import GenerationError, LogitloomError
from logitloom.generation import Generator, Multinomial, Statistics, candidates
from logitloom_contrib.llama import random_model
from logitloom_plugins.candidates import universal
from logitloom_plugins.candidates._retokenization import join
from logitloom_plugins.candidates.universal import Translation, translation
from tests.oracles.toy_model import ToyModel
from tests.plugins.candidates.catalogue import VOCAB, VOCABULARY, assistant_on, prompts, target_on


def target(**more: Any) -> Generator:
    return Generator(
        target_on(load_backend("numpy")), processors.load(tokenizer=VOCABULARY), **({"max_tokens": 20} | more)
    )


def drafted_with(model: Any, **options: Any) -> Any:
    return candidates.load("assistant", {"model": model, "confidence_threshold": 0.0, "num_tokens": 5} | options)


@pytest.mark.parametrize("strategy", [None, Multinomial(2)])
def test_the_assistants_cache_holds_accepted_tokens_only(strategy: Any) -> None:
    generator = target(**({} if strategy is None else {"strategy": strategy}))
    made, checked = drafted_with(assistant_on(load_backend("numpy"))), []

    class Watched:
        init_state, update = staticmethod(made.init_state), staticmethod(made.update)

        def propose(self, state: Any, request: Any) -> Any:
            for row, sequence in zip(state.cache.rows, request.sequences, strict=True):
                checked.append(tuple(sequence[: len(row)]) == row)
            return made.propose(state, request)

    replace(generator, candidates=Watched())(prompts(4))
    assert checked
    assert all(checked)


def test_the_schedule_heuristic_remembers_where_it_ended_and_the_transient_one_does_not() -> None:
    generator = target(max_tokens=7, eos=())
    same = drafted_with(generator.model, schedule="heuristic")
    replace(generator, candidates=same)(prompts(1))
    assert same.next_num_tokens == 7
    worse = drafted_with(ToyModel(load_backend("numpy"), VOCAB, 99), schedule="heuristic")
    replace(generator, candidates=worse, max_tokens=2 + 1)([[1, 2, 3]])
    assert worse.next_num_tokens in (3, 4)
    transient = drafted_with(generator.model, schedule="heuristic_transient")
    replace(generator, candidates=transient)(prompts(1))
    assert transient.next_num_tokens == 5


def test_a_draft_ends_with_the_first_unsure_token() -> None:
    generator, statistics = target(), Statistics()
    unsure = drafted_with(generator.model, confidence_threshold=1.0)
    replace(generator, candidates=unsure, on_round=statistics.add)(prompts(4))
    assert statistics.drafted <= statistics.row_rounds


@pytest.mark.parametrize("library", ["torch", "mlx"])
@pytest.mark.parametrize("strategy", [None, Multinomial(2)])
def test_target_and_assistant_on_different_backends(library: str, strategy: Any) -> None:
    try:
        backend = load_backend(library)
    except LogitloomError as error:
        pytest.skip(f"the backend {library!r} is not available here: {error}")
    generator = target(**({} if strategy is None else {"strategy": strategy}))
    here = replace(generator, candidates=drafted_with(assistant_on(load_backend("numpy"))))(prompts(3), seed=3)
    there = replace(generator, candidates=drafted_with(assistant_on(backend)))(prompts(3), seed=3)
    assert [g.tokens for g in there] == [g.tokens for g in here]


def test_the_first_layers_of_a_model_share_its_weights() -> None:
    model = random_model("numpy", layers=3)
    part = model.first_layers(3)
    tokens = np.array([[1, 2, 3]], dtype=np.int32)
    assert (part.forward(tokens, part.empty_cache(1))[0] == model.forward(tokens, model.empty_cache(1))[0]).all()
    assert part._layers[0] is model._layers[0]
    statistics = Statistics()
    generator = Generator(model, max_tokens=12, eos=())
    early = replace(generator, candidates=candidates.load("early_exit", {"layers": 2}), on_round=statistics.add)
    assert early([[1, 2, 3], [4]])[0].tokens == generator([[1, 2, 3], [4]])[0].tokens
    assert statistics.drafted > 0


def test_early_exit_names_a_model_that_cannot() -> None:
    model = ToyModel(load_backend("numpy"))
    with pytest.raises(GenerationError, match=r"ToyModel has no method first_layers"):
        Generator(model, eos=(), candidates=candidates.load("early_exit", {"layers": 1}))([[1]])


def test_an_assistant_of_another_size_is_refused() -> None:
    with pytest.raises(GenerationError, match="ids mean different things"):
        replace(target(), candidates=drafted_with(ToyModel(load_backend("numpy"), 9)))([[1]])


# -- translation ----------------------------------------------------------------------------------------


def test_a_translation_suppresses_what_the_target_lacks() -> None:
    words = Translation(
        Vocabulary([b"hello", b"world", b"foo"]), Vocabulary([b"hello", b"world", b"foo", b"bar"]), 3, 5
    )
    assert words.to_target.tolist() == [0, 1, 2, -1, -1]
    logits = words.laid_out(np.array([[1.0, 2.0, 3.0, 4.0, 5.0]], dtype=np.float32), load_backend("numpy"))
    assert logits.tolist() == [[1.0, 2.0, 3.0]]


def test_what_the_assistant_lacks_is_never_drafted() -> None:
    words = Translation(Vocabulary([b"a", b"b", b"c"]), Vocabulary([b"c", b"a"]), 4, 2)
    assert words.laid_out(np.array([[1.0, 2.0]], np.float32), load_backend("numpy")).tolist() == [
        [2.0, -np.inf, 1.0, -np.inf]
    ]


def test_a_translation_is_built_once_and_freed_with_its_vocabularies() -> None:
    one, other = Vocabulary([b"a", b"b"]), Vocabulary([b"b", b"a"])
    assert translation(one, other, 2, 2) is translation(one, other, 2, 2)
    assert translation(one, other, 3, 2) is not translation(one, other, 2, 2)
    before = len(universal._TRANSLATIONS)
    del one, other
    gc.collect()
    assert len(universal._TRANSLATIONS) < before


def test_drafting_leaves_the_assistant_as_it_was() -> None:
    assistant = random_model("numpy", 3, vocab=VOCAB)
    before = [np.array(part) for layer in assistant._layers for part in layer]
    head = np.array(assistant._head)
    made = candidates.load("universal", {"model": assistant, "vocabulary": VOCABULARY})
    replace(target(strategy=Multinomial(2)), candidates=made)(prompts(4))
    assert all((a == b).all() for a, b in zip(before, [p for w in assistant._layers for p in w], strict=True))
    assert (head == assistant._head).all()


# -- joining windows ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "encoded", "expected"),
    [
        ([1, 2, 3], [4, 5, 6], None),
        ([1, 2, 3], [1, 2, 3, 4, 5], (0, (), (4, 5))),
        ([1, 2, 3], [2, 3, 4, 5], (0, (), (4, 5))),
        ([1, 2, 3], [1, 2, 3], (0, (), ())),
        ([1, 2, 3], [9, 2, 7, 8], (1, (7,), (8,))),
    ],
)
def test_windows_are_joined_along_the_longest_run(known: list[int], encoded: list[int], expected: Any) -> None:
    assert join(known, encoded) == expected
