"""mlx-lm: a chain inside its generators, and its models inside logitloom's own loop.

mlx-lm calls a processor with the ids of one sequence and its logits. mlx-lm names neither the sequence nor the number
of drafts at the end of the ids. Ids are lazy: reading them waits for the model and ends the look-ahead, by which mlx-lm
prepares a token while the model still computes the token before.

mlx-lm's own generators hold an object for each sequence, which is read from their frames. Sequences of other loops are
told apart by their ids.

As long as one sequence grows token by token, no ids are read. The device compares the ids with the ids of the last
call; if they are equal but for one more token, the state of the last call is used, else a fresh state. Anything else
(drafts, and sequences that another loop shows in turn) is recognised by reading the ids, after which all ids are read.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Chain, ChainState, Context
from logitloom.engines import WrittenText, bind, written_text
from logitloom.errors import InvalidContext, NeedsNotMet
from logitloom.process_memory import ProcessLock
from logitloom.rows import tree as row_state
from logitloom_contrib.engines._adapted_model import adapted
from logitloom_contrib.engines._copies import MadeAnew
from logitloom_contrib.engines._given import number, told
from logitloom_contrib.engines._mlx_lm_model import MlxModel
from logitloom_contrib.row_tracking import RowTracker
from logitloom_contrib.row_tracking.forbidden_tokens import ForbiddenTokens
from logitloom_contrib.row_tracking.row_ends import RowEnds

__all__ = ["MlxModel", "MlxProcessor", "to_mlx_lm"]

#: The values that mlx-lm gives to processors. (Of a prompt whose beginning is in a reused cache it shows the rest.)
GIVES: Final = frozenset({"prompt", "length", "history", "every_step"})
ENGINE: Final = "mlx-lm"

#: The module of mlx-lm's generators, and the functions in it that generate one sequence each.
_GENERATORS: Final = "mlx_lm.generate"
_OF_ONE_SEQUENCE: Final = frozenset({"generate_step", "speculative_generate_step"})
#: Frames between a generator and the processor, for callers that wrap the processor.
_FRAMES: Final = 16

#: Needs that a state made without reading the prompt's ids cannot serve.
_READS_IDS: Final = frozenset({"prompt", "history"})
#: Number of calls before the newest call that the look-ahead may not have computed yet.
_LAG: Final = 3
#: Number of calls after the beginning of a sequence within which interleaved sequences show up as interleaved.
_SOON: Final = _LAG + 2
#: Sequences that are remembered.
_SEQUENCES: Final = 256


def direct_call(chain: Any, given: tuple[Any, ...], more: dict[str, Any]) -> None:
    """See :class:`logitloom.engines.DirectCall`."""
    if given and type(given[0]).__module__.partition(".")[0] == "mlx":
        raise NeedsNotMet(
            f"{chain!r} was given to mlx-lm as if it were one of its processors. "
            f"Give to_mlx_lm(chain, tokenizer=tokenizer) of {__name__} instead."
        )


def to_mlx_lm(
    chain: Chain,
    model: Any = None,
    tokenizer: Any = None,
    *,
    seed: int = 0,
    max_length: int | None = None,
    max_new_tokens: int | None = None,
) -> MlxProcessor:
    """A chain as a member of mlx-lm's ``logits_processors``.

    For ``generate_step``, ``stream_generate`` (with or without a draft model or a reused prompt cache),
    ``BatchGenerator`` and ``batch_generate``. One object serves any number of sequences, one after the other or in
    turn.

    Args:
        chain: the processors.
        model: the mlx-lm model that generates, or a model adapter, for processors that run a model (guidance).
        tokenizer: any tokenizer, for processors that need a vocabulary; default: the chain's.
        seed: of processors that draw random numbers.
        max_length: most tokens of a row, if a chain that keeps history should allocate it at once.
        max_new_tokens: most tokens that mlx-lm will generate (its ``max_tokens``), a number that mlx-lm does not pass
            to processors; constraints complete their texts within this number.

    Returns:
        A callable ``(tokens, logits) -> logits``.

    Raises:
        NeedsNotMet: the chain needs what mlx-lm does not give, or the model is none.
        ChainIncomplete: options are missing.
        InvalidContext: the seed is no whole number.
    """
    seed = number(seed, "seed") or 0
    chain = bind(chain, ENGINE, GIVES, tokenizer=tokenizer, model=model)
    own = adapted(chain, model, ENGINE, lambda native: MlxModel(native, tokenizer))
    return MlxProcessor(chain, own, seed, max_length, max_new_tokens)


class _Asked(NamedTuple):
    """A call whose ids were not read."""

    tokens: Array
    #: Whether the ids are the ids of the call before and one more, as an array on the device; None if they are known to
    #: begin anew.
    grown: Array | None
    state: ChainState


class _ReadSequence:
    """A sequence whose ids were read."""

    __slots__ = ("ids", "prompt_length", "tracker")

    def __init__(self, ids: NDArray[Any], prompt_length: int) -> None:
        self.ids, self.prompt_length = ids, prompt_length
        self.tracker: RowTracker | None = None


class MlxProcessor(MadeAnew):
    """A chain for mlx-lm; made by :func:`to_mlx_lm`.

    Each sequence of mlx-lm's own generators is on its own, also where its prompt continues an earlier sequence. In a
    loop that is not mlx-lm's, a call continues an earlier call if its ids are the earlier call's ids, or a prefix of
    these ids, followed by at most one more token. Any other call begins a new sequence, with the call's ids as its
    prompt.
    """

    def __init__(self, chain: Chain, model: Any, seed: int, max_length: int | None, max_new_tokens: int | None) -> None:
        self.chain, self.seed = chain, seed
        fields: dict[str, Any] = {"max_new_tokens": max_new_tokens, **({} if model is None else {"model": model})}
        self._start = _Start(chain, seed, max_length, fields)
        self._of_other_loops = _SequencesByIds(self._start)
        #: By the object that stands for a sequence in mlx-lm's generators; it lives as long as the sequence.
        self._of_sequence: WeakKeyDictionary[Any, _SequencesByIds] = WeakKeyDictionary()

    def __call__(self, tokens: Array, logits: Array) -> Array:
        """Process logits ``[1, vocab]`` after ids ``[length]``.

        Raises:
            InvalidContext: these are no ids and logits of one sequence.
            NeedsNotMet: mlx-lm chose the first token without the chain.
        """
        if not isinstance(logits, mx.array) or not isinstance(tokens, mx.array):
            raise InvalidContext(
                f"mlx-lm passes ids and logits as arrays of MLX, but they are {told(tokens)} and {told(logits)}. For "
                f"arrays of another library call chain.process."
            )
        if logits.ndim != 2 or logits.shape[0] != 1 or tokens.ndim != 1:
            raise InvalidContext(
                f"mlx-lm passes ids [length] and logits [1, vocab] of one sequence, but they have the shapes "
                f"{list(tokens.shape)} and {list(logits.shape)}."
            )
        sequence, has_begun = _sequence_of(sys._getframe(1))
        if sequence is None:
            return self._of_other_loops.process(tokens, logits)
        if sequence not in self._of_sequence:
            if has_begun:
                raise NeedsNotMet(
                    "mlx-lm chose the first token without the chain: with input_embeddings and no prompt it calls no "
                    "processors there. Give the ids of the prompt as well."
                )
            self._of_sequence[sequence] = _SequencesByIds(self._start)
        return self._of_sequence[sequence].process(tokens, logits)

    def text(self, tokens: Sequence[int]) -> WrittenText:
        """The text of generated tokens, and why the text ended: as in logitloom's own loop, without the stop string."""
        return written_text(self.chain, tokens)


