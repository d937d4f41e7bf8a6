from __future__ import annotations

import subprocess
import sys

import pytest

from logitloom_plugins.tokenizers._origin import comes_from
from logitloom_plugins.tokenizers.gguf import GGUFReader
from logitloom_plugins.tokenizers.huggingface import HuggingFaceReader
from logitloom_plugins.tokenizers.mistral import MistralReader
from logitloom_plugins.tokenizers.sentencepiece import SentencePieceReader
from logitloom_plugins.tokenizers.tiktoken import TiktokenReader

READERS = [GGUFReader, HuggingFaceReader, MistralReader, SentencePieceReader, TiktokenReader]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("thing", [None, 3, "tokenizer.json", b"model.gguf", {}, [b"a"], object(), print, int])
def test_a_reader_leaves_foreign_objects_to_others(reader: type, thing: object) -> None:
    assert reader().vocabulary(thing) is None


def test_asking_imports_no_tokenizer_library() -> None:
    names = ["gguf", "huggingface", "mistral", "sentencepiece", "tiktoken"]
    program = "\n".join(
        [
            "import sys",
            *(f"import logitloom_plugins.tokenizers.{name} as {name}" for name in names),
            *(
                f"assert {name}.{r.__name__}().vocabulary(object()) is None"
                for name, r in zip(names, READERS, strict=True)
            ),
            "libraries = 'gguf mistral_common sentencepiece tiktoken tokenizers transformers torch'",
            "print([name for name in libraries.split() if name in sys.modules])",
        ]
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_subclass_from_elsewhere_still_comes_from_its_library() -> None:
    class Mine(dict[str, int]):
        pass

    assert comes_from(Mine(), "builtins", "dict")
    assert not comes_from(Mine(), "builtins", "list")
    assert not comes_from(Mine(), "tokenizers")
