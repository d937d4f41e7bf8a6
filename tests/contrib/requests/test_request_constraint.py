"""The constraint of a request, beside a chain that is begun anew for every mask."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from logitloom import Chain, Context, Vocabulary, processors
from logitloom.errors import GenerationError
from logitloom_contrib.requests.request_constraint import RequestConstraint
from tests.cases import each_once
from tests.plugins.json_schema.test_alternative_patterns import random_schema

EOS, STOP, WIDTH = 0, 1, 301
TEXTS = [*(bytes([byte]) for byte in range(256)), b'{"', b'":', b'",', b'"}', b"12", b"ab", b"abc", b"null", b"x<"]
WORDS = Vocabulary([b"", b"", *TEXTS], eos=[EOS], special=[STOP])

TAG = {
    "type": "structural_tag", "triggers": ["<a"],
    "structures": [{"begin": "<a>", "schema": {"enum": [1, "b", None]}, "end": "</a>"}],
}  # fmt: skip
CHAINS: dict[str, Any] = {
    "regex": ["regex", {"pattern": "[ab]{2,40}(12)+|x<+>"}],
    "regex, lazy": ["regex", {"pattern": "([a-d]*b[a-d]{12}|x)[0-9]{1,9}"}],
    "choice": ["choice", {"choices": ["ab", "abc", "null", "12ab"]}],
    "json object": ["json", {"schema": {"type": "json_object"}}],
    "grammar": ["grammar", {"grammar": 'root ::= "(" root ")" | "ab" | "12"'}],
    "structural tag": ["structural_tag", {"tag": TAG}],
    "together": [
        "all_of",
        {"inner": [["json", {"schema": {"items": {"type": "integer"}}}], ["regex", {"pattern": "[^ ]*"}]]},
    ],
    **{
        f"random schema {seed}": ["json", {"schema": random_schema(random.Random(seed), 2), "whitespace": "compact"}]
        for seed in range(6)
    },
}  # fmt: skip


def chain_of(name: str) -> Chain:
    kind, options = CHAINS[name]
    if kind == "grammar":
        pytest.importorskip("llguidance", reason="the grammar is not regular")
    return processors.load((kind, options), tokenizer=WORDS)


def context_of(most: int | None) -> Context:
    logits = np.zeros((1, WIDTH), dtype=np.float32)
    return Context.start(logits, prompt=[[3]], max_length=64, max_new_tokens=most, vocabulary=WORDS)


def begun(chain: Chain, most: int | None = None, **given: Any) -> RequestConstraint:
    return RequestConstraint.begin(chain.links[0].processor, context_of(most), **given)


def mask_of(text: RequestConstraint) -> NDArray[np.bool_]:
    bitmask = np.full((3, -(-WIDTH // 32)), 7, dtype=np.int32)
    text.fill_bitmask(bitmask, 1)
    assert (bitmask[[0, 2]] == 7).all()  # the rows of others
    bits = np.unpackbits(bitmask[1].view(np.uint8), bitorder="little")
    assert not bits[WIDTH:].any()
    return bits[:WIDTH].astype(bool)


def allowed(name: str, tokens: list[int], most: int | None) -> NDArray[np.bool_]:
    """The mask of a chain of its own, which is made anew and reads the tokens at once."""
    chain, context = chain_of(name), context_of(most)
    state = chain.replay([tokens], context)
    found: NDArray[np.bool_] = np.isfinite(chain.process(np.zeros((1, WIDTH), dtype=np.float32), state, context)[0])[0]
    return found


@pytest.mark.parametrize(("name", "most"), each_once(CHAINS, [None, 14]))
def test_masks_after_any_operations_are_those_of_a_new_chain(name: str, most: int | None) -> None:
    dice, text, tokens, known = random.Random(name), begun(chain_of(name), most), [], {}
    others: list[tuple[RequestConstraint, list[int]]] = []
    for _ in range(25):
        assert text.is_terminated() == (EOS in tokens)
        if text.is_terminated():
            assert text.accept_tokens([dice.randrange(WIDTH)])  # ignored
            assert text.validate_tokens([5]) == []
        else:
            key = tuple(tokens)
            if key not in known:
                known[key] = allowed(name, tokens, most)
            mask = mask_of(text)
            assert np.array_equal(mask, known[key]), tokens
            drafts = [int(dice.choice(np.flatnonzero(mask))), dice.randrange(WIDTH), -1][: dice.choice([1, 2, 3])]
            valid = text.validate_tokens(drafts)
            assert valid == drafts[: len(valid)]
            assert valid
            after = begun(chain_of(name), most)
            assert after.accept_tokens(tokens + drafts[:1])
            if EOS in drafts[:1]:
                assert len(valid) == 1
            elif len(drafts) > 1:
                assert (len(valid) > 1) == bool(mask_of(after)[drafts[1]])
            wrong = [int(token) for token in np.flatnonzero(~known[key])][:3] if most is None else []
            assert not any(text.accept_tokens([token]) for token in [*wrong, WIDTH + 5])
            assert text.accept_tokens(valid)
            tokens = tokens + valid
        back = dice.choice([0, 0, 0, 1, 2, len(tokens)])
        if back <= len(tokens) and dice.random() < 0.5:
            text.rollback(back)
            tokens = tokens[: len(tokens) - back]
        if dice.random() < 0.1:
            others.append((text.copy(), tokens))
        if dice.random() < 0.05:
            text.reset()
            tokens = []
    for other, its_tokens in others:
        if not other.is_terminated():
            assert np.array_equal(mask_of(other), allowed(name, its_tokens, most))


@pytest.mark.parametrize("name", CHAINS)
def test_texts_are_complete_within_the_limit(name: str) -> None:
    chain = chain_of(name)
    for seed in range(3):
        dice, text = random.Random(seed), begun(chain, 12)
        for _ in range(12):
            text.accept_tokens([int(dice.choice(np.flatnonzero(mask_of(text))))])
        assert text.is_terminated() or name == "structural tag"  # free text may be cut


def test_tokens_before_the_constraint_began_count() -> None:
    """A model that reasons: the engine counts its tokens, too, and draft tokens are not yet among the engine's."""
    chain, engine = chain_of("regex"), [5]
    text = begun(chain, 11, generated=lambda: engine[0])
    late = begun(chain, 6)
    for token in (2 + ord("a"), 2 + ord("b"), 2 + ord("a"), 2 + ord("b")):
        assert np.array_equal(mask_of(text), mask_of(late))
        for drafted in (token, 2 + ord("a")):  # positions behind drafts
            assert text.accept_tokens([drafted])
            assert late.accept_tokens([drafted])
            assert np.array_equal(mask_of(text), mask_of(late))
            text.rollback(1)
            late.rollback(1)
        assert text.accept_tokens([token])
        assert late.accept_tokens([token])
        engine[0] += 1


