"""Files that are written whole or not at all: a temporary file in the same folder replaces the old file."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logitloom.errors import WriteError

__all__ = ["replacing", "write_whole"]


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file in the same folder, which replaces the file at a path when the block ends. After an error the path is
    as it was.

    Args:
        path: where the file belongs. A link stays a link, and a file keeps its permissions. A path that is no ordinary
            file (a pipe, a device) is written to directly.

    Yields:
        The path to write to.

    Raises:
        WriteError: the file cannot be written (no space, no permission, no such folder).

    Example:
        >>> import tempfile
        >>> page = Path(tempfile.mkdtemp()) / "page.html"
        >>> with replacing(page) as new:
        ...     _ = new.write_text("whole")
        >>> page.read_text(), len(list(page.parent.iterdir()))
        ('whole', 1)
    """
    try:
        if "\0" in os.fspath(path):
            raise OSError(errno.EINVAL, "a path has no null character")
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file() and not target.is_dir():
            yield target
            return
        new = target.with_name(f".{target.name[:100]}.{os.getpid()}.{uuid.uuid4().hex}")
        try:
            yield new
            with contextlib.suppress(FileNotFoundError):
                shutil.copymode(target, new)
            with open(new, "rb+") as written:
                os.fsync(written.fileno())
            os.replace(new, target)
        finally:
            new.unlink(missing_ok=True)
    except WriteError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise WriteError(f"The file {os.fspath(path)!r:.200} cannot be written: {reason}. It is as it was.") from error


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a whole file; if writing fails, the old file stays as it was.

    Raises:
        WriteError: as :func:`replacing`.
    """
    with replacing(path) as new:
        new.write_bytes(content)
