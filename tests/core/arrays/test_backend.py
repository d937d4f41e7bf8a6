"""Finding the backend of an array, and tables of the host."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom import load_backend
from logitloom.arrays.backend import HostTable, backend_of, library_of
from logitloom.errors import BackendMissing


class Foreign:
    """Looks like an array of a library nobody supports."""

    shape, dtype = (1,), "float32"


def test_an_array_names_its_library() -> None:
    assert library_of(np.zeros(2)) == "numpy"
    assert library_of(Foreign()) != "numpy"


def test_an_array_without_backend_is_an_error_that_names_its_type() -> None:
    with pytest.raises(BackendMissing, match=r"Got an array of type .*Foreign, which no backend handles\."):
        backend_of(Foreign())


def test_a_class_derived_from_an_array_type_has_its_backend() -> None:
    class Marked(np.ndarray):
        pass

    assert backend_of(np.zeros(3).view(Marked)) is load_backend("numpy")


def test_a_table_cannot_be_written_to() -> None:
    table = HostTable(np.arange(3))
    with pytest.raises(ValueError, match="read-only"):
        table.host[0] = 1
