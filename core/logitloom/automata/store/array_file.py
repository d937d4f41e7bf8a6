"""Files of named arrays with a checksum. Reading unpickles and decompresses nothing; a damaged file gives ``None``."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["checked", "packed", "unpacked", "with_checksum", "within"]

_DIGEST: Final = 32


def with_checksum(format: bytes, payload: bytes) -> bytes:
    """The bytes of a file: the format, the checksum of the payload, and the payload.

    Example:
        >>> content = with_checksum(b"kind 1", b"payload")
        >>> checked(b"kind 1", content), checked(b"kind 2", content), checked(b"kind 1", content[:-1])
        (b'payload', None, None)
    """
    return format + hashlib.blake2b(payload, digest_size=_DIGEST).digest() + payload


def checked(format: bytes, content: bytes) -> bytes | None:
    """The payload of a file; ``None`` if it is damaged, or of another kind."""
    head = len(format) + _DIGEST
    payload = content[head:]
    whole = content[:head] == format + hashlib.blake2b(payload, digest_size=_DIGEST).digest()
    return payload if whole else None


def packed(format: bytes, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a file.

    Args:
        format: the first bytes of every file of this kind.
        arrays: the arrays by name.

    Example:
        >>> content = packed(b"kind 1", {"a": np.arange(3)})
        >>> unpacked(b"kind 1", content, {"a": (np.int64, 1)})["a"].tolist(), unpacked(b"kind 2", content, {})
        ([0, 1, 2], None)
    """
    buffer = io.BytesIO()
    entries: dict[str, Any] = dict(arrays)
    np.savez(buffer, **entries)
    return with_checksum(format, buffer.getvalue())


def unpacked(
    format: bytes, content: bytes, expected: Mapping[str, tuple[type[np.generic], int]]
) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file by name; ``None`` if the file is damaged, or of another kind.

    Args:
        format: the bytes that the file must begin with.
        content: the bytes of the file.
        expected: the dtype and the number of axes of each array, by name.
    """
    payload = checked(format, content)
    if payload is None:
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
    """Whether an array is not empty and ``low <= entry < end`` holds for all its entries."""
    return array.size > 0 and bool(low <= array.min()) and bool(array.max() < end)
