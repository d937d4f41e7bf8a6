"""Lifted automata against brute force: every token tried byte by byte, every state asked whether an end is left."""

from __future__ import annotations

import pickle
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitloom.automata import DenseAutomaton, compile_pattern
from logitloom.constraints import ByteAutomaton, LiftedAutomaton, lift
from logitloom.errors import VocabularyError
from logitloom.host.hookspecs import TextEnd
from logitloom.masks.kernels import load_kernels
from logitloom.vocabulary import Vocabulary
from tests.cases import EXHAUSTIVE

LETTERS = b"ab()x"
#: The package has a function of the same name.
MODULE = sys.modules["logitloom.automata.lift.lifted_automaton"]


class Brackets(ByteAutomaton):
    """Brackets that close again, at most three deep; a state is the depth."""

    fingerprint = b"brackets"

    def start(self):
        return 0

    def step(self, depth, byte):
        depth += {ord("("): 1, ord(")"): -1}.get(byte, 0)
        return depth if 0 <= depth <= 3 else None

    def accepts(self, depth):
        return depth == 0


class Table(ByteAutomaton):
    """Any table over the letters, without dead ends; states have names so that no number can be taken for them."""

    fingerprint = b""

    def __init__(self, table, accepting, classes=True):
        self.table, self.accepting, self.classes = table, accepting, classes
        self.fingerprint = repr((table, sorted(accepting))).encode()
        self.live = set(accepting)
        while more := {s for s, row in enumerate(table) if s not in self.live and self.live & set(row)}:
            self.live |= more

    def start(self):
        return "s0"

    def step(self, state, byte):
        place = LETTERS.find(byte)
        target = self.table[int(state[1:])][place] if place >= 0 else -1
        return f"s{target}" if target in self.live else None

    def accepts(self, state):
        return int(state[1:]) in self.accepting

    def byte_classes(self):
        if not self.classes:
            return None
        found = np.full(256, len(LETTERS), dtype=np.uint8)
        found[list(LETTERS)] = range(len(LETTERS))
        return found


class Search(ByteAutomaton):
    """Looks for a word; behind it the text must end at the border of a token, though the token may go on."""

    fingerprint = b""

    def __init__(self, word):
        self.word = word
        self.fingerprint = b"search" + word

    def start(self):
        return (b"", 0)

    def step(self, state, byte):
        seen, behind = state
        if seen == self.word:
            return (seen, behind + 1)
        seen += bytes([byte])
        while not self.word.startswith(seen):
            seen = seen[1:]
        return (seen, 0)

    def accepts(self, state):
        return True

    def must_end(self, state):
        return state[0] == self.word

    def text_end(self, state):
        return TextEnd(state[0] == self.word, state[1] + len(self.word) if state[0] == self.word else 0)


class FewTokens(ByteAutomaton):
    """Brackets with a limited number of tokens: what a token leads to differs from what its bytes lead to."""

    fingerprint = b"few tokens"

    def __init__(self, most):
        self.most = most

    def start(self):
        return (0, self.most)

    def step(self, state, byte):
        depth = Brackets().step(state[0], byte)
        return None if depth is None else (depth, state[1])

    def accepts(self, state):
        return state[0] == 0

    def token_border(self, state):
        return (state[0], state[1] - 1) if state[1] > state[0] else None


def every_byte(*more: bytes) -> Vocabulary:
    return Vocabulary([b"", *more, *(bytes([byte]) for byte in range(256))], eos=[0])


def follow(automaton, state, text):
    for byte in text:
        state = automaton.step(state, byte)
        if state is None:
            return None
    return state


class Oracle:
    """The same without numbers, memory, trie or shortcuts."""

    def __init__(self, automaton, vocabulary, width, restricts):
        self.automaton, self.vocabulary, self.width, self.restricts = automaton, vocabulary, width, restricts

    def text(self, token):
        return self.vocabulary.token_bytes[token] if token < self.vocabulary.size else b""

    def reached(self, state, token):
        if token in self.vocabulary.eos or self.automaton.must_end(state):
            return None
        text = self.text(token)
        if not text:
            return None if self.restricts else state
        state = follow(self.automaton, state, text)
        return None if state is None else self.automaton.token_border(state)

    def can_end(self, state):
        seen, queue = {state}, [state]
        for origin in queue:
            if self.automaton.accepts(origin):
                return True
            for token in range(self.width):
                after = self.reached(origin, token)
                if after is not None and after not in seen:
                    seen.add(after)
                    queue.append(after)
        return False

    def advance(self, state, token):
        after = self.reached(state, token)
        return after if after is not None and self.can_end(after) else None

    def allowed(self, state):
        return [token for token in range(self.width) if self.advance(state, token) is not None]


