"""``logitloom new``: complete distributions. Their own tests are run by ``tests/test_scaffolds.py``."""

from __future__ import annotations

import ast
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from logitloom.cli.main import main
from logitloom.cli.new import KINDS, write
from logitloom.errors import DuplicatePlugin, ScaffoldError

#: The name of each kind's example; that of a backend is the module of its library.
NAMES = {
    "processor": "calm_down",
    "constraint": "brackets_only",
    "backend": "array_api_strict",
    "tokenizer": "byte_words",
    "candidates": "last_token",
    "engine": "small_engine",
}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def written(kind: str, tmp_path: Path) -> Path:
    return write(kind, NAMES[kind], tmp_path)


def project(folder: Path) -> dict[str, object]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def test_its_parts_name_each_other(kind: str, written: Path) -> None:
    found = project(written)
    assert found["project"]["name"] == written.name == f"logitloom-{NAMES[kind].replace('_', '-')}"  # type: ignore[index]
    point = found["project"]["entry-points"][f"logitloom.{KINDS[kind]}"][NAMES[kind]]  # type: ignore[index]
    package, _, attribute = point.partition("[")[0].strip().partition(":")
    code = ast.parse((written / "src" / package / "__init__.py").read_text())
    assert attribute in {node.name for node in code.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    workflows = (".github/workflows/test.yml", ".github/workflows/publish.yml")
    for name in ("README.md", "LICENSE", "tox.ini", ".gitignore", *workflows, f"src/{package}/py.typed"):
        assert (written / name).is_file()
    assert list((written / "tests").glob("test_*.py"))


def test_what_is_published_says_what_it_is(kind: str, written: Path) -> None:
    told = project(written)["project"]
    assert isinstance(told, dict)
    assert told["license"] == "MIT"
    assert (written / told["license-files"][0]).read_text().startswith("MIT License")
    assert "Typing :: Typed" in told["classifiers"]
    assert NAMES[kind] in told["description"]
    publish = (written / ".github" / "workflows" / "publish.yml").read_text()
    assert "id-token: write" in publish
    assert told["name"] in publish


def test_nothing_is_left_to_fill_in(written: Path) -> None:
    for path in written.rglob("*"):
        if path.is_file():
            assert "@@" not in path.read_text(), path
            assert "package" not in path.relative_to(written).parts
            if path.suffix == ".py":
                ast.parse(path.read_text())


def test_the_templates_are_part_of_the_package() -> None:
    for folder in ("common", *KINDS):
        found = resources.files("logitloom") / "templates" / folder
        assert any(entry.is_file() or entry.is_dir() for entry in found.iterdir())


def test_the_command_prints_the_folder_and_says_what_is_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "processor", "calm_down", "--into", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert Path(out.strip()) == tmp_path / "logitloom-calm-down"
    assert "pip install -e" in err
    assert main(["new", "processor", "calm_down", "--into", str(tmp_path)]) == 1
    assert "There is a" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "name"),
    [("processor", "processor"), ("constraint", "vocabulary"), ("candidates", "drafts"), ("processor", "context")],
)
def test_names_that_the_code_needs_itself_are_refused(tmp_path: Path, kind: str, name: str) -> None:
    with pytest.raises(ScaffoldError, match=f"would be {name.capitalize()!r}, a name that its code imports from"):
        write(kind, name, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "1st", "Calm", "calm-down", "class", "_calm", "calm_", "calm__down", "a b", "ä"])
def test_names_that_will_not_do_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ScaffoldError, match=r"cannot name a plug-in \(processor\)"):
        write("processor", name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_better_name_is_proposed(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match="Try 'calm_down'"):
        write("processor", "Calm-Down", tmp_path)


def test_names_that_are_taken_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DuplicatePlugin, match="'top_k' is already taken among processors by logitloom "):
        write("processor", "top_k", tmp_path)
    with pytest.raises(DuplicatePlugin, match="'numpy' is already taken among backends"):
        write("backend", "numpy", tmp_path)
    with pytest.raises(ScaffoldError, match="'json' is a module of Python's own"):
        write("backend", "json", tmp_path)
    with pytest.raises(ScaffoldError, match="A package 'logitloom_plugins' is installed already"):
        write("processor", "plugins", tmp_path)


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "logitloom-calm-down"
    mine.mkdir()
    with pytest.raises(ScaffoldError, match="choose another name or --into"):
        write("processor", "calm_down", tmp_path)
    assert list(mine.iterdir()) == []
    with pytest.raises(ScaffoldError, match="There is no folder"):
        write("processor", "calm_down", tmp_path / "nowhere")
