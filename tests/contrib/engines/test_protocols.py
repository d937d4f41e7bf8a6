"""Adapters to engines that do not run here, against their calling protocols."""

from __future__ import annotations

import contextlib
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from logitloom import Context, processors
from logitloom.errors import GenerationError, IllegalToken, InvalidContext, NeedsNotMet, NoLegalToken, UnknownPlugin
from logitloom.trace import RecordedChain
from logitloom_contrib import conformance
from logitloom_contrib.engines import sglang
from logitloom_contrib.engines.llama_cpp import to_llama_cpp
from tests.contrib.engines.conftest import EOS, VOCABULARY, WIDTH, encode


def chain_of(*specs: Any) -> Any:
    return processors.load(*specs, tokenizer=VOCABULARY)


def legal(line: Any) -> list[int]:
    return np.flatnonzero(np.isfinite(np.asarray(line))).tolist()


R, E, D, B, X = (encode(letter)[0] for letter in "redbx")

# -- ONNX Runtime GenAI -------------------------------------------------------------------------------


def test_a_prompt_that_is_nothing_but_padding_moves_no_other_row() -> None:
    call = conformance.TestOnnxGenAi().open(chain_of(("regex", {"pattern": "red"})))
    logits = np.zeros((2, WIDTH), dtype=np.float32)
    call([[EOS, EOS], [X, X]], logits)
    assert [legal(line) for line in call([[EOS, EOS, R], [X, X, R]], logits)] == [[E], [E]]


# -- llama-cpp-python ---------------------------------------------------------------------------------


def strided() -> np.ndarray:
    """Scores as the library shows them: one field of records of 12 bytes."""
    return np.zeros((WIDTH, 3), dtype=np.float32)[:, 1]


class FakeLlama:
    """Calls processors as the library does: exceptions are swallowed, the result is copied into the view."""

    draft_model: Any = None

    def __init__(self, override: int | None = None) -> None:
        self.override = override
        self.ids: list[int] = []

    def n_vocab(self) -> int:
        return WIDTH

    def detokenize(self, tokens: list[int]) -> bytes:
        return VOCABULARY.decode(tokens).encode()

    def sample(self, processor: Any, idx: int | None = None, grammar: Any = None) -> int:
        scores = strided()
        if processor is not None:
            with contextlib.suppress(Exception):
                scores[:] = processor(np.array(self.ids, dtype=np.int32), scores)
        step, self.step = self.step, self.step + 1
        return int(np.argmax(scores)) if self.override is None or step != 1 else self.override

    def create_completion(
        self, prompt: list[int], *, logits_processor: Any, stopping_criteria: Any, logit_bias: Any = None,
        max_tokens: int = 8,
    ) -> list[int]:  # fmt: skip
        text, self.step = list(prompt), 0
        if logit_bias:
            logits_processor = logits_processor.extend([])  # None
        while self.step < max_tokens:
            # Drafts stand behind the text, and are wrong.
            self.ids = text + ([X, X] if self.draft_model else [])
            token = self.sample(logits_processor, idx=len(text) - 1)
            if stopping_criteria(np.array(text, dtype=np.int32), np.zeros(WIDTH, dtype=np.float32)):
                break
            text.append(token)
            if token == EOS:
                break
        stopping_criteria(np.array(text, dtype=np.int32), np.zeros(WIDTH, dtype=np.float32))
        return text[len(prompt) :]


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library's list types, which call their members in order."""

    class Each(list):  # type: ignore[type-arg]
        def __call__(self, ids: Any, scores: Any) -> Any:
            for member in self:
                scores = member(ids, scores)
            return scores

    module = SimpleNamespace(LogitsProcessorList=Each, StoppingCriteriaList=Each)
    monkeypatch.setitem(__import__("sys").modules, "llama_cpp", module)
    return Each


def test_llama_cpp_completions_match(lists: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "red"})), FakeLlama())
    for prompt in ([5, 6], [5, 6], [7]):
        assert VOCABULARY.decode(processor.complete(prompt)) == "red"


