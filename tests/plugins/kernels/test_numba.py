"""Compiled kernels give what NumPy gives: rows of automata, and masked logits to the bit."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Context, load_backend, processors
from logitloom.automata import TokenAutomaton, compile_pattern, default_cache
from logitloom.automata.automaton_kernels import AutomatonKernels, Factor, HostKernels
from logitloom.automata.compilation_budget import Budget, BudgetTracker
from logitloom.automata.deterministic import determinize
from logitloom.automata.deterministic.alphabet import alphabet
from logitloom.automata.deterministic.product import _found, _padded
from logitloom.automata.deterministic.subsets import Subsets
from logitloom.automata.lift import default_paths
from logitloom.automata.lift.above_ascii import marks_above_ascii
from logitloom.automata.lift.default_paths import dense_paths
from logitloom.automata.lift.dense_table import DenseTable
from logitloom.automata.lift.level_walk import level_walk, walked_set
from logitloom.automata.lift.trie import HIGH_OTHER, HIGH_PARTIAL, HIGH_WORD, MALFORMED, vocabulary_trie
from logitloom.automata.lift.walk_arrays import ARRAYS
from logitloom.automata.patterns import utf8
from logitloom.automata.patterns.char_sets import ANY, HighSet, category, literal, normalized
from logitloom.automata.patterns.nfa import RedundantCopies, position_automaton
from logitloom.automata.patterns.pattern import parse_pattern
from logitloom.automata.patterns.utf8 import HighPartition
from logitloom.constraints import ConstraintMemory
from logitloom.constraints import constraint_processor as processor
from logitloom.errors import (
    BudgetExceeded,
    IllegalToken,
    InvalidContext,
    LogitloomWarning,
    PluginImportError,
    UnsupportedPattern,
)
from logitloom.host import registry
from logitloom.masks import kernels
from logitloom.masks.kernels import host_kernels, load_kernels, look_for_kernels_again
from logitloom.masks.logits_pool import LogitsPool
from logitloom.masks.mask_row import MaskRow
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.backends._host_buffer import HostBuffer
from logitloom_plugins.backends._host_rows import mask_host_rows
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine
from tests.cases import examples
from tests.core.automata.lift.test_token_automaton import PRACTICAL
from tests.core.automata.pattern_strategies import patterns
from tests.core.automata.patterns.test_pattern import supported
from tests.core.automata.vocabularies import mixed, tekken
from tests.oracles.walk import Walk, walked
from tests.plugins.json_schema.characters import after_characters
from tests.plugins.kernels.search import searched

pytest.importorskip("numba", reason="Numba is not installed")

pytestmark = pytest.mark.extras

NEG_INF = float("-inf")
_ABOVE_ASCII = np.concatenate([np.arange(0x80, 0xD800), np.arange(0xE000, 0x110000)])
_EDGES = [edge for low, high in category("w", 0).high.ranges for edge in (low, high + 1)]
_IS_WORD = np.searchsorted(_EDGES, _ABOVE_ASCII, side="right") % 2 == 1


@pytest.fixture
def fresh_search() -> Iterator[None]:
    """Kernels are looked for again in the test, and again after it."""
    look_for_kernels_again()
    yield
    registry.refresh()
    look_for_kernels_again()


def by_numpy(automaton: TokenAutomaton, state: int) -> tuple[bool, list[int]]:
    none = np.zeros(0, dtype=np.int32)
    with patch.object(default_paths, "automaton_kernels", lambda work=0: None):
        walked = level_walk(automaton._trie, DenseTable(automaton.dfa, automaton._trie), [(0, state)])
        listed, ids = walked_set(automaton._trie, walked, none, automaton._textless, automaton.vocab_size)
    return listed, ids.tolist()


def assert_rows_agree(automaton: TokenAutomaton, states: Any) -> None:
    assert host_kernels() is not None
    for state in states:
        listed, ids = automaton._find_set(state)
        assert (listed, ids.tolist()) == by_numpy(automaton, state)
        assert ids.dtype == np.int32


# -- rows -----------------------------------------------------------------------------------------------


@contextmanager
def listing(tokens: int) -> Iterator[None]:
    """Walks list so many tokens, and mark them where there are more."""
    ARRAYS.of(0, 0)
    room = ARRAYS._spare
    assert room is not None
    usual, room._listed = room._listed, np.zeros(tokens, dtype=np.int32)
    try:
        yield
    finally:
        room._listed = usual


@given(pattern=patterns(anchors=True), padding=st.integers(0, 9), tokens=st.sampled_from([0, 1, 5, 1024]))
def test_rows_of_random_patterns(pattern: str, padding: int, tokens: int) -> None:
    if not supported(pattern, 0) or compile_pattern(pattern).is_empty:
        return
    dfa = compile_pattern(pattern)
    automaton = TokenAutomaton(dfa, mixed(), mixed().size + padding)
    if "_tables" not in automaton.__dict__:  # rows come from tables where some states are traps
        with listing(tokens):
            assert_rows_agree(automaton, range(min(dfa.states, 40)))


@pytest.mark.parametrize("pattern", [*PRACTICAL, ".{0,1000}", "(?s).{3,500}é", r"(\w+ ){1,60}", "[^é]*|日本*"])
def test_rows_of_practical_patterns_on_a_real_vocabulary(pattern: str) -> None:
    automaton = TokenAutomaton(compile_pattern(pattern), tekken())
    walk = Walk(automaton)
    random = np.random.default_rng(len(pattern))
    state, seen = walk.start, {walk.start}
    for _ in range(12):
        allowed = walk.row(state)
        state = walk.advance(state, int(random.choice(allowed)))
        if state < 0:
            break
        seen.add(state)
    if "_tables" not in automaton.__dict__:
        assert_rows_agree(automaton, sorted(seen))


def test_what_leaves_usual_paths() -> None:
    for pattern in PRACTICAL:
        dfa, trie = compile_pattern(pattern), vocabulary_trie(mixed())
        with patch.object(default_paths, "automaton_kernels", lambda work=0: None):
            by_numpy = dense_paths(dfa, trie)
        for found, expected in zip(dense_paths(dfa, trie), by_numpy, strict=True):
            np.testing.assert_array_equal(found, expected)


# -- where characters above ASCII lead, and products -----------------------------------------------------


@given(pattern=patterns(anchors=True))
def test_where_characters_above_ascii_lead(pattern: str) -> None:
    if not supported(pattern, 0) or compile_pattern(pattern).is_empty:
        return
    dfa = compile_pattern(pattern)
    automaton = MooreMachine(dfa.byte_class, dfa.next, [end or None for end in dfa.accepting.tolist()], dfa.start)
    targets = dfa.next[:, dfa.byte_class[ord("é".encode()[:1])]]
    for usual in (np.arange(dfa.states), np.where(targets >= 0, 0, -1), dfa.next[:, dfa.byte_class[ord("a")]]):
        found = marks_above_ascii(dfa.next, dfa.byte_class, usual.astype(np.int32))
        for state in np.flatnonzero(np.frombuffer(automaton.boundaries, dtype=bool))[:20].tolist():
            elsewhere = after_characters(automaton, state)[_ABOVE_ASCII] != usual[state]
            if usual[state] < 0:
                elsewhere[:] = True
            kinds = HIGH_WORD * bool(elsewhere[_IS_WORD].any()) | HIGH_OTHER * bool(elsewhere[~_IS_WORD].any())
            assert found[state] == kinds | MALFORMED | (HIGH_PARTIAL if kinds else 0)


def above_ascii(low: int, size: int) -> HighSet:
    return normalized([(low, low + size)])


NAMED_SETS = [category(letter, 0).high for letter in "wdsWDS"]
SOME_SETS = st.one_of(
    st.sampled_from([*NAMED_SETS, ANY.high, literal(ord("k"), re.IGNORECASE).high]),
    st.builds(above_ascii, st.sampled_from([0x80, 0x7C5, 0xFFA, 0xD7C1, 0xE000, 0xFFE0]), st.integers(0, 200)),
)


@examples(50)
@given(sets=st.sets(SOME_SETS, max_size=5), data=st.data())
def test_classes_of_characters_and_the_table_of_their_bytes(sets: set[HighSet], data: st.DataObject) -> None:
    ordered = tuple(sorted(sets, key=lambda each: each.ranges))
    found, expected = utf8._compiled(ordered), utf8._divided(ordered, BudgetTracker())
    assert found is not None
    assert found.members == expected.members
    classes = int(expected.labels.max(initial=-1)) + 1
    codes = np.array(data.draw(st.lists(st.integers(-4, -1), min_size=classes, max_size=classes)), dtype=np.int64)
    regrouped = utf8._regrouped(found.finest, codes)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(utf8, "automaton_kernels", lambda work=0: None)
        plain = utf8._regrouped(expected.finest, codes)
    for one, other in zip(
        (found.starts, found.labels, found.column_of, *found.finest, *regrouped),
        (expected.starts, expected.labels, expected.column_of, *expected.finest, *plain),
        strict=True,
    ):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_thousands_of_sets_of_characters_are_divided_within_the_budget() -> None:
    sets = tuple(above_ascii(0x4E00 + 2 * each, 0) for each in range(2000))
    assert utf8._compiled(sets) is None
    with pytest.raises(BudgetExceeded, match="bytes for its sets of characters"):
        HighPartition(sets, BudgetTracker(Budget(table_bytes=1000)))


def subsets(pattern: str, states: int = 100_000, held: int = 1 << 40) -> tuple[Any, Any]:
    """Subset construction of a pattern, compiled and plain."""
    nfa = position_automaton(parse_pattern(pattern), BudgetTracker(), lambda part: UnsupportedPattern(part.name))
    letters = alphabet(nfa.sets, BudgetTracker())
    automaton = Subsets(nfa._replace(order=RedundantCopies([])), letters.members, letters.classes)
    kernels = cast(AutomatonKernels, load_kernels())
    found = determinize._compiled(automaton, kernels, states, held)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(determinize, "automaton_kernels", lambda work=0: None)
        return found, determinize.determinize(automaton, BudgetTracker())


@given(pattern=patterns(anchors=False))
def test_subset_construction(pattern: str) -> None:
    if not supported(pattern, 0):
        return
    found, expected = subsets(pattern)
    assert np.array(found.rows).tolist() == expected.rows
    assert list(found.accepting) == expected.accepting


@pytest.mark.parametrize(
    "pattern", [*PRACTICAL, ".{0,1000}", r"(\w+ ){1,60}", "(a|b)*a(a|b){9}", "((a|é|日)?(b|ü)?){20}", "()", "a"]
)
def test_subset_construction_of_practical_patterns(pattern: str) -> None:
    found, expected = subsets(pattern)
    assert np.array(found.rows).tolist() == expected.rows
    assert list(found.accepting) == expected.accepting


def test_a_subset_construction_ends_at_its_limit() -> None:
    assert len(subsets("(a|b)*a(a|b){9}", states=1024)[0].rows) == 1024
    assert not len(subsets("(a|b)*a(a|b){9}", states=1023)[0].rows)
    assert len(subsets("(?:a|bc){10}", states=1000, held=31)[0].rows) == 21
    assert not len(subsets("(?:a|bc){10}", states=1000, held=30)[0].rows)
    with pytest.raises(BudgetExceeded, match="more than 1000 states"):
        compile_pattern("(a|b)*a(a|b){9}", budget=Budget(states=1000))


@given(first=patterns(anchors=True), second=patterns(anchors=True))
def test_products(first: str, second: str) -> None:
    if not supported(first, 0) or not supported(second, 0):
        return
    dfas = compile_pattern(first), compile_pattern(second)
    kernels_found = cast(AutomatonKernels, load_kernels())
    pairs = np.unique(dfas[0].byte_class.astype(np.int64) * 256 + dfas[1].byte_class)
    tables = _padded(dfas[0].next, pairs >> 8), _padded(dfas[1].next, pairs & 255)
    starts = dfas[0].start, dfas[1].start
    for needs in ((True, True), (True, False), (False, True), (False, False)):
        factors = map(Factor, tables, starts, needs)
        found, table = kernels_found.product(*factors, 100_000)
        expected = _found(*tables, starts, needs, BudgetTracker())
        assert found.T.tolist() == [expected[0].tolist(), expected[1].tolist()]
        assert table.tolist() == expected[2].tolist()
    assert len(kernels_found.product(*map(Factor, tables, starts, (False, False)), 2)[0]) <= 2 + table.shape[1]


# -- masked logits --------------------------------------------------------------------------------------


@st.composite
def masks(draw: st.DrawFn, vocab: int) -> MaskRow:
    """Of every kind: few allowed, few forbidden, many of either."""
    most = draw(st.sampled_from([0, 3, vocab // 5, vocab]))
    ids = draw(st.lists(st.integers(0, vocab - 1), max_size=most, unique=True))
    return MaskRow(draw(st.booleans()), np.array(ids, dtype=np.int32), vocab)


def expected_rows(logits: np.ndarray, rows: list[MaskRow]) -> np.ndarray:
    out = np.full_like(logits, NEG_INF)
    for line, source, row in zip(out, logits, rows, strict=True):
        keep = np.isin(np.arange(len(source)), row.ids) == row.allowed
        line[keep] = source[keep]
    return out


def some_logits(dtype: str, rows: int, vocab: int, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=(rows, vocab)).astype(dtype)
    values[:, ::7] = np.nan
    values[:, 1::11] = np.inf
    values[:, 2::13] = NEG_INF
    return values


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@given(data=st.data(), donate=st.booleans(), rows=st.integers(1, 4), seed=st.integers(0, 99))
def test_masks_are_written_to_the_bit(dtype: str, data: st.DataObject, donate: bool, rows: int, seed: int) -> None:
    given_rows = data.draw(st.lists(masks(96), min_size=rows, max_size=rows))
    logits = some_logits(dtype, rows, 96, seed)
    expected = expected_rows(logits, given_rows)
    before = logits.copy()
    found = mask_host_rows(logits, given_rows, NEG_INF, donate)
    assert found.tobytes() == expected.tobytes()
    assert (found is logits) if donate else logits.tobytes() == before.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@given(data=st.data())
def test_buffers_that_are_written_again_and_again(dtype: str, data: st.DataObject) -> None:
    buffer = HostBuffer(4, 96, NEG_INF, dtype)
    for seed in range(data.draw(st.integers(2, 5))):
        rows = data.draw(st.integers(1, 4))
        given_rows = data.draw(st.lists(masks(96), min_size=rows, max_size=rows))
        logits = some_logits(dtype, rows, 192, seed)[:, : 96 * 2 : 2]  # rows that are not one after the other in memory
        if data.draw(st.booleans()):
            logits = np.ascontiguousarray(logits)
        buffer.write(logits, given_rows)
        assert buffer.memory[:rows].tobytes() == expected_rows(logits, given_rows).tobytes()


def test_an_interrupted_write_leaves_nothing_taken_for_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = HostBuffer(2, 96, NEG_INF, "float32")
    rows = [MaskRow(True, [1, 2], 96), MaskRow(True, [3], 96)]
    logits = some_logits("float32", 2, 96, 0)
    buffer.write(logits, rows)
    writer: Any = buffer._writer
    kernels = writer._kernels

    class Interrupted:
        def rewrite(self, after: np.ndarray, *_: Any) -> None:
            after[:, 50] = 7
            raise KeyboardInterrupt

    writer._kernels = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        buffer.write(logits, rows[::-1])
    writer._kernels = kernels
    buffer.write(logits, rows)
    assert buffer.memory.tobytes() == expected_rows(logits, rows).tobytes()


def test_ids_outside_of_the_vocabulary_are_refused_and_nothing_is_written() -> None:
    logits = some_logits("float32", 1, 96, 0)
    before = logits.copy()
    many = [*range(60)]
    for ids in ([96], [-1], [5, 1 << 40], [*many, 96], [-1, *many], [*many, 1 << 40]):
        with pytest.raises(IndexError, match="names the ids"):
            mask_host_rows(logits, [MaskRow(True, np.array(ids), 96)], NEG_INF, True)
    assert logits.tobytes() == before.tobytes()


@pytest.mark.parametrize("pool", [None, LogitsPool()])
def test_a_wrong_number_of_masks_is_refused(pool: LogitsPool | None) -> None:
    logits = some_logits("float32", 2, 96, 0)
    rows = [MaskRow(True, [1], 96)] * 3
    with pytest.raises(ValueError, match="zip"):
        load_backend("numpy").apply_token_rows(logits, rows, False, pool)


# -- steps ------------------------------------------------------------------------------------------------


def chain_and_context(pattern: str, rows: int, pool: LogitsPool | None) -> tuple[Any, Context]:
    default_cache().clear()
    chain = processors.load(("regex", {"pattern": pattern}), tokenizer=mixed(), debug=False)
    logits = np.zeros((rows, mixed().size), dtype=np.float32)
    return chain, Context.start(logits, pool=pool)


@pytest.mark.parametrize("pattern", [r"\w+", "[^é]*", r"(a|ab|b|ba){3,9}", "yes|no|aab", r'"[^"]{0,9}"', "[^é]*|日本*"])
@pytest.mark.parametrize("pooled", [False, True])
def test_compiled_steps_are_the_plain_ones(pattern: str, pooled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(len(pattern))
    compiled, context = chain_and_context(pattern, 8, LogitsPool() if pooled else None)
    plain, _ = chain_and_context(pattern, 8, None)
    ours, theirs = compiled.init_state(context), plain.init_state(context)
    calls = 0
    step = ConstraintMemory.step_batch

    def counting(self: Any, *arguments: Any) -> Any:
        nonlocal calls
        found = step(self, *arguments)
        calls += found is not None
        return found

    monkeypatch.setattr(ConstraintMemory, "step_batch", counting)
    automaton = walked(compile_pattern(pattern), mixed())
    states = [automaton.start] * 8
    for round_ in range(14):
        tokens = np.full((8, 1 + round_ % 3), -1, dtype=np.int32)
        for row in range(8):
            for place in range(int(random.integers(0, tokens.shape[1] + 1))):
                tokens[row, place] = random.choice(automaton.row(states[row]))
                states[row] = automaton.advance(states[row], int(tokens[row, place]))
        logits = some_logits("float32", 8, mixed().size, round_)
        for _ in "12":  # what is new the first time is known the second time
            found, after = compiled.process(logits.copy(), ours, context.accept(tokens))
            monkeypatch.setattr(processor, "_MANY", 1 << 30)
            expected, expected_after = plain.process(logits.copy(), theirs, context.accept(tokens))
            monkeypatch.setattr(processor, "_MANY", 2)
            assert found.tobytes() == expected.tobytes()
            assert after.processors[0].tolist() == expected_after.processors[0].tolist() == states
        ours, theirs = after, expected_after
        if round_ == 9:  # everything that was found out is dropped
            compiled["regex"].memory(context.with_fields(vocabulary=mixed())).clear()
    assert calls >= 12


def test_compiled_steps_refuse_what_plain_ones_refuse() -> None:
    chain, context = chain_and_context("(ab)+", 8, None)
    state = chain.init_state(context)
    a, b, ab, end = (mixed().token_bytes.index(text) for text in (b"a", b"b", b"ab", b""))
    logits = np.zeros((8, mixed().size), dtype=np.float32)
    good = np.array([[a, b]] * 8, dtype=np.int32)
    for _ in "12":
        chain.process(logits, state, context.accept(good))
    _, after = chain.process(logits, state, context.accept(good))
    for wrong in ([a, a], [ab, 1], [a, end], [b, -1]):
        taken = good.copy()
        taken[6] = wrong
        with pytest.raises(IllegalToken, match="row 6"):
            chain.process(logits, state, context.accept(taken))
    # States that come from a device count from the front: the last two are finished and dead.
    states = len(compile_pattern("(ab)+").accepting)
    finished = after._replace(processors=(np.full(8, states, dtype=np.int32),))
    nothing = np.full((8, 1), -1, dtype=np.int32)
    for _ in "12":
        masked, kept = chain.process(logits.copy(), finished, context.accept(nothing))
    assert kept.processors[0].tolist() == [-2] * 8
    assert (masked > NEG_INF).nonzero()[1].tolist() == [0] * 8
    with pytest.raises(InvalidContext, match="accepted for 6 rows"):
        chain.process(logits, state, context.accept(good[:6]))
    memory = chain["regex"].memory(context.with_fields(vocabulary=mixed()))
    for number in (-3, -(1 << 31), (1 << 31) - 1):  # no states at all: nothing is read at such places
        nonsense = np.full(8, number, dtype=np.int32)
        assert memory.step_batch(nonsense, context.accept(nothing)) is None
    dead = after._replace(processors=(np.full(8, states + 1, dtype=np.int32),))
    with pytest.raises(IllegalToken, match="row 0"):
        chain.process(logits, dead, context.accept(nothing))


# -- which kernels are used -------------------------------------------------------------------------------


@pytest.mark.usefixtures("fresh_search")
def test_they_are_found_and_can_be_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(getattr(load_kernels(), "kernels", None), registry.load_plugin("kernels", "numba"))
    look_for_kernels_again()
    monkeypatch.setenv(registry.BLOCK_VARIABLE, "kernels/numba")
    assert searched() is None


@pytest.mark.usefixtures("fresh_search")
def test_an_engine_can_do_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = searched()
    assert loaded is not None
    monkeypatch.setattr(kernels, "_wanted", True)
    kernels.do_without_kernels()
    assert host_kernels() is loaded  # what is there stays
    look_for_kernels_again()
    assert searched() is None


@pytest.mark.usefixtures("fresh_search")
def test_kernels_that_cannot_be_imported_are_left_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(kind: str, name: str) -> Any:
        raise PluginImportError(f"no {name}")

    monkeypatch.setattr(registry, "load_plugin", fail)
    with pytest.warns(LogitloomWarning, match=r"without compiled kernels\..*no numba"):
        assert searched() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert searched() is None  # said once


@pytest.mark.usefixtures("fresh_search")
def test_a_registered_plug_in_is_taken_where_it_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    numba: HostKernels = registry.load_plugin("kernels", "numba")()
    calls = []

    class Counting:
        walk = staticmethod(numba.walk)
        paths = staticmethod(numba.paths)
        marks = staticmethod(numba.marks)
        product = staticmethod(numba.product)
        determinize = staticmethod(numba.determinize)
        partition = staticmethod(numba.partition)
        regroup = staticmethod(numba.regroup)
        collect = staticmethod(numba.collect)
        step = staticmethod(numba.step)

        @staticmethod
        def write(*arguments: Any) -> None:
            calls.append(arguments[2].tolist())
            numba.write(*arguments)

    registry.register("counting", Counting, kind="kernels")
    assert searched() is not None
    try:
        words = Vocabulary([b"", b"a", b"b"], eos=[0])
        chain = processors.load(("regex", {"pattern": "a+"}), tokenizer=words)
        context = Context.start(np.zeros((2, 3), dtype=np.float32))
        logits, _ = chain.process(np.zeros((2, 3), dtype=np.float32), chain.init_state(context), context)
        assert logits.tolist() == [[NEG_INF, 0.0, NEG_INF]] * 2
        assert len(calls) == 1
    finally:
        registry.unregister("counting", kind="kernels")
