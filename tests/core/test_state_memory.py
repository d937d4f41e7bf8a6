"""What is remembered of a constraint's states stands in one memory, whose bound changes no result."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from logitloom import Context, HostTable, Vocabulary, processors
from logitloom.automata import TokenAutomaton, compile_pattern
from logitloom.constraints import Constraint, ConstraintMemory, LongestTokens, TokenSet
from logitloom.state_memory import StateMemory

WORDS = Vocabulary(
    [b"", *(bytes([byte]) for byte in range(1, 256)), b"ab", b"abc", b"12", b'{"', b'"}', b"the"], eos=[0]
)


def test_an_array_counts_once_in_however_many_entries():
    memory, ids = StateMemory(), np.arange(1000, dtype=np.int32)
    memory.note(TokenSet(True, ids))
    once = memory.nbytes
    memory.note((TokenSet(False, ids), (TokenSet(True, ids), True)), entries=2)
    assert once > ids.nbytes
    assert memory.nbytes < once + ids.nbytes
    memory.note(ids.copy())
    assert memory.nbytes > once + ids.nbytes


def test_tables_are_emptied_together_before_they_exceed_the_bound():
    memory = StateMemory(most_bytes=10_000)
    squares = memory.remembering("squares", lambda state: (np.full(200, state * state),))
    other = memory.table("other")
    for state in [*range(30), *range(30)]:
        other[state] = state
        assert squares(state)[0][0] == state * state
        assert memory.nbytes <= 10_000
    assert 0 < len(memory.table("squares")) < 10
    assert len(other) < 10


def test_a_result_that_is_none_is_remembered_like_any_other():
    memory, asked = StateMemory(), []
    find = memory.remembering("nothing", asked.append)
    assert [find(1), find(1), find(2)] == [None, None, None]
    assert asked == [1, 2]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda memory: pickle.loads(pickle.dumps(memory))])
def test_a_copy_is_empty_and_has_the_same_bound(copied):
    memory = StateMemory(most_bytes=10_000)
    memory.note()
    memory.table("states")[1] = object()
    other = copied(memory)
    assert (other.most_bytes, other.nbytes, other.table("states")) == (10_000, 0, {})


def test_processors_of_one_constraint_remember_together():
    automaton = TokenAutomaton(compile_pattern("(ab|12)*"), WORDS)
    first, second = ConstraintMemory(automaton), ConstraintMemory(automaton)
    row = first.mask(first.node(automaton.start()))
    assert second.node(automaton.start()).row is row
    second.clear()
    assert first.node(automaton.start()).row is None


CHAINS = {
    "regex": ("regex", {"pattern": "[a-z]{3,9} [0-9]{20}"}),
    "longest tokens": ("regex", {"pattern": "(ab|12)+the", "longest_tokens": True}),
    "between": ("between", {"open": "{", "close": "}", "inner": [["regex", {"pattern": "[a-z]{2,9}"}]]}),
    "until": ("until", {"trigger": "the", "inner": [["regex", {"pattern": "[a-z ]{2,90}"}]]}),
    "json": ("json", {"schema": {"type": "object", "properties": {"ab": {"type": "string"}}, "required": ["ab"]}}),
    "budget": ("budget", {"n": 9, "inner": [["regex", {"pattern": "[a-z ]{2,90}"}]]}),
}


def _tokens_of(chain, steps):
    """Tokens along a text of the chain and the masks on the way, one per step."""
    context = Context.start(np.zeros((1, WORDS.size), dtype=np.float32), vocabulary=WORDS)
    state, masks, rng = chain.init_state(context), [], np.random.default_rng(5)
    for _ in range(steps):
        logits, state = chain.process(np.zeros((1, WORDS.size), dtype=np.float32), state, context)
        masks.append(np.isfinite(logits[0]).nonzero()[0].tolist())
        context = context.accept([rng.choice([token for token in masks[-1] if token] or [0])])
    return masks


@pytest.mark.parametrize("name", CHAINS)
def test_masks_are_equal_with_a_memory_that_holds_nothing(name, monkeypatch):
    expected = _tokens_of(processors.load(CHAINS[name], tokenizer=WORDS), 12)
    monkeypatch.setattr("logitloom.state_memory._CAPACITY", 0)
    assert _tokens_of(processors.load(CHAINS[name], tokenizer=WORDS), 12) == expected


@pytest.mark.parametrize("name", CHAINS)
def test_threads_with_one_small_memory_get_the_same_masks(name, monkeypatch):
    expected = _tokens_of(processors.load(CHAINS[name], tokenizer=WORDS), 12)
    monkeypatch.setattr("logitloom.state_memory._CAPACITY", 1 << 12)
    chain = processors.load(CHAINS[name], tokenizer=WORDS)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: _tokens_of(chain, 12), range(8))) == [expected] * 8


@pytest.mark.parametrize("name", CHAINS)
def test_what_steps_add_is_gone_after_forget(name):
    """The constraint and the constraints within it keep no token sets or masks besides their memories."""
    chain = processors.load(CHAINS[name], tokenizer=WORDS)
    _tokens_of(chain, 12)
    context = Context.start(np.zeros((1, WORDS.size), dtype=np.float32), vocabulary=WORDS)
    (link,) = chain.links
    waiting = [link.processor.constraint_for(context)]
    for constraint in waiting:
        constraint.forget()
        assert constraint.memory.nbytes == 0
        waiting += [each for each in _constraints_in(constraint) if each not in waiting]
    for constraint in waiting:
        held = [value for table in _dictionaries_of(constraint) for value in table.values()]
        assert not [value for value in held if isinstance(value, TokenSet)]


def _constraints_in(constraint):
    found = [
        *getattr(constraint, "constraints", ()),
        getattr(constraint, "inner", None),
        vars(constraint).get("_lifted"),
    ]
    return [each for each in found if isinstance(each, Constraint)]


def _dictionaries_of(constraint):
    found = [each for each in vars(constraint).values() if isinstance(each, dict)]
    cached = [each for each in vars(constraint).values() if hasattr(each, "cache_info") and each.cache_info().currsize]
    assert not cached
    return found


def test_longest_tokens_has_a_memory_of_its_own():
    inner = TokenAutomaton(compile_pattern("ab"), WORDS)
    outer = LongestTokens(inner)
    assert len(outer.allowed(outer.start()).ids) < len(inner.allowed(inner.start()).ids)
    assert outer.memory is not inner.memory


@pytest.mark.parametrize(
    "spec", [("regex", {"pattern": "a+"}), ("after", {"trigger": "b", "inner": ["regex", {"pattern": "a+"}]})]
)
def test_a_chain_for_many_vocabularies_keeps_those_of_the_last_few(spec):
    chain, logits, seen = processors.load(spec), np.zeros((1, WORDS.size), dtype=np.float32), []

    def masked(words, state=None):
        context = Context.start(logits, vocabulary=words)
        state = chain.init_state(context) if state is None else state
        return chain.process(logits, state, context)

    expected, state = masked(WORDS)
    for _ in range(60):
        words = Vocabulary(WORDS.token_bytes, eos=WORDS.eos)
        seen.append(weakref.ref(words))
        np.testing.assert_array_equal(masked(words)[0], expected)
    del words
    gc.collect()
    assert sum(each() is not None for each in seen) < 30
    np.testing.assert_array_equal(masked(WORDS, state)[0], expected)  # a row of the first vocabulary goes on


@pytest.mark.parametrize("name", ["min_tokens", "forced_eos", "eos_above"])
def test_ids_of_ends_are_remembered_as_long_as_their_processors(name):
    def tables():
        gc.collect()
        return sum(type(each) is HostTable for each in gc.get_objects())

    before, logits = tables(), np.zeros((1, 500), dtype=np.float32)
    for number in range(100):
        options = {"min_tokens": {"n": 1}, "forced_eos": {"max_length": 5}, "eos_above": {"p": 0.5}}[name]
        ends = [number, ord(name[0]) + number]
        chain, context = processors.load((name, {**options, "eos": ends})), Context.start(logits)
        chain.process(logits, chain.init_state(context), context)
    assert tables() < before + 20
