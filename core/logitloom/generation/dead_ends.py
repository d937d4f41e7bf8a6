"""Errors of rows that cannot be continued: the row, its position, its text, and the fault of its logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from logitloom.backend import NEG_INF, Array
from logitloom.chain import Chain, ChainState
from logitloom.context import Context
from logitloom.errors import InvalidLogits, NoLegalToken

__all__ = ["closing_processor", "invalid_logits", "no_legal_token", "written"]


def closing_processor(chain: Chain, logits: Array, before: ChainState, context: Context, row: int) -> str | None:
    """The label of the first processor after which a row has no legal token; ``None`` if there is none.

    Processors are pure functions, so the failed step is repeated with growing prefixes of the chain.

    Args:
        chain: the processors.
        logits, before, context: the arguments of ``chain.process``.
        row: the row whose processed logits are all -inf.
    """
    context = context.with_fields(donate=False, pool=None)
    for end, link in enumerate(chain.links, 1):
        part = Chain(chain.links[:end], vocabulary=chain.vocabulary, model=chain.model, debug=False)
        processed, _ = part.process(logits, ChainState(before.position, before.processors[:end]), context)
        line = context.backend.to_numpy(processed[row] if processed.ndim == 2 else processed)
        if not (line > NEG_INF).any():
            return link.label
    return None


def no_legal_token(
    chain: Chain, before: ChainState, context: Context, row: int, *, name: str, position: int, tokens: Sequence[int]
) -> NoLegalToken:
    """The error of a row whose processed logits are all -inf.

    Args:
        chain: the processors.
        before, context: the arguments of ``chain.process`` in that step; the state must not have been donated.
        row: the row of the state.
        name: the name of the row in the message.
        position: its number of tokens, prompt included.
        tokens: its accepted tokens.
    """
    xp = context.backend.xp
    rows = context.batch if context.tokens is None else context.tokens.shape[0]
    blank = xp.zeros((chain.branches * rows, context.vocab_size), dtype=xp.float32)
    label = closing_processor(chain, blank, before, context, row)
    by = f"Processor {label!r} left" if label else "The processors of the chain together left"
    at = chain.labels.index(label) if label else 0
    others = [repr(link.label) for link in chain.links[:at] if not link.effect.keeps_last]
    if others:
        by = f"Processors {', '.join(others)} and {label!r} contradict each other: together they left"
    return NoLegalToken(
        f"{by} {name} without any legal token at position {position}{written(chain, context, tokens)}. Chain: "
        f"{', '.join(chain.labels)}. Loosen one of its constraints, or let the row end there."
    )


def invalid_logits(
    chain: Chain, logits: Array, context: Context, row: int, *, name: str, position: int, tokens: Sequence[int]
) -> InvalidLogits | None:
    """The error of a row whose logits have NaN or +inf; ``None`` if they have neither.

    Args:
        chain: the processors.
        logits: ``[rows, vocab]``, processed.
        context: the context of the step.
        row: the row of the logits.
        name: the name of the row in the message.
        position: its number of tokens, prompt included.
        tokens: its accepted tokens.
    """
    values = context.backend.to_numpy(logits)[row]
    wrong = np.flatnonzero(~(values < np.inf))
    if not wrong.size:
        return None
    labels = f" or a processor of the chain ({', '.join(chain.labels)})" if chain.labels else ""
    return InvalidLogits(
        f"The logits of {name} are no distribution at step {len(tokens)} (position {position})"
        f"{written(chain, context, tokens)}: {wrong.size} of {values.size} are NaN or +inf, the first that of token "
        f"{wrong[0]}, {values[wrong[0]]}. The model{labels} computed them; compute in a wider type, such as float32."
    )


def written(chain: Chain, context: Context, tokens: Sequence[int]) -> str:
    """`` after 'text'`` for the text of a row so far; empty if there is no text or no vocabulary."""
    vocabulary = context.vocabulary or chain.vocabulary
    return f" after {vocabulary.decode(list(tokens))!r}" if vocabulary is not None and tokens else ""