def test_further_ids_end_a_text_where_it_may_end_and_nowhere_else() -> None:
    letter = 2 + ord("b")
    text = begun(chain_of("regex"), stops=[STOP, letter, EOS, WIDTH + 9, -1])
    assert not mask_of(text)[[STOP, letter]].any()
    assert not text.accept_tokens([STOP])
    assert text.accept_tokens([2 + ord("a"), 2 + ord("a"), TEXTS.index(b"12") + 2])
    assert mask_of(text)[[STOP, letter, EOS]].all()
    for end in (STOP, letter, EOS):
        assert text.validate_tokens([end, 7]) == [end]
        assert text.accept_tokens([end])
        assert text.is_terminated()
        text.rollback(1)
        assert not text.is_terminated()


def test_a_stop_id_that_is_the_only_token_is_allowed() -> None:
    first = TEXTS.index(b"null") + 2
    chain = processors.load(("regex", {"pattern": "x"}), tokenizer=WORDS)
    text = begun(chain, stops=[2 + ord("x"), first])
    assert np.flatnonzero(mask_of(text)).tolist() == [2 + ord("x")]


def test_more_tokens_than_there_are_are_not_taken_back() -> None:
    text = begun(chain_of("choice"))
    assert text.accept_tokens([2 + ord("a")])
    with pytest.raises(GenerationError, match="takes back 2 tokens of a text of 1"):
        text.rollback(2)


def test_a_limit_that_no_text_keeps_is_refused() -> None:
    with pytest.raises(GenerationError, match="may generate 2 tokens"):
        begun(processors.load(("regex", {"pattern": "x{9}"}), tokenizer=WORDS), 2)


def test_an_error_ends_its_own_request(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    chain = chain_of("regex, lazy")
    broken, healthy = begun(chain, 30), begun(chain_of("choice"))
    memory = broken._memory

    def failing(*_: Any) -> Any:
        raise RuntimeError("a bug in a plug-in")

    for method, call in (
        ("bits", lambda: mask_of(broken)),
        ("reach", lambda: broken.accept_tokens([2 + ord("x")])),
        ("mask_within", lambda: broken.validate_tokens([2 + ord("x")])),
    ):
        with monkeypatch.context() as patch, caplog.at_level("ERROR", "logitloom.requests"):
            patch.setattr(memory, method, failing)
            call()
        assert "RuntimeError: a bug in a plug-in" in caplog.text
        caplog.clear()
        assert np.flatnonzero(mask_of(broken)).tolist() == [EOS]
        assert not broken.accept_tokens([EOS])
        assert broken.validate_tokens([2 + ord("x")]) == []
        assert broken.copy().failure == broken.failure
        broken.reset()
        assert mask_of(broken)[2 + ord("x")]
    assert mask_of(healthy)[2 + ord("a")]


@pytest.mark.parametrize("name", ["regex, lazy", "json object", "together", "random schema 1"])
def test_rows_of_one_constraint_in_several_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With so little memory that the masks of other threads are dropped meanwhile."""

    def decode(chain: Chain, seed: int) -> list[int]:
        dice, text, tokens = random.Random(seed), begun(chain, 20), list[int]()
        while not text.is_terminated():
            tokens.append(int(dice.choice(np.flatnonzero(mask_of(text)))))
            assert text.accept_tokens(tokens[-1:])
        return tokens

    expected = [decode(chain_of(name), seed) for seed in range(8)]
    monkeypatch.setattr("logitloom.state_memory._CAPACITY", 1 << 12)
    chain = chain_of(name)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda seed: decode(chain, seed), range(8))) == expected
