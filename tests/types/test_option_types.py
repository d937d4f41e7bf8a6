"""Type checkers know the names and options of the built-in processors; what they refuse is in ``test_types``."""

from __future__ import annotations

from tests.option_types import TARGET, generated


def test_the_types_are_those_of_the_declarations() -> None:
    assert TARGET.read_text(encoding="utf-8") == generated(), "run python -m tests.option_types"