def test_llama_cpp_texts_are_complete_within_max_tokens_or_refused_with_the_least(lists: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "a{7}|bz"})), FakeLlama())
    a = encode("a")
    # The last prompts are beginnings of texts that were written before.
    for prompt, limit, text in (
        ([5, 6], 8, "a" * 7), ([5, 6], 7, "bz"), ([5, 6], 8, "a" * 7), ([5, 6, *a], 8, "a" * 7), ([5, 6, *a], 7, "bz")
    ):  # fmt: skip
        written = processor.complete(prompt, max_tokens=limit)
        assert written[-1] == EOS
        assert VOCABULARY.decode(written) == text
    with pytest.raises(GenerationError, match=r"may generate 2 tokens, but .* regex allows needs 3.*Allow at least 3"):
        processor.complete([5, 6], max_tokens=2)


def test_llama_cpp_errors_surface(lists: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "red|rxb"})), FakeLlama(override=B))
    for _ in range(2):
        with pytest.raises(IllegalToken, match="accepted token .*'b'.*text so far is 'r"):
            processor.complete([5, 6])


def test_llama_cpp_biases_and_drafts_do_not_switch_the_chain_off(lists: Any) -> None:
    model = FakeLlama()
    model.draft_model = object()
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "(red|blue) (cat|dog )"})), model)
    found = [VOCABULARY.decode(processor.complete([5], logit_bias=bias)) for bias in (None, {str(R): 3.0, X: 9.0})]
    assert found[1].startswith("r")
    by_hand = {"logits_processor": lists([processor]), "stopping_criteria": lists([processor.stopping])}
    found.append(VOCABULARY.decode(model.create_completion([5], **by_hand)))
    assert all(text in ("blue cat", "blue dog ", "red cat", "red dog ") for text in found)


@pytest.mark.parametrize(
    ("bias", "told"),
    [
        ({WIDTH: 1.0}, f"names the token {WIDTH}, but the model has ids 0 to {WIDTH - 1}"),
        ({-1: 1.0}, "names the token -1"),
        ({"a": 1.0}, "has 'a': 1.0"),
        ({1.5: 1.0}, "has 1.5: 1.0"),
        ({3: None}, "has 3: None"),
        ({3: float("nan")}, "has 3: nan"),
        ({3: 1e300}, "has 3: 1e[+]300"),
        ([3], r"a table from token ids to numbers, but is a list \(\[3\]\)"),
    ],
)
def test_llama_cpp_names_the_entry_of_a_bias_that_it_cannot_apply(lists: Any, bias: Any, told: str) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "red"})), FakeLlama())
    with pytest.raises(InvalidContext, match=f"'logit_bias' .*{told}"):
        processor.complete([5], logit_bias=bias)


def test_llama_cpp_tells_of_a_call_that_leaves_the_chain_no_token(lists: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "red"})), FakeLlama())
    forbidden = {token: -np.inf for token in range(WIDTH) if token != X}
    for more in ({"logit_bias": forbidden}, {"logits_processor": [lambda ids, scores: np.full_like(scores, -np.inf)]}):
        with pytest.raises(
            NoLegalToken, match=r"No token is legal for the chain \(regex\) together with the logit_bias"
        ):
            processor.complete([5], **more)
    assert VOCABULARY.decode(processor.complete([5])) == "red"


@pytest.mark.parametrize(
    "options",
    [
        {"grammar": object()},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_object", "schema": {"type": "object"}}},
        {"grammar": object(), "stream": True},
    ],
)
def test_llama_cpp_refuses_a_grammar_of_its_own_beside_a_chain(lists: Any, options: dict[str, Any]) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "red"})), FakeLlama())
    with pytest.raises(NeedsNotMet, match=r"cannot follow '(grammar|response_format)' and a chain at once"):
        processor.complete([5, 6], **options)
    assert VOCABULARY.decode(processor.complete([5, 6])) == "red"


def test_llama_cpp_takes_a_response_format_of_text(lists: Any) -> None:
    from logitloom_contrib.engines.llama_cpp import _refuse_grammars

    for options in ({}, {"response_format": None}, {"response_format": {"type": "text"}}, {"grammar": None}):
        _refuse_grammars(options)


