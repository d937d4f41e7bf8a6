"""Base class of processors whose constraint is an automaton over tokens: state ``int32[batch]``, one gather a step.

Two ways of stepping, with equal results:

* in host memory (NumPy, PyTorch on the CPU) rows of the automaton are found when a state is first visited, and
  a mask is applied by touching what it changes;
* on devices and in compiled loops all tables are uploaded once, a step is a gather, and the host waits for nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.dfa import DEAD
from logitloom.automata.longest_tokens import LongestTokens
from logitloom.automata.token_automaton import TokenAutomaton
from logitloom.backend import Array, Backend, HostTable
from logitloom.context import Context
from logitloom.errors import BudgetExceeded, IllegalToken, NeedsNotMet
from logitloom.masks.kernels import HostKernels, host_kernels
from logitloom.masks.mask_row import MaskBatch, MaskRow, records_of
from logitloom.processor import Processor
from logitloom.vocabulary import Vocabulary

__all__ = ["AutomatonProcessor"]

#: From so many rows on, what is known already is looked up by a compiled step.
_MANY: Final = 6
_NO_STATES: Final = np.zeros(0, dtype=np.int32)

#: What the nodes of one automaton may take, roughly.
_NODE_BYTES: Final = 96 << 20
_EDGE_BYTES: Final = 96
#: The array of a state: a tensor is larger than what it holds.
_ARRAY_BYTES: Final = 512

#: What finding a row takes grows with the tokens that it allows, from a tenth on, up to that of an eighth of the
#: vocabulary; after so many of the dearest (more where there are many states) all rows are found.
_DEAR: Final = 8
_CHEAPEST: Final = 0.1
_DEAR_ROWS: Final = 4
#: Compiled walks tell what they take: so many nodes of the trie are a dear row, of which more can be afforded.
_DEAR_NODES: Final = 20_000
_COMPILED_DEAR_ROWS: Final = 12
_STATES_PER_ROW: Final = 500


class _Tables:
    """The tables of an automaton for devices. The last row is the dead one, so no state is negative."""

    def __init__(self, automaton: TokenAutomaton) -> None:
        tables = automaton.tables()
        self.dead = len(tables.next) - 1
        self.classes = tables.next.shape[1]
        self.next = HostTable(tables.total().ravel())
        self.allowed = HostTable(tables.allowed)
        self.token_class = HostTable(tables.token_class)


class _Node:
    """A state in host memory, with what was found out about it: its mask, its forced run, and itself as an array."""

    __slots__ = ("array", "forced", "row", "state")

    def __init__(self, state: int) -> None:
        self.state = state
        self.row: MaskRow | None = None
        self.forced: list[int] | None = None
        self.array: tuple[Backend | None, Array] = None, None


_StepTables = tuple[
    tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.uint8]],
    tuple[NDArray[np.uint8], NDArray[np.int64]],
    NDArray[np.int32],
    NDArray[np.bool_],
    NDArray[np.bool_],
]


class _Known(NamedTuple):
    """What a compiled step reads.

    Attributes:
        kernels: the compiled functions.
        tables: what :meth:`logitloom.masks.kernels.HostKernels.step` reads between the tokens and the records.
        records: ``[states + 2, 3]``: the record of each state's mask, -1 where it is not known.
        masks: by state the masks themselves. Records hold addresses, so a mask is here before its record is there.
    """

    kernels: HostKernels
    tables: _StepTables
    records: NDArray[np.int64]
    masks: dict[int, MaskRow]

    def add(self, state: int, row: MaskRow) -> None:
        """Take the mask of a state in."""
        self.masks[state] = row
        self.records[state] = records_of([row])[0]


class _Lifted:
    """A token automaton of one vocabulary and width: nodes for the host, tables for devices, each when asked for."""

    def __init__(self, automaton: TokenAutomaton) -> None:
        self.automaton = automaton
        self._tables: _Tables | None = None
        self._nodes: dict[int, _Node] = {}
        #: By state and token; a negative token changes nothing.
        self._after: dict[tuple[int, int], _Node] = {}
        #: By the identity of their ids, which are kept so that no others get it: states may share a row.
        self._masks: dict[tuple[bool, int], tuple[Any, MaskRow]] = {}
        self._room = _NODE_BYTES
        #: How many of the dearest rows the rows so far have cost.
        self._dear_rows = 0.0

    @property
    def tables(self) -> _Tables:
        if self._tables is None:
            self._tables = _Tables(self.automaton)
        return self._tables

    def reach(self, states: list[int], tokens: list[list[int]] | None) -> list[_Node]:
        """Per row the node of its state after its tokens (negative ones stand for nothing)."""
        if self._room < 0:
            # Rows are found again when they are needed again. Whoever holds an old node may go on using it.
            self._nodes, self._after, self._masks, self._room = {}, {}, {}, _NODE_BYTES
            self.__dict__.pop("_known", None)
        if tokens is None:
            return [self._nodes.get(state) or self._node(state) for state in states]
        after = self._after
        if tokens and len(tokens[0]) == 1:
            if len(states) == len(tokens) == 1:
                step = states[0], tokens[0][0]
                return [after.get(step) or self._step(*step)]
            return [after.get(step) or self._step(*step) for step in zip(states, [t for (t,) in tokens], strict=True)]
        reached = []
        for state, taken in zip(states, tokens, strict=True):
            node = self._nodes.get(state) or self._node(state)
            for token in taken:
                node = after.get((node.state, token)) or self._step(node.state, token)
            reached.append(node)
        return reached

    def masks(self, state: Array, context: Context) -> tuple[NDArray[np.int32], MaskBatch] | None:
        """The states of the rows after the context's tokens, and their masks, if all that is known already.

        Looking at rows one by one costs more than writing short masks; compiled, all are one call.
        """
        known, automaton = self._known, self.automaton
        if known is None:
            return None
        to_numpy = context.backend.to_numpy
        states, tokens = np.ascontiguousarray(to_numpy(state)), np.ascontiguousarray(to_numpy(context.tokens))
        rows = len(states)
        if len(tokens) != rows:
            return None
        reached, records = np.empty(rows, dtype=np.int32), np.empty((rows, 3), dtype=np.int64)
        done, buffer_cost = known.kernels.step(states, tokens, *known.tables, known.records, reached, records)
        masks = MaskBatch(records, buffer_cost, automaton.vocab_size, known.masks, reached)
        return (reached, masks) if done else None

    @cached_property
    def _known(self) -> _Known | None:
        kernels, automaton = host_kernels(), self.automaton
        if kernels is None or not automaton.follows_bytes:
            return None
        dfa, vocabulary = automaton.dfa, automaton.vocabulary
        # The rows of the automaton come into the same table when they are read.
        following = (dfa.rows(_NO_STATES), dfa.ready, dfa.byte_class)
        texts, ends = (vocabulary.flat_bytes, vocabulary.offsets), np.array(automaton.eos, dtype=np.int32)
        records = np.full((dfa.states + 2, 3), -1, dtype=np.int64)
        known = _Known(kernels, (following, texts, ends, automaton.accepting, automaton.closing), records, {})
        # Before looking: what another thread finds from here on it adds itself.
        self.__dict__["_known"] = known
        for state, node in [*self._nodes.items()]:
            if node.row is not None:
                known.add(state, node.row)
        return known

    def array(self, node: _Node, backend: Backend) -> Array:
        """``[1] int32``: the state of a node. Nobody writes to states, so one array serves all steps that lead here."""
        array = backend.asarray([node.state], "int32")
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
        node.array = backend, array
        self._room -= _ARRAY_BYTES
        return array

    def mask(self, node: _Node) -> MaskRow:
        """What the state of a node allows."""
        row = node.row
        if row is None:
            allowed, ids = self.automaton.row_kind(node.state)
            _, row = self._masks.get((allowed, id(ids)), (None, None))
            if row is None:
                row = MaskRow(allowed, ids, self.automaton.vocab_size)
                self._masks[allowed, id(ids)] = ids, row
                self._room -= row.nbytes
            node.row = row
            known: _Known | None = self.__dict__.get("_known")  # made by the first step of many rows
            if known is not None:
                known.add(node.state, row)
            self._count_row(allowed, len(ids))
        return row

    def _count_row(self, allowed: bool, listed: int) -> None:
        # A row with many tokens takes milliseconds to find, all rows together seldom more than ten of them: who
        # visits many states (counted repeats have them) is better off with the whole table.
        visited = self.automaton.visited
        limit = _DEAR_ROWS if visited is None else _COMPILED_DEAR_ROWS
        limit += self.automaton.dfa.states // _STATES_PER_ROW
        if self._dear_rows >= limit:
            return
        if visited is not None:
            self._dear_rows = visited / _DEAR_NODES
        else:
            part = _DEAR * listed / self.automaton.vocab_size if allowed else 1.0
            self._dear_rows += min(1.0, max(part, _CHEAPEST))
        if self._dear_rows >= limit:
            with contextlib.suppress(BudgetExceeded):
                self.automaton.tables()

    def forced(self, node: _Node) -> list[int]:
        """The tokens that must come next, while exactly one is allowed."""
        run = node.forced
        if run is None:
            run = node.forced = [] if node.state == DEAD else self.automaton.forced_tokens(node.state)
            self._room -= _EDGE_BYTES * len(run)
        return run

    def _node(self, state: int) -> _Node:
        # On devices the two special states are the last rows of the tables; on the host they are negative.
        rows = self.automaton.dfa.states + 2
        state = state - rows if state >= rows - 2 else state
        return self._nodes.setdefault(state, _Node(state))

    def _step(self, state: int, token: int) -> _Node:
        node = self._node(state)
        if token >= 0:
            node = self._node(self.automaton.advance(node.state, token))
        self._after[state, token] = node
        self._room -= _EDGE_BYTES
        return node


class AutomatonProcessor(Processor):
    """A constraint that is a token automaton; derive from it and implement :meth:`build`.

    The state of a row is the automaton's state after the row's tokens. End-of-sequence is allowed exactly where
    a text may end. A token that is not allowed leads to the dead state, in which every token is forbidden: in
    host memory that is an :class:`IllegalToken` error naming the row, on a device a row of -inf.
    """

    stage = "constraint"
    needs = frozenset({"vocabulary"})
    mask_only = True
    preserves_masked = True
    shift_invariant = True
    uses_buffer_pool = True
    #: Whether only the longest token is allowed where only one text can come next; processors make it an option.
    longest_tokens: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_lifted", {})
        object.__setattr__(self, "_lock", threading.Lock())

    def build(self, vocabulary: Vocabulary, vocab_size: int) -> TokenAutomaton:
        """The automaton for a vocabulary and a width of the logits; called once for each, then kept.

        Raises:
            LogitloomError: if there is none within the budget.
        """
        raise NotImplementedError(f"{type(self).__name__} must define build(vocabulary, vocab_size).")

    def automaton_for(self, context: Context) -> TokenAutomaton:
        """The automaton that a generation with this context uses."""
        return self._lift(context).automaton

    def start_states(self, automaton: TokenAutomaton, context: Context) -> Sequence[int]:
        """The state of each row at the start: ``[batch]``."""
        return [automaton.start] * context.batch

    def init_state(self, context: Context) -> Array:
        """``[batch] int32``."""
        lifted = self._lift(context)
        if not _in_host_memory(context):
            tables = lifted.tables
            for table in (tables.next, tables.allowed, tables.token_class):
                table.on(context.backend)
        return context.backend.asarray(np.asarray(self.start_states(lifted.automaton, context), dtype=np.int32))

    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        """Advance by the accepted tokens, then forbid what the state does not allow."""
        lifted = self._lift(context)
        if _in_host_memory(context):
            backend = context.backend
            if context.batch >= _MANY and context.tokens is not None:
                found = lifted.masks(state, context)
                if found is not None:
                    return _masked(logits, found[1], context), backend.asarray(found[0])
            reached = _reached(lifted, state, context)
            rows: list[Any] = [node.row for node in reached]
            if None in rows:  # a node that is new, or dead
                for place, node in enumerate(reached):
                    if node.state == DEAD:
                        raise self._illegal(place, lifted.automaton, state, context)
                    rows[place] = node.row or lifted.mask(node)
            if context.tokens is not None:
                if len(reached) == 1:
                    owner, state = reached[0].array
                    if owner is not backend:
                        state = lifted.array(reached[0], backend)
                else:
                    state = backend.asarray([node.state for node in reached], "int32")
            return _masked(logits, rows, context), state
        tables, backend = lifted.tables, context.backend
        state = _device_states(tables, state, context)
        allowed = backend.take_rows(tables.allowed.on(backend), state)
        return backend.apply_class_mask(logits, allowed, tables.token_class.on(backend), context.donate), state

    def forced_tokens(self, state: Array, context: Context) -> list[list[int]] | None:
        """Per row the tokens that must come next, while exactly one is allowed."""
        lifted = self._lift(context)
        return [list(lifted.forced(node)) for node in _reached(lifted, state, context)]

    def host_states(self, state: Array, context: Context) -> list[int]:
        """Per row the automaton's state after the accepted tokens, -1 dead, -2 finished."""
        return [node.state for node in _reached(self._lift(context), state, context)]

    def _lift(self, context: Context) -> _Lifted:
        vocabulary = context.vocabulary
        known: dict[tuple[Vocabulary | None, int], _Lifted] = self.__dict__["_lifted"]
        found = known.get((vocabulary, context.vocab_size))
        if found is not None:
            return found
        if vocabulary is None:
            raise NeedsNotMet(
                f"{type(self).__name__} needs a vocabulary: load the chain with tokenizer=..., or give the context one."
            )
        with self.__dict__["_lock"]:
            key = (vocabulary, context.vocab_size)
            automaton = self.build(vocabulary, context.vocab_size)
            return known.setdefault(key, _Lifted(LongestTokens(automaton) if self.longest_tokens else automaton))

    def _illegal(self, row: int, automaton: TokenAutomaton, state: Array, context: Context) -> IllegalToken:
        name = type(self).__name__
        reached = _to_list(context.backend, state)[row]
        taken = [] if context.tokens is None else _to_list(context.backend, context.tokens[row])
        for token in taken:
            after = automaton.advance(reached, token)
            if after == DEAD:
                shown = automaton.vocabulary.describe(token)
                return IllegalToken(
                    f"{name}: row {row} accepted token {token} ({shown}), which is not allowed there. Its text can no "
                    f"longer match; sample from the processed logits, or roll the row back.",
                    row=row,
                )
            reached = after
        return IllegalToken(f"{name}: row {row} accepted a token that is not allowed in an earlier step.", row=row)


