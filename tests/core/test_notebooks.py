"""What notebooks and editors show: options, tables, names, and bars of progress."""

from __future__ import annotations

import io
import math
import sys

import numpy as np
import pytest

import logitloom
from logitloom import Context, Vocabulary, load_backend, processors
from logitloom.display.progress import progress_bar, until_shown
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


@pytest.mark.extras
@pytest.mark.parametrize(
    "spec",
    [
        ("regex", {"pattern": "(a|b)*a(a|b){9}"}),
        ("json", {"schema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a|b){3}$"}}}}),
        ("choice", {"choices": [f"{n:03}" for n in range(999)]}),
        ("grammar", {"grammar": 'root ::= "a"* "b"'}),
    ],
    ids=lambda spec: spec[0],
)
def test_a_long_compilation_shows_its_time_in_a_terminal_alone(
    spec: tuple[str, dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tqdm", reason="needs the package tqdm")
    words = Vocabulary([b"", *(bytes([byte]) for byte in range(256))], eos=[0])
    context = Context.start(np.zeros((1, 257), dtype=np.float32), vocabulary=words)
    for stream, after, wanted in ((Terminal(), 0.0, True), (Terminal(), 1e9, False), (io.StringIO(), 0.0, False)):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr("logitloom.display.progress._SHOWN_AFTER", after)
        chain = processors.load([spec[0], {**spec[1]}], tokenizer=words)
        chain.init_state(context)
        assert (f"compiling '{spec[0]}': 00:0" in stream.getvalue()) == wanted
    assert until_shown() == math.inf


def test_a_bar_that_is_asked_for_needs_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(NeedsNotMet, match="pip install tqdm"), progress_bar(3, "schemas", shown=True):
        pass
    with progress_bar(3, "schemas") as advance:
        advance(1)
