"""What a user is told who writes the first chain as other libraries would have it."""

from __future__ import annotations

from typing import Any

import pytest

from logitloom import Context, processors
from logitloom.document import from_document
from logitloom.errors import LogitloomError
from logitloom_plugins.processors.json import Json
from logitloom_plugins.processors.top_k import TopK


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: processors.load(("temperature", {"temperature": 0})), "For greedy decoding leave the processor out"),
        (lambda: processors.load("top_k", k=3), "load(('top_k', {'k': 3}))"),  # type: ignore[arg-type]
        (lambda: processors.load(["top_k", "top_p"]), "Give several processors as several arguments"),
        (lambda: processors.load(("top_k", 3)), "a pair such as ('top_k', {'k': 5})"),
        (lambda: processors.load("top_kk"), "Did you mean 'top_k' or 'top_p' or 'top_h'?"),
        (lambda: TopK(k=0), "of 'top_k' must be >= 1 tokens"),
        (lambda: Json(whitespace="none"), "of 'json' must be one of"),
    ],
)
def test_a_message_names_the_remedy(call: Any, said: str) -> None:
    with pytest.raises(LogitloomError) as caught:
        call()
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


DEEP: list[Any] = []
for _ in range(3000):
    DEEP = [DEEP]
LONG = "x" * 5000
TOOL = {"type": "function", "function": {"name": "now"}}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: from_document({"logitloom": 1, "processor": [DEEP]}), "'use' (a name) and may have 'options': a list"),
        (lambda: from_document({"logitloom": 1, "processor": [{"use": LONG, "k": 1}]}), "Processor 1 of the chain"),
        (lambda: from_document({"logitloom": 1, "processor": [{"use": "top_k", "options": LONG}]}), "are no table: 'x"),
        (lambda: processors.load(("tool_call", {"tools": [LONG]})), "Tool 0 of 'tool_call' is no function: 'xx"),
        (lambda: processors.load(("tool_call", {"tools": [TOOL], "choice": LONG})), "Option 'choice' of 'tool_call'"),
        (lambda: processors.load(("tool_call", {"tools": [TOOL], "format": 10**4000})), "give the name of a format"),
        (lambda: processors.load(("tool_call", {"tools": [{"name": "a", "parameters": {"type": LONG}}]})), "must be a"),
        (lambda: processors.load(("grammar", {"grammar": 'a ::= "a"', "start": LONG})), "no rule 'xx"),
        (lambda: processors.load(("after", {"trigger": "a", "inner": {"use": LONG, "k": 1}})), "with 'use' (a name)"),
    ],
    ids=range(9),
)
def test_long_values_are_cut(call: Any, said: str) -> None:
    with pytest.raises(LogitloomError) as caught:
        call()
    assert said in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"properties": 3},
        {"$ref": "#/nope"},
        # Where the engine is not installed, the message names it: it might enforce the keyword.
        pytest.param({"type": "string", "pattern": "("}, marks=pytest.mark.extras),
    ],
)
def test_a_message_about_a_schema_speaks_of_the_schema_alone(schema: Any) -> None:
    with pytest.raises(LogitloomError) as caught:
        processors.load(("json", {"schema": schema}))
    said = str(caught.value)
    assert "llguidance" not in said
    assert "\n" not in said
    assert ".." not in said


def test_a_constraint_without_a_vocabulary_is_named_as_it_was_loaded() -> None:
    import numpy as np

    regex = processors.load(("regex", {"pattern": "a"}))["regex"]
    with pytest.raises(LogitloomError, match="^regex needs a vocabulary"):
        regex.init_state(Context.start(np.zeros((1, 3), dtype=np.float32)))
