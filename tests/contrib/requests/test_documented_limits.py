"""The pages about security and vLLM say the lists and limits that the code has."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from logitloom import errors
from logitloom.automata import compiled_in
from logitloom_contrib.requests import permissions
from logitloom_contrib.requests.permissions import SAFE, VARIABLES, Permissions
from logitloom_plugins.grammars.xgrammar_process import MOST_BYTES as MOST_GRAMMAR_BYTES

MOST_SHARED_BYTES = inspect.signature(compiled_in).parameters["most_bytes"].default
DOCS = Path(__file__).resolve().parents[3] / "docs"
VLLM = (DOCS / "engines" / "vllm.md").read_text(encoding="utf-8")
SECURITY = (DOCS / "security.md").read_text(encoding="utf-8")


def test_the_page_lists_the_processors_that_requests_may_name() -> None:
    [told] = re.findall(r"The default list has\s+those (\d+) [^:]+: ([^.]+)\.", VLLM)
    assert int(told[0]) == len(SAFE)
    assert re.findall(r"`(\w+)`", told[1]) == sorted(SAFE)


def test_the_page_has_every_setting_of_the_operator_with_its_default() -> None:
    rows = re.findall(r"^\| `(LOGITLOOM_SERVER_\w+)` \| `(\w+)` \| ([^|]+) \|", VLLM, re.MULTILINE)
    assert {variable: name for variable, name, _ in rows} == VARIABLES
    shown = {name: default for _, name, default in rows}
    assert (shown.pop("allow"), shown.pop("record")) == ("the list above", "none")
    assert {name: float(default) for name, default in shown.items()} == {
        name: float(getattr(Permissions(), name)) for name in shown
    }


def test_the_docstring_has_every_setting_of_the_operator() -> None:
    rows = re.findall(r"^(LOGITLOOM_SERVER_\w+) +(\w+) ", permissions.__doc__ or "", re.MULTILINE)
    assert dict(rows) == VARIABLES


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        (SECURITY, f"size of a request ({Permissions().bytes >> 20} MiB)"),
        (SECURITY, f"{MOST_GRAMMAR_BYTES >> 30} GiB of memory"),
        (VLLM, f"at most {MOST_SHARED_BYTES >> 20} MiB"),
        (SECURITY, f"`{errors.DuplicatePluginWarning.__name__}`"),
        (SECURITY, f"`{errors.DuplicatePlugin.__name__}`"),
    ],
)
def test_the_pages_have_the_limits_and_errors_of_the_code(page: str, sentence: str) -> None:
    assert sentence in " ".join(page.split())
