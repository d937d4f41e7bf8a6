"""Combinations of constraints, case by case: borders of sections, special tokens, budgets, other processors."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from logitloom import MASK, Context, Vocabulary, option, processors
from logitloom.automata import AhoCorasick, TokenAutomaton
from logitloom.constraints import UNKNOWN, ByteAutomaton, Constraint, ConstraintProcessor, State, TokenSet, lift
from logitloom.errors import BudgetExceeded, OptionError, VocabularyError
from logitloom.host.hookspecs import TextEnd
from logitloom_plugins.combinators import after, between, budget, until
from logitloom_plugins.combinators.intersection import Intersection
from logitloom_plugins.combinators.triggers import TokenTexts

_TEXTS = [bytes([byte]) for byte in range(256)]
_PIECES = [b"xy", b"a;", b";b", b"a;b", b"}}", b"xyz", b"ab", b"b;"]
TAG = 257 + len(_PIECES)
WORDS = Vocabulary(
    [b"", *_TEXTS, *_PIECES, b"", b""], eos=[0], special=[TAG, TAG + 1], special_text={TAG: "<t>"}, name="pieces"
)
DIGITS = ["regex", {"pattern": r"\[[0-9,b;]*\]"}]
#: Wider than the vocabulary, as padded models are.
WIDTH = WORDS.size + 3
SPELLED = {text: token for token, text in reversed(list(enumerate(WORDS.token_bytes))) if text}


def ids(text: bytes) -> list[int]:
    """One token per byte."""
    return [SPELLED[bytes([byte])] for byte in text]


def start(spec: Any, rows: int = 1) -> tuple[Any, Context, Any]:
    chain = processors.load(spec, tokenizer=WORDS, debug=True)
    logits = np.zeros((rows, WIDTH), np.float32)
    context = Context.start(logits, vocabulary=WORDS, prompt=[[3]] * rows, max_length=99)
    return chain, context, chain.init_state(context)


def allowed(spec: Any, *texts: bytes | list[int]) -> list[set[Any]]:
    """Per text what may come next: bytes of tokens, ids of what writes nothing."""
    chain, context, state = start(spec, len(texts))
    accepted = [ids(text) if isinstance(text, bytes) else text for text in texts]
    logits, _ = chain.process(np.zeros((len(texts), WIDTH), np.float32), state, context.accept(accepted))
    return [
        {WORDS.token_bytes[token] or token if token < WORDS.size else token for token in np.flatnonzero(row > -np.inf)}
        for row in logits
    ]


# -- defects of the past --------------------------------------------------------------------------------------


def test_a_trigger_that_is_begun_inside_does_not_end_the_choice() -> None:
    spec = until("xy", ("choice", {"choices": ["abc", "xyz"]}))
    assert allowed(spec, b"", b"x", b"xy", b"abc", b"xyz") == [
        {b"a", b"ab", b"x", b"xy", b"xyz"},
        {b"y"},
        {b"z"},
        {0, b"x", b"xy", b"xyz"},
        {0, b"x", b"xy", b"xyz"},
    ]


def test_a_trigger_within_the_inner_text_may_be_part_of_it() -> None:
    spec = until("\n", ("regex", {"pattern": "ab\ncd|x"}))
    assert allowed(spec, b"ab", b"ab\n", b"x") == [{b"\n"}, {b"c"}, {0, b"\n"}]


def test_the_closing_string_may_close_nested_objects() -> None:
    spec = between("{{", "}}", ("json", {"whitespace": "compact", "schema": {"type": "object"}}))
    nested, closed = allowed(spec, b'{{{"a":{"b":1}', b'{{{"a":{"b":1}}')
    assert nested - {b"}}"} == {b",", b"}"}
    assert closed == {b"}", b"}}"}
    assert 0 in allowed(spec, b'{{{"a":{"b":1}}}}')[0]


@pytest.mark.parametrize("make", [until, lambda close, *inner: between("(", close, *inner)])
def test_a_stateless_processor_inside_sees_its_rows_only(make: Any) -> None:
    found = allowed(make(";", ("suppress_tokens", {"tokens": ids(b"q")})), b"(a", b"(aaa;", b"(b")
    assert [b"q" in tokens for tokens in found] == [False, True, False]


# -- borders ----------------------------------------------------------------------------------------------------


def test_tokens_run_across_the_borders_of_sections() -> None:
    spec = until(";", ("regex", {"pattern": "a*"}), then=("regex", {"pattern": "b+"}))
    assert allowed(spec, b"", b"a;", b"a;b") == [{0, b"a", b";", b"a;", b";b", b"a;b"}, {b"b"}, {0, b"b"}]
    assert allowed(after(";", ("regex", {"pattern": "b"})), b"")[0] >= {b";", b"a;", b";b", b"a;b"}


def test_free_text_ends_with_the_first_occurrence() -> None:
    assert allowed(after(";", ("regex", {"pattern": "1"})), b"a;")[0] == {b"1"}
    found = allowed(after("ab", ("regex", {"pattern": "1"})), b"a")[0]
    assert {b"b", b"a"} <= found
    assert b"b;" not in found


@pytest.mark.parametrize("inner", [(), ("bad_words", {"phrases": ["q"]})])
def test_of_several_triggers_the_first_that_is_complete_counts(inner: Any) -> None:
    spec = until(["ab", "bcd"], inner, then=("regex", {"pattern": "1"}))
    assert allowed(spec, b"ab", b"bcd") == [{b"1"}, {b"1"}]
    assert {b"d", b"c"} <= allowed(spec, b"bc")[0]


def test_special_ids_are_the_triggers_that_they_are_written_as() -> None:
    spec = until("<t>", ("regex", {"pattern": "aa"}), then=after("<t>", ("regex", {"pattern": "b"})))
    assert allowed(spec, b"a", b"aa", [*ids(b"aa"), TAG, *ids(b"x"), TAG]) == [{b"a"}, {0, b"<", TAG}, {b"b"}]
    free = allowed(spec, [*ids(b"aa"), TAG])[0]
    assert {TAG, TAG + 1, WIDTH - 1, 0} <= free


def test_special_ids_are_the_parts_of_triggers_that_they_are_written_as() -> None:
    spec = until("x<t>;", ("regex", {"pattern": "aa"}), then=after("a<t>", ("regex", {"pattern": "b"})))
    begun = [*ids(b"aa"), *ids(b"x")]
    assert allowed(spec, begun, [*begun, TAG]) == [{b"<", TAG}, {b";", b";b"}]
    free = [*begun, TAG, *ids(b";")]
    assert allowed(spec, [*free, *ids(b"za"), TAG]) == [{b"b"}]
    assert {TAG, b"a", 0} <= allowed(spec, [*free, *ids(b"z"), TAG])[0]


# -- what only watches -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Banned(ConstraintProcessor):
    """Bans phrases, written outside."""

    phrases: tuple[str, ...] = option(help="What must not occur.")

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        return lift(_Without(self.phrases), vocabulary, vocab_size, restricts=False)


class _Without(ByteAutomaton):
    def __init__(self, phrases: Sequence[str]) -> None:
        self.phrases = [phrase.encode() for phrase in phrases]

    @property
    def fingerprint(self) -> bytes:
        return repr(self.phrases).encode()

    def start(self) -> State:
        return b""

    def step(self, state: State, byte: int) -> State | None:
        text: bytes = state + bytes([byte])  # type: ignore[operator]
        if any(text.endswith(phrase) for phrase in self.phrases):
            return None
        begun = {phrase[:n] for phrase in self.phrases for n in range(len(phrase))}
        return next(text[n:] for n in range(len(text) + 1) if text[n:] in begun)

    def accepts(self, state: State) -> bool:
        return True


class Masking:
    """Bans phrases with a mask of its own; not a constraint."""

    stage = "constraint"
    effect = MASK

    def __init__(self, *phrases: str) -> None:
        self.phrases = [phrase.encode() for phrase in phrases]

    def init_state(self, context: Context) -> Any:
        from logitloom.rows.tree import Rows

        return Rows([b""] * context.batch)

    def process(self, logits: Any, state: Any, context: Context) -> tuple[Any, Any]:
        if context.tokens is not None:
            new = [[token for token in row if token >= 0] for row in context.tokens.tolist()]
            state = type(state)(text + WORDS.text_bytes(row) for text, row in zip(state, new, strict=True))
        logits = logits.copy()
        for row, text in enumerate(state):
            for token, more in enumerate(WORDS.token_bytes):
                if more and any(phrase in (text + more)[-len(phrase) - len(more) + 1 :] for phrase in self.phrases):
                    logits[row, token] = -np.inf
        return logits, state


def test_bans_of_others_behave_as_the_built_in() -> None:
    texts = [b"", b"x", b"q", b"qx", b"q;", b"q;x"]
    built_in = allowed(until(";", ("bad_words", {"phrases": ["xy", "qa"]})), *texts)
    assert allowed(until(";", Banned(("xy", "qa"))), *texts) == built_in
    assert allowed(until(";", Masking("xy", "qa")), *texts) == built_in
    assert {b"a;", b";b", 0, TAG} <= built_in[0]
    assert not {b"a", b"a;", b"ab"} & built_in[2]


def test_a_banned_phrase_may_be_part_of_what_ends_the_section() -> None:
    spec = until("xy", ("bad_words", {"phrases": ["x"]}), required=True)
    assert b"x" in allowed(spec, b"a")[0]
    assert b"xyz" in allowed(spec, b"a")[0]
    assert allowed(spec, b"ax")[0] == {b"y", TAG, TAG + 1, *range(WORDS.size, WIDTH)}


def test_after_a_stop_string_only_what_ends_the_section_may_come() -> None:
    chain, context, state = start(between("(", ")", ("stop", {"strings": ["ab"]})))
    tokens = context.accept([[*ids(b"("), SPELLED[b"ab"]]])
    assert chain.text_ends(state, tokens) == [TextEnd(True, 2)]
    assert allowed(between("(", ")", ("stop", {"strings": ["ab"]})), b"(ab")[0] == {b")"}
    assert allowed(after("(", ("stop", {"strings": ["ab"]})), b"(ab")[0] == {0}
    chain, context, state = start(after("(", ("stop", {"strings": ["ab"]})))
    assert chain.text_ends(state, context.accept([[*ids(b"(ab"), 0]])) == [TextEnd(True, 2)]


# -- several constraints --------------------------------------------------------------------------------------


def test_several_constraints_are_satisfied_together() -> None:
    both = [("regex", {"pattern": "[ab]{2}"}), ("bad_words", {"phrases": ["ab", "bb"]})]
    again = {b"a", b"a;", b"a;b"}
    assert allowed(until(";", *both), b"", b"a", b"b", b"ba") == [{b"a", b"b"}, again, again, {0, b";", b";b"}]


def test_a_combination_is_satisfied_together_with_a_constraint() -> None:
    small = ("regex", {"pattern": "x(?:ab|cd)"})
    both = until(":", between("[", "]", small), ("bad_words", {"phrases": ["b"]}))
    found = allowed(both, b"[", b"[x", b"[xcd")
    assert found == [{b"x"}, {b"c"}, {b"]"}]


def test_large_patterns_are_satisfied_together_with_others() -> None:
    large = ("regex", {"pattern": ".{0,60} x.{0,60}(?:ab|cd).{0,60}"})
    both = until(";", large, ("bad_words", {"phrases": ["b", "x  "]}))
    assert b"b" not in allowed(both, b" x")[0]
    assert {b"a", b"c"} <= allowed(both, b" x")[0]
    assert allowed(both, b" x" + b" " + 59 * b"a")[0] == {b"c"}  # the last place for what must come
    nested = until(":", between("[", "]", large), ("bad_words", {"phrases": ["b", "x  "]}))
    assert allowed(nested, b"[ x" + b" " + 59 * b"a")[0] == {b"c"}


@pytest.mark.parametrize(
    "pattern", [r"[\s\S]{2,9}", r"[\s\S]{50,2000}", r"\S(?:[\s\S]{0,30}\S)?", "a*(?:xy|b{3,700})?"]
)
@pytest.mark.parametrize("phrases", [["b;"], ["xyz", "}}"]])
def test_masks_that_each_constraint_decides_are_those_of_a_walk_through_the_product(
    pattern: str, phrases: list[str]
) -> None:
    names = ("regex", {"pattern": pattern}), ("bad_words", {"phrases": phrases})
    constraints = [processors.load(name, tokenizer=WORDS).links[0].processor.constraint(WORDS, WIDTH) for name in names]
    found, walked = Intersection(constraints, "until"), Intersection(constraints, "until")
    assert found._completing is not None
    walked._completing = None
    draw = random.Random(4)
    for _ in range(10):
        state: State | None = found.start()
        for _ in range(14):
            assert state is not None
            ids = found.allowed(state).listed(WIDTH)
            np.testing.assert_array_equal(ids, walked.allowed(state).listed(WIDTH))
            if not len(ids):
                break
            state = found.advance(state, draw.choice(ids.tolist()))


@pytest.mark.parametrize(
    "pattern", [r"[\s\S]{2,9}", r"[\s\S]{50,2000}", r"\S(?:[\s\S]{0,30}\S)?", "a*(?:xy|b{3,700})?"]
)
def test_tokens_near_a_limit_are_those_after_which_few_tokens_write_a_completion(pattern: str) -> None:
    names = ("regex", {"pattern": pattern}), ("bad_words", {"phrases": ["b;", "xyz"]})
    constraints = [processors.load(name, tokenizer=WORDS).links[0].processor.constraint(WORDS, WIDTH) for name in names]
    found, draw = Intersection(constraints, "until"), random.Random(4)
    assert found.most_after(found.start()) < UNKNOWN
    for _ in range(6):
        state: State | None = found.start()
        for _ in range(10):
            assert state is not None
            ids, least = found.least_after(state)
            np.testing.assert_array_equal(ids, found.allowed(state).listed(WIDTH))
            if not len(ids):
                break
            needed: list[int] = []
            for token, told in zip(ids.tolist(), least.tolist(), strict=True):
                after = found.advance(state, token)
                assert after is not None
                tokens = found.least_tokens(after)
                assert tokens is not None
                assert tokens <= told <= found.most_after(state)
                needed.append(tokens)
            for most in (0, 3, 30):
                within = found.allowed_within(state, most)
                if within is not None:
                    fitting = ids[np.array(needed) <= most]
                    assert set(within.listed(WIDTH).tolist()) <= set(fitting.tolist())
                    assert len(within.listed(WIDTH)) or not len(fitting)
            state = found.advance(state, draw.choice(ids.tolist()))


def test_constraints_that_nothing_satisfies_are_refused() -> None:
    both = [("regex", {"pattern": "a+b"}), ("bad_words", {"phrases": ["b"]})]
    with pytest.raises(OptionError, match="No text satisfies all constraints in one part of 'until'"):
        start(until(";", *both))


def test_a_search_without_bound_is_refused() -> None:
    @dataclass(frozen=True)
    class Counting(ConstraintProcessor):
        def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
            return lift(_Depth(), vocabulary, vocab_size)

    assert allowed(until(";", Counting()), b"((")[0] == {b"(", b")"}
    with pytest.raises(BudgetExceeded, match="constraints in one part of 'until' have more than"):
        start(until(";", Counting(), ("regex", {"pattern": "[()]{200,}"})))
    # What a few bytes complete needs no search.
    assert allowed(until(";", Counting(), ("bad_words", {"phrases": ["()()"]})), b"((")[0] == {b"(", b")"}


class _Depth(ByteAutomaton):
    fingerprint = b"brackets"

    def start(self) -> State:
        return 0

    def step(self, state: State, byte: int) -> State | None:
        depth: int = state + {ord("("): 1, ord(")"): -1}.get(byte, -1000)  # type: ignore[operator]
        return depth if depth >= 0 else None

    def accepts(self, state: State) -> bool:
        return state == 0


# -- constraints that know tokens only --------------------------------------------------------------------------


class _TokensOnly(Constraint):
    """A constraint that hides its automaton, as grammar engines do."""

    def __init__(self, inner: Constraint) -> None:
        self.inner, self.vocabulary, self.vocab_size = inner, inner.vocabulary, inner.vocab_size

    @property
    def fingerprint(self) -> bytes:
        return b"tokens only" + self.inner.fingerprint

    def start(self) -> State:
        return self.inner.start()

    def advance(self, state: State, token: int) -> State | None:
        return self.inner.advance(state, token)

    def allowed(self, state: State) -> TokenSet:
        return self.inner.allowed(state)

    def may_end(self, state: State) -> bool:
        return self.inner.may_end(state)


@dataclass(frozen=True)
class Opaque(ConstraintProcessor):
    """A regular expression of which tokens alone are known."""

    pattern: str = option(help="The pattern.")

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        chain = processors.load(("regex", {"pattern": self.pattern}), tokenizer=vocabulary)
        return _TokensOnly(chain["regex"].constraint(vocabulary, vocab_size))


def test_what_knows_tokens_only_is_combined_at_their_borders() -> None:
    texts = [b"", b"a", b"aa", b"aa;", b"aa;b"]
    one, other = "a{0,2}", "b+"
    exact = allowed(until(";", ("regex", {"pattern": one}), then=("regex", {"pattern": other})), *texts)
    found = allowed(until(";", Opaque(one), then=Opaque(other)), *texts)
    assert exact[0] == {0, b"a", b";", b"a;", b";b", b"a;b"}
    assert found == [{0, b"a", b";", b";b"}, exact[1] - {b"a;", b"a;b"}, *exact[2:]]
    with pytest.raises(OptionError, match="and 'Opaque' has no automaton .* Put 'Opaque' next to 'until' in the chain"):
        start(until(";", ("bad_words", {"phrases": ["b"]}), Opaque(one)))


def test_a_limit_of_one_of_several_constraints_is_refused_with_its_cause() -> None:
    limited, beside = ("regex", {"pattern": "a+", "finish_within": 4}), ("bad_words", {"phrases": ["b"]})
    with pytest.raises(OptionError, match="and 'regex' has no .* its option 'finish_within': .* give it to 'until'"):
        start(until(";", beside, limited))
    with pytest.raises(OptionError, match="Option 'finish_within' of regex: 4 is too few"):
        start(until(";", ("regex", {"pattern": "a{9}", "finish_within": 4})))


@pytest.mark.parametrize("beside", [[], [("bad_words", {"phrases": ["zz"]})]], ids=["alone", "beside another"])
def test_a_forced_text_is_written_in_its_longest_tokens(beside: list[Any]) -> None:
    literal = ("regex", {"pattern": "xyz[0-9]", "longest_tokens": True})
    assert allowed(after(";", literal, *beside), b";") == [{b"xyz"}]
    assert allowed(after(";", budget(0, text="xyz", end=True), *beside), b";") == [{b"xyz"}]


def test_a_forced_text_of_a_part_with_a_limit_is_written_in_its_longest_tokens() -> None:
    literal = ("regex", {"pattern": "xyz[0-9]", "longest_tokens": True, "finish_within": 9})
    assert allowed(after(";", literal), b";") == [{b"xyz"}]


@pytest.mark.extras
def test_a_forced_text_of_a_grammar_engine_is_written_in_its_longest_tokens() -> None:
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    literal = ("grammar", {"grammar": 'start: "xyz" /[0-9]/', "longest_tokens": True})
    assert allowed(after(";", literal), b";") == [{b"xyz"}]


def test_longest_tokens_beside_another_constraint_give_way_to_a_limit() -> None:
    literal, beside = ("regex", {"pattern": "xyz[0-9]", "longest_tokens": True}), ("bad_words", {"phrases": ["zz"]})
    chain = processors.load(after(";", literal, beside, required=True), tokenizer=WORDS, debug=True)
    context = Context.start(np.zeros((1, WIDTH), np.float32), max_new_tokens=4)
    state = chain.init_state(context)
    for text in (b";", b"xyz", b"1"):
        logits, state = chain.process(np.zeros((1, WIDTH), np.float32), state, context)
        assert logits[0, SPELLED[text]] == 0
        context = context.accept([[SPELLED[text]]])
    assert np.flatnonzero(chain.process(np.zeros((1, WIDTH), np.float32), state, context)[0][0] == 0).tolist() == [0]


# -- budgets --------------------------------------------------------------------------------------------------------


def test_messages_name_the_budget_as_it_is_loaded() -> None:
    with pytest.raises(OptionError, match="No text satisfies all constraints in one part of 'budget'"):
        start(budget(3, ("regex", {"pattern": "a"}), ("regex", {"pattern": "b"})))


def test_a_budget_ends_where_the_inner_text_may_end() -> None:
    spec = budget(2, ("regex", {"pattern": "(abc)*1*"}), end=True)
    assert allowed(spec, b"ab", b"abc", b"11", b"", b"1") == [{b"c"}, {0}, {0}, {0, b"a", b"ab", b"1"}, {0, b"1"}]


def test_the_rest_of_a_token_counts_in_the_next_budget() -> None:
    spec = after(";", budget(1, ("regex", {"pattern": "[ab]*"}), end=True))
    assert allowed(spec, b";", [SPELLED[b";b"]], b";b") == [{0, b"a", b"b", b"ab"}, {0}, {0}]


def test_a_budget_in_free_text_completes_the_character() -> None:
    first, second = "é".encode()[:1], "é".encode()[1:]
    assert first not in allowed(budget(2, end=True), b"a")[0]
    assert first in allowed(budget(2, end=True), b"")[0]
    assert second in allowed(budget(2, end=True), first)[0]
    assert allowed(budget(2, end=True), first + second)[0] == {0}


# -- constraints and others -------------------------------------------------------------------------------------


def test_a_combination_is_a_constraint_unless_something_else_is_inside() -> None:
    assert callable(until(";", ("regex", {"pattern": "a"})).constraint)
    mixed = until(";", ("regex", {"pattern": "a"}), ("temperature", {"temperature": 0.5}))
    assert mixed.constraint is None
    assert after("x", mixed).constraint is None


def test_with_other_processors_inside_the_section_is_over_when_its_string_is_complete() -> None:
    inner = ("regex", {"pattern": "[a;]*"})
    assert allowed(until(";", inner), b"a;")[0] >= {b"a", b"q", b";"}
    mixed = until(";", inner, lambda logits: logits - 1, then=("regex", {"pattern": "b"}))
    assert allowed(mixed, b"a;", b"a;;"[:1])[0] == {b"b"}


def test_other_processors_get_the_tokens_of_their_part() -> None:
    spec = after(";", ("min_tokens", {"n": 2}))
    found = allowed(spec, b"aaaa;a", b";aa", [SPELLED[b";b"]], [SPELLED[b";b"], *ids(b"a")], b"aaa")
    assert [0 in tokens for tokens in found] == [False, True, False, True, True]


#: A combinator inside another one. In the inner one a processor is no constraint.
NESTED: Any = (
    "after",
    {
        "trigger": ";",
        "inner": [
            (
                "until",
                {
                    "trigger": "xy",
                    "inner": [("regex", {"pattern": "[ab]+"})],
                    "then": [("temperature", {"temperature": 0.5})],
                },
            )
        ],
    },
)


def test_a_token_may_enter_a_combinator_with_other_processors() -> None:
    """The combinator reads the part of the token that is in the section."""
    one_token, several, other = allowed(NESTED, [SPELLED[b";b"]], b";b", b";")
    assert one_token == several == {b"a", b"ab", b"b", b"x", b"xy", b"xyz", 0}
    assert other == {b"a", b"ab", b"b"}


def test_a_combinator_with_other_processors_keeps_the_limit_of_the_outer_one() -> None:
    chain, context, _ = start(NESTED)
    for most, begins in ((1, False), (2, False), (3, True)):
        limited = context.with_fields(max_new_tokens=most)
        logits, _ = chain.process(np.zeros((1, WIDTH), np.float32), chain.init_state(limited), limited)
        assert bool(logits[0, SPELLED[b";"]] > -np.inf) is begins


def test_a_string_that_ends_the_outer_section_is_no_text_of_a_combinator_inside() -> None:
    """The combinator inside has spent its budget when half of the string is written, and would force its own text."""
    within = {"n": 2, "inner": ("temperature", {"temperature": 0.5}), "text": "a", "then": ("regex", {"pattern": "b+"})}
    half, whole = allowed(("between", {"open": ";", "close": "xy", "inner": [("budget", within)]}), b";cx", b";cxy")
    assert {b"a", b"y"} <= half
    assert 0 in whole


@pytest.mark.parametrize("then", [("regex", {"pattern": "b"}), [("regex", {"pattern": "b"}), ("top_k", {"k": 300})]])
def test_a_later_section_may_begin_inside_a_span(then: Any) -> None:
    span = {"budget": 2, "begin": "inside", "open": "x", "close": "y", "then": then}
    (found,) = allowed(("after", {"trigger": ";", "inner": [("thinking", span)]}), b";")
    assert {b"a", b";", b"y"} <= found
    assert 0 not in found


def test_states_are_values() -> None:
    spec = ("until", {"trigger": "ab", "inner": ["between", {"open": "a", "close": "b;", "inner": DIGITS}]})
    one, other = (processors.load(spec, tokenizer=WORDS)["until"].constraint(WORDS, WIDTH) for _ in range(2))
    assert one.fingerprint == other.fingerprint
    state, reached = one.start(), other.start()
    for token in ids(b"xa[1,2]b;a"):
        state = pickle.loads(pickle.dumps(one.advance(state, token)))
        reached = other.advance(reached, token)
        assert (state, hash(state)) == (reached, hash(reached))
        np.testing.assert_array_equal(one.allowed(state).mask(WIDTH), other.allowed(state).mask(WIDTH))


def test_states_go_on_in_another_process() -> None:
    """Sets have another order there."""
    inner = ["between", {"open": "a", "close": "b;", "inner": DIGITS}]
    begun = ["thinking", {"required": False, "begin": "outside", "then": inner}]
    spec = ("until", {"trigger": "ab", "inner": inner, "then": ["until", {"trigger": ";", "inner": begun}]})
    program = f"""
        import numpy as np
        from logitloom import Context, Vocabulary, processors
        words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
        chain = processors.load({spec!r}, tokenizer=words)
        logits = np.zeros((1, 257), np.float32)
        context = Context.start(logits, vocabulary=words)
        state = chain.init_state(context)
        for token in [1 + byte for byte in b"xa[1,2]b;a"]:
            found, state = chain.process(logits, state, context.accept([[token]]))
        read = sys.stdin.buffer.read()
        if read:
            found, state = chain.process(logits, chain.load_state(read, context), context)
        told = chain["until"].constraint(words, 257).fingerprint + np.packbits(found[0] > -np.inf).tobytes()
        sys.stdout.buffer.write(told if read else chain.save_state(state) + told)
    """

    def run(seed: str, given: bytes) -> bytes:
        command = [sys.executable, "-c", "import sys\n" + textwrap.dedent(program)]
        env = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(command, input=given, env=env, capture_output=True, check=True).stdout

    told = run("1", b"")
    assert run("2", told[:-49]) == told[-49:]


def test_a_vocabulary_that_cannot_write_is_refused() -> None:
    few = Vocabulary([b"", b"a", b"b"], eos=[0])
    with pytest.raises(VocabularyError, match="cannot write ';', which 'until' waits for"):
        until(";", ("regex", {"pattern": "a"})).constraint(few, 3)


def test_dense_automata_are_read_byte_by_byte() -> None:
    automaton = TokenAutomaton(AhoCorasick(["ab"]).avoiding(), WORDS, WIDTH, restricts=False)
    reached = automaton.automaton()
    assert reached is not None
    assert reached.step(reached.start(), ord("a")) == automaton.advance(automaton.start(), SPELLED[b"a"])


def test_the_tokens_of_a_text_are_looked_up_only_where_tokens_begin_like_it(monkeypatch: pytest.MonkeyPatch) -> None:
    words = Vocabulary([b"", *[bytes([each]) for each in b"abc"], b"ab", b"bca", b"cab", b"x" * 200], eos=[0])
    asked: list[bytes] = []

    def noted(self: TokenTexts, text: bytes) -> list[int]:
        asked.append(text)
        return ids_of(self, text)

    ids_of = TokenTexts.ids_of
    monkeypatch.setattr(TokenTexts, "ids_of", noted)
    text = b"abcab" * 20
    pieces, at, written = TokenTexts(words).spelling(text, "a test"), 0, []
    while at < len(text):
        longest = max((each for each in words.token_bytes if each and text.startswith(each, at)), key=len)
        assert pieces[at] == longest
        written.append(pieces[at])
        at += len(pieces[at])
    assert b"".join(written) == text
    assert len(asked) <= 3 * len(text)


@pytest.mark.parametrize("required", [False, True])
def test_a_marker_that_would_fill_the_memory_is_refused(required: bool) -> None:
    options = {"open": "<" + "a" * 9_000, "required": required}
    with pytest.raises(OptionError, match=r"has 9001 bytes, and texts of at most 8192 are possible there"):
        processors.load(("thinking", options))


@pytest.mark.parametrize(("pattern", "ends"), [(r"[0-9]+(\.[0-9])?", False), (r"[0-9]+\.?", True)])
def test_a_stop_string_comes_only_where_the_other_constraints_may_end(pattern: str, ends: bool) -> None:
    both = [["regex", {"pattern": pattern}], ["stop", {"strings": ["."]}]]
    made: Any = processors.load(("all_of", {"inner": both}), tokenizer=WORDS)["all_of"].constraint(WORDS, WORDS.size)
    state = made.advance(made.start(), SPELLED[b"1"])
    assert made.may_end(state)
    assert (SPELLED[b"."] in made.allowed(state)) == ends
    if ends:
        after = made.advance(state, SPELLED[b"."])
        assert made.may_end(after)
        assert not len(made.allowed(after).listed(WORDS.size))


def test_constraints_together_have_no_dead_ends() -> None:
    both = [["choice", {"choices": ["ab", "xyz", "x"]}], ["bad_words", {"phrases": ["b", "z"]}]]
    assert allowed(("all_of", {"inner": both}), b"", b"x") == [{b"x"}, {0}]
    with pytest.raises(OptionError, match="Give the processors that a text satisfies"):
        processors.load(("all_of", {"inner": []}))
