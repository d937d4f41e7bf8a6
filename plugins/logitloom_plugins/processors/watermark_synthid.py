"""SynthID watermark: a tournament of the candidates, whose winners are decided by keyed coins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import REWEIGHT, Array, Context, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import OptionError
from logitloom_plugins.processors._precision import in_dtype_of
from logitloom_plugins.watermarks.detection import Detection, binomial, text_ids
from logitloom_plugins.watermarks.mersenne import draws

__all__ = ["SynthidState", "WatermarkSynthid"]

_MULTIPLIER = np.int64(6364136223846793005)

Ints = NDArray[np.int64]


class SynthidState(NamedTuple):
    """State: a row tree.

    Attributes:
        context: ``[rows, ngram_len - 1] int32``, the last generated tokens, 0 before there are any.
        history: ``[rows, history_size, 2] int32``, hashes of earlier contexts (high and low half), newest first.
        steps: ``[rows] int32``, how many tokens were generated.
    """

    context: Array
    history: Array
    steps: Array


@dataclass(frozen=True)
class WatermarkSynthid(Processor):
    """Reweigh probabilities by a tournament with one layer per key; on average over keys nothing is distorted.

    In each layer every token has a coin ``g`` (0 or 1), which the key, the last ``ngram_len - 1`` generated tokens and
    the token decide: ``p *= 1 + g - sum(g * p)``. A context that came before in the row is not marked again. The
    result is a log-probability.

    Coins are those of transformers' ``SynthIDTextWatermarkingConfig`` with the same options. Coins are tossed on the
    host: as many hashes as the vocabulary has tokens, for each row and key. Drafts keep the mark.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("watermark_synthid", {"keys": [654, 400, 836], "ngram_len": 3}))
        >>> logits = np.log(np.array([[0.5, 0.3, 0.2]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> out, state = chain.process(logits, chain.init_state(context), context)
        >>> float(np.exp(out).sum().round(4))
        1.0
        >>> chain["watermark_synthid"].detect([2, 0, 1, 1, 2], vocab_size=3).scored
        9

    References:
        S. Dathathri et al., "Scalable watermarking for identifying large language model outputs", 2024.
    """

    stage = "warp"
    compilable = False
    effect = REWEIGHT

    keys: tuple[int, ...] = option(help="The secret keys, one per layer of the tournament; usually 20 to 30.")
    ngram_len: int = option(
        5, help="Number of tokens that seed a random bit, the new one included.", ge=2, le=1024, unit="tokens"
    )
    table_size: int = option(2**16, help="Number of random bits in the table.", ge=1, le=1 << 24, unit="coins")
    table_seed: int = option(0, help="Seed of the table of random bits.", ge=0)
    history_size: int = option(
        1024,
        help="Number of earlier contexts of a row that are not watermarked again.",
        ge=1,
        le=1 << 20,
        unit="contexts",
    )
    skip_first: bool = option(False, help="Whether the first ngram_len - 1 tokens are left unmarked.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.keys:
            raise OptionError("Option 'keys' of 'watermark_synthid' is empty. Give at least one integer, as a secret.")

    @cached_property
    def _coins(self) -> NDArray[np.bool_]:
        coins: NDArray[np.bool_] = draws(self.table_seed, self.table_size) % 2 == 1
        return coins

    def init_state(self, context: Context) -> SynthidState:
        """No tokens, no contexts."""
        shapes = ((context.batch, self.ngram_len - 1), (context.batch, self.history_size, 2), (context.batch,))
        return SynthidState(*(context.backend.asarray(np.zeros(shape, dtype=np.int32)) for shape in shapes))

    def process(self, logits: Array, state: SynthidState, context: Context) -> tuple[Array, SynthidState]:
        """Hashes on the host; a softmax, and three sweeps over the vocabulary per key."""
        backend, xp = context.backend, context.backend.xp
        state, before, seen, steps = self._advanced(state, context)
        hashed = _accumulated(np.ones(len(before), dtype=np.int64), before)
        marked = ~(seen == hashed[:, None]).any(axis=1)
        if self.skip_first:
            marked &= steps + 1 >= self.ngram_len
        vocab = logits.shape[-1]
        grams = _accumulated(hashed[:, None] + np.zeros(vocab, dtype=np.int64), np.arange(vocab)[None, :, None])
        p = backend.softmax(logits)
        for key in self.keys:
            coins = backend.asarray(self._tossed(grams, key), "float32")
            p = p * (1.0 + coins - xp.sum(coins * p, axis=-1, keepdims=True))
        possible = p > 0
        won = xp.log(xp.where(possible, p, xp.ones_like(p)))
        won = backend.masked_fill(in_dtype_of(logits, backend, won), xp.logical_not(possible), NEG_INF)
        return xp.where(backend.asarray(marked)[:, None], won, logits), state

    def detect(self, ids: Sequence[int], *, vocab_size: int = 0) -> Detection:
        """Look for the mark in a text: how many coins of its tokens are heads, over all keys.

        The p-value assumes independent coins for different keys. The coins of a small table are not quite independent:
        with 512 entries the p-value may be a fifth too large or too small at 1 %.

        Args:
            ids: the text's tokens, without the prompt.
            vocab_size: unused; the coins do not depend on it.

        Raises:
            InvalidContext: ``ids`` are not the ids of one text.
        """
        del vocab_size
        ids = text_ids(ids)
        tokens = np.asarray(ids, dtype=np.int64)
        count = len(tokens) - self.ngram_len + 1
        if count <= 0:
            return binomial(0, 0, 0.5, ids)
        windows = np.lib.stride_tricks.sliding_window_view(tokens, self.ngram_len)
        contexts = _accumulated(np.ones(count, dtype=np.int64), windows[:, :-1])
        grams = _accumulated(contexts, windows[:, -1:])
        # A token that follows the same context again has the same coins, so the token is no further evidence.
        first = np.sort(np.unique(contexts, return_index=True)[1])
        heads = sum(int(self._tossed(grams[first], key).sum()) for key in self.keys)
        return binomial(heads, len(first) * len(self.keys), float(self._coins.mean()), ids)

    def _tossed(self, grams: Ints, key: int) -> NDArray[np.bool_]:
        """The coins of hashed n-grams in the layer of a key."""
        hashed, size = _accumulated(grams, np.asarray([key])), self.table_size
        # For a power of two the lowest bits are the remainder; a division takes a third of the time of a step.
        entries = hashed & (size - 1) if size & (size - 1) == 0 else hashed % size
        found: NDArray[np.bool_] = self._coins[entries]
        return found

    def _advanced(self, state: SynthidState, context: Context) -> tuple[SynthidState, Ints, Ints, Ints]:
        """The state after the new tokens, and on the host its contexts, hashes of earlier ones, and steps."""
        backend = context.backend
        before = backend.to_numpy(state.context).astype(np.int64)
        halves = backend.to_numpy(state.history).astype(np.int64)
        seen = (halves[..., 0] << 32) | (halves[..., 1] & 0xFFFFFFFF)
        steps = backend.to_numpy(state.steps).astype(np.int64)
        tokens = np.zeros((len(before), 0)) if context.tokens is None else backend.to_numpy(context.tokens)
        if not (tokens >= 0).any():
            return state, before, seen, steps
        for column in tokens.T.astype(np.int64):
            there = column >= 0
            hashed = _accumulated(np.ones(len(before), dtype=np.int64), before)
            # The context of a skipped position is not noted, so a later position with this context is marked.
            noted = there & (steps + 1 >= self.ngram_len) if self.skip_first else there
            seen = np.where(noted[:, None], np.concatenate([hashed[:, None], seen[:, :-1]], axis=1), seen)
            before = np.where(there[:, None], np.concatenate([before[:, 1:], column[:, None]], axis=1), before)
            steps = steps + there
        low = (seen & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        halves = np.stack([(seen >> 32).astype(np.int32), low.reshape(seen.shape)], axis=-1)
        parts = (before.astype(np.int32), halves, steps.astype(np.int32))
        return SynthidState(*(backend.asarray(part) for part in parts)), before, seen, steps


def _accumulated(hashed: Ints, data: NDArray[np.integer]) -> Ints:
    """The hash after more data, whose last axis is the order; products wrap."""
    with np.errstate(over="ignore"):
        for i in range(data.shape[-1]):
            hashed = (hashed + data[..., i]) * _MULTIPLIER + np.int64(1)
    return hashed
