"""The folder in which the processes of one vLLM server keep their compiled results.

The first process, which starts the other processes, makes the folder, which only its user can read. The other processes
find the folder's name in the environment.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["VARIABLE", "offer_shared_folder", "shared_folder"]

VARIABLE: Final = "LOGITLOOM_VLLM_SHARED"


def offer_shared_folder() -> None:
    """Make the folder, unless a parent process has made it; the folder is removed at the end of this process."""
    if VARIABLE in os.environ:
        return
    try:
        folder = tempfile.mkdtemp(prefix="logitloom-vllm-")
    except OSError:  # no place for temporary files: each process compiles for itself
        folder = ""
    os.environ[VARIABLE] = folder
    if folder:
        atexit.register(_remove, folder, os.getpid())


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not a child that was forked
        shutil.rmtree(folder, ignore_errors=True)


def shared_folder(environment: Mapping[str, str]) -> Path | None:
    """The folder that an environment names, if the folder exists and belongs to this user alone."""
    named = environment.get(VARIABLE)
    if not named:
        return None
    folder = Path(named)
    try:
        status = folder.stat()
    except OSError:
        return None
    mine = not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)
    return folder if folder.is_dir() and mine else None
