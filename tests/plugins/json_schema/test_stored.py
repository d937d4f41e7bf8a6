"""What one process finds while it compiles a schema, another process reads from the shared folder."""

from __future__ import annotations

import contextlib
import functools
import random
import warnings
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom.arrays.backend import backend_of
from logitloom.automata import Budget, BudgetTracker, compiled_in
from logitloom.automata.store import compiled_store
from logitloom.automata.store.array_file import checked, with_checksum
from logitloom.errors import LogitloomError
from logitloom.rows.tree_format import decode, encode
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.schema_automaton import SchemaAutomaton
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.grammar import satisfiability
from logitloom_plugins.json_schema.grammar.layout import Whitespace
from logitloom_plugins.json_schema.grammar.satisfiability import Satisfiability
from logitloom_plugins.json_schema.values import ecma_pattern, formats, moore_machine, numbers, strings
from tests.cases import some

SCHEMAS: dict[str, Any] = {
    "numbers": {"oneOf": [{"multipleOf": 3}, {"minimum": 7, "maximum": 19.5}]},
    "names": {"patternProperties": {"^x": {"multipleOf": 2}, "y$": {"minimum": 3}}, "minProperties": 2},
    "counted items": {"contains": {"enum": [1, 2, "a"]}, "minContains": 2, "maxContains": 3, "maxItems": 9},
    "alternatives": {"anyOf": [{"required": ["a"]}, {"required": ["b"], "properties": {"b": {"type": "null"}}}]},
    "strings": {"oneOf": [{"pattern": "^a+", "maxLength": 9}, {"pattern": "b+$"}, {"enum": ["ab", "ba"]}]},
    "format": {"properties": {"at": {"format": "time", "maxLength": 14}}, "required": ["at"]},
    "recursive": {"properties": {"next": {"$ref": "#"}, "v": {"not": {"const": 3}}}, "unevaluatedProperties": False},
    "names alone": {"propertyNames": {"pattern": "^[a-c]{1,2}$"}, "minProperties": 3},
    "a set": {"items": {"enum": [1, 2, 3, [4]]}, "uniqueItems": True, "minItems": 2},
}
OPTIONS = SchemaOptions(Whitespace("compact", 0))


@pytest.fixture(autouse=True)
def _everything_is_stored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compiled_store, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(compiled_store, "_LEAST_SECONDS_OF_VALUES", 0.0)
    _forget()
    yield
    _forget()


def _forget() -> None:
    """What this process remembers of schemas, as another one would not."""
    for module in (satisfiability, ecma_pattern, formats, moore_machine, numbers, strings):
        for found in vars(module).values():
            if isinstance(found, functools._lru_cache_wrapper):
                found.cache_clear()


def compiled(schema: Any, folder: Path | None, **options: Any) -> Machine:
    with compiled_in(folder):
        return compile_schema(schema, SchemaOptions(Whitespace("compact", 0), **options), Budget(states=20_000))


def read(machine: Machine, seed: int, steps: int = 300) -> list[Any]:
    """What may come along random texts: the configurations and their bytes."""
    automaton, dice, found = SchemaAutomaton(machine), random.Random(seed), []
    state: Any = automaton.start()
    for _ in range(steps):
        allowed = [byte for byte in range(256) if automaton.step(state, byte) is not None]
        found.append((state, automaton.accepts(state), allowed))
        state = automaton.step(state, dice.choice(allowed)) if allowed else automaton.start()
    return found


def refused(*given: Any, **more: Any) -> Any:
    raise AssertionError("found a second time")


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.long
def test_another_process_finds_nothing_again_and_reads_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [read(compiled(SCHEMAS[name], None), seed, 60) for seed in range(3)]
    _forget()
    compiled(SCHEMAS[name], tmp_path)
    assert list(tmp_path.glob("*.values"))
    _forget()
    with monkeypatch.context() as other:
        for method in ("_truth_vectors", "_can_be_closed"):
            other.setattr(Satisfiability, method, refused)
        for module in (numbers, strings):
            other.setattr(module, "joint", refused)
        other.setattr(ecma_pattern, "_searched", refused)
        other.setattr(strings, "format_automaton", refused)
        machine = compiled(SCHEMAS[name], tmp_path)
    assert [read(machine, seed, 60) for seed in range(3)] == expected


