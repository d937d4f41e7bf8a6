"""Texts inside the real vLLM, compared with those of logitloom's own loop on the same weights, in float32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import pytest

from logitloom import Chain, Vocabulary, read_vocabulary
from logitloom.errors import LogitloomError
from logitloom.testing.engine_texts import Answer
from tests.contrib.engines.text_differences import VllmTexts
from tests.contrib.engines.vllm.smollm2_folder import missing_packages
from tests.contrib.engines.vllm.tiny_folder import write_tiny_folder

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.extras]


class Served(NamedTuple):
    """An engine in this process, its tokenizer's vocabulary, and the same weights in transformers."""

    engine: Any
    vocabulary: Vocabulary
    model: Any


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if missing_packages():
        pytest.skip(f"not installed: {', '.join(missing_packages())}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("LOGITLOOM_VLLM_SECONDS", "20")  # test machines may be busy
        import torch
        from transformers import AutoModelForCausalLM
        from vllm import LLM

        folder = write_tiny_folder(tmp_path_factory.mktemp("tiny"))
        llm = LLM(
            model=str(folder), enforce_eager=True, max_model_len=128, max_num_seqs=4, dtype="float32",
            seed=0, disable_log_stats=True, enable_prefix_caching=False,
        )  # fmt: skip
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        yield Served(llm, read_vocabulary(llm.get_tokenizer()), model)


class TestVllmTexts(VllmTexts):
    @pytest.fixture(autouse=True)
    def _served(self, served: Served) -> None:
        self.served = served

    @property
    def vocabulary(self) -> Vocabulary:
        return self.served.vocabulary

    @cached_property
    def adapter(self) -> Any:
        from logitloom_contrib.engines.transformers import TransformersModel

        return TransformersModel(self.served.model)

    def model(self) -> Any:
        return self.adapter

    def answer(self, chain: Chain, prompt: Sequence[int], max_tokens: int) -> Answer:
        from vllm import SamplingParams

        from logitloom_contrib.engines.vllm import to_vllm

        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, extra_args=to_vllm(chain))
        try:
            [done] = self.served.engine.generate({"prompt_token_ids": list(prompt)}, params, use_tqdm=False)
        except Exception as refused:
            if isinstance(refused.__cause__, LogitloomError):
                raise refused.__cause__ from refused
            raise
        [output] = done.outputs
        finish = {"stop": "stop" if isinstance(output.stop_reason, str) else "eos", "length": "length"}
        return Answer(output.text, finish[output.finish_reason])
