"""Texts of combinators within a limit of tokens: each is complete, and the bound counts down."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, load_backend, processors
from logitloom.constraints import Constraint, ConstraintMemory, ConstraintProcessor, TokenSet
from logitloom.errors import OptionError
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial
from logitloom_plugins.combinators import FinishWithin
from logitloom_plugins.combinators.combination import Combination
from logitloom_plugins.combinators.section_distances import Distances
from logitloom_plugins.combinators.triggers import TriggerMatcher, token_texts
from tests.cases import first
from tests.core.automata.vocabularies import smollm2
from tests.oracles.toy_model import ToyModel
from tests.plugins.combinators.languages import FREE, Node, accepts, drawn
from tests.plugins.combinators.test_random_combinations import FEW, combination, sequences

SCHEMA: Any = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "add", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now"}},
]
WORDS = Vocabulary(
    [b"", *[bytes([byte]) for byte in range(256)], b"<tool_call>", b"</tool_call>", b'{"', b'":', b"ab", b'{"name": "',
     b"</think>", b"<think>", b"then", b"nk>ab"],
    eos=[0], special=[257, 258],
)  # fmt: skip
SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    "required call": ("tool_call", {"tools": TOOLS, "choice": "required", "parallel": False}),
    "calls": ("tool_call", {"tools": TOOLS, "format": "llama"}),
    "qwen": ("tool_call", {"tools": TOOLS, "format": "qwen3_coder", "choice": "add"}),
    "thinking": ("thinking", {"budget": 6, "then": ("json", {"schema": SCHEMA}), "begin": "outside"}),
    "unlimited thinking": ("thinking", {"then": ("regex", {"pattern": "(ab){2,}"}), "begin": "outside"}),
    "until": ("until", {"trigger": "--", "inner": ("regex", {"pattern": "[a-f]{3,}"}),
                        "then": ("choice", {"choices": ["abba", "c"]})}),
    "between": ("between", {"open": "<a>", "close": "</a>", "inner": ("regex", {"pattern": "x{4}y*"})}),
    "budget": ("budget", {"n": 3, "text": "then", "then": ("regex", {"pattern": "[0-9]{2}"}),
                          "inner": ("regex", {"pattern": "[a-z]+"})}),
}  # fmt: skip


def constraint(name: str) -> Any:
    return processors.load(SPECS[name], tokenizer=WORDS).links[0].processor.constraint(WORDS, WORDS.size)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("more", [0, 1, 7])
@pytest.mark.long
def test_random_texts_are_complete_within_each_number_of_tokens(name: str, more: int) -> None:
    inner = constraint(name)
    least = inner.least_tokens(inner.start())
    assert least is not None
    dice = random.Random(f"{name} {more}")
    for _ in range(3):
        state, left, taken = inner.start(), least + 1 + more, []
        while True:
            needed = inner.least_tokens(state)
            assert needed is not None, WORDS.decode(taken)
            assert needed + 1 <= left, WORDS.decode(taken)
            ids, after = inner.least_after(state)
            assert np.array_equal(ids, inner.allowed(state).listed(inner.vocab_size))
            assert after.max(initial=0) <= inner.most_after(state)
            kept = ids[after <= left - 2].tolist() + ([0] if inner.may_end(state) else [])
            assert kept, WORDS.decode(taken)
            token = dice.choice(kept)
            if token == 0:
                break
            taken.append(token)
            state, left = inner.advance(state, token), left - 1
        assert inner.may_end(state)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(), BeamSearch(beams=3)], ids=["greedy", "sample", "beams"])
@pytest.mark.long
def test_the_limit_of_the_loop_is_kept(name: str, strategy: Any) -> None:
    inner = constraint(name)
    least = inner.least_tokens(inner.start())
    chain = processors.load(SPECS[name], tokenizer=WORDS)
    model = ToyModel(load_backend("numpy"), WORDS.size, seed=4)
    results = Generator(model, chain, strategy, max_tokens=least + 6)([[60]], seed=2)
    limited = FinishWithin(inner, least + 6)
    for result in results:
        assert result.finish == "eos", result.text
        state = limited.start()
        for token in result.tokens:
            state = limited.advance(state, token)
        assert limited.may_end(state)


LARGE = ("regex", {"pattern": ".{0,300}-ab(?:then|é?b){3}"})
AROUND: dict[str, tuple[str, dict[str, Any]]] = {
    "thinking": ("thinking", {"budget": 4, "then": LARGE, "begin": "outside"}),
    "until": ("until", {"trigger": "--", "inner": LARGE, "then": ("choice", {"choices": ["abba", "c"]})}),
    "after": ("after", {"trigger": "ab", "inner": LARGE}),
    "free text": ("after", {"trigger": ("ab", "bthen"), "inner": ("regex", {"pattern": "(?:then|é?b){3}[0-9]+"})}),
    "free text with a budget": ("budget", {"n": 4, "text": "ab", "then": ("regex", {"pattern": "[0-9]{2}"})}),
    "budget": ("budget", {"n": 5, "text": "then", "then": ("regex", {"pattern": "[0-9]{2}"}), "inner": LARGE}),
    "short budget": ("budget", {"n": 2, "inner": LARGE, "then": LARGE}),
}


@pytest.mark.parametrize("name", AROUND)
def test_sections_allow_the_tokens_that_fit(name: str) -> None:
    inner: Any = processors.load(AROUND[name], tokenizer=WORDS).links[0].processor
    inner = inner.constraint(WORDS, WORDS.size)
    dice, told = random.Random(name), 0
    for _ in range(4):
        state = inner.advance(inner.start(), WORDS.token_bytes.index(b"ab")) if name == "after" else inner.start()
        for _ in range(9):
            ids, after = inner.least_after(state)
            for most in range(12):
                found = inner.allowed_within(state, most)
                assert found is None or found.listed(inner.vocab_size).tolist() == ids[after <= most].tolist()
                told += found is not None
            if not len(ids):
                break
            # Rare ends of sections are often taken.
            near = ids[after == after.min()] if dice.random() < 0.4 else ids
            state = inner.advance(state, dice.choice(near.tolist()))
    assert told


class Silent(Constraint):
    """``ab``, without a word about how far its end is."""

    fingerprint = b"silent"

    def __init__(self) -> None:
        self.vocabulary, self.vocab_size = WORDS, WORDS.size

    def start(self) -> int:
        return 0

    def advance(self, state: Any, token: int) -> int | None:
        return state + 1 if token == 1 + b"ab"[min(state, 1)] and state < 2 else None

    def allowed(self, state: Any) -> TokenSet:
        return TokenSet(True, np.array([1 + b"ab"[state]] if state < 2 else [], dtype=np.int32))

    def may_end(self, state: Any) -> bool:
        return bool(state == 2)


def test_a_part_that_cannot_tell_may_still_be_entered() -> None:
    @dataclass(frozen=True)
    class Quiet(ConstraintProcessor):
        def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
            return Silent()

    chain = processors.load(("between", {"open": "<", "close": ">", "inner": Quiet()}), tokenizer=WORDS)
    blank = np.zeros((1, WORDS.size), dtype=np.float32)
    context = Context.start(blank, vocabulary=WORDS, max_new_tokens=50)
    logits, _ = chain.process(blank, chain.init_state(context), context)
    assert np.isfinite(logits[0, 1 + ord("<")])


INNER: dict[str, tuple[str, dict[str, Any]]] = {
    "after": ("after", {"trigger": "a", "inner": ["top_k", {"k": 3}]}),
    "until": ("until", {"trigger": "zzz", "inner": ["temperature", {"temperature": 0.5}]}),
    "between": ("between", {"open": "a", "close": "b", "inner": ["top_k", {"k": 3}]}),
    "budget": ("budget", {"n": 3, "inner": ["top_k", {"k": 3}]}),
    "thinking": ("thinking", {"budget": 3, "inner": ["top_k", {"k": 3}], "begin": "outside"}),
}


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_forced_tokens_end_with_the_end_of_sequence_beside_processors_that_are_no_constraints(
    name: str, limit: int
) -> None:
    limit += 2 if name == "thinking" else 0  # for the text that ends it
    chain = processors.load(INNER[name], tokenizer=WORDS)
    blank = np.zeros((1, WORDS.size), dtype=np.float32)
    context = Context.start(blank, vocabulary=WORDS, max_new_tokens=limit)
    state, tokens = chain.init_state(context), []
    while 0 not in tokens:
        forced = chain.forced_tokens(state, context)
        logits, state = chain.process(blank, state, context)
        new = forced[0] if forced else [int(np.flatnonzero(np.isfinite(logits[0]))[-1])]
        tokens += new
        assert len(tokens) <= limit
        context = context.accept([new])
    assert tokens.index(0) == len(tokens) - 1
    result = Generator(ToyModel(load_backend("numpy"), WORDS.size, seed=4), chain, max_tokens=limit)([[60]])[0]
    assert result.finish == "eos"


BUDGETS: dict[str, Node] = {
    "then": ("budget", 2, ("choice", ("ab",)), "", ("choice", ("1",))),
    "then, inside after": ("after", ";", ("budget", 2, ("choice", ("ab",)), "", ("choice", ("1",))), False),
    "text": ("budget", 2, ("choice", ("ab",)), "b;", ("choice", ("1",))),
    "text after free text": ("budget", 2, FREE, "b;", None),
    "a budget in a budget": ("budget", 1, ("budget", 1, ("regex", "1{2}"), "b;", None), "", None),
    "a part that is longer than the budget": ("budget", 2, ("until", "1a1", FREE, FREE, True), "b;", None),
}


def within_limits(node: Node, limits: range) -> None:
    """Compare the tokens that are allowed within limits with all sequences of tokens that complete a text in time."""
    inner = None
    with contextlib.suppress(OptionError):  # no text satisfies all
        inner = combination(node, FEW)
    if inner is None:
        return
    memory = ConstraintMemory(inner)
    complete = {s for s in sequences(limits[-1] - 1) if accepts(node, [FEW.token_bytes[token] for token in s])}
    least = inner.least_tokens(inner.start())
    assert least is not None
    for limit in limits:
        fitting = {s for s in complete if len(s) < limit}
        begun = {s[:n] for s in fitting for n in range(len(s) + 1)}
        if least + 1 > limit:
            continue
        assert fitting, f"{node} has no text of {limit} tokens, but the least is told as {least + 1}"
        reached: list[tuple[tuple[int, ...], Any]] = [((), inner.start())]
        while reached:
            tokens, state = reached.pop()
            at = memory.node(state)
            mask = memory.mask_within(at, limit - len(tokens)) or memory.mask(at)
            allowed = set(TokenSet(mask.allowed, mask.ids).listed(FEW.size).tolist())
            assert allowed, (node, limit, tokens)
            assert (0 in allowed) == (tokens in complete)
            for token in allowed - {0}:
                assert (*tokens, token) in begun, (node, limit, tokens, token)
                reached.append(((*tokens, token), inner.advance(state, token)))


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.long
def test_a_budget_leaves_room_for_what_comes_after_it(name: str) -> None:
    within_limits(BUDGETS[name], range(1, 7))


@pytest.mark.parametrize("seed", first(16, range(120)))
@pytest.mark.long
def test_each_token_within_a_limit_leads_to_a_text_that_fits(seed: int) -> None:
    draw, depth = random.Random(f"limit {seed}"), 1 + seed % 3
    node = drawn(draw, depth)
    while "json" in repr(node) or "'!'" in repr(node):  # these tokens do not write them
        node = drawn(draw, depth)
    within_limits(node, range(1, 6))


UNTIL: Node = ("until", ";", ("regex", "[ab;]{1,3}"), ("regex", "a;b|ab"), True)


@pytest.mark.parametrize("seed", [-1, *first(12, range(90))])
def test_where_one_reading_is_followed_each_allowed_token_leads_to_a_text_that_fits(seed: int) -> None:
    draw = random.Random(f"decided {seed}")
    node = UNTIL if seed < 0 else drawn(draw, 1 + seed % 3)
    while node[0] not in ("after", "until", "between", "budget") or "json" in repr(node) or "'!'" in repr(node):
        node = drawn(draw, 1 + seed % 3)
    inner: Any = combination(node, FEW)
    if inner is None:
        return
    inner.automaton().decided = True  # as with processors that are no constraints
    memory, least = ConstraintMemory(inner), inner.least_tokens(inner.start())
    for limit in range(least + 1, least + 4):
        reached: set[tuple[int, Any]] = {(limit, inner.start())}
        for left in range(limit, 0, -1):
            for _, state in [each for each in reached if each[0] == left]:
                mask = memory.mask_within(memory.node(state), left) or memory.mask(memory.node(state))
                allowed = TokenSet(mask.allowed, mask.ids).listed(FEW.size).tolist()
                assert allowed, (node, limit, state)
                after = {inner.advance(state, token) for token in allowed if token}
                assert None not in after, (node, state)
                reached |= {(left - 1, each) for each in after}
        assert not any(left < 1 for left, _ in reached)


@pytest.mark.extras
def test_tokens_of_free_text_are_grouped_by_what_matters_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that ends with the beginning of a trigger counts by it; one that completes a trigger by what follows."""
    words = smollm2()
    spec = "after", {"trigger": "the", "inner": ("regex", {"pattern": "[0-9r]+[a-z ]*"})}
    steps, reads, step, read = list[int](), list[int](), TriggerMatcher.step, Combination.read
    monkeypatch.setattr(TriggerMatcher, "step", lambda *given: steps.append(1) or step(*given))
    monkeypatch.setattr(Combination, "read", lambda *given: reads.append(1) or read(*given))
    made: Any = processors.load(spec, tokenizer=words).links[0].processor.constraint(words, words.size)
    ids, least = made.least_after(made.start())
    completing = [text for text in words.token_bytes if b"the" in text]
    assert len(reads) < len(completing) / 2
    assert len(steps) < 20 * len(completing)
    monkeypatch.undo()
    for token, needed in [*zip(ids.tolist(), least.tolist(), strict=True)][::97]:
        assert made.least_tokens(made.advance(made.start(), token)) == needed


