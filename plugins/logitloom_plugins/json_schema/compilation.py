"""From a schema to its automaton: read, check every keyword, build."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from logitloom.automata.budget import Budget, Meter
from logitloom.errors import BudgetExceeded, UnsupportedPattern, UnsupportedSchema
from logitloom.kernels import host_kernels
from logitloom_plugins.json_schema.container_keywords import MOST_UNIQUE
from logitloom_plugins.json_schema.ecma_pattern import compile_ecma, lengthwise
from logitloom_plugins.json_schema.formula import atoms
from logitloom_plugins.json_schema.keywords import Keywords
from logitloom_plugins.json_schema.machine import Machine
from logitloom_plugins.json_schema.references import Document
from logitloom_plugins.json_schema.whitespace import Whitespace

__all__ = ["SchemaOptions", "compile_schema"]

#: Types whose formulas have atoms; of the others one stands for all.
_CHECKED = ("null", "number", "string", "array", "object")


@dataclass(frozen=True)
class SchemaOptions:
    """How a schema is read and its values are written.

    Args:
        whitespace: where whitespace may stand.
        escapes: ``any``: every escape of JSON; ``minimal``: only those that are needed; ``ascii``: as ``minimal``, and
            characters above ASCII only as escapes.
        formats: ``assert``, ``annotate``, or ``auto``: assert, except where the draft named by ``$schema`` (2019-09 and
            2020-12) says that ``format`` is an annotation.
        additional_properties: what ``additionalProperties`` defaults to beside ``properties``.
        strict: whether keywords that cannot be enforced are an error, or one warning.
    """

    whitespace: Whitespace = field(default_factory=Whitespace)
    escapes: str = "any"
    formats: str = "auto"
    additional_properties: bool = True
    strict: bool = True


def compile_schema(schema: Any, options: SchemaOptions | None = None, budget: Budget | None = None) -> Machine:
    """The automaton of a schema.

    Args:
        schema: a JSON value: an object or a boolean.
        options: how to read it.
        budget: what the compilation may cost.

    Raises:
        UnsupportedSchema: if it is malformed, refers to something outside, or has keywords that cannot be enforced
            (all of them are listed with their JSON pointers). A schema that no value satisfies compiles;
            ``satisfiable`` of the result says so.
        BudgetExceeded: if it takes too many states or seconds.
    """
    options = options if options is not None else SchemaOptions()
    # Loaded once per process, at no schema's cost in particular.
    host_kernels()
    meter = Meter(budget, "the schema")
    try:
        document = Document(schema, meter)
        keywords = Keywords(document, formats=options.formats, additional_properties=options.additional_properties)
        check(keywords, meter, options.strict)
        machine = Machine(keywords, options.whitespace, options.escapes, meter)
    except RecursionError as error:
        raise BudgetExceeded(
            "The schema is nested too deeply to be compiled. Nest less, or raise the limit with sys.setrecursionlimit."
        ) from error
    return machine


def check(keywords: Keywords, meter: Meter, strict: bool) -> None:
    """Look at every keyword that can play a part; raise (or warn) if some cannot be enforced."""
    document = keywords.document
    seen = {document.root}
    queue = [document.root]
    for count, number in enumerate(queue):
        if count % 32 == 0:
            meter.check_time()
        for kind in _CHECKED:
            formula = keywords.of(number, kind)
            if formula is True or formula is False:
                continue
            for atom in atoms(formula):
                _check_atom(keywords, number, atom)
                for part in atom[1:]:
                    for child in _nodes(part):
                        if child not in seen:
                            seen.add(child)
                            queue.append(child)
    if not keywords.problems:
        return
    listed = "; ".join(f"{keyword!r} at #{pointer}: {why}" for (pointer, keyword), why in keywords.problems.items())
    message = f"The schema has keywords that cannot be enforced: {listed}."
    if strict:
        error = UnsupportedSchema(f"{message} Remove them, or give strict=False to go on without them.")
        error.problems = tuple((keyword, f"#{pointer}", why) for (pointer, keyword), why in keywords.problems.items())
        raise error
    warnings.warn(f"{message} They are ignored, so values may violate them.", UserWarning, stacklevel=4)


def _nodes(part: Any) -> list[int]:
    if isinstance(part, tuple) and part and isinstance(part[0], str) and part[0] in ("s", "&", "|", "!", "1"):
        return [atom[1] for atom in atoms(part) if atom[0] == "s"]
    return []


def _check_atom(keywords: Keywords, number: int, atom: Any) -> None:
    node = keywords.document.nodes[number]
    if atom[0] == "unique":
        keywords.refuse(
            node,
            "uniqueItems",
            f"whether two items are equal is beyond automata, unless items have at most {MOST_UNIQUE} possible values "
            f"that are no arrays or objects",
        )
    patterns = [atom[1]] if atom[0] in ("pat", "patp") else sorted(atom[2]) if atom[0] == "addl" else []
    for pattern in patterns:
        if pattern in keywords.sound:
            continue
        try:
            counted = lengthwise(pattern) if atom[0] == "pat" else None
            compile_ecma(pattern if counted is None else counted[0], keywords.document.meter.budget)
            keywords.sound.add(pattern)
        except UnsupportedPattern as error:
            keywords.refuse(node, "pattern" if atom[0] == "pat" else "patternProperties", str(error))
