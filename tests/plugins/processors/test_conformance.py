"""Every built-in processor passes the public conformance kit."""

from __future__ import annotations

import pytest

from logitloom import processors as installed
from logitloom_plugins.conformance import combinators, processors
from logitloom_plugins.conformance.combinators import *  # noqa: F403
from logitloom_plugins.conformance.processors import *  # noqa: F403

for _suite in (TestGrammar, TestGrammarOnXgrammar, TestJsonOnLlguidance, TestJsonOnXgrammar):  # noqa: F405
    pytest.mark.extras(_suite)


def test_every_built_in_processor_has_a_suite() -> None:
    tested = {getattr(suites, name).processor for suites in (combinators, processors) for name in suites.__all__}
    assert tested == {record.name for record in installed.available() if record.distribution == "logitloom"}
