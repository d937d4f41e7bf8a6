"""Checked: a function of the text accepts or refuses tokens, in the order in which they would be sampled."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Context, Effect, Processor, Vocabulary, load_backend, option
from logitloom.arrays import rng
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import NoLegalToken, OptionError, OptionTypeError
from logitloom.vocabulary import kept_with_vocabulary

__all__ = ["Checked", "CheckedState"]

#: Distinguishes the random draws of this processor from the draws of other processors at the same step.
_STREAM: Final = 0x636B6564
#: How many tokens are put in order first; then eight times as many, and so on.
_FIRST: Final = 16
#: The end of a text in messages, in characters.
_SHOWN: Final = 200


class CheckedState(NamedTuple):
    """State: a row tree.

    Attributes:
        seed: ``[rows] int32``.
    """

    seed: Array


class _TextSoFar(NamedTuple):
    """What a row has written.

    Attributes:
        row: the number of the row in the batch.
        text: the whole characters.
        rest: the bytes of a character that is not whole yet.
    """

    row: int
    text: str
    rest: bytes


@dataclass(frozen=True)
class Checked(Processor):
    """Forbid all tokens but the first that a function of the text accepts, in the order of sampling.

    ``check(text, False)`` tells whether a text may go on from here, and ``check(text, True)``, which is asked about
    end-of-sequence, whether the text may end. Tokens are asked about one by one: with ``sample=True`` by falling
    ``logit - log(-log(u))``, ``u`` uniform for each token, which is the order of draws without replacement; with
    ``sample=False`` by falling logit. So the token that stays is an exact draw from the distribution over the accepted
    tokens, or the likeliest of them. A step asks about one over their probability questions on average. Put the
    processor last in a chain: tokens that are forbidden before are not asked about, and temperatures and truncations
    before it count. If no token is accepted, all are forbidden.

    A character that a token leaves unfinished is U+FFFD in the text. Tokens that write no text, and tokens that break a
    character, are never accepted. Rows that have ended are left as they are. A row draws from its own seed and length,
    so a row draws the same in any batch, on any backend, and after it is rebuilt.

    Example:
        >>> import numpy as np
        >>> from logitloom import Context, Vocabulary, processors
        >>> words = Vocabulary([b"", b"(", b")", b"x"], eos=[0])
        >>> def balanced(text, ends):
        ...     depths = [text[:n].count("(") - text[:n].count(")") for n in range(len(text) + 1)]
        ...     return min(depths) >= 0 and not (ends and depths[-1])
        >>> chain = processors.load(("checked", {"check": balanced, "sample": False}), tokenizer=words)
        >>> logits = np.array([[2, 1, 3, 0]], dtype=np.float32)
        >>> context = Context.start(logits, prompt=[[3]], max_length=8, vocabulary=words)
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[  2., -inf, -inf, -inf]], dtype=float32)

    References:
        C. Maddison, D. Tarlow, T. Minka, "A* sampling", 2014 (the largest perturbed logit is a sample); W. Kool,
        H. van Hoof, M. Welling, "Stochastic beams and where to find them", 2019 (the order is that of draws without
        replacement); B. Lipkin et al., "Fast controlled generation from language models with adaptive weighted
        rejection sampling", 2025.
    """

    stage = "warp"
    needs = frozenset({"prompt", "history", "vocabulary"})
    compilable = False
    effect = Effect("forbids", reads=("distribution", "ids", "seen"))

    sample: bool = option(
        help="Whether a token is drawn from the distribution of the accepted tokens; otherwise the likeliest is taken."
    )
    check: Callable[[str, bool], bool] = option(
        help="Function of a text, and of whether the text ends there, that tells whether the text is accepted."
    )
    questions: int = option(
        1000, help="Most questions about a row in one step; a row that needs more is an error.", ge=1
    )
    include_prompt: bool = option(False, help="Whether the text that the function gets begins with the prompt.")

    def init_state(self, context: Context) -> CheckedState:
        """One seed per row."""
        return CheckedState(context.backend.asarray(context.row_seeds()))

    def states_after(self, state: CheckedState, context: Context) -> CheckedState:
        """The seeds, once per token and once more: they never change."""
        assert context.tokens is not None
        return CheckedState(context.backend.concat_rows([state.seed] * (context.tokens.shape[1] + 1)))

    def process(self, logits: Array, state: CheckedState, context: Context) -> tuple[Array, CheckedState]:
        """Questions for each row, then one masked fill.

        Raises:
            NoLegalToken: the function refused as many texts as it may be asked about.
            OptionError: the function raised an exception, which is the cause of the error.
            OptionTypeError: the function returned something else than a truth value.
        """
        backend, words = context.backend, context.vocabulary
        assert words is not None
        host, sequence, length, prompt, seeds = (
            backend.to_numpy(array)
            for array in (logits, context.sequence, context.length, context.prompt_length, state.seed)
        )
        chosen = np.full(len(host), -1, dtype=np.int32)
        for row, line in enumerate(host):
            ids = sequence[row, : length[row]].tolist()
            generated = ids[prompt[row] :]
            # A row that has no number, or no token, is left to the caller, who says so.
            if not set(words.eos).isdisjoint(generated) or not NEG_INF < line.max() < np.inf:
                continue
            data = words.text_bytes(ids if self.include_prompt else generated)
            text, used = codecs.utf_8_decode(data, "replace", False)
            at = _TextSoFar(row, text, data[used:])
            chosen[row] = self._first(line, at, seeds[row : row + 1], length[row : row + 1], words)
        picked = backend.asarray(chosen)[:, None]
        others = (picked >= 0) & (backend.arange(logits.shape[-1])[None, :] != picked)
        return backend.masked_fill(logits, others, NEG_INF, context.donate), state

    def _first(
        self, line: NDArray[Any], at: _TextSoFar, seed: NDArray[Any], length: NDArray[Any], words: Vocabulary
    ) -> int:
        """The first token that the function accepts; the number of tokens if it accepts none.

        Args:
            line: ``[vocab]``: the logits of a row.
            at: what the row has written.
            seed, length: ``[1] int32``, of the row.
            words: the bytes of the tokens.
        """
        ids = _candidates(line, words, bool(at.rest))
        scores = line[ids].astype(np.float64)
        if self.sample:
            scores += _gumbel(seed, length, ids)
        known: dict[str | None, bool] = {}
        for index in _falling(scores):
            token = int(ids[index])
            more = None if token in words.eos else _characters(at.rest + words.token_bytes[token])
            if more is None and token not in words.eos:
                continue
            if more not in known:
                if len(known) == self.questions:
                    raise NoLegalToken(
                        f"The function of 'checked' refused all {self.questions} texts that it was asked about for row "
                        f"{at.row} after {at.text[-_SHOWN:]!r}. Raise the option 'questions', or put a constraint "
                        f"before 'checked' that forbids most of what the function refuses."
                    )
                known[more] = self._asked(at, more)
            if known[more]:
                return token
        return len(line)

    def _asked(self, at: _TextSoFar, more: str | None) -> bool:
        """The answer of the function about the text with more characters, or, for ``None``, about its end here."""
        text = at.text + (more or "")
        try:
            found = self.check(text, more is None)
        except Exception as error:
            raise OptionError(
                f"The function of 'checked' raised {type(error).__name__} ({error!s:.300}) for row {at.row}, asked "
                f"whether the text {text[-_SHOWN:]!r} may {'end there' if more is None else 'go on from there'}."
            ) from error
        if not isinstance(found, (bool, np.bool_)):
            raise OptionTypeError(
                f"The function of 'checked' must return True or False, but for row {at.row} and the text "
                f"{text[-_SHOWN:]!r} it returned {found!r:.100}."
            )
        return bool(found)


@kept_with_vocabulary
def _begins(vocabulary: Vocabulary) -> NDArray[np.int8]:
    """``[ids] int8``: 0 for a token without text, 2 for one that begins within a character, 1 for any other."""
    offsets = vocabulary.offsets
    first = np.append(vocabulary.flat_bytes, np.uint8(0))[offsets[:-1]]
    found = np.where(first & 0xC0 == 0x80, 2, 1).astype(np.int8)
    found[np.diff(offsets) == 0] = 0
    return found


def _candidates(line: NDArray[Any], words: Vocabulary, within: bool) -> NDArray[np.int32]:
    """``[n] int32``: the tokens that a row may have and that go on with its text, or end it, where it may end.

    Args:
        line: ``[vocab]``: the logits of the row.
        words: the bytes of the tokens.
        within: whether the text ends within a character.
    """
    begins = _begins(words)[: len(line)]
    legal = np.zeros(len(line), dtype=np.bool_)
    legal[: len(begins)] = begins == (2 if within else 1)
    if not within:
        legal[[token for token in words.eos if token < len(line)]] = True
    return np.flatnonzero(legal & (line > NEG_INF)).astype(np.int32)


def _characters(data: bytes) -> str | None:
    """The characters of some bytes, U+FFFD for an unfinished one; ``None`` if the bytes cannot begin a text."""
    try:
        text, used = codecs.utf_8_decode(data, "strict", False)
    except UnicodeDecodeError:
        return None
    return text + "\ufffd" * (used < len(data))


def _gumbel(seed: NDArray[Any], length: NDArray[Any], ids: NDArray[np.int32]) -> NDArray[np.float64]:
    """``[n] float64``: the noise of some tokens, from two draws, so that rare tokens have their probability, too."""
    xp = load_backend("numpy").xp
    with np.errstate(over="ignore"):
        own = rng.folded(xp, seed, length)
        coarse, fine = (rng.uniform(xp, own, ids, _STREAM + n).astype(np.float64) for n in range(2))
    noise: NDArray[np.float64] = -np.log(-np.log1p(-(coarse + (fine + 2.0**-24) * 2.0**-23)))
    return noise


def _falling(scores: NDArray[np.float64]) -> Iterator[int]:
    """The indices of scores from the highest score to the lowest, equal ones in their order; as many as are taken."""
    done, size = 0, _FIRST
    while done < len(scores):
        size = min(size, len(scores))
        least = np.partition(scores, len(scores) - size)[len(scores) - size]
        found = np.flatnonzero(scores >= least)
        yield from found[np.argsort(-scores[found], kind="stable")][done:].tolist()
        done, size = len(found), 8 * size
