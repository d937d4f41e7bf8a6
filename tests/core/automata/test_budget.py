"""A budget bounds the processor time and the memory of a compilation, whatever the pattern is."""

from __future__ import annotations

import time
import tracemalloc
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata import Budget, BudgetTracker, at_most, compile_automaton, compile_pattern
from logitloom.errors import BudgetExceeded, LogitloomError
from tests.cases import examples
from tests.fuzz.interrupted import instructions, interrupted

SECONDS = 0.4
#: What one step between two looks at the clock may take, on a machine that does other things as well.
STEP = 1.0


def chinese(count: int, step: int = 2) -> list[str]:
    return [chr(0x4E00 + step * i) for i in range(count)]


def overlapping(count: int) -> str:
    return "".join(f"[{chr(0x4E00 + i)}-{chr(0x4E02 + 3 * i)}]" for i in range(count))


HOSTILE = {
    "alternatives of one character": f"(?:{'|'.join(chinese(9200))}){{1,9}}",
    "alternatives, repeated": f"(?:{'|'.join(f'{c}x' for c in chinese(5632))}){{1,50}}",
    "a search": f"(?:{'|'.join(f'{c}x' for c in chinese(1500))})*[^y]*z",
    "repeats within repeats": r"(\d{0,100}){0,100}b",
    "overlapping sets": overlapping(2500),
    "overlapping sets of either case": "(?i)" + overlapping(900),
    "many sets": "|".join(f"[{c}\u9fff{chr(ord(c) + i)}]x{{{i % 7}}}" for i, c in enumerate(chinese(3000))),
    "what may be left out": "a?" * 5000,
    "what may be left out beside an anchor": r"\b" + "a?" * 2500,
    "empty parts beside an anchor": r"\b(?:a|b?){0,2000}",
    "atomic alternatives": f"(?>{'|'.join(f'{c}x' for c in chinese(3000))})*",
    "a set of subsets": "(a|b)*a(a|b){30}",
    "anchors in a set of subsets": r"(\ba|b\b)*a(a|b){30}$",
    "deep nesting": "(" * 90 + "a" + "{0,2})" * 90,
}  # fmt: skip


def check_time(pattern: str, flags: int = 0) -> None:
    for compile in (compile_pattern, compile_automaton):
        message = ""
        begin = time.thread_time()
        try:
            compile(pattern, flags, budget=Budget(seconds=SECONDS, states=20_000))
        except LogitloomError as error:
            message = str(error)
        assert len(message) < 500
        assert time.thread_time() - begin < 1.2 * SECONDS + STEP


@pytest.fixture(scope="module", autouse=True)
def _known_sets():
    """What is found once per process is none of a pattern's time."""
    compile_pattern(r"(?i)\w\d\s[a-z]\bé")


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.long
def test_hostile_patterns_end_in_time(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_time(HOSTILE[name])


@pytest.mark.long
@examples(60)
@given(
    st.recursive(
        st.sampled_from(["a", r"\w", ".", "[^é]", "[а-я]", r"\b", "(?i:k)", "ab|ba", ""]),
        lambda parts: st.one_of(
            st.lists(parts, min_size=2, max_size=5).map("".join),
            st.lists(parts, min_size=2, max_size=5).map(lambda some: f"(?:{'|'.join(some)})"),
            st.tuples(parts, st.sampled_from(["{0,40}", "{30}", "*", "{7,}", "{0,9}?"])).map(
                lambda t: f"(?:{t[0]}){t[1]}"
            ),
        ),
        max_leaves=12,
    )
)
def test_random_repeats_end_in_time(pattern: str) -> None:
    check_time(pattern)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "repeats within repeats",
        "a set of subsets",
        pytest.param("what may be left out", marks=pytest.mark.exhaustive),
    ],
)
def test_memory_is_bounded(name: str) -> None:
    budget = Budget(table_bytes=4 << 20, seconds=5.0)
    for compile in (compile_pattern, compile_automaton):
        tracemalloc.start()
        try:
            compile(HOSTILE[name], budget=budget)
        except BudgetExceeded:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < 4 * budget.table_bytes


def test_time_that_others_take_does_not_count() -> None:
    """A thread that waits for its turn compiles as well as one that does not."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.05:
        time.sleep(0.01)
    assert compile_pattern("[a-z]+", budget=Budget(seconds=0.05)).states


def test_messages_name_the_options_of_the_processors_and_quote_the_pattern_as_written() -> None:
    with pytest.raises(BudgetExceeded) as caught:
        compile_pattern(r"\d\.{0,30}\n" + "\n", budget=Budget(states=20))
    assert str(caught.value) == (
        r"Compiling pattern '\d\.{0,30}\n\n' takes more than 20 positions. Write it with smaller repeat counts or "
        "fewer alternatives, or raise max_states."
    )
    with pytest.raises(BudgetExceeded, match=r"or raise max_seconds\."):
        compile_pattern("(?:a|b)*a(?:a|b){30}", budget=Budget(seconds=0.1, states=10**9, table_bytes=10**12))


def test_compilations_share_a_limit_and_say_so() -> None:
    hard = "(?:a|b)*a(?:a|b){30}"
    with at_most(0.1):
        for _ in range(2):
            with pytest.raises(
                BudgetExceeded, match=r"longer than 0\.1 seconds, with what is compiled along with it\."
            ):
                compile_pattern(hard, budget=Budget(seconds=60.0, states=10**9, table_bytes=10**12))
        with at_most(60.0), pytest.raises(BudgetExceeded, match=r"longer than 0\.1 seconds"):
            compile_pattern(hard, budget=Budget(seconds=60.0, states=10**9, table_bytes=10**12))
    assert compile_pattern("a+", budget=Budget(seconds=5.0)).fullmatch("aa")


def test_a_limit_ends_with_its_block_wherever_the_block_is_interrupted() -> None:
    def limited() -> None:
        with at_most(5.0), at_most(1.0):
            pass

    for at in range(instructions(limited)):
        assert interrupted(limited, at) is not None
        tracker = BudgetTracker(Budget(seconds=60.0))
        assert tracker.remaining > 50.0, at


def test_blocks_that_end_in_another_order_leave_no_limit() -> None:
    outer, inner = at_most(5.0), at_most(1.0)
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    assert BudgetTracker(Budget(seconds=60.0)).remaining > 50.0
