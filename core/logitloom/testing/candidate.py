"""The suite for candidate generators: drafts make decoding faster, and change nothing that is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from logitloom import processors
from logitloom.arrays.backend import Array, Backend
from logitloom.context import Context
from logitloom.generation import Generator, candidates
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

        The state has the rows that are asked about.
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

        replace(self._plain(backend), candidates=Watched())(self._prompts()[:3])

    def test_options_are_documented(self) -> None:
        """Every option has a sentence of help."""
        plugin = self.candidates
        plugin = registry.load_plugin("candidates", plugin) if isinstance(plugin, str) else plugin
        for option in opts.declared(plugin):
            assert option.help.endswith("."), f"Option {option.name!r} has no sentence of help: {option.help!r}."