def _sequence_of(frame: FrameType | None) -> tuple[Any, bool]:
    """The object that stands for the calling sequence in mlx-lm's generators, None in another loop; and whether the
    first token of the sequence was chosen already.
    """
    for _ in range(_FRAMES):
        if frame is None:
            break
        if frame.f_globals.get("__name__") == _GENERATORS:
            name, given = frame.f_code.co_name, frame.f_locals
            if name in _OF_ONE_SEQUENCE:  # each call of the generator has a function ``_step`` of its own
                return given.get("_step"), name == "generate_step" and "n" in given
            buffers = getattr(given.get("self"), "_token_context", None)
            if buffers is not None and "e" in given:
                return buffers[given["e"]], False
        frame = frame.f_back
    return None, False


class _Start:
    """The start of all sequences of a processor.

    Args:
        chain: the processors.
        seed: of processors that draw random numbers.
        max_length: most tokens of a row, None if unknown.
        fields: further fields of the chain's context.
    """

    def __init__(self, chain: Chain, seed: int, max_length: int | None, fields: dict[str, Any]) -> None:
        self.chain, self.seed, self.max_length, self.fields = chain, seed, max_length, fields
        self._context: Context | None = None
        self._state: ChainState | None = None

    def context(self, logits: Array) -> Context:
        """The context of sequences whose ids are not read."""
        if self._context is None or self._context.vocab_size != logits.shape[-1]:
            self._context = Context.start(logits, compiled=True, max_length=self.max_length, **self.fields)
            self._state = None
        return self._context

    def state(self, logits: Array, length: int) -> ChainState:
        """The state at the start: chains whose ids are not read know of a prompt no more than its length."""
        context, state = self.context(logits), self._state
        if state is None or "length" in self.chain.needs:
            seeds = tuple(context.with_fields(seed=self.seed).row_seeds().tolist())
            prompt = ((0,) * length,) if "length" in self.chain.needs else None
            state = self._state = self.chain.init_state(context.with_fields(seed=seeds, prompt=prompt))
        return state


