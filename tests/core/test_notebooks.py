"""What notebooks and editors show: options, tables, names, and bars of progress."""

from __future__ import annotations

import io
import sys

import pytest

import logitloom
from logitloom import Vocabulary, load_backend, processors
from logitloom.display.progress import progress_bar
from logitloom.errors import NeedsNotMet
from logitloom.generation import Generator, Multinomial
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


def test_a_bar_that_is_asked_for_needs_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(NeedsNotMet, match="pip install tqdm"), progress_bar(3, "schemas", shown=True):
        pass
    with progress_bar(3, "schemas") as advance:
        advance(1)
