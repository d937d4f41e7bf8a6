"""Prefix allowed tokens: a function maps the ids so far to the ids that are allowed next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import MASK, Array, Context, Processor, option
from logitloom.errors import OptionError, OptionTypeError

__all__ = ["Origin", "PrefixAllowedTokens"]


class Origin(NamedTuple):
    """Where a row comes from.

    Attributes:
        row: ``[rows] int32``: the number of its row at the start. Copies of a row (beams) keep it.
    """

    row: Array


@dataclass(frozen=True)
class PrefixAllowedTokens(Processor):
    """Allow only the ids that a function names.

    The function gets the number of the row at the start and the ids of the row (``[n] int32``, prompt included), and
    returns the ids that may come next, end-of-sequence among them where the text may end. The function is called once a
    step for each row, and must depend on its arguments alone. Where a tokenizer is known, rows that have ended are left
    as they are.

    Example:
        >>> from logitloom import processors
        >>> def after_itself(row, ids):
        ...     return [ids[-1], 3]
        >>> chain = processors.load(("prefix_allowed_tokens", {"function": after_itself}))
        >>> logits = np.zeros((2, 4), dtype=np.float32)
        >>> context = Context.start(logits, prompt=[[1], [0, 2]], max_length=8)
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[-inf,   0., -inf,   0.],
               [-inf, -inf,   0.,   0.]], dtype=float32)

    References:
        N. De Cao et al., "Autoregressive entity retrieval", ICLR 2021.
    """

    stage = "constraint"
    needs = frozenset({"prompt", "history"})
    compilable = False
    effect = MASK

    function: Callable[[int, NDArray[np.int32]], Iterable[int]] = option(
        help="Function of the number of a row and its ids that returns the ids that may come next."
    )
    beams: int = option(
        1,
        help="How many neighbouring rows belong to one prompt at the start; they get the same number.",
        ge=1,
        unit="rows",
    )

    def init_state(self, context: Context) -> Origin:
        """The numbers of the rows."""
        return Origin(context.backend.asarray(np.arange(context.batch, dtype=np.int32) // self.beams))

    def states_after(self, state: Origin, context: Context) -> Origin:
        """Tokens change nothing."""
        assert context.tokens is not None
        return Origin(context.backend.concat_rows([state.row] * (context.tokens.shape[1] + 1)))

    def process(self, logits: Array, state: Origin, context: Context) -> tuple[Array, Origin]:
        """A call of the function for each row, then one masked fill.

        Raises:
            OptionError: if the function names no id, or one outside the logits, or raises an exception, which is then
                the cause of the error.
            OptionTypeError: if it returns anything but integers.
        """
        backend, width = context.backend, int(logits.shape[-1])
        sequence, length, prompt, origin = (
            backend.to_numpy(array) for array in (context.sequence, context.length, context.prompt_length, state.row)
        )
        ends = frozenset() if context.vocabulary is None else frozenset(context.vocabulary.eos)
        forbidden = np.ones((len(origin), width), dtype=bool)
        for row, number in enumerate(origin.tolist()):
            ids = sequence[row, : length[row]]
            if length[row] > prompt[row] and int(ids[-1]) in ends:
                forbidden[row] = False
            else:
                forbidden[row, self._allowed(number, ids, width)] = False
        return backend.masked_fill(logits, backend.asarray(forbidden), float("-inf"), context.donate), state

    def _allowed(self, number: int, ids: NDArray[np.int32], width: int) -> NDArray[np.int64]:
        try:
            found: Any = self.function(number, ids.copy())
        except Exception as error:
            raise OptionError(
                f"The function of 'prefix_allowed_tokens' raised {type(error).__name__} ({error!s:.300}) for row "
                f"{number} after the ids {ids[-8:].tolist()}."
            ) from error
        # The ids may be an array, or elements of one, on any device.
        listed = found.tolist() if hasattr(found, "tolist") else found
        if isinstance(listed, Iterable):
            items = [each.item() if hasattr(each, "item") else each for each in listed]
            array = np.asarray(items, dtype=object if any(isinstance(each, Iterable) for each in items) else None)
        else:
            array = np.asarray(None)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise OptionTypeError(
                f"The function of 'prefix_allowed_tokens' must return a list of ids, but for row {number} after "
                f"{len(ids)} ids it returned {found!r:.100}."
            )
        if not array.size:
            raise OptionError(
                f"The function of 'prefix_allowed_tokens' allows no id for row {number} after the ids "
                f"{ids[-8:].tolist()}. Return end-of-sequence where nothing else may come."
            )
        if array.min() < 0 or array.max() >= width:
            wrong = array[(array < 0) | (array >= width)][0]
            raise OptionError(
                f"The function of 'prefix_allowed_tokens' names the id {wrong} for row {number}; ids of these logits "
                f"are 0 to {width - 1}."
            )
        return array.astype(np.int64)
