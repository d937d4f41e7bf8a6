"""A kernel that raises an error in a call: NumPy goes on after one warning, and every result is right."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, load_backend, processors
from logitloom.automata import (
    Dfa,
    TokenAutomaton,
    any_text,
    compile_automaton,
    compile_pattern,
    difference,
    intersection,
)
from logitloom.automata.automaton_kernels import HostKernels
from logitloom.automata.cache import default_cache
from logitloom.automata.deterministic import alphabet
from logitloom.automata.lift.lift import lift
from logitloom.automata.patterns import utf8
from logitloom.automata.small_cache import BoundedCache
from logitloom.masks import kernels
from logitloom.masks.logits_pool import LogitsPool
from tests.core.automata.vocabularies import small

pytestmark = pytest.mark.extras

METHODS = [name for part in HostKernels.__mro__[1:3] for name in vars(part) if not name.startswith("_")]


class Failing:
    """Kernels of which one raises an error from its n-th call on; it may have written to what is its own by then."""

    def __init__(self, real: Any, broken: str, after: int) -> None:
        self.calls = 0
        for name in METHODS:
            setattr(self, name, getattr(real, name))

        def fail(*given: Any) -> Any:
            self.calls += 1
            if self.calls <= after:
                return getattr(real, broken)(*given)
            raise TypeError(f"No matching definition for {broken}")

        setattr(self, broken, fail)


@pytest.fixture(scope="module")
def real() -> Any:
    pytest.importorskip("numba", reason="kernels need numba")
    from logitloom_plugins.kernels.numba import NumbaKernels

    NumbaKernels.compile()
    return NumbaKernels()


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kernels, "_failed", False)
    yield
    kernels.look_for_kernels_again()


def everything() -> list[Any]:
    """What the kernels have a part in, from patterns to masked logits."""
    pairs = [left + right for left in "abcdefghijklmnop éя" for right in "abcdefghijklmnopqrstuvwxyz é1"]
    words = small(*[bytes([i]) for i in range(256)], *pairs, *[pair + "xe" for pair in pairs])
    found: list[Any] = []
    patterns = [r"[^\d]{2,30}", r"(?:[a-z]{1,6} ){3}\w+", "é+|[а-я]*", ".*x{3}.*", "[a-z]{200}", "[a-f]{150}é?"]
    wholes = [compile_pattern(pattern) for pattern in patterns]
    some = compile_pattern("[^0-9]{3,40}"), compile_pattern("(?:[a-d]{1,30}x|.e|é)*"), compile_pattern("[^x]*")
    combined = [intersection(*some[:2]), intersection(*some[1:])]
    combined += [difference(any_text(), compile_pattern(f"{letter}.*")) for letter in "xé"]
    for dfa in [*wholes, *combined]:
        found.append([dfa.fullmatch(text) for text in ("ab", "ababcd", "éé", "abxxxa", "12")])
        automaton = TokenAutomaton(dfa, words)
        found += [automaton.row(state).tolist() for state in range(0, min(automaton.states, 8))]
    lazy = compile_automaton("(?:a|b)*a(?:a|b){40}")
    assert not isinstance(lazy, Dfa)
    found.append(lift(lazy, words, words.size).allowed(lazy.start()).ids.tolist())
    for pool in (None, LogitsPool()):
        for donate in (False, True):
            found += steps(words, pool, donate)
    numpy, x = load_backend("numpy"), np.random.default_rng(2).normal(scale=3.0, size=(4, 5000)).astype(np.float32)
    for _ in range(2):
        ids = numpy.survivors(x, 20)
        assert ids is not None
        found += [ids.tolist(), numpy.nucleus_threshold(x, 0.8).tolist()]
        found.append(numpy.log_probability(x, np.array([[0], [1], [2], [3]])).round(3).tolist())
        chain = processors.load(("frequency_penalty", {"penalty": 1.0}), ("top_k", {"k": 9}), debug=False)
        context = Context.start(x)
        state = chain.init_state(context)
        for tokens in (None, np.full((4, 1), 7, np.int32)):
            out, state = chain.process(x, state, context.with_fields(tokens=tokens))
            found += [out.tolist(), state.processors[0].table[:, :9].tolist()]
        # With tokens of their own before, between and behind what the loops do.
        chain = processors.load(("presence_penalty", {"penalty": 1.0}), ("no_repeat_ngram", {"n": 2}))
        context = Context.start(x, prompt=[[3], [], [4, 5], [6]], max_length=9)
        found.append(chain.score(np.repeat(x[:, None, :], 2, axis=1), [[1, 2]] * 4, context).round(3).tolist())
    return found


def steps(words: Vocabulary, pool: LogitsPool | None, donate: bool) -> Iterator[Any]:
    """Masked logits of eight rows, twice each so that what is known by then is used."""
    chain = processors.load(("regex", {"pattern": "[a-z ]{1,60}"}), tokenizer=words)
    dice = np.random.default_rng(1)
    blank = np.zeros((8, words.size), np.float32)
    letters = [token for token, text in enumerate(words.token_bytes) if text.isalpha() and text.islower()][:4]
    for _ in range(2):
        context = Context.start(blank, max_length=30, pool=pool, donate=donate)
        state = chain.init_state(context)
        for step in range(3):
            logits = dice.normal(size=blank.shape).astype(np.float32)
            before = logits.copy()
            out, state = chain.process(logits, state, context)
            assert np.array_equal(np.where(np.isneginf(out), before, out), before)
            yield np.isneginf(out).tolist()
            context = context.accept([[letters[(step + row) % 4]] for row in range(8)])


def told(broken: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[str]]:
    monkeypatch.setattr(kernels, "_load_kernels", lambda wait: broken)
    kernels.look_for_kernels_again()
    # A constraint remembers that its kernels have failed.
    default_cache().clear()
    monkeypatch.setattr(alphabet, "_alphabets", BoundedCache(256))
    monkeypatch.setattr(utf8, "_partitions", BoundedCache(256))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return everything(), [str(each.message) for each in caught if "NumPy" in str(each.message)]


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        return told(None, patch)[0]


@pytest.mark.long
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("name", METHODS)
def test_numpy_goes_on_after_one_warning(
    name: str, after: int, real: Any, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Failing(real, name, after)
    found, warned = told(broken, monkeypatch)
    assert found == expected
    assert broken.calls > after
    assert warned == [
        f"Going on with NumPy, without compiled kernels: {name} raised TypeError: No matching definition for {name}"
    ]
    assert kernels.host_kernels() is None


def test_kernels_that_lack_one_are_not_used_for_the_others(
    real: Any, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = type("Partial", (), {name: staticmethod(getattr(real, name)) for name in METHODS if name != "write"})
    found, warned = told(partial(), monkeypatch)
    assert found == expected
    assert warned == [
        "Going on with NumPy, without compiled kernels: write raised NotImplementedError: These kernels lack it."
    ]
