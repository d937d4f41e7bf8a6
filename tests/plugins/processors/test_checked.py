"""``checked``: what a function accepts, with the model's probabilities, and no question more than that takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Backend, Chain, Context, Vocabulary, document, load_backend, processors
from logitloom.errors import ChainDocumentError, NoLegalToken, OptionError, OptionTypeError
from logitloom.generation import BeamSearch, Drafts, Generator, Multinomial
from logitloom_plugins.processors.checked import _falling, _gumbel
from tests.cases import examples
from tests.oracles.table_model import TableModel

NUMPY = load_backend("numpy")
WORDS = Vocabulary([b"", b"a", b"b", b"c", b"ab", b"ba"], eos=[0])
LETTERS = Vocabulary(
    [b"", b"a", b"\xc3", b"\xa9", "é".encode(), b"\xe2\x82", b"\xac", b"a\xc3", b"x"], eos=[0], special=[8]
)

Check = Callable[[str, bool], bool]


def of(check: Check, *before: Any, words: Vocabulary = WORDS, **options: Any) -> Chain:
    return processors.load(*before, ("checked", {"check": check, "sample": False, **options}), tokenizer=words)


def step(chain: Chain, logits: Any, taken: Sequence[int] = (), backend: Backend = NUMPY, **more: Any) -> np.ndarray:
    """The ids that are left to each row (-1: all of them, -2: none), after each row accepted some tokens."""
    array = backend.asarray(np.asarray(logits, dtype=np.float32))
    prompt = more.pop("prompt", [[1]] * len(logits))
    context = Context.start(array, prompt=prompt, max_length=32, **more)
    out, _ = chain.process(array, chain.init_state(context), context.accept([list(taken)] * len(logits)))
    found = backend.to_numpy(out)
    left = (found > -np.inf).sum(axis=1)
    assert set(left.tolist()) <= {0, 1, found.shape[1]}
    return np.where(left == 1, found.argmax(axis=1), np.where(left == 0, -2, -1))


def no_pair(text: str, ends: bool) -> bool:
    """No letter twice in a row, and an even length at the end."""
    return all(x != y for x, y in pairwise(text)) and not (ends and len(text) % 2)


def accepted(check: Check, taken: Sequence[int], words: Vocabulary = WORDS) -> list[int]:
    """The ids that the function accepts, one by one."""
    text = words.decode(taken)
    return [
        token
        for token in range(words.size)
        if (check(text, True) if token in words.eos else check(text + words.decode([token]), False))
    ]


# -- what is chosen --------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 5), max_size=4), st.integers(0, 10_000))
@examples(60)
def test_the_likeliest_accepted_token_stays(taken: list[int], seed: int) -> None:
    logits = np.random.default_rng(seed).integers(-3, 3, size=(3, WORDS.size)).astype(np.float32)
    right = accepted(no_pair, taken)
    expected = [max(right, key=lambda token: (line[token], -token)) if right else -2 for line in logits]
    assert step(of(no_pair), logits, taken).tolist() == expected


def test_texts_have_the_models_distribution_over_the_accepted_tokens_of_each_step() -> None:
    count, length, model = 1500, 2, TableModel(NUMPY, WORDS.size, seed=4)
    exact: Counter[tuple[int, ...]] = Counter()
    for text in product(range(WORDS.size), repeat=length):
        chance, row = 1.0, [1]
        for n, token in enumerate(text):
            if 0 in text[:n]:  # behind the end
                chance *= token == 0
                continue
            weights = np.exp(model.row_logits(row).astype(np.float64))
            right = accepted(no_pair, text[:n])
            chance *= weights[token] / weights[right].sum() if token in right else 0.0
            row.append(token)
        exact[text] += chance
    assert sum(exact.values()) == pytest.approx(1)
    generator = Generator(model, of(no_pair, sample=True), max_tokens=length)
    found = Counter((*one.tokens, 0, 0)[:length] for one in generator([[1]] * count, seed=5))
    likely = {text: count * chance for text, chance in exact.items() if count * chance > 5}
    rest = count - sum(likely.values())
    assert all(exact[text] > 0 for text in found)
    squares = sum((found[text] - wanted) ** 2 / wanted for text, wanted in likely.items())
    squares += (sum(n for text, n in found.items() if text not in likely) - rest) ** 2 / max(rest, 1)
    # The 99.9th percentile of chi-square by Wilson and Hilferty.
    freedom = len(likely)
    assert freedom > 8
    assert squares < freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3


def test_the_noise_of_tokens_has_the_gumbel_distribution_and_no_ties() -> None:
    count = 60_000
    noise = np.sort(_gumbel(np.array([3], np.int32), np.array([5], np.int32), np.arange(count, dtype=np.int32)))
    assert (np.diff(noise) > 0).all()
    # Kolmogorov and Smirnov: by chance, one of a thousand is further away.
    away = np.abs(np.exp(-np.exp(-noise)) - (np.arange(count) + 0.5) / count).max()
    assert away < 1.95 / count**0.5


def test_the_order_does_not_depend_on_the_function() -> None:
    """Each draw is the first of one order, so refusing the tokens of earlier draws gives draws without replacement."""
    logits = np.random.default_rng(1).normal(size=(1, WORDS.size)).astype(np.float32)
    order: list[int] = []
    while len(order) < WORDS.size:
        refused = [WORDS.decode([token]) for token in order if token]
        (token,) = step(
            of(lambda text, ends, r=refused: not ends and text not in r, sample=True), logits, seed=[7]
        ).tolist()
        if token == -2:
            break
        order.append(token)
    assert sorted(order) == [1, 2, 3, 4, 5]
    check, asked = asking(lambda text, ends: False)
    step(of(check, sample=True), logits, seed=[7])
    assert [text for text, ends in asked if not ends] == [WORDS.decode([token]) for token in order]


@given(st.lists(st.integers(-9, 9), max_size=400))
@examples(40)
def test_scores_are_put_in_order_part_by_part(values: list[int]) -> None:
    assert [*_falling(np.array(values, dtype=np.float64))] == sorted(range(len(values)), key=lambda n: -values[n])


@pytest.mark.parametrize("sample", [False, True])
def test_every_array_library_and_every_batch_chooses_the_same(backend: Backend, sample: bool) -> None:
    logits = np.random.default_rng(2).normal(size=(5, WORDS.size)).astype(np.float32)
    chain, seeds = of(no_pair, sample=sample), [3, 1, 4, 1, 5]
    together = step(chain, logits, [1, 2], backend, seed=seeds)
    alone = [step(chain, logits[n : n + 1], [1, 2], seed=seeds[n : n + 1]).item() for n in range(5)]
    assert together.tolist() == alone


# -- what is asked ---------------------------------------------------------------------------------------------


def asking(answer: Check) -> tuple[Check, list[tuple[str, bool]]]:
    asked: list[tuple[str, bool]] = []

    def check(text: str, ends: bool) -> bool:
        asked.append((text, ends))
        return answer(text, ends)

    return check, asked


def test_tokens_are_asked_about_by_falling_logit_until_one_is_accepted() -> None:
    check, asked = asking(lambda text, ends: text == "cab")
    assert step(of(check), [[4, 5, 6, 0, 3, 2]], [3]).tolist() == [4]
    assert asked == [("cb", False), ("ca", False), ("c", True), ("cab", False)]


def test_forbidden_tokens_and_tokens_without_text_are_not_asked_about() -> None:
    check, asked = asking(lambda text, ends: False)
    chain = of(check, ("suppress_tokens", {"tokens": [2]}), words=LETTERS)
    logits = np.append(np.arange(9.0), 9.0)[None]  # one column more than the vocabulary has ids
    assert step(chain, logits).tolist() == [-2]
    assert asked == [("a\ufffd", False), ("\ufffd", False), ("é", False), ("a", False), ("", True)]


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([1], [("aé", False), ("aa\ufffd", False), ("a\ufffd", False), ("aa", False), ("a", True)]),
        ([1, 2], [("aé", False), ("aì", False)]),  # neither an end nor a new character
        ([7, 3], [("aéé", False), ("aéa\ufffd", False), ("aé\ufffd", False), ("aéa", False), ("aé", True)]),
        ([5], [("€", False), ("₩", False)]),
    ],
    ids=["whole", "begun", "finished", "of three bytes"],
)
def test_characters_of_several_tokens(taken: list[int], expected: list[tuple[str, bool]]) -> None:
    check, asked = asking(lambda text, ends: False)
    logits = np.array([[0, 1, 3, 6, 7, 5, 8, 4, 9]], dtype=np.float32)
    step(of(check, words=LETTERS), logits, taken)
    assert sorted(asked) == sorted(expected)


def test_the_prompt_is_part_of_the_text_where_that_is_asked_for() -> None:
    check, asked = asking(lambda text, ends: True)
    step(of(check, include_prompt=True), [[0, 1, 0, 0, 0, 0]] * 2, [2], prompt=[[3], [4, 5]])
    step(of(check), [[0, 1, 0, 0, 0, 0]], [2], prompt=[[3]])
    assert asked == [("cba", False), ("abbaba", False), ("ba", False)]


def test_rows_that_have_ended_or_have_no_token_or_number_are_left_as_they_are() -> None:
    chain = of(lambda text, ends: False)
    assert step(chain, [[0.0] * 6], [1, 0]).tolist() == [-1]
    assert step(chain, [[-np.inf] * 6]).tolist() == [-2]
    context = Context.start(np.full((1, 6), np.nan, dtype=np.float32), prompt=[[1]], max_length=4)
    out, _ = chain.process(np.full((1, 6), np.nan, dtype=np.float32), chain.init_state(context), context)
    assert np.isnan(out).all()


# -- what goes wrong -------------------------------------------------------------------------------------------


def test_more_questions_than_allowed_are_an_error_that_says_where() -> None:
    check, asked = asking(lambda text, ends: False)
    with pytest.raises(
        NoLegalToken, match=r"refused all 3 texts .* for row 0 after 'c'\. Raise the option 'questions'"
    ):
        step(of(check, questions=3), [[0.0] * 6], [3])
    assert len(asked) == 3
    assert step(of(lambda text, ends: text == "b", questions=3), [[3, 2, 1, 0, 0, 0]]).tolist() == [2]


def test_a_row_that_cannot_go_on_is_named_by_the_loop() -> None:
    chain = of(lambda text, ends: len(text) < 2 and not ends)
    with pytest.raises(NoLegalToken, match=r"'checked' left row 0 without any legal token at position 2 after '.'"):
        Generator(TableModel(NUMPY, WORDS.size), chain, max_tokens=9)([[1]])


def test_tokens_that_a_truncation_took_away_are_told_of_with_the_right_remedy() -> None:
    model = TableModel(NUMPY, WORDS.size)
    worst = WORDS.decode([int(model.row_logits([1])[1:4].argmin()) + 1])
    chain = of(lambda text, ends: not ends and text == worst, ("top_k", {"k": 2}))
    with pytest.raises(
        NoLegalToken, match=r"top_k' kept no token that 'checked' allows.*Set the options of 'top_k' to keep"
    ):
        Generator(model, chain, max_tokens=9)([[1]])


def test_an_exception_of_the_function_is_the_cause_of_an_error_that_says_where() -> None:
    def broken(text: str, ends: bool) -> bool:
        return {"a": True}[text]

    logits = np.array([[0, 0, 1, 0, 0, 0]] * 2, dtype=np.float32)
    context = Context.start(logits, prompt=[[1], [1]], max_length=8)
    chain = of(broken)
    with pytest.raises(
        OptionError, match=r"raised KeyError \('cb'\) for row 1, .* the text 'cb' may go on from "
    ) as told:
        chain.process(logits, chain.init_state(context), context.accept([[0], [3]]))
    assert isinstance(told.value.__cause__, KeyError)
    with pytest.raises(OptionError, match=r"the text '' may end there"):
        step(of(broken), [[1, 0, 0, 0, 0, 0]])


@pytest.mark.parametrize(
    "answer", [None, 1, "yes", np.array([True])], ids=["nothing", "a number", "a text", "an array"]
)
def test_answers_are_truth_values(answer: Any) -> None:
    with pytest.raises(OptionTypeError, match=r"must return True or False, but for row 0 and the text 'b' it returned"):
        step(of(lambda text, ends: answer), [[0, 0, 1, 0, 0, 0]])
    assert step(of(lambda text, ends: np.bool_(True)), [[0, 0, 1, 0, 0, 0]]).tolist() == [2]


def test_no_document_holds_a_function() -> None:
    with pytest.raises(ChainDocumentError, match=r"which a TOML or JSON document cannot hold"):
        document.to_document(of(no_pair))
    with pytest.raises(OptionTypeError, match=r"Option 'check' of 'checked' must be .*Callable"):
        processors.load(("checked", {"check": "os.getcwd", "sample": True}))


# -- in loops --------------------------------------------------------------------------------------------------


class Guesses:
    """Drafts some ids, now and then what plain decoding writes."""

    def __init__(self, texts: Sequence[Sequence[int]]) -> None:
        self.texts = texts

    def init_state(self, context: Any) -> Any:
        return ()

    def propose(self, state: Any, request: Any) -> Any:
        def draft(sequence: Sequence[int]) -> list[int]:
            text = next((t for t in self.texts if list(t[: len(sequence)]) == list(sequence)), [])
            return [*text[len(sequence) : len(sequence) + len(sequence) % 3], 1, 2, 0]

        return Drafts([draft(sequence) for sequence in request.sequences]), state

    def update(self, state: Any, accepted: Sequence[int]) -> Any:
        return state


PROMPTS = [[1], [2, 3], [4]]


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("strategy", [None, Multinomial()], ids=["greedy", "sampled"])
def test_drafts_change_nothing(sample: bool, strategy: Any) -> None:
    more = {} if strategy is None else {"strategy": strategy}
    chain = of(lambda text, ends: no_pair(text, ends) and not (ends and len(text) < 12), sample=sample)
    plain = Generator(TableModel(NUMPY, WORDS.size), chain, max_tokens=12, **more)
    for seed in range(3):
        expected = plain(PROMPTS, seed=seed)
        texts = [[*prompt, *one.tokens] for prompt, one in zip(PROMPTS, expected, strict=True)]
        drafted = replace(plain, candidates=Guesses(texts))(PROMPTS, seed=seed)
        assert [one.tokens for one in drafted] == [one.tokens for one in expected]
        assert all(no_pair(one.text or "", False) for one in expected)


@pytest.mark.parametrize("sample", [False, True])
def test_forced_tokens_are_asked_about_and_accepted_without_the_model(sample: bool) -> None:
    check, asked = asking(lambda text, ends: not (ends and len(text) < 4))
    model = TableModel(NUMPY, WORDS.size)
    chain = of(check, ("regex", {"pattern": "cc(ca|bc)"}), sample=sample)
    found = [Generator(model, chain, max_tokens=9, skip_forced=skip)([[1]], seed=2)[0] for skip in (False, True)]
    assert found[0].tokens == found[1].tokens
    assert {("c", False), ("cc", False), (found[1].text, True)} <= set(asked)
    context = Context.start(np.zeros((1, WORDS.size), np.float32), prompt=[[1]], max_length=8)
    assert chain.forced_tokens(chain.init_state(context), context) == [[3, 3]]
    refusing = of(lambda text, ends: text != "cc", ("regex", {"pattern": "cc(ca|bc)"}))
    with pytest.raises(NoLegalToken, match="'checked'.* after 'c'"):
        Generator(model, refusing, max_tokens=9)([[1]])


def test_samples_of_a_prompt_differ_and_come_again() -> None:
    generator = Generator(TableModel(NUMPY, WORDS.size), of(no_pair, sample=True), Multinomial(samples=6), max_tokens=8)
    first, again, other = (generator([[1]], seed=seed) for seed in (1, 1, 2))
    assert [one.tokens for one in first] == [one.tokens for one in again] != [one.tokens for one in other]
    assert len({tuple(one.tokens) for one in first}) > 1


def test_a_beam_search_finds_a_single_text() -> None:
    generator = Generator(TableModel(NUMPY, WORDS.size), of(no_pair), max_tokens=8)
    (plain,), (beam,) = generator([[1]]), replace(generator, strategy=BeamSearch(3))([[1]])
    assert beam.tokens == plain.tokens


def test_a_healed_prompt_is_part_of_the_text() -> None:
    check, asked = asking(lambda text, ends: not ends)
    generator = Generator(TableModel(NUMPY, WORDS.size), of(check, include_prompt=True), max_tokens=3, heal=True)
    (found,) = generator([[3, 1]])
    assert found.healed == 1  # "a" may be the beginning of "ab"
    assert {text[:2] for text, _ in asked} == {"ca"}


def test_a_stop_string_is_seen_by_the_function() -> None:
    check, asked = asking(lambda text, ends: not ends or text.endswith("ba"))
    chain = of(check, ("stop", {"strings": ["ba"]}))
    (found,) = Generator(TableModel(NUMPY, WORDS.size, seed=1), chain, max_tokens=20)([[1]])
    assert found.finish == "stop"
    assert any("ba" in text for text, _ in asked)
    assert "ba" not in (found.text or "")
