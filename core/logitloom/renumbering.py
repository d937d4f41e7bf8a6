"""The tokens of some sequences as numbers of their own, for processors that change no other token's logit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.backend import Array, Backend
from logitloom.context import Context

__all__ = ["Renumbering"]

#: The sequences must have at most one of so many tokens of the vocabulary for their numbers to save time.
_LEAST_SAVED: Final = 16
#: Widths are multiples of it, so that libraries that compile an operation for each shape meet few shapes.
_STEP: Final = 64


class Renumbering(NamedTuple):
    """Each sequence's own tokens, prompt included, numbered in the order of their ids.

    Attributes:
        ids: per sequence its tokens that the logits have a column for: ascending, host integers.
        width: columns of the narrow logits, at least as many as any sequence has tokens.
        tokens: ``[batch, time] int32``, the sequences in the new numbers; -1 stays.
        context: of the start, in the new numbers.
    """

    ids: tuple[NDArray[np.int64], ...]
    width: int
    tokens: NDArray[np.int32]
    context: Context

    @classmethod
    def of(
        cls, tokens: NDArray[np.int32], context: Context, vocab: int, least_saved: int = _LEAST_SAVED
    ) -> Renumbering | None:
        """The numbers of the sequences' tokens; None if too many tokens of the vocabulary have one to gain anything.

        Args:
            tokens: ``[batch, time]``, -1 behind the end.
            context: of the start.
            vocab: columns of the logits. Ids of a prompt that lie beyond have a number, but no column.
            least_saved: the vocabulary must be so many times as large as the number of columns.
        """
        prompts = context.prompt if context.prompt is not None else ((),) * len(tokens)
        every = [
            np.unique(np.concatenate([np.asarray(prompt, dtype=np.int64), row[row >= 0]]))
            for prompt, row in zip(prompts, tokens, strict=True)
        ]
        ids = tuple(found[found < vocab] for found in every)
        width = -(-max(map(len, ids)) // _STEP) * _STEP
        if not width or width * least_saved > vocab:
            return None
        numbered = [np.where(row >= 0, found.searchsorted(row), -1) for row, found in zip(tokens, every, strict=True)]
        # An id without a column gets a number beyond the columns.
        beyond = [np.where(found < vocab, np.arange(len(found)), width + np.arange(len(found))) for found in every]
        told = tuple(
            tuple(number[found.searchsorted(np.asarray(prompt, dtype=np.int64))].tolist())
            for prompt, found, number in zip(prompts, every, beyond, strict=True)
        )
        narrow = context.with_fields(vocab_size=width, prompt=None if context.prompt is None else told)
        return cls(ids, width, np.stack(numbered).astype(np.int32), narrow)

    def columns(self, backend: Backend, logits: Array) -> Array:
        """The logits of each sequence's own tokens, ``[positions * batch, width]``.

        Args:
            backend: of the logits.
            logits: ``[positions, batch, vocab]``.
        """
        xp, padded = backend.xp, self._padded(0)
        rows = [xp.take(logits[:, row, :], backend.asarray(ids), axis=1) for row, ids in enumerate(padded)]
        return rows[0] if len(rows) == 1 else xp.reshape(_side_by_side(backend, rows), (-1, self.width))

    def restored(self, backend: Backend, logits: Array, columns: Array, donate: bool) -> Array:
        """The logits with those of each sequence's own tokens replaced.

        Args:
            backend: of the logits.
            logits: ``[positions, batch, vocab]``.
            columns: as from :meth:`columns`.
            donate: whether the logits may be written into.
        """
        xp, (count, batch, vocab) = backend.xp, logits.shape
        if donate:
            written = np.tile(self._padded(-1).astype(np.int64), (count, 1))
            flat = backend.write_at(xp.reshape(logits, (-1, vocab)), backend.asarray(written), columns, True)
            return xp.reshape(flat, logits.shape)
        columns, rows = xp.reshape(columns, (count, batch, self.width)), []
        for row, ids in enumerate(self.ids):
            column = np.zeros(vocab, dtype=np.int32)
            column[ids] = np.arange(len(ids))
            known = np.zeros((1, vocab), dtype=np.bool_)
            known[:, ids] = True
            wide = xp.take(columns[:, row, :], backend.asarray(column), axis=1)
            rows.append(xp.where(backend.asarray(known), wide, logits[:, row, :]))
        return _side_by_side(backend, rows)

    def _padded(self, filler: int) -> NDArray[np.int32]:
        """``[batch, width]``: each sequence's own ids, and ``filler`` behind them."""
        padded = np.full((len(self.ids), self.width), filler, dtype=np.int32)
        for row, ids in zip(padded, self.ids, strict=True):
            row[: len(ids)] = ids
        return padded


def _side_by_side(backend: Backend, rows: Sequence[Array]) -> Array:
    """``[positions, len(rows), width]`` of arrays ``[positions, width]``."""
    return backend.xp.concat([backend.xp.reshape(row, (len(row), 1, -1)) for row in rows], axis=1)
