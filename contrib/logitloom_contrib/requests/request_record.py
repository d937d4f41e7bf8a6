"""Records of the distributions from which the tokens of a request were chosen: a file for each request with a record.

Processors of vLLM run in the engine's own process and can return nothing but logits. The operator names a folder, a
request a name in it; the engine writes the file when the request leaves its batch.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from logitloom.errors import NeedsNotMet
from logitloom.generation import Sampled
from logitloom.rows.atomic_file import write_whole

__all__ = ["RECORD_KEY", "admitted_record", "read_record", "record_name", "write_record"]

#: The key of ``extra_args`` and ``vllm_xargs`` that names a request's record.
RECORD_KEY: Final = "logitloom_record"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def record_name(extra: Mapping[str, Any] | None) -> str | None:
    """The name that a request gives its record; None if it asks for none.

    Raises:
        NeedsNotMet: it is no name.

    Example:
        >>> record_name({"logitloom_record": "request-17"})
        'request-17'
    """
    name = (extra or {}).get(RECORD_KEY)
    if name is None:
        return None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise NeedsNotMet(
            f"{RECORD_KEY!r} of the request must be a name of 1 to 64 letters, digits, '-' and '_', but is "
            f"{name!r:.100}."
        )
    return name


def admitted_record(extra: Mapping[str, Any] | None, folder: str) -> str | None:
    """The name of the record that a request asks for, if it can be written; None if it asks for none.

    Args:
        extra: of the request.
        folder: where records are; empty if the operator named none.

    Raises:
        NeedsNotMet: the name is invalid, there is no folder, or there is a record of this name already.
    """
    name = record_name(extra)
    if name is None:
        return None
    if not folder:
        raise NeedsNotMet(
            f"The request asks for a record ({RECORD_KEY!r}), and this server keeps none. The operator names a "
            f"folder for them in LOGITLOOM_SERVER_RECORD."
        )
    if (Path(folder) / f"{name}.json").exists():
        raise NeedsNotMet(f"There is a record {name!r} already. Choose another name.")
    return name


def write_record(folder: str, name: str, sampled: Sequence[Sampled | None]) -> None:
    """Write the record of a request.

    Args:
        folder: where records are.
        name: of the request.
        sampled: the distribution from which each token was chosen; None where it is not known.
    """
    plain = [None if each is None else _finite(dataclasses.asdict(each)) for each in sampled]
    # Every rank that samples writes the same file.
    write_whole(Path(folder) / f"{name}.json", json.dumps({"sampled": plain}, allow_nan=False).encode())


def read_record(folder: str | Path, name: str) -> tuple[Sampled | None, ...]:
    """The record of a request: per token the distribution from which the token was chosen; None where the engine no
    longer knows the distribution.

    The engine does not know the distributions of tokens from before a preemption. The record of an ended request is
    written in the engine's next step, when the engine removes the request from its batch.

    Args:
        folder: that of ``LOGITLOOM_SERVER_RECORD``.
        name: the request's.

    Raises:
        FileNotFoundError: there is none, or not yet.
    """
    told = json.loads((Path(folder) / f"{name}.json").read_text(encoding="utf-8"))["sampled"]
    return tuple(None if each is None else Sampled(**_with_infinities(each)) for each in told)


def _finite(fields: dict[str, Any]) -> dict[str, Any]:
    """Log-probabilities of -inf as JSON has them: null."""
    return {name: value if value is None or math.isfinite(value) else None for name, value in fields.items()}


def _with_infinities(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: -math.inf if value is None else value for name, value in fields.items()}
