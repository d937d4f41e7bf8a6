"""Entry point of the kernels that Numba compiles: a thread loads the kernels from disk, or has them compiled first.

Compiling takes some twenty seconds in two separate processes, once per installation; loading compiled code takes about
a second and 160 MiB, with Numba itself. A note in the cache folder lists the files of compiled code by source, versions
and processor. So the presence of compiled code is known without importing Numba.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from logitloom.display.warning import warn
from logitloom.errors import BackendUnsupported, LogitloomError
from logitloom.masks.kernels import KernelsNotReady, importing, look_for_kernels_again
from logitloom.rows.atomic_file import write_whole

__all__ = ["NumbaKernels"]

#: The modules of compiled functions, and the functions of each module.
_FUNCTIONS: Final = {
    "_numba_loops": (
        "collect", "determinize", "marks", "paths", "product", "rewrite", "step", "walk", "write",
    ),
    "_numba_characters": ("partition", "regroup"),
    "_numba_logits": ("exponentials", "nucleus", "operate", "reaching"),
}  # fmt: skip
_SOURCES: Final = tuple(Path(__file__).with_name(f"{name}.py") for name in ("_numba_shared", *_FUNCTIONS))
#: The module that one process compiles while a second process compiles the other modules in about the same time.
_FIRST: Final = "_numba_loops"
#: Seconds after which the lock of a process that compiles is taken for left over.
_LEFT_OVER: Final = 900.0
_TOLD: Final = (
    "logitloom: compiled kernels are made in a process beside this one, once per installation; until then NumPy does "
    "their work. `logitloom kernels compile` makes them beforehand."
)


class NumbaKernels:
    """The compiled functions.

    Raises:
        KernelsNotReady: they are not loaded. A thread loads the kernels from disk; missing kernels are compiled in a
            separate process before, and then looked for again.
        BackendUnsupported: ``NUMBA_DISABLE_JIT`` is set, or a compiled function gives a wrong result.
    """

    def __init__(self) -> None:
        _refuse_disabled()
        modules = _imported()
        if modules is None:
            _load_beside()
            raise KernelsNotReady("The kernels of Numba are being loaded.")
        for loops, names in zip(modules, _FUNCTIONS.values(), strict=True):
            for name in names:
                setattr(self, name, getattr(loops, name))

    @staticmethod
    def compile() -> str:
        """Compile the missing kernels, in this process and a second process at the same time.

        Returns:
            A sentence about where the compiled code is.

        Raises:
            BackendUnsupported: as for the constructor, or Numba finds no folder that it can write to.
        """
        _refuse_disabled()
        try:
            with _compiling_beside():
                importlib.import_module(f"{__package__}.{_FIRST}")
            loops = _loaded()[0]
        except RuntimeError as error:
            raise BackendUnsupported(
                f"Numba cannot keep what it compiles: {error}. Set NUMBA_CACHE_DIR to a folder that can be written to."
            ) from error
        folder = Path(loops.write.stats.cache_path)
        files = sorted(str(path) for source in _SOURCES for path in folder.glob(f"{source.stem}.*.nb?"))
        _write_note(files)
        look_for_kernels_again()
        return f"numba: {len(files)} files of compiled code are in {folder}."


@contextlib.contextmanager
def _compiling_beside() -> Iterator[None]:
    """Import all modules but the first in another process. Modules that fail there are compiled in this one later."""
    others = ", ".join(f"{__package__}.{name}" for name in _FUNCTIONS if name != _FIRST)
    command, nothing, process = [sys.executable, "-c", f"import {others}"], subprocess.DEVNULL, None
    with contextlib.suppress(OSError):
        process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)
    try:
        yield
    finally:
        if process is not None:
            process.wait()


def _refuse_disabled() -> None:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        raise BackendUnsupported(
            "Numba compiles nothing here (NUMBA_DISABLE_JIT is set), and these functions work compiled only."
        )


_ending = False
#: The modules of compiled functions, once all are imported and work.
_modules: list[Any] = []


def _imported() -> list[Any] | None:
    """The modules of compiled functions if all are loaded; nothing is loaded for this answer."""
    return _modules if len(_modules) == len(_FUNCTIONS) else None


def _loaded() -> list[Any]:
    """The modules of compiled functions. The import of these modules compiles the kernels that are not on disk."""
    for name in _FUNCTIONS:
        with importing():
            if _ending:
                raise ImportError("The interpreter ends.")
            module = importlib.import_module(f"logitloom_plugins.kernels.{name}")
            if not _modules and not module.works():
                raise BackendUnsupported("What Numba compiled gives a wrong result. Reinstall numba and llvmlite.")
            if module not in _modules:
                _modules.append(module)
    return _modules


@atexit.register
def _end() -> None:
    global _ending
    _ending = True
    with importing():
        pass


# -- the note of what is on disk --------------------------------------------------------------------------


def _folders() -> list[Path]:
    """The folders of the note: Numba's folder if one is set, else beside the source and in the user's cache folder."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return [Path(given)]
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".cache"
    return [_SOURCES[0].parent / "__pycache__", Path(base) / "logitloom"]