def test_llama_cpp_tells_of_what_switches_the_chain_off_or_misleads_it(lists: Any) -> None:
    chain, model = chain_of(("regex", {"pattern": "red"})), FakeLlama()
    processor = to_llama_cpp(chain, model)
    given = {"logits_processor": lists([processor]), "stopping_criteria": lists([processor.stopping])}
    for _ in range(2):
        with pytest.raises(NeedsNotMet, match="did not call the chain.*logit_bias"):
            model.create_completion([5], logit_bias={3: 1.0}, **given)
        assert VOCABULARY.decode(model.create_completion([5], **given)) == "red"
    processor(np.asarray([5, X, X], dtype=np.int32), strided())
    with pytest.raises(NeedsNotMet, match="3 ids where the text has 1.*unverified drafts"):
        processor.stopping([5], None)
    with pytest.raises(NeedsNotMet, match="No Llama is bound"):
        to_llama_cpp(chain).complete([5])


# -- SGLang -------------------------------------------------------------------------------------------


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang, "_OFFERED", {})  # a page's example may have offered a chain in this process
    for name, pattern in (("red", "red"), ("bed", "bed")):
        sglang.offer(name, chain_of(("regex", {"pattern": pattern})))


def request(prompt: list[int], output: list[int], name: str = "red") -> dict[str, Any]:
    return {"logitloom": name, "__req__": SimpleNamespace(origin_input_ids=prompt, output_ids=output)}


def test_sglang_rows_keep_their_states_in_any_object(offered: None) -> None:
    blank = np.zeros((3, WIDTH), dtype=np.float32)
    one, two, three = request([5], []), request([5, 6], []), request([7], [], "bed")
    out = sglang.SglangProcessor()(blank, [one, two, three])
    assert R in legal(out[0])
    assert B in legal(out[2])
    one["__req__"].output_ids.append(R)
    two["__req__"].output_ids.extend([R, E])
    three["__req__"].output_ids.append(B)
    out = sglang.SglangProcessor()(blank, [three, one, two])
    assert [legal(line)[0] for line in out] == [E, E, D]
    late = request([9], [B, E], "bed")  # came back after a preemption, between the others
    out = sglang.SglangProcessor()(np.zeros((2, WIDTH), dtype=np.float32), [one, late])
    assert [legal(line)[0] for line in out] == [E, D]


def test_sglang_requests_that_cannot_be_followed_are_refused(offered: None) -> None:
    blank = np.zeros((1, WIDTH), dtype=np.float32)
    with pytest.raises(UnknownPlugin, match="asks for the chain 'blue'; this server offers bed, red"):
        sglang.SglangProcessor()(blank, [request([5], [], "blue")])
    with pytest.raises(NeedsNotMet, match="did not show the request of row 0"):
        sglang.SglangProcessor()(blank, [{"logitloom": "red"}])
    with pytest.raises(NeedsNotMet, match="0 parameter records for 1 rows"):
        sglang.SglangProcessor()(blank)
    drafted = request([5], [])
    with pytest.raises(NeedsNotMet, match="several rows of one request"):
        sglang.SglangProcessor()(np.zeros((2, WIDTH), dtype=np.float32), [drafted, drafted])


# -- objects that are no processors of the engine --------------------------------------------------------


class SwallowingLlama:
    """As the library generates: processors are iterated over in a callback of C, whose exceptions are swallowed."""

    def __init__(self, forced: int | None = None) -> None:
        self.forced = forced

    def sample(self, processors: Any) -> int:
        scores = strided()
        scores[0] = 1.0
        with contextlib.suppress(Exception):
            for each in processors:
                scores[:] = each(np.array(self.ids, dtype=np.int32), scores)
        return int(np.argmax(scores)) if self.forced is None else self.forced

    def detokenize(self, tokens: list[int]) -> bytes:
        return VOCABULARY.decode(tokens).encode()

    def create_completion(self, prompt: list[int], *, logits_processor: Any, max_tokens: int = 8) -> str:
        self.ids, text = list(prompt), ""
        for _ in range(max_tokens):
            token = self.sample(logits_processor)
            text = self.detokenize([*self.ids[len(prompt) :], token]).decode()
            if token == EOS:
                break
            self.ids.append(token)
        return text


