from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from logitloom import processors
from logitloom.errors import ChainIncomplete, GenerationError, InvalidContext, ModelError, NeedsNotMet
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial, candidates
from tests.contrib.engines.conftest import EOS, PATTERNS, VOCABULARY, encode

mx = pytest.importorskip("mlx.core", reason="mlx-lm needs MLX")
mlx_generate = pytest.importorskip("mlx_lm.generate", reason="the package mlx-lm is not installed")

from mlx_lm.models.cache import make_prompt_cache  # noqa: E402

from logitloom_contrib.engines import mlx_lm  # noqa: E402
from logitloom_contrib.engines.mlx_lm import MlxModel, to_mlx_lm  # noqa: E402

pytestmark = pytest.mark.extras

PROMPTS = [encode(text) for text in ("hello there", "a dog 12", "z", "aa", "12 red birds", "hello there")]

LIMITED = [
    ("regex", {"pattern": "[a-c]{3,9}"}),
    ("choice", {"choices": ["abc", "abcdefgh"]}),
    ("grammar", {"grammar": 'root ::= "a" root "b" | "c"', "engine": "llguidance"}),
    ("grammar", {"grammar": 'root ::= "a" root "b" | "c"', "engine": "xgrammar"}),
]


def chain_of(*specs: Any) -> Any:
    return processors.load(*specs, tokenizer=VOCABULARY)


def until_eos(tokens: Any) -> list[int]:
    found: list[int] = []
    for token in tokens:
        if int(token) == EOS:
            break
        found.append(int(token))
    return found


def generate(model: Any, processor: Any, prompt: list[int], **more: Any) -> list[int]:
    steps = mlx_generate.generate_step(mx.array(prompt), model, logits_processors=[processor], max_tokens=24, **more)
    return until_eos(token for token, _ in steps)


def sampler(logprobs: Any) -> Any:
    return mx.random.categorical(logprobs)


def batched(model: Any, prompts: list[list[int]], given: list[list[Any]]) -> list[list[int]]:
    batch = mlx_generate.BatchGenerator(model, stop_tokens=[[EOS]], max_tokens=24)
    uids = batch.insert(prompts, logits_processors=given)
    found: dict[int, list[int]] = {uid: [] for uid in uids}
    while responses := batch.next_generated():
        for response in responses:
            found[response.uid].append(response.token)
    batch.close()
    return [until_eos(found[uid]) for uid in uids]


