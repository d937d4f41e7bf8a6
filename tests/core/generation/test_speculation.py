from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Backend, Processor, load_backend, option, processors
from logitloom.errors import GenerationError, NoLegalToken, OptionError, StateMismatch
from logitloom.generation import BeamSearch, Configured, Drafts, Emission, Generator, Multinomial, Statistics, speculate
from logitloom.generation.acceptance import accept_sampled
from logitloom.generation.greedy import Greedy
from logitloom.generation.schedules import BackOff, Policy, adapted_threshold, next_count
from tests.core.generation.test_loop import EOS, PROMPTS, VOCABULARY, Cycle, EndAfter
from tests.oracles.toy_model import ToyModel


class Scripted:
    """Drafts what a function of the row's text says, and remembers the verdicts."""

    def __init__(self, script: Callable[[Sequence[int]], list[int]]) -> None:
        self.script, self.verdicts = script, []

    def init_state(self, context: Any) -> Any:
        return ()

    def propose(self, state: Any, request: Any) -> Any:
        return Drafts([self.script(sequence) for sequence in request.sequences]), state

    def update(self, state: Any, accepted: Sequence[int]) -> Any:
        self.verdicts.append(list(accepted))
        return state


def generator_for(*specs: Any, **more: Any) -> Generator:
    model = ToyModel(load_backend("numpy"))
    return Generator(model, processors.load(*specs, tokenizer=VOCABULARY), **({"max_tokens": 12} | more))


def oracle(generator: Generator, width: int) -> Scripted:
    """Drafts what plain decoding writes, end-of-sequence included."""
    texts = [
        [*prompt, *g.tokens, *([EOS] if g.finish == "eos" else [])]
        for prompt, g in zip(PROMPTS, generator(PROMPTS), strict=True)
    ]

    def script(sequence: Sequence[int]) -> list[int]:
        text = next(text for text in texts if text[: len(sequence)] == list(sequence))
        return text[len(sequence) : len(sequence) + width]

    return Scripted(script)


RULES: dict[str, tuple[Any, ...]] = {
    "none": (),
    "forced tokens": (Cycle(forced=3, period=3),),
    "ends in a draft": (EndAfter(tokens=5),),
    "stop": (("stop", {"strings": ["oo", "pe", "gd"]}),),
    "regex": (("regex", {"pattern": "([a-g][h-p]{2})+"}),),
}


@pytest.mark.parametrize("rules", RULES)
@given(seed=st.integers(0, 10_000), width=st.integers(0, 6), share=st.floats(0, 1))
@pytest.mark.long
def test_whatever_is_drafted_the_text_is_the_same(rules: str, seed: int, width: int, share: float) -> None:
    generator = generator_for(*RULES[rules])
    right, dice = oracle(generator, width), np.random.default_rng(seed)
    guess: Any = lambda sequence: [n % 17 for n in sequence[-3:]]  # noqa: E731

    def script(sequence: Sequence[int]) -> list[int]:
        # Right tokens, with wrong ones (forbidden ones and end-of-sequence among them) in between and behind.
        noise = dice.integers(0, EOS + 1, width + 2).tolist()
        return [t if dice.random() < share else n for t, n in zip(right.script(sequence), noise, strict=False)] + noise

    for strategy in (Greedy(), Multinomial()):
        plain = replace(generator, strategy=strategy)
        found = replace(plain, candidates=Scripted(script if strategy == Greedy() else guess))
        expected = plain(PROMPTS, seed=seed)
        drafted = found(PROMPTS, seed=seed)
        assert [(g.tokens, g.text, g.finish) for g in drafted] == [(g.tokens, g.text, g.finish) for g in expected]
        assert [g.logprob for g in drafted] == pytest.approx([g.logprob for g in expected], abs=1e-4)


def test_a_good_draft_saves_passes() -> None:
    generator = generator_for(eos=())
    drafting = replace(generator, candidates=oracle(generator, 3))
    generator.model.calls = 0
    drafting(PROMPTS)
    # One token from the prompt's pass, then 4 + 4 + 3 of the 12.
    assert generator.model.calls == 4


def test_rows_are_accepted_to_different_lengths() -> None:
    generator = generator_for(eos=())
    right = oracle(generator, 3)

    def script(sequence: Sequence[int]) -> list[int]:
        draft = right.script(sequence)
        return draft if list(sequence[:1]) == PROMPTS[0][:1] else [(t + 1) % EOS for t in draft]

    drafting = Scripted(script)
    replace(generator, candidates=drafting)(PROMPTS)
    assert drafting.verdicts[0] == [3, 0, 0]


