"""``logitloom new``: distributions whose own tests pass as they are written, on the backends that are there."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest

import logitloom
from logitloom import registry
from logitloom.cli.main import main
from logitloom.cli.new import KINDS, write
from logitloom.errors import DuplicatePlugin, ScaffoldError

#: The name of each kind's example; that of a backend is the module of its library.
NAMES = {"processor": "calm_down", "backend": "array_api_strict"}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def written(kind: str, tmp_path: Path) -> Path:
    return write(kind, NAMES[kind], tmp_path)


def project(folder: Path) -> dict[str, object]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def as_installed(folder: Path) -> Path:
    """A folder for the path in which the distribution lies as an installer leaves it."""
    found = project(folder)["project"]
    assert isinstance(found, dict)
    info = folder / "src" / f"{found['name'].replace('-', '_')}-{found['version']}.dist-info"
    info.mkdir()
    lines = [f"Metadata-Version: 2.4\nName: {found['name']}\nVersion: {found['version']}"]
    for extra, requirements in found["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {r}; extra == "{extra}"' for r in requirements)]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    points = [
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in entries.items())
        for group, entries in found["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points) + "\n")
    return folder / "src"


def run_python(folder: Path, *arguments: str, block: str = "") -> subprocess.CompletedProcess[str]:
    source = folder / "src"
    core = str(Path(logitloom.__file__).parent.parent)
    path = os.pathsep.join([str(source), core, os.environ.get("PYTHONPATH", "")])
    others = ",".join(f"backends/{r.name}" for r in registry.available("backends") if r.name not in ("numpy", block))
    # Other backends are blocked, so that importing their libraries takes no time here.
    environment = {**os.environ, "PYTHONPATH": path, "LOGITLOOM_BLOCK": others, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("LOGITLOOM_EXPECT_BACKENDS", None)
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.extras
def test_its_tests_pass_as_it_is_written(kind: str, written: Path) -> None:
    if kind == "backend":
        pytest.importorskip(NAMES[kind], reason=f"needs {NAMES[kind]}, whose backend is written")
    as_installed(written)
    ran = run_python(written, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(re.search(r"(\d+) passed", ran.stdout).group(1)) > 30  # type: ignore[union-attr]
    checked = run_python(written, "-m", "logitloom.cli.main", "check", NAMES[kind])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert re.search(rf"{KINDS[kind]} +{NAMES[kind]} .* ok", checked.stdout)


def test_its_parts_name_each_other(kind: str, written: Path) -> None:
    found = project(written)
    assert found["project"]["name"] == written.name == f"logitloom-{NAMES[kind].replace('_', '-')}"  # type: ignore[index]
    point = found["project"]["entry-points"][f"logitloom.{KINDS[kind]}"][NAMES[kind]]  # type: ignore[index]
    package, _, attribute = point.partition("[")[0].strip().partition(":")
    code = ast.parse((written / "src" / package / "__init__.py").read_text())
    assert attribute in {node.name for node in code.body if isinstance(node, ast.ClassDef)}
    for name in ("README.md", "tox.ini", ".gitignore", ".github/workflows/test.yml", f"src/{package}/py.typed"):
        assert (written / name).is_file()
    assert list((written / "tests").glob("test_*.py"))


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


@pytest.mark.parametrize("name", ["", "1st", "Calm", "calm-down", "class", "_calm", "calm_", "calm__down", "a b", "ä"])
def test_names_that_will_not_do_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ScaffoldError, match="is no name for a processor"):
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
