"""What the library warns of is one sentence on the command line, and what others warn of is theirs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from logitloom import load_backend
from logitloom.cli import validate
from logitloom.cli.main import main
from logitloom.errors import LogitloomWarning
from tests.core.cli.toy import WORDS, Toy

RAW = ["generate", "a", "--loader", "toy", "--raw", "--max-tokens", "2"]


@pytest.fixture(autouse=True)
def _toy(register: Callable[..., None]) -> None:
    def load(path: Any, backend: str = "numpy", device: Any = None) -> Toy:
        return Toy(load_backend(backend), WORDS.size)

    register("toy", load, kind="models")


def warner(category: type[Warning]) -> Callable[[Any], Any]:
    """A processor that warns at each step, with the same words."""

    def process(logits: Any) -> Any:
        warnings.warn_explicit("The moon is full.\x1b[31m", category, "moon.py", 7)
        return logits

    return process


@pytest.mark.filterwarnings("default")
def test_a_warning_of_the_library_is_one_sentence_with_the_option_in_it(capsys: Any) -> None:
    assert main([*RAW, "--use", "dry", "--set", "dry.breakers=['no token']"]) == 0
    assert capsys.readouterr().err == (
        "warning: No token of small contains 'no token', so this text breaks no match. Give the option 'breakers' "
        "of 'dry' texts that are parts of single tokens, or its option 'breaker_ids' the ids of tokens.\n"
    )


@pytest.mark.filterwarnings("always")
def test_a_warning_is_said_once(register: Callable[..., None], capsys: Any) -> None:
    register("moon", warner(LogitloomWarning))
    assert main([*RAW, "--use", "moon"]) == 0
    assert capsys.readouterr().err == "warning: The moon is full.\x1b[31m\n"


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("category", [UserWarning, RuntimeWarning, DeprecationWarning])
def test_warnings_of_others_are_not_shown_as_ours(
    register: Callable[..., None], capsys: Any, category: type[Warning]
) -> None:
    register("moon", warner(category))
    with pytest.warns(category, match="The moon is full"):
        assert main([*RAW, "--use", "moon"]) == 0
    assert "warning:" not in capsys.readouterr().err


def test_a_warning_that_python_was_told_to_raise_is_an_error(register: Callable[..., None], capsys: Any) -> None:
    register("moon", warner(LogitloomWarning))
    assert main([*RAW, "--use", "moon"]) == 1
    assert capsys.readouterr().err == "logitloom: The moon is full.\x1b[31m\n"


@pytest.mark.parametrize("command", [["validate", '{"propertys": {}}'], [*RAW, "--json-schema", '{"propertys": {}}']])
@pytest.mark.filterwarnings("default")
def test_commands_that_load_a_chain_several_times_warn_once(
    capsys: Any, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "_COUNTING_SECONDS", 0.05)
    main(command)
    assert capsys.readouterr().err.count("The schema has the unknown keyword 'propertys'") == 1
