"""A second branch of each sequence: another model or another prompt, fed the same tokens, kept in a state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from logitloom import Array, Backend, Context
from logitloom.context import padded
from logitloom.errors import InvalidContext, OptionError
from logitloom.rows.tree import Rows

__all__ = [
    "Branch",
    "Tail",
    "accepted",
    "advance",
    "check_adapter",
    "check_model",
    "defer",
    "prompts",
    "split",
    "start",
]


class Tail(NamedTuple):
    """The end of one row of a branch.

    Attributes:
        tokens: the tokens that the cache does not hold yet or, if the cache holds all tokens, the last one.
        fed: whether the cache holds ``tokens``.
    """

    tokens: tuple[int, ...]
    fed: bool


class Branch(NamedTuple):
    """State: a row tree.

    Attributes:
        cache: the model's cache for the rows of this branch.
        tail: a :class:`Tail` per row.
    """

    cache: Any
    tail: Rows


def check_adapter(model: Any, owner: str) -> None:
    """Raise unless an object can be run as a model.

    Raises:
        OptionError: naming the object.
    """
    if not all(hasattr(model, name) for name in ("forward", "empty_cache", "vocab_size")):
        raise OptionError(
            f"Option 'model' of {owner!r} must be a model adapter with vocab_size, forward and empty_cache, but is "
            f"{model!r:.200}."
        )


def check_model(model: Any, context: Context, owner: str) -> None:
    """Raise unless ``model`` is a model adapter whose logits are as wide as the logits of the context.

    Raises:
        InvalidContext: naming both widths.
        OptionError: if it is no model adapter.
    """
    check_adapter(model, owner)
    if model.vocab_size != context.vocab_size:
        raise InvalidContext(
            f"Processor {owner!r}: its model has {model.vocab_size} tokens, but the logits have {context.vocab_size} "
            f"columns. Both branches must share one vocabulary; take a model of the same family."
        )


def prompts(context: Context, reader: str, owner: str) -> Sequence[Sequence[int]]:
    """The prompts of the generation, from which the model of a branch continues.

    Args:
        context: of the generation; the processor needs ``prompt``.
        reader: the part that continues from the prompts, for the message.
        owner: name of the processor, for the message.

    Raises:
        InvalidContext: if a prompt is empty.
    """
    assert context.prompt is not None
    for row, prompt in enumerate(context.prompt):
        if not prompt:
            raise InvalidContext(f"{owner!r}: the prompt of row {row} has no tokens for {reader} to continue from.")
    return context.prompt


def start(model: Any, prompts: Sequence[Sequence[int]]) -> Branch:
    """The branch before its first pass: nothing is computed until logits are asked for."""
    return Branch(model.empty_cache(len(prompts)), Rows(Tail(tuple(prompt), False) for prompt in prompts))


def accepted(context: Context, rows: int) -> list[list[int]]:
    """The tokens that each row accepted since its state was made, on the host."""
    if context.tokens is None or context.tokens.shape[1] == 0:
        return [[] for _ in range(rows)]
    return [[token for token in row if token >= 0] for row in context.backend.to_numpy(context.tokens).tolist()]


def advance(model: Any, branch: Branch, tokens: Sequence[Sequence[int]], backend: Backend) -> tuple[Array, Branch]:
    """Append tokens to the rows of a branch, in one pass.

    Args:
        model: the branch's model adapter.
        branch: stays valid.
        tokens: per row, possibly none.
        backend: where the logits are wanted.

    Returns:
        ``[rows, vocab]`` logits after each row's last token, and the branch after them.
    """
    lengths = np.array(branch.cache.lengths, dtype=np.int32)
    fed: list[tuple[int, ...]] = []
    shorter = False
    for row, (tail, new) in enumerate(zip(branch.tail, tokens, strict=True)):
        pending = tuple(new) if tail.fed else (*tail.tokens, *new)
        if not pending:
            # The logits of a row that did not move are computed again rather than kept for every row.
            lengths[row] -= 1
            shorter, pending = True, tail.tokens
        fed.append(pending)
    tails = Rows(Tail(row[-1:], True) for row in fed)
    cache = branch.cache.crop(lengths) if shorter else branch.cache
    if lengths.any():
        logits, cache = model.forward(padded(fed), cache)
        return _placed(logits, model.backend, backend), Branch(cache, tails)
    # At the start, rows with one prompt (beams, samples) are computed once.
    unique = list(dict.fromkeys(fed))
    logits, cache = model.forward(padded(unique), model.empty_cache(len(unique)))
    if len(unique) < len(fed):
        index_of = {row: i for i, row in enumerate(unique)}
        index = np.asarray([index_of[row] for row in fed], dtype=np.int32)
        logits, cache = model.backend.take_rows(logits, index), cache.take_rows(index)
    return _placed(logits, model.backend, backend), Branch(cache, tails)


def defer(branch: Branch, tokens: Sequence[Sequence[int]]) -> Branch:
    """The branch after tokens that the model will see in a later pass."""
    if not any(len(new) for new in tokens):
        return branch
    tails = (
        Tail(tuple(new), False) if tail.fed and new else Tail((*tail.tokens, *new), tail.fed)
        for tail, new in zip(branch.tail, tokens, strict=True)
    )
    return Branch(branch.cache, Rows(tails))


def split(logits: Array, context: Context, owner: str) -> tuple[Array, Array]:
    """The two branches of a one-pass form: the first and the second half of the rows.

    Raises:
        InvalidContext: if the rows are not two per sequence.
    """
    total = int(logits.shape[0])
    rows = total // 2 if context.tokens is None else int(context.tokens.shape[0])
    if total != 2 * rows:
        raise InvalidContext(
            f"Processor {owner!r} in its one-pass form takes two rows of logits per sequence, first all conditional "
            f"ones, then all others, but got {total} rows for {rows} sequences. Feed the prompts of "
            f"chain.branch_prompts(context) as further rows, or choose form='two_pass'."
        )
    return logits[:rows, :], logits[rows:, :]


def _placed(logits: Array, made_by: Backend, wanted: Backend) -> Array:
    """The logits on another backend, through the host."""
    return logits if made_by is wanted else wanted.asarray(made_by.to_numpy(logits))
