"""Errors of rows that cannot be continued: the row, its position, its text, and the fault of its logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import NEG_INF, Array
from logitloom.chain import Chain, ChainState
from logitloom.chain.links import Link
from logitloom.context import Context
from logitloom.errors import InvalidLogits, NoLegalToken

__all__ = ["closing_processor", "invalid_logits", "no_legal_token", "truncations", "written"]


def closing_processor(chain: Chain, logits: Array, before: ChainState, context: Context, row: int) -> str | None:
    """The label of the first processor after which a row has no legal token; ``None`` if there is none.

    Processors are pure functions, so the failed step is repeated with growing prefixes of the chain.

    Args:
        chain: the processors.
        logits, before, context: the arguments of ``chain.process``.
        row: the row whose processed logits are all -inf.
    """
    return _first(_closed, chain, range(len(chain)), logits, before, context, row)


def _closed(line: NDArray[Any]) -> bool:
    return not (line > NEG_INF).any()


def _unsound(line: NDArray[Any]) -> bool:
    return not (line < np.inf).all()


def _first(
    having: Callable[[NDArray[Any]], bool],
    chain: Chain,
    indices: Sequence[int],
    logits: Array | None,
    before: ChainState,
    context: Context,
    row: int,
) -> str | None:
    """The label of the first of some processors after which the logits of a row have a property.

    Without ``logits``, which may have been overwritten, the processors get logits that are all equal.
    """
    context = context.with_fields(donate=False, donate_state=False, pool=None)
    for end, index in enumerate(indices, 1):
        links, states = zip(*((chain.links[i], before.processors[i]) for i in indices[:end]), strict=True)
        part = Chain(links, vocabulary=chain.vocabulary, model=chain.model, debug=False)
        given = _blank(part, context) if logits is None else logits
        processed, _ = part.process(given, ChainState(before.position, states), context)
        line = context.backend.to_numpy(processed[row] if processed.ndim == 2 else processed)
        if having(line):
            return chain.labels[index]
    return None


def _blank(chain: Chain, context: Context) -> Array:
    """Equal logits for one step of a chain."""
    rows = context.batch if context.tokens is None else context.tokens.shape[0]
    return context.backend.asarray(np.zeros((chain.branches * rows, context.vocab_size), np.float32))


def truncations(links: Sequence[Link]) -> list[Link]:
    """Truncating processors before the last constraint, which may leave none of the tokens that the constraint
    allows.
    """
    closing = [index for index, link in enumerate(links) if not link.effect.keeps_last]
    before = links[: closing[-1]] if closing else ()
    return [link for link in before if link.effect.keeps_last and link.effect.forbids_only]


def no_legal_token(
    chain: Chain,
    before: ChainState,
    context: Context,
    row: int,
    *,
    name: str,
    position: int,
    tokens: Sequence[int],
    given: Array | None = None,
) -> NoLegalToken:
    """The error of a row whose processed logits are all -inf.

    Args:
        chain: the processors.
        before, context: the arguments of ``chain.process`` in that step; the state must not have been donated.
        row: the row of the state.
        name: the name of the row in the message.
        position: its number of tokens, prompt included.
        tokens: its accepted tokens.
        given: ``[rows, vocab]``, the logits that the chain got in that step, if they are still there: for the tokens
            that had been forbidden before the chain ran.
    """
    # The tokens that a truncation leaves depend on the logits, which are gone; the tokens that constraints leave do
    # not.
    hard = [index for index, link in enumerate(chain.links) if not link.effect.keeps_last]
    label = _first(_closed, chain, hard, None, before, context, row)
    by = f"Processor {label!r} left" if label else "The processors of the chain together left"
    remedy = "Loosen one of its constraints, or let the row end there."
    at = chain.labels.index(label) if label else 0
    others = [repr(chain.labels[index]) for index in hard if index < at]
    allowing = [repr(chain.labels[index]) for index in hard]
    allow = "allows" if len(allowing) == 1 else "allow"
    early = [repr(link.label) for link in truncations(chain.links)]
    guiding = [repr(link.label) for link in chain.links if link.declared("stage") == "guidance"]
    if label is None and given is not None and _closed_before(chain, hard, before, context, row, given):
        by = f"The engine's own settings forbade all tokens that {' and '.join(allowing)} {allow}, which left"
        remedy = (
            "Loosen these settings, which come before the chain (such as min_new_tokens, bad_words_ids, "
            "suppress_tokens, no_repeat_ngram_size or a bias), or loosen the chain."
        )
    elif others:
        by = f"Processors {', '.join(others)} and {label!r} contradict each other: together they left"
        if all(chain.links[index].is_constraint for index in hard if index <= at):
            remedy = (
                "Put them into one part of a combinator, whose text satisfies all of them, loosen one of them, or let "
                "the row end there."
            )
    elif label is None and hard and (early or guiding):
        keeping = ", ".join(early or guiding)
        by = f"{keeping} kept no token that {' and '.join(allowing)} {allow}, which left"
        # What looks at logits counts on the truncations before it.
        behind = early and chain.links[hard[-1]].effect.ignores_logits
        remedy = f"Put {keeping} behind {allowing[-1]}." if behind else f"Set the options of {keeping} to keep more."
    return NoLegalToken(
        f"{by} {name} without any legal token at position {position}{written(chain, context, tokens)}. Chain: "
        f"{', '.join(chain.labels)}. {remedy}"
    )


def _closed_before(
    chain: Chain, hard: Sequence[int], before: ChainState, context: Context, row: int, given: Array
) -> bool:
    """Whether some processors forbid every token of a row that has not been forbidden in the given logits."""
    forbidden = context.backend.to_numpy(given)[row] == NEG_INF
    logits = np.where(np.arange(len(given))[:, None] == row, np.where(forbidden, NEG_INF, 0), 0).astype(np.float32)
    return _first(_closed, chain, hard, context.backend.asarray(logits), before, context, row) is not None


def invalid_logits(
    chain: Chain,
    logits: Array,
    before: ChainState,
    context: Context,
    row: int,
    *,
    name: str,
    position: int,
    tokens: Sequence[int],
) -> InvalidLogits | None:
    """The error of a row whose logits have NaN or +inf; ``None`` if they have neither.

    Args:
        chain: the processors.
        logits: ``[rows, vocab]``, processed.
        before, context: the arguments of ``chain.process`` in that step.
        row: the row of the logits.
        name: the name of the row in the message.
        position: its number of tokens, prompt included.
        tokens: its accepted tokens.
    """
    values = context.backend.to_numpy(logits)[row]
    wrong = np.flatnonzero(~(values < np.inf))
    if not wrong.size:
        return None
    label = _first(_unsound, chain, range(len(chain)), None, before, context, row)
    if label is not None:
        by = f"Processor {label!r} returned them, as it does for equal logits of all tokens"
    elif chain.labels:
        by = f"The model or a processor of the chain ({', '.join(chain.labels)}) computed them"
    else:
        by = "The model computed them"
    return InvalidLogits(
        f"The logits of {name} are no distribution at step {len(tokens)} (position {position})"
        f"{written(chain, context, tokens)}: {wrong.size} of {values.size} are NaN or +inf, the first that of token "
        f"{wrong[0]}, {values[wrong[0]]}. {by}; compute in a wider type, such as float32."
    )


def written(chain: Chain, context: Context, tokens: Sequence[int]) -> str:
    """`` after 'text'`` for the text of a row so far; empty if there is no text or no vocabulary."""
    vocabulary = context.vocabulary or chain.vocabulary
    return f" after {vocabulary.decode(list(tokens))!r}" if vocabulary is not None and tokens else ""
