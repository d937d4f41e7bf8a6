"""Steps of a chain that are interrupted at a random instruction, and taken again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeVar

import logitloom
import logitloom_plugins

__all__ = ["Interruption", "instructions", "interrupted"]

Result = TypeVar("Result")
#: Instructions of these packages are counted, and are where an interruption comes.
_FOLDERS: Final = tuple(os.path.dirname(package.__file__ or "") for package in (logitloom, logitloom_plugins))


class Interruption(BaseException):
    """What comes from outside, as ``KeyboardInterrupt`` does."""


class _Counter:
    """Counts instructions of traced frames, and raises at one of them.

    Args:
        at: at which instruction, from 0; ``None``: at none.
    """

    def __init__(self, at: int | None) -> None:
        self.count, self.at = 0, at
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_FOLDERS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.count += 1
            if self.count - 1 == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
                raise Interruption
        return self


def _traced(call: Callable[[], Result], counter: _Counter) -> Result:
    before = sys.gettrace()
    sys.settrace(counter)
    try:
        return call()
    finally:
        sys.settrace(before)


def instructions(call: Callable[[], Any]) -> int:
    """How many instructions a call takes."""
    counter = _Counter(None)
    _traced(call, counter)
    return counter.count


def interrupted(call: Callable[[], Any], at: int) -> str | None:
    """Where a call was interrupted that was to be interrupted at an instruction; ``None`` if it took fewer."""
    counter = _Counter(at)
    try:
        _traced(call, counter)
    except Interruption:
        return counter.where
    return None
