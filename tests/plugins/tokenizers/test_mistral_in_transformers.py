"""The tokenizer of mistral-common inside transformers; a module of its own, so that two of them are never in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from logitloom_plugins.tokenizers.huggingface import HuggingFaceReader
from logitloom_plugins.tokenizers.mistral import MistralReader
from tests.core.automata.vocabularies import tekken

pytest.importorskip("mistral_common", reason="needs mistral-common")
pytest.importorskip("transformers", reason="needs transformers")
from transformers.tokenization_mistral_common import MistralCommonBackend

pytestmark = pytest.mark.extras


def test_it_is_read_by_the_reader_of_mistral_common_only(mistral_data: Path) -> None:
    tokenizer = MistralCommonBackend(mistral_data / "tekken_240911.json")
    assert HuggingFaceReader().vocabulary(tokenizer) is None
    found = MistralReader().vocabulary(tokenizer)
    assert found is not None
    assert found.fingerprint == tekken().fingerprint
