"""Chains that are interrupted at random instructions go on as chains that never were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest

from logitloom import Chain, Context, Vocabulary, processors
from logitloom.automata.cache import default_cache
from logitloom.host.registry import load_plugin
from tests.fuzz.interrupted import instructions, interrupted

#: Interruptions of one chain by default, and in the exhaustive run: more than 10,000 for all chains.
FEW, MANY = 40, 900
STEPS = 12
_TOKENS: Final = (
    b'{"', b'": ', b", ", b"true", b"null", b'"}', b"12", b"ab", b"abc", b'": "', b"[]", b"}]", b"<think>"
)  # fmt: skip
WORDS = Vocabulary([b"", *(bytes([byte]) for byte in range(256)), *_TOKENS], eos=[0])

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "pattern": "^a+b?$", "maxLength": 5},
        "n": {"type": "integer", "minimum": -5, "maximum": 120},
        "l": {"type": "array", "items": {"enum": ["x", 1, None]}, "uniqueItems": True, "minItems": 1, "maxItems": 3},
        "u": {"anyOf": [{"type": "string", "maxLength": 3}, {"$ref": "#"}]},
    },
    "required": ["a", "l"],
    "additionalProperties": {"type": "boolean"},
}
_WORD = ["regex", {"pattern": "[ab]*c"}]
CHAINS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "json": [("json", {"schema": SCHEMA})],
    "json within 60 tokens": [("json", {"schema": SCHEMA, "finish_within": 60})],
    "regex": [("regex", {"pattern": "(ab|c{2,5}|[x-z]+)*d"})],
    "regex of many states": [("regex", {"pattern": "(a|b)*a(a|b){14}"})],
    "regex within 12 tokens": [("regex", {"pattern": "(ab|c{2,5}|[x-z]+)*d", "finish_within": 12})],
    "between": [("between", {"open": "{", "close": "}", "inner": _WORD})],
    "until": [("until", {"trigger": "ab", "inner": ["choice", {"choices": ["xyab", "zab"]}]})],
    "after": [("after", {"trigger": "a", "inner": ["json", {"schema": {"items": {"type": "integer"}}}]})],
    "budget": [("budget", {"n": 6, "inner": _WORD, "text": "c"})],
    "stop": [("stop", {"strings": ["abc", "x"]}), ("bad_words", {"phrases": ["ba", "zz"]}), ("mirostat_v2", {})],
    "samplers": [
        ("repetition_penalty", {"penalty": 1.2}), ("no_repeat_ngram", {"n": 2}), ("dry", {"multiplier": 0.8}),
        ("temperature", {"temperature": 0.7}), ("top_k", {"k": 20}), ("top_p", {"p": 0.9}), ("min_p", {"p": 0.01}),
    ],
    "llguidance": [("grammar", {"grammar": 'start: "a" start "b" | "c"', "engine": "llguidance"})],
}  # fmt: skip


class Decoding:
    """A greedy decoding of one row with logits that depend on a seed and the step."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed, self.step = name, seed, 0
        self.chain: Chain | None = None
        self.state: Any = None
        self.token: int | None = None
        #: Per step what the chain answered.
        self.answers: list[Any] = []

    def logits(self) -> Any:
        return np.random.default_rng([self.seed, self.step]).normal(size=(1, WORDS.size)).astype(np.float32)

    def load(self) -> Chain:
        default_cache().clear()
        return processors.load(*CHAINS[self.name], tokenizer=WORDS, debug=False)

    def context(self) -> Context:
        start = Context.start(self.logits(), prompt=[[98, 99]], vocabulary=WORDS, max_length=64, seed=1)
        if self.token is None:
            return start
        assert self.chain is not None
        known = np.full((1, 1), -1.0, dtype=np.float32) if "chosen_logprob" in self.chain.needs else None
        return start.accept([[self.token]], chosen_logprob=known)

    def answer(self) -> Any:
        """What the chain says at this step: logits, state, forced tokens, ends."""
        assert self.chain is not None
        if self.state is None:
            self.state = self.chain.init_state(self.context())
        context = self.context()
        logits, state = self.chain.process(self.logits(), self.state, context)
        return logits, state, self.chain.forced_tokens(self.state, context), self.chain.text_ends(self.state, context)

    def take(self, answer: Any) -> bool:
        """Go on by the likeliest token; whether the text goes on."""
        logits, self.state, forced, ends = answer
        self.answers.append((logits.tolist(), forced, ends))
        self.token = int(logits[0].argmax())
        self.step += 1
        return self.token != 0 and self.step < STEPS


def undisturbed(name: str, seed: int) -> tuple[Decoding, list[int]]:
    """A decoding, and how many instructions loading and each step took."""
    decoding = Decoding(name, seed)
    counts = [instructions(lambda: setattr(decoding, "chain", decoding.load()))]
    goes_on = True
    while goes_on:
        answers: list[Any] = []
        counts.append(instructions(lambda: answers.append(decoding.answer())))  # noqa: B023 - called at once
        goes_on = decoding.take(answers[0])
    return decoding, counts


def points(draw: random.Random, count: int) -> Iterator[int]:
    """Two instructions, one of them likelier early."""
    yield draw.randrange(count)
    yield int(count * draw.random() ** 3)


@pytest.mark.parametrize("least", [FEW, pytest.param(MANY, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.long
def test_a_chain_is_usable_after_an_interruption_at_any_instruction(name: str, least: int) -> None:
    if name == "llguidance":
        pytest.importorskip("llguidance")
    draw = random.Random(name)
    made = 0
    while made < least:
        seed = draw.randrange(8)
        expected, counts = undisturbed(name, seed)
        decoding = Decoding(name, seed)
        where = [interrupted(decoding.load, at) for at in points(draw, counts[0])]
        decoding.chain = decoding.load()
        for step, count in enumerate(counts[1:]):
            where += [interrupted(decoding.answer, at) for at in points(draw, count)]
            decoding.take(decoding.answer())
            assert decoding.answers[-1] == expected.answers[step], f"{seed=}, {step=}, interrupted at {where[-2:]}"
        assert any(where)
        made += len([place for place in where if place])


@pytest.mark.extras
def test_a_token_is_read_by_an_engine_again_after_an_interruption_at_any_instruction() -> None:
    pytest.importorskip("llguidance")
    ((name, options),) = CHAINS["llguidance"]
    constraint = load_plugin("processors", name)(**options).constraint(WORDS, WORDS.size)
    a, b, c = (WORDS.token_bytes.index(text) for text in (b"a", b"b", b"c"))

    def two_read() -> Any:
        return constraint.advance(constraint.advance(constraint.start(), a), a)

    constraint.forget()
    count = instructions(two_read)
    assert count > 100
    for at in range(count):
        constraint.forget()
        interrupted(two_read, at)
        state = two_read()
        assert state is not None
        assert constraint.advance(state, b) is None
        assert constraint.allowed(state).listed(WORDS.size).tolist() == [a, c]