class OwnLogits(Processor):
    """Checks that each row has the logits of its own place."""

    needs = frozenset({"history"})

    def __init__(self, model: ToyModel) -> None:
        self.model, self.steps = model, 0

    def process(self, logits: Any, context: Any) -> Any:
        self.steps += 1
        for line, ids, length in zip(logits, context.sequence, context.length, strict=True):
            np.testing.assert_allclose(line, self.model.row_logits(ids[:length].tolist()), atol=1e-4)
        return logits


def test_a_row_whose_draft_was_rejected_keeps_the_logits_of_its_place_while_others_go_on() -> None:
    right = oracle(generator_for(eos=()), 3)

    def script(sequence: Sequence[int]) -> list[int]:
        draft = right.script(sequence)
        wrong = PROMPTS.index(next(prompt for prompt in PROMPTS if list(sequence[: len(prompt)]) == prompt))
        return [*draft[:wrong], *((t + 1) % EOS for t in draft[wrong:])]

    generator = generator_for(eos=(), candidates=Scripted(script))
    watching = OwnLogits(generator.model)
    replace(generator, chain=processors.load(watching, tokenizer=VOCABULARY))(PROMPTS)
    assert watching.steps > 3


@pytest.mark.parametrize("rules", ["none", "stop", "ends in a draft"])
def test_nothing_is_told_beyond_the_end(rules: str) -> None:
    generator = generator_for(*RULES[rules])
    emissions: list[Emission] = list(
        speculate(generator.model, PROMPTS, generator.chain, Greedy(), oracle(generator, 6), max_tokens=12)
    )
    ended: set[int] = set()
    for emission in emissions:
        assert emission.row not in ended
        if emission.finish is not None:
            ended.add(emission.row)
    assert ended == {0, 1, 2}


def test_a_draft_is_cut_to_the_room_that_is_left() -> None:
    generator = generator_for(eos=(), max_tokens=5)
    found = replace(generator, candidates=oracle(replace(generator, max_tokens=30), 20))(PROMPTS)
    assert [len(g.tokens) for g in found] == [5, 5, 5]


def test_a_row_without_a_legal_token_is_named_as_in_plain_decoding() -> None:
    generator = generator_for(("suppress_tokens", {"tokens": list(range(17))}))
    with pytest.raises(NoLegalToken) as plain:
        generator(PROMPTS)
    with pytest.raises(NoLegalToken) as drafted:
        replace(generator, candidates=Scripted(lambda sequence: [1, 2]))(PROMPTS)
    assert str(drafted.value) == str(plain.value)


def test_beams_are_refused() -> None:
    with pytest.raises(GenerationError, match="Beam search cannot use drafts"):
        generator_for(strategy=BeamSearch(2), candidates=Scripted(lambda sequence: []))


def test_ids_that_the_target_lacks_are_refused() -> None:
    with pytest.raises(GenerationError, match=r"drafted the token 17 for row 0.*ids 0 to 16"):
        generator_for(candidates=Scripted(lambda sequence: [17]))(PROMPTS)


@pytest.mark.parametrize(
    "returned", [None, [[1]], Drafts([[1]] * 3), ([[1]] * 3, ()), (np.ones((3, 1), np.int64), ())], ids=lambda _: ""
)
def test_what_is_no_pair_of_drafts_and_a_state_is_refused_with_the_remedy(returned: Any) -> None:
    scripted = Scripted(lambda sequence: [])
    scripted.propose = lambda state, request: returned  # type: ignore[method-assign]
    with pytest.raises(GenerationError, match=r"Scripted\.propose must return Drafts and a state.*return Drafts"):
        generator_for(candidates=scripted)(PROMPTS)


@pytest.mark.parametrize("tokens", [None, [["a"]] * 3, [[1.0]] * 3])
def test_drafts_that_are_no_ids_are_refused(tokens: Any) -> None:
    scripted = Scripted(lambda sequence: [])
    scripted.propose = lambda state, request: (Drafts(tokens), state)  # type: ignore[method-assign]
    with pytest.raises(GenerationError, match=r"'Scripted\.propose\(\)\[0\]\.tokens.* but is"):
        generator_for(candidates=scripted)(PROMPTS)


