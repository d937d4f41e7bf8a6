"""``logitloom check``: a table of plug-ins by backends, failures with their sentences, and exit codes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from logitloom import SCALE, Processor, processors
from logitloom.cli.check import select
from logitloom.cli.main import main
from logitloom.cli.new import write
from logitloom.errors import UnknownPlugin
from logitloom.host import registry
from logitloom.testing import ProcessorConformance
from tests.cases import each_once
from tests.installed_site import require_distributions


@pytest.fixture(autouse=True)
def _only_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [f"backends/{r.name}" for r in registry.available("backends") if r.name != "numpy"]
    monkeypatch.setenv("LOGITLOOM_BLOCK", ",".join(others))
    monkeypatch.delenv("LOGITLOOM_EXPECT_BACKENDS", raising=False)


@pytest.fixture
def with_suite(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Registers a processor as one of a package that has a suite for it, until the test ends."""
    registered = []

    def register(name: str, plugin: Any, **suite: Any) -> None:
        package, module = ModuleType("broken_package"), ModuleType("broken_package.conformance")
        package.__path__ = []  # type: ignore[attr-defined]
        plugin.__module__ = "broken_package"
        members = {"processor": name, **suite}
        module.TestIt = type("TestIt", (ProcessorConformance,), members)  # type: ignore[attr-defined]
        module.__spec__ = ModuleSpec("broken_package.conformance", None)
        monkeypatch.setitem(sys.modules, "broken_package", package)
        monkeypatch.setitem(sys.modules, "broken_package.conformance", module)
        processors.register(name, plugin)
        registered.append(name)

    yield register
    for name in registered:
        processors.unregister(name)


@pytest.fixture
def mixing(with_suite: Callable[..., None]) -> str:
    """A broken processor in a package with a suite for it."""

    class Mixing(Processor):
        """Takes the largest logit of all rows."""

        stage = "warp"

        def process(self, logits: Any, state: Any, context: Any) -> Any:
            return logits - np.max(logits), state

    with_suite("mixing", Mixing)
    return "mixing"


def test_a_built_in_passes_on_every_backend_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "temperature"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["KIND", "NAME", "ANYWHERE", "NUMPY"]
    assert re.fullmatch(r"processors +temperature +\d+ ok +\d+ ok", line)


def test_failures_are_told_and_give_another_exit_code(mixing: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "processors/mixing"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"processors +mixing +\d+ ok +\d+ of \d+ failed", out)
    assert "failed processors/mixing test_rows_are_independent (numpy, default)\n  Row " in out
    assert "\n  Usual causes: a result uses the index of a row, other rows (a maximum without 'axis=-1')," in out


