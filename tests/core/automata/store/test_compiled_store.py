"""An automaton that one process has compiled is read by another, and nothing else is ever taken for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom.automata import Budget, Dfa, LazyDfa, compile_automaton, compile_pattern, compile_tree, compiled_in
from logitloom.automata import compilation as phases
from logitloom.automata.patterns.pattern import parse_pattern
from logitloom.automata.store import array_file
from logitloom.automata.store import compiled_store as store
from logitloom.errors import BudgetExceeded

PATTERN = "(?:[a-f]{1,9}x|y)+"


@pytest.fixture(autouse=True)
def _everything_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_LEAST_SECONDS", 0.0)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was compiled, not read."""
    seen: list[Any] = []
    original = phases.determinize
    monkeypatch.setattr(phases, "determinize", lambda *given: seen.append(given) or original(*given))
    return seen


def content(dfa: Dfa) -> tuple[Any, ...]:
    return dfa.byte_class.tolist(), dfa.next.tolist(), dfa.accepting.tolist(), dfa.start


@pytest.mark.parametrize("compile", [compile_pattern, compile_automaton])
def test_what_was_compiled_is_read(tmp_path: Path, compiled: list[Any], compile: Any) -> None:
    with compiled_in(tmp_path):
        first, second = compile(PATTERN), compile(PATTERN)
    assert len(compiled) == 1
    assert second is not first
    assert content(second) == content(first) == content(compile(PATTERN))
    assert len(compiled) == 2  # outside of the block nothing is read


def test_other_patterns_flags_and_limits_are_other_files(tmp_path: Path) -> None:
    texts = ["a", "A", "b", "\n", "ab"]
    with compiled_in(tmp_path):
        for _ in range(2):
            for pattern, flags in [("a|b", 0), ("(a|b)", 0), ("(a|b)", re.I), (".", 0), (".", re.S), ("[ab]{2}", 0)]:
                for minimal in (False, True):
                    found = compile_pattern(pattern, flags, minimal=minimal)
                    assert [found.fullmatch(t) for t in texts] == [bool(re.fullmatch(pattern, t, flags)) for t in texts]
        assert compile_pattern("[a-z]{60}").states == 61
        with pytest.raises(BudgetExceeded, match="more than 20"):
            compile_pattern("[a-z]{60}", budget=Budget(states=20))


def test_trees_that_differ_above_ascii_alone_are_other_files(tmp_path: Path, compiled: list[Any]) -> None:
    with compiled_in(tmp_path):
        for _ in range(2):
            for last in "юя":
                found = compile_tree(parse_pattern(f"[а-{last}]{{2}}"), "a pattern")
                assert found.fullmatch("яя") == (last == "я")
    assert len(compiled) == 2


def test_states_that_are_visited_lazily_are_not_kept(tmp_path: Path) -> None:
    with compiled_in(tmp_path):
        assert isinstance(compile_automaton("(?:a|b)*a(?:a|b){40}"), LazyDfa)
    assert not list(tmp_path.iterdir())


def test_damaged_files_are_compiled_anew(tmp_path: Path, compiled: list[Any]) -> None:
    with compiled_in(tmp_path):
        expected = content(compile_pattern(PATTERN))
        [path] = tmp_path.iterdir()
        good = path.read_bytes()
        for place in [*range(0, len(good), 97), len(good) - 1]:
            path.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
            del compiled[:]
            assert content(compile_pattern(PATTERN)) == expected
            assert compiled
        for cut in (0, 10, len(good) // 2):
            path.write_bytes(good[:cut])
            assert content(compile_pattern(PATTERN)) == expected


@pytest.mark.parametrize(
    ("array", "value"),
    [("next", 10**6), ("next", -2), ("byte_class", 255), ("start", -1), ("start", 10**6), ("accepting", None)],
)
def test_forged_files_lead_outside_no_table(tmp_path: Path, compiled: list[Any], array: str, value: int | None) -> None:
    with compiled_in(tmp_path):
        expected = content(compile_pattern(PATTERN))
        [path] = tmp_path.iterdir()
        arrays = array_file.unpacked(store._FORMAT, path.read_bytes(), store._ARRAYS)
        assert arrays is not None
        if value is None:  # no text is complete
            arrays[array] = np.zeros_like(arrays[array])
        else:
            arrays[array] = arrays[array].copy()
            arrays[array].flat[-1] = value
        path.write_bytes(array_file.packed(store._FORMAT, arrays))
        del compiled[:]
        assert content(compile_pattern(PATTERN)) == expected
        assert compiled


def test_the_oldest_files_go_first(tmp_path: Path) -> None:
    with compiled_in(tmp_path, most_bytes=20_000):
        for n in range(12):
            compile_pattern(f"[a-z]{{{30 + n}}}")
            assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000
        assert 1 < len(list(tmp_path.iterdir())) < 12


def test_a_folder_that_is_gone_costs_nothing(tmp_path: Path) -> None:
    with compiled_in(tmp_path / "gone"):
        assert compile_pattern(PATTERN).fullmatch("yy")
    with compiled_in(None):
        assert compile_pattern(PATTERN).fullmatch("yy")


def test_other_threads_keep_nothing(tmp_path: Path) -> None:
    from threading import Thread

    with compiled_in(tmp_path):
        other = Thread(target=compile_pattern, args=(PATTERN,))
        other.start()
        other.join()
    assert not list(tmp_path.iterdir())
