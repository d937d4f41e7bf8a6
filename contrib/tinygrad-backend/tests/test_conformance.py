"""Every function and operation gives what it must, dtype by dtype."""

import os
import shutil

import pytest

pytest.importorskip("tinygrad", reason="the library is not installed")
if shutil.which(os.environ.get("CC", "clang")) is None:
    pytest.skip("tinygrad's CPU device needs the compiler clang", allow_module_level=True)

from logitloom_tinygrad.conformance import *  # noqa: F403
