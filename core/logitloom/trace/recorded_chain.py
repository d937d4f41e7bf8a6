"""A chain that records the distribution of each chosen token, inside any engine."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from logitloom.arguments import flag, ids, optional_ids, whole
from logitloom.arrays.backend import Array, Backend
from logitloom.chain import Chain
from logitloom.chain.links import Link
from logitloom.chain.state import ChainState
from logitloom.context import Context
from logitloom.effect import Effect
from logitloom.errors import NeedsNotMet, OptionError
from logitloom.generation.sampled import Distributions, Sampled
from logitloom.process_memory import ProcessLock
from logitloom.processor import Processor
from logitloom.rows.tree import Rows
from logitloom.trace.observed_chain import ObservedChain

__all__ = ["RecordedChain"]

_LABEL: Final = "record"
#: Most steps, and most bytes, of the distributions that are kept until the tokens chosen from them are known.
_MOST_STEPS: Final = 64
_MOST_BYTES: Final = 256 << 20


class RecordedChain(ObservedChain):
    """A chain that also records of each token its log-probability after the chain and before the chain, and more.

    A recorded chain gives the very logits of the chain that it was made of, and goes into any engine's adapter. The
    record so far belongs to the rows of the chain's state, so rows may be reordered, duplicated, rolled back and
    dropped. An engine's own temperature and truncations come after the chain, and are not part of the record.

    Args:
        chain: the chain to record; it is not changed.
        limit: how many steps of rows are remembered.
        first: what counts of a row that is processed several times without a new token: the first distribution, as a
            row that has ended may wait for others; or the last, as an engine may show a prompt piece by piece.

    Raises:
        OptionError: for a ``limit`` below 1, arguments of other types, or a chain that is recorded already.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = RecordedChain(processors.load(("top_k", {"k": 2})))
        >>> logits = np.log(np.array([[0.5, 0.3, 0.2]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> state = chain.init_state(context)
        >>> for tokens in (None, [[0]], [[1]]):  # as an adapter's engine does
        ...     _, state = chain.process(logits, state, context if tokens is None else context.accept(tokens))
        >>> [(each.token, round(each.logprob, 2), each.kept) for each in chain.sampled([0, 1, 0])]
        [(0, -0.47, 2), (1, -0.98, 2), (0, -0.47, 2)]
    """

    def __init__(self, chain: Chain, *, limit: int = 4096, first: bool = True) -> None:
        self._recordable(chain)
        first = flag(first, "first", OptionError)
        if whole(limit, "limit", OptionError) < 1:
            raise OptionError(f"A record remembers at least one step of a row, but limit is {limit}.")
        self._hold(chain, _DistributionRecorder(limit, first))

    def _hold(self, chain: Chain, recorder: _DistributionRecorder) -> None:
        self._inner, self._recorder = chain, recorder
        links = [*chain.links, Link(_LABEL, None, None, processor=recorder)]
        super().__init__(links, vocabulary=chain.vocabulary, model=chain.model, debug=chain.debug)

    def again(self, chain: Chain) -> RecordedChain:
        """The recorded chain of another chain, which writes into the same record."""
        recorded = RecordedChain.__new__(RecordedChain)
        recorded._hold(chain, self._recorder)
        return recorded

    def __reduce__(self) -> Any:
        """A copy records anew."""
        again = functools.partial(RecordedChain, limit=self._recorder.limit, first=self._recorder.first)
        return again, (self._inner,)

    def process(self, logits: Array, state: ChainState, context: Context) -> tuple[Array, ChainState]:
        """As :meth:`Chain.process`; the given logits are not overwritten, even if they are donated."""
        processed, after = super().process(logits, state, context.with_fields(donate=False, pool=None))
        before, out = (logits[None], processed[None]) if logits.ndim == 1 else (logits, processed)
        rows = self._recorder.opened(context.backend, before, out, after.processors[-1])
        return processed, self.state(after.position, (*after.processors[:-1], rows))

    def replay(self, tokens: Sequence[Sequence[int]], context: Context) -> ChainState:
        """As :meth:`Chain.replay`; the distributions of replayed tokens are not known."""
        state = super().replay(tokens, context)
        rows = Rows(row._replace(step=_NONE) for row in state.processors[-1])
        return self.state(state.position, (*state.processors[:-1], rows))

    def sampled(self, tokens: Sequence[int], *, prompt: Sequence[int] | None = None) -> tuple[Sampled | None, ...]:
        """The record of the distribution from which each token of a text was chosen; None if it is not known.

        Nothing is known of tokens that a row was rebuilt from (after preemption), that an engine showed several at a
        time, or that are older than the record's limit.

        Args:
            tokens: of the text, without its prompt; an end-of-sequence token may be among them.
            prompt: tells texts of several prompts apart that begin alike; default: the prompt of the newest.

        Raises:
            NeedsNotMet: nothing is known of such a text.
        """
        wanted = optional_ids(prompt, "prompt", OptionError)
        return self._recorder.sampled(list(ids(tokens, "tokens", OptionError)), wanted)


class _AcceptedTokens(NamedTuple):
    """Tokens that a row accepted, as a linked list: the last token, and the list of the tokens before it."""

    before: _AcceptedTokens | None
    token: int
    sampled: Sampled | None

    def __repr__(self) -> str:
        """Without the tokens before, which may be many."""
        return f"{type(self).__name__}(..., {self.token}, {self.sampled})"

    def __deepcopy__(self, memo: Any) -> _AcceptedTokens:
        """The list itself, because it is immutable."""
        return self


class _RecordedRow(NamedTuple):
    """A row of the state: its tokens, and the step and row whose distribution its next token is chosen from."""

    prompt: tuple[int, ...]
    text: _AcceptedTokens | None
    step: int
    row: int


_NONE: Final = -1


class _DistributionRecorder(Processor):
    """The last processor of the chain. It keeps distributions outside the states, for a bounded number of steps."""

    stage = "warp"
    effect = Effect("forbids", keeps=("order", "last"))
    compilable = False

    def __init__(self, limit: int, first: bool) -> None:
        self.limit, self.first = limit, first
        self._lock = ProcessLock()
        self._steps = 0
        self._open: OrderedDict[int, Distributions] = OrderedDict()
        #: Rows as they stood, the newest last.
        self._rows: OrderedDict[tuple[int, int], _RecordedRow] = OrderedDict()

    def init_state(self, context: Context) -> Rows:
        """Rows without tokens."""
        prompts: Iterable[Sequence[int]] = context.prompt or [()] * context.batch
        return Rows(_RecordedRow(tuple(int(token) for token in prompt), None, _NONE, 0) for prompt in prompts)

    def process(self, logits: Array, state: Rows, context: Context) -> tuple[Array, Rows]:
        """Note the tokens that rows accepted."""
        if context.tokens is None:
            return logits, state
        accepted = context.backend.to_numpy(context.tokens).tolist()
        with self._lock:
            return logits, Rows(
                self._advanced(row, [token for token in tokens if token >= 0])
                for row, tokens in zip(state, accepted, strict=True)
            )

    def opened(self, backend: Backend, before: Array, after: Array, rows: Rows) -> Rows:
        """The rows, standing at what was left to choose from."""
        with self._lock:
            standing = [self.first and row.step in self._open for row in rows]
            for row in rows:
                if row.step in self._open:
                    self._open.move_to_end(row.step)
            if all(standing):
                return rows
            step, self._steps = self._steps, self._steps + 1
            self._open[step] = Distributions(backend, before[: len(rows)], after)
            self._close_oldest()
            moved = Rows(
                row if stays else row._replace(step=step, row=index)
                for index, (row, stays) in enumerate(zip(rows, standing, strict=True))
            )
            for row in moved:
                self._rows[row.step, row.row] = row
            while len(self._rows) > self.limit:
                self._rows.popitem(last=False)
            return moved

    def _close_oldest(self) -> None:
        held = sum(each.nbytes for each in self._open.values())
        while len(self._open) > 1 and (len(self._open) > _MOST_STEPS or held > _MOST_BYTES):
            held -= self._open.popitem(last=False)[1].nbytes

    def sampled(self, tokens: list[int], prompt: tuple[int, ...] | None) -> tuple[Sampled | None, ...]:
        """See :meth:`RecordedChain.sampled`."""
        found: list[Sampled | None] = [None] * len(tokens)
        #: By identity of a list: its length, and how many of its first tokens are the text's.
        compared: dict[int, tuple[int, int]] = {}
        with self._lock:
            for row in reversed(self._rows.values()):
                if prompt is not None and row.prompt != prompt:
                    continue
                prompt = self._told(row, tokens, found, prompt, compared)
                if all(found):
                    break
        if tokens and not any(found):
            raise NeedsNotMet(
                f"Nothing is recorded of a text of the tokens {tokens[:8]}: no row of this chain wrote it, or it is "
                f"older than the {self.limit} steps of rows that the record holds."
            )
        return tuple(found)

    def _told(
        self,
        row: _RecordedRow,
        tokens: list[int],
        found: list[Sampled | None],
        prompt: tuple[int, ...] | None,
        compared: dict[int, tuple[int, int]],
    ) -> tuple[int, ...] | None:
        """Fill in what a row knows of a text; the prompt of the text, as far as it is known then."""
        new, text = [], row.text
        while text is not None and id(text) not in compared:
            new.append(text)
            text = text.before
        length, same = (0, 0) if text is None else compared[id(text)]
        for text in reversed(new):
            if same == length < len(tokens) and tokens[same] == text.token:
                found[same] = found[same] or text.sampled
                prompt, same = row.prompt, same + 1
            length += 1
            compared[id(text)] = length, same
        if same == length < len(tokens) and row.step in self._open:
            found[same] = found[same] or self._open[row.step].sampled(row.row, tokens[same])
            prompt = row.prompt
        return prompt

    def _advanced(self, row: _RecordedRow, tokens: list[int]) -> _RecordedRow:
        if not tokens:
            return row
        known = self._open.get(row.step)
        text = _AcceptedTokens(row.text, tokens[0], None if known is None else known.sampled(row.row, tokens[0]))
        for token in tokens[1:]:
            text = _AcceptedTokens(text, token, None)
        return _RecordedRow(row.prompt, text, _NONE, 0)
