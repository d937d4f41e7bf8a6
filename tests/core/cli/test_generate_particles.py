"""``logitloom generate --particles``: each text with its probability."""

from __future__ import annotations

import json
from typing import Any

import pytest

from logitloom import load_backend, processors
from logitloom.cli.main import main
from logitloom.generation import Generated, Generator, Particles, posterior
from tests.core.cli.test_generate import RAW, WORDS, Tokenizer, Toy, prompts

__all__ = ["prompts"]  # a fixture

CHOICES = ["yes", "no", "nobody"]
COMMAND = [*RAW, *(part for choice in CHOICES for part in ("--choice", choice)), "--max-tokens", "9"]


def wanted(texts: list[str], strategy: Particles, seed: int = 0) -> list[Generated]:
    chain = processors.load(("choice", {"choices": CHOICES}), tokenizer=WORDS)
    model = Toy(load_backend("numpy"), WORDS.size)
    return Generator(model, chain, strategy, max_tokens=9)([Tokenizer().encode(text) for text in texts], seed=seed)


@pytest.mark.usefixtures("prompts")
def test_each_text_stands_behind_its_probability(capsys: Any) -> None:
    assert main(["generate", "a", "go", *COMMAND, "--particles", "--seed", "3"]) == 0
    out, err = capsys.readouterr()
    told = posterior(wanted(["a", "go"], Particles(), seed=3))
    lines = [f"{probability:.3f}\t{text}" for each in told for text, probability in each.probabilities.items()]
    assert out == "\n".join(lines)
    assert err == ""


@pytest.mark.usefixtures("prompts")
def test_json_has_the_weights(capsys: Any) -> None:
    assert main(["generate", "a", *COMMAND, "--particles", "5", "--resample-below", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = wanted(["a"], Particles(5, resample_below=0.0))
    assert [each["log_weight"] for each in found] == [each.log_weight for each in expected]
    assert [each["text"] for each in found] == [each.text for each in expected]
