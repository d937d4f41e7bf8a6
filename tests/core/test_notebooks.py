"""What notebooks and editors show: options, tables, names, and bars of progress."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import logitloom
from logitloom import Context, Vocabulary, load_backend, processors
from logitloom.display import progress
from logitloom.display.progress import progress_bar, waiting
from logitloom.errors import NeedsNotMet
from logitloom.generation import BeamSearch, Generator, Multinomial
from logitloom.testing import ToyModel
from logitloom.trace import TracedChain


def test_a_chain_shows_its_options_and_those_that_are_missing() -> None:
    chain = processors.load(("top_k", {"k": 5}), "regex", ("stop", {"strings": ["<b>" * 50]}))
    begin, end = "<Chain top_k(k=5) -> regex(pattern=?) -> stop(strings=('<b><b>", ")>"
    assert repr(chain).startswith(begin)
    assert repr(chain).endswith(end)
    assert len(repr(chain)) < 200
    shown = chain._repr_html_()
    assert "<td>top_k</td><td>k=5</td>" in shown
    assert "<b>" not in shown
    assert chain._ipython_key_completions_() == ["top_k", "regex", "stop"]
    assert repr(processors.load(processors.load(("top_k", {"k": 5}))["top_k"])) == "<Chain top_k(k=5)>"


def test_records_and_results_are_tables() -> None:
    words = Vocabulary([bytes([97 + i]) for i in range(16)] + [b""], eos=[16])
    traced = TracedChain(processors.load(("top_k", {"k": 5}), tokenizer=words))
    found = Generator(ToyModel(load_backend("numpy")), traced, max_tokens=4)([[1, 2]])
    traced.record.attach(found)
    assert f"<td>{found[0].text}</td>" in found[0]._repr_html_()
    assert f"<td>{found[0].text}</td>" in traced.record._repr_html_()
    assert "top_k" in traced.record._repr_html_()


def test_the_package_lists_its_public_names() -> None:
    assert dir(logitloom) == sorted([*logitloom.__all__, "__version__"])
    assert all(hasattr(logitloom, name) for name in dir(logitloom))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.extras
def test_a_batch_shows_its_progress_in_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm", reason="needs the package tqdm")
    generator = Generator(ToyModel(load_backend("numpy")), strategy=Multinomial(2), max_tokens=3)
    for stream, wanted in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        expected = generator([[1], [2]])
        assert ("4 sequences" in stream.getvalue() or "/4" in stream.getvalue()) == wanted
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert generator([[1], [2]], on_progress=lambda p: None) == expected
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


class Bar:
    """The bar of a wait, as far as the wait uses it."""

    def __init__(self, desc: str, bar_format: str, leave: bool) -> None:
        self.desc, self.start_t, self.refreshed, self.closed = desc, time.time(), threading.Event(), False

    def refresh(self) -> None:
        self.refreshed.set()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    """The bars that are made, at once."""
    made: list[Bar] = []

    def bar(**given: Any) -> Bar:
        made.append(Bar(**given))
        return made[-1]

    monkeypatch.setattr(progress, "_tqdm", lambda: bar)
    monkeypatch.setattr(progress, "_INTERVAL", 0.001)
    monkeypatch.setattr(progress, "_SHOWN_AFTER", 0.0)
    return made


def _until_refreshed(bars: list[Bar]) -> bool:
    """Wait without a call of this library, as in a call of another one, until there is a bar that was drawn again."""
    end = time.monotonic() + 30
    while not bars and time.monotonic() < end:
        time.sleep(0.001)
    return bool(bars) and bars[0].refreshed.wait(30)


def test_a_wait_is_shown_from_its_beginning_while_another_library_works(
    bars: list[Bar], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    begun = time.time()
    with waiting("compiling 'grammar'"), waiting("compiling a part"):
        entered = time.time()
        assert _until_refreshed(bars)
    assert [(bar.desc, bar.closed) for bar in bars] == [("compiling 'grammar'", True)]
    assert begun <= bars[0].start_t <= entered


def test_a_beam_search_is_a_wait(bars: list[Bar], monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(ToyModel):
        def forward(self, *given: Any, **more: Any) -> Any:
            assert _until_refreshed(bars)
            return super().forward(*given, **more)

    monkeypatch.setattr(sys, "stderr", Terminal())
    Generator(Slow(load_backend("numpy")), strategy=BeamSearch(3), max_tokens=1)([[1]])
    assert [bar.desc for bar in bars] == ["searching with 3 beams"]


@pytest.mark.parametrize("after", [0.0, 1e9])
def test_a_short_wait_and_a_wait_that_nobody_watches_are_not_shown(
    after: float, bars: list[Bar], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SHOWN_AFTER", after)
    monkeypatch.setattr(sys, "stderr", Terminal() if after else io.StringIO())
    with waiting("compiling 'regex'"):
        time.sleep(0.01)
    assert not bars


@pytest.mark.parametrize(
    "spec",
    [
        ("regex", {"pattern": "(a|b)*a(a|b){9}"}),
        ("json", {"schema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a|b){3}$"}}}}),
        ("grammar", {"grammar": 'root ::= "a"* "b"'}),
    ],
    ids=lambda spec: spec[0],
)
def test_making_a_processor_and_starting_a_text_are_waits(
    spec: tuple[str, dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = Vocabulary([b"", *(bytes([byte]) for byte in range(256))], eos=[0])
    context = Context.start(np.zeros((1, 257), dtype=np.float32), vocabulary=words)
    waits: list[str] = []

    @contextmanager
    def noted(what: str) -> Iterator[None]:
        waits.append(what)
        yield

    for module in ("links", "chain"):
        monkeypatch.setattr(f"logitloom.chain.{module}.waiting", noted)
    chain = processors.load([spec[0], {**spec[1]}], tokenizer=words)
    assert waits == [f"compiling '{spec[0]}'"]
    chain.init_state(context)
    assert waits == [f"compiling '{spec[0]}'"] * 2


def test_a_bar_that_is_asked_for_needs_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(NeedsNotMet, match="pip install tqdm"), progress_bar(3, "schemas", shown=True):
        pass
    with progress_bar(3, "schemas") as advance:
        advance(1)
