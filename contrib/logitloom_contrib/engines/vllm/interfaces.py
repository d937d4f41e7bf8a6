"""The base classes that vLLM's two model runners ask for: as many of the two as this installation has."""

from __future__ import annotations

from typing import Any, Final

from logitloom.masks.kernels import do_without_kernels

__all__ = ["BASES", "MISSING"]


def _found() -> tuple[tuple[type[Any], ...], str | None]:
    found: list[type[Any]] = []
    reasons = []
    try:
        from vllm.v1.sample.logits_processor import LogitsProcessor as OfV1

        found.append(OfV1)
    except ImportError as error:
        reasons.append(f"model runner V1 ({error})")
    try:
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as OfV2

        found.append(OfV2)
    except ImportError as error:
        reasons.append(f"model runner V2 ({error})")
    if found:
        return tuple(found), None
    return (), (
        f"vLLM's interfaces for logits processors could not be imported: {'; '.join(reasons)}. Install vLLM 0.32 or "
        f"newer to run logitloom in it."
    )


_FOUND: Final = _found()
BASES: Final = _FOUND[0]
#: Why logitloom cannot run in vLLM in this installation; None if it can.
MISSING: Final = _FOUND[1]

if MISSING is None:
    # vLLM's build for CPUs looks at every object of every module when an engine starts, and fails at an object of
    # llvmlite, which Numba loads. An engine on an accelerator keeps its logits in device memory, so kernels for host
    # memory are of no use to it.
    do_without_kernels()
