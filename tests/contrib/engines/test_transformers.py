from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest

from logitloom import processors
from logitloom.errors import ChainIncomplete, GenerationError, IllegalToken, InvalidContext, NeedsNotMet, NoLegalToken
from tests.cases import each_once
from tests.contrib.engines.conftest import EOS, PAD, PATTERNS, VOCABULARY, WIDTH, encode, tensor

torch = pytest.importorskip("torch", reason="transformers needs PyTorch")
transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")

from transformers import LogitsProcessor, LogitsProcessorList  # noqa: E402

from logitloom.generation import BeamSearch, Generator  # noqa: E402
from logitloom_contrib.engines.transformers import TransformersModel, to_transformers  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"),
    pytest.mark.extras,
]

PROMPTS = ("hello there", "a dog 12", "z", "12 red birds")
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "num_return_sequences": 4, "top_k": 0},
    "beams": {"do_sample": False, "num_beams": 4, "num_return_sequences": 4},
    "sampled beams": {"do_sample": True, "num_beams": 4, "num_return_sequences": 4, "top_k": 0},
    "prompt lookup": {"do_sample": False, "prompt_lookup_num_tokens": 4},
    "assistant": {"do_sample": False, "assisted": True},
}

RECORDED = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}

LIMITED = [
    ("regex", {"pattern": "[a-c]{3,9}"}),
    ("choice", {"choices": ["abc", "abcdefgh"]}),
    ("grammar", {"grammar": 'root ::= "a" root "b" | "c"', "engine": "llguidance"}),
    ("grammar", {"grammar": 'root ::= "a" root "b" | "c"', "engine": "xgrammar"}),
]


def batch(*prompts: str) -> dict[str, Any]:
    rows = [encode(prompt) for prompt in prompts]
    width = max(map(len, rows))
    ids = tensor([[PAD] * (width - len(row)) + row for row in rows])
    mask = tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


def texts(out: Any, width: int) -> list[str]:
    return [VOCABULARY.decode(row[width:]) for row in out.tolist()]


def chain_of(*specs: Any) -> Any:
    return processors.load(*specs, tokenizer=VOCABULARY)


def generate(model: Any, processor: Any, prompts: tuple[str, ...], assistant: Any = None, **options: Any) -> list[str]:
    inputs = batch(*prompts)
    if options.pop("assisted", False):
        options["assistant_model"] = assistant
    torch.manual_seed(7)
    listed = processor if isinstance(processor, LogitsProcessorList) else LogitsProcessorList([processor])
    out = model.generate(**inputs, logits_processor=listed, max_new_tokens=24, **options)
    return texts(out, inputs["input_ids"].shape[1])


@pytest.mark.parametrize(
    ("given", "mode"),
    each_once(["itself", "listed", "by its method"], ["greedy", "beams", "prompt lookup", "assistant"]),
)
def test_texts_are_complete_within_the_limit_of_generate(tiny_transformers: Any, given: str, mode: str) -> None:
    pattern, inputs = "([a-z]{3,9} ){1,9}end", batch("hello there")
    model, options = tiny_transformers(), dict(MODES[mode])
    if options.pop("assisted", False):
        options["assistant_model"] = tiny_transformers("llama", 1)
    for most in (12, 9):
        processor = to_transformers(chain_of(("regex", {"pattern": pattern})), model)
        how = {**inputs, **options, "max_new_tokens": most}
        if given == "by its method":
            out = processor.generate(**how)
        else:
            listed = processor if given == "itself" else LogitsProcessorList([processor])
            out = model.generate(**how, logits_processor=listed)
        width = inputs["input_ids"].shape[1]
        found = texts(out, width)
        assert [text for text in found if not re.fullmatch(pattern, text)] == []
        assert all(EOS in row[width : width + most] for row in out.tolist())


@pytest.mark.parametrize(("kind", "pattern"), [*(("llama", pattern) for pattern in PATTERNS), ("gpt2", PATTERNS[2])])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.long
def test_every_row_matches_its_pattern(tiny_transformers: Any, kind: str, pattern: str, mode: str) -> None:
    model, assistant = tiny_transformers(kind), tiny_transformers(kind, 1)
    processor = to_transformers(chain_of(("regex", {"pattern": pattern})), model)
    alone = mode in ("prompt lookup", "assistant")
    groups = [(prompt,) for prompt in PROMPTS[:2]] if alone else [PROMPTS]
    for _ in range(2):  # one object serves many generations
        found = [text for group in groups for text in generate(model, processor, group, assistant, **MODES[mode])]
        assert len(found) == sum(map(len, groups)) * MODES[mode].get("num_return_sequences", 1)
        assert [text for text in found if not re.fullmatch(pattern, text)] == []
    if alone:
        assert found == [text for group in groups for text in generate(model, processor, group, **MODES["greedy"])]


