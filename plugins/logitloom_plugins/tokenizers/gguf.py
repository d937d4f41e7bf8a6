"""Reads the vocabulary in the metadata of GGUF model files."""

from __future__ import annotations

import mmap
import os
import struct
from typing import Any

from logitloom import Vocabulary
from logitloom.errors import VocabularyError
from logitloom_plugins.gguf_values import STRING, read_value
from logitloom_plugins.tokenizers._origin import comes_from
from logitloom_plugins.tokenizers._token_text import SPACE_MARK, byte_fallback, byte_level

__all__ = ["GGUFReader"]

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
    types: list[int] = fields.get(_TYPES, [])
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
    """The tokenizer fields of a GGUF file, strings as bytes; other strings and arrays are stepped over."""
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
            key, offset = read_value(content, offset, order, STRING, bytes)
            (kind,) = struct.unpack_from(f"{order}I", content, offset)
            keep = key.decode("utf-8", "replace") in wanted
            value, offset = read_value(content, offset + 4, order, kind, bytes if keep else None)
            if keep:
                fields[key.decode()] = value
    except (struct.error, KeyError, OverflowError) as error:
        raise VocabularyError(
            f"{name} is damaged: its metadata cannot be read to the end ({error}). Download it again."
        ) from error
    return fields
