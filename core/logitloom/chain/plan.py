"""The segments of a chain, which a step runs one after the other; :mod:`.planning` makes them.

A segment runs some neighbouring processors. A segment may have a shorter way, and always has the long way for logits on
which the shorter way does not work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from logitloom.arrays.backend import Array
from logitloom.chain.links import Link
from logitloom.chain.step_checks import checked_result, note
from logitloom.chain.steps import Step
from logitloom.context import Context

__all__ = ["Plan", "Segment", "WholeRows"]


class Segment(Protocol):
    """Some neighbouring processors of a chain.

    Attributes:
        count: how many processors.
        fresh: whether logits that are not the very input are an array of our own, which may be overwritten.
    """

    @property
    def count(self) -> int:
        """How many processors."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether the result is an array of our own, if it is not the input."""
        ...

    def run(self, logits: Array, states: Sequence[Any], context: Context) -> tuple[Array, list[Any]]:
        """The processed logits, and the new states of the processors.

        Args:
            logits: ``[rows, vocab]``.
            states: of the processors.
            context: of the step. A buffer of its pool may be returned.
        """
        ...


@dataclass(frozen=True)
class WholeRows:
    """Processors that run one after the other on whole rows.

    Attributes:
        links, steps: the processors.
        returns_fresh: for each, whether logits that are not the very input are an array of our own.
    """

    links: tuple[Link, ...]
    steps: tuple[Step, ...]
    returns_fresh: tuple[bool, ...]

    @property
    def count(self) -> int:
        """How many processors."""
        return len(self.steps)

    @property
    def fresh(self) -> bool:
        """Whether the result is an array of our own, if it is not the input."""
        return all(self.returns_fresh)

    def part(self, start: int, end: int) -> WholeRows:
        """Some of the processors."""
        return WholeRows(self.links[start:end], self.steps[start:end], self.returns_fresh[start:end])

    def run(self, logits: Array, states: Sequence[Any], context: Context) -> tuple[Array, list[Any]]:
        """See :meth:`Segment.run`."""
        after: list[Any] = []
        last, pool, ours = len(self.steps) - 1, context.pool, context.donate
        if pool is not None and last > 0:
            # A buffer of the pool must not be written to by other processors, so only the last processor gets the pool.
            context = context.with_fields(pool=None)
        for index, step in enumerate(self.steps):
            if index == last and pool is not None and context.pool is None:
                context = context.with_fields(pool=pool)
            # A second name for logits that may be overwritten would keep their memory until the next step.
            given, link = None if ours else logits, self.links[index]
            try:
                logits, new = checked_result(step(logits, states[index], context), logits, link)
            except Exception as error:
                note(error, link.label, "process", context)
                raise
            after.append(new)
            if not ours and index < last and self.returns_fresh[index] and _is_ours(logits, given, context):
                ours, context = True, context.with_fields(donate=True)
        return logits, after


def _is_ours(logits: Array, given: Array, context: Context) -> bool:
    """Whether the logits that a processor returned may be overwritten: if they are not those that it was given."""
    return logits is not given and not context.backend.is_view(logits, given)


@dataclass(frozen=True)
class Plan:
    """Segments in order, used as one segment."""

    segments: tuple[Segment, ...]

    @property
    def count(self) -> int:
        """How many processors."""
        return sum(segment.count for segment in self.segments)

    @property
    def fresh(self) -> bool:
        """Whether the result is an array of our own, if it is not the input."""
        return all(segment.fresh for segment in self.segments)

    def run(self, logits: Array, states: Sequence[Any], context: Context) -> tuple[Array, list[Any]]:
        """See :meth:`Segment.run`."""
        after: list[Any] = []
        for segment in self.segments:
            here = context
            if context.pool is not None and segment is not self.segments[-1]:
                here = context.with_fields(pool=None)
            given = None if context.donate else logits
            logits, new = segment.run(logits, states[len(after) : len(after) + segment.count], here)
            after += new
            if segment.fresh and not context.donate and _is_ours(logits, given, context):
                context = context.with_fields(donate=True)
        return logits, after
