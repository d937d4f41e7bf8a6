"""Chains in transformers' own continuous batching, on tiny random models."""

from __future__ import annotations

import re
from typing import Any

import pytest

from logitloom import processors
from logitloom.errors import NeedsNotMet
from tests.contrib.engines.conftest import EOS, PAD, PATTERNS, VOCABULARY, encode, tensor

torch = pytest.importorskip("torch", reason="transformers needs PyTorch")
transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
pytest.importorskip(
    "transformers.generation.continuous_batching.cb_logits_processors",
    reason="this release of transformers has no continuous batching with processors per request",
)

from transformers import GenerationConfig, LogitsProcessorList  # noqa: E402

from logitloom_contrib.engines.transformers import to_transformers  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.extras]

PROMPTS = ("hello there", "a dog 12", "z", "12 red birds", "hello there")


def chain_of(pattern: str) -> Any:
    return processors.load(("regex", {"pattern": pattern}), tokenizer=VOCABULARY)


def small(**more: Any) -> dict[str, Any]:
    """By default a batch takes most of the machine's memory, and a minute to do so."""
    return {
        "continuous_batching_config": transformers.ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=64, **more)
    }


def greedy(**more: Any) -> Any:
    return GenerationConfig(do_sample=False, eos_token_id=EOS, pad_token_id=PAD, max_new_tokens=24, **more)


@pytest.fixture
def model(tiny_transformers: Any) -> Any:
    """Continuous batching changes a model's attention, so it gets one of its own."""
    tiny = tiny_transformers()
    own = type(tiny)(tiny.config)
    own.load_state_dict(tiny.state_dict())
    own.generation_config = tiny.generation_config
    return own.eval()


@pytest.mark.parametrize("way", ["generate_batch", "paged"])
@pytest.mark.parametrize("listed", [False, True])
def test_a_continuous_batch_that_would_leave_the_chain_out_is_refused(model: Any, way: str, listed: bool) -> None:
    processor = to_transformers(chain_of(PATTERNS[0]), model)
    given = LogitsProcessorList([processor]) if listed else processor
    ids, config = encode("hello"), greedy()

    def paged() -> None:
        model.generate(tensor([ids]), logits_processor=given, cache_implementation="paged", generation_config=config)

    def batched() -> None:
        model.generate_batch([ids], generation_config=config, logits_processor=given, **small())

    with pytest.raises(NeedsNotMet, match="ignores logits_processor in continuous batches"):
        {"paged": paged, "generate_batch": batched}[way]()


def test_a_continuous_batch_without_a_chain_is_left_alone(model: Any) -> None:
    to_transformers(chain_of(PATTERNS[0]), model)
    out = model.generate_batch([encode("hello")], generation_config=greedy(), **small())
    assert len(out["req_0"].generated_tokens) > 0


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.long
def test_a_batch_gives_each_prompt_the_text_that_it_has_alone(model: Any, tiny_transformers: Any, pattern: str) -> None:
    processor = to_transformers(chain_of(pattern), model)
    found = processor.generate_batch([encode(prompt) for prompt in PROMPTS], generation_config=greedy(), **small())
    assert [output.error for output in found.values()] == [None] * len(PROMPTS)
    alone = to_transformers(chain_of(pattern), tiny_transformers())
    for prompt, output in zip(PROMPTS, found.values(), strict=True):
        text = VOCABULARY.decode(output.generated_tokens)
        assert re.fullmatch(pattern, text)
        ids = tensor([encode(prompt)])
        expected = tiny_transformers().generate(
            ids, attention_mask=torch.ones_like(ids), logits_processor=alone, generation_config=greedy()
        )
        assert output.generated_tokens == expected[0, ids.shape[1] :].tolist()


