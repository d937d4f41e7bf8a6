"""Call one check of a suite as pytest would, and see whether it fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase

from logitloom.testing import Conformance, _row_checks

SKIPPED = pytest.skip.Exception


def failure(suite: type[Conformance], check: str, **arguments: Any) -> BaseException | None:
    """The exception with which a check fails; None if it passes. A check that skips proves nothing.

    What fails is not made smaller: authors need a small example, and here it takes ten times as long as the check.
    """
    try:
        with patch.object(_row_checks, "Phase", SimpleNamespace(generate=Phase.generate, shrink=Phase.generate)):
            getattr(suite(), check)(**arguments)
    except SKIPPED as skipped:
        raise AssertionError(f"{check} was skipped: {skipped}") from None
    except Exception as error:
        return error
    return None


def checks_of(suite: type[Conformance]) -> list[str]:
    return [name for name in dir(suite) if name.startswith("test_")]
