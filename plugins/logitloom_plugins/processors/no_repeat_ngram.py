"""No repeated n-grams: forbid tokens that would complete an n-gram a second time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import MASK, Array, Backend, Context, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.compiled_steps import as_one_function

__all__ = ["NoRepeatNgram", "forbid_repeated"]


@dataclass(frozen=True)
class NoRepeatNgram(Processor):
    """Forbid each token that would complete an n-gram which the row already contains, prompt included.

    A token ``t`` is forbidden if some earlier ``n - 1`` tokens equal the last ``n - 1`` and ``t`` follows them.
    With ``n = 1`` no token may come twice.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("no_repeat_ngram", {"n": 2}))
        >>> logits = np.zeros((1, 4), dtype=np.float32)
        >>> context = Context.start(logits, prompt=[[1, 2, 1]], max_length=8)
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[  0.,   0., -inf,   0.]], dtype=float32)

    References:
        R. Paulus, C. Xiong, R. Socher, "A deep reinforced model for abstractive summarization", 2017.
    """

    stage = "constraint"
    needs = frozenset({"prompt", "history"})
    effect = MASK.but(reads=("seen",))

    n: int = option(help="Length of the n-grams.", ge=1, unit="tokens")

    @as_one_function
    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """One scan over the history with ``n - 1`` comparisons, and a store per repetition."""
        return forbid_repeated(logits, self.n, context), state


def forbid_repeated(logits: Array, n: int, context: Context, within: Array | None = None) -> Array:
    """The logits without the tokens that would complete an n-gram of the history once more.

    Args:
        logits: ``[rows, vocab]``.
        n: length of the n-grams.
        context: with the history.
        within: ``[rows] int32``: only the n-grams of so many first tokens count; default: of all.
    """
    sequence, backend = context.sequence, context.backend
    assert sequence is not None
    if sequence.shape[1] < n:
        return logits
    history = [sequence, context.length] if within is None else [sequence, context.length, within]
    memory = None if context.compiled else backend.shared_memory(logits)
    # On the same memory NumPy's calls take a third of the time of PyTorch's.
    views = [] if memory is None else [memory.view(array) for array in history]
    if memory is None or any(view is None for view in views):
        tokens = _completing(backend, n, *history)
    else:
        tokens = memory.array(_completing(memory.backend, n, *views))
    return backend.set_at(logits, tokens, NEG_INF, context.donate)


def _completing(backend: Backend, n: int, sequence: Array, length: Array, within: Array | None = None) -> Array:
    """The tokens that would complete an n-gram once more, -1 between them: ``[rows, capacity - n + 1] int32``."""
    xp, capacity, ahead = backend.xp, sequence.shape[1], n - 1
    # The token after the last n - 1 tokens is the fill, -1; if a row has fewer tokens, all are the fill.
    following = sequence[:, ahead:]
    if within is not None:
        columns = backend.arange(capacity - ahead)[None, :] + ahead
        following = xp.where(columns < within[:, None], following, -1)
    again = following >= 0
    if ahead:
        positions = length[:, None] - ahead + backend.arange(ahead)[None, :]
        last = backend.gather(sequence, xp.where((positions >= 0) & (positions < capacity), positions, 0))
        for j in range(ahead):
            again = again & (sequence[:, j : capacity - ahead + j] == last[:, j : j + 1])
    return xp.where(again, following, -1)
