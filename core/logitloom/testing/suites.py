"""Finding the suites of plug-ins, and running them outside the test runs of the plug-ins' distributions.

A distribution has its suites in a module ``conformance`` of the package of its plug-ins.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from logitloom import processors
from logitloom.arguments import printable
from logitloom.errors import LogitloomError
from logitloom.host.entry_points import normalized
from logitloom.host.loading import is_interruption
from logitloom.host.registry import PluginRecord, available
from logitloom.testing.conformance import Conformance, backend_names
from logitloom.testing.processor import ProcessorConformance

__all__ = ["TESTED", "Failure", "Finding", "chosen", "find", "run"]

#: Kinds of plug-ins that have suites.
TESTED = ("processors", "backends", "tokenizers", "candidates", "engines")

#: The suites of the run in progress, where the collected module finds them.
_CHOSEN: dict[str, type[Conformance]] = {}


@dataclass(frozen=True)
class Failure:
    """A check that failed.

    Attributes:
        check: its name.
        backend: on which backend; empty if the check needs none.
        case: with which options; empty likewise.
        message: the error message, with the notes of the chain, which name the processor and the step.
        usually: what causes such a failure as a rule; empty if the check does not say.
    """

    check: str
    backend: str
    case: str
    message: str
    usually: str = ""


@dataclass
class Finding:
    """The results of the checks of one plug-in.

    Attributes:
        kind, name, distribution, version: the plug-in.
        untested: why the plug-in was not tested; empty if it was tested.
        passed, failed, skipped: backend -> number of checks; those that need no backend are under ``""``.
        failures: each one.
        reason: why the first of the skipped checks was skipped.
        left_out: check -> reason, of those that the plug-in's author skips or expects to fail.
        skips: (check, reason) -> how often it was skipped for that reason, on any backend and in any case.
    """

    kind: str
    name: str
    distribution: str
    version: str
    untested: str = ""
    passed: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    reason: str = ""
    left_out: dict[str, str] = field(default_factory=dict)
    skips: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def certified(self) -> bool:
        """Whether the plug-in passed the whole kit: it was tested, no check failed, and its author left none out."""
        return self.ok and not self.untested and not self.left_out


def find(
    records: Sequence[PluginRecord], backends: Collection[str] | None = None
) -> tuple[dict[str, type[Conformance]], list[Finding]]:
    """The suites for some plug-ins, and a finding for each that cannot be tested, with the reason.

    A processor without a suite is tested with its defaults, if it has a default for every option and needs neither
    tokenizer nor model.

    Args:
        records: from :func:`logitloom.host.registry.available`.
        backends: names of the backends to test on; None for all that a suite names, or that are installed.

    Returns:
        The suites by a name for each, which begins with ``Test_`` and the number of the record, and the findings.
    """
    suites: dict[str, type[Conformance]] = {}
    untested: list[Finding] = []
    for number, record in enumerate(records):
        if record.kind not in TESTED or record.blocked or not record.installed:
            reason = (
                "it is blocked" if record.blocked else
                f"missing {', '.join(record.missing)}: {record.remedy}" if not record.installed else
                "there is no suite for its kind"
            )  # fmt: skip
            untested.append(_finding(record, reason))
            continue
        try:
            brought = [suite for suite in _brought_with(record) if suite.kind == record.kind]
            own = [suite for suite in brought if _is_subject(record, suite)] or _with_defaults(record)
        except BaseException as error:  # whatever a module of suites raises, other plug-ins are tested
            if is_interruption(error):
                raise
            untested.append(_finding(record, printable(f"{type(error).__name__}: {error}")))
            continue
        if not own:
            place = _suites_of(record).__name__
            untested.append(_finding(record, f"no suite: derive one from logitloom.testing in {place}"))
        for suite in own:
            if suite.kind == "backends":  # one class may stand for all backends
                suite = type(suite.__name__, (suite,), {"backends": (record.name,)})
            elif backends is not None:
                named = backend_names() if suite.backends is None else suite.backends
                suite = type(suite.__name__, (suite,), {"backends": [name for name in named if name in backends]})
            if suite.kind != "backends" and _shares_its_name(record):
                suite = type(suite.__name__, (suite,), {suite._named_by: record.full_name})
            suites[f"Test_{number}_{record.kind}_{record.name}_{len(suites)}"] = suite
    return suites, untested


def _suites_of(record: PluginRecord) -> ModuleType:
    """The module with the suites of a plug-in: ``conformance`` in its package, or the plug-in's single module."""
    package = importlib.import_module(record.value.partition(":")[0].partition(".")[0])
    name = f"{package.__name__}.conformance"
    if not hasattr(package, "__path__"):
        return package
    return ModuleType(name) if importlib.util.find_spec(name) is None else importlib.import_module(name)


