"""The container format of GGUF files: metadata, and tensors dequantised to float32 on demand."""

from __future__ import annotations

import math
import mmap
import os
import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary, read_vocabulary
from logitloom.errors import ModelError
from logitloom_plugins.gguf_values import STRING, read_value

__all__ = ["GGUFFile", "file_vocabulary"]

_DEFAULT_ALIGNMENT = 32
_ROWS_AS_ONE = 8


class TensorInfo(NamedTuple):
    """Where a tensor lies in the file.

    Attributes:
        shape: slowest axis first (the file writes the fastest first).
        kind: number of its quantisation type.
        offset: bytes from the beginning of the tensor data.
    """

    shape: tuple[int, ...]
    kind: int
    offset: int


class GGUFFile:
    """A GGUF file, version 2 or 3, mapped into memory.

    The header is parsed here rather than by ``gguf.GGUFReader``, which makes an array of every string of the
    vocabulary and thereby takes seconds; tensors are dequantised by ``gguf.quants``.

    Args:
        path: the file.

    Raises:
        ModelError: if there is no such file, or if it is no complete little-endian GGUF file.

    References:
        The GGUF specification, ggml project, ``docs/gguf.md``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise ModelError(f"A model file is given by its path, but this is a {type(path).__name__}.")
        self.path = os.fspath(path)
        try:
            with open(self.path, "rb") as file:
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise ModelError(f"There is no model file {self.path!r}. Give the path of a GGUF file.") from error
        except (OSError, ValueError) as error:
            raise ModelError(
                f"The model file {self.path!r} cannot be read: {error}. Give a whole GGUF file."
            ) from error
        self._content = np.frombuffer(self._mapped, dtype=np.uint8)
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        try:
            self._parse(self._content.data)
        except (struct.error, KeyError, UnicodeDecodeError, OverflowError) as error:
            raise ModelError(
                f"The model file {self.path!r} is damaged: its header cannot be read to the end ({error}). "
                f"Download it again."
            ) from error

    def __repr__(self) -> str:
        return f"GGUFFile({self.path!r})"

    def tensor(self, name: str) -> NDArray[np.float32]:
        """A tensor, dequantised.

        Raises:
            ModelError: if the file lacks the tensor, ends before the tensor does, or stores it in a format that
                ``gguf.quants`` cannot dequantise.
        """
        quants, types, sizes = _gguf_library()
        info = self.tensors.get(name)
        if info is None:
            raise ModelError(f"The model file {self.path!r} has no tensor {name!r}, so it is incomplete. Take another.")
        try:
            kind = types(info.kind)
            block_size, block_bytes = sizes[kind]
        except (ValueError, KeyError) as error:
            raise ModelError(
                f"The model file {self.path!r} stores the tensor {name!r} in a quantisation of number {info.kind}, "
                f"which the installed package gguf does not know. Upgrade it: pip install -U gguf."
            ) from error
        size = math.prod(info.shape) // block_size * block_bytes
        begin = self._data_begin + info.offset
        if begin + size > len(self._content):
            raise ModelError(
                f"The model file {self.path!r} ends before its tensor {name!r} does; it was probably not "
                f"downloaded to the end. Download it again."
            )
        # Rows are whole numbers of blocks, and gguf dequantises sixteen at a time: longer rows, fewer steps.
        rows = math.prod(info.shape[:-1])
        stored = self._content[begin : begin + size].reshape(rows // math.gcd(rows, _ROWS_AS_ONE), -1)
        try:
            values = quants.dequantize(stored, kind)
        except NotImplementedError as error:
            raise ModelError(
                f"The model file {self.path!r} stores the tensor {name!r} as {kind.name}, which the package gguf "
                f"cannot dequantise. Take the same model in another quantisation."
            ) from error
        # What is stored as float32 would be a read-only view of the file: it is copied.
        floats: NDArray[np.float32] = np.require(values, dtype=np.float32, requirements=["C", "W"]).reshape(info.shape)
        # The pages of the file that were read would count as memory of the process until the file is dropped.
        if hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)
        return floats

    def _parse(self, content: memoryview) -> None:
        if bytes(content[:4]) != b"GGUF":
            raise ModelError(
                f"{self.path!r} does not begin with the letters GGUF, so it is no GGUF file. Give the path of one."
            )
        version, tensors, fields = struct.unpack_from("<IQQ", content, 4)
        if version not in (2, 3):
            raise ModelError(
                f"The model file {self.path!r} is written in version {version} of the GGUF format, or not in "
                f"little-endian order; versions 2 and 3 can be read. Convert the model again."
            )
        offset = 24
        for _ in range(fields):
            key, offset = read_value(content, offset, "<", STRING, _text)
            (kind,) = struct.unpack_from("<I", content, offset)
            self.metadata[key], offset = read_value(content, offset + 4, "<", kind, _text)
        for _ in range(tensors):
            name, offset = read_value(content, offset, "<", STRING, _text)
            (axes,) = struct.unpack_from("<I", content, offset)
            *shape, kind, begin = struct.unpack_from(f"<{axes}QIQ", content, offset + 4)
            offset += 4 + 8 * axes + 12
            self.tensors[name] = TensorInfo(tuple(reversed(shape)), kind, begin)
        alignment = self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        self._data_begin = -(-offset // alignment) * alignment


def _gguf_library() -> tuple[Any, Any, Any]:
    try:
        import gguf
        from gguf import quants
    except ImportError as error:
        raise ModelError(
            "Dequantising a GGUF file needs the package gguf. Install it: pip install 'logitloom[demo]'."
        ) from error
    return quants, gguf.GGMLQuantizationType, gguf.GGML_QUANT_SIZES


def _text(content: bytes | memoryview) -> str:
    return str(content, "utf-8")


def file_vocabulary(path: str) -> Vocabulary:
    """The vocabulary in a GGUF file; the same object for a model and its tokenizer, as long as the file stays.

    Raises:
        VocabularyError: if the file is damaged, or no tokenizer reader knows its kind.
    """
    return _file_vocabulary(path, os.stat(path).st_mtime_ns)


@lru_cache(maxsize=4)
def _file_vocabulary(path: str, modified: int) -> Vocabulary:
    del modified
    return read_vocabulary(path)
