"""array-api-strict as an array backend: the one that ``logitloom new backend array_api_strict`` writes.

It overrides no operation, and the library refuses everything that the array API standard does not promise.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logitloom import Backend, load_backend
from logitloom.cli.new import write
from logitloom.host import registry

__all__ = ["strict_backend"]


@contextmanager
def strict_backend() -> Iterator[Backend]:
    """The backend, known to the registry inside the block."""
    if any(record.name == "array_api_strict" for record in registry.available("backends")):
        yield load_backend("array_api_strict")
        return
    with tempfile.TemporaryDirectory() as home:
        folder = write("backend", "array_api_strict", Path(home))
        spec = importlib.util.spec_from_file_location(
            "logitloom_array_api_strict", folder / "src" / "logitloom_array_api_strict" / "__init__.py"
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        registry.register("array_api_strict", module.ArrayApiStrictPlugin, kind="backends")
        try:
            yield load_backend("array_api_strict")
        finally:
            registry.unregister("array_api_strict", kind="backends")
