"""The adapters pass the public suite for engines."""

import pytest

pytest.importorskip("torch", reason="these engines pass PyTorch tensors")

from logitloom_protocol_adapters.conformance import *  # noqa: F403