class WithProbs(Scripted):
    """Drafts the tokens 2 and 3 in each row, with the probabilities that a function of the number of rows gives."""

    def __init__(self, probs: Callable[[int], Any]) -> None:
        super().__init__(lambda sequence: [2, 3])
        self.probs = probs

    def propose(self, state: Any, request: Any) -> Any:
        drafts, state = super().propose(state, request)
        return drafts._replace(probs=self.probs(len(request.limits))), state


SHAPES: dict[str, tuple[Callable[[int], Any], str]] = {
    "too few positions": (lambda rows: [np.eye(17)[[2] * rows]], r"probs has 1 arrays, but the longest draft has 2"),
    "no arrays at all": (lambda rows: 0.5, r"probs has 0 arrays, but the longest draft has 2 tokens"),
    "lists": (lambda rows: [np.eye(17)[[2] * rows].tolist()] * 2, r"probs\[0\] is \[\[0\.0, "),
    "integers": (lambda rows: [np.eye(17, dtype=int)[[n] * rows] for n in (2, 3)], r"probs\[0\] is array\("),
    "another width": (lambda rows: [np.eye(16)[[n] * rows] for n in (2, 3)], r"probs\[0\] has the shape \[3, 16\]"),
    "one row": (lambda rows: [np.eye(17)[[2] * rows], np.eye(17)[[3]]], r"probs\[1\] has the shape \[1, 17\]"),
}


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial()], ids=["greedy", "multinomial"])
@pytest.mark.parametrize("case", SHAPES)
def test_probabilities_of_another_form_are_refused_with_the_remedy(case: str, strategy: Any) -> None:
    probs, told = SHAPES[case]
    with pytest.raises(
        GenerationError, match=rf"WithProbs\.propose\(\)\[0\]\.{told}.*Give one floating array of shape"
    ):
        generator_for(strategy=strategy, candidates=WithProbs(probs))(PROMPTS)


