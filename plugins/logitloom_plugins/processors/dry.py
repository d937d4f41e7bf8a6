"""DRY (don't repeat yourself): penalise tokens that would prolong a repetition, ever more the longer it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import BIAS, PENALTY, Array, Backend, Context, Effect, HostTable, Processor, Vocabulary, option
from logitloom.display.warning import warn
from logitloom.errors import OptionError
from logitloom.vocabulary import kept_with_vocabulary
from logitloom_plugins.compiled_steps import as_one_function
from logitloom_plugins.processors._precision import is_float16, saturated
from logitloom_plugins.processors._token_table import check_ids

__all__ = ["Dry", "DryState"]

#: Penalties go no further, so that float16 logits stay finite; e ** -30000 is 0 in any precision.
_HARSHEST = 30000.0
#: The most vocabularies and widths for which the breakers are kept.
_MOST_TABLES = 16


class DryState(NamedTuple):
    """State: a row tree.

    Attributes:
        match: ``[rows, capacity] int32``: length of the run of tokens ending at this position that equals the end of
            the text.
    """

    match: Array


@dataclass(frozen=True)
class Dry(Processor):
    """Subtract ``multiplier * base ** (match - allowed_length)`` from the logit of a token that prolongs a match.

    A match is a stretch of earlier text, at least ``allowed_length`` tokens, that equals the end of the text. The token
    after a match is penalised, by the longest match before it. Matches do not reach across sequence breakers, breakers
    are never penalised, and ``match`` counts up to ``max_match``. The prompt belongs to the text.

    The lengths of the matches are kept from step to step: a length grows by one where the new token matches, and else
    becomes 0. So a step costs one scan of the history, however long the matches are.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("dry", {"multiplier": 1.0, "breakers": []}))
        >>> logits = np.zeros((1, 4), dtype=np.float32)
        >>> context = Context.start(logits, prompt=[[1, 2, 3, 0, 1, 2]], max_length=8)
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[ 0.,  0.,  0., -1.]], dtype=float32)

    References:
        P. E. Weidmann, "DRY: a modern repetition penalty that reliably prevents looping", pull request to
        text-generation-webui, 2024.
    """

    stage = "penalty"

    multiplier: float = option(
        0.8, help="Penalty of a token that would repeat a match of the allowed length.", ge=0.0, le=_HARSHEST
    )
    base: float = option(
        1.75, help="Factor by which the penalty grows with each further token of the match.", ge=1.0, le=_HARSHEST
    )
    allowed_length: int = option(2, help="Least length of a match that is penalised.", ge=1, unit="tokens")
    window: int | None = option(
        None, help="How many of the last tokens are searched; default: all.", ge=1, le=1 << 20, unit="tokens"
    )
    breakers: tuple[str, ...] = option(
        ("\n", ":", '"', "*"),
        help="Texts that no match crosses; a token that contains one (a special token: in its name) ends a match.",
    )
    breaker_ids: tuple[int, ...] = option((), help="Ids of further tokens that no match crosses.", ge=0, unit="id")
    max_match: int = option(
        50,
        help="Length up to which the penalty grows; longer matches count as this long.",
        ge=1,
        le=1000,
        unit="tokens",
    )

    def __post_init__(self) -> None:
        if "" in self.breakers:
            raise OptionError(
                "A text of the option 'breakers' of 'dry' is empty: every token contains it, so no match would be "
                "penalised. Leave it out."
            )

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The history, and the vocabulary to find breakers by their text."""
        return frozenset({"prompt", "history"}) | (frozenset({"vocabulary"}) if self.breakers else frozenset())

    @property
    def effect(self) -> Effect:  # type: ignore[override]
        """A penalty by equality of tokens, unless breakers make tokens differ."""
        return BIAS if self.breakers or self.breaker_ids else PENALTY

    @cached_property
    def _strength(self) -> HostTable:
        """Length of a match -> penalty, ``[max_match + 1] float32``."""
        length = np.arange(self.max_match + 1, dtype=np.float64)
        with np.errstate(over="ignore"):
            penalty = np.float64(self.multiplier) * np.float64(self.base) ** np.maximum(length - self.allowed_length, 0)
        penalty = np.where(length < self.allowed_length, 0.0, np.minimum(penalty, _HARSHEST))
        return HostTable(penalty.astype(np.float32))

    @cached_property
    def _tables(self) -> dict[tuple[Vocabulary | None, int], HostTable]:
        """Vocabulary and width of the logits -> which tokens are breakers."""
        return {}

    def init_state(self, context: Context) -> DryState:
        """The matches at the end of the prompt.

        Raises:
            OptionError: if a breaker id lies outside the logits.
        """
        check_ids(self.breaker_ids, context.vocab_size, "breaker_ids", "dry")
        self._strength.on(context.backend)
        return DryState(self._matches(context, self._is_breaker(context)))

    @as_one_function
    def process(self, logits: Array, state: DryState, context: Context) -> tuple[Array, DryState]:
        """One scan of the history per new token, a sort of the positions that match, and a store per position."""
        backend, xp = context.backend, context.backend.xp
        sequence, tokens = context.sequence, context.tokens
        assert sequence is not None
        assert context.length is not None
        breaker = self._is_breaker(context)
        match = state.match
        if tokens is not None and tokens.shape[1] > self.max_match:
            match = self._matches(context, breaker)
        elif tokens is not None and tokens.shape[1] > 0:
            match = self._prolonged(match, context, breaker)
        if sequence.shape[1] < 2:
            return logits, DryState(match)

        reach, token = match[:, :-1], sequence[:, 1:]
        if self.window is not None:
            inside = backend.arange(sequence.shape[1] - 1)[None, :] - (context.length[:, None] - self.window) + 1
            reach = xp.minimum(reach, inside)
        penalized = (reach >= self.allowed_length) & (token >= 0)
        if breaker is not None:
            penalized = penalized & ~_look_up(xp, breaker, xp.where(token < 0, 0, token))
        if backend.on_host and not context.compiled and backend.has_values(penalized):
            # Read a few positions of each row instead of the whole history.
            index = _packed(backend.to_numpy(penalized))
            if not index.shape[1]:
                return logits, DryState(match)
            penalized, columns = backend.asarray(index >= 0), backend.asarray(np.maximum(index, 0))
            reach, token = backend.gather(reach, columns), backend.gather(token, columns)
        # One position per token, the position of its longest match: sorted by token, then by length, the last of a run.
        width = self.max_match + 1
        key = xp.sort(xp.where(penalized, token * width + reach, -1), axis=-1)
        token = xp.where(key < 0, -1, key // width)
        last = xp.concat([token[:, :-1] != token[:, 1:], token[:, -1:] >= 0], axis=1)
        index = xp.where(last, token, -1)
        reach = xp.where(index < 0, 0, key - token * width)
        penalty = _look_up(xp, self._strength.on(backend), reach)
        entries = backend.gather(logits, xp.where(index < 0, 0, index))
        lowered = backend.add(entries, -penalty)
        if is_float16(backend, entries):
            lowered = saturated(backend, entries, lowered)
        return backend.write_at(logits, index, lowered, context.donate), DryState(match)

    def _prolonged(self, match: Array, context: Context, breaker: Array | None) -> Array:
        """The matches after each of a few new tokens in turn: one longer, or gone."""
        backend, xp = context.backend, context.backend.xp
        tokens, sequence = context.tokens, context.sequence
        assert tokens is not None
        assert sequence is not None
        assert context.length is not None
        columns = backend.arange(sequence.shape[1])[None, :]
        later = context.length[:, None]
        valid = backend.cast(tokens >= 0, "int32")
        for j in range(tokens.shape[1]):
            token = tokens[:, j : j + 1]
            position = later - backend.cast(xp.sum(valid[:, j:], axis=1, keepdims=True), "int32")
            hit = (sequence == token) & (columns < position)
            if breaker is not None:
                hit = hit & ~_look_up(xp, breaker, xp.where(token < 0, 0, token))
            before = xp.concat([xp.zeros_like(match[:, :1]), match[:, :-1]], axis=1)
            longer = xp.where(hit, before + 1, 0)
            longer = xp.where(longer > self.max_match, self.max_match, longer)
            match = xp.where(token < 0, match, longer)
        return match

    def _matches(self, context: Context, breaker: Array | None) -> Array:
        """The matches at the end of the text, found without knowing earlier ones: a scan per token of length."""
        backend, xp = context.backend, context.backend.xp
        sequence = context.sequence
        assert sequence is not None
        assert context.length is not None
        capacity, one_by_one = sequence.shape[1], backend.compiles_operations and not context.compiled
        vocabulary = context.vocabulary if self.breakers else None
        position = context.length[:, None] - 1
        going = backend.arange(capacity)[None, :] < position
        match = xp.zeros_like(sequence)
        shifted = sequence
        readable = backend.on_host and backend.has_values(sequence)
        for _ in range(min(self.max_match, capacity)):
            if readable and not bool(backend.to_numpy(xp.any(going))):
                break
            # One token of the match at a time, so that shapes stay the same and backends that compile operations
            # compile each operation once.
            if one_by_one:
                longer = _compiled_longer(self, backend, vocabulary, context.vocab_size)
                position, match, going, shifted = longer(sequence, position, match, going, shifted)
            else:
                position, match, going, shifted = _longer(backend, breaker, sequence, position, match, going, shifted)
            if backend.lazy and not context.compiled:
                # The expression of all iterations together would be too large to compile.
                backend.synchronize(match, going, shifted)
        return match

    def _is_breaker(self, context: Context) -> Array | None:
        if not self.breakers and not self.breaker_ids:
            return None
        vocabulary = context.vocabulary if self.breakers else None
        table = self._tables.get((vocabulary, context.vocab_size))
        if table is None:
            host = _breaker_table(vocabulary, context.vocab_size, self.breakers, self.breaker_ids)
            if len(self._tables) >= _MOST_TABLES:
                self._tables.clear()
            table = self._tables[vocabulary, context.vocab_size] = HostTable(host)
        return table.on(context.backend)


@lru_cache(maxsize=8)
def _compiled_longer(
    dry: Dry, backend: Backend, vocabulary: Vocabulary | None, vocab_size: int
) -> Callable[..., tuple[Array, Array, Array, Array]]:
    """:func:`_longer` of a processor as a compiled function."""
    inside = Context(backend=backend, batch=0, vocab_size=vocab_size, vocabulary=vocabulary, compiled=True)

    def longer(*arrays: Array) -> tuple[Array, Array, Array, Array]:
        return _longer(backend, dry._is_breaker(inside), *arrays)

    return backend.compile(longer)


def _longer(
    backend: Backend,
    breaker: Array | None,
    sequence: Array,
    position: Array,
    match: Array,
    going: Array,
    shifted: Array,
) -> tuple[Array, Array, Array, Array]:
    """Compare one more token of the end of each text with the tokens before each position.

    Args:
        backend: the array library.
        breaker: ``[vocab]``, which tokens no match crosses; None for none.
        sequence: ``[rows, capacity]``, the texts.
        position: ``[rows, 1]``, the position of the token in the texts.
        match: ``[rows, capacity]``, the length of the match that ends at each position so far.
        going: ``[rows, capacity]``, whether the match may be longer.
        shifted: ``[rows, capacity]``, the texts, moved by as many positions as tokens were compared.

    Returns:
        The last four of the arguments for the next token.
    """
    xp, capacity = backend.xp, sequence.shape[1]
    token = backend.gather(sequence, xp.where((position >= 0) & (position < capacity), position, 0))
    going = going & (shifted == token) & (position >= 0)
    if breaker is not None:
        going = going & ~_look_up(xp, breaker, xp.where(token < 0, 0, token))
    nothing = xp.zeros_like(sequence[:, :1]) - 1
    return position - 1, match + backend.cast(going, "int32"), going, xp.concat([nothing, shifted[:, :-1]], axis=1)


def _look_up(xp: Any, table: Array, index: Array) -> Array:
    """``table[index]`` for an index of any shape (the standard's ``take`` wants a flat one)."""
    return xp.reshape(xp.take(table, xp.reshape(index, (-1,)), axis=0), index.shape)


def _packed(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The indices of the entries that are set in each row, ``[rows, largest number]``, padded with -1."""
    row, column = np.divmod(mask.reshape(-1).nonzero()[0], mask.shape[1])
    counts = np.bincount(row, minlength=len(mask))
    index = np.full((len(mask), counts.max(initial=0)), -1, dtype=np.int64)
    index[row, np.arange(len(row)) - (counts.cumsum() - counts)[row]] = column
    return index


def _breaker_table(
    vocabulary: Vocabulary | None, vocab: int, texts: tuple[str, ...], ids: tuple[int, ...]
) -> NDArray[np.bool_]:
    """Whether each token is a breaker, ``[vocab] bool``."""
    table = np.zeros(vocab, dtype=np.bool_)
    table[list(ids)] = True
    if vocabulary is not None:
        holding, lost = _holding(vocabulary, texts)
        table[holding[holding < vocab]] = True
        if lost:
            warn(
                f"No token of {vocabulary.name} contains {', '.join(map(repr, lost)):.200}, so "
                f"{'this text breaks' if len(lost) == 1 else 'these texts break'} no match. Give the option 'breakers' "
                f"of 'dry' texts that are parts of single tokens, or its option 'breaker_ids' the ids of tokens.",
            )
    return table


@kept_with_vocabulary
def _holding(vocabulary: Vocabulary, texts: tuple[str, ...]) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """The tokens that contain one of several texts, special tokens in their names; and the texts of several bytes that
    no token contains.
    """
    sought = [text.encode() for text in texts]
    names = {token: name for token, name in vocabulary.special_text.items() if token in vocabulary.special and name}
    ids, held = vocabulary.tokens_holding(sought)
    if names:
        named, in_names = Vocabulary([name.encode() for name in names.values()]).tokens_holding(sought)
        ids, held = np.append(ids, np.fromiter(names, dtype=np.int32)[named]), held | in_names
    lost = (text for text, each in zip(texts, sought, strict=True) if len(each) > 1 and each not in held)
    return ids, tuple(lost)