def test_an_error_of_a_processor_comes_with_the_note_that_names_it(
    with_suite: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    class Unasked(Processor):
        """Reads what it does not ask for."""

        def process(self, logits: Any, context: Any) -> Any:
            return logits - context.length[:, None]

    with_suite("unasked", Unasked)
    assert main(["check", "unasked"]) == 1
    said = capsys.readouterr().out
    assert "Raised by process of the processor 'unasked', before the first token. context.length is None unless" in said


def test_a_backend_that_the_option_leaves_out_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("logitloom.cli.check._check_backends", lambda names: None)
        assert main(["check", "backends/numpy", "--backend", "torch"]) == 1
    assert "--backend torch leaves out the backend 'numpy'. Add --backend numpy, or" in capsys.readouterr().err


def test_a_false_promise_to_keep_the_order_is_told(
    with_suite: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    class Flipping(Processor):
        """Turns positive logits around, and promises to keep the order."""

        stage = "warp"
        effect = SCALE

        def process(self, logits: Any, state: Any, context: Any) -> Any:
            return np.where(logits > 0, -logits, logits), state

    with_suite("flipping", Flipping)
    assert main(["check", "flipping"]) == 1
    said = capsys.readouterr().out
    assert "test_it_keeps_what_it_declares (numpy, default)\n  The processor declares that it keeps 'order'" in said


def test_pytest_options_of_the_environment_are_those_of_other_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-vv --numprocesses=2")
    assert main(["check", "temperature"]) == 0
    assert os.environ["PYTEST_ADDOPTS"] == "-vv --numprocesses=2"


def test_json_says_the_same(mixing: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", mixing, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["name"], found["ok"]) == ("processors", "mixing", False)
    assert found["failed"]["numpy"] == len([f for f in found["failures"] if f["backend"] == "numpy"])
    assert "test_rows_are_independent" in {failure["check"] for failure in found["failures"]}


def test_a_plugin_all_of_whose_checks_are_skipped_was_not_tested(
    with_suite: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    class Idle(Processor):
        """Does nothing."""

        def process(self, logits: Any, state: Any, context: Any) -> Any:
            return logits, state

    with_suite("idle", Idle, pytestmark=pytest.mark.skip(reason="no engine is installed"))
    assert main(["check", "idle"]) == 1
    assert re.search("processors/idle +every check was skipped: no engine is installed", capsys.readouterr().out)


def test_a_processor_without_a_suite_is_tested_with_its_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    class Halving(Processor):
        """Halve all logits."""

        stage = "warp"
        effect = SCALE

        def process(self, logits: Any, state: Any, context: Any) -> Any:
            return context.backend.scale(logits, 0.5, context.donate), state

    processors.register("halving", Halving)
    try:
        assert main(["check", "halving"]) == 0
    finally:
        processors.unregister("halving")
    assert "halving" in capsys.readouterr().out


def test_what_has_no_suite_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    class Needing(Processor):
        """Needs a tokenizer."""

        needs = frozenset({"vocabulary"})

        def process(self, logits: Any, state: Any, context: Any) -> Any:
            return logits, state

    processors.register("needing", Needing)
    try:
        assert main(["check", "needing"]) == 1
    finally:
        processors.unregister("needing")
    assert "no suite: derive one from logitloom.testing in" in capsys.readouterr().out


def test_every_built_in_that_can_be_tested_is() -> None:
    from logitloom.testing import suites

    records = [r for r in registry.available() if r.distribution == "logitloom" and r.kind in suites.TESTED]
    able = [r for r in records if r.installed and not r.blocked]
    found, untested = suites.find(able)
    assert [f"{f.kind}/{f.name}: {f.untested}" for f in untested] == []
    tested = {(suite.kind, name) for suite in found.values() for name in suite.subjects()}
    assert {(r.kind, r.name) for r in able} <= tested
    assert len(found) > 40
    assert len(found) > 50 or len(able) < len(records)  # fewer only where libraries are missing


@pytest.mark.parametrize("package", ["logitloom_plugins", "logitloom_contrib"])
def test_no_suite_of_the_built_ins_hides_another_one(package: str) -> None:
    import importlib
    import pkgutil

    whole = importlib.import_module(f"{package}.conformance")
    path = getattr(whole, "__path__", [])
    parts = [importlib.import_module(f"{whole.__name__}.{part.name}") for part in pkgutil.iter_modules(path)]
    for part in parts:
        for name in part.__all__:
            assert getattr(whole, name) is getattr(part, name), f"{part.__name__}.{name} is hidden by another {name}"


def test_only_the_backends_that_are_asked_for_are_tested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "regex", "--backend", "numpy"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[0].split() == ["KIND", "NAME", "ANYWHERE", "NUMPY"]
    assert re.search(r"\d+ checks passed, 0 failed, \d+ did not apply, in \d+ s\.", told.err)
    assert main(["check", "regex", "--backend", "nump"]) == 1
    assert "There is no backend of the name 'nump'. Installed are: " in capsys.readouterr().err


def test_names_kinds_and_distributions_are_understood() -> None:
    assert [(r.kind, r.name) for r in select("top_k")] == [("processors", "top_k")]
    assert {r.kind for r in select("sglang")} == {"engines"}
    assert {r.kind for r in select("llama")} == {"models", "tool_formats"}
    assert {r.kind for r in select("backends/numpy")} == {"backends"}
    assert {r.distribution for r in select("Logitloom")} == {"logitloom"}
    assert len(select(None)) == len(registry.available())
    with pytest.raises(UnknownPlugin, match="There is no plug-in and no distribution.*'nothing'"):
        select("nothing")
    with pytest.raises(UnknownPlugin, match=r"the name 'topk'\. Did you mean 'top_k'\?"):
        select("topk")


SCALING = '''
class Scaling:
    """Scales logits."""

    def process(self, logits, state, context):
        return logits {factor}, state
'''
SCALING_SUITE = """
from logitloom.testing import ProcessorConformance
class TestScaling(ProcessorConformance):
    processor = "{name}"
"""


@pytest.fixture
def claiming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs a distribution with a processor of a name, sound or not, and a suite, until the test ends."""
    monkeypatch.syspath_prepend(tmp_path)
    modules = set()

    def install(distribution: str, name: str, suite: str | None, sound: bool) -> None:
        package = tmp_path / distribution.replace("-", "_")
        metadata = tmp_path / f"{package.name}-1.0.dist-info"
        metadata.mkdir(), package.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {distribution}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[logitloom.processors]\n{name} = {package.name}:Scaling\n")
        (package / "__init__.py").write_text(SCALING.format(factor="/ 2" if sound else "- logits.max()"))
        if suite is not None:
            (package / "conformance.py").write_text(SCALING_SUITE.format(name=suite))
        modules.update({package.name, f"{package.name}.conformance"})
        registry.refresh()

    yield install
    monkeypatch.undo()
    for name in modules & set(sys.modules):
        del sys.modules[name]
    registry.refresh()


@pytest.mark.parametrize(
    ("what", "suite"),
    each_once(
        ["loom-other", "temperature@loom-other", "processors/temperature@Loom_Other"],
        [None, "temperature", "temperature@loom-other", "temperature@loom_other"],
    ),
)
def test_a_plugin_with_the_name_of_a_built_in_is_tested_itself(
    what: str, suite: str | None, claiming: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    claiming("loom-other", "temperature", suite, sound=False)
    assert main(["check", what, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["name"], found["distribution"], found["untested"]) == ("temperature", "loom-other", "")
    assert {failure["check"] for failure in found["failures"]} >= {"test_rows_are_independent"}


@pytest.mark.parametrize("suites", [(None, None), ("twin", "twin"), ("twin@loom-one", "twin@loom-two")])
def test_plugins_of_one_name_are_tested_each(
    suites: tuple[str | None, ...], claiming: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    claiming("loom-one", "twin", suites[0], sound=True)
    claiming("loom-two", "twin", suites[1], sound=False)
    assert main(["check", "twin@loom-one"]) == 0
    assert main(["check", "loom-two"]) == 1
    capsys.readouterr()
    assert main(["check", "twin"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"processors +twin@loom-one +\d+ ok +\d+ ok\n", out)
    assert re.search(r"processors +twin@loom-two +\d+ ok +\d+ of \d+ failed\n", out)
    assert "failed processors/twin@loom-two test_rows_are_independent" in out
    assert "failed processors/twin@loom-one" not in out


def test_a_missing_test_library_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "hypothesis" else real(name))
    assert main(["check", "top_k"]) == 1
    assert "pip install 'logitloom[test]'" in capsys.readouterr().err


def test_checks_that_an_author_leaves_out_are_named_and_nothing_is_certified(
    with_suite: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    class Careful(Processor):
        """Doubles logits."""

        stage = "warp"

        def process(self, logits: Any, state: Any, context: Any) -> Any:
            return logits * 2, state

    name = next(n for n in dir(ProcessorConformance) if n.startswith("test_"))

    @pytest.mark.skip(reason="too slow here")
    def left_out(self: Any) -> None:
        raise AssertionError

    with_suite("careful", Careful, **{name: left_out})
    assert main(["check", "careful", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["certified"]) == (True, False)
    assert found["left_out"] == {name: "too slow here"}
    assert main(["check", "careful"]) == 0
    out, err = capsys.readouterr()
    assert re.search(rf"processors/careful +{name} +too slow here", out)
    assert "1 left out by the author of the plug-in, which is not certified" in err


def test_a_plugin_that_passes_everything_is_certified(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "temperature", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["certified"], found["left_out"]) == (True, {})


def test_a_table_says_who_skipped_what_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "temperature", "--skipped"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"PLUG-IN +DID NOT APPLY +TIMES +WHY", out)
    assert re.search(r"processors/temperature +test_forced_tokens_are_the_only_legal_ones +\d+ +\S+", out)
    assert main(["check", "temperature", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert sum(skip["times"] for skip in found["skips"]) == sum(found["skipped"].values())


def test_progress_is_told_line_by_line_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "temperature"]) == 0
    assert re.search(r"^0 of \d+ checks, processors/temperature$", capsys.readouterr().err, re.M)


@pytest.mark.extras
def test_a_package_is_checked_in_an_environment_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    require_distributions("hatchling", "pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip reads this one as: without isolation
    folder = write("tokenizer", "letters_of_mine", tmp_path)
    assert main(["check", "--own-environment", str(folder)]) == 0
    assert re.search(r"tokenizers +letters_of_mine +\d+ ok", capfd.readouterr().out)
    assert "letters_of_mine" not in {record.name for record in registry.available("tokenizers")}


def test_what_cannot_be_installed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert main(["check", "--own-environment", str(tmp_path / "nowhere")]) == 1
    assert "pip cannot install" in capsys.readouterr().err
    assert main(["check", "--own-environment"]) == 1
    assert "Name what to install" in capsys.readouterr().err
