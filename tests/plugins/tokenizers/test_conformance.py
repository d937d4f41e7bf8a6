"""Every built-in tokenizer reader passes the public conformance kit."""

from __future__ import annotations

import pytest

from logitloom.host import registry
from logitloom_plugins.conformance import tokenizers as suites
from logitloom_plugins.conformance.tokenizers import *  # noqa: F403

pytestmark = pytest.mark.extras


def test_every_built_in_reader_has_a_suite() -> None:
    tested = {getattr(suites, name).reader for name in suites.__all__}
    assert tested == {record.name for record in registry.available("tokenizers") if record.distribution == "logitloom"}
