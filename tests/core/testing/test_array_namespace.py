"""The table of names of an array library lists exactly the names that the code uses and the kit tests."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from logitloom import load_backend
from logitloom.testing._namespace_checks import FUNCTION_CHECKS, OPERATOR_CHECKS
from logitloom.testing.array_namespace import DTYPES, FUNCTIONS, OPERATORS, missing_names

ROOT = Path(__file__).parents[3]
FOLDERS = (
    ROOT / "core" / "logitloom",
    ROOT / "plugins" / "logitloom_plugins",
    ROOT / "contrib" / "logitloom_contrib",
)


def used_of(tree: ast.AST) -> set[str]:
    """The attributes that code takes of ``xp``, be that a variable or an attribute such as ``backend.xp``."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ((isinstance(node.value, ast.Name) and node.value.id == "xp")
             or (isinstance(node.value, ast.Attribute) and node.value.attr == "xp"))
    }  # fmt: skip


@cache
def used() -> dict[str, set[str]]:
    """Name -> the files that use it, but for backends, which call their own libraries."""
    found: dict[str, set[str]] = {}
    for folder in FOLDERS:
        for path in folder.rglob("*.py"):
            code = path.read_text(encoding="utf-8")
            if "backends" not in path.parts and "xp" in code:
                for name in used_of(ast.parse(code)):
                    found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return found


def test_uses_are_found_however_the_namespace_is_reached() -> None:
    code = "def f(xp, b):\n    return xp.exp(b.xp.log(self.backend.xp.float32)) + other.sin(1)\n"
    assert used_of(ast.parse(code)) == {"exp", "log", "float32"}


def test_everything_that_is_used_is_in_the_table() -> None:
    unlisted = {name: sorted(files) for name, files in used().items() if name not in FUNCTIONS | DTYPES.keys()}
    assert unlisted == {}, "list them in logitloom.testing.array_namespace and test them in _namespace_checks"


def test_everything_in_the_table_is_used() -> None:
    assert sorted({*FUNCTIONS, *DTYPES} - used().keys()) == []


def test_the_kit_tests_everything_in_the_table() -> None:
    assert list(FUNCTION_CHECKS) == list(FUNCTIONS) == sorted(FUNCTIONS)
    assert sorted(OPERATOR_CHECKS) == sorted(OPERATORS)


def test_every_check_compares_something() -> None:
    backend = load_backend("numpy")
    for name, check in {**FUNCTION_CHECKS, **OPERATOR_CHECKS}.items():
        assert list(check(backend)), name


@pytest.mark.parametrize("lacking", [set(), {"take"}, {"where", "clip", "int32"}])
def test_all_missing_names_are_told_at_once(lacking: set[str]) -> None:
    class Namespace:
        pass

    for name in {*FUNCTIONS, *DTYPES} - lacking:
        setattr(Namespace, name, None)
    assert missing_names(Namespace) == sorted(lacking)


def test_half_types_may_be_missing() -> None:
    namespace = type("Namespace", (), dict.fromkeys([*FUNCTIONS, *DTYPES.keys() - {"float16", "bfloat16"}]))
    assert missing_names(namespace) == []