@st.composite
def automata(draw):
    kind = draw(st.sampled_from(["brackets", "table", "search", "few"]))
    if kind == "brackets":
        return Brackets()
    if kind == "search":
        return Search(draw(st.text("ab(", min_size=1, max_size=3)).encode())
    if kind == "few":
        return FewTokens(draw(st.integers(1, 4)))
    size = draw(st.integers(1, 5))
    row = st.lists(st.integers(-1, size - 1), min_size=len(LETTERS), max_size=len(LETTERS))
    table = draw(st.lists(row, min_size=size, max_size=size))
    accepting = draw(st.frozensets(st.integers(0, size - 1), min_size=1))
    return Table(table, accepting, draw(st.booleans()))


@st.composite
def vocabularies(draw):
    texts = draw(st.lists(st.text(LETTERS.decode(), min_size=1, max_size=4), min_size=1, max_size=12))
    tokens = [b"", b"", *(text.encode() for text in texts)]
    if draw(st.booleans()):
        tokens += [bytes([byte]) for byte in range(256)]
    return Vocabulary(tokens, eos=[0], special=[1])


@pytest.fixture(params=[pytest.param("kernels", marks=pytest.mark.extras), "numpy"])
def way(request, monkeypatch):
    if request.param == "kernels" and load_kernels() is None:
        pytest.skip("no compiled kernels are installed")
    if request.param == "numpy":
        monkeypatch.setattr(MODULE, "automaton_kernels", lambda work=0: None)


@pytest.mark.usefixtures("way")
class TestAgainstBruteForce:
    @pytest.mark.long
    @settings(max_examples=150 if EXHAUSTIVE else 15)
    @given(automata(), vocabularies(), st.booleans(), st.integers(0, 2), st.randoms(use_true_random=False))
    def test_masks_and_successors(self, automaton, vocabulary, restricts, padding, rng):
        width = vocabulary.size + padding
        oracle = Oracle(automaton, vocabulary, width, restricts)
        if not oracle.can_end(automaton.start()):
            with pytest.raises(VocabularyError, match="No sequence of tokens of vocabulary writes a text"):
                lift(automaton, vocabulary, width, restricts=restricts)
            return
        constraint = lift(automaton, vocabulary, width, restricts=restricts)
        state = constraint.start()
        for _ in range(6):
            if rng.random() < 0.3:
                constraint.forget()
            if rng.random() < 0.3:
                constraint, state = pickle.loads(pickle.dumps((constraint, state)))
            found = constraint.allowed(state)
            expected = oracle.allowed(state)
            assert found.listed(width).tolist() == expected
            assert found.allowed == (2 * len(expected) <= width)
            tried = expected[:3] + rng.sample(range(1, width), min(6, width - 1))
            for token in tried:
                assert constraint.advance(state, token) == oracle.advance(state, token)
            assert constraint.may_end(state) == automaton.accepts(state)
            assert constraint.text_end(state) == automaton.text_end(state)
            assert expected or constraint.may_end(state)
            if not expected:
                break
            state = constraint.advance(state, rng.choice(expected))

    def test_a_memory_that_is_too_small_is_renewed_while_it_is_used(self, monkeypatch):
        vocabulary = every_byte(*(bytes([a, b]) for a in LETTERS for b in LETTERS))
        expected = lift(Search(b"ab("), vocabulary).allowed((b"a", 0))
        monkeypatch.setattr(MODULE, "MOST_VISITED_BYTES", 0)
        monkeypatch.setattr("logitloom.state_memory._CAPACITY", 0)
        constraint = lift(Search(b"ab("), vocabulary)
        for _ in range(3):
            constraint.allowed((b"", 0))
            found = constraint.allowed((b"a", 0))
            assert found.allowed == expected.allowed
            assert found.ids.tolist() == expected.ids.tolist()

    @pytest.mark.long
    def test_threads_find_the_same(self):
        vocabulary = every_byte(*(bytes([a, b]) for a in range(40, 60) for b in LETTERS))
        oracle = Oracle(Brackets(), vocabulary, vocabulary.size, True)
        expected = [oracle.allowed(depth) for depth in range(4)]
        constraint = lift(Brackets(), vocabulary)

        def work(seed: int) -> bool:
            rng = random.Random(seed)
            right = True
            for _ in range(15):
                depth = rng.randrange(4)
                if rng.random() < 0.3:
                    constraint.forget()
                right &= constraint.allowed(depth).listed(vocabulary.size).tolist() == expected[depth]
            return right

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(8)))


