"""The files of json_schema stand by stage, and import only from their own stage and earlier ones, without cycles."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import logitloom_plugins.json_schema

ROOT = Path(logitloom_plugins.json_schema.__file__).parent
PACKAGE = "logitloom_plugins.json_schema."
STAGES = ("schema", "values", "grammar", "folds", "tokens")


def imports() -> dict[str, set[str]]:
    """By module what it imports of the others, lazily and for types as well."""
    files = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
    found: dict[str, set[str]] = {}
    for module, path in files.items():
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
                source = (node.module or "").removeprefix(PACKAGE)
                names.update(f"{source}.{name.name}" if source in STAGES else source for name in node.names)
        found[module] = names & set(files)
    return found


def test_every_file_stands_in_a_stage() -> None:
    found = {module.split(".")[0] for module in imports() if module != "__init__"}
    assert found == set(STAGES)


def test_stages_import_only_earlier_ones() -> None:
    for module, names in imports().items():
        for name in names:
            assert STAGES.index(name.split(".")[0]) <= STAGES.index(module.split(".")[0]), (module, name)


def test_no_imports_go_in_a_circle() -> None:
    assert len([*TopologicalSorter(imports()).static_order()]) > 20
