"""Reads the vocabulary in the metadata of GGUF model files."""

from __future__ import annotations

import mmap
import os
import struct
from typing import Any

from logitloom import Vocabulary
from logitloom.errors import VocabularyError
from logitloom_plugins.tokenizers._origin import comes_from
from logitloom_plugins.tokenizers._token_text import SPACE_MARK, byte_fallback, byte_level

__all__ = ["GGUFReader"]

# struct codes of the scalar value types of the format
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6

_MODEL = "tokenizer.ggml.model"
_TOKENS = "tokenizer.ggml.tokens"
_TYPES = "tokenizer.ggml.token_type"
_ENDS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")


class GGUFReader:
    """Turns a GGUF file into a vocabulary, from its metadata alone.

    Takes the path of a ``.gguf`` file (of the first file, where a model is split), read here without any
    library, or an opened ``gguf.GGUFReader``. Understands byte-level BPE (``tokenizer.ggml.model`` is
    ``gpt2``) and SentencePiece (``llama``, ``t5``). The end-of-sequence, end-of-turn and end-of-message ids
    of the file are the ids that end a sequence. Control, unknown and unused tokens (padding of the model's
    vocabulary) are special.

    SentencePiece drops the space of the first piece of a text. The table holds what a piece adds in the
    middle of a text: ``▁the`` is ``b" the"``.
    """

    def vocabulary(self, tokenizer: Any) -> Vocabulary | None:
        """Read a file.

        Args:
            tokenizer: any object.

        Returns:
            The vocabulary, or None if the object is neither the path of a GGUF file nor an opened one.

        Raises:
            VocabularyError: if the file is missing, damaged, without a vocabulary, or if its kind of
                tokenizer is not known here.
        """
        if comes_from(tokenizer, "gguf", "GGUFReader"):
            return _vocabulary(_metadata(memoryview(tokenizer.data), "The opened GGUF file"), "GGUF file")
        if not isinstance(tokenizer, (str, os.PathLike)):
            return None
        path = os.fspath(tokenizer)
        if isinstance(path, bytes) or not path.lower().endswith(".gguf"):
            return None
        try:
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                fields = _metadata(content, path)
        except (OSError, ValueError) as error:
            if isinstance(error, VocabularyError):
                raise
            raise VocabularyError(
                f"{path} could not be read as a GGUF file: {error}. Give a whole GGUF file."
            ) from error
        return _vocabulary(fields, os.path.basename(path))


def _vocabulary(fields: dict[str, Any], name: str) -> Vocabulary:
    """The table that a file's tokenizer fields describe."""
    model = fields.get(_MODEL, b"").decode()
    texts: list[bytes] = fields.get(_TOKENS, [])
    if not texts:
        raise VocabularyError(
            f"{name}: the file has no {_TOKENS!r}, so it says nothing about its tokens. Give the tokenizer "
            f"of the model instead of the file."
        )
    types: tuple[int, ...] = fields.get(_TYPES, ())
    if len(types) != len(texts):
        raise VocabularyError(
            f"{name}: {_TYPES!r} has {len(types)} entries for {len(texts)} tokens, so text and control "
            f"tokens cannot be told apart. Convert the model again with a current converter."
        )
    if model == "gpt2":
        # User-defined tokens are not written in the byte alphabet.
        try:
            table = byte_level([text.decode() for text in texts])
        except UnicodeDecodeError as error:
            raise VocabularyError(
                f"{name}: the token {error.object!r} is not written in UTF-8, so the file is damaged. "
                f"Convert the model again."
            ) from error
        table = [text if kind == _USER_DEFINED else data for text, data, kind in zip(texts, table, types, strict=True)]
    elif model in ("llama", "t5"):
        mark = SPACE_MARK.encode()
        table = [text.replace(mark, b" ") for text in texts]
        for i, kind in enumerate(types):
            if kind == _BYTE:
                byte = byte_fallback(texts[i].decode("utf-8", "replace"))
                if byte is None:
                    raise VocabularyError(
                        f"{name}: token {i} is declared to be a byte but is written {texts[i]!r}, not like "
                        f"'<0x0A>'. The file is damaged; convert the model again."
                    )
                table[i] = byte
    else:
        raise VocabularyError(
            f"{name}: the tokenizer is of the kind {model!r}; exact token bytes are known for 'gpt2', "
            f"'llama' and 't5' only. Give the model's own tokenizer object instead of the file."
        )
    special = [i for i, kind in enumerate(types) if kind in (_UNKNOWN, _CONTROL, _UNUSED)]
    # Converters write -1 (4294967295 when read unsigned) for an id that a model does not have.
    ends = [fields[key] for key in _ENDS if key in fields and fields[key] not in (-1, 2**32 - 1)]
    return Vocabulary(
        table,
        eos=ends,
        special=special,
        special_text={i: texts[i].decode("utf-8", "replace") for i in sorted({*special, *ends}) if i < len(texts)},
        name=name,
    )


