"""Files of named arrays behind a checksum: nothing is unpickled or inflated, and what is damaged is no file."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["packed", "unpacked", "within"]

_DIGEST: Final = 32


def packed(format: bytes, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a file.

    Args:
        format: what a file of this kind begins with.
        arrays: by name.

    Example:
        >>> content = packed(b"kind 1", {"a": np.arange(3)})
        >>> unpacked(b"kind 1", content, {"a": (np.int64, 1)})["a"].tolist(), unpacked(b"kind 2", content, {})
        ([0, 1, 2], None)
    """
    buffer = io.BytesIO()
    entries: dict[str, Any] = dict(arrays)
    np.savez(buffer, **entries)
    payload = buffer.getvalue()
    return format + hashlib.blake2b(payload, digest_size=_DIGEST).digest() + payload


def unpacked(
    format: bytes, content: bytes, expected: Mapping[str, tuple[type[np.generic], int]]
) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file by name; ``None`` if it is damaged, or of another kind.

    Args:
        format: what it must begin with.
        content: of the file.
        expected: name -> type and number of axes.
    """
    head = len(format) + _DIGEST
    payload = content[head:]
    if content[:head] != format + hashlib.blake2b(payload, digest_size=_DIGEST).digest():
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(payload)) as members:
            if any(member.compress_type != zipfile.ZIP_STORED for member in members.infolist()):
                return None
        with np.load(io.BytesIO(payload), allow_pickle=False) as stored:
            found = {name: stored[name] for name in expected}
    except (KeyError, ValueError, EOFError, OSError, MemoryError, OverflowError, NotImplementedError, RuntimeError):
        return None
    except (zipfile.BadZipFile, zlib.error):
        return None
    for name, (kind, axes) in expected.items():
        array = found[name]
        if not isinstance(array, np.ndarray) or array.dtype != kind or array.ndim != axes:
            return None
    return found


def within(array: NDArray[Any], low: int, end: int) -> bool:
    """Whether an array has entries, and all of them lie in ``low <= entry < end``."""
    return array.size > 0 and bool(low <= array.min()) and bool(array.max() < end)
