"""``logitloom generate --contrastive``: the text of contrastive search, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from logitloom.cli.main import main
from logitloom.generation import ContrastiveSearch, Generator
from logitloom_contrib.llama import LlamaModel, random_model
from tests.core.cli.test_generate import RAW, WORDS, Tokenizer, prompts

__all__ = ["prompts"]  # a fixture


@pytest.fixture
def tiny(register: Callable[..., None]) -> LlamaModel:
    """Registers the loader ``tiny``: a random model that gives hidden states."""
    model = random_model("numpy", seed=3, vocab=WORDS.size, tied=False)
    model.vocabulary, model.tokenizer = WORDS, Tokenizer()  # type: ignore[assignment]
    register("tiny", lambda path, backend="numpy", device=None: model, kind="models")
    return model


@pytest.mark.parametrize(
    ("options", "search"),
    [
        (["--contrastive"], ContrastiveSearch()),
        (["--contrastive", "8", "--penalty-alpha", "0.9"], ContrastiveSearch(8, 0.9)),
    ],
)
def test_the_text_is_that_of_the_search(tiny: LlamaModel, options: list[str], search: Any, capsys: Any) -> None:
    command = ["generate", "go on", "--loader", "tiny", "--raw", "--max-tokens", "9", "--json", *options]
    assert main(command) == 0
    out, err = capsys.readouterr()
    (found,) = json.loads(out)
    (wanted,) = Generator(tiny, strategy=search, max_tokens=9, vocabulary=WORDS)([Tokenizer().encode("go on")])
    assert tuple(found["tokens"]) == wanted.tokens
    assert len(found["sampled"]) == len(found["tokens"]) + (found["finish"] == "eos")
    assert err == ""


@pytest.mark.usefixtures("prompts")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--contrastive"], "has no method forward_hidden"),
        (["--contrastive", "--penalty-alpha", "2"], "from 0 to 1, but is 2.0"),
        (["--contrastive", "0"], "'--contrastive' must be a whole number of at least 1"),
        (["--contrastive", "--draft", "prompt_lookup"], "--contrastive cannot use drafts"),
    ],
)
def test_errors_say_what_is_wrong(options: list[str], message: str, capsys: Any) -> None:
    assert main(["generate", "a", *RAW, *options]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("tiny")
def test_processors_that_change_probabilities_have_an_effect(capsys: Any) -> None:
    command = ["generate", "a", "--loader", "tiny", "--raw", "--max-tokens", "2", "--use", "temperature"]
    assert main([*command, "--set", "temperature.temperature=0.5", "--contrastive"]) == 0
    assert "No effect" not in capsys.readouterr().err