@pytest.mark.parametrize("mode", MODES)
def test_a_processor_inside_a_list_is_as_right(tiny_transformers: Any, mode: str) -> None:
    model, assistant = tiny_transformers(), tiny_transformers(seed=1)
    processor = to_transformers(chain_of(("regex", {"pattern": PATTERNS[1]})), model)
    groups = [(prompt,) for prompt in PROMPTS[:2]] if mode in ("prompt lookup", "assistant") else [PROMPTS]
    expected = [generate(model, processor, group, assistant, **MODES[mode]) for group in groups]
    for _ in range(2):
        for group, texts_alone in zip(groups, expected, strict=True):
            listed = LogitsProcessorList([processor])
            assert generate(model, listed, group, assistant, **MODES[mode]) == texts_alone


@pytest.mark.parametrize("mode", ["sampling", "beams"])
def test_rows_of_a_batch_are_what_they_are_alone(tiny_transformers: Any, mode: str) -> None:
    model = tiny_transformers()
    chain = chain_of(("repetition_penalty", {"penalty": 1.3}), ("no_repeat_ngram", {"n": 3}), "regex")
    processor = to_transformers(chain.configure(regex={"pattern": "[a-z ]{12,20}"}), model)
    options = {**MODES["beams"], "num_return_sequences": 1}
    if mode == "sampling":
        options = {"do_sample": False}
    together = generate(model, processor, PROMPTS, **options)
    assert together == [generate(model, processor, (prompt,), **options)[0] for prompt in PROMPTS]


@pytest.mark.parametrize(("mode", "padding"), each_once(["greedy", "sampling", "beams", "sampled beams"], [PAD, EOS]))
def test_a_prompt_that_is_nothing_but_padding_changes_no_row(tiny_transformers: Any, mode: str, padding: int) -> None:
    model = tiny_transformers()
    processor = to_transformers(chain_of(("regex", {"pattern": PATTERNS[2]})), model)
    inputs = batch("", *PROMPTS[:2])
    width = inputs["input_ids"].shape[1]
    inputs["input_ids"][inputs["attention_mask"] == 0] = padding
    inputs["attention_mask"][0, -1] = 1  # no row of a model attends to nothing
    torch.manual_seed(7)
    out = model.generate(**inputs, **MODES[mode], logits_processor=processor, max_new_tokens=24, pad_token_id=padding)
    found = texts(out, width)
    assert [text for text in found if not re.fullmatch(PATTERNS[2], text)] == []
    assert [told.text for told in processor.texts(out, width)] == found


def test_rows_that_end_at_once_behind_a_prompt_of_padding_move_no_other_row(tiny_transformers: Any) -> None:
    chain = chain_of(("regex", {"pattern": "(abc)?"}))
    processor = to_transformers(chain, tiny_transformers(), padding=EOS)
    a, b, c = encode("abc")
    for rows in ([[EOS], [EOS]], [[EOS, EOS], [EOS, a]], [[EOS, EOS, EOS], [EOS, a, b]]):  # as of a decoder
        scores = processor(tensor(rows), torch.zeros((2, WIDTH), device=tensor(0).device))
    assert (scores[1] > -torch.inf).nonzero().flatten().tolist() == [c]


