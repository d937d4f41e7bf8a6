"""Waiting for a search for compiled kernels, which a thread makes."""

from __future__ import annotations

import threading

from logitloom.masks.kernels import MaskKernels, host_kernels


def searched() -> MaskKernels | None:
    """The kernels that a process takes once the search has ended that it begins or has begun."""
    host_kernels()
    for thread in threading.enumerate():
        if thread.name == "logitloom kernel search":
            thread.join(60)
    return host_kernels()