def _masked(logits: Array, rows: Any, context: Context) -> Array:
    backend, pool = context.backend, context.pool
    if pool is None or not backend.uses_buffer_pool:
        return backend.apply_token_rows(logits, rows, context.donate)
    return backend.apply_token_rows(logits, rows, context.donate, pool)


def _in_host_memory(context: Context) -> bool:
    return context.backend.on_host and not context.compiled


def _reached(lifted: _Lifted, state: Array, context: Context) -> list[_Node]:
    backend = context.backend
    if backend.on_host:  # NumPy's and PyTorch's own lists: nothing in between
        return lifted.reach(state.tolist(), None if context.tokens is None else context.tokens.tolist())
    tokens = None if context.tokens is None else backend.to_numpy(context.tokens).tolist()
    return lifted.reach(_to_list(backend, state), tokens)


def _to_list(backend: Backend, array: Array) -> Any:
    return backend.to_numpy(array).tolist()


def _device_states(tables: _Tables, state: Array, context: Context) -> Array:
    if context.tokens is None:
        return state
    backend, xp = context.backend, context.backend.xp
    following, token_class = tables.next.on(backend), tables.token_class.on(backend)
    width = token_class.shape[0]
    for j in range(context.tokens.shape[1]):
        token = context.tokens[:, j]
        # No xp.clip: array-api-compat asks math.isnan about its bounds, which a compiler's symbolic width is not.
        inside = xp.logical_and(token >= 0, token < width)
        known = xp.take(token_class, xp.where(inside, token, xp.zeros_like(token)), axis=0)
        after = xp.take(following, state * tables.classes + known, axis=0)
        # Whatever an engine pads a finished row with (the last row but one) changes nothing.
        kept = xp.logical_or(token < width, state == tables.dead - 1)
        after = xp.where(kept, after, xp.full_like(after, tables.dead))
        state = xp.where(token >= 0, after, state)
    return state
