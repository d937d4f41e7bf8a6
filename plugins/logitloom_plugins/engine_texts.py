"""The suite for whole texts of an engine: forty chains, each compared with logitloom's own loop, token by token.

Texts, the reason why each ended, and errors have to be the same. Where an engine leaves no choice, the difference is
declared with its reason, in ``forced``; the suite fails when a declared difference is not there, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import pytest

from logitloom import Chain, Vocabulary, processors
from logitloom.errors import LogitloomError
from logitloom.generation import Generator, Sampled
from logitloom.testing import Conformance
from logitloom.trace import RecordedChain

__all__ = ["CHAINS", "RECORDED", "Answer", "EngineTextConformance", "chain_named"]

#: Processors of each chain. Options ``ids`` and ``bias`` name letters, which become token ids.
CHAINS: Final[dict[str, tuple[Any, ...]]] = {
    "regex: digits and a dash": (("regex", {"pattern": r"\d{3}-\d{4}"}),),
    "regex: alternatives": (("regex", {"pattern": "(red|green|blue) (cat|dog|bird) [0-9]{2}"}),),
    "regex: an address": (("regex", {"pattern": r"[a-z]{2,5}@[a-z]{2,4}\.(com|org|net)"}),),
    "regex: the empty text": (("regex", {"pattern": ""}),),
    "regex: perhaps empty": (("regex", {"pattern": "(ab)*"}),),
    "regex: one letter": (("regex", {"pattern": "[a-f]"}),),
    "regex: longer than the limit": (("regex", {"pattern": "[a-z]{40}"}),),
    "regex: exactly the limit": (("regex", {"pattern": "[0-9]{16}"}),),
    "regex: words": (("regex", {"pattern": "[a-z]+( [a-z]+){2}"}),),
    "choice: two": (("choice", {"choices": ("red", "blue")}),),
    "choice: one is the beginning of another": (("choice", {"choices": ("co", "com", "comb")}),),
    "choice: one": (("choice", {"choices": ("12-34",)}),),
    "stop: left out": (("stop", {"strings": ("a", "b", "1")}),),
    "stop: inside a token, kept": (
        ("regex", {"pattern": "x?(12|com)[a-z]*"}), ("stop", {"strings": ("o", "1"), "include": True}),
    ),
    "stop: across tokens, left out": (("regex", {"pattern": "[ab]*12[ab]*"}), ("stop", {"strings": ("12",)})),
    "stop: across tokens, kept": (
        ("regex", {"pattern": "[ab]*12[ab]*"}), ("stop", {"strings": ("12",), "include": True}),
    ),
    "stop: inside a token": (("regex", {"pattern": "x?(12|com)[a-z]*"}), ("stop", {"strings": ("o", "1")})),
    "stop: never": (("regex", {"pattern": "[a-c]{3}"}), ("stop", {"strings": ("z",)})),
    "stop: at once": (("regex", {"pattern": "z[a-c]{3}"}), ("stop", {"strings": ("z",)})),
    "bad_words: letters": (("bad_words", {"phrases": ("a", "e", "i", "o", "u")}),),
    "bad_words: in a pattern": (("regex", {"pattern": "[a-c]{4}"}), ("bad_words", {"phrases": ("ab", "ba", "cc")})),
    "min_tokens: more than the limit": (("min_tokens", {"n": 20}),),
    "min_tokens: with a pattern": (("regex", {"pattern": "[a-z]{2,12}"}), ("min_tokens", {"n": 6})),
    "suppress_tokens": (("suppress_tokens", {"ids": "abcdefg"}),),
    "force_tokens": (("force_tokens", {"tokens": "dog"}),),
    "logit_bias": (("logit_bias", {"bias": "xyz"}),),
    "repetition_penalty": (("repetition_penalty", {"penalty": 1.6}),),
    "presence_penalty": (("presence_penalty", {"penalty": 1.5}),),
    "frequency_penalty": (("frequency_penalty", {"penalty": 1.5}),),
    "no_repeat_ngram: 1": (("no_repeat_ngram", {"n": 1}),),
    "no_repeat_ngram: 2": (("no_repeat_ngram", {"n": 2}),),
    "dry": (("dry", {"multiplier": 2.0}),),
    "warps keep the best token": (("temperature", {"temperature": 0.7}), ("top_k", {"k": 5}), ("top_p", {"p": 0.9})),
    "penalties before a pattern": (("repetition_penalty", {"penalty": 1.8}), ("regex", {"pattern": "[a-z ]{12}"})),
    "a bias before a pattern": (("logit_bias", {"bias": "xyz"}), ("regex", {"pattern": "[w-z0-9]{8}"})),
    "a pattern before warps": (("regex", {"pattern": r"\d{2}(\.\d{2})?"}), ("min_p", {"p": 0.05}), ("top_k", {"k": 3})),
    "five processors": (
        ("repetition_penalty", {"penalty": 1.3}), ("regex", {"pattern": "[a-z ]{4,12}"}), ("min_tokens", {"n": 3}),
        ("temperature", {"temperature": 0.8}), ("top_p", {"p": 0.8}),
    ),
    "two patterns": (("regex", {"pattern": "[a-m]{6}"}), ("regex", {"pattern": "[g-z]{6}"})),
    "contradiction at the start": (("regex", {"pattern": "[0-9]{3}"}), ("bad_words", {"phrases": tuple("0123456789")})),
    "contradiction later": (("regex", {"pattern": "[a-c][0-9]"}), ("bad_words", {"phrases": tuple("0123456789")})),
}  # fmt: skip

#: Chains whose tests also compare the distribution from which each token was chosen.
RECORDED: Final = ("regex: alternatives", "min_tokens: with a pattern", "warps keep the best token", "five processors")

_MOST: Final = 16
_PROMPTS: Final = ("hello there", "a dog 12", "z", "12 red birds")


class Answer(NamedTuple):
    """What came of a prompt.

    Attributes:
        text: without what a ``stop`` leaves out.
        finish: "eos", "stop" or "length".
        error: the class of what was raised, in place of a text.
    """

    text: str = ""
    finish: str = ""
    error: str = ""


def chain_named(name: str, vocabulary: Vocabulary) -> Chain:
    """One of :data:`CHAINS`, for a vocabulary that has a token for every letter and digit."""
    specs = [[plugin, _with_ids(plugin, dict(options), vocabulary)] for plugin, options in CHAINS[name]]
    return processors.load(*specs, tokenizer=vocabulary)


class EngineTextConformance(Conformance):
    """Tests of an engine's texts.

    Attributes:
        engine: its name.
        forced: chain -> why the engine's answer is another one.
        alike: why the engine gives the same reason, "stop", for texts that end by end-of-sequence and texts that end by
            a stop string; empty if it distinguishes the two.
        unrecorded: why the distributions from which tokens were chosen cannot be known; empty if they can.

    Override ``vocabulary``, ``model`` and ``answer``; and ``recorded``, where records are not in the chain.
    """

    engine: ClassVar[str] = ""
    forced: ClassVar[Mapping[str, str]] = {}
    alike: ClassVar[str] = ""
    unrecorded: ClassVar[str] = ""

    @property
    def vocabulary(self) -> Vocabulary:
        """Of the model."""
        raise NotImplementedError(f"{type(self).__name__} must define vocabulary.")

    def model(self) -> Any:
        """The engine's model in float32, as a model adapter."""
        raise NotImplementedError(f"{type(self).__name__} must define model().")

    def answer(self, chain: Chain, prompt: Sequence[int], max_tokens: int) -> Answer:
        """What the engine gives greedily with a chain, in float32; errors are raised."""
        raise NotImplementedError(f"{type(self).__name__} must define answer(chain, prompt, max_tokens).")

    def recorded(
        self, chain: Chain, prompt: Sequence[int], max_tokens: int, tokens: Sequence[int]
    ) -> Sequence[Sampled | None]:
        """The record of the tokens that the engine chooses greedily, end-of-sequence included."""
        recorded = RecordedChain(chain)
        self.answer(recorded, prompt, max_tokens)
        return recorded.sampled(tokens)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test once per chain."""
        if "chain_name" in metafunc.fixturenames:
            metafunc.parametrize("chain_name", list(CHAINS))
        if "recorded_name" in metafunc.fixturenames:
            metafunc.parametrize("recorded_name", RECORDED)

    def test_what_was_sampled_is_what_our_own_loop_records(self, recorded_name: str) -> None:
        """Log-probabilities before and after the chain, number of ids kept, and entropy of each token."""
        if self.unrecorded:
            pytest.skip(f"{self.engine} has no place for records: {self.unrecorded}")
        prompt = self.prompt(_PROMPTS[0])
        loop = Generator(self.model(), self._chain(recorded_name), max_tokens=_MOST, skip_forced=False, record=True)
        ours = loop([prompt])[0].sampled
        theirs = self.recorded(self._chain(recorded_name), prompt, _MOST, [each.token for each in ours])
        assert [each and (each.token, each.kept) for each in theirs] == [(each.token, each.kept) for each in ours]
        for name in ("logprob", "logprob_before", "entropy"):
            told, wanted = ([getattr(each, name) for each in found] for found in (theirs, ours))
            assert told == pytest.approx(wanted, abs=1e-4), f"{self.engine} records another {name}."

    def test_its_text_is_that_of_our_own_loop(self, chain_name: str) -> None:
        """Text, reason of its end, and error are those of the loop, or differ as declared."""
        ours, theirs = self.compared(chain_name)
        if self.alike and ours.finish == "eos":
            ours = ours._replace(finish="stop")
        if chain_name in self.forced:
            assert ours != theirs, f"The difference is declared ({self.forced[chain_name]}), but there is none."
        else:
            assert theirs == ours, f"{self.engine} gives {theirs} where the loop gives {ours}."

    def compared(self, chain_name: str) -> tuple[Answer, Answer]:
        """The answers of our own loop and of the engine."""
        prompt = self.prompt(_PROMPTS[list(CHAINS).index(chain_name) % len(_PROMPTS)])

        def ours() -> Answer:
            generator = Generator(self.model(), self._chain(chain_name), max_tokens=_MOST, skip_forced=False)
            [found] = generator([prompt])
            return Answer(found.text or "", found.finish)

        return _caught(ours), _caught(lambda: self.answer(self._chain(chain_name), prompt, _MOST))

    def prompt(self, text: str) -> list[int]:
        """A text as one token per letter."""
        return [_letter(letter, self.vocabulary) for letter in text]

    def _chain(self, name: str) -> Chain:
        return chain_named(name, self.vocabulary)


def _caught(answer: Any) -> Answer:
    try:
        found: Answer = answer()
    except LogitloomError as error:
        return Answer(error=type(error).__name__)
    return found


def _letter(letter: str, vocabulary: Vocabulary) -> int:
    data = letter.encode()
    return next(token for token in range(vocabulary.size) if vocabulary.token_bytes[token] == data)


def _with_ids(plugin: str, options: dict[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    if plugin == "suppress_tokens":
        return {"tokens": tuple(_letter(letter, vocabulary) for letter in options["ids"])}
    if plugin == "logit_bias":
        return {"bias": {_letter(letter, vocabulary): 50.0 for letter in options["bias"]}}
    if plugin == "force_tokens":
        return {"tokens": {n: _letter(letter, vocabulary) for n, letter in enumerate(options["tokens"])}}
    return options