def test_the_chain_sees_what_transformers_processors_see(tiny_transformers: Any) -> None:
    model = tiny_transformers()
    processor = to_transformers(chain_of(("repetition_penalty", {"penalty": 1.7})), model)
    for options in (MODES["greedy"], MODES["beams"], MODES["sampling"]):
        inputs = {k: v[:1] for k, v in batch("a dog 12").items()}
        torch.manual_seed(3)
        theirs = model.generate(**inputs, repetition_penalty=1.7, max_new_tokens=20, **options)
        torch.manual_seed(3)
        ours = model.generate(**inputs, logits_processor=processor, max_new_tokens=20, **options)
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("listed", [False, True])
def test_two_generations_may_run_at_once(tiny_transformers: Any, listed: bool) -> None:
    model = tiny_transformers()
    processor = to_transformers(chain_of(("regex", {"pattern": PATTERNS[2]})), model)
    alone = {mode: generate(model, processor, PROMPTS, **MODES[mode]) for mode in ("greedy", "beams")}
    found: dict[Any, list[str]] = {}

    def run(mode: str, number: int) -> None:
        given = LogitsProcessorList([processor]) if listed else processor
        found[mode, number] = generate(model, given, PROMPTS, **MODES[mode])

    threads = [threading.Thread(target=run, args=(mode, n)) for n in range(2) for mode in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {(mode, n): alone[mode] for mode in alone for n in range(2)}


def test_calls_by_hand_may_alternate(tiny_transformers: Any) -> None:
    del tiny_transformers
    processor = to_transformers(chain_of(("regex", {"pattern": "red|blue"})), eos=[EOS], padding=PAD)
    one, two = tensor([encode("z")]), tensor([encode("aa")])
    for letter, other in zip("red", "blu", strict=True):
        for name, add in (("one", letter), ("two", other)):
            ids = one if name == "one" else two
            scores = processor(ids, torch.zeros((1, 128)))
            assert torch.isfinite(scores[0, encode(add)[0]])
            if name == "one":
                one = torch.cat([one, tensor([encode(add)])], dim=1)
            else:
                two = torch.cat([two, tensor([encode(add)])], dim=1)
    assert torch.isfinite(processor(one, torch.zeros((1, 128)))).nonzero().tolist() == [[0, EOS]]


def test_a_stop_string_inside_an_accepted_draft_stops(tiny_transformers: Any) -> None:
    model = tiny_transformers()
    plain = to_transformers(chain_of(("suppress_tokens", {"tokens": [EOS, PAD]})), model)
    full = generate(model, plain, ("hello",), **MODES["greedy"])[0]
    stop = full[5:8]
    chain = chain_of(("suppress_tokens", {"tokens": [PAD]}), ("stop", {"strings": [stop]}))
    processor = to_transformers(chain, model)
    for mode in ("greedy", "prompt lookup", "assistant"):
        # The model is its own assistant, so whole drafts are accepted.
        found = generate(model, processor, ("hello",), model, **MODES[mode])[0]
        assert stop in found
        assert len(found) - found.index(stop) < len(stop) + 3, (mode, found, stop)


def test_rows_that_end_early_wait_for_the_others(tiny_transformers: Any) -> None:
    model = tiny_transformers("gpt2")
    chain = chain_of(("regex", {"pattern": "[0-9]{1,20}"}), ("temperature", {"temperature": 90.0}))
    processor = to_transformers(chain, model)
    found = generate(model, processor, PROMPTS, **MODES["sampling"])
    assert len({len(text) for text in found}) > 1
    assert all(re.fullmatch("[0-9]{1,20}", text) for text in found)


def test_a_model_that_overrides_the_chain_is_found_out(tiny_transformers: Any) -> None:
    class Override(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            forced = torch.full_like(scores, float("-inf"))
            forced[:, encode("z")[0]] = 1.0
            return forced

    model = tiny_transformers()
    processor = to_transformers(chain_of(("regex", {"pattern": "[0-9]{4}"})), model)
    with pytest.raises(IllegalToken, match=r"[rR]ow 0 accepted token 27 \('z'\).*text so far is ''") as raised:
        model.generate(
            **batch(*PROMPTS), logits_processor=LogitsProcessorList([processor, Override()]), max_new_tokens=4
        )
    assert "regex" in str(raised.value)


OWN_SETTINGS: dict[str, dict[str, Any]] = {
    "min_new_tokens": {"min_new_tokens": 6},
    "min_new_tokens at the limit": {"min_new_tokens": 5, "max_new_tokens": 5},
    "suppress_tokens": {"suppress_tokens": [EOS]},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 1},
}


@pytest.mark.parametrize("setting", OWN_SETTINGS)
@pytest.mark.parametrize("mode", ["greedy", "sampling", "prompt lookup"])
@pytest.mark.parametrize("lower", [0.0, 1e3], ids=["logits of any sign", "logits below zero"])
def test_settings_of_generate_that_contradict_the_chain_are_named(
    tiny_transformers: Any, setting: str, mode: str, lower: float
) -> None:
    class Lower(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            return scores - lower

    model = tiny_transformers()
    chain = chain_of(("regex", {"pattern": "aaaa" if "ngram" in setting else "[0-9]{4}"}))
    listed = LogitsProcessorList([Lower(), to_transformers(chain, model)])
    options = {"max_new_tokens": 12, **MODES[mode], **OWN_SETTINGS[setting]}
    named = rf"engine's own settings .* 'regex' allows,.*{setting.split()[0]}"
    with pytest.raises(NoLegalToken, match=named) as raised:
        model.generate(**batch("z"), logits_processor=listed, **options)
    written = re.search("after '(.*?)'", str(raised.value))
    assert written is not None
    assert re.fullmatch("a" if "ngram" in setting else "[0-9]{4}", written[1])


def test_settings_of_generate_that_leave_tokens_are_kept(tiny_transformers: Any) -> None:
    model = tiny_transformers()
    processor = to_transformers(chain_of(("regex", {"pattern": "[a-z]{1,9}"})), model)
    found = model.generate(**batch(*PROMPTS), logits_processor=processor, max_new_tokens=12, min_new_tokens=4)
    rows = found[:, batch(*PROMPTS)["input_ids"].shape[1] :].tolist()
    assert all(EOS not in row[:4] for row in rows)
    assert all(re.fullmatch("[a-z]{4,9}", VOCABULARY.decode(row)) for row in rows)


@pytest.mark.parametrize("less", [1, 3])
def test_a_wrong_length_of_the_prompt_is_told(tiny_transformers: Any, less: int) -> None:
    model, inputs = tiny_transformers(), batch("hello there")
    processor = to_transformers(chain_of(("regex", {"pattern": "[0-9]{4}"})), model)
    out = model.generate(**inputs, logits_processor=processor, max_new_tokens=6)
    width = inputs["input_ids"].shape[1]
    assert [text.text for text in processor.texts(out, width)] == texts(out, width)
    token = encode("hello there")[-less]
    with pytest.raises(InvalidContext, match=rf"Token {token} \(.*'prompt_length' is {width - less}: give input_ids"):
        processor.texts(out, width - less)


def test_scores_that_generate_returns_are_not_touched(tiny_transformers: Any) -> None:
    model = tiny_transformers()
    processor = to_transformers(chain_of(("regex", {"pattern": "[0-9]{4}"}), "temperature"), model)
    processor = to_transformers(processor.chain.configure(temperature={"temperature": 0.5}), model)
    asked = {"output_logits": True, "output_scores": True, "return_dict_in_generate": True, "max_new_tokens": 5}
    out = model.generate(**batch("z"), logits_processor=processor, do_sample=False, **asked)
    assert all(torch.isfinite(raw).all() for raw in out.logits)
    assert all((~torch.isfinite(scores)).any() for scores in out.scores)


def test_the_padding_token_may_begin_texts() -> None:
    from logitloom_contrib.engines.transformers import _starts

    ids = np.array([[1, 1, 1, 5], [1, 5, 6, 7]])
    for padding in ((1,), (1, 9), (9, 1)):
        starts = _starts(ids, padding)
        assert starts is not None
        assert starts.tolist() == [2, 0]
    assert _starts(ids[:1], (1,)) is None
    assert _starts(ids, ()) is None


def test_a_tokenizer_in_the_place_of_the_model_is_refused() -> None:
    chain = processors.load(("cfg", {"scale": 2.0}))
    with pytest.raises(NeedsNotMet, match="was given a Vocabulary .* as model. Give the model that generates"):
        to_transformers(chain, VOCABULARY)


def test_what_generate_cannot_run_is_refused_when_it_is_bound(tiny_transformers: Any) -> None:
    model = tiny_transformers()
    with pytest.raises(ChainIncomplete, match="pattern"):
        to_transformers(chain_of("regex"), model)
    with pytest.raises(NeedsNotMet, match="generate cannot run this chain: 'regex' needs vocabulary"):
        to_transformers(processors.load(("regex", {"pattern": "a"})), model)
    with pytest.raises(NeedsNotMet, match="'cfg' needs model"):
        to_transformers(chain_of(("cfg", {"scale": 2.0})))
    with pytest.raises(NeedsNotMet, match="two_pass"):
        to_transformers(chain_of(("cfg", {"scale": 2.0, "form": "one_pass"})), model)


def test_generate_that_would_ignore_the_chain_is_refused(tiny_transformers: Any) -> None:
    model = tiny_transformers()
    processor = to_transformers(chain_of(("regex", {"pattern": "[0-9]{4}"})), model)
    with pytest.raises(NeedsNotMet, match="would silently not run"):
        processor.generate(**batch("z"), cache_implementation="paged")
    assert texts(processor.generate(**batch("z"), do_sample=False, max_new_tokens=9), 1)[0].isdigit()
    model.generation_config.cache_implementation = "paged"
    try:
        with pytest.raises(NeedsNotMet, match="would silently not run"):
            to_transformers(processor.chain, model)
    finally:
        model.generation_config.cache_implementation = None


def test_the_own_generate_takes_no_other_processors_and_no_config(tiny_transformers: Any) -> None:
    model = tiny_transformers()
    processor = to_transformers(chain_of(("regex", {"pattern": "[0-9]{4}"})), model)
    options = {**batch("z"), "do_sample": False, "max_new_tokens": 9}
    with pytest.raises(NeedsNotMet, match=r"Call model.generate\(..., logits_processor=\[processor, ...\]\) instead"):
        processor.generate(**options, logits_processor=LogitsProcessorList([processor]))
    wanted = model.generate(**options, logits_processor=processor)
    for none in ({"logits_processor": None}, {"generation_config": None}):
        assert torch.equal(processor.generate(**options, **none), wanted)


def test_any_other_way_of_leaving_the_chain_out_is_noticed_afterwards() -> None:
    class Ignores:
        generation_config = transformers.GenerationConfig(eos_token_id=EOS)

        def generate(self, *inputs: Any, **options: Any) -> list[int]:
            return [1, 2, 3]

    processor = to_transformers(chain_of(("regex", {"pattern": "[0-9]{4}"})), Ignores())
    with pytest.raises(NeedsNotMet, match="did not look at the logits processor"):
        processor.generate(**batch("z"))


@pytest.mark.parametrize("listed", [False, True])
def test_a_generation_inside_another_with_the_same_processor_changes_nothing(
    tiny_transformers: Any, listed: bool
) -> None:
    model = tiny_transformers()
    processor = to_transformers(chain_of(("regex", {"pattern": PATTERNS[1]})), model)
    alone = generate(model, processor, PROMPTS, **MODES["beams"])
    inner: list[list[str]] = []

    class Inner(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            if len(inner) < 3:
                inner.append([])
                given = LogitsProcessorList([processor]) if listed else processor
                inner[-1] = generate(model, given, PROMPTS[:2], **MODES["greedy"])
            return scores

    members = [processor if listed else next(iter(processor)), Inner()]
    assert generate(model, LogitsProcessorList(members), PROMPTS, **MODES["beams"]) == alone
    assert inner == [generate(model, processor, PROMPTS[:2], **MODES["greedy"])] * 3


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(("mode", "kept"), each_once(["greedy", "beams", "assistant"], [1, 3]))
def test_a_prompt_that_goes_on_from_earlier_output_begins_anew(
    tiny_transformers: Any, listed: bool, kept: int, mode: str
) -> None:
    model, assistant = tiny_transformers(), tiny_transformers(seed=1)
    chain = chain_of(("regex", {"pattern": PATTERNS[0]}))
    processor, options = to_transformers(chain, model), dict(MODES[mode])
    if options.pop("assisted", False):
        options["assistant_model"] = assistant
    prompt, width = batch("hello there")["input_ids"], len("hello there")
    again = LogitsProcessorList([processor])
    for _ in range(2):
        given = again if listed else processor
        out = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), logits_processor=given, max_new_tokens=24, **options
        )
        assert re.fullmatch(PATTERNS[0], VOCABULARY.decode(out[0, width:].tolist()))
        prompt = out[:1, : width + kept]  # the prompt and the beginning of what came of it
        width += kept


def test_processors_that_contradict_each_other_are_named(tiny_transformers: Any) -> None:
    chain = chain_of(("regex", {"pattern": "[a-c][0-9]"}), ("bad_words", {"phrases": tuple("0123456789")}))
    with pytest.raises(NoLegalToken, match=r"'regex' and 'bad_words' contradict each other.*row 0 .* after '[abc]'"):
        generate(tiny_transformers(), to_transformers(chain), ("hello",), do_sample=False)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_function_of_the_prefix_gives_the_rows_of_generate(tiny_transformers: Any, beams: int) -> None:
    def function(row: int, ids: Any) -> list[int]:
        total = 7 * row + sum(map(int, ids))
        return [EOS, *(5 + total * factor % 9 for factor in (1, 2, 3))]

    model, ids = tiny_transformers(), tensor([[3, 4, 5], [6, 7, 8]])
    options = {"num_beams": beams, "num_return_sequences": beams, "do_sample": False, "max_new_tokens": 8}
    theirs = model.generate(ids, prefix_allowed_tokens_fn=function, **options)
    chain = chain_of(("prefix_allowed_tokens", {"function": function, "beams": beams}))
    assert torch.equal(model.generate(ids, logits_processor=to_transformers(chain, model), **options), theirs)


@pytest.mark.parametrize("sample", [False, True])
def test_checked_texts_are_those_of_our_own_loop_in_every_mode(tiny_transformers: Any, sample: bool) -> None:
    """Drafts and the engine's sampler make no difference: one token is left, whatever else the engine asks about."""

    def check(text: str, ends: bool) -> bool:
        return not re.search(r"[^a-z ]|(.)\1", text) and len(text) <= 12 and not (ends and len(text) < 12)

    model, assistant = tiny_transformers(), tiny_transformers(seed=1)
    chain = chain_of(("temperature", {"temperature": 2.0}), ("checked", {"check": check, "sample": sample}))
    own = Generator(TransformersModel(model, VOCABULARY), chain, max_tokens=24)
    (expected,) = own([encode(PROMPTS[0])], seed=3)
    assert check(expected.text or "", True)
    for mode, options in MODES.items():
        found = generate(model, to_transformers(chain, model, seed=3), PROMPTS[:1], assistant, **options)
        assert "num_return_sequences" in options or found == [expected.text], mode
        assert check(found[0], True), mode


@pytest.mark.parametrize(
    ("spec", "mode"),
    each_once(LIMITED, ["greedy", "sampling", "beams", "prompt lookup"]),
    ids=lambda given: given if isinstance(given, str) else f"{given[0]} {given[1].get('engine', '')}".strip(),
)
def test_a_limit_of_generate_that_is_too_small_is_refused_with_the_least(
    tiny_transformers: Any, spec: Any, mode: str
) -> None:
    if (engine := spec[1].get("engine")) is not None:
        pytest.importorskip(engine, reason=f"the package {engine} is not installed")
    model, inputs = tiny_transformers(), batch("hello there")
    processor = to_transformers(chain_of(spec), model)
    with pytest.raises(
        GenerationError, match=r"may generate 1 tokens, but .* needs (?:about )?(\d+), end-of-sequence"
    ) as error:
        model.generate(**inputs, logits_processor=processor, max_new_tokens=1, **MODES[mode])
    least = int(re.findall(r"Allow at least (\d+) tokens", str(error.value))[0])
    out = model.generate(**inputs, logits_processor=processor, max_new_tokens=least, **MODES[mode])
    assert all(EOS in row for row in out[:, inputs["input_ids"].shape[1] :].tolist())


class EndsWith(transformers.StoppingCriteria):  # type: ignore[misc]
    """The oracle: a candidate ends with the token that completes one of some strings in its new text."""

    def __init__(self, strings: tuple[str, ...], width: int) -> None:
        self.strings, self.width = strings, width

    def __call__(self, input_ids: Any, scores: Any, **more: Any) -> Any:
        def has(tokens: list[int]) -> bool:
            text = VOCABULARY.decode([token for token in tokens if token > PAD])
            return any(string in text for string in self.strings)

        rows = [row[self.width :] for row in input_ids.tolist()]
        return tensor([has(row) and not has(row[:-1]) for row in rows])


@pytest.mark.parametrize("length_penalty", [1.0, 0.0])
@pytest.mark.parametrize("part", [slice(1, 2), slice(2, 5), slice(4, 6)])
@pytest.mark.long
def test_stop_ends_hypotheses_as_a_stopping_criterion_and_our_own_loop_do(
    tiny_transformers: Any, part: slice, length_penalty: float
) -> None:
    """The stop strings are parts of what the model writes without them."""
    strategy = BeamSearch(beams=4, samples=4, length_penalty=length_penalty)
    for kind in ("llama", "gpt2"):
        model = tiny_transformers(kind)
        inputs = batch(*PROMPTS)
        width = inputs["input_ids"].shape[1]
        options = inputs | {
            "num_beams": 4, "num_return_sequences": 4, "do_sample": False, "max_new_tokens": 8,
            "length_penalty": length_penalty, "return_dict_in_generate": True, "output_scores": True,
        }  # fmt: skip
        free = texts(model.generate(**options).sequences, width)
        strings = tuple({text[part] for text in free[::4] if text[part]})
        chain = chain_of(("stop", {"strings": strings}))
        expected = model.generate(stopping_criteria=[EndsWith(strings, width)], **options)
        processor = to_transformers(chain, model, VOCABULARY)
        for given in (processor, LogitsProcessorList([processor])):
            found = model.generate(logits_processor=given, **options)
            assert found.sequences.tolist() == expected.sequences.tolist()
            torch.testing.assert_close(found.sequences_scores, expected.sequences_scores)
        ours = Generator(TransformersModel(model), chain, strategy, max_tokens=8)([encode(p) for p in PROMPTS])
        assert [g.text for g in ours] == [text.text for text in processor.texts(found.sequences, width)]
        assert [g.finish for g in ours] == [text.finish for text in processor.texts(found.sequences, width)]
        assert "stop" in {g.finish for g in ours}


def test_stop_beside_another_constraint_ends_hypotheses_as_our_own_loop_does(tiny_transformers: Any) -> None:
    model = tiny_transformers()
    chain = chain_of(("regex", {"pattern": "[a-e]{2,12}"}), ("stop", {"strings": ["ab", "ca", "dd"], "include": True}))
    processor = to_transformers(chain, model, VOCABULARY)
    inputs = batch(*PROMPTS)
    width = inputs["input_ids"].shape[1]
    out = processor.generate(**inputs, num_beams=4, num_return_sequences=4, do_sample=False, max_new_tokens=9)
    strategy = BeamSearch(beams=4, samples=4)
    ours = Generator(TransformersModel(model), chain, strategy, max_tokens=9)([encode(p) for p in PROMPTS])
    assert [(g.text, g.finish) for g in ours] == [(t.text, t.finish) for t in processor.texts(out, width)]
    assert len({g.finish for g in ours}) > 1


def test_texts_are_read_from_whatever_generate_returned_behind_a_prompt_that_is_in_it(tiny_transformers: Any) -> None:
    processor = to_transformers(chain_of(("regex", {"pattern": "[a-e]{2,12}"})), tiny_transformers(), VOCABULARY)
    inputs = batch(*PROMPTS)
    width = inputs["input_ids"].shape[1]
    found = processor.generate(**inputs, do_sample=False, max_new_tokens=9, return_dict_in_generate=True)
    assert processor.texts(found, width) == processor.texts(found.sequences, width)
    length = found.sequences.shape[1]
    for wrong in (None, -1, length + 1):
        with pytest.raises(InvalidContext, match=f"'prompt_length' must be .* at most {length}, but is {wrong}"):
            processor.texts(found, wrong)


class EndsBehind(transformers.StoppingCriteria):  # type: ignore[misc]
    """Ends a row of a batch behind a token."""

    def __init__(self, row: int, token: int) -> None:
        self.row, self.token = row, token

    def __call__(self, input_ids: Any, scores: Any, **more: Any) -> Any:
        ended = input_ids[:, -1] == self.token
        ended[torch.arange(len(ended)) != self.row] = False
        return ended


@pytest.mark.parametrize(("padding", "listed"), each_once([PAD, EOS, 60, None], [False, True]))
def test_rows_that_generate_ends_by_itself_are_cut_texts(
    tiny_transformers: Any, padding: int | None, listed: bool
) -> None:
    """The rows are those without the criterion, up to the token behind which the criterion ends a row."""
    model, inputs = tiny_transformers(), batch("hello ", "world ")
    processor, width = to_transformers(chain_of(("regex", {"pattern": PATTERNS[1]})), model), 6
    options = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": padding, **RECORDED}
    whole = [row[: row.index(EOS)] for row in model.generate(**inputs, logits_processor=processor)[:, width:].tolist()]
    token = whole[1][1]
    given = [processor] if listed else processor
    ended = model.generate(**inputs, logits_processor=given, stopping_criteria=[EndsBehind(1, token)], **options)
    first, second = processor.texts(ended, width)
    assert (first.text, first.finish) == (VOCABULARY.decode(whole[0]), "eos")
    assert (second.text, second.finish) == (VOCABULARY.decode(whole[1][:2]), "length")
    assert [[each.token for each in row] for row in processor.sampled(ended)] == [[*whole[0], EOS], whole[1][:2]]


def test_padding_behind_a_row_that_generate_ended_was_not_sampled(tiny_transformers: Any) -> None:
    processor = to_transformers(chain_of(("temperature", {"temperature": 2.0})), tiny_transformers())
    inputs, options = batch("hello ", "world "), {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    whole = processor.sampled(processor.generate(**inputs, **options, **RECORDED))
    ended = EndsBehind(1, whole[1][1].token)
    found = processor.sampled(processor.generate(**inputs, stopping_criteria=[ended], **options, **RECORDED))
    assert found == [whole[0], whole[1][: len(found[1])]]
    assert [each.token for each in found[1]][-1:] == [ended.token]


@pytest.mark.parametrize(("mode", "listed"), each_once(["greedy", "sampling", "beams", "prompt lookup"], [False, True]))
def test_texts_end_at_the_ids_that_generate_is_told(tiny_transformers: Any, mode: str, listed: bool) -> None:
    """A vocabulary that ends with the same id is the oracle. The id is a letter in the vocabulary of the chain."""
    model, pattern = tiny_transformers(), "[a-z]{3,9}"
    end = encode("d")[0]
    prompts = PROMPTS[:1] if mode == "prompt lookup" else PROMPTS
    options = {**MODES[mode], "eos_token_id": end}
    told = processors.load(("regex", {"pattern": pattern}), tokenizer=VOCABULARY.with_eos([end]))
    processor, oracle = to_transformers(chain_of(("regex", {"pattern": pattern})), model), to_transformers(told, model)
    inputs = batch(*prompts)
    width, found = inputs["input_ids"].shape[1], []
    for each in (processor, oracle):
        torch.manual_seed(7)
        given = [each] if listed else each
        out = model.generate(**inputs, logits_processor=given, max_new_tokens=24, **options)
        found.append((out.tolist(), each.texts(out, width)))
    assert found[0] == found[1]
    assert {text.finish for text in found[0][1]} == {"eos"}
    assert all(re.fullmatch(pattern, text.text) for text in found[0][1])
    free = model.generate(**inputs, logits_processor=processor, max_new_tokens=24, do_sample=False)
    assert "eos" in {text.finish for text in processor.texts(free, width)}


def byte_tokenizer(*first: str, backwards: bool = False) -> Any:
    """A tokenizer of transformers with an id for each byte, behind other ids."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = [*first, *sorted(pre_tokenizers.ByteLevel.alphabet(), reverse=backwards)]
    made = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token=first[0], pad_token=first[1])


@pytest.mark.parametrize(("sample", "listed"), each_once([False, True], [False, True]))
def test_an_assistant_with_a_tokenizer_of_its_own_drafts_without_the_chain(sample: bool, listed: bool) -> None:
    """The ids of such an assistant mean other texts. Its drafts are verified with the chain."""
    own, other = byte_tokenizer("<e>", "<p>"), byte_tokenizer("<e>", "<p>", "<x>", "<y>", backwards=True)
    made = []
    for seed, tokenizer in enumerate((own, other)):
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, initializer_range=0.6, eos_token_id=0, pad_token_id=1, bos_token_id=0,
        )  # fmt: skip
        made.append(transformers.LlamaForCausalLM(config).eval())
    model, assistant = made
    pattern = "[a-z]{4} [0-9]{3}"
    processor = to_transformers(processors.load(("regex", {"pattern": pattern}), tokenizer=own), model, own)
    inputs = own("hello ", return_tensors="pt")
    options = {"logits_processor": [processor] if listed else processor, "max_new_tokens": 12, "do_sample": sample}
    plain = model.generate(**inputs, **options)
    drafted = model.generate(**inputs, **options, assistant_model=assistant, tokenizer=own, assistant_tokenizer=other)
    text = own.decode(drafted[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert re.fullmatch(pattern, text)
    assert sample or torch.equal(drafted, plain)
