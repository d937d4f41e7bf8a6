"""Visit all constraints on values that can occur while a text of a schema is read."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

from logitloom_plugins.json_schema.schema.formula import atoms, nodes_in
from logitloom_plugins.json_schema.structure import arrays, objects
from logitloom_plugins.json_schema.structure.members import ValueConstraint
from logitloom_plugins.json_schema.structure.objects import ObjectFrame, ObjectPlan
from logitloom_plugins.json_schema.structure.satisfiability import EVERYTHING, Frame, Satisfiability

__all__ = ["visit_constraints"]

#: Atoms that ask nothing of the values of members and items.
_COUNTED: Final = frozenset(("req", "minp", "maxp", "mini", "maxi"))


def visit_constraints(values: Satisfiability, root: ValueConstraint, nodes: Container[int]) -> None:
    """Open every reachable object and array, so that what cannot be enforced is known at compilation.

    Args:
        values: opens them.
        root: the constraint on the whole value.
        nodes: values of other nodes are not visited.

    Raises:
        BudgetExceeded: if too many objects and arrays may be open.
    """
    queue = [root]
    seen = set(queue)
    for demand in queue:
        if not any(node in nodes for formula in (demand.must, *demand.extras) for node in nodes_in(formula)):
            continue
        for kind in ("object", "array"):
            formulas = values.of_type(demand, kind)
            frame = values.opened(kind, formulas, EVERYTHING) if formulas else None
            for member in _members(values, frame) if frame is not None else ():
                if member not in seen:
                    seen.add(member)
                    queue.append(member)


def _members(values: Satisfiability, frame: Frame) -> Iterator[ValueConstraint]:
    """The constraints on the members or items of a container that has just been opened."""
    plan = frame.plan
    if any(atom[0] not in _COUNTED for formula in (frame.soft, *frame.extras) for atom in atoms(formula)):
        for reached in values.explored(frame):
            if isinstance(reached, ObjectFrame):
                yield from [member.demand for _, member in objects.next_members(reached)]
            else:
                yield from [member.demand for member in (arrays.item(reached),) if member is not None]
    elif isinstance(plan, ObjectPlan):
        yield from [ValueConstraint(plan.hard_child(key)) for key in plan.keys.bit]
    else:
        yield from [ValueConstraint(plan.hard_item(place)) for place in range(plan.varied + 1)]
