"""The tests of tool formats, beside the parsers of a real vLLM and of Cohere's package, which vLLM uses."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

pytest.importorskip("vllm", reason="the package vllm is not installed")

from tests.plugins.tool_formats.test_parsers import (
    pytestmark,
    test_every_parser_of_an_installed_library_has_a_format_or_a_reason,
    test_every_structural_tag_of_vllm_has_a_format,
    test_the_parser_reads_the_calls_of_200_sets_of_tools,
    test_the_parser_reads_the_calls_that_were_meant,
)

__all__ = [
    "pytestmark",
    "test_every_parser_of_an_installed_library_has_a_format_or_a_reason",
    "test_every_structural_tag_of_vllm_has_a_format",
    "test_the_parser_reads_the_calls_of_200_sets_of_tools",
    "test_the_parser_reads_the_calls_that_were_meant",
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Parsers log each text that they cannot read."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
