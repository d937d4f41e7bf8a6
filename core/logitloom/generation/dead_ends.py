"""The error of a row that cannot go on: which row, where, after which text, and which processor closed it."""

from __future__ import annotations

from collections.abc import Sequence

from logitloom.chain import Chain, ChainState
from logitloom.context import Context
from logitloom.errors import NoLegalToken

__all__ = ["no_legal_token", "written"]


def no_legal_token(
    chain: Chain, before: ChainState, context: Context, row: int, *, name: str, position: int, tokens: Sequence[int]
) -> NoLegalToken:
    """The error of a row whose processed logits are -inf throughout.

    Args:
        chain: the processors.
        before, context: what ``chain.process`` got in that step; the state must not have been donated.
        row: which row of the state.
        name: what to call it.
        position: how many tokens it has, prompt included.
        tokens: those that it accepted.
    """
    xp = context.backend.xp
    rows = context.batch if context.tokens is None else context.tokens.shape[0]
    blank = xp.zeros((chain.branches * rows, context.vocab_size), dtype=xp.float32)
    label = chain.closing_processor(blank, before, context, row)
    by = f"Processor {label!r} left" if label else "The processors of the chain together left"
    at = chain.labels.index(label) if label else 0
    others = [repr(link.label) for link in chain.links[:at] if not link.declared("keeps_last")]
    if others:
        by = f"Processors {', '.join(others)} and {label!r} contradict each other: together they left"
    return NoLegalToken(
        f"{by} {name} without any legal token at position {position}{written(chain, context, tokens)}. Chain: "
        f"{', '.join(chain.labels)}. Loosen one of its constraints, or let the row end there."
    )


def written(chain: Chain, context: Context, tokens: Sequence[int]) -> str:
    """`` after 'text'`` for what a row wrote so far; empty where that is nothing or unknown."""
    vocabulary = context.vocabulary or chain.vocabulary
    return f" after {vocabulary.decode(list(tokens))!r}" if vocabulary is not None and tokens else ""
