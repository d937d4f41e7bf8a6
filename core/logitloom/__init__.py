"""logitloom: the layer between language models and their samplers.

A logits processor is written once, as two pure functions, and runs natively on every array library and inside
every inference engine; it stays correct under beams, batches, speculation, forking and compilation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logitloom import errors, processors
from logitloom.arrays.backend import Array, Backend, HostTable, backend_of
from logitloom.chain import Chain, ChainState
from logitloom.context import Context
from logitloom.effect import BIAS, MASK, PENALTY, REWEIGHT, SCALE, TRUNCATION, Effect
from logitloom.errors import LogitloomError
from logitloom.host import options
from logitloom.host.hookspecs import hookimpl
from logitloom.host.options import option
from logitloom.host.registry import load_backend, read_vocabulary
from logitloom.processor import Processor
from logitloom.rows import tree as state
from logitloom.vocabulary import Vocabulary

if TYPE_CHECKING:
    __version__: str

__all__ = [
    "BIAS",
    "MASK",
    "PENALTY",
    "REWEIGHT",
    "SCALE",
    "TRUNCATION",
    "Array",
    "Backend",
    "Chain",
    "ChainState",
    "Context",
    "Effect",
    "HostTable",
    "LogitloomError",
    "Processor",
    "Vocabulary",
    "backend_of",
    "errors",
    "hookimpl",
    "load_backend",
    "option",
    "options",
    "processors",
    "read_vocabulary",
    "state",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("logitloom")
    raise AttributeError(f"module 'logitloom' has no attribute {name!r}")