def test_ends_of_constrained_sections_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the mask and for the numbers of tokens together."""
    asked, find = Counter[Any](), Combination._find_crossing

    def counted(self: Combination, config: Any) -> Any:
        asked[config] += 1
        return find(self, config)

    monkeypatch.setattr(Combination, "_find_crossing", counted)
    inner = constraint("required call")
    state: Any = inner.start()
    while not inner.may_end(state):
        ids, needed = inner.least_after(state)
        assert np.array_equal(ids, inner.allowed(state).listed(inner.vocab_size))
        state = inner.advance(state, int(ids[needed.argmin()]))
    assert len(asked) > 3
    assert max(asked.values()) == 1


#: Words of which thousands begin with a space, and every byte.
SPACED = Vocabulary(
    [
        *[b"", *[bytes([byte]) for byte in range(256)], b") ", b") (", b" )", b") a"],
        *[b" %s%03d" % (word, n) for word in (b"a", b"(", b"\n") for n in range(1000)],
        *[b"b%d c" % n for n in range(2500)],
    ],
    eos=[0],
    name="spaced",
)
IN_BRACKETS: Any = [
    "between",
    {"open": "(", "close": ") ", "inner": ["regex", {"pattern": "[a-c 0-9]+"}], "required": True},
]


def until(trigger: str, inner: Any, then: Any, **more: Any) -> Any:
    return ["until", {"trigger": trigger, "inner": inner, "then": then, **more}]


def test_tokens_that_begin_with_the_end_of_a_string_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The string ends with a space, with which most tokens begin."""
    read, reads = Combination.read, list[int]()
    monkeypatch.setattr(Combination, "read", lambda *given: reads.append(1) or read(*given))
    inner: Any = processors.load(tuple(IN_BRACKETS), tokenizer=SPACED)["between"].constraint(SPACED, SPACED.size)
    state = inner.start()
    for token in b"(a)":
        state = inner.advance(state, token + 1)
    reads.clear()
    ids, least = inner.least_after(state)
    assert len(ids) > 3000
    assert len(reads) < 100
    monkeypatch.undo()
    for token, needed in [*zip(ids.tolist(), least.tolist(), strict=True)][::61]:
        assert inner.least_tokens(inner.advance(state, token)) == needed


