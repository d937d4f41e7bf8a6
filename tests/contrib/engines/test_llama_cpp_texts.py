"""Texts inside the real llama-cpp-python, compared with those of logitloom's own loop, in float32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pytest

from logitloom import Chain, Vocabulary, processors
from logitloom.generation import Generator, heal
from logitloom_plugins.engine_texts import Answer, chain_named
from tests.contrib.engines.conftest import VOCABULARY, encode
from tests.contrib.engines.text_differences import LlamaCppTexts
from tests.contrib.engines.tiny_gguf import write_tiny_gguf

llama_cpp = pytest.importorskip("llama_cpp", reason="the package llama-cpp-python is not installed")
pytest.importorskip("gguf", reason="the package gguf is not installed")

pytestmark = pytest.mark.extras


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    full = llama_cpp.GGML_TYPE_F32
    model = llama_cpp.Llama(
        str(path), n_threads=1, n_threads_batch=1, n_ctx=128, verbose=False, type_k=full, type_v=full
    )
    yield model
    model.close()


class TestLlamaCppTexts(LlamaCppTexts):
    vocabulary: Vocabulary = VOCABULARY  # type: ignore[assignment]

    @pytest.fixture(autouse=True)
    def _llama(self, llama: Any) -> Iterator[None]:
        self.llama = llama
        yield
        if "adapter" in vars(self):
            self.adapter.close()

    @cached_property
    def adapter(self) -> Any:
        from logitloom_contrib.engines.llama_cpp import LlamaCppModel

        return LlamaCppModel(self.llama, rows=4, cells=256)

    def model(self) -> Any:
        return self.adapter

    def answer(self, chain: Chain, prompt: Sequence[int], max_tokens: int) -> Answer:
        from logitloom_contrib.engines.llama_cpp import to_llama_cpp

        processor = to_llama_cpp(chain, self.llama)
        [choice] = processor.complete(list(prompt), max_tokens=max_tokens, temperature=0.0)["choices"]
        return Answer(choice["text"], choice["finish_reason"])


@pytest.mark.parametrize("echo", [False, True])
def test_a_stop_string_that_stays_ends_the_text_in_every_way_of_asking(llama: Any, echo: bool) -> None:
    from logitloom_contrib.engines.llama_cpp import to_llama_cpp

    chain = chain_named("stop: inside a token, kept", VOCABULARY)
    prompt, processor = "one1", to_llama_cpp(chain, llama)
    ways: dict[str, Any] = {"max_tokens": 8, "temperature": 0.0}
    [whole] = processor.complete(prompt, echo=echo, **ways)["choices"]
    pieces = processor.complete(prompt, stream=True, **ways)
    assert whole["text"] == "one1" * echo + "1"
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == "1"
    chat = processor.chat([{"role": "user", "content": ""}], **ways)["choices"][0]["message"]["content"]
    assert chat[-1] in "1o"
    assert not set(chat[:-1]) & set("1o")


@pytest.mark.parametrize("text", ["a r", "the blu", "12 ", "z1"])
def test_a_healed_prompt_is_continued_as_in_the_own_loop(llama: Any, text: str) -> None:
    from logitloom_contrib.engines.llama_cpp import LlamaCppModel, to_llama_cpp

    chain = processors.load(("regex", {"pattern": "[a-z]{1,4}( [0-9]+)?"}), tokenizer=VOCABULARY)
    prompt = encode(text)
    adapter = LlamaCppModel(llama, rows=4, cells=256)
    try:
        [ours] = Generator(adapter, chain, max_tokens=8, heal=True)([prompt])
    finally:
        adapter.close()
    healed = heal(chain, [prompt])
    assert healed.removed[0]
    processor = to_llama_cpp(healed.chain, llama)
    [choice] = processor.complete(healed.prompts[0], max_tokens=8, temperature=0.0)["choices"]
    assert choice["text"] == healed.texts[0].decode() + (ours.text or "")
