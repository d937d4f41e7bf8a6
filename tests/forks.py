"""What a forked child finds, and a mark for tests that fork."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from typing import Any

import pytest


def forks(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that forks."""
    marked = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")(test)
    return pytest.mark.filterwarnings(
        "ignore:.*multi-threaded.*:DeprecationWarning",
        # JAX, where an earlier test has imported it, warns of every fork.
        "ignore:.*os.fork.*:RuntimeWarning",
        "ignore:.*_at_fork.*:pytest.PytestUnraisableExceptionWarning",
    )(marked)


def in_child(function: Callable[[], Any]) -> Any:
    """The result of a function that a forked child calls; an alarm ends a child that waits for its parent's threads."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(20)
            with open(write, "wb") as pipe:
                pipe.write(pickle.dumps(function()))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            # The child runs nothing else of its parent.
            os._exit(status)
    os.close(write)
    with open(read, "rb") as pipe:
        data = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return pickle.loads(data)