def _brought_with(record: PluginRecord) -> list[type[Conformance]]:
    found = vars(_suites_of(record)).values()
    return [value for value in found if isinstance(value, type) and issubclass(value, Conformance)]


def _is_subject(record: PluginRecord, suite: type[Conformance]) -> bool:
    """Whether a suite names a plug-in, with or without its distribution."""
    named = (subject.partition("@") for subject in suite.subjects())
    return any(
        name == record.name and (not owner or normalized(owner) == normalized(record.distribution))
        for name, _, owner in named
    )


def _shares_its_name(record: PluginRecord) -> bool:
    """Whether the name alone may load another plug-in."""
    return sum(other.name == record.name for other in available(record.kind)) > 1


def _with_defaults(record: PluginRecord) -> list[type[Conformance]]:
    if record.kind != "processors":
        return []
    told = processors.describe(record.full_name)
    if any(option.required for option in told.options) or told.needs & {"vocabulary", "model"}:
        return []
    return [type("WithDefaults", (ProcessorConformance,), {"processor": record.name, "has_effect": False})]


def _finding(record: PluginRecord, untested: str = "") -> Finding:
    return Finding(record.kind, record.name, record.distribution, record.version, untested)


def chosen() -> dict[str, type[Conformance]]:
    """The suites of the run in progress; the module that pytest collects asks for them."""
    return dict(_CHOSEN)


def run(
    records: Sequence[PluginRecord],
    backends: Collection[str] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Finding]:
    """Test some plug-ins with the suites that are found for them, in this process.

    Args:
        records: from :func:`logitloom.host.registry.available`.
        backends: names of the backends to test on; None for all that a suite names, or that are installed.
        progress: called before each check, with how many were done, how many there are, and ``kind/name``.

    Returns:
        A finding per plug-in, in the order of the records.
    """
    suites, untested = find(records, backends)
    findings = {(f.kind, f.name, f.distribution): f for f in untested}
    by_suite: dict[str, Finding] = {}
    for number, record in enumerate(records):
        own = findings.setdefault((record.kind, record.name, record.distribution), _finding(record))
        by_suite.update({name: own for name in suites if name.startswith(f"Test_{number}_")})
    if suites:
        _CHOSEN.clear()
        _CHOSEN.update(suites)
        try:
            _run_pytest(_CheckRecorder(by_suite, progress))
        finally:
            _CHOSEN.clear()
    for found in findings.values():
        if found.skipped and not found.passed and not found.failed:
            found.untested = f"every check was skipped: {found.reason}"
    return [findings[record.kind, record.name, record.distribution] for record in records]


def _run_pytest(recorder: _CheckRecorder) -> None:
    with tempfile.TemporaryDirectory() as folder, _own_environment():
        # A unique name: otherwise pytest would use the module of an earlier run.
        module = Path(folder) / f"test_{Path(folder).name}.py"
        module.write_text(
            "from logitloom.testing import suites\n\nglobals().update(suites.chosen())\n", encoding="utf-8"
        )
        settings = Path(folder) / "pytest.ini"
        settings.write_text("[pytest]\n", encoding="utf-8")
        arguments = [
            "-p",
            "no:terminal",
            "-p",
            "no:cacheprovider",
            "--import-mode=importlib",
            "--noconftest",
            "--capture=sys",
        ]
        code = pytest.main([*arguments, f"--rootdir={folder}", "-c", str(settings), str(module)], plugins=[recorder])
    if recorder.problems or code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise LogitloomError(f"pytest could not run the suites: {'; '.join(recorder.problems) or code}.")


