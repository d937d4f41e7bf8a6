"""Green list watermark: favour a secret part of the vocabulary that follows from the tokens before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from logitloom import BIAS, Array, Context, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.occurrences import Recent, recent, slide, windows
from logitloom_plugins.processors._precision import is_float16, saturated
from logitloom_plugins.watermarks.detection import Detection, binomial, text_ids
from logitloom_plugins.watermarks.mersenne import first_of_permutation, permutation, stands_among_first

__all__ = ["WatermarkGreenlist"]

#: Size of the table that hashes ids, and of how many candidates ``selfhash`` tries, as published.
_TABLE, _CANDIDATES = 1_000_003, 40
#: Green lists that are remembered, as bits.
_REMEMBERED = 1024


@dataclass(frozen=True)
class WatermarkGreenlist(Processor):
    """Add a bias to the logits of green tokens: a fraction of the vocabulary, drawn anew for each context from a key.

    With ``lefthash`` the last token seeds the list. With ``selfhash`` the token itself takes part: each of the 40 most
    likely tokens is favoured if it is in the list seeded by the last ``width - 1`` tokens and itself; this mark is
    harder to guess, and slower to make. Prompts count as context; rows with fewer tokens than ``width`` are not marked.

    The lists equal those of transformers' ``WatermarkingConfig`` with the same options, so logitloom detects
    transformers' marks and transformers detects logitloom's. The lists are drawn on the host. Drafts keep the mark: the
    model verifies drafts under the marked distribution. A constraint in the same chain weakens the mark where the
    constraint leaves no choice; put the watermark before the constraint.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("watermark_greenlist", {"ratio": 0.5, "bias": 3.0}))
        >>> logits = np.zeros((1, 6), dtype=np.float32)
        >>> context = Context.start(logits, prompt=[[2]])
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[3., 0., 3., 3., 0., 0.]], dtype=float32)
        >>> text = [2, 5, 0, 1, 4, 4, 3, 2, 0]
        >>> chain["watermark_greenlist"].detect(text, vocab_size=6).scored
        8

    References:
        J. Kirchenbauer et al., "A watermark for large language models", 2023; "On the reliability of watermarks for
        large language models", 2024 (the two ways to seed).
    """

    stage = "penalty"
    needs = frozenset({"prompt"})
    compilable = False
    effect = BIAS

    ratio: float = option(0.25, help="Part of the vocabulary that is green.", gt=0.0, lt=1.0)
    bias: float = option(2.0, help="Number added to the logits of green tokens.", gt=0.0, le=100.0)
    key: int = option(15485863, help="The secret key; with it the watermark can be detected and removed.", ge=1)
    scheme: Literal["lefthash", "selfhash"] = option(
        "lefthash", help="Which tokens seed a list: 'lefthash' those before, 'selfhash' also the new one."
    )
    width: int = option(
        1, help="Number of tokens that seed a list, the new one included with 'selfhash'.", ge=1, le=1024, unit="tokens"
    )

    @cached_property
    def _lists(self) -> OrderedDict[tuple[int, int], NDArray[np.uint8]]:
        return OrderedDict()

    def init_state(self, context: Context) -> Recent:
        """The end of the prompt."""
        return recent(context, True, self.width)

    def states_after(self, state: Recent, context: Context) -> Recent:
        """A window per token."""
        return windows(state, context)

    def process(self, logits: Array, state: Recent, context: Context) -> tuple[Array, Recent]:
        """A list per row, drawn or remembered, and an addition."""
        backend, state = context.backend, slide(state, context)
        green = np.zeros(tuple(logits.shape), dtype=np.bool_)
        before = backend.to_numpy(state.tokens).tolist()
        tops: list[list[int]] = []
        if self.scheme == "selfhash":
            count = min(_CANDIDATES, logits.shape[-1])
            tops = backend.to_numpy(backend.top_k(logits, count)[1]).tolist()
        for row, tokens in enumerate(before):
            if min(tokens) < 0:
                continue
            if self.scheme == "lefthash":
                green[row] = self._green(self._seed(tokens), logits.shape[-1])
            else:
                green[row, [t for t in tops[row] if self.is_green([*tokens, t], logits.shape[-1])]] = True
        bias = backend.asarray(green, "float32") * self.bias
        if is_float16(backend, logits):
            return saturated(backend, logits, backend.add(logits, bias)), state
        return backend.masked_fill(backend.add(logits, bias, context.donate), logits == NEG_INF, NEG_INF, True), state

    def is_green(self, ids: Sequence[int], vocab_size: int) -> bool:
        """Whether the last of some ids is green after the others.

        Args:
            ids: the token, preceded by the tokens that seed the token's list.
            vocab_size: columns of the logits.
        """
        return self._stands(*self._coin(ids), vocab_size)

    def detect(self, ids: Sequence[int], *, vocab_size: int, ignore_repeated: bool = True) -> Detection:
        """Look for the mark in a text.

        Args:
            ids: the text's tokens; best without the prompt.
            vocab_size: columns of the logits of the model that wrote it (often more than the tokenizer has ids).
            ignore_repeated: whether a token counts once for each list in which it was looked for, as it must for the
                p-value to be right. One token of the context may decide the list alone, so there are fewer pairs of
                a token and a list than n-grams. transformers counts each place by default, else each n-gram once.

        Raises:
            InvalidContext: ``ids`` are not the ids of one text.
        """
        ids = text_ids(ids, vocab_size)
        count = self.width if self.scheme == "selfhash" else self.width + 1
        grams = [tuple(ids[i : i + count]) for i in range(len(ids) - count + 1)]
        coins = [self._coin(gram) for gram in grams]
        if ignore_repeated:
            coins = list(dict.fromkeys(coins))
        known = {coin: self._stands(*coin, vocab_size) for coin in set(coins)}
        chance = int(vocab_size * self.ratio) / vocab_size
        return binomial(sum(known[coin] for coin in coins), len(coins), chance, ids)

    def _coin(self, ids: Sequence[int]) -> tuple[int, int]:
        """What decides whether the last of some tokens is green: the seed of its list, and the token."""
        return self._seed(ids if self.scheme == "selfhash" else ids[:-1]), ids[-1]

    def _stands(self, seed: int, token: int, vocab_size: int) -> bool:
        return stands_among_first(seed, vocab_size, int(vocab_size * self.ratio), token)

    def _seed(self, ids: Sequence[int]) -> int:
        if self.scheme == "lefthash":
            return (self.key * ids[-1]) % (2**64 - 1)
        table = permutation(self.key, _TABLE)
        hashed = table[np.asarray(ids[-self.width :], dtype=np.int64) % _TABLE] + 1
        with np.errstate(over="ignore"):  # products wrap, as published
            products = np.int64(self.key) * hashed * hashed[-1]
        return int(products.min()) % (2**64 - 1)

    def _green(self, seed: int, vocab: int) -> NDArray[np.bool_]:
        """``[vocab]``: the list of a seed."""
        packed = self._lists.get((seed, vocab))
        if packed is None:
            green = np.zeros(vocab, dtype=np.bool_)
            green[first_of_permutation(seed, vocab, int(vocab * self.ratio))] = True
            packed = self._lists[(seed, vocab)] = np.packbits(green)
            while len(self._lists) > _REMEMBERED:
                self._lists.popitem(last=False)
        return np.unpackbits(packed, count=vocab).astype(np.bool_)