def calls_that_read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list that grows by the tokens of each call whose ids a processor reads."""
    read: list[Any] = []
    whole = mlx_lm._SequencesByIds._read

    def noting(self: Any, tokens: Any, logits: Any) -> Any:
        read.append(tokens)
        return whole(self, tokens, logits)

    monkeypatch.setattr(mlx_lm._SequencesByIds, "_read", noting)
    return read


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.long
def test_sequences_one_after_the_other_and_in_a_batch_are_not_read(
    tiny_mlx: Any, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = to_mlx_lm(chain_of(("regex", {"pattern": pattern})))
    read = calls_that_read(monkeypatch)
    for options in ({}, {"sampler": sampler}):
        for prompt in PROMPTS:
            text = VOCABULARY.decode(generate(tiny_mlx(), processor, prompt, **options))
            assert re.fullmatch(pattern, text), text
    batched(tiny_mlx(), PROMPTS, [[processor]] * len(PROMPTS))
    assert len(read) <= 3 * len(PROMPTS)  # prompts at most, never a step


@pytest.mark.parametrize("specs", [
    [("regex", {"pattern": PATTERNS[1]})],
    [("repetition_penalty", {"penalty": 1.5}), ("suppress_tokens", {"tokens": [EOS]})],
    [("min_tokens", {"n": 6})],
], ids=["regex", "history", "length"])  # fmt: skip
@pytest.mark.long
def test_generators_agree(tiny_mlx: Any, specs: Any) -> None:
    """A new object for each sequence is the oracle; every other way of running must give the same tokens."""
    model, chain = tiny_mlx(), chain_of(*specs)
    expected = [generate(model, to_mlx_lm(chain), prompt) for prompt in PROMPTS]
    one = to_mlx_lm(chain)
    assert [generate(model, one, prompt) for prompt in PROMPTS] == expected
    assert batched(model, PROMPTS, [[to_mlx_lm(chain)] for _ in PROMPTS]) == expected
    assert batched(model, PROMPTS, [[one]] * len(PROMPTS)) == expected
    assert [generate(model, one, prompt) for prompt in PROMPTS] == expected
    fresh = to_mlx_lm(chain)
    assert batched(model, PROMPTS, [[fresh]] * len(PROMPTS)) == expected


@pytest.mark.long
@pytest.mark.parametrize(
    "spec",
    [
        ("regex", {"pattern": "abcabcabcabcab[cd]"}),
        ("regex", {"pattern": "(ab?c)+[a-d]{2}"}),
        ("json", {"schema": {"type": "integer"}}),
    ],
)
@pytest.mark.parametrize("seed", range(30))
def test_sequences_in_turn_have_prompts_of_any_length_and_join_at_any_time(seed: int, spec: Any) -> None:
    """One object over all sequences gives each the masks of an object of its own."""
    dice, chain = np.random.default_rng(seed), chain_of(spec)
    one, blank, rows = to_mlx_lm(chain), mx.zeros((1, 128)), list[tuple[list[int], Any]]()
    first = iter(range(3, 90))  # no prompt continues another sequence
    for _ in range(12):
        if len(rows) < 4 and (not rows or dice.random() < 0.4):
            lengths = [*range(1, 6), *(len(ids) for ids, _ in rows)] * 2
            for length in dice.choice(lengths, dice.integers(1, 4)).tolist():
                prompt = [next(first), *dice.integers(3, 90, length - 1).tolist()]
                # The same prompt twice, two that differ in the last token, or one.
                others = [[], [prompt], [[*prompt[:-1], next(first)]]][dice.integers(3)]
                rows += [([*ids], to_mlx_lm(chain)) for ids in (prompt, *others)]
        for ids, own in rows:
            found, expected = (np.array(each(mx.array(ids), blank))[0] for each in (one, own))
            assert (found == expected).all(), (ids, [len(other) for other, _ in rows])
            ids.append(int(dice.choice(np.flatnonzero(np.isfinite(expected)))))
        rows = [(ids, own) for ids, own in rows if ids[-1] != EOS and dice.random() < 0.95]


def test_a_chain_agrees_with_our_own_loop(tiny_mlx: Any) -> None:
    chain = chain_of(("suppress_tokens", {"tokens": [EOS, 5]}), ("logit_bias", {"bias": {9: 3.0}}))
    ours = Generator(MlxModel(tiny_mlx()), chain, max_tokens=24)(PROMPTS)
    assert [list(each.tokens) for each in ours] == [generate(tiny_mlx(), to_mlx_lm(chain), p) for p in PROMPTS]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("draft", [0, 1])
@pytest.mark.long
def test_speculative_output_equals_greedy(tiny_mlx: Any, pattern: str, draft: int) -> None:
    # mlx-lm shows processors the last token of the prompt only, so this chain does not look at prompts.
    processor = to_mlx_lm(chain_of(("regex", {"pattern": pattern})))
    for prompt in PROMPTS[:3]:
        greedy = generate(tiny_mlx(), to_mlx_lm(processor.chain), prompt)
        steps = mlx_generate.speculative_generate_step(
            mx.array(prompt), tiny_mlx(), tiny_mlx(draft), logits_processors=[processor], max_tokens=24,
            num_draft_tokens=3,
        )  # fmt: skip
        found = until_eos(step[0] for step in steps)
        assert re.fullmatch(pattern, VOCABULARY.decode(found))
        assert found == greedy


def test_a_reused_prompt_cache_shows_the_rest_of_the_prompt(tiny_mlx: Any) -> None:
    processor, cache = to_mlx_lm(chain_of(("regex", {"pattern": PATTERNS[1]}))), make_prompt_cache(tiny_mlx())
    for prompt in ([*PROMPTS[0]], [7, 8, 9], [11], [12, 13]):
        text = VOCABULARY.decode(generate(tiny_mlx(), processor, prompt, prompt_cache=cache))
        assert re.fullmatch(PATTERNS[1], text), text


def test_a_prompt_one_token_longer_than_the_last_text_is_a_new_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = to_mlx_lm(chain_of(("regex", {"pattern": "red"})))
    read = calls_that_read(monkeypatch)
    blank = mx.zeros((1, 128))

    def legal(row: list[int]) -> list[int]:
        return np.flatnonzero(np.isfinite(np.array(processor(mx.array(row), blank))[0])).tolist()

    first, second = encode("r")[0], encode("e")[0]
    start = legal([9, 9])
    assert first in start
    assert legal([9, 9, first])[0] == second
    assert legal([8, 8, 8, 8]) == start  # as long as the next call would have been
    assert legal([8, 8, 8, 8, first])[0] == second
    assert len(read) == 1


@pytest.mark.parametrize("way", ["one after the other", "batch", "drafts", "wrapped"])
def test_a_prompt_that_continues_another_sequence_begins_anew(tiny_mlx: Any, way: str) -> None:
    """A new object for each sequence is the oracle. Each prompt is an earlier prompt or text, with more tokens."""
    model, chain = tiny_mlx(), chain_of(("regex", {"pattern": "[0-9]{4}"}))

    def alone(prompt: list[int]) -> list[int]:
        return generate(model, to_mlx_lm(chain), prompt)

    first = encode("item 1")
    prompts = [first, encode("item 12"), first + alone(first)[:1], first + alone(first)[:3], first]
    one = to_mlx_lm(chain)
    if way == "batch":
        found = batched(model, prompts, [[one]] * len(prompts))
    elif way == "drafts":
        found = [
            until_eos(
                step[0]
                for step in mlx_generate.speculative_generate_step(
                    mx.array(prompt), model, tiny_mlx(1), logits_processors=[one], max_tokens=24
                )
            )
            for prompt in prompts
        ]
    else:
        given = one if way == "one after the other" else lambda tokens, logits: one(tokens, logits)
        found = [generate(model, given, prompt) for prompt in prompts]
    assert found == [alone(prompt) for prompt in prompts]


def test_embeddings_without_a_prompt_are_refused(tiny_mlx: Any) -> None:
    """mlx-lm chooses the first token without its processors there."""
    model, processor = tiny_mlx(), to_mlx_lm(chain_of(("regex", {"pattern": PATTERNS[1]})))
    embedded = model.model.embed_tokens(mx.array(PROMPTS[0]))
    found = generate(model, processor, PROMPTS[0], input_embeddings=embedded)
    assert found == generate(model, processor, PROMPTS[0])
    with pytest.raises(NeedsNotMet, match="chose the first token without the chain: .* Give the ids of the prompt"):
        generate(model, processor, [], input_embeddings=embedded)


def test_half_precision_logits_stay_so() -> None:
    processor = to_mlx_lm(chain_of(("regex", {"pattern": "red"}), ("temperature", {"temperature": 0.5})))
    for dtype in (mx.float16, mx.bfloat16):
        out = processor(mx.array([9, 9]), mx.zeros((1, 128), dtype=dtype))
        assert out.dtype == dtype


def test_a_chain_with_guidance_runs_the_mlx_model(tiny_mlx: Any) -> None:
    model = tiny_mlx()
    processor = to_mlx_lm(chain_of(("cfg", {"scale": 1.7}), ("suppress_tokens", {"tokens": [EOS]})), model)
    ours = Generator(MlxModel(model), processor.chain, max_tokens=12)(PROMPTS[:2])
    for prompt, found in zip(PROMPTS[:2], ours, strict=True):
        assert generate(model, processor, prompt)[:12] == list(found.tokens)


def test_a_tokenizer_in_the_place_of_the_model_is_refused() -> None:
    chain = processors.load(("cfg", {"scale": 2.0}))
    with pytest.raises(NeedsNotMet, match="mlx-lm cannot run cfg with the Vocabulary that it was given as model"):
        to_mlx_lm(chain, VOCABULARY)


def test_what_mlx_lm_cannot_run_is_refused_when_it_is_bound() -> None:
    with pytest.raises(ChainIncomplete, match="pattern"):
        to_mlx_lm(chain_of("regex"))
    with pytest.raises(NeedsNotMet, match="mlx-lm cannot run this chain: 'cfg' needs model"):
        to_mlx_lm(chain_of(("cfg", {"scale": 2.0})))
    with pytest.raises(NeedsNotMet, match="two_pass"):
        to_mlx_lm(chain_of(("cfg", {"scale": 2.0, "form": "one_pass"})))
    with pytest.raises(InvalidContext, match=r"shapes \[2\] and \[3, 9\]"):
        to_mlx_lm(chain_of(("temperature", {"temperature": 2.0})))(mx.array([1, 2]), mx.zeros((3, 9)))
    for other in ("regex", ("regex", {"pattern": "a"}), chain_of(("regex", {"pattern": "a"}))["regex"], None):
        with pytest.raises(NeedsNotMet, match="mlx-lm runs a chain, but was given .*Give what processors.load returns"):
            to_mlx_lm(other)


def test_a_model_with_sliding_windows_generates_with_a_chain_and_gives_no_guidance() -> None:
    from mlx_lm.models import gemma3_text

    mx.random.seed(0)
    args = gemma3_text.ModelArgs(
        model_type="gemma3_text", hidden_size=32, num_hidden_layers=2, intermediate_size=48, num_attention_heads=4,
        head_dim=8, num_key_value_heads=2, vocab_size=VOCABULARY.size, sliding_window=8, sliding_window_pattern=2,
    )  # fmt: skip
    model = gemma3_text.Model(args)
    found = generate(model, to_mlx_lm(chain_of(("regex", {"pattern": "[0-9]{3}"})), model), PROMPTS[0])
    assert re.fullmatch("[0-9]{3}", VOCABULARY.decode(found))
    with pytest.raises(ModelError, match="RotatingKVCache"):
        to_mlx_lm(chain_of(("cfg", {"scale": 2.0})), model)


# -- mlx-lm models in our own loop --------------------------------------------------------------------


def uncached(model: Any, row: list[int]) -> np.ndarray:
    return np.array(model(mx.array([row]))[0])


def padded(rows: list[list[int]]) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int32)


def test_ragged_cropped_and_moved_rows_are_what_they_are_alone(tiny_mlx: Any) -> None:
    model = MlxModel(tiny_mlx())
    rows = [[*row, 40, 41, 42] for row in PROMPTS[:3]]
    logits, cache = model.forward(padded(rows), model.empty_cache(3), all_positions=True)
    for line, row in zip(np.array(logits), rows, strict=True):
        np.testing.assert_allclose(line[: len(row)], uncached(model.model, row), rtol=2e-4, atol=2e-4)
    moved = cache.crop([len(row) - n for row, n in zip(rows, (3, 0, 2), strict=True)]).take_rows([2, 0, 0, 1])
    kept = [rows[2][:-2], rows[0][:-3], rows[0][:-3], rows[1]]
    new = [[11, 12], [13], [14, 15], [16]]
    logits, joined = model.forward(padded(new), moved)
    for line, row, more in zip(np.array(logits), kept, new, strict=True):
        np.testing.assert_allclose(line, uncached(model.model, row + more)[-1], rtol=2e-4, atol=2e-4)
    both = joined.concat_rows([model.empty_cache(1), cache])
    logits, _ = model.forward(padded([[7], [8], [9], [10], [7, 8], [5], [6], [7]]), both)
    ends = [*(k + n for k, n in zip(kept, new, strict=True)), [7], *rows]
    for line, row, token in zip(np.array(logits), ends, [7, 8, 9, 10, 8, 5, 6, 7], strict=True):
        np.testing.assert_allclose(line, uncached(model.model, [*row, token])[-1], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(samples=2), BeamSearch(beams=3)])
def test_our_own_loop_runs_mlx_models(tiny_mlx: Any, strategy: Any) -> None:
    found = Generator(MlxModel(tiny_mlx()), chain_of(("regex", {"pattern": PATTERNS[1]})), strategy, max_tokens=24)(
        PROMPTS[:3], seed=4
    )
    assert all(re.fullmatch(PATTERNS[1], each.text or "") for each in found)


@pytest.mark.parametrize("negative", [None, [7, 8, 9]])
@pytest.mark.parametrize("form", ["two_pass", "one_pass"])
def test_guidance_in_our_own_loop_equals_the_uncached_oracle(
    tiny_mlx: Any, form: str, negative: list[int] | None
) -> None:
    model = MlxModel(tiny_mlx())
    cfg = {"scale": 1.8, "form": form} | ({} if negative is None else {"negative_prompt": tuple(negative)})
    chain = chain_of(("cfg", cfg), ("suppress_tokens", {"tokens": [EOS]}))
    found = Generator(model, chain, max_tokens=10)(PROMPTS[:3])
    drafted = Generator(model, chain, max_tokens=10, candidates=candidates.load("prompt_lookup"))
    if form == "two_pass":
        assert [each.tokens for each in drafted(PROMPTS[:3])] == [each.tokens for each in found]
    for prompt, each in zip(PROMPTS[:3], found, strict=True):
        taken: list[int] = []
        for _ in range(10):
            rows = (prompt + taken, (negative or prompt[-1:]) + taken)
            one, two = (line - np.log(np.exp(line).sum()) for line in (uncached(model.model, row)[-1] for row in rows))
            guided = two + 1.8 * (one - two)
            guided[EOS] = -np.inf
            taken.append(int(guided.argmax()))
        assert list(each.tokens) == taken


# -- the pattern matrix, and what mlx-lm expects of its own processors ---------------------------------


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.long
def test_every_generator_matches_every_pattern(tiny_mlx: Any, pattern: str) -> None:
    model, chain = tiny_mlx(), chain_of(("regex", {"pattern": pattern}))
    one = to_mlx_lm(chain)
    found = batched(model, PROMPTS, [[one]] * len(PROMPTS))  # one object over all rows, in turn
    found += batched(model, PROMPTS, [[to_mlx_lm(chain)] for _ in PROMPTS])
    found += [generate(model, one, prompt, sampler=sampler) for prompt in PROMPTS[:3]]
    steps = mlx_generate.speculative_generate_step(
        mx.array(PROMPTS[1]), model, tiny_mlx(1), logits_processors=[one], max_tokens=24, num_draft_tokens=4
    )
    found.append(until_eos(step[0] for step in steps))
    cache = make_prompt_cache(model)
    found += [generate(model, one, prompt, prompt_cache=cache) for prompt in (PROMPTS[0], [7, 8], [9])]
    texts = [VOCABULARY.decode(tokens) for tokens in found]
    assert [text for text in texts if not re.fullmatch(pattern, text)] == []


@pytest.mark.weights
def test_stream_generate_and_batch_generate_match_on_real_weights(
    real_mlx: Any, real_tokenizer: Any, real_vocabulary: Any
) -> None:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    transformers = pytest.importorskip("transformers", reason="mlx-lm's own tokenizers are those of transformers")
    inner = transformers.PreTrainedTokenizerFast(
        tokenizer_object=real_tokenizer.tokenizer, eos_token="<|im_end|>", bos_token="<|im_start|>"
    )
    tokenizer = TokenizerWrapper(inner)
    pattern = r"(red|green|blue) (cat|dog)"
    processor = to_mlx_lm(processors.load(("regex", {"pattern": pattern}), tokenizer=real_vocabulary))
    prompts = [real_tokenizer.encode(text) for text in ("I like the ", "My pet is a ")]
    alone = [
        "".join(
            part.text
            for part in mlx_generate.stream_generate(
                real_mlx, tokenizer, prompt, max_tokens=12, logits_processors=[processor]
            )
        )
        for prompt in prompts
    ]
    assert all(re.fullmatch(pattern, text) for text in alone), alone
    together = mlx_generate.batch_generate(
        real_mlx, tokenizer, prompts, max_tokens=12, logits_processors=[to_mlx_lm(processor.chain)]
    )
    assert all(re.fullmatch(pattern, text) for text in together.texts), together.texts


def test_any_tokenizer_of_transformers_is_read_and_all_ends_of_the_engines_own() -> None:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    transformers = pytest.importorskip("transformers", reason="mlx-lm's own tokenizers are those of transformers")
    tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    words = tokenizers.models.WordLevel({"<end>": 0, "<turn>": 1, "a": 2, "?": 3}, unk_token="?")
    inner = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words), eos_token="<end>")
    chain = processors.load(("min_tokens", {"n": 1}))
    assert to_mlx_lm(chain, tokenizer=inner).chain.vocabulary.eos == (0,)
    both = to_mlx_lm(chain, tokenizer=TokenizerWrapper(inner, eos_token_ids=[0, 1]))
    assert both.chain.vocabulary.eos == (0, 1)


THEIRS: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "logit bias": ({"logit_bias": {9: 3.0, 20: -100.0}}, (("logit_bias", {"bias": {9: 3.0, 20: -100.0}}),)),
    "repetition": (
        {"repetition_penalty": 1.5, "repetition_context_size": 8},
        (("repetition_penalty", {"penalty": 1.5, "window": 8}),),
    ),
    "presence": (
        {"presence_penalty": 0.7, "presence_context_size": 8},
        (("presence_penalty", {"penalty": 0.7, "window": 8, "include_prompt": True}),),
    ),
    "frequency": (
        {"frequency_penalty": 0.7, "frequency_context_size": 8},
        (("frequency_penalty", {"penalty": 0.7, "window": 8, "include_prompt": True}),),
    ),
}


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.long
def test_our_processors_give_what_the_library_s_own_give(tiny_mlx: Any, name: str) -> None:
    from mlx_lm.sample_utils import make_logits_processors

    theirs, ours = THEIRS[name]
    model = tiny_mlx()
    for prompt in PROMPTS[:3]:
        expected = [
            int(token)
            for token, _ in mlx_generate.generate_step(
                mx.array(prompt), model, logits_processors=make_logits_processors(**theirs), max_tokens=20
            )
        ]
        steps = mlx_generate.generate_step(
            mx.array(prompt), model, logits_processors=[to_mlx_lm(chain_of(*ours))], max_tokens=20
        )
        assert [int(token) for token, _ in steps] == expected


@pytest.mark.parametrize("spec", LIMITED, ids=lambda spec: f"{spec[0]} {spec[1].get('engine', '')}".strip())
def test_a_limit_that_is_too_small_is_refused_with_the_least(tiny_mlx: Any, spec: Any) -> None:
    if (engine := spec[1].get("engine")) is not None:
        pytest.importorskip(engine, reason=f"the package {engine} is not installed")
    model = tiny_mlx()
    with pytest.raises(
        GenerationError, match=r"may generate 1 tokens, but .* needs (?:about )?(\d+), end-of-sequence"
    ) as error:
        generate(model, to_mlx_lm(chain_of(spec), max_new_tokens=1), PROMPTS[0])
    least = int(re.findall(r"Allow at least (\d+) tokens", str(error.value))[0])
    for more in (0, 2):
        processor = to_mlx_lm(chain_of(spec), max_new_tokens=least + more)
        assert len(generate(model, processor, PROMPTS[0])) < least + more