def _metadata(content: mmap.mmap | memoryview, name: str) -> dict[str, Any]:
    """The tokenizer fields of a GGUF file, strings as bytes; other arrays are stepped over."""
    if bytes(content[:4]) != b"GGUF":
        raise VocabularyError(
            f"{name} does not begin with the letters GGUF, so it is no GGUF file. Give the path of one."
        )
    try:
        # The version is a small number; read in the wrong byte order its low half is zero.
        order = "<" if struct.unpack_from("<I", content, 4)[0] & 0xFFFF else ">"
        version, _, count = struct.unpack_from(f"{order}IQQ", content, 4)
        if version not in (2, 3):
            raise VocabularyError(
                f"{name} is written in version {version} of the GGUF format; versions 2 and 3 can be read. "
                f"Convert the model again with a current converter."
            )
        wanted = {_MODEL, _TOKENS, _TYPES, *_ENDS}
        fields: dict[str, Any] = {}
        offset = 24
        for _ in range(count):
            key, offset = _value(content, offset, order, _STRING, True)
            (kind,) = struct.unpack_from(f"{order}I", content, offset)
            keep = key.decode("utf-8", "replace") in wanted
            value, offset = _value(content, offset + 4, order, kind, keep)
            if keep:
                fields[key.decode()] = value
    except (struct.error, KeyError, OverflowError) as error:
        raise VocabularyError(
            f"{name} is damaged: its metadata cannot be read to the end ({error}). Download it again."
        ) from error
    return fields


def _value(content: mmap.mmap | memoryview, offset: int, order: str, kind: int, keep: bool) -> tuple[Any, int]:
    """One value and the offset behind it; None instead of the value if ``keep`` is false."""
    if kind == _STRING:
        (length,) = struct.unpack_from(f"{order}Q", content, offset)
        end = offset + 8 + length
        if end > len(content):
            raise struct.error(f"a text at byte {offset} claims {length} bytes")
        return (bytes(content[offset + 8 : end]) if keep else None), end
    if kind != _ARRAY:
        code = order + _SCALARS[kind]
        return struct.unpack_from(code, content, offset)[0], offset + struct.calcsize(code)
    item, count = struct.unpack_from(f"{order}IQ", content, offset)
    offset += 12
    if item in _SCALARS:
        end = offset + count * struct.calcsize(order + _SCALARS[item])
        if end > len(content):
            raise struct.error(f"an array at byte {offset} claims {count} numbers")
        return (struct.unpack_from(f"{order}{count}{_SCALARS[item]}", content, offset) if keep else None), end
    if item != _STRING:
        values = []
        for _ in range(count):
            value, offset = _value(content, offset, order, item, keep)
            values.append(value)
        return values, offset
    # Vocabularies and merges are hundreds of thousands of texts, so this loop does nothing else.
    length_at, size, texts = struct.Struct(f"{order}Q").unpack_from, len(content), []
    for _ in range(count):
        begin = offset + 8
        offset = begin + length_at(content, offset)[0]
        if keep:
            texts.append(bytes(content[begin:offset]))
    if offset > size:
        raise struct.error(f"a list of texts ends at byte {offset}, the file at {size}")
    return texts, offset
