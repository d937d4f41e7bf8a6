"""A step on NumPy views of another library's arrays, for cases in which a library call costs more than its work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from logitloom.arrays.backend import Array, SharedMemory
from logitloom.chain.plan import Segment
from logitloom.context import Context
from logitloom.rows import tree as rows

__all__ = ["OnViews", "SharedStep"]

#: The arrays of a step's context.
_FIELDS: Final = ("tokens", "chosen_logprob", "sequence", "length", "prompt_length")


class SharedStep:
    """The views of a step's arrays, and the way back.

    Attributes:
        backend: of the arrays.
        views: logits, states and context for NumPy.
    """

    def __init__(self, memory: SharedMemory, context: Context) -> None:
        self.backend = context.backend
        self.views: tuple[Any, tuple[Any, ...], Context]
        self._memory = memory
        #: The array of each view, by the identity of the view, which is kept beside it.
        self._arrays: dict[int, tuple[Any, Array]] = {}
        self._complete = True

    @staticmethod
    def of(logits: Array, states: Sequence[Any], context: Context) -> SharedStep | None:
        """The views of a step; None where the library shares no memory with NumPy, or an array does not."""
        memory = context.backend.shared_memory(logits)
        if memory is None:
            return None
        step = SharedStep(memory, context)
        fields = {name: array for name in _FIELDS if (array := getattr(context, name)) is not None}
        seen = {name: step._view(array) for name, array in fields.items()}
        held = tuple([rows.map_leaves(step._view, state) if state else state for state in states])
        step.views = step._view(logits), held, context.with_fields(backend=memory.backend, **seen)
        return step if step._complete else None

    def _view(self, array: Array) -> Any:
        view = self._memory.view(array)
        self._complete = self._complete and view is not None
        self._arrays[id(view)] = view, array
        return view

    def array(self, view: Any) -> Array:
        """The library's array for a view: the array that was given, or a new array over the view's memory."""
        known = self._arrays.get(id(view))
        if known is not None:
            return known[1]
        return self._memory.array(view) if isinstance(view, np.ndarray) else view

    def returned(self, logits: Any, states: list[Any]) -> tuple[Array, list[Any]]:
        """Logits and states as arrays of the library; the library is told if its logits were overwritten."""
        if id(logits) in self._arrays:
            self._memory.written(self._arrays[id(logits)][1])
        return self.array(logits), [rows.map_leaves(self.array, state) if state else state for state in states]


@dataclass(frozen=True)
class OnViews:
    """Processors that run on NumPy views of the arrays, if the library shares memory with NumPy.

    Attributes:
        inner: the segment that runs the processors, on views or on the library's own arrays.
    """

    inner: Segment

    @property
    def count(self) -> int:
        """How many processors."""
        return self.inner.count

    @property
    def fresh(self) -> bool:
        """Whether the result is an array of our own, if it is not the input."""
        return self.inner.fresh

    def run(self, logits: Array, states: Sequence[Any], context: Context) -> tuple[Array, list[Any]]:
        """See :meth:`logitloom.chain.plan.Segment.run`."""
        shared = SharedStep.of(logits, states, context)
        if shared is None:
            return self.inner.run(logits, states, context)
        views, held, seen = shared.views
        return shared.returned(*self.inner.run(views, held, seen.with_fields(pool=None)))
