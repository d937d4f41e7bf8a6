"""Drafts from a constraint: the text that the constraint forces, in the longest tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom import Context, option
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import GenerationError
from logitloom.generation import Configured, DraftRequest, Drafts
from logitloom.host.text_encoder import text_encoder

__all__ = ["GrammarDrafts"]


@dataclass(frozen=True)
class GrammarDrafts(Configured):
    """Draft the text that the chain's constraints force.

    Where every legal token is the beginning of one longest legal token, the text that follows is forced although the
    tokens are not: after ``{`` a schema may leave only ``"na``, ``"name`` and ``"name":``. The longest is drafted, or
    what the tokenizer would write; the model still decides. (If only one token is legal, the loop takes
    it without running the model.)

    Works with every constraint, whatever engine it runs on, since the processors themselves are asked; a row costs
    one step of the constraints per drafted token.

    References:
        M. Kuchnik et al., "Validating large language models with ReLM", 2023 (ambiguous tokenization of one text).
    """

    tokenizer: Any = option(
        None, help="The target's tokenizer, of any library: forced text is drafted as it writes it."
    )
    num_tokens: int = option(16, help="Most tokens of a draft.", ge=1, unit="tokens")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_encoder", None if self.tokenizer is None else text_encoder(self.tokenizer))

    def init_state(self, context: Context) -> tuple[()]:
        """Nothing: constraints keep their own states."""
        if context.vocabulary is None:
            raise GenerationError(
                "GrammarDrafts drafts compare the texts of tokens, so they need a vocabulary: load the chain with "
                "tokenizer=..., or give the generator one."
            )
        return ()

    def propose(self, state: tuple[()], request: DraftRequest) -> tuple[Drafts, tuple[()]]:
        """Follow each row's constraints while they force the text."""
        drafts: list[list[int]] = [[] for _ in request.sequences]
        if not len(request.constraints) or max(request.limits) <= 0:
            return Drafts(drafts), state
        backend, size = request.context.backend, request.context.vocab_size
        context = request.context.with_fields(donate=True, donate_state=False)
        limits = [min(limit, self.num_tokens) for limit in request.limits]
        going = [row for row, limit in enumerate(limits) if limit > 0]
        before = request.constraints.state_of(request.chain_state)
        while going:
            blank = backend.asarray(np.zeros((len(limits), size), dtype=np.float32))
            logits, before = request.constraints.process(blank, before, context)
            legal = backend.to_numpy(logits) > NEG_INF
            still = []
            for row in going:
                token = _forced(context, legal[row])
                if token is not None:
                    drafts[row].append(token)
                    if token not in request.eos and len(drafts[row]) < limits[row]:
                        still.append(row)
            going = still
            context = context.accept([drafts[row][-1:] if row in going else [] for row in range(len(limits))])
        if self.tokenizer is not None:
            drafts = [self._as_written(context, draft)[:limit] for draft, limit in zip(drafts, limits, strict=True)]
        return Drafts(drafts), state

    def _as_written(self, context: Context, draft: list[int]) -> list[int]:
        """The tokens that the tokenizer writes for the text of a draft."""
        assert context.vocabulary is not None
        ended = [token for token in draft[-1:] if not context.vocabulary.text_bytes([token])]
        text = context.vocabulary.text_bytes(draft)
        try:
            ids = self.__dict__["_encoder"].encode(text.decode("utf-8"))
        except UnicodeDecodeError:  # the forced text ends inside a character
            return draft
        return [*ids, *ended] if context.vocabulary.text_bytes(ids) == text else draft

    def update(self, state: tuple[()], accepted: Sequence[int]) -> tuple[()]:
        """Nothing to learn."""
        del accepted
        return state


def _forced(context: Context, legal: NDArray[np.bool_]) -> int | None:
    """The longest legal token, if all legal tokens are prefixes of it; else ``None``."""
    assert context.vocabulary is not None
    table = context.vocabulary.token_bytes
    # A token of n bytes has at most n + 1 beginnings that differ; more legal tokens cannot all be that.
    ids = np.flatnonzero(legal)
    if not 0 < len(ids) <= 64:
        return None
    if len(ids) == 1:
        return int(ids[0])
    texts = [table[i] if i < len(table) else b"" for i in ids.tolist()]
    longest = max(texts, key=len)
    if any(not text or not longest.startswith(text) for text in texts):
        return None
    return int(ids[texts.index(longest)])
