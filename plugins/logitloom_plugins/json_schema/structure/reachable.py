"""Visit all constraints on values that can occur while a text of a schema is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logitloom.errors import UnsupportedSchema
from logitloom_plugins.json_schema.structure import arrays, objects
from logitloom_plugins.json_schema.structure.arrays import ArrayFrame
from logitloom_plugins.json_schema.structure.members import ValueConstraint
from logitloom_plugins.json_schema.structure.satisfiability import EVERYTHING, Frame, Satisfiability

__all__ = ["visit_constraints"]

_MOST: Final = 1 << 12


def visit_constraints(values: Satisfiability, root: ValueConstraint) -> None:
    """Open every reachable object and array, so that a keyword that cannot be enforced is an error at compilation.

    Raises:
        UnsupportedSchema: if a keyword cannot be enforced, or if there are more than 4096 reachable frames.
    """
    queue = [root]
    seen = set(queue)
    visited = 0
    for demand in queue:
        for kind in ("object", "array"):
            formulas = values.of_type(demand, kind)
            frame = values.opened(kind, formulas, EVERYTHING) if formulas else None
            if frame is None:
                continue
            for reached in _frames(values, frame):
                visited += 1
                if visited > _MOST:
                    raise UnsupportedSchema(f"More than {_MOST} kinds of open objects and arrays may come.")
                for member in _members(reached):
                    if member not in seen:
                        seen.add(member)
                        queue.append(member)


def _frames(values: Satisfiability, frame: Frame) -> Iterable[Frame]:
    """The frames that are reachable from a new frame and differ in the constraints on their members."""
    if frame.soft is not True or frame.extras:
        return values.explored(frame)
    # Without soft and extra formulas the constraint on a member depends only on its name, or on the index of an item.
    if isinstance(frame, ArrayFrame):
        return [frame._replace(length=place) for place in range(frame.plan.varied + 1)]
    return [frame]


def _members(frame: Frame) -> list[ValueConstraint]:
    if isinstance(frame, ArrayFrame):
        item = arrays.item(frame)
        return [item.demand] if item is not None else []
    return [member.demand for _, member in objects.next_members(frame)]
