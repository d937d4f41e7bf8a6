"""Every built-in backend passes the public conformance kit."""

from __future__ import annotations

from logitloom.host import registry
from logitloom_plugins.conformance import backends as suites
from logitloom_plugins.conformance.backends import *  # noqa: F403


def test_every_built_in_backend_that_is_installed_has_a_suite() -> None:
    tested = {name for suite in suites.__all__ for name in getattr(suites, suite).subjects()}
    installed = {
        record.name
        for record in registry.available("backends")
        if record.distribution == "logitloom" and record.installed and not record.blocked
    }
    assert installed <= tested
    assert "numpy" in installed
