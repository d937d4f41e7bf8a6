"""``logitloom generate`` with ``--heal`` and ``--avoid``: what the generator writes with the same options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logitloom import load_backend, processors
from logitloom.cli.main import main
from logitloom.generation import Generator, SoftBan
from tests.core.cli.toy import WORDS, Toy

RAW = ["--loader", "toy", "--raw", "--max-tokens", "12"]


@pytest.fixture(autouse=True)
def _toy(register: Callable[..., None]) -> None:
    register("toy", lambda path, backend="numpy", device=None: Toy(load_backend(backend), WORDS.size), kind="models")


def written(prompt: str, *specs: Any, **more: Any) -> str:
    model = Toy(load_backend("numpy"), WORDS.size)
    chain = processors.load(*specs, tokenizer=WORDS)
    (found,) = Generator(model, chain, max_tokens=12, tokenizer=model.tokenizer, **more)(prompt)
    assert more.get("heal") is None or found.healed > 0
    return found.text or ""


@pytest.mark.parametrize("extra", [[], ["--stream"]])
def test_a_healed_prompt(extra: list[str], capsys: Any) -> None:
    assert main(["generate", "so fo", *RAW, "--heal", "--regex", "[a-o]{3,6}", *extra]) == 0
    assert capsys.readouterr().out.strip() == written("so fo", ("regex", {"pattern": "[a-o]{3,6}"}), heal=True).strip()


def test_a_phrase_that_is_avoided(capsys: Any) -> None:
    """The first letter that plain decoding writes."""
    plain = written("ab", ("regex", {"pattern": "[a-o]{3,6}"}))
    assert main(["generate", "ab", *RAW, "--avoid", plain[0], "--regex", "[a-o]{3,6}"]) == 0
    out = capsys.readouterr().out
    assert plain[0] not in out
    assert out.strip() == written("ab", ("regex", {"pattern": "[a-o]{3,6}"}), avoid=SoftBan((plain[0],)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--heal"], "--heal needs --raw: the chat template ends a prompt with special tokens."),
    ],
)
def test_healing_needs_the_prompt_as_it_is_and_no_trace(options: list[str], said: str, capsys: Any) -> None:
    assert main(["generate", "a", "--loader", "toy", *options]) != 0
    assert capsys.readouterr().err == f"logitloom: {said}\n"
