"""Looking for compiled kernels takes no time of a step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from logitloom.masks import kernels
from tests.plugins.kernels.search import searched, wait_for_searches


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[bool], Any]], None]]:
    """A process whose work pays for kernels, which the given function loads."""
    for name, value in (("_work", kernels._PAYS), ("_looked", False), ("_kernels", None), ("_failed", False)):
        monkeypatch.setattr(kernels, name, value)
    yield lambda load: monkeypatch.setattr(kernels, "_load_kernels", load)
    wait_for_searches()


def test_a_step_does_not_wait_for_the_search(worked: Callable[[Callable[[bool], Any]], None]) -> None:
    begun, may_end, asked = threading.Event(), threading.Event(), []

    def load(wait: bool) -> Any:
        asked.append((threading.current_thread().name, wait))
        begun.set()
        may_end.wait(10)
        return object()

    worked(load)
    assert kernels.host_kernels() is None
    assert begun.wait(10)
    assert kernels.host_kernels() is None
    may_end.set()
    assert searched() is not None
    assert asked == [("logitloom kernel search", False)]


def test_kernels_of_a_search_that_was_begun_again_are_not_taken(
    worked: Callable[[Callable[[bool], Any]], None],
) -> None:
    begun, may_end, found = threading.Event(), threading.Event(), [object(), object()]

    def load(wait: bool) -> Any:
        mine = found.pop()
        if found:
            begun.set()
            may_end.wait(10)
        return mine

    worked(load)
    late = found[-1]
    assert kernels.host_kernels() is None
    assert begun.wait(10)
    kernels.look_for_kernels_again()
    assert kernels.host_kernels() is None
    may_end.set()
    taken = searched()
    assert taken is not None
    assert taken.kernels is not late  # type: ignore[attr-defined]


def test_without_threads_the_search_is_made_at_once(
    worked: Callable[[Callable[[bool], Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    worked(lambda wait: object())
    monkeypatch.setattr(threading.Thread, "start", start)
    assert kernels.host_kernels() is not None