def test_keywords_that_are_ignored_are_named_again(tmp_path: Path) -> None:
    schema = {"prefixItems": [{"items": {"type": "number"}, "uniqueItems": True, "contains": {"minimum": 3}}]}
    for _ in range(2):
        with pytest.warns(UserWarning, match="'uniqueItems' at #/prefixItems/0"):
            machine = compiled(schema, tmp_path, strict=False)
        assert machine.keywords.repeatable
        _forget()


def test_other_options_have_other_files(tmp_path: Path) -> None:
    compiled(SCHEMAS["strings"], tmp_path)
    before = len(list(tmp_path.glob("*.values")))
    compiled(SCHEMAS["strings"], tmp_path, escapes="minimal")
    compiled({**SCHEMAS["strings"], "title": "another"}, tmp_path)
    assert len(list(tmp_path.glob("*.values"))) == before + 2


def test_a_damaged_file_is_compiled_again(tmp_path: Path) -> None:
    expected = read(compiled(SCHEMAS["names"], tmp_path), 0, 40)
    [path] = tmp_path.glob("*.values")
    whole = path.read_bytes()
    for place in random.Random(0).sample(range(len(whole)), 12):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert read(compiled(SCHEMAS["names"], tmp_path), 0, 40) == expected
    path.write_bytes(whole[:50])
    assert read(compiled(SCHEMAS["names"], tmp_path), 0, 40) == expected


def _forged(tree: Any, dice: random.Random) -> Any:
    """A tree in which one part is another value."""
    if isinstance(tree, tuple) and not hasattr(tree, "_fields") and tree and dice.random() < 0.9:
        place = dice.randrange(len(tree))
        return (*tree[:place], _forged(tree[place], dice), *tree[place + 1 :])
    if hasattr(tree, "_fields") and dice.random() < 0.8:
        name = dice.choice(tree._fields)
        return tree._replace(**{name: _forged(getattr(tree, name), dice)})
    if isinstance(tree, np.ndarray):
        changed = tree.copy()
        changed.flat[dice.randrange(tree.size)] = dice.choice([0, 1, 127])
        return dice.choice([changed, tree[:1], tree.astype(np.int64)])
    return dice.choice([None, (), 7, -1, "x", ("any", 5), frozenset(), (("a",),), np.arange(4)])


@pytest.mark.parametrize("name", ["names", "counted items", "strings"])
def test_a_forged_file_breaks_nothing(name: str, tmp_path: Path) -> None:
    format, dice = compiled_store._VALUES_FORMAT, random.Random(3)
    compiled(SCHEMAS[name], tmp_path)
    [path] = tmp_path.glob("*.values")
    content = checked(format, path.read_bytes())
    assert content is not None
    tree = decode(content, backend_of(np.empty(0)), packages=("logitloom_plugins",))
    for _ in range(some(60)):
        path.write_bytes(with_checksum(format, encode(_forged(tree, dice))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(LogitloomError):
                assert compiled(SCHEMAS[name], tmp_path).states


@pytest.mark.parametrize("part", range(5))
def test_automata_from_files_lead_outside_no_table(part: int) -> None:
    thirds = ("mult", Fraction(3))
    machine = numbers.number_automaton([thirds], lambda holds: holds(thirds), BudgetTracker())
    parts = list(machine.state_parts())
    copy = moore_machine.MooreMachine.from_state_parts(*parts)
    assert (copy.next == machine.next).all()
    assert copy.outputs == machine.outputs
    wrong: list[list[Any]] = [
        [parts[0][:9], parts[0].astype(np.int64), np.full(256, 250, np.uint8)],
        [parts[1] + np.int32(10**6), parts[1][:0], parts[1] - np.int32(5), parts[1].astype(np.int64)],
        [-1, len(parts[1]), 0.0, None, True],
        [(), 5],
        [parts[4][:-1], parts[4] - np.int32(2), np.full(len(parts[4]), 9, np.int32)],
    ]
    for value in wrong[part]:
        with pytest.raises(ValueError, match="an automaton has"):
            moore_machine.MooreMachine.from_state_parts(*parts[:part], value, *parts[part + 1 :])
