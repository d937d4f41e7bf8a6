"""Engine adapters whose engines call them from Python pass the public conformance kit."""

from __future__ import annotations

import pytest

from logitloom_contrib.conformance import *  # noqa: F403

pytestmark = pytest.mark.extras
