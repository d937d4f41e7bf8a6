"""Every built-in candidate generator passes the public conformance kit."""

from __future__ import annotations

from logitloom.host import registry
from logitloom_plugins.conformance import candidates as suites
from logitloom_plugins.conformance.candidates import *  # noqa: F403


def test_every_built_in_generator_has_a_suite() -> None:
    tested = {getattr(suites, name).candidates for name in suites.__all__}
    assert tested == {record.name for record in registry.available("candidates") if record.distribution == "logitloom"}
