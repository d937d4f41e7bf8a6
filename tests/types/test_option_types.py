"""Type checkers know the names and options of the built-in processors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.option_types import TARGET, generated
from tests.types.test_types import mypy, ran

pytestmark = pytest.mark.extras

RIGHT = """
from typing import Any

from logitloom import Context, processors


class Same:
    def process(self, logits: Any, state: Any, context: Context) -> tuple[Any, Any]:
        return logits, state


processors.load(("temperature", {"temperature": 1}), ("top_k", {"k": 3}), ("json", {"schema": {"type": "object"}}))
processors.load(("until", {"trigger": "a", "inner": ["top_k", {"k": 3}]}), "temperature", Same())
processors.load((Same, {}), ["theirs", {"x": 3}], "others", lambda logits: logits, options={"others": {"x": 1}})
"""
WRONG = ('("top_kk", {"k": 3})', '("top_k", {"k": "3"})', '("top_k", {"kk": 3})', '("top_kk", {"k": "3"})')


def test_the_types_are_those_of_the_declarations() -> None:
    assert TARGET.read_text(encoding="utf-8") == generated(), "run python -m tests.option_types"


@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_checkers_refuse_wrong_names_and_options_and_nothing_else(checker: str, tmp_path: Path) -> None:
    pytest.importorskip(checker, reason=f"needs the package {checker}")
    lines = [f"processors.load({pair})" for pair in WRONG]
    path = tmp_path / "loading.py"
    path.write_text(RIGHT + "\n".join(lines) + "\n", encoding="utf-8")
    told = mypy(path) if checker == "mypy" else ran("basedpyright", "--level", "error", str(path)).stdout
    found = {int(line.split(":")[1]) for line in told.splitlines() if ": error" in line or " - error" in line}
    first = RIGHT.count("\n") + 1
    assert found == set(range(first, first + len(WRONG))), told