class WithinAnother(ByteAutomaton):
    """Asks another constraint for its tokens in the middle of a walk."""

    fingerprint = b"within another"

    def __init__(self, inner):
        self.inner = inner

    def start(self):
        return 0

    def step(self, depth, byte):
        self.inner.forget()
        assert len(self.inner.allowed(depth).ids)
        return Brackets().step(depth, byte)

    def accepts(self, depth):
        return depth == 0


def test_a_walk_may_begin_within_another():
    vocabulary = every_byte(b"()", b"((a", b"))")
    outer = lift(WithinAnother(lift(Brackets(), vocabulary)), vocabulary)
    for depth in range(4):
        assert outer.allowed(depth).ids.tolist() == lift(Brackets(), vocabulary).allowed(depth).ids.tolist()


def test_automata_without_runs_are_walked_with_many_tokens_below_a_node():
    vocabulary = every_byte(b"a(b", b"a(x", b"(((", b"((((", b"()")
    alive = [t for t, text in enumerate(vocabulary.token_bytes) if text and follow(Brackets(), 0, text) is not None]
    for work in (MODULE._MOST_WORK, 1):
        with (
            mock.patch.object(MODULE, "automaton_kernels", return_value=None),
            mock.patch("logitloom.automata.lift.visited._MANY", 0),
            mock.patch.object(MODULE, "_MOST_WORK", work),
        ):
            ids = lift(Brackets(), vocabulary).allowed(0).listed(vocabulary.size).tolist()
        assert ids == alive if work > 1 else 255 <= len(ids) < len(alive) and set(ids) <= set(alive)


def test_equal_constraints_have_equal_fingerprints():
    one = lift(Brackets(), every_byte(b"()"))
    assert one.fingerprint == lift(Brackets(), every_byte(b"()")).fingerprint
    others = [
        lift(Brackets(), every_byte(b"((")),
        lift(Brackets(), every_byte(b"()"), 300),
        lift(Brackets(), every_byte(b"()"), restricts=False),
        lift(Search(b"a"), every_byte(b"()")),
    ]
    assert len({one.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_the_least_number_of_tokens_is_a_bound_that_tokens_reach():
    constraint = lift(Brackets(), every_byte(b"))", b"x"))
    assert [constraint.least_tokens(depth) for depth in range(4)] == [0, 1, 1, 2]
    assert lift(FewTokens(3), every_byte()).least_tokens((1, 2)) == 1


def test_a_width_below_the_vocabulary_is_refused():
    with pytest.raises(VocabularyError, match=r"vocab_size=3 is less than the 257 ids of vocabulary\."):
        lift(Brackets(), every_byte(), 3)


def test_an_automaton_that_accepts_nothing_is_refused():
    with pytest.raises(VocabularyError, match="No sequence of tokens of vocabulary writes a text"):
        lift(Table([[-1] * len(LETTERS)], frozenset()), every_byte())


def test_results_are_read_only():
    constraint = lift(Brackets(), every_byte())
    with pytest.raises(ValueError, match="read-only"):
        constraint.allowed(0).ids[0] = 3
    assert isinstance(constraint, LiftedAutomaton)
    assert constraint.automaton().fingerprint == b"brackets"
    assert constraint.states is None


@pytest.mark.parametrize("pattern", ["a+b", "[ab]{2}", "(ab|ba)*"])
def test_a_whole_table_is_lifted_as_the_automaton_that_it_is(pattern):
    words = Vocabulary([b"</s>", b"a", b"b", b"ab", b"aab", b"x"], eos=[0])
    dfa = compile_pattern(pattern)
    dense, plain = lift(dfa, words, 8), lift(DenseAutomaton(dfa), words, 8)
    waiting = [(dense.start(), plain.start(), 0)]
    for one, other, depth in waiting:
        assert dense.may_end(one) == plain.may_end(other)
        ids = dense.allowed(one).listed(8).tolist()
        assert ids == plain.allowed(other).listed(8).tolist()
        waiting += [(dense.advance(one, t), plain.advance(other, t), depth + 1) for t in ids if t and depth < 4]