@pytest.mark.parametrize(
    ("specification", "texts"),
    [
        (until(" ", ["regex", {"pattern": "[ab]*( a[0-9]{3})?"}], ["regex", {"pattern": "[0-9a(]+"}]),
         [b"", b"a", b"ab ", b"ab a12", b"ab a123", b"ab a123 "]),
        (until(" a", ["regex", {"pattern": "(ab?)+"}], IN_BRACKETS, required=True),
         [b"a", b"ab", b"ab ", b"ab a(", b"ab a(a)", b"ab a(a) "]),
        (["between", {"open": "(", "close": ") ", "inner": ["regex", {"pattern": "[a ]+"}], "repeat": True}],
         [b"", b"(", b"(a", b"(a)", b"(a) (a", b"(a) x"]),
        (until(" ", ["bad_words", {"phrases": ["aa"]}], ["choice", {"choices": ["a001", "b7 c"]}]),
         [b"", b"a", b"a ", b"a a0"]),
        (until(" ", ["budget", {"n": 2, "inner": ["regex", {"pattern": "a*"}], "then": []}], []),
         [b"", b"a", b"aa", b"aab", b"aa "]),
    ],
)  # fmt: skip
def test_tokens_that_cross_the_border_of_a_section_are_those_that_can_be_read(
    specification: Any, texts: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few tokens that cross it are read one by one, many are walked; reading each token is the oracle of both."""
    name, options = specification

    def made() -> Any:
        return processors.load((name, options), tokenizer=SPACED)[name].constraint(SPACED, SPACED.size)

    def after(constraint: Any, text: bytes) -> Any:
        state = constraint.start()
        for byte in text:
            state = constraint.advance(state, byte + 1)
        return state

    oracle, ways = made(), [(few, made()) for few in (0, 10**6)]
    for text in texts:
        state = after(oracle, text)
        reached = {token: oracle.advance(state, token) for token in range(1, SPACED.size)}
        expected = {token: oracle.least_tokens(at) for token, at in reached.items() if at is not None}
        for few, way in ways:
            monkeypatch.setattr("logitloom_plugins.combinators.combination._FEW_CROSSING", few)
            ids, least = way.least_after(after(way, text))
            assert dict(zip(ids.tolist(), least.tolist(), strict=True)) == expected
            assert way.allowed(after(way, text)).listed(SPACED.size).tolist() == ids.tolist()


@pytest.mark.parametrize("first_only", [False, True])
@pytest.mark.parametrize(
    "needles",
    [(b" ",), (b" a", b"b"), (b" a",), (b") ",), (b"b7 c",), (b"aa",), (b"  a001 and more than the longest token",)],
)
def test_tokens_in_which_a_string_begins(needles: tuple[bytes, ...], first_only: bool) -> None:
    def begins(text: bytes, needle: bytes) -> bool:
        rests = [text[n:] for n in range(1 if first_only else len(text)) if text[n:]]
        return any(rest.startswith(needle) or needle.startswith(rest) for rest in rests)

    expected = [token for token, text in enumerate(SPACED.token_bytes) if any(begins(text, each) for each in needles)]
    assert token_texts(SPACED).begun_in(needles, first_only).tolist() == expected


def test_strings_that_take_more_tokens_than_another_are_not_tried_from_each_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []
    written = Distances._written

    def counted(self: Distances, *at: Any) -> int:
        tried.append(at[2])
        return written(self, *at)

    monkeypatch.setattr(Distances, "_written", counted)
    triggers = [f"{first}{second}{third}" for first in "abc" for second in "7 ;" for third in "abc)"]
    chain = processors.load(("after", {"trigger": triggers, "inner": ["regex", {"pattern": "7"}], "required": True}),
                            tokenizer=SPACED)  # fmt: skip
    made: Any = chain["after"].constraint(SPACED, SPACED.size)
    assert made.least_tokens(made.start()) is not None
    assert made.allowed_within(made.start(), 20).listed(SPACED.size).tolist()
    assert len(tried) < 2 * len(triggers)