class _SequencesByIds:
    """The sequences of a caller, told apart by their ids."""

    def __init__(self, start: _Start) -> None:
        chain = self.chain = start.chain
        self._start = start
        self._lock = ProcessLock()
        #: Whether the ids of every call are read: the chain needs this, or sequences take turns or go back.
        contradicting = ForbiddenTokens(chain, RowEnds(frozenset(), frozenset()), {}).may_contradict
        self._in_turn = not chain.compilable or chain.sees_every_step or bool(chain.needs & _READS_IDS) or contradicting
        self._asked: deque[_Asked] = deque()
        self._prompt_length = 0
        #: How many further calls are looked at for ids that continue another sequence than that of the last call.
        self._soon = 0
        #: By their ids: constraints make sequences of different prompts end alike.
        self._sequences: OrderedDict[bytes, _ReadSequence] = OrderedDict()

    def process(self, tokens: Array, logits: Array) -> Array:
        """Process logits ``[1, vocab]`` after ids ``[length]``."""
        with self._lock:
            longer = self._asked and tokens.size == self._asked[-1].tokens.size + 1
            if longer and not self._continues_another(tokens):
                return self._go_on(tokens, logits)
            return self._read(tokens, logits)

    # -- without reading -------------------------------------------------------------------------------

    def _continues_another(self, tokens: Array) -> bool:
        """Whether ids, one longer than the ids of the last call, continue another sequence than the last call's.

        Interleaved sequences show up soon after one of them has begun. So ids are read only then, and only if another
        sequence has a matching length.
        """
        self._soon = max(self._soon - 1, 0)
        known = [each.ids for each in self._sequences.values() if self._soon and len(each.ids) == tokens.size - 1]
        if not known:
            return False
        before = np.array(tokens)[:-1]
        last = np.array_equal(before, np.array(self._asked[-1].tokens))
        return not last and any(np.array_equal(before, ids) for ids in known)

    def _go_on(self, tokens: Array, logits: Array) -> Array:
        last = self._asked[-1]
        grown = mx.array_equal(tokens[:-1], last.tokens)
        fresh = self._start.state(logits, tokens.size)
        state = row_state.map_leaves(lambda old, new: mx.where(grown, old, new), last.state, fresh)
        token = mx.where(grown, tokens[-1:].astype(mx.int32), -1)[None]
        logits, state = self.chain.process(logits, state, self._start.context(logits).accept(token))
        self._asked.append(_Asked(tokens, grown, state))
        self._settle(_LAG)
        return logits

    def _begin(self, tokens: Array, logits: Array) -> Array:
        state = self._start.state(logits, tokens.size)
        logits, state = self.chain.process(logits, state, self._start.context(logits))
        self._asked.append(_Asked(tokens, None, state))
        self._prompt_length, self._soon = tokens.size, _SOON
        return logits

    def _settle(self, keep: int) -> None:
        """Note the sequences that turn out to have ended, among calls that were computed meanwhile."""
        while len(self._asked) > keep:
            first, second = self._asked[0], self._asked[1]
            if second.grown is not None and not bool(second.grown.item()):
                self._note(np.array(first.tokens), self._prompt_length)
                self._prompt_length = second.tokens.size
            self._asked.popleft()

    # -- reading ---------------------------------------------------------------------------------------

    def _read(self, tokens: Array, logits: Array) -> Array:
        if self._asked:
            self._settle(1)
            self._note(np.array(self._asked[0].tokens), self._prompt_length)
            self._asked.clear()
        ids = np.array(tokens).astype(np.int64)
        sequence = self._find(ids)
        if sequence is None or len(ids) == sequence.prompt_length:
            if not self._in_turn:
                return self._begin(tokens, logits)
            sequence = sequence or _ReadSequence(ids, len(ids))
        else:
            self._in_turn = True
        return self._process(sequence, ids, logits)

    def _process(self, sequence: _ReadSequence, ids: NDArray[Any], logits: Array) -> Array:
        if len(ids) - 1 <= len(sequence.ids) <= len(ids) and np.array_equal(sequence.ids, ids[: len(sequence.ids)]):
            self._sequences.pop(sequence.ids.tobytes(), None)
            grown = sequence
        else:
            # The new ids may belong to a sibling with the same beginning, so the other sequence stays.
            grown = _ReadSequence(ids, sequence.prompt_length)
            grown.tracker = sequence.tracker
        grown.ids = ids
        if grown.tracker is None:
            vocabulary = self.chain.vocabulary
            grown.tracker = RowTracker(
                self.chain,
                eos=() if vocabulary is None else vocabulary.eos,
                seed=self._start.seed,
                max_length=self._start.max_length,
                context=self._start.fields,
            )
        self._sequences[ids.tobytes()] = grown
        while len(self._sequences) > _SEQUENCES:
            self._sequences.popitem(last=False)
        return grown.tracker.process(logits, ids[None], prompt_lengths=[grown.prompt_length])

    def _note(self, ids: NDArray[Any], prompt_length: int) -> None:
        ids, self._soon = ids.astype(np.int64), _SOON
        self._sequences[ids.tobytes()] = _ReadSequence(ids, prompt_length)
        while len(self._sequences) > _SEQUENCES:
            self._sequences.popitem(last=False)

    def _find(self, ids: NDArray[Any]) -> _ReadSequence | None:
        """The sequence of which all but the last of these ids are a beginning."""
        for part in (ids[:-1], ids):
            found = self._sequences.get(part.tobytes())
            if found is not None:
                return found
        for known in reversed(self._sequences.values()):
            n = max(len(ids) - 1, known.prompt_length)
            if n <= min(len(ids), len(known.ids)) and np.array_equal(known.ids[:n], ids[:n]):
                return known
        return None