def _key() -> str:
    """A hash of all that compiled code depends on."""
    found = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES))
    versions = [metadata.version(name) for name in ("numba", "llvmlite", "numpy")]
    settings = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NUMBA_")]
    found.update(repr((versions, sys.version, platform.machine(), _processor(), settings)).encode())
    return found.hexdigest()


def _processor() -> str:
    """The model and the instruction sets of the processor, as far as the system tells without a process of its own."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def _on_disk() -> bool:
    """Whether there is a note for this source, these versions and this CPU, and all files that the note lists exist."""
    key = _key()
    for folder in _folders():
        try:
            note = json.loads((folder / "logitloom-kernels.json").read_text(encoding="utf-8"))
            files = note["files"] if note["key"] == key else []
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if files and all(os.path.exists(file) for file in files):
            return True
    return False


def _write_note(files: list[str]) -> None:
    """Write the note to the first writable folder; without a note, each process looks for the compiled code itself."""
    text = json.dumps({"key": _key(), "files": files})
    for folder in _folders():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / "logitloom-kernels.json", text.encode())
            return


# -- loading in a thread, compiling in a process beside ----------------------------------------------------------------

_watching: threading.Thread | None = None


def _load_beside() -> None:
    """Load the kernels in one thread. Missing kernels are first compiled, by the process that holds a lock; afterwards
    the kernels are looked for again.
    """
    global _watching
    if _watching is None or not _watching.is_alive():
        _watching = threading.Thread(target=_watch, name="logitloom kernels", daemon=True)
        _watching.start()


def _watch() -> None:
    if not _on_disk():
        _have_them_compiled()
    if _on_disk():
        try:
            _loaded()
        except (LogitloomError, ImportError) as error:
            if not _ending:
                _go_on_without(str(error))
            return
        look_for_kernels_again()


def _have_them_compiled() -> None:
    try:
        lock = _lock()
    except FileExistsError:
        _wait_for_another()
    except OSError as error:
        _go_on_without(f"No folder can be written to: {error}")
    else:
        print(_TOLD, file=sys.stderr, flush=True)
        try:
            failure = _compile_in_child()
        finally:
            with contextlib.suppress(OSError):
                lock.unlink(missing_ok=True)
        if failure is not None:
            _go_on_without(failure)


def _go_on_without(reason: str) -> None:
    warn(f"Going on with NumPy, without compiled kernels. {reason:.300}")


def _compile_in_child() -> str | None:
    """Run ``logitloom kernels compile``; why it failed."""
    command = [sys.executable, "-m", "logitloom", "kernels", "compile", "numba"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
    except OSError as error:
        return f"No process can be started: {error}"
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"The process ended with exit code {done.returncode}."])[-1]


def _lock() -> Path:
    """Make a lock file in the first folder that can be written to.

    Raises:
        FileExistsError: another process holds the lock.
        OSError: no folder can be written to.
    """
    problem = OSError("there is none")
    for folder in _folders():
        path = folder / "logitloom-kernels.lock"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if path.exists() and time.time() - path.stat().st_mtime > _LEFT_OVER:
                path.unlink(missing_ok=True)
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            raise
        except OSError as error:
            problem = error
    raise problem


def _wait_for_another() -> None:
    """Until another process has compiled the kernels, or its lock is too old."""
    end = time.monotonic() + _LEFT_OVER
    while time.monotonic() < end and not _on_disk():
        time.sleep(1.0)
