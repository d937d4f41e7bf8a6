"""The option ``finish_within``: in the loop, with beams, drafts and forced tokens, in combinators, on every backend."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, Vocabulary, load_backend, processors
from logitloom.automata import compile_pattern
from logitloom.errors import GenerationError, OptionError
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial
from logitloom.host.registry import load_plugin
from logitloom.rows import tree as row_state
from tests.oracles.toy_model import ToyModel
from tests.plugins.processors.constraining import WIDTH, WORDS, begin, step

SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    "regex": ("regex", {"pattern": "(ab|a1)+é?-"}),
    "lazy": ("regex", {"pattern": "[a-c]{2,3000}(é|!)"}),
    "longest": ("regex", {"pattern": "(foobar12|é日本)+-[ab]", "longest_tokens": True}),
    "choice": ("choice", {"choices": ["foobar-foobar-foobar", "ab", "日本é"]}),
    "fsm": ("fsm", {"automaton": compile_pattern("[a-c]{2,30}!")}),
    "json": ("json", {"schema": {"enum": [1, 12, 2112, 21]}}),
}
#: What the texts of each must match.
PATTERNS = {
    "regex": "(ab|a1)+é?-",
    "lazy": "[a-c]{2,3000}(é|!)",
    "longest": "(foobar12|é日本)+-[ab]",
    "choice": "foobar-foobar-foobar|ab|日本é",
    "fsm": "[a-c]{2,30}!",
    "json": "[0-9.eE+-]+",
}


def limited(name: str, budget: int) -> tuple[str, dict[str, Any]]:
    processor, options = SPECS[name]
    return processor, {**options, "finish_within": budget}


def least(name: str) -> int:
    """The least budget, as the error names it."""
    with pytest.raises(OptionError) as error:
        begin(load_backend("numpy"), limited(name, 1))
    found = re.search(
        r"Option 'finish_within' of \w+: 1 is too few, .* needs (?:about )?(\d+) tokens", str(error.value)
    )
    assert found is not None
    return int(found[1])


def generator(spec: Any, strategy: Any, max_tokens: int, **more: Any) -> Generator:
    chain = processors.load(spec, tokenizer=WORDS)
    return Generator(ToyModel(load_backend("numpy"), WIDTH, seed=2), chain, strategy, max_tokens=max_tokens, **more)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("more", [0, 1, 5])
@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(), BeamSearch(beams=4)], ids=["greedy", "sample", "beams"])
@pytest.mark.parametrize("skip", [True, False], ids=["skip", "step"])
@pytest.mark.long
def test_every_text_of_the_loop_is_finished(name: str, more: int, strategy: Any, skip: bool) -> None:
    budget = least(name) + more
    results = generator(limited(name, budget), strategy, budget, skip_forced=skip)([[300], [301, 302]], seed=3)
    for result in results:
        assert result.finish == "eos"
        assert re.fullmatch(PATTERNS[name], result.text), result.text


@pytest.mark.parametrize("name", SPECS)
def test_drafts_change_no_text(name: str) -> None:
    drafting = load_plugin("candidates", "prompt_lookup")()
    budget = least(name) + 4
    plain = generator(limited(name, budget), Greedy(), budget)([[300, 65, 66, 65, 66], [301, 302]])
    drafted = generator(limited(name, budget), Greedy(), budget, candidates=drafting)(
        [[300, 65, 66, 65, 66], [301, 302]]
    )
    assert [one.tokens for one in drafted] == [one.tokens for one in plain]


@pytest.mark.parametrize("name", SPECS)
def test_backends_allow_the_same(backend: Backend, name: str) -> None:
    budget = least(name) + 2
    numpy = load_backend("numpy")
    chain, context, state = begin(backend, limited(name, budget), rows=2)
    oracle, reference, expected = begin(numpy, limited(name, budget), rows=2)
    (allowed, _), state = step(backend, chain, state, context)
    (wanted, _), expected = step(numpy, oracle, expected, reference)
    dice = np.random.default_rng(0)
    for _ in range(budget):
        assert allowed == wanted
        token = int(dice.choice(sorted(wanted - {0}) or [0]))
        if token in WORDS.eos:
            return
        (allowed, _), state = step(backend, chain, state, context, [[token], [token]])
        (wanted, _), expected = step(numpy, oracle, expected, reference, [[token], [token]])
    raise AssertionError(f"{name} is not finished after {budget} tokens")


@pytest.mark.parametrize("name", [*SPECS, "pairs"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.long
def test_forced_tokens_are_those_of_masks_with_one_token(name: str, seed: int) -> None:
    # The pattern forces two tokens, and the limit what comes after them.
    spec = ("regex", {"pattern": "(c{2,5})+d", "finish_within": 4}) if name == "pairs" else None
    chain, context, state = begin(load_backend("numpy"), spec or limited(name, least(name) + 1))
    dice, text, masks = np.random.default_rng(seed), list[int](), list[set[int]]()
    # Asked of nothing that is remembered, and again of everything.
    told = []
    while not text or text[-1] not in WORDS.eos:
        told.append(chain.forced_tokens(state, context.accept([text])) or [[]])
        (allowed,), _ = step(load_backend("numpy"), chain, state, context, [text])
        masks.append(allowed)
        text.append(int(dice.choice(sorted(allowed))))
    for at, (before,) in enumerate(told):
        single = list(takewhile(lambda mask: len(mask) == 1, masks[at:]))
        assert before == [next(iter(mask)) for mask in single]
        assert (chain.forced_tokens(state, context.accept([text[:at]])) or [[]]) == [before]


def test_a_part_of_a_combinator_keeps_to_its_own_number_of_tokens() -> None:
    inner = ("regex", {"pattern": "[ab]+c", "finish_within": 4})
    thinking = ("thinking", {"budget": 2, "open": "<", "close": ">", "then": inner, "begin": "outside"})
    for result in generator(thinking, Multinomial(), 12)([[300], [301], [302]], seed=5):
        assert result.finish == "eos"
        answer = result.text.rpartition(">")[2]
        assert re.fullmatch("[ab]+c", answer), result.text
        assert len(answer.encode()) <= 3 * max(len(text) for text in WORDS.token_bytes)


def test_the_least_that_an_error_names_is_enough_and_one_less_is_not() -> None:
    for name in SPECS:
        budget = least(name)
        begin(load_backend("numpy"), limited(name, budget))
        with pytest.raises(OptionError, match=rf"Give at least {budget}\."):
            begin(load_backend("numpy"), limited(name, budget - 1))


def test_compiled_loops_take_limits_of_whole_automata() -> None:
    for name, spec in SPECS.items():
        assert (
            processors.load(limited(name, 99)).compilable
            == processors.load(spec).compilable
            == (name not in ("lazy", "json"))
        )


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("strategy", [Multinomial(), BeamSearch(beams=3)], ids=["sample", "beams"])
def test_the_limit_of_the_loop_is_kept_by_default(name: str, strategy: Any) -> None:
    budget = least(name) + 1
    for result in generator(SPECS[name], strategy, budget)([[300], [301, 302]], seed=4):
        assert result.finish == "eos"
        assert re.fullmatch(PATTERNS[name], result.text), result.text


def test_a_limit_of_the_loop_that_is_too_small_is_an_error_that_names_the_least() -> None:
    for name in SPECS:
        budget = least(name)
        message = rf"Row 0 may generate {budget - 1} tokens, but the shortest text .* needs (?:about )?{budget}"
        with pytest.raises(GenerationError, match=message):
            generator(SPECS[name], Greedy(), budget - 1)([[300]])


def test_the_limit_of_the_loop_can_be_ignored() -> None:
    spec, options = SPECS["lazy"]
    results = generator((spec, {**options, "finish_within": 0}), Multinomial(), 2)([[300]], seed=1)
    assert [result.finish for result in results] == ["length"]


def test_longest_tokens_give_way_where_shorter_ones_need_fewer(backend: Backend) -> None:
    words = Vocabulary([b"", b"a", b"ab", b"b", b"bcd", b"c", b"d"], eos=[0])
    for left, wanted in ((4, [2]), (3, [1])):
        spec = ("regex", {"pattern": "abcd", "longest_tokens": True, "finish_within": left})
        chain = processors.load(spec, tokenizer=words)
        blank = backend.asarray(np.zeros((1, 7), dtype=np.float32))
        context = Context.start(blank, vocabulary=words)
        logits, _ = chain.process(blank, chain.init_state(context), context)
        assert np.isfinite(backend.to_numpy(logits)[0]).nonzero()[0].tolist() == wanted


def test_rows_have_limits_of_their_own() -> None:
    chain = processors.load(SPECS["choice"], tokenizer=WORDS)
    context = begin(load_backend("numpy"), SPECS["choice"], rows=2)[1].with_fields(max_new_tokens=(least("choice"), 99))
    blank = np.zeros((2, WIDTH), dtype=np.float32)
    logits, state = chain.process(blank, chain.init_state(context), context)
    short, long = (set(np.isfinite(row).nonzero()[0].tolist()) for row in logits)
    assert short < long
    swapped, _ = chain.process(blank, row_state.take(chain.init_state(context), [1, 0]), context)
    assert np.array_equal(swapped, logits[::-1])
    assert state is not None