NUMBERS: dict[str, tuple[Any, str]] = {
    "log-probabilities": (np.full(17, -np.log(17)), r"are -2\.83 to -2\.83"),
    "ones": (np.ones(17), r"their sum is 17, and that of 2 is 1\."),
    "not a number": (np.full(17, np.nan), r"are nan to nan"),
    "another token's": (np.eye(17)[5], r"their sum is 1, and that of 2 is 0\."),
    "a negative one": (np.eye(17)[2] + np.eye(17)[3] - np.eye(17)[4], r"are -1 to 1, their sum is 1"),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_probabilities_from_which_a_token_cannot_be_drawn_are_refused(case: str, backend: Backend) -> None:
    row, told = NUMBERS[case]
    chain = processors.load(tokenizer=VOCABULARY)
    wrong = WithProbs(lambda rows: [backend.asarray(np.tile(row, (rows, 1)).astype(np.float32))] * 2)
    generator = Generator(ToyModel(backend), chain, Multinomial(), max_tokens=12, candidates=wrong)
    with pytest.raises(GenerationError, match=rf"drafted the token 2 for row 0, but probs\[0\]\[0\].*{told}"):
        generator(PROMPTS)


def test_plug_ins_may_be_registered_while_a_generator_has_a_backend(backend: Backend) -> None:
    likely = [backend.asarray(np.eye(17, dtype=np.float32)[[token] * len(PROMPTS)]) for token in (2, 3)]
    drawn = WithProbs(lambda rows: [each[:rows, :] for each in likely])
    generator = Generator(ToyModel(backend), processors.load(), Multinomial(), max_tokens=12, candidates=drawn)
    before = generator(PROMPTS)
    processors.register("another", Cycle)
    processors.unregister("another")
    assert generator(PROMPTS) == before


@pytest.mark.parametrize("absent", ["init_state", "propose", "update"])
def test_a_generator_has_all_three_methods(absent: str) -> None:
    methods = {name: getattr(Scripted, name) for name in ("init_state", "propose", "update") if name != absent}
    with pytest.raises(GenerationError, match=f"'candidates' must have a method {absent}, but is .*Partial"):
        generator_for(candidates=type("Partial", (), methods)())


class FewerRows(Scripted):
    """Loses a row of its state in one of its methods."""

    def __init__(self, method: str) -> None:
        super().__init__(lambda sequence: [1])
        self.method = method

    def _state(self, state: Any, method: str) -> Any:
        return state[1:] if method == self.method else state

    def init_state(self, context: Any) -> Any:
        return self._state(np.zeros((context.batch, 1)), "init_state")

    def propose(self, state: Any, request: Any) -> Any:
        drafts, state = super().propose(state, request)
        return drafts, self._state(state, "propose")

    def update(self, state: Any, accepted: Sequence[int]) -> Any:
        return self._state(state, "update")


@pytest.mark.parametrize("method", ["init_state", "propose", "update"])
def test_a_state_with_other_rows_is_refused(method: str) -> None:
    told = rf"Candidate generator 'FewerRows\.{method}': state has 2 rows, but there are 3 sequences"
    with pytest.raises(StateMismatch, match=told):
        generator_for(candidates=FewerRows(method))(PROMPTS)


@dataclass(frozen=True)
class Unchecking(Configured):
    """Has a ``__post_init__`` of its own, which leaves out that of the base class."""

    width: int = option(1, help="Tokens of a draft.", ge=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scripted", Scripted(lambda sequence: [1] * self.width))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["scripted"], name)


def test_options_of_candidates_that_no_constructor_checked_are_checked() -> None:
    assert generator_for(candidates=Unchecking(2))(PROMPTS) == generator_for()(PROMPTS)
    with pytest.raises(OptionError, match="Option 'width' of .*Unchecking.* must be >= 1, but is 0"):
        generator_for(candidates=Unchecking(0))


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_rounded_probabilities_of_many_ids_are_a_distribution(spread: float, backend: Backend) -> None:
    logits = np.random.default_rng(0).normal(size=(1, 150_000)).astype(np.float32) * np.float32(spread)
    zeros = backend.asarray(np.zeros(1, np.int32))
    for dtype in ("float32", "float16", "bfloat16"):
        if hasattr(backend.xp, dtype):  # NumPy lacks the last
            draft = backend.cast(backend.softmax(backend.asarray(logits)), dtype)
            verdict = accept_sampled(backend, backend.asarray(logits), draft, zeros, zeros, [int(logits.argmax())])
            assert not verdict.undrawn


def test_drafts_may_be_an_array() -> None:
    wanted = generator_for(candidates=Scripted(lambda sequence: [1]))(PROMPTS)
    scripted = Scripted(lambda sequence: [])
    scripted.propose = lambda state, request: (Drafts(np.ones((len(request.limits), 1), int)), state)  # type: ignore
    assert generator_for(candidates=scripted)(PROMPTS) == wanted


def test_statistics_count_what_happened() -> None:
    statistics = Statistics()
    generator = generator_for(eos=())
    replace(generator, candidates=oracle(generator, 3), on_round=statistics.add)(PROMPTS[:1])
    assert (statistics.rounds, statistics.tokens, statistics.acceptance_rate) == (4, 12, 1.0)
    assert statistics.tokens_per_pass == 3
    assert statistics.target_seconds > 0
    assert "100 %" in str(statistics)


# -- schedules ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["heuristic", "heuristic_transient"])
def test_a_heuristic_schedule_drafts_more_after_success_and_less_after_failure(schedule: Any) -> None:
    assert next_count(schedule, 5, 5, 5) == 7
    assert next_count(schedule, 5, 5, 4) == 4
    assert next_count(schedule, 1, 1, 0) == 1
    assert next_count(schedule, 5, 2, 2) == 7
    assert next_count(schedule, 5, 2, 1) == 4
    assert next_count(schedule, 5, 0, 0) == 5


def test_a_constant_schedule_stays() -> None:
    assert [next_count("constant", 5, 5, n) for n in (0, 5)] == [5, 5]


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=6, max_size=40))
def test_the_adapted_threshold_is_the_cheapest(pairs: list[tuple[float, bool]]) -> None:
    scores, right = [p for p, _ in pairs], [r for _, r in pairs]
    found = adapted_threshold(scores, right, -1.0)
    if all(right):
        assert found == -1.0
        return
    if not any(right):
        assert max(scores) < found <= max(scores) + 1e-9
        return

    def cost(threshold: float) -> float:
        wrong = sum(p >= threshold and not r for p, r in pairs) / right.count(False)
        missed = sum(p < threshold and r for p, r in pairs) / right.count(True)
        return wrong + 3 * missed

    assert cost(found) == pytest.approx(min(map(cost, scores)))


def test_five_tokens_are_too_few_to_adapt() -> None:
    assert adapted_threshold([0.9, 0.8, 0.1, 0.2, 0.3], [True, True, False, False, False], 0.4) == 0.4


