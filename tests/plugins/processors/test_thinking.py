"""The reasoning span: where it starts and ends, what its budget does, and that the answer alone is constrained."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Context, Vocabulary, load_backend, processors
from logitloom.errors import IllegalToken
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial
from logitloom.generation.candidates import CandidateGenerator
from logitloom.host.registry import load_plugin
from tests.cases import first
from tests.oracles.toy_model import ToyModel

_TEXTS = [bytes([byte]) for byte in range(256)]
_PIECES = [b"<think>", b"</", b"</th", b"ink>", b"k>x", b"think", b"\xc3", b"yes", b"no", b"\xf0\x9f"]
SPECIAL_OPEN, SPECIAL_CLOSE = 268, 269
WORDS = Vocabulary(
    [b"", b"", *_TEXTS, *_PIECES, b"", b""],
    eos=[0],
    special=[1, SPECIAL_OPEN, SPECIAL_CLOSE],
    special_text={SPECIAL_OPEN: "<r>", SPECIAL_CLOSE: "</r>"},
    name="thinking",
)
ANSWER = ["regex", {"pattern": "(yes|no)!?"}]


def ids(text: str | bytes) -> list[int]:
    """One token per byte."""
    return [2 + byte for byte in (text.encode() if isinstance(text, str) else text)]


def begin(prompt: list[int] | None = None, **options: Any) -> tuple[Any, Context, Any]:
    chain = processors.load(("thinking", options), tokenizer=WORDS, debug=True)
    logits = np.zeros((1, WORDS.size), np.float32)
    context = Context.start(logits, vocabulary=WORDS, prompt=[prompt or []])
    return chain, context, chain.init_state(context)


def allowed(chain: Any, context: Context, state: Any, tokens: list[int]) -> set[int]:
    logits, _ = chain.process(np.zeros((1, WORDS.size), np.float32), state, context.accept([tokens]))
    return set(np.flatnonzero(logits[0] > -np.inf).tolist())


def written(chain: Any, context: Context, state: Any, tokens: list[int]) -> bytes:
    return WORDS.text_bytes((chain.forced_tokens(state, context.accept([tokens])) or [[]])[0])


@pytest.mark.parametrize("spent", range(9))
def test_a_spent_budget_completes_the_closing_tag_wherever_it_is(spent: int) -> None:
    """The model begins the tag itself, and the budget ends inside it."""
    chain, context, state = begin(budget=4 + spent, begin="inside", then=ANSWER)
    tokens = ids("hmm " + "</think>"[:spent])
    if spent < 8:
        assert written(chain, context, state, tokens) == b"</think>"[spent:]
        assert len(allowed(chain, context, state, tokens)) == 1
    else:
        assert allowed(chain, context, state, tokens) == set(ids("yn")) | {2 + 256 + 7, 2 + 256 + 8}


def test_the_model_may_close_early_and_the_answer_is_constrained_only_then() -> None:
    chain, context, state = begin(budget=50, begin="inside", then=ANSWER)
    inside = allowed(chain, context, state, ids("we say yes"))
    assert len(inside) == WORDS.size - 1
    assert 0 not in inside
    assert allowed(chain, context, state, ids("a</think>no")) == {0, *ids("!")}


def test_the_end_of_sequence_inside_the_span_is_illegal() -> None:
    chain, context, state = begin(begin="inside")
    with pytest.raises(IllegalToken, match="thinking: row 0 accepted token 0"):
        chain.process(np.zeros((1, WORDS.size), np.float32), state, context.accept([[5, 0]]))


def test_tokens_may_run_over_the_closing_tag_if_the_answer_can_begin_so() -> None:
    for pattern, over in (("(yes|no)!?", False), ("x+", True)):
        chain, context, state = begin(begin="inside", then=["regex", {"pattern": pattern}])
        found = allowed(chain, context, state, ids("a</thin"))
        assert (WORDS.token_bytes.index(b"k>x") in found) == over
        assert ids("k")[0] in found


@pytest.mark.parametrize(("budget", "character"), [(1, "é"), (2, "日"), (3, "😀"), (5, "日")])
def test_a_budget_never_ends_inside_a_character(budget: int, character: str) -> None:
    chain, context, state = begin(budget=budget, begin="inside")
    data = character.encode()
    tokens = ids("a" * (budget - len(data) + 1)) if budget >= len(data) else []
    # The first byte alone would leave the character without room.
    assert ids(data[:1])[0] not in allowed(chain, context, state, tokens)
    roomy, context, state = begin(budget=len(data), begin="inside")
    for n in range(len(data)):
        assert ids(data[n : n + 1])[0] in allowed(roomy, context, state, ids(data[:n]))
    assert written(roomy, context, state, ids(data)) == b"</think>"


@pytest.mark.parametrize(
    ("prompt", "inside"),
    [("", False), ("Hi<think>\n", True), ("<think>a</think>b", False), ("<think>a</think><think>", True)],
)
def test_rows_start_where_the_prompt_leaves_them(prompt: str, inside: bool) -> None:
    chain, context, state = begin(ids(prompt))
    assert (written(chain, context, state, []) == b"<think>") != inside


def test_special_tokens_are_the_tags_that_they_are_written_as() -> None:
    options = {"open": "<r>", "close": "</r>", "budget": 2, "then": ANSWER}
    chain, context, state = begin(**options)
    assert chain.forced_tokens(state, context) == [[SPECIAL_OPEN]]
    assert chain.forced_tokens(state, context.accept([[SPECIAL_OPEN, 9, 9]])) == [[SPECIAL_CLOSE]]
    assert SPECIAL_CLOSE in allowed(chain, context, state, [SPECIAL_OPEN, 9])
    assert 0 not in allowed(chain, context, state, [SPECIAL_OPEN, 9, SPECIAL_CLOSE])
    chain, context, state = begin([5, SPECIAL_OPEN], **options)
    assert chain.forced_tokens(state, context.accept([[9, 9]])) == [[SPECIAL_CLOSE]]


def test_where_thinking_is_not_required_the_answer_may_come_at_once() -> None:
    chain, context, state = begin(required=False, budget=3, then=ANSWER)
    first = allowed(chain, context, state, [])
    assert {*ids("yn<"), WORDS.token_bytes.index(b"<think>")} <= first
    assert 0 not in first
    assert allowed(chain, context, state, ids("yes")) == {0, *ids("!")}
    assert written(chain, context, state, ids("<think>abc")) == b"</think>"
    assert allowed(chain, context, state, ids("<th")) == {WORDS.token_bytes.index(b"ink>")}


def test_a_separator_is_forced_after_the_tag() -> None:
    chain, context, state = begin(begin="inside", budget=1, separator="\n\n", then=ANSWER)
    assert written(chain, context, state, ids("a")) == b"</think>\n\n"
    assert ids("y")[0] in allowed(chain, context, state, ids("a</think>\n\n"))


def test_a_zero_budget_closes_at_once() -> None:
    chain, context, state = begin(budget=0)
    assert written(chain, context, state, []) == b"<think></think>"


@given(data=st.data(), budget=st.integers(0, 6))
def test_whatever_is_written_the_span_has_at_most_its_budget(data: st.DataObject, budget: int) -> None:
    chain, context, state = begin(budget=budget, begin="inside", then=ANSWER)
    tokens: list[int] = []
    while 0 not in tokens:
        legal = sorted(allowed(chain, context, state, tokens))
        likely = [t for t in legal if t >= 2 + 128 or t in ids("</think>a")]
        tokens.append(data.draw(st.sampled_from(likely or legal)))
    data_written = WORDS.text_bytes(tokens)
    span, close, answer = data_written.partition(b"</think>")
    assert close
    assert re.fullmatch(b"(yes|no)!?", answer)
    ends = [n for n in range(len(tokens) + 1) if WORDS.text_bytes(tokens[:n]).startswith(span)]
    assert min(ends) <= budget


@pytest.mark.parametrize(
    "strategy", [Greedy(), Multinomial(3), BeamSearch(4, samples=4)], ids=["greedy", "sampling", "beams"]
)
def test_a_toy_model_thinks_within_its_budget(strategy: Any) -> None:
    model = ToyModel(load_backend("numpy"), WORDS.size, 0, max_length=128)
    chain = processors.load(("thinking", {"budget": 6, "then": ANSWER}), tokenizer=WORDS)
    found = Generator(model, chain, strategy=strategy, max_tokens=60)([[5, 6], [7]])
    for sequence in found:
        assert sequence.finish == "eos"
        text = WORDS.text_bytes(sequence.tokens)
        assert re.fullmatch(rb"<think>.*?</think>(yes|no)!?", text, re.DOTALL)


# -- the real model ---------------------------------------------------------------------------------------


def drafts() -> CandidateGenerator:
    made: CandidateGenerator = load_plugin("candidates", "prompt_lookup")()
    return made


@pytest.mark.extras
@pytest.mark.weights
@pytest.mark.parametrize("way", first(2, ["drafts", "beams", "greedy"]))
@pytest.mark.long
def test_the_real_model_thinks_within_its_budget_and_answers(smollm2: Any, way: str) -> None:
    spec = ("thinking", {"budget": 12, "then": ["regex", {"pattern": r" ?\d{1,3}\."}]})
    chain = processors.load(spec, tokenizer=smollm2.vocabulary)
    more: dict[str, Any] = {"beams": {"strategy": BeamSearch(4, samples=4)}, "drafts": {"candidates": drafts()}}
    generator = Generator(smollm2, chain, max_tokens=40, **more.get(way, {}))
    prompts = ["How much is 20 + 22? I think 20 + 22 is", "Count: one, two, three"]
    for sequence in generator([smollm2.tokenizer.encode(prompt) for prompt in prompts]):
        whole = re.fullmatch(r"<think>(.*?)</think>( ?\d{1,3}\.)", sequence.text or "", re.DOTALL)
        assert whole, sequence.text
        opened = next(n for n in range(40) if smollm2.vocabulary.text_bytes(sequence.tokens[:n]) == b"<think>")
        span = len(b"<think>" + whole[1].encode())
        spent = next(n for n in range(60) if len(smollm2.vocabulary.text_bytes(sequence.tokens[:n])) >= span) - opened
        assert spent <= 12


@pytest.mark.extras
@pytest.mark.weights
@pytest.mark.parametrize("most", [8, 9, 12])
@pytest.mark.long
def test_max_tokens_below_the_budget_close_the_span_in_time(smollm2: Any, most: int) -> None:
    chain = processors.load(("thinking", {"budget": 50, "then": ANSWER}), tokenizer=smollm2.vocabulary)
    (found,) = Generator(smollm2, chain, max_tokens=most)([smollm2.tokenizer.encode("Why?")])
    assert re.fullmatch(r"<think>(.|\n)*</think>(yes|no)!?", found.text or "")
    assert len(found.tokens) <= most
    cut = processors.load(
        ("thinking", {"budget": 50, "then": ANSWER, "finish_within": 0}), tokenizer=smollm2.vocabulary
    )
    (found,) = Generator(smollm2, cut, max_tokens=most)([smollm2.tokenizer.encode("Why?")])
    assert found.finish == "length"