@contextmanager
def _own_environment() -> Iterator[None]:
    """Let pytest read neither the options in the environment nor plug-ins that are installed for other tests."""
    names = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        yield
    finally:
        del os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]
        os.environ.update(before)


class _CheckRecorder:
    """A pytest plug-in that records the outcome of each check."""

    def __init__(self, by_suite: dict[str, Finding], progress: Callable[[int, int, str], None] | None = None) -> None:
        self._by_suite = by_suite
        self._progress = progress
        self._done = 0
        self.problems: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not be collected."""
        if report.failed:
            self.problems.append(str(report.longrepr))

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Tell how far it is."""
        if self._progress is not None:
            found = self._by_suite[item.parent.name if item.parent is not None else ""]
            self._progress(self._done, item.session.testscollected, f"{found.kind}/{found.name}")
        self._done += 1

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Note the outcome: of the call, or of a set-up that did not come to it."""
        report: pytest.TestReport = yield
        if call.when == "call" or (call.when == "setup" and not report.passed):
            self._note(item, call, report)
        return report

    def _note(self, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        suite = item.parent.name if item.parent is not None else ""
        finding = self._by_suite[suite]
        told = item.callspec.params if hasattr(item, "callspec") else {}
        backend = str(told.get("backend", ""))
        column = finding.failed if report.failed else finding.skipped if report.skipped else finding.passed
        column[backend] = column.get(backend, 0) + 1
        if report.skipped and _by_author(item):
            finding.left_out[item.name.partition("[")[0]] = _reason(report)
        if report.skipped:
            finding.reason = finding.reason or _reason(report)
            skip = (item.name.partition("[")[0], _reason(report))
            finding.skips[skip] = finding.skips.get(skip, 0) + 1
        if report.failed:
            error = call.excinfo.value if call.excinfo is not None else ""
            message = printable(str(error)).partition("\nassert ")[0].strip() or type(error).__name__
            if not isinstance(error, AssertionError):
                message = f"{type(error).__name__}: {message}"
            # Notes of the chain; hypothesis has some, too.
            notes = [printable(each) for each in getattr(error, "__notes__", ()) if each.startswith("Raised by ")]
            message = "\n  ".join([message, *notes])
            more = [str(value) for name, value in told.items() if name != "backend"]
            check = item.name.partition("[")[0]
            finding.failures.append(Failure(check, backend, ", ".join(more), message, _usually(item)))


def _reason(report: pytest.TestReport) -> str:
    """Why a check was skipped, or expected to fail."""
    expected = getattr(report, "wasxfail", None)
    if expected is not None:
        return str(expected) or "expected to fail"
    because = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return because.removeprefix("Skipped: ")


def _usually(item: pytest.Item) -> str:
    """The usual cause of a failure of a check, as the check's docstring names it."""
    doc = inspect.cleandoc(getattr(getattr(item, "function", None), "__doc__", None) or "")
    told = " ".join(doc.partition("Troubleshooting: ")[2].partition("\n\n")[0].split())
    return re.sub(r"(?::\w+:)?`+([^`]+)`+", r"'\1'", told)


def _by_author(item: pytest.Item) -> bool:
    """Whether the author of a suite skips a check: by a mark, or in a check of theirs. The kit itself has no marks."""
    marked = any(item.get_closest_marker(name) for name in ("skip", "skipif", "xfail"))
    module = getattr(getattr(item, "function", None), "__module__", "")
    return marked or not module.startswith("logitloom.testing")
