"""What the last character of a text lacks, token by token."""

from __future__ import annotations

import pytest

from logitloom.vocabulary import Vocabulary
from logitloom_plugins.combinators import characters
from logitloom_plugins.combinators.characters import missing_after, missing_by_token

TEXTS = [b"", *[bytes([byte]) for byte in range(256)], b"a\xc3", b"\xc3\xa9", b"\xa9\xe6\x97", b"\xf0\x9f\x98", b"\xff"]
TEXTS += [b"abcd\xf0\x9f\x98", "日本語".encode(), "日本語".encode()[:-1], b"\x80" * 3, b"\x80" * 7, b"long text"]


def test_tokens_leave_what_their_bytes_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def noted(missing: int, data: bytes) -> int:
        asked.append(data)
        return missing_after(missing, data)

    monkeypatch.setattr(characters, "missing_after", noted)
    # Another end of sequence than that of any other vocabulary, so that nothing is remembered of it.
    found = missing_by_token(Vocabulary([*TEXTS, b""], eos=[len(TEXTS)]))
    assert len(asked) == 256, "each byte is asked about once"
    for token, text in enumerate(TEXTS):
        assert found[:, token].tolist() == [missing_after(missing, text) for missing in range(4)]
