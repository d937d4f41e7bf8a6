"""The conformance kit: suites of tests that certify plug-ins, ours and everybody's.

Derive a test class from a suite, say how to build the plug-in, and run pytest. Needs pytest and hypothesis
(``pip install 'logitloom[test]'``), which are imported with this package and never otherwise.
"""

from __future__ import annotations

import pytest

_PARTS = (
    "_array_checks",
    "_declaration_checks",
    "_row_checks",
    "_width_checks",
    "backend",
    "candidate",
    "conformance",
    "constraint",
    "engine",
    "vocabulary",
)
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

# After the assertions are taken care of.
from logitloom.testing.backend import BackendConformance  # noqa: E402
from logitloom.testing.candidate import CandidateConformance  # noqa: E402
from logitloom.testing.conformance import Conformance  # noqa: E402
from logitloom.testing.constraint import ConstraintConformance  # noqa: E402
from logitloom.testing.engine import Call, EngineConformance  # noqa: E402
from logitloom.testing.processor import ProcessorConformance  # noqa: E402
from logitloom.testing.toy_model import ToyModel  # noqa: E402
from logitloom.testing.vocabulary import VocabularyConformance  # noqa: E402

__all__ = [
    "BackendConformance",
    "Call",
    "CandidateConformance",
    "Conformance",
    "ConstraintConformance",
    "EngineConformance",
    "ProcessorConformance",
    "ToyModel",
    "VocabularyConformance",
]
