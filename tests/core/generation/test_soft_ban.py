"""Soft bans: the oracle decodes each row alone, runs everything anew for each token, and returns by the definition."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, Vocabulary, load_backend, processors
from logitloom.arrays import rng
from logitloom.errors import GenerationError, OptionError
from logitloom.generation import BeamSearch, Generated, Generator, Greedy, Multinomial, SoftBan
from logitloom.generation.candidates import load as load_candidates
from tests.oracles.toy_model import ToyModel

EOS = 0
WORDS = Vocabulary(
    [b"", b"a", b"b", b"c", b"ab", b"bc", b"ca", b"A", b" ", b"cab", b"\xc3", b"\xa9", "é".encode()], eos=[EOS]
)
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]
BANS = {
    "tokens": SoftBan(("a", "bc")),
    "across tokens": SoftBan(("abc", "ca b", "bb")),
    "any case": SoftBan(("Aa", "CAB", "É"), ignore_case=True),
    "few returns": SoftBan(("b", "c", "a"), returns=3),
}
CHAINS: dict[str, tuple[Any, ...]] = {
    "none": (),
    "penalty": (("repetition_penalty", {"penalty": 1.5}), ("temperature", {"temperature": 1.5})),
    "stateful": (("regex", {"pattern": "[abcA é]{4,9}"}), ("no_repeat_ngram", {"n": 3})),
    "every step": (("mirostat_v2", {"tau": 2.0}),),
    "stop": (("stop", {"strings": ["cc", "b "]}),),
}


def generator(ban: SoftBan | None, chain: str, backend: Any = "numpy", **more: Any) -> Generator:
    model = ToyModel(load_backend(backend) if isinstance(backend, str) else backend, vocab=WORDS.size, seed=2)
    options = {"max_tokens": 12, "avoid": ban, "skip_forced": False} | more
    return Generator(model, processors.load(*CHAINS[chain], tokenizer=WORDS), **options)


def occurrence(ban: SoftBan, text: bytes, after: int) -> tuple[int, int] | None:
    """Where the longest phrase begins and ends, of those that end first behind a place."""
    flags = re.IGNORECASE if ban.ignore_case else 0
    for end in range(after + 1, len(text) + 1):
        shown = text[:end].decode("utf-8", "replace")
        begins = [
            end - len(found.group().encode())
            for phrase in ban.phrases
            if (found := re.search(rf"(?:{re.escape(phrase)})\Z", shown, flags))
        ]
        if begins:
            return min(begins), end
    return None


def decoded_alone(made: Generator, prompt: list[int], seed: int) -> tuple[list[int], float, int]:
    """The tokens of a row, the sum of their log-probabilities, and the number of returns."""
    chain, ban, backend = made.chain, made.avoid, made.model.backend
    assert ban is not None
    tokens: list[int] = []
    scores: list[float] = []
    banned: dict[int, set[int]] = {}
    returns, searched, drawn = 0, 0, rng.fold(seed)

    def processed() -> Any:
        """The processed logits after the tokens, by a run of chain and model from the start."""
        room = min(made.max_tokens, made.model.max_length - len(prompt))
        context = Context(
            backend=backend, batch=1, vocab_size=WORDS.size, vocabulary=WORDS, prompt=(tuple(prompt),),
            max_length=len(prompt) + made.max_tokens, max_new_tokens=room, seed=(seed,),
        )  # fmt: skip
        state = chain.init_state(context)
        for n in range(len(tokens) + 1):
            row = np.asarray([[*prompt, *tokens[:n]]], dtype=np.int32)
            logits, _ = made.model.forward(row, made.model.empty_cache(1))
            chosen = context.accept([[tokens[n - 1]]], chosen_logprob=[[scores[n - 1]]]) if n else context
            logits, state = chain.process(logits, state, chosen)
        return logits

    while len(tokens) < made.max_tokens:
        logits = processed()
        place = len(tokens)
        logits = backend.masked_fill(
            logits, backend.asarray(np.isin(np.arange(WORDS.size), sorted(banned.get(place, ())))[None]), -np.inf
        )
        seeds, lengths = (backend.asarray(np.array([n], np.int32)) for n in (drawn, len(prompt) + place))
        token, score = made.strategy.choose(backend, logits, seeds, lengths)
        tokens.append(int(backend.to_numpy(token)[0]))
        scores.append(float(backend.to_numpy(score)[0]))
        if tokens[-1] == EOS:
            break
        text = WORDS.text_bytes(tokens)
        seen = len(text) - len(WORDS.token_bytes[tokens[-1]])
        while (found := occurrence(ban, text[searched:], max(seen - searched, 0))) is not None:
            begin, end = found[0] + searched, found[1] + searched
            target = next(n for n in range(len(tokens)) if len(WORDS.text_bytes(tokens[: n + 1])) > begin)
            gone = tokens[target:], scores[target:]
            tokens, scores = tokens[:target], scores[:target]
            before = {n: ids for n, ids in banned.items() if n <= target}
            left = np.flatnonzero(backend.to_numpy(processed())[0] > -np.inf).tolist()
            if returns < ban.returns and set(left) - before.get(target, set()) - {gone[0][0]}:
                banned = before
                banned.setdefault(target, set()).add(gone[0][0])
                returns += 1
                drawn = rng.fold(drawn, returns)
                break
            tokens, scores, searched, seen = tokens + gone[0], scores + gone[1], end, end
    return tokens, sum(scores), returns


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial()], ids=["greedy", "sampling"])
@pytest.mark.parametrize("chain", ["none", "penalty", "stateful", "every step"])
@pytest.mark.parametrize("ban", BANS)
@pytest.mark.long
def test_rows_go_back_as_the_definition_says(ban: str, chain: str, strategy: Any) -> None:
    made = generator(BANS[ban], chain, strategy=strategy)
    for g, prompt, seed in zip(made(PROMPTS, seed=3), PROMPTS, rng.row_seeds(3, 3).tolist(), strict=True):
        tokens, score, _ = decoded_alone(made, prompt, seed)
        assert list(g.tokens) == [token for token in tokens if token != EOS]
        assert g.logprob == pytest.approx(score, abs=1e-4)


def test_the_cases_go_back() -> None:
    """And once as often as is allowed, so that phrases stay."""
    made = generator(BANS["few returns"], "none", strategy=Multinomial())
    found = [decoded_alone(made, prompt, seed)[2] for prompt in PROMPTS for seed in range(4)]
    assert max(found) == 3
    assert any(re.search("[abc]", g.text or "") for g in made(PROMPTS, seed=3))
    made = generator(BANS["any case"], "none", strategy=Multinomial())
    assert sum(decoded_alone(made, prompt, seed)[2] for prompt in PROMPTS for seed in range(4)) > 0


@pytest.mark.parametrize("ban", [name for name in BANS if name != "few returns"])
@pytest.mark.parametrize("chain", ["none", "penalty", "stop"])
def test_no_phrase_is_left_while_returns_are(chain: str, ban: str) -> None:
    enough = SoftBan(BANS[ban].phrases, BANS[ban].ignore_case, returns=10_000)
    flags = re.IGNORECASE if enough.ignore_case else 0
    for g in generator(enough, chain, strategy=Multinomial(samples=3))(PROMPTS, seed=1):
        assert not re.search("|".join(map(re.escape, enough.phrases)), g.text or "", flags)


def test_on_every_backend(backend: Backend) -> None:
    """Greedy, because rounding may change a draw."""
    ban = BANS["across tokens"]
    expected = [(g.tokens, g.text) for g in generator(ban, "penalty")(PROMPTS)]
    assert [(g.tokens, g.text) for g in generator(ban, "penalty", backend)(PROMPTS)] == expected


@pytest.mark.parametrize("chain", CHAINS)
def test_a_stream_shows_nothing_that_is_taken_back(chain: str) -> None:
    made = generator(BANS["across tokens"], chain, strategy=Multinomial(samples=2), record=True)
    whole = made(PROMPTS, seed=4)
    texts: dict[tuple[int, int], list[Any]] = {(g.prompt, g.sample): ["", (), ()] for g in whole}
    for piece in made.stream(PROMPTS, seed=4):
        told = texts[piece.prompt, piece.sample]
        told[:] = [told[0] + piece.text, told[1] + piece.tokens, told[2] + piece.sampled]
        end = next(g for g in whole if (g.prompt, g.sample) == (piece.prompt, piece.sample))
        assert (end.text or "").startswith(told[0])
        assert end.tokens[: len(told[1])] == told[1]
    assert {key: tuple(told) for key, told in texts.items()} == {
        (g.prompt, g.sample): (g.text, g.tokens, g.sampled) for g in whole
    }


def test_records_are_those_of_the_tokens_that_stay() -> None:
    def told(g: Generated) -> list[int]:
        return [each.token for each in g.sampled if each.token != EOS]

    for g in generator(BANS["tokens"], "penalty", strategy=Multinomial(), record=True)(PROMPTS):
        assert told(g) == list(g.tokens)
        assert sum(each.logprob for each in g.sampled) == pytest.approx(g.logprob, abs=1e-5)


def test_what_never_completes_a_phrase_is_plain_decoding() -> None:
    plain = [
        (g.tokens, g.text, g.logprob, g.finish) for g in generator(None, "penalty", strategy=Multinomial())(PROMPTS)
    ]
    banned = generator(SoftBan(("zzz", "abcabcabcabc")), "penalty", strategy=Multinomial())(PROMPTS)
    assert [(g.tokens, g.text, g.logprob, g.finish) for g in banned] == plain


def test_a_token_that_was_taken_back_leaves_the_distribution_of_the_others() -> None:
    """The first token of 4,000 sequences, after returns from half of the mass: a chi-squared test at 1 in 10,000."""
    model = ToyModel(load_backend("numpy"), vocab=WORDS.size, seed=2)
    logits, _ = model.forward(np.asarray([PROMPTS[0]], dtype=np.int32), model.empty_cache(1))
    p = np.exp(logits[0] - logits[0].max())
    ban = SoftBan((max("abc", key=lambda letter: p[WORDS.token_bytes.index(letter.encode())]),))
    holding = [n for n, text in enumerate(WORDS.token_bytes) if ban.phrases[0].encode() in text]
    p[holding] = 0
    p /= p.sum()
    made = generator(ban, "none", strategy=Multinomial(samples=4000), max_tokens=1)
    found = np.bincount([(g.tokens or (EOS,))[0] for g in made([PROMPTS[0]], seed=9)], minlength=WORDS.size)
    likely = p * 4000 > 5
    statistic = ((found - 4000 * p)[likely] ** 2 / (4000 * p[likely])).sum()
    freedom = likely.sum() - 1
    assert found[holding].sum() == 0
    assert statistic < freedom + 3.72 * np.sqrt(2 * freedom) + 10


def test_healed_text_is_not_searched() -> None:
    words = Vocabulary([b"", b"", b"a", b"b", b"ab"], eos=[0], special=[1])
    model = ToyModel(load_backend("numpy"), vocab=words.size, seed=3)
    made = Generator(
        model, processors.load(tokenizer=words), max_tokens=6, heal=True, avoid=SoftBan(("a",)), strategy=Multinomial(8)
    )
    for g in made([[1, 3, 2]], seed=1):
        assert words.text_bytes(g.tokens).startswith(b"a")
        assert "a" not in (g.text or "")


@pytest.mark.parametrize(
    "more", [{"strategy": BeamSearch(2)}, {"candidates": load_candidates("prompt_lookup", {})}], ids=["beams", "drafts"]
)
def test_what_cannot_go_back_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(GenerationError, match="A soft ban takes tokens back, which neither beams, nor drafts"):
        generator(BANS["tokens"], "none", **more)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(GenerationError, match="returns is 0"):
        SoftBan(("a",), returns=0)
    with pytest.raises(OptionError, match="empty"):
        SoftBan(("",))
    model = ToyModel(load_backend("numpy"), vocab=5)
    with pytest.raises(GenerationError, match="no vocabulary is known"):
        Generator(model, avoid=SoftBan(("a",)))([[1]])