def test_sequences_of_one_prompt_are_rows_of_their_own(model: Any) -> None:
    processor = to_transformers(chain_of(PATTERNS[1]), model)
    config = GenerationConfig(
        do_sample=True, eos_token_id=EOS, pad_token_id=PAD, max_new_tokens=24, num_return_sequences=4
    )
    torch.manual_seed(3)
    found = processor.generate_batch([encode("a dog 12"), encode("z")], generation_config=config, **small())
    texts = [VOCABULARY.decode(output.generated_tokens) for output in found.values()]
    assert len(texts) == 8
    assert [text for text in texts if not re.fullmatch(PATTERNS[1], text)] == []
    assert len(set(texts)) > 1


def test_each_request_has_a_chain_of_its_own(model: Any) -> None:
    processor = to_transformers(chain_of(PATTERNS[0]), model)
    document = [{"use": "choice", "options": {"choices": ["red", "blue"]}}]
    with processor.continuous_batch(generation_config=greedy(), **small()) as manager:
        given: list[dict[str, Any]] = [
            {}, {"logitloom": chain_of(PATTERNS[1])}, {"logitloom": document}, {"logitloom": '[{"use": "nothing"}]'},
            {"logitloom": None}, {"logitloom": "a text"},
        ]  # fmt: skip
        names = [manager.add_request(encode("hello"), max_new_tokens=24, **more) for more in given]
        found: dict[str, Any] = {}
        while len(found) < len(names):
            result = manager.get_result(timeout=5)
            if result is not None and result.is_finished():
                found[result.request_id] = result
    texts = [VOCABULARY.decode(found[name].generated_tokens) for name in names]
    assert re.fullmatch(PATTERNS[0], texts[0])
    assert re.fullmatch(PATTERNS[1], texts[1])
    assert texts[2] in ("red", "blue")
    assert texts[3] == ""
    assert "nothing" in found[names[3]].error
    assert [found[name].error for name in names[:3]] == [None] * 3
    assert len(found[names[4]].generated_tokens) == 24
    assert found[names[5]].error.startswith("'logitloom' of the request is no JSON: ")


def test_texts_of_a_batch_end_at_the_ids_that_its_config_tells(model: Any) -> None:
    """The id is a letter in the vocabulary of the chain."""
    processor, end = to_transformers(chain_of("[a-z]{3,9}"), model), encode("d")[0]
    config = transformers.GenerationConfig(do_sample=False, eos_token_id=end, pad_token_id=PAD)
    given = {"generation_config": config, "max_new_tokens": 24}
    [found] = processor.generate_batch([encode("hello")], **given, **small()).values()
    assert found.generated_tokens.index(end) == len(found.generated_tokens) - 1
    assert re.fullmatch("[a-z]{3,9}", VOCABULARY.decode(found.generated_tokens[:-1]))
    [alone] = model.generate(tensor([encode("hello")]), logits_processor=processor, **given).tolist()
    assert found.generated_tokens == alone[len("hello") :]


def test_compiled_and_asynchronous_batches_are_refused(model: Any) -> None:
    processor = to_transformers(chain_of(PATTERNS[0]), model)
    with (
        pytest.raises(NeedsNotMet, match="use_async_batching"),
        processor.continuous_batch(generation_config=greedy(), **small(use_async_batching=True)),
    ):
        pass


@pytest.mark.parametrize("given", ["nothing", "a config", "a generation config"])
def test_a_batch_that_leaves_graphs_open_gets_none(model: Any, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On devices the library turns both on where nobody says."""
    processor = to_transformers(chain_of(PATTERNS[0]), model)
    seen: list[Any] = []

    class Stopped(Exception):
        pass

    def noted(**options: Any) -> Any:
        seen.append(options["continuous_batching_config"])
        raise Stopped

    monkeypatch.setattr(model, "init_continuous_batching", noted)
    config, options = transformers.ContinuousBatchingConfig(num_blocks=64), {"generation_config": greedy()}
    if given == "a config":
        options["continuous_batching_config"] = config
    elif given == "a generation config":
        options["generation_config"].continuous_batching_config = config
    with pytest.raises(Stopped), processor.continuous_batch(**options):
        pass
    assert (seen[0].use_cuda_graph, seen[0].use_async_batching) == (False, False)
    assert (seen[0].num_blocks == 64) == (given != "nothing")
    assert config.use_cuda_graph is config.use_async_batching is None
