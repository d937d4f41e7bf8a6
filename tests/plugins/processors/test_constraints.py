"""The constraints of all built-in processors pass the suite for constraints."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest

from logitloom import Vocabulary, load_backend, processors
from logitloom.constraints import Constraint
from logitloom.context import Context
from logitloom.errors import VocabularyError
from logitloom.testing import ConstraintConformance
from tests.plugins.processors.travelling import ON_ENGINES, begin, suites


@cache
def _found() -> dict[str, tuple[str, str]]:
    """The cases of all processors that are constraints."""
    found = {}
    for name, case in (known := suites()):
        (link,) = known[name, case].chain(case, load_backend("numpy")).links
        if getattr(link.processor, "constraint", None) is not None:
            found[f"{name}-{case}"] = name, case
    return found


class _OfSuites(ConstraintConformance):
    follows_only_allowed = False  # stop strings and longest tokens

    def constraint(self, case: str) -> Constraint:
        name, label = self.cases[case]
        suite = suites()[name, label]
        chain, context = begin(suite, label, load_backend("numpy"), 1)
        context = context if context.vocabulary else context.with_fields(vocabulary=suite.vocabulary)
        assert isinstance(context, Context)
        made: Constraint = chain.links[0].processor.constraint_for(context)
        return made


class TestBuiltInConstraints(_OfSuites):
    cases: ClassVar = {label: key for label, key in _found().items() if key[0] not in ON_ENGINES}


@pytest.mark.extras
class TestConstraintsOnEngines(_OfSuites):
    cases: ClassVar = {label: key for label, key in _found().items() if key[0] in ON_ENGINES}


def test_regex_choice_json_and_grammar_are_among_them() -> None:
    processors = {name for name, _ in TestBuiltInConstraints.cases.values()}
    assert {"TestRegex", "TestChoice", "TestStop", "TestBadWords", "TestFsm", "TestJson"} <= processors


@pytest.mark.parametrize("width", [1, 200])
@pytest.mark.parametrize(
    "spec",
    [
        ("json", {"schema": {"type": "integer"}}),
        ("regex", {"pattern": "a+"}),
        ("until", {"trigger": ";", "inner": ["regex", {"pattern": "a"}]}),
        ("until", {"trigger": ";", "inner": ["top_k", {"k": 2}]}),
        ("budget", {"n": 2}),
        ("thinking", {"budget": 3}),
    ],
    ids=lambda spec: spec[0],
)
def test_logits_narrower_than_the_vocabulary_are_refused(spec: Any, width: int) -> None:
    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    chain = processors.load(spec, tokenizer=words)
    with pytest.raises(VocabularyError, match=f"vocab_size={width} is less than the 257 ids"):
        chain.init_state(Context.start(np.zeros((1, width), dtype=np.float32), prompt=[[1]]))
