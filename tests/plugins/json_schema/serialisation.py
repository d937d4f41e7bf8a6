"""Instances as the automaton expects to read them: members in schema order, whitespace by policy.

The members of an object stand in this order: first the names that the schema declares with ``properties``, in the order
in which they are met when the schema is read from the top (a schema's own first, then those of its ``$ref``, ``allOf``,
``anyOf``, ``oneOf``, ``not`` and ``if``), then all others in the order of the instance.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.grammar import arrays, objects
from logitloom_plugins.json_schema.grammar.members import TruthVector, ValueConstraint
from logitloom_plugins.json_schema.grammar.satisfiability import EVERYTHING
from logitloom_plugins.json_schema.schema.keywords import type_of
from logitloom_plugins.json_schema.values.moore_machine import encodable

__all__ = ["serialise"]


def serialise(machine: Machine, instance: Any) -> str:
    """An instance as JSON text, in the order and with the whitespace of the automaton's policy.

    What makes an instance invalid is written all the same, so the text is accepted exactly if the instance is valid.
    """
    demand = ValueConstraint(("s", machine.keywords.document.root))
    return _Writer(machine).value(instance, demand)[0]


class _Writer:
    def __init__(self, machine: Machine) -> None:
        self.values = machine.values
        one_space = machine.whitespace.policy == "one_space"
        self.comma, self.colon = (", ", ": ") if one_space else (",", ":")
        self.ascii = machine.grammar.escapes == "ascii"

    def scalar(self, value: Any) -> str:
        return json.dumps(value, ensure_ascii=self.ascii)

    def value(self, value: Any, demand: ValueConstraint | None) -> tuple[str, TruthVector | None]:
        """The text, and what the value answers to the demand (``None``: it is wrong, or nothing is asked)."""
        kind = type_of(value)
        formulas = self.values.of_type(demand, kind) if demand is not None else ()
        if kind == "object":
            return self.object(value, formulas)
        if kind == "array":
            return self.array(value, formulas)
        text = self.scalar(value)
        if not formulas:
            return text, None
        if kind == "string":
            content = self.values.content(formulas)
            try:
                place = content.automaton.walk(value.encode())
            except UnicodeEncodeError:
                return text, None
            return text, content.ends(place, len(value)) if place >= 0 else None
        if kind == "number":
            automaton = self.values.number(formulas)
            place = automaton.walk(text.encode())
            return text, automaton.outputs[place] if place >= 0 else None
        return text, tuple([extra is True for extra in formulas[1:]])

    def opened(self, kind: str, formulas: Any) -> Any:
        return self.values.opened(kind, formulas, EVERYTHING) if formulas else None

    def array(self, value: Any, formulas: Any) -> tuple[str, TruthVector | None]:
        frame = self.opened("array", formulas)
        texts = []
        for part in value:
            member = arrays.item(frame) if frame is not None else None
            text, truth = self.value(part, member.demand if member is not None else None)
            frame = member.after(self.values, truth) if member is not None and truth is not None else None
            texts.append(text)
        end = arrays.end_array(frame) if frame is not None else None
        return f"[{self.comma.join(texts)}]", end

    def object(self, value: Mapping[str, Any], formulas: Any) -> tuple[str, TruthVector | None]:
        frame = self.opened("object", formulas)
        names = frame.plan.names if frame is not None else ()
        declared = [name for name in names if name in value]
        texts = []
        for name in [*declared, *[name for name in value if name not in frozenset(names)]]:
            member = None
            if frame is not None:
                automaton = frame.plan.keys.automaton
                label = automaton.outputs[automaton.walk(name.encode())] if encodable(name) else None
                member = objects.member(self.values, frame, label) if label is not None else None
            text, truth = self.value(value[name], member.demand if member is not None else None)
            frame = member.after(self.values, truth) if member is not None and truth is not None else None
            texts.append(f"{self.scalar(name)}{self.colon}{text}")
        end = objects.end_object(frame) if frame is not None else None
        return f"{{{self.comma.join(texts)}}}", end
