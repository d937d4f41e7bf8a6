"""What the host remembers of one constraint's states: masks, successors, forced runs.

The tables stand in the memory of the constraint (:class:`.StateMemory`), which bounds their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import Array, HostTable
from logitloom.context import Context
from logitloom.contract import FINISHED, UNKNOWN, Constraint, Ended, State, TokenSet
from logitloom.masks.kernels import KernelFailed, MaskKernels, StepTables, host_kernels
from logitloom.masks.mask_row import MaskBatch, MaskRow, records_of

__all__ = ["ConstraintMemory", "DeviceTables", "StateNode"]

#: Name of the table of the compiled steps, and key of its only entry.
_COMPILED: Final = "compiled steps"


class DeviceTables:
    """The tables of a finite constraint for devices. The last row is the dead state, so no index is negative."""

    def __init__(self, constraint: Constraint) -> None:
        tables = constraint.tables()
        if tables is None:
            raise ValueError(f"{constraint!r} says how many states it has, but has no tables.")
        self.dead = len(tables.next) - 1
        self.classes = tables.next.shape[1]
        self.next = HostTable(tables.total().ravel())
        self.allowed = HostTable(tables.allowed)
        self.gives_way = constraint.gives_way
        self._constraint, self._tables = constraint, tables
        self._needed: HostTable | None = None
        self.token_class = HostTable(tables.token_class)

    @property
    def needed(self) -> HostTable:
        """``[rows, classes] int32``: tokens to the nearest end after a token of a class; :data:`UNKNOWN` for none."""
        if self._needed is None:
            tables, states = self._tables, len(self._tables.next) - 2
            least = np.full(states + 2, UNKNOWN, dtype=np.int32)
            for state in range(states):
                found = self._constraint.least_tokens(state)
                least[state] = UNKNOWN if found is None else found
            followed = tables.next != Ended.DEAD.value if self.gives_way else tables.allowed
            needed = np.where(followed, least[tables.next], np.int32(UNKNOWN))
            # The last class is end-of-sequence, which needs no further token and so fits even if no token is left.
            needed[:, -1] = np.where(tables.allowed[:, -1], -UNKNOWN, UNKNOWN)
            self._needed = HostTable(needed)
        return self._needed


class StateNode:
    """One visited state and its remembered results.

    Attributes:
        state: the constraint's state, or the finished or dead state.
        row: the mask of the state, after the first request.
        forced: the run of forced tokens, after the first request.
        bits: ``[ceil(vocab_size / 32)] int32``, the mask as bits.
        most_after: the constraint's answer, -1 before it was asked.
        enough: the bound that was enough when it was asked.
        least_after: the same, ``None`` before.
    """

    __slots__ = ("bits", "enough", "forced", "least_after", "most_after", "row", "state")

    def __init__(self, state: Any) -> None:
        self.state = state
        self.row: MaskRow | None = None
        self.forced: list[int] | None = None
        self.bits: NDArray[np.int32] | None = None
        self.most_after = -1
        self.enough = 0
        self.least_after: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None


class _CompiledBatch(NamedTuple):
    """The arrays that a compiled step through a batch needs.

    Attributes:
        kernels: the compiled functions.
        tables: the tables that the functions read.
        masks: the masks by state. Records hold addresses of masks, so a mask is stored here before its record is
            written.
    """

    kernels: MaskKernels
    tables: StepTables
    masks: dict[int, MaskRow]

    def add(self, state: int, row: MaskRow) -> None:
        """Store the mask of a state, unless another thread has stored one; a step may be reading its record."""
        record = records_of([self.masks.setdefault(state, row)])[0]
        # The kind last: without it the record counts as missing.
        self.tables.records[state, 1:] = record[1:]
        self.tables.records[state, 0] = record[0]


class ConstraintMemory:
    """A constraint and what the host remembers of its visited states, in the tables of ``constraint.memory``.

    Several objects of one constraint have the same tables.

    Args:
        constraint: the constraint.

    Attributes:
        dense: whether the states are the integers from 0 on.
        finished, dead: the states after end-of-sequence and after a token that is not allowed.
    """

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint
        self.dense = constraint.states is not None
        self.finished: Any = FINISHED.value if self.dense else FINISHED
        self.dead: Any = Ended.DEAD.value if self.dense else Ended.DEAD
        self._eos = frozenset(constraint.vocabulary.eos)
        self._ends = np.array(sorted(t for t in self._eos if t < constraint.vocab_size), dtype=np.int32)
        self._device_tables: DeviceTables | None = None
        self._memory = memory = constraint.memory
        self._nodes: dict[State, StateNode] = memory.table("nodes")
        #: Successors by state and token; a negative token changes nothing.
        self._after: dict[tuple[State, int], StateNode] = memory.table("nodes after tokens")
        #: Masks by the identity of the listed ids. The ids are kept here too, so that no other array gets the same
        #: identity.
        self._masks: dict[tuple[int, bool, bool], tuple[NDArray[np.int32], MaskRow]] = memory.table("masks")
        #: At most one entry: the arrays of compiled steps, or ``None`` if the constraint has none.
        self._compiled: dict[str, _CompiledBatch | None] = memory.table(_COMPILED)

    def clear(self) -> None:
        """Drop everything that is remembered of the constraint. Nodes that are in use stay valid."""
        self._memory.clear()

    @property
    def device_tables(self) -> DeviceTables:
        """The tables for devices, made when first asked for."""
        if self._device_tables is None:
            self._device_tables = DeviceTables(self.constraint)
        return self._device_tables

    # --- states ---------------------------------------------------------------------------------------------------

    def node(self, state: Any) -> StateNode:
        """The node of a state."""
        if self.dense:
            # On devices the two special states are the last rows of the tables.
            rows = (self.constraint.states or 0) + 2
            state = state - rows if state >= rows - 2 else state
        known = self._nodes.get(state)
        if known is None:
            self._memory.note()
            known = self._nodes.setdefault(state, StateNode(state))
        return known

    def reach(self, states: Sequence[Any], tokens: Sequence[Sequence[int]] | None) -> list[StateNode]:
        """Per row the node of its state after its tokens (negative tokens stand for nothing)."""
        if tokens is None:
            return [self._nodes.get(state) or self.node(state) for state in states]
        after = self._after
        if tokens and len(tokens[0]) == 1:
            if len(states) == len(tokens) == 1:
                step = states[0], tokens[0][0]
                return [after.get(step) or self._step(*step)]
            return [after.get(step) or self._step(*step) for step in zip(states, [t for (t,) in tokens], strict=True)]
        reached = []
        for state, taken in zip(states, tokens, strict=True):
            node = self._nodes.get(state) or self.node(state)
            for token in taken:
                node = after.get((node.state, token)) or self._step(node.state, token)
            reached.append(node)
        return reached

    def advance(self, state: Any, token: int) -> Any:
        """The state after one more token of any kind; -1 changes nothing."""
        if token < 0 or state in (self.finished, self.dead):
            return state
        constraint = self.constraint
        if token in self._eos:
            if not constraint.may_end(state):
                return self.dead
            after: Any = constraint.finish(state)
            return self.finished if after is FINISHED else after
        if token >= constraint.vocab_size:
            return self.dead
        after = constraint.advance(state, token)
        return self.dead if after is None else after

    def _step(self, state: Any, token: int) -> StateNode:
        node = self._nodes.get(state) or self.node(state)
        if token >= 0:
            node = self.node(self.advance(node.state, token))
        self._memory.note()
        self._after[state, token] = node
        return node

    # --- masks ----------------------------------------------------------------------------------------------------

    def mask(self, node: StateNode) -> MaskRow:
        """The mask of a node's state."""
        return node.row or self._prepare(node, self._allowed(node.state))

    def masks(self, nodes: Sequence[StateNode]) -> list[MaskRow]:
        """The masks of several nodes. The constraint is asked for all unknown masks together."""
        if len(nodes) == 1:
            return [self.mask(nodes[0])]
        missing = {id(node): node for node in nodes if node.row is None}
        if len(missing) > 1:
            asked = [node for node in missing.values() if node.state not in (self.finished, self.dead)]
            found = self.constraint.allowed_many([node.state for node in asked])
            for node, members in zip(asked, found, strict=True):
                self._prepare(node, members)
        return [node.row or self.mask(node) for node in nodes]

    def bits(self, nodes: Sequence[StateNode]) -> NDArray[np.int32]:
        """``[len(nodes), ceil(vocab_size / 32)] int32``: bit ``i % 32`` of word ``i // 32`` allows id ``i``."""
        words = -(-self.constraint.vocab_size // 32)
        packed = np.zeros((len(nodes), words), dtype=np.int32)
        for n, (node, row) in enumerate(zip(nodes, self.masks(nodes), strict=True)):
            if node.bits is None:
                node.bits = self.bits_of(row)
                self._memory.note(node.bits, entries=0)
            packed[n] = node.bits
        return packed

    def bits_of(self, row: MaskRow) -> NDArray[np.int32]:
        """``[ceil(vocab_size / 32)] int32``: one mask as bits."""
        allowed = np.zeros(-(-self.constraint.vocab_size // 32) * 32, dtype=bool)
        allowed[: self.constraint.vocab_size] = not row.allowed
        allowed[row.ids] = row.allowed
        return np.packbits(allowed, bitorder="little").view("<i4").astype(np.int32, copy=False)

    def mask_within(self, node: StateNode, left: int) -> MaskRow | None:
        """The mask of :meth:`allowed_within`, with end-of-sequence if the text may end; ``None`` in the same case."""
        kept = self.allowed_within(node, left)
        if kept is None:
            return None
        ids = self._with_ends(kept) if self.may_end(node.state) else kept.ids
        return MaskRow(kept.allowed, ids, self.constraint.vocab_size)

    def allowed_within(self, node: StateNode, left: int) -> TokenSet | None:
        """The tokens after which the text can be completed in ``left`` tokens, the token and end-of-sequence included.

        ``None`` if these are all that the state allows, because no token leads too far away. All limits on tokens on
        the host follow this rule: processors apply it to masks, combinators to the token sets of a constraint inside
        them.
        """
        if node.state in (self.finished, self.dead):
            return None
        # Where a bound was enough, no smaller one has been looked for.
        if node.most_after < 0 or left - 2 < node.most_after <= node.enough:
            node.enough = max(left - 2, 0)
            node.most_after = self.constraint.most_after(node.state, node.enough)
        if 0 <= node.most_after <= left - 2:
            return None
        kept = self._kept_within(node, left - 2)
        if kept is not None and self.constraint.gives_way:
            size = self.constraint.vocab_size
            allowed = (self.constraint.allowed(node.state).mask(size) & kept.mask(size)).nonzero()[0]
            kept = TokenSet(True, allowed.astype(np.int32)) if len(allowed) else kept
        return kept

    def _kept_within(self, node: StateNode, most: int) -> TokenSet | None:
        """:meth:`allowed_within`, ids that give way included."""
        found = None if node.least_after is not None else self.constraint.allowed_within(node.state, most)
        if found is not None:
            return found
        if node.least_after is None:
            node.least_after = ids, least = self.constraint.least_after(node.state)
            self._memory.note((ids, least), entries=0)
            # No token needs more tokens than this bound. So no list has to be looked at.
            farthest = int(np.max(least, initial=0))
            node.most_after = farthest if node.most_after < 0 else min(node.most_after, farthest)
            if node.most_after <= most:
                return None
        ids, least = node.least_after
        return TokenSet(True, ids[least <= most])

    def _allowed(self, state: Any) -> TokenSet:
        if state == self.finished or state == self.dead:
            return TokenSet(True, self._ends[:0])
        return self.constraint.allowed(state)

    def may_end(self, state: Any) -> bool:
        """Whether end-of-sequence is allowed in a state."""
        return bool(state == self.finished or (state != self.dead and self.constraint.may_end(state)))

    def _prepare(self, node: StateNode, members: TokenSet) -> MaskRow:
        ends = self.may_end(node.state)
        key = id(members.ids), members.allowed, ends
        known = self._masks.get(key)
        if known is None:
            row = MaskRow(
                members.allowed, self._with_ends(members) if ends else members.ids, self.constraint.vocab_size
            )
            known = members.ids, row
            self._memory.note(members.ids, nbytes=row.nbytes)
            self._masks[key] = known
        compiled = self._compiled.get(_COMPILED)
        if compiled is not None:
            compiled.add(node.state, known[1])
        node.row = known[1]
        return node.row

    def _with_ends(self, members: TokenSet) -> NDArray[np.int32]:
        """The listed ids of a set to which the end-of-sequence ids were added."""
        ends_at = np.searchsorted(members.ids, self._ends)
        if members.allowed:
            return np.insert(members.ids, ends_at, self._ends)
        listed = ends_at[ends_at < len(members.ids)]
        return np.delete(members.ids, [at for at in listed.tolist() if int(members.ids[at]) in self._eos])

    def forced(self, node: StateNode) -> list[int]:
        """The forced tokens: the run in which each token is the only allowed one; ends after end-of-sequence."""
        run = node.forced
        if run is None:
            run = node.forced = self._find_forced(node.state)
            self._memory.note(entries=len(run))
        return run

    def forced_within(self, node: StateNode, left: int) -> list[int]:
        """:meth:`forced` for a text that must be complete in ``left`` tokens, end-of-sequence included."""
        run: list[int] = []
        while not run or run[-1] not in self._eos:
            row = self.mask_within(node, left - len(run))
            if row is not None and not (row.allowed and len(row.ids) == 1):
                break
            following = self.forced(node) if row is None else row.ids.tolist()
            if not following:
                break
            run += following
            for token in following:
                node = self._step(node.state, token)
        return run

    def _find_forced(self, state: Any) -> list[int]:
        if state in (self.finished, self.dead):
            return []
        run = list(self.constraint.forced(state))
        for token in run:
            state = self.advance(state, token)
        if len(self._ends) == 1 and self.may_end(state):
            members = self._allowed(state)
            if members.allowed and not len(members.ids):
                run.append(int(self._ends[0]))
        return run

    # --- compiled steps -------------------------------------------------------------------------------------------

    def step_batch(self, state: Array, context: Context) -> tuple[NDArray[np.int32], MaskBatch] | None:
        """The states of the rows after the context's tokens, and their masks, if all of them are known already.

        Looking rows up one by one costs more than writing short masks; the compiled function looks up the whole batch
        in one call.
        """
        compiled = self._compiled_batch()
        if compiled is None:
            return None
        to_numpy = context.backend.to_numpy
        states, tokens = np.ascontiguousarray(to_numpy(state)), np.ascontiguousarray(to_numpy(context.tokens))
        rows = len(states)
        if len(tokens) != rows:
            return None
        reached, records = np.empty(rows, dtype=np.int32), np.empty((rows, 3), dtype=np.int64)
        try:
            done, buffer_cost = compiled.kernels.step(states, tokens, compiled.tables, reached, records)
        except KernelFailed:
            self._compiled[_COMPILED] = None
            return None
        size = self.constraint.vocab_size
        return (reached, MaskBatch(records, buffer_cost, size, compiled.masks, reached)) if done else None

    def _compiled_batch(self) -> _CompiledBatch | None:
        if _COMPILED in self._compiled:
            return self._compiled.get(_COMPILED)
        kernels = host_kernels()
        if kernels is None:  # they may be ready later
            return None
        step = self.constraint.compiled_step()
        if step is None:
            self._compiled[_COMPILED] = None
            return None
        texts = self.constraint.vocabulary.flat_bytes, self.constraint.vocabulary.offsets
        records = np.full((len(step.accepting), 3), -1, dtype=np.int64)
        tables = StepTables(step.automaton, *texts, self._ends, step.accepting, step.closing, records)
        compiled = _CompiledBatch(kernels, tables, {})
        # The batch is published before the masks are copied: a thread that finds a mask later adds it to the batch.
        self._memory.note(records)
        self._compiled[_COMPILED] = compiled
        for state, node in [*self._nodes.items()]:
            if node.row is not None:
                compiled.add(state, node.row)  # type: ignore[arg-type]
        return compiled
