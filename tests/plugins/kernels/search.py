"""Waiting for a search for compiled kernels, which a thread makes."""

from __future__ import annotations

import threading

from logitloom.masks.kernels import MaskKernels, host_kernels


def wait_for_searches() -> None:
    """Wait until every search that has begun has ended."""
    for thread in threading.enumerate():
        if thread.name == "logitloom kernel search":
            thread.join(60)


def searched() -> MaskKernels | None:
    """The kernels that a process takes once the search has ended that it begins or has begun."""
    host_kernels()
    wait_for_searches()
    return host_kernels()
