"""What all suites share: the installed backends as a fixture, cases as parameters, and comparisons that explain."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from logitloom.arguments import shown
from logitloom.arrays.backend import Array, Backend
from logitloom.errors import LogitloomError
from logitloom.host import registry
from logitloom.rows import tree as row_state

__all__ = ["EXPECT_VARIABLE", "Conformance", "backend_names", "host_leaves", "same", "watched"]

#: Environment variable with the names of the backends that an environment promises: a promised backend that cannot be
#: loaded fails the checks, any other such backend is skipped with the reason.
EXPECT_VARIABLE = "LOGITLOOM_EXPECT_BACKENDS"


def backend_names() -> list[str]:
    """The names of the backends whose libraries are installed or promised, NumPy first."""
    names = {record.name for record in registry.available("backends") if record.installed and not record.blocked}
    names |= set(os.environ.get(EXPECT_VARIABLE, "").split())
    return sorted(names, key=lambda name: (name != "numpy", name))


class Conformance:
    """Base class of the suites.

    Attributes:
        backends: names of the backends to test on; None for all that are installed.
        cases: label -> the input of one run of the checks; each suite defines its meaning.
    """

    backends: ClassVar[Sequence[str] | None] = None
    cases: ClassVar[Mapping[str, Any]] = {"default": {}}

    #: The kind of plug-in that the suite tests, and the attribute that names the plug-in.
    kind: ClassVar[str] = ""
    _named_by: ClassVar[str] = ""

    #: Further parameters of checks, name -> values; those of base classes are added.
    _parameters: ClassVar[dict[str, Sequence[Any]]] = {}

    @classmethod
    def subjects(cls) -> list[str]:
        """The names of the plug-ins under test, of the kind ``kind``."""
        name = getattr(cls, cls._named_by, None)
        return [name] if isinstance(name, str) else []

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each check once per backend and case."""
        kind = metafunc.cls or type(self)
        wanted = metafunc.fixturenames
        if "backend" in wanted:
            names = backend_names() if kind.backends is None else list(kind.backends)
            metafunc.parametrize("backend", names, indirect=True)
        if "case" in wanted:
            assert isinstance(kind.cases, Mapping), (
                f"{kind.__qualname__}.cases is {shown(kind.cases)}, but must be a table, such as {{'default': {{}}}}."
            )
            metafunc.parametrize("case", list(kind.cases))
        given = [vars(base).get("_parameters", {}) for base in reversed(kind.__mro__)]
        for name, values in {name: values for part in given for name, values in part.items()}.items():
            if name in wanted:
                metafunc.parametrize(name, list(values))

    @pytest.fixture
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        """A backend on its default device."""
        try:
            return registry.load_backend(request.param)
        except LogitloomError as error:
            if request.param in os.environ.get(EXPECT_VARIABLE, "").split():
                pytest.fail(f"{EXPECT_VARIABLE} promises the backend {request.param!r}. {error}", pytrace=False)
            pytest.skip(f"the backend {request.param!r} is not available here: {error}")

    def test_no_check_was_replaced(self) -> None:
        """A suite's checks may be extended, not replaced: mark a check that does not apply with skip or xfail.

        Configuration: none. Troubleshooting: give the check another name, or decorate the override with
        ``pytest.mark.skip(reason=...)`` or ``pytest.mark.xfail(reason=...)``.
        """
        for name in dir(type(self)):
            if not name.startswith("test_"):
                continue
            owners = [kind for kind in type(self).__mro__ if name in vars(kind)]
            last = vars(owners[0])[name]
            ours = [kind for kind in owners if kind.__module__.startswith(__package__ or "logitloom.testing")]
            if not ours or owners[0] is ours[0]:
                continue
            marks = [mark for mark in getattr(last, "pytestmark", ()) if mark.name in ("skip", "xfail")]
            assert any(mark.kwargs.get("reason") or mark.args for mark in marks), (
                f"{owners[0].__qualname__} replaces the check {name} of {ours[0].__name__} without saying why."
            )


def same(actual: Any, expected: Any, what: str, tolerance: float = 0.0) -> None:
    """Fail unless two host arrays agree; the message names the arrays and their first difference.

    Args:
        actual, expected: host arrays; -inf equals -inf, not-a-number equals nothing.
        what: the name of the arrays, as the beginning of a sentence.
        tolerance: absolute, and relative to ``expected``.
    """
    a, b = np.asarray(actual), np.asarray(expected)
    if a.dtype.kind == "V" or b.dtype.kind == "V":  # a dtype that NumPy has from elsewhere
        a, b = a.astype(np.float64), b.astype(np.float64)
    assert a.shape == b.shape, f"{what}: the shape is {list(a.shape)} instead of {list(b.shape)}."
    if tolerance and a.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            near = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= tolerance * (1 + np.abs(b)))
        agree = (a == b) | near
    else:
        agree = a == b
    if not np.all(agree):
        index = tuple(int(i) for i in np.argwhere(~agree)[0])
        count = int((~agree).sum())
        nothing = ", which equals nothing" if a[index] != a[index] and b[index] != b[index] else ""
        where = f"{count} of {agree.size} values differ, first at {list(index)}: " if a.shape else ""
        raise AssertionError(f"{what}: {where}{a[index]} instead of {b[index]}{nothing}.")


def host_leaves(backend: Backend, tree: Any) -> list[tuple[str, Any]]:
    """Copies of the leaves of a state on the host; leaves of handles are given as they are."""
    found = []
    for path, leaf in row_state.leaves(tree):
        on_host = row_state.is_row_leaf(leaf) or not hasattr(leaf, "dtype")
        found.append((path, leaf if on_host else host(backend, leaf)))
    return found


def host(backend: Backend, array: Array) -> NDArray[Any]:
    """A copy of an array on the host."""
    return np.array(backend.to_numpy(array))


@contextmanager
def watched(backend: Backend, *methods: str) -> Iterator[list[str]]:
    """The names of the given methods of a backend, each time one is called inside the block.

    Calls by the backend's own operations are not counted.
    """
    called: list[str] = []
    own = {Backend.__module__, *(kind.__module__ for kind in type(backend).__mro__)}

    def watching(name: str) -> Callable[..., Any]:
        method = getattr(backend, name)

        def call(*args: Any, **named: Any) -> Any:
            if sys._getframe(1).f_globals.get("__name__") not in own:
                called.append(name)
            return method(*args, **named)

        return call

    before = {name: vars(backend)[name] for name in methods if name in vars(backend)}
    for name in methods:
        setattr(backend, name, watching(name))
    try:
        yield called
    finally:
        for name in methods:
            delattr(backend, name)
        for name, value in before.items():
            setattr(backend, name, value)