@pytest.mark.usefixtures("lists")
@pytest.mark.parametrize("form", ["processor", "[processor]", "chain", "[chain]"])
def test_llama_cpp_takes_a_chain_in_any_form(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", sys.modules.get("llama_cpp", types.ModuleType("llama_cpp")))
    monkeypatch.setattr("logitloom.chain.direct_use.load_plugin", lambda kind, name: to_llama_cpp)
    chain, model = chain_of(("regex", {"pattern": "red"})), SwallowingLlama()
    given = {"processor": to_llama_cpp(chain, model), "chain": chain}[form.strip("[]")]
    for _ in range(2):
        found = model.create_completion([5, 6], logits_processor=[given] if form.startswith("[") else given)
        assert found == "red"


@pytest.mark.usefixtures("lists")
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("most", [1, 2, 8])
def test_llama_cpp_raises_what_the_library_swallows_also_by_hand(
    direct: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", sys.modules.get("llama_cpp", types.ModuleType("llama_cpp")))
    monkeypatch.setattr("logitloom.chain.direct_use.load_plugin", lambda kind, name: to_llama_cpp)
    model = SwallowingLlama()

    def failing(logits: Any) -> Any:
        raise ValueError("no logits today")

    given = processors.load("regex") if direct else to_llama_cpp(chain_of(failing))
    for _ in range(2):
        with pytest.raises(Exception, match="misses options" if direct else "no logits today"):
            model.create_completion([5, 6], logits_processor=given, max_tokens=most)
        assert not {"sample", "detokenize"} & set(vars(model))


class AbortingLlama(SwallowingLlama):
    """As the library samples with a grammar: it ends the process if the processors leave none of its tokens."""

    allowed = 0

    def sample(self, processors: Any, grammar: Any = None) -> int:
        scores = strided()
        self._apply(processors, scores)
        if grammar is not None and scores[self.allowed] == -np.inf:
            pytest.fail("The process would be aborted.")
        return self.allowed

    def _apply(self, processors: Any, scores: Any) -> None:
        with contextlib.suppress(Exception):
            for each in processors:
                scores[:] = each(np.array([5, 6], dtype=np.int32), scores)


@pytest.mark.usefixtures("lists")
def test_llama_cpp_refuses_a_grammar_that_is_given_by_hand() -> None:
    model = AbortingLlama()
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "red"})), model)
    for _ in range(2):
        token = model.sample(processor, grammar=object())
        with pytest.raises(NeedsNotMet, match=r"cannot follow 'grammar' and a chain at once"):
            model.detokenize([token])
        assert not {"sample", "detokenize"} & set(vars(model))
        model.sample(processor)
        processor.raise_error()


@pytest.mark.torch
def test_a_chain_given_to_an_engine_names_the_adapter() -> None:
    torch = pytest.importorskip("torch", reason="transformers passes tensors")
    pytest.importorskip("transformers", reason="the engine that would call is imported")
    chain = chain_of(("top_k", {"k": 5}))
    with pytest.raises(NeedsNotMet, match=r"given to transformers as if .*Give to_transformers\(chain, model"):
        chain(torch.zeros((1, 2), dtype=torch.int64), torch.zeros((1, WIDTH)))
    with pytest.raises(NeedsNotMet, match=r"as if it were an engine's processor.* one of .*transformers"):
        chain([1, 2], [3.0])
    [itself] = chain
    assert itself is chain


# -- what was sampled -------------------------------------------------------------------------------------


def given(place: int) -> np.ndarray:
    return np.random.default_rng(place).normal(size=WIDTH).astype(np.float32)


def test_what_was_sampled_is_known_after_the_documented_calls() -> None:
    plain = chain_of(("temperature", {"temperature": 0.5}), ("top_k", {"k": 20}))
    chain, tokens = RecordedChain(plain), [int(given(place).argsort()[-3]) for place in range(5)]
    sglang.offer("recorded", chain)
    try:
        for place in range(len(tokens)):
            sglang.SglangProcessor()(given(place)[None], [request([5, 6], tokens[:place], "recorded")])
    finally:
        sglang.withdraw("recorded")
    told = chain.sampled(tokens)
    wanted = plain.score(np.stack([given(place) for place in range(5)])[None], [tokens], Context.start(given(0)[None]))
    assert [each and each.logprob for each in told] == pytest.approx(wanted[0].tolist(), abs=1e-5)
    assert {each and each.kept for each in told} == {20}
    page = (Path(__file__).parents[3] / "docs" / "engines" / "sglang.md").read_text(encoding="utf-8")
    assert "`RecordedChain`" in page
