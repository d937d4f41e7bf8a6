"""Everything that is asked of some value while texts of a schema are read."""

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
    """Open every object and array that can be asked for, so that what cannot be enforced is an error now.

    Raises:
        UnsupportedSchema: from opening one, or if there are too many.
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
    """The frames that can be reached and have members of their own."""
    if frame.soft is not True or frame.extras:
        return values.explored(frame)
    # Where nothing is open, later members are asked for the same as now, and items by their place.
    if isinstance(frame, ArrayFrame):
        return [frame._replace(length=place) for place in range(frame.plan.varied + 1)]
    return [frame]


def _members(frame: Frame) -> list[ValueConstraint]:
    if isinstance(frame, ArrayFrame):
        item = arrays.item(frame)
        return [item.demand] if item is not None else []
    return [member.demand for _, member in objects.next_members(frame)]
