"""The environments of tox: every backend is a factor, and what an environment promises follows from its name."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LIBRARIES = sorted(set(PROJECT["project"]["entry-points"]["logitloom.backends"]) - {"numpy"})


def section(name: str) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser()
    parser.read(ROOT / "tox.ini", encoding="utf-8")
    return parser[name]


def lines_for(setting: str, factor: str) -> list[str]:
    """The lines of a setting that stand under a factor (or under nothing), without the condition."""
    found = []
    for line in section("testenv")[setting].splitlines():
        condition, colon, rest = line.partition(": ")
        if not colon:
            found.append(line.strip())
        elif factor in condition.split(","):
            found.append(rest.strip())
    return found


def _promises(line: str, environment: str) -> bool:
    """Whether a line of ``set_env`` promises a library in an environment, on one system at least."""
    condition, _, rest = line.partition(": ")
    factors = {factor.partition("-")[0] for factor in condition.strip().split(",")}
    return environment in factors and rest.startswith("PROMISES_")


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_backend_is_a_factor_that_is_installed_promised_and_tested(library: str) -> None:
    assert library in lines_for("extras", library)
    assert f"PROMISES_{library.upper()} = {library}" in lines_for("set_env", library)
    promise = next(line for line in lines_for("set_env", library) if line.startswith("LOGITLOOM_EXPECT_BACKENDS"))
    assert f"{{env:PROMISES_{library.upper()}:}}" in promise
    assert any('"promised and not exhaustive"' in line for line in lines_for("commands", library))


def test_the_default_environments_leave_out_exhaustive_runs_and_libraries_that_none_of_them_promises() -> None:
    default = [name.strip() for name in section("tox")["env_list"].split(",")]
    assert {"numpy", "all"} <= set(default)
    (alone,) = (line for line in lines_for("commands", "numpy") if " -m " in line and "doctest" not in line)
    rest, jax, model = (line for line in lines_for("commands", "all") if " -m " in line and "doctest" not in line)
    assert '"not library and not extras and not exhaustive"' in alone
    assert '"(extras or promised) and not jax and not weights and not exhaustive"' in rest
    assert '"jax and promised and not weights and not exhaustive"' in jax
    assert '"weights and not exhaustive"' in model
    promised = {
        line.rpartition(" ")[2] for line in section("testenv")["set_env"].splitlines() if _promises(line, "all")
    }
    assert promised == {*LIBRARIES} - {
        "cupy"
    }  # it needs a device; tests/plugins/backends/test_cupy_stand_in.py does not
    most, jax, model = (line for line in lines_for("commands", "exhaustive") if " -m " in line)
    assert '"not jax and not weights"' in most
    assert '"jax and not weights"' in jax
    assert '"weights"' in model


def test_the_workflow_runs_the_pythons_that_the_package_names() -> None:
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    named = {
        classifier.rpartition(" ")[2]
        for classifier in PROJECT["project"]["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", classifier)
    }
    assert set(re.findall(r"\"(3\.\d+)\"", workflow)) == named
    assert all(system in workflow for system in ("ubuntu-", "macos-", "windows-"))


def test_the_least_versions_that_are_declared_are_those_that_are_tested() -> None:
    text = (ROOT / "tests" / "lowest_constraints.txt").read_text(encoding="utf-8")
    tested = dict(re.findall(r"^([\w-]+)==([\w.]+)$", text, re.MULTILINE))
    project, extras = PROJECT["project"], section("testenv:lowest")["extras"].split()
    wanted = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    for line in wanted:
        name, least = re.findall(r"^([\w-]+)(?:\[\w+\])?>=([\w.]+)", line)[0]
        assert re.fullmatch(rf"{re.escape(least)}(\.0)*", tested[name]), f"{line}, but {tested[name]} is tested"
