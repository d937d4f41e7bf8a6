"""Cached automata are shared, bounded, and never trusted blindly when they come from disk."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from logitloom.automata import AutomatonCache, TokenAutomaton, choice, compile_pattern, literal
from logitloom.automata.cache import CACHE_DIRECTORY_VARIABLE, default_cache
from logitloom.errors import LogitloomWarning, UnsupportedPattern
from logitloom.vocabulary import Vocabulary
from tests.core.automata.vocabularies import mixed, small

PATTERN = r"\d+(\.\d+)?|é*"


def same(one: TokenAutomaton, two: TokenAutomaton) -> bool:
    a, b = one.tables(), two.tables()
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True)) and one.dfa.fingerprint == two.dfa.fingerprint


@pytest.fixture(autouse=True)
def _no_directory_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CACHE_DIRECTORY_VARIABLE, raising=False)


def test_an_equal_list_of_texts_is_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store, built = AutomatonCache(), list[object]()
    monkeypatch.setattr("logitloom.automata.cache.choice", lambda texts: built.append(texts) or choice(texts))
    first = store.texts(["ab", "1", "ab"], mixed())
    assert store.texts(["1", "ab"], mixed()) is first
    assert store.texts(["1", "a"], mixed()) is not first
    assert len(built) == 2
    assert same(first, store.automaton(choice(["1", "ab"]), mixed()))


def test_equal_requests_share_one_automaton() -> None:
    store = AutomatonCache()
    first = store.pattern(PATTERN, mixed())
    assert store.pattern(PATTERN, mixed()) is first
    assert store.pattern(PATTERN, Vocabulary(mixed().token_bytes, eos=mixed().eos, special=mixed().special)) is first
    assert store.pattern(PATTERN, mixed(), vocab_size=mixed().size) is first


def test_whatever_changes_the_answer_changes_the_entry() -> None:
    store = AutomatonCache()
    size = mixed().size
    entries = [
        store.pattern(PATTERN, mixed()),
        store.pattern(PATTERN + "a", mixed()),
        store.pattern(PATTERN, mixed(), flags=re.ASCII),
        store.pattern(PATTERN, mixed(), vocab_size=size + 1),
        store.pattern(PATTERN, mixed().with_eos([1])),
        store.pattern(PATTERN, small(*mixed().token_bytes[2:-1], "other")),
        store.automaton(compile_pattern(PATTERN), mixed()),
    ]
    assert len({id(entry) for entry in entries}) == len(entries) == len(store)


def test_the_store_is_bounded_and_forgets_the_least_recently_used() -> None:
    store = AutomatonCache(capacity=2)
    a = store.pattern("a", mixed())
    b = store.pattern("b", mixed())
    assert store.pattern("a", mixed()) is a
    store.pattern("ab", mixed())
    assert len(store) == 2
    assert store.pattern("a", mixed()) is a
    assert store.pattern("b", mixed()) is not b
    store.clear()
    assert len(store) == 0


def test_the_default_cache_is_one_object() -> None:
    assert default_cache() is default_cache()


def test_errors_are_not_cached() -> None:
    store = AutomatonCache()
    for _ in range(2):
        with pytest.raises(UnsupportedPattern):
            store.pattern("(a", mixed())
    assert len(store) == 0


def test_nothing_is_written_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    AutomatonCache().pattern(PATTERN, mixed())
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv(CACHE_DIRECTORY_VARIABLE, str(tmp_path / "kept"))
    AutomatonCache().pattern(PATTERN, mixed())
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_file_gives_back_the_same_automaton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = AutomatonCache(directory=tmp_path).pattern(PATTERN, mixed(), vocab_size=400)
    lifted = AutomatonCache(directory=tmp_path).automaton(literal("ab"), mixed())
    monkeypatch.setattr("logitloom.automata.cache.compile_pattern", None)
    monkeypatch.setattr("logitloom.automata.lift.token_automaton.token_classes", None)
    read = AutomatonCache(directory=tmp_path).pattern(PATTERN, mixed(), vocab_size=400)
    assert read is not built
    assert same(read, built)
    for state in range(built.dfa.states):
        assert read.row(state).tolist() == built.row(state).tolist()
    assert same(AutomatonCache(directory=tmp_path).automaton(literal("ab"), mixed()), lifted)


@pytest.mark.parametrize("damage", ["empty", "short", "flipped", "header", "longer", "text", "zip without arrays"])
def test_damaged_files_are_built_anew(tmp_path: Path, damage: str) -> None:
    built = AutomatonCache(directory=tmp_path).pattern(PATTERN, mixed())
    (path,) = tmp_path.iterdir()
    good = path.read_bytes()
    middle = len(good) // 2
    path.write_bytes(
        {
            "empty": b"",
            "short": good[:middle],
            "flipped": good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
            "header": b"x" + good[1:],
            "longer": good + b"\0",
            "text": b"this is no automaton" * 100,
            "zip without arrays": _signed(b"PK\x05\x06" + bytes(18)),
        }[damage]
    )
    again = AutomatonCache(directory=tmp_path).pattern(PATTERN, mixed())
    assert same(again, built)
    assert path.read_bytes() == good


def _signed(payload: bytes) -> bytes:
    import hashlib

    from logitloom.automata import cache
    from logitloom.automata.store import array_file

    return cache._FORMAT + hashlib.blake2b(payload, digest_size=array_file._DIGEST).digest() + payload


def test_a_directory_that_cannot_be_written_to_costs_a_warning_only(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    with pytest.warns(LogitloomWarning, match="could not be kept"):
        automaton = AutomatonCache(directory=blocked / "cache").pattern(PATTERN, mixed())
    assert len(automaton.row(automaton.start()))


def test_many_writers_and_readers_get_one_truth(tmp_path: Path) -> None:
    patterns = [f"a{{{n}}}b*" for n in range(1, 5)]
    expected = {p: TokenAutomaton(compile_pattern(p), mixed()) for p in patterns}
    failures: list[BaseException] = []
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            barrier.wait()
            for turn in range(12):
                pattern = patterns[(number + turn) % len(patterns)]
                if turn % 5 == 0:
                    for path in tmp_path.glob("*.automaton"):
                        path.write_bytes(b"damaged")
                found = AutomatonCache(directory=tmp_path).pattern(pattern, mixed())
                assert same(found, expected[pattern])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not [p for p in tmp_path.iterdir() if p.suffix != ".automaton"]


def test_threads_that_ask_together_get_the_same_object() -> None:
    store = AutomatonCache()
    found: list[TokenAutomaton] = []
    barrier = threading.Barrier(6)

    def work() -> None:
        barrier.wait()
        found.append(store.pattern(PATTERN, mixed()))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(automaton) for automaton in found}) == 1


# -- files that somebody forged ---------------------------------------------------------------------------


def forged(good: bytes, **changes: object) -> bytes:
    """A file with the right checksum and other arrays; ``None`` leaves one out."""
    import io

    from logitloom.automata import cache
    from logitloom.automata.store import array_file

    with np.load(io.BytesIO(good[len(cache._FORMAT) + array_file._DIGEST :])) as stored:
        arrays = {name: stored[name].copy() for name in stored.files}
    for name, change in changes.items():
        if change is None:
            del arrays[name]
        elif callable(change):
            arrays[name] = change(arrays[name])
    out = io.BytesIO()
    np.savez(out, **arrays)
    return _signed(out.getvalue())


def put(value: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def change(array: NDArray[Any]) -> NDArray[Any]:
        array.flat[array.size // 2] = value
        return array

    return change


INDICES = {"bytes_next": (-2, -(2**31), 999, 2**31 - 1), "tokens_next": (-3, -(2**31), 999, 2**31 - 1),
           "token_class": (-1, -(2**31), 999, 2**31 - 1), "byte_class": (200, 255)}  # fmt: skip


@pytest.mark.parametrize(("array", "value"), [(name, value) for name, values in INDICES.items() for value in values])
def test_a_number_that_leads_outside_a_table_is_never_used(tmp_path: Path, array: str, value: int) -> None:
    built = AutomatonCache(directory=tmp_path).pattern(PATTERN, mixed())
    (path,) = tmp_path.iterdir()
    good = path.read_bytes()
    path.write_bytes(forged(good, **{array: put(value)}))
    assert same(AutomatonCache(directory=tmp_path).pattern(PATTERN, mixed()), built)
    assert path.read_bytes() == good


@pytest.mark.parametrize("array", [*INDICES, "bytes_accepting", "start"])
@pytest.mark.parametrize(
    "change",
    [
        None,
        lambda a: a.astype(np.float64),
        lambda a: a.astype(np.int16),
        lambda a: a[:-1],
        lambda a: a.reshape(1, *a.shape),
        lambda a: np.concatenate([a, a]),
        lambda a: a[:0],
        lambda a: np.zeros((), dtype=a.dtype),
        lambda a: np.array(["x"]),
    ],
    ids=["missing", "floats", "int16", "shorter", "an axis more", "longer", "empty", "a scalar", "texts"],
)
@pytest.mark.long
def test_arrays_of_another_form_are_built_anew(tmp_path: Path, array: str, change: Any) -> None:
    built = AutomatonCache(directory=tmp_path).pattern(PATTERN, mixed())
    (path,) = tmp_path.iterdir()
    good = path.read_bytes()
    path.write_bytes(forged(good, **{array: change}))
    assert same(AutomatonCache(directory=tmp_path).pattern(PATTERN, mixed()), built)


def test_states_that_no_text_reaches_are_not_taken_from_a_file(tmp_path: Path) -> None:
    built = AutomatonCache(directory=tmp_path).pattern(PATTERN, mixed())
    (path,) = tmp_path.iterdir()

    def unreachable(array: NDArray[Any]) -> NDArray[Any]:
        array[:] = -1
        return array

    path.write_bytes(forged(path.read_bytes(), bytes_next=unreachable))
    assert same(AutomatonCache(directory=tmp_path).pattern(PATTERN, mixed()), built)


def test_a_file_that_would_grow_without_bound_is_not_inflated(tmp_path: Path) -> None:
    import io
    import zipfile

    built = AutomatonCache(directory=tmp_path).pattern(PATTERN, mixed())
    (path,) = tmp_path.iterdir()
    bomb, huge = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as members:
        members.writestr("byte_class.npy", bytes(1 << 26))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i4", "fortran_order": False, "shape": (1 << 50, 1 << 10)})
    with zipfile.ZipFile(huge, "w") as members:
        for name in ("byte_class", "bytes_next", "bytes_accepting", "start", "token_class", "tokens_next"):
            members.writestr(f"{name}.npy", header.getvalue())
    for payload in (bomb, huge):
        path.write_bytes(_signed(payload.getvalue()))
        assert same(AutomatonCache(directory=tmp_path).pattern(PATTERN, mixed()), built)


def test_entries_are_bounded_by_their_bytes_and_those_of_their_vocabularies() -> None:
    texts = [bytes([first, second]) for first in range(97, 123) for second in range(97, 123)]
    one, other = (small(*texts, *(bytes([i]) for i in range(256)), str(number)) for number in range(2))
    store = AutomatonCache()
    first = store.pattern("[a-z]+", one)
    alone = store.nbytes
    assert alone >= sum(map(len, one.token_bytes)) + first.dfa.next.nbytes
    store.pattern("[a-y]+", one)
    shared = store.nbytes
    assert shared < 2 * alone  # one vocabulary counts once
    store.pattern("[a-z]+", other)
    assert store.nbytes > shared + alone / 2
    bounded = AutomatonCache(most_bytes=shared)
    for vocabulary in (one, other, one):
        for pattern in ("[a-z]+", "[a-y]+"):
            kept = bounded.pattern(pattern, vocabulary)
            assert bounded.pattern(pattern, vocabulary) is kept
            assert bounded.nbytes <= shared
    grown = AutomatonCache(most_bytes=1)
    assert grown.pattern("[a-z]+", one) is grown.pattern("[a-z]+", one)  # the last one stays
    before = first.nbytes
    first.allowed(first.dfa.start)
    assert first.nbytes > before
