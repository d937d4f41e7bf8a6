"""The suite for candidate generators: drafts make decoding faster, and change no text and no distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from logitloom import processors
from logitloom.arrays.backend import Array, Backend
from logitloom.context import Context
from logitloom.generation import Generator, Greedy, Multinomial, candidates
from logitloom.generation.candidates import DraftRequest, Drafts
from logitloom.host import options as opts
from logitloom.host import registry
from logitloom.rows import tree as row_state
from logitloom.testing.conformance import Conformance
from logitloom.testing.toy_model import ToyModel
from logitloom.vocabulary import Vocabulary

__all__ = ["CandidateConformance"]


class Tired:
    """Lowers the logit of a token each time that a row accepts it. The state ``[rows, vocab]`` counts how often."""

    stage = "penalty"

    def init_state(self, context: Context) -> Array:
        """No token was accepted."""
        return context.backend.asarray(np.zeros((context.batch, context.vocab_size), dtype=np.float32))

    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        """Count the accepted tokens, and subtract."""
        backend = context.backend
        if context.tokens is not None:
            state = backend.add_at(state, context.tokens, 1.0, context.donate_state)
        return backend.add(logits, state * -0.75, context.donate), state


class CandidateConformance(Conformance):
    """Tests of a candidate generator over a toy model, on every installed backend.

    Attributes:
        candidates: the name of the plug-in, or its class.
        cases: label -> options.
        chain: specifications of the processors with which the target decodes.
        vocabulary: of the target.

    Override ``target`` for generators that need more of a model than its forward pass, and ``options`` for options that
    are objects on a backend, such as an assistant.

    Example:
        >>> from logitloom.testing import CandidateConformance
        >>> class TestPromptLookup(CandidateConformance):
        ...     candidates = "prompt_lookup"
    """

    kind = "candidates"
    _named_by = "candidates"

    candidates: ClassVar[Any] = None
    cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}
    chain: ClassVar[Sequence[Any]] = (Tired(),)
    vocabulary: ClassVar[Vocabulary] = Vocabulary([*(bytes([97 + i]) for i in range(14)), b"ab", b""], eos=[15])

    def target(self, backend: Backend) -> Any:
        """The model that decodes."""
        model = ToyModel(backend, vocab=self.vocabulary.size, max_length=128)
        model.tables[:, :, self.vocabulary.eos[0]] += 0.7  # now and then a row ends
        return model

    def options(self, case: str, backend: Backend) -> Mapping[str, Any]:
        """The options of a case."""
        del backend
        options: Mapping[str, Any] = self.cases[case]
        return options

    def _made(self, case: str, backend: Backend) -> Any:
        given = self.options(case, backend)
        return candidates.load(self.candidates, given) if isinstance(self.candidates, str) else self.candidates(**given)

    def _plain(self, backend: Backend, **more: Any) -> Generator:
        chain = processors.load(*self.chain, tokenizer=self.vocabulary)
        return Generator(self.target(backend), chain, max_tokens=14, **more)

    def _prompts(self) -> list[list[int]]:
        dice = np.random.default_rng(3)
        # Every other prompt repeats itself, so that generators that look up earlier text find a draft.
        return [dice.integers(0, 8, 2 + i).tolist() * (1 + i % 2) for i in range(6)]

    def test_drafts_change_no_text(self, backend: Backend, case: str) -> None:
        """Greedy decoding gives the same tokens with drafts and without, one row at a time and three.

        Troubleshooting: a generator must not change the chain's states, and must draft per row.
        """
        plain = self._plain(backend)
        drafting = replace(plain, candidates=self._made(case, backend))
        prompts = self._prompts()
        for size in (1, 3):
            for first in range(0, len(prompts) if size > 1 else 2, size):
                asked = prompts[first : first + size]
                expected = [(g.tokens, g.finish) for g in plain(asked)]
                found = [(g.tokens, g.finish) for g in drafting(asked)]
                assert found == expected, f"With drafts {asked} continue as {found} instead of {expected}."

    def test_drafts_are_within_what_is_asked(self, backend: Backend, case: str) -> None:
        """Each row gets one draft of ids of the target, within the row's limit; an equal request gets equal drafts.

        The state has the rows that are asked about. This holds for greedy decoding and for sampling.

        Troubleshooting: numbers for random drafts are those of :mod:`logitloom.arrays.rng`, of the rows' own seeds.
        """
        made, vocab = self._made(case, backend), self.vocabulary.size

        class Watched:
            init_state, update = staticmethod(made.init_state), staticmethod(made.update)

            def propose(self, state: Any, request: DraftRequest) -> tuple[Drafts, Any]:
                rows = len(request.pending)
                assert row_state.row_count(state) in (None, rows), "The state has other rows than the request."
                drafts, after = made.propose(state, request)
                assert len(drafts.tokens) == rows, f"{len(drafts.tokens)} drafts were made for {rows} rows."
                for draft, limit in zip(drafts.tokens, request.limits, strict=True):
                    assert len(draft) <= limit, f"{len(draft)} tokens were drafted where {limit} are of use."
                    assert all(0 <= token < vocab for token in draft), f"{draft} has ids that the target lacks."
                again, _ = made.propose(state, request)
                assert again.tokens == drafts.tokens, "The same question gave another draft the second time."
                return drafts, after

        for strategy in (Greedy(), Multinomial()):
            replace(self._plain(backend), strategy=strategy, candidates=Watched())(self._prompts()[:3])

    def test_drafted_tokens_follow_their_probabilities(self, backend: Backend, case: str) -> None:
        """Tokens that come with ``Drafts.probs`` were drawn from them: else sampling has another distribution.

        A generator without ``probs`` passes. The tokens of hundreds of drafts are compared with their probabilities:
        how often each id was drafted, and how likely the drafted tokens were. A right generator fails with a
        probability below one in a billion.

        Troubleshooting: ``probs`` are those after temperature, truncations and constraints, of the row and the position
        of the token. A draft must not be cut before a token because of that token, as :func:`.legal_prefix` does.
        """
        made, vocab = self._made(case, backend), self.vocabulary.size
        # By id how often it was drafted more than expected, then the same of the probabilities of the drafted tokens.
        excess, variance = np.zeros((2, vocab + 1))
        rounds: list[int] = []

        class Counted:
            init_state, update = staticmethod(made.init_state), staticmethod(made.update)

            def propose(self, state: Any, request: DraftRequest) -> tuple[Drafts, Any]:
                drafts, after = made.propose(state, request)
                rounds.append(len(drafts.tokens))
                for n, probs in enumerate(drafts.probs or ()):
                    rows = [row for row, draft in enumerate(drafts.tokens) if len(draft) > n]
                    tokens = [drafts.tokens[row][n] for row in rows]
                    q = backend.to_numpy(probs)[rows].astype(np.float64)
                    chosen, mean = q[np.arange(len(rows)), tokens], (q**2).sum(axis=1)
                    excess[:-1] += np.bincount(tokens, minlength=vocab) - q.sum(axis=0)
                    excess[-1] += (chosen - mean).sum()
                    variance[:-1] += (q - q**2).sum(axis=0)
                    variance[-1] += ((q**3).sum(axis=1) - mean**2).sum()
                return drafts, after

        sampling = replace(self._plain(backend), strategy=Multinomial(200), candidates=Counted())
        for _ in sampling.stream(self._prompts()[:2]):
            if len(rounds) == 2:  # a library may compile for each number of rows, and rows end
                break
        # Freedman's inequality for sums of differences of at most 1, and the union bound.
        log = np.log(2e9 * len(excess))
        bound = log / 3 + np.sqrt(log**2 / 9 + 2 * log * variance)
        worst = int(np.argmax(np.abs(excess) / bound))
        what = f"the id {worst} was drafted" if worst < vocab else "the sum of the drafted tokens' probabilities is"
        assert abs(excess[worst]) <= bound[worst], (
            f"Drafted tokens were not drawn from their probs: {what} {excess[worst]:+.1f} beyond the expectation, with "
            f"a standard deviation of {variance[worst] ** 0.5:.1f}."
        )

    def test_options_are_documented(self) -> None:
        """Every option has a sentence of help."""
        plugin = self.candidates
        plugin = registry.load_plugin("candidates", plugin) if isinstance(plugin, str) else plugin
        for option in opts.declared(plugin):
            assert option.help.endswith("."), f"Option {option.name!r} has no sentence of help: {option.help!r}."
