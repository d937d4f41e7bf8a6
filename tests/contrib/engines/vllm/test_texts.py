"""Texts inside the real vLLM, compared with those of logitloom's own loop on the same weights, in float32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logitloom import Chain, Vocabulary, processors, read_vocabulary
from logitloom.errors import LogitloomError
from logitloom.generation import Generator, Sampled, heal
from logitloom_plugins.engine_texts import Answer
from tests.contrib.engines.conftest import documented
from tests.contrib.engines.text_differences import VllmTexts
from tests.contrib.engines.vllm.smollm2_folder import missing_packages
from tests.contrib.engines.vllm.tiny_folder import write_tiny_folder

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.extras]


class Served(NamedTuple):
    """An engine in this process, its tokenizer's vocabulary, the same weights in transformers, and its records."""

    engine: Any
    vocabulary: Vocabulary
    model: Any
    records: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if missing_packages():
        pytest.skip(f"not installed: {', '.join(missing_packages())}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("LOGITLOOM_SERVER_ALLOW", "+heal")
        patch.setenv("LOGITLOOM_SERVER_SECONDS", "20")  # test machines may be busy
        patch.setenv("LOGITLOOM_SERVER_ENGINE_SECONDS", "20")
        records = tmp_path_factory.mktemp("records")
        patch.setenv("LOGITLOOM_SERVER_RECORD", str(records))
        import torch
        from transformers import AutoModelForCausalLM
        from vllm import LLM

        folder = write_tiny_folder(tmp_path_factory.mktemp("tiny"))
        llm = LLM(
            model=str(folder), enforce_eager=True, max_model_len=128, max_num_seqs=4, dtype="float32",
            seed=0, disable_log_stats=True, enable_prefix_caching=False,
        )  # fmt: skip
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        yield Served(llm, read_vocabulary(llm.get_tokenizer()), model, records)


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

    def answer(self, chain: Chain, prompt: Sequence[int], max_tokens: int, record: str | None = None) -> Answer:
        from vllm import SamplingParams

        from logitloom_contrib.engines.vllm import to_vllm

        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, extra_args=to_vllm(chain, record=record))
        try:
            [done] = self.served.engine.generate({"prompt_token_ids": list(prompt)}, params, use_tqdm=False)
        except Exception as refused:
            if isinstance(refused.__cause__, LogitloomError):
                raise refused.__cause__ from refused
            raise
        [output] = done.outputs
        finish = {"stop": "stop" if isinstance(output.stop_reason, str) else "eos", "length": "length"}
        return Answer(output.text, finish[output.finish_reason])

    def recorded(
        self, chain: Chain, prompt: Sequence[int], max_tokens: int, tokens: Sequence[int]
    ) -> Sequence[Sampled | None]:
        from logitloom_contrib.engines.vllm import read_record

        name = f"text-{len(list(self.served.records.iterdir()))}"
        self.answer(chain, prompt, max_tokens, record=name)
        # In one process the engine takes no further step, in which it would let go of the request, by itself.
        self.answer(chain, prompt, max_tokens)
        found = read_record(self.served.records, name)
        assert [each and each.token for each in found] == list(tokens)
        return found


def test_the_documented_record_is_written(served: Served) -> None:
    from vllm import SamplingParams

    chain = processors.load(("regex", {"pattern": "[a-z]{4}"}))
    scope: dict[str, Any] = {
        "llm": served.engine,
        "SamplingParams": SamplingParams,
        "chain": chain,
        "folder": served.records,
    }
    before, read, after = documented("engines/vllm.md", __file__).partition("sampled = read_record")
    exec(before, scope)
    # In one process the engine takes no further step by itself.
    served.engine.generate("a", SamplingParams(max_tokens=1), use_tqdm=False)
    exec(read + after, scope)
    tokens = list(scope["answer"].outputs[0].token_ids)
    assert [each.token for each in scope["sampled"]] == tokens
    assert all(each.kept < served.vocabulary.size for each in scope["sampled"])


@pytest.mark.parametrize("text", ["a r", "the blu", "12 ", "z1"])
def test_a_healed_prompt_is_continued_as_in_the_own_loop(served: Served, text: str) -> None:
    from vllm import SamplingParams

    from logitloom_contrib.engines.transformers import TransformersModel
    from logitloom_contrib.engines.vllm import to_vllm

    chain = processors.load(("regex", {"pattern": "[a-z]{1,4}( [0-9]+)?"}), tokenizer=served.vocabulary)
    prompt = list(served.engine.get_tokenizer().encode(text, add_special_tokens=False))
    [ours] = Generator(TransformersModel(served.model), chain, max_tokens=8, heal=True)([prompt])
    healed = heal(chain, [prompt])
    assert healed.removed[0]
    params = SamplingParams(temperature=0.0, max_tokens=8, extra_args=to_vllm(healed.chain))
    [done] = served.engine.generate({"prompt_token_ids": healed.prompts[0]}, params, use_tqdm=False)
    assert done.outputs[0].text == healed.texts[0].decode() + (ours.text or "")
