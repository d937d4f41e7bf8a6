"""Distributions with hand-written metadata, and processors registered for one test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logitloom.host import registry

BROKEN = Path(__file__).parent.parent / "fixtures" / "broken_plugins"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Install one of the folders of ``fixtures/broken_plugins`` for the length of a test."""
    before = set(sys.modules)

    def install(folder: str) -> None:
        assert (BROKEN / folder).is_dir()
        monkeypatch.syspath_prepend(str(BROKEN / folder))
        registry.refresh()

    yield install
    monkeypatch.undo()
    for name in set(sys.modules) - before:
        if str(BROKEN) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    registry.refresh()


@pytest.fixture
def register() -> Iterator[Callable[..., None]]:
    """``processors.register`` that is undone after the test."""
    done: list[tuple[str, str]] = []

    def register_for_this_test(name: str, plugin: Any, *, kind: str = "processors", **more: Any) -> None:
        registry.register(name, plugin, kind=kind, **more)
        done.append((name, kind))

    yield register_for_this_test
    for name, kind in dict.fromkeys(done):
        registry.unregister(name, kind=kind)