@pytest.mark.parametrize(
    ("confidences", "matched", "expected"),
    [
        ([0.9], [False], 0.4),
        ([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], [True] * 8, 0.4),
        # All that were accepted lie above all that were not: between them, on the accepted side.
        ([0.9, 0.8, 0.7, 0.3, 0.2, 0.1], [True, True, True, False, False, False], 0.7),
        # One accepted token at the bottom is worth more than the rejected ones above it.
        ([0.9, 0.8, 0.6, 0.5, 0.3, 0.2], [True, False, True, False, False, True], 0.2),
        # Missing one of many costs less than what lies between.
        ([0.9] * 9 + [0.5, 0.4, 0.3, 0.2, 0.1], [True] * 9 + [False] * 4 + [True], 0.9),
    ],
)
def test_a_threshold_weighs_wasted_drafts_and_lost_ones(
    confidences: list[float], matched: list[bool], expected: float
) -> None:
    assert adapted_threshold(confidences, matched, 0.4) == expected


def test_where_nothing_is_accepted_drafts_end_after_their_first_token() -> None:
    policy = Policy(5, 0.4)
    for _ in range(6):
        policy = policy.verified("constant", (0.9, 0.8, 0.7), 0, adapt=True)
    assert 0.9 < policy.threshold < 0.91


@given(st.floats(0, 30), st.floats(0, 30), st.sampled_from([0.1, 0.7]))
def test_the_draft_with_the_largest_expected_gain_is_allowed(hits: float, misses: float, pass_cost: float) -> None:
    back_off = BackOff(pass_cost, hits, hits + misses + 0.01)
    rate = min(back_off.hits / back_off.tried, 0.99)
    gains = np.cumsum(rate ** np.arange(1, 401)) - pass_cost - 0.03 * np.arange(1, 401)
    found = back_off.limit(400)
    if gains.max() > 1e-9:
        assert gains[found - 1] == pytest.approx(gains.max())
    elif gains.max() < -1e-9:
        assert found == 1  # a probe


def test_a_row_whose_drafts_are_rejected_probes_ever_more_seldom() -> None:
    back_off, drafted = BackOff(0.7), []
    for _ in range(150):
        drafted.append(back_off.limit(5))
        back_off = back_off.verified(drafted[-1], 0)
    assert drafted[0] == 5
    assert [n for n, limit in enumerate(drafted) if limit] == [0, 3, 12, 45, 78, 111, 144]
    assert set(drafted[1:]) == {0, 1}


def test_a_single_accepted_token_does_not_restore_the_whole_draft() -> None:
    back_off = BackOff(0.7)
    for _ in range(20):
        back_off = back_off.verified(back_off.limit(5), 0)
    limits = []
    while not limits or limits[-1] < 5:
        back_off = back_off._replace(wait=0)
        limits.append(back_off.limit(5))
        back_off = back_off.verified(limits[-1], limits[-1])
    assert limits == [1, 1, 5]
    assert back_off.failures == 0


def test_where_several_tokens_cost_as_much_as_one_a_seldom_accepted_draft_is_made() -> None:
    device: Any = SimpleNamespace(on_host=False)
    rates = [0.2, 0.3, 0.4, 0.6]
    on_host = [BackOff.on(load_backend("numpy"))._replace(hits=rate)._best() for rate in rates]
    on_device = [BackOff.on(device)._replace(hits=rate)._best() for rate in rates]
    assert on_host[:2] == [0, 0]
    assert on_host[3] > 0
    assert all(on_device)


def test_a_drafter_that_is_always_wrong_drafts_little_and_one_that_is_right_again_all_it_can() -> None:
    generator = generator_for(max_tokens=60, eos=())
    right, statistics = oracle(generator, 5), Statistics()

    def script(sequence: Sequence[int]) -> list[int]:
        draft = right.script(sequence)
        return draft if len(sequence) > 40 else [(token + 1) % EOS for token in draft]

    drafting = replace(generator, candidates=Scripted(script), on_round=statistics.add)
    assert [g.tokens for g in drafting(PROMPTS)] == [g.tokens for g in generator(PROMPTS)]
    wrong = [row for verdict in drafting.candidates.verdicts[:20] for row in verdict]
    assert not any(wrong)
    assert 5 in drafting.candidates.verdicts[-2]
    assert statistics.drafted - statistics.accepted < 20 * len(PROMPTS)


def test_tokens_behind_the_first_rejected_one_teach_nothing() -> None:
    policy = Policy(5, 0.4).verified("constant", (0.9, 0.8, 0.3, 0.2), 1, adapt=True)
    assert policy.confidences == (0.9, 0.8)
    assert policy.matched == (True, False)
