"""What the chat templates of models render for calls of tools is allowed in their format, which is told from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from logitloom.errors import OptionError
from logitloom_plugins.tool_formats.builtin import tables
from logitloom_plugins.tool_formats.tool_format import find_format
from tests.plugins.tool_formats.chat_templates import (
    ENCODERS,
    EXPECTED,
    LEFT_OUT,
    REFUSED,
    UNKNOWN,
    chat_templates,
    check_calls,
    renderer,
)

pytestmark = pytest.mark.extras
NAMES = sorted(EXPECTED)


def template(name: str) -> str:
    pytest.importorskip("jinja2", reason="the package jinja2 is not installed")
    file = chat_templates().get(name)
    if file is None:
        source = name.partition(" ")[0]
        pytest.skip(f"no templates of {source} are here: LOGITLOOM_CHAT_TEMPLATES may name the folder of its sources")
    return file.read_text(encoding="utf-8")


def test_the_table_is_about_formats_and_templates_that_there_are() -> None:
    assert set(EXPECTED.values()) <= set(tables())
    assert {*LEFT_OUT, *REFUSED} <= set(EXPECTED)
    assert not {*UNKNOWN} & {*EXPECTED}


def test_every_template_with_tools_that_is_here_has_a_row() -> None:
    with_tools = {name for name, file in chat_templates().items() if "tool_calls" in Path(file).read_text("utf-8")}
    assert sorted(with_tools - {*EXPECTED} - {*UNKNOWN}) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_format_is_told_from_the_template(name: str) -> None:
    assert find_format(template(name)) == EXPECTED[name]


@pytest.mark.parametrize("name", sorted(UNKNOWN))
def test_no_format_is_told_from_a_template_of_another(name: str) -> None:
    with pytest.raises(OptionError, match="shows none of the formats"):
        find_format(template(name))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_rendered_calls_are_allowed_and_read(name: str) -> None:
    check_calls(name, renderer(template(name)), range(8 if name in REFUSED else 2))


@pytest.mark.parametrize("name", ENCODERS)
def test_calls_that_functions_write_are_allowed_and_read(name: str) -> None:
    encoder = ENCODERS[name]
    module = pytest.importorskip(encoder.module, reason=f"{encoder.module} is not installed")
    check_calls(name, encoder.made(module), range(3))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_rendered_calls_of_100_sets_of_tools_are_allowed_and_read(name: str) -> None:
    check_calls(name, renderer(template(name)), range(2, 102))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ENCODERS)
def test_calls_of_100_sets_of_tools_that_functions_write_are_allowed_and_read(name: str) -> None:
    encoder = ENCODERS[name]
    module = pytest.importorskip(encoder.module, reason=f"{encoder.module} is not installed")
    check_calls(name, encoder.made(module), range(3, 103))
