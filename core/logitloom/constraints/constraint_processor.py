"""The base class of processors that are constraints.

Two ways of stepping, with equal results:

* on the host the states of visited rows are remembered, and a mask is applied by touching what it changes;
* on devices and in compiled loops the tables of finite constraints are uploaded once, a step is a gather, and the host
  waits for nothing. Constraints without tables upload one packed mask per row and step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from logitloom.arrays.backend import Array, Backend
from logitloom.constraints.longest_tokens import LongestTokens
from logitloom.constraints.memory import ConstraintMemory, DeviceTables, StateNode
from logitloom.constraints.token_limit import LimitedState, host_list, row_limits, tokens_left, unlimited
from logitloom.context import Context
from logitloom.contract import Constraint, State, check_constraint
from logitloom.effect import MASK
from logitloom.errors import IllegalToken, NeedsNotMet
from logitloom.host.entry_points import PluginName
from logitloom.host.hookspecs import TextEnd
from logitloom.host.loading import at_place
from logitloom.host.options import declared, option
from logitloom.masks.mask_row import MaskRow
from logitloom.process_memory import ProcessLock
from logitloom.processor import Processor
from logitloom.rows import tree as row_state
from logitloom.rows.tree import Rows
from logitloom.vocabulary import Vocabulary

__all__ = ["ConstraintProcessor", "LimitedProcessor"]

#: A batch of at least this number of rows is looked up by one compiled call.
_MANY: Final = 6
#: The most pairs of a vocabulary and a width for which a processor keeps its constraint.
_MOST_KEPT: Final = 16


class ConstraintProcessor(Processor):
    """A processor that is a constraint; derive from it and implement :meth:`constraint`.

    The state of a row is the constraint's state after the row's tokens: ``int32[batch]`` where states are numbers,
    :class:`.tree.Rows` of states otherwise. Where the number of tokens is limited (``finish_within``, or the
    loop or engine tells), it is a ``LimitedState``, and each text is complete in time. End-of-sequence is allowed
    exactly where the text may end. A token that is not allowed raises :class:`IllegalToken`, naming the row; on devices
    the row becomes -inf.

    Example:
        >>> from dataclasses import dataclass
        >>> from logitloom import Context, Vocabulary, processors
        >>> from logitloom.automata import TokenAutomaton, compile_pattern
        >>> @dataclass(frozen=True)
        ... class Year(ConstraintProcessor):
        ...     def constraint(self, vocabulary, vocab_size):
        ...         return TokenAutomaton(compile_pattern("[0-9]{4}"), vocabulary, vocab_size)
        >>> words = Vocabulary([b"", b"19", b"84", b"x"], eos=[0])
        >>> chain = processors.load(Year(), tokenizer=words)
        >>> context = Context.start(np.zeros((1, 4), dtype=np.float32), vocabulary=words)
        >>> chain.process(np.zeros((1, 4), dtype=np.float32), chain.init_state(context), context)[0]
        array([[-inf,   0.,   0., -inf]], dtype=float32)
    """

    stage = "constraint"
    needs = frozenset({"vocabulary"})
    effect = MASK
    #: Whether only the longest token is allowed where only one text can come next; processors make it an option.
    longest_tokens: ClassVar[bool] = False
    #: Most tokens of a text, end-of-sequence included; each text is complete by then. ``None``: the limit of the loop
    #: or engine, where it is known; 0: no limit. An option of each :class:`LimitedProcessor`.
    finish_within: int | None = None

    # Made when they are first asked for: a derived class may have a constructor of its own.
    @property
    def _memories(self) -> Any:
        return self.__dict__.setdefault("_memories", {})

    @property
    def _lock(self) -> Any:
        return self.__dict__.setdefault("_lock", ProcessLock())

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled of a class that is no dataclass; the constraints are made again at the other end."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_memories", "_lock")}

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """The constraint over a vocabulary and a width of the logits; the constraints of the last few are kept.

        Raises:
            LogitloomError: if there is none within the budget.
        """
        raise NotImplementedError(f"{type(self).__name__} must define constraint(vocabulary, vocab_size).")

    def start_states(self, constraint: Constraint, context: Context) -> Sequence[State]:
        """The state of each row at the start: ``batch`` of them."""
        return [constraint.start()] * context.batch

    def constraint_for(self, context: Context) -> Constraint:
        """The constraint that a generation with this context uses."""
        return self.memory(context).constraint

    def memory(self, context: Context) -> ConstraintMemory:
        """The constraint for the vocabulary of a context, with the memory of its states."""
        key = vocabulary, _ = context.vocabulary, context.vocab_size
        found: ConstraintMemory | None = self._memories.get(key)
        if found is not None:
            return found
        if vocabulary is None:
            raise NeedsNotMet(
                f"{PluginName(type(self))} needs a vocabulary: load the chain with tokenizer=..., or give the context "
                f"one."
            )
        return self._new_memory(vocabulary, context.vocab_size)

    def _new_memory(self, vocabulary: Vocabulary, vocab_size: int) -> ConstraintMemory:
        known: dict[tuple[Vocabulary, int], ConstraintMemory] = self._memories
        with self._lock:
            if (vocabulary, vocab_size) not in known:
                vocabulary.check_width(vocab_size)
                with at_place("Processor", PluginName(type(self))):
                    constraint = self.constraint(vocabulary, vocab_size)
                check_constraint(constraint, PluginName(type(self)), vocab_size)
                constraint = LongestTokens(constraint) if self.longest_tokens else constraint
                if len(known) >= _MOST_KEPT:
                    del known[next(iter(known))]
                known[vocabulary, vocab_size] = ConstraintMemory(constraint)
            return known[vocabulary, vocab_size]

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Make the constraint if the tokens cannot write every text, so that errors come before decoding.

        Raises:
            LogitloomError: as :meth:`constraint`.
        """
        if vocabulary.eos and not vocabulary.writes_every_byte:
            self._new_memory(vocabulary, vocabulary.size)

    def constraint_fingerprint(self, vocabulary: Vocabulary | None, vocab_size: int | None) -> tuple[int, bytes] | None:
        """A width of the logits, and the fingerprint of the constraint at that width; a saved state carries both.

        Args:
            vocabulary: of the constraint; ``None`` accepts every vocabulary for which there is a constraint already.
            vocab_size: the width; ``None`` accepts every width for which there is a constraint already.

        Returns:
            ``None`` if no constraint that fits has been made yet.
        """
        if vocabulary is not None and vocab_size is not None:
            return vocab_size, self._new_memory(vocabulary, vocab_size).constraint.fingerprint
        for (words, width), memory in [*self._memories.items()]:
            if vocabulary in (None, words) and vocab_size in (None, width):
                return width, memory.constraint.fingerprint
        return None

    # --- hooks ----------------------------------------------------------------------------------------------------

    def init_state(self, context: Context) -> Any:
        """``[batch] int32``, or :class:`~logitloom.rows.tree.Rows` of states."""
        memory, backend = self.memory(context), context.backend
        if context.compiled and not memory.dense:
            raise NeedsNotMet(
                f"A compiled loop cannot run {PluginName(type(self))}: its constraint "
                f"{type(memory.constraint).__name__} has no tables, because its states are no numbers. Call the chain "
                f"outside of the loop, and declare 'compilable = False' in the class."
            )
        on_device = memory.dense and not _in_host_memory(context)
        starts = list(self.start_states(memory.constraint, context))
        has_option = any(each.name == "finish_within" for each in declared(self))
        limits = row_limits(
            PluginName(type(self)), memory.constraint, starts, self.finish_within, context, has_option=has_option
        )
        if on_device:
            tables = memory.device_tables
            masks = [tables.allowed] if limits is None or tables.gives_way else []
            masks += [] if limits is None else [tables.needed]
            for table in (tables.next, *masks, tables.token_class):
                table.on(backend)
        states = self._packed(starts, memory, backend)
        if limits is None:
            return states
        left = backend.asarray(np.asarray(limits, dtype=np.int32)) if on_device else Rows(limits)
        return LimitedState(states, left)

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """Advance by the accepted tokens, then forbid what the state does not allow."""
        if isinstance(state, LimitedState):
            left = tokens_left(state.left, context)
            logits, states = self._step(logits, state.states, left, context)
            return logits, LimitedState(states, left)
        return self._step(logits, state, None, context)

    def _step(self, logits: Array, state: Any, left: Any, context: Context) -> tuple[Array, Any]:
        """:meth:`process` for the states without their limits."""
        memory, backend = self.memory(context), context.backend
        if memory.dense and not _in_host_memory(context):
            tables = memory.device_tables
            state = _device_states(tables, state, context)
            if isinstance(left, Rows):  # of a state that was made on the host
                left = backend.asarray(list(left), "int32")
            if left is None:
                allowed = backend.take_rows(tables.allowed.on(backend), state)
            else:
                # The token itself and end-of-sequence count, too.
                allowed = backend.take_rows(tables.needed.on(backend), state) <= left[:, None] - 2
                if tables.gives_way:
                    kept = backend.xp.logical_and(allowed, backend.take_rows(tables.allowed.on(backend), state))
                    allowed = backend.xp.where(backend.xp.any(kept, axis=1, keepdims=True), kept, allowed)
            return backend.apply_class_mask(logits, allowed, tables.token_class.on(backend), context.donate), state
        if left is not None and not isinstance(left, Rows):  # of a state that was made on a device
            left = backend.to_numpy(left).tolist()
        if memory.dense and context.batch >= _MANY and context.tokens is not None:
            # A finite automaton has the same bound in all states.
            free = left is None or memory.constraint.most_after(0) <= min(left, default=0) - 2
            found = memory.step_batch(state, context) if free else None
            if found is not None:
                return _masked(logits, found[1], context), backend.asarray(found[0])
        reached = _reached(memory, state, context)
        within = {} if left is None else self._within(reached, left, memory)
        rows: Any = [node.row for node in reached]
        for row, mask in within.items():
            rows[row] = mask
        if None in rows:  # a state that is new, or dead
            dead = [row for row, node in enumerate(reached) if node.state == memory.dead]
            if dead:
                raise self._illegal(dead, memory, state, context)
            new = [row for row, mask in enumerate(rows) if mask is None]
            for row, mask in zip(new, memory.masks([reached[row] for row in new]), strict=True):
                rows[row] = mask
        if context.tokens is not None:
            state = self._packed([node.state for node in reached], memory, backend)
        if not backend.on_host:
            bits = np.stack([memory.bits_of(row) for row in rows]) if within else memory.bits(reached)
            return backend.apply_token_mask(logits, backend.asarray(bits), context.donate), state
        return _masked(logits, rows, context), state

    def _within(self, reached: list[StateNode], left: Any, memory: ConstraintMemory) -> dict[int, MaskRow]:
        """By row the mask under the limit on tokens, for rows in which the limit changes the mask of the state."""
        found = {}
        for row, node in enumerate(reached):
            if not 0 <= node.most_after <= left[row] - 2:
                mask = memory.mask_within(node, left[row])
                if mask is not None:
                    if mask.allowed and not len(mask.ids):
                        raise self._too_late(row, left[row], memory, node)
                    found[row] = mask
        return found

    def states_after(self, state: Any, context: Context) -> Any:
        """The states after none, one, two, ... of the accepted tokens: one step for each."""
        assert context.tokens is not None
        if isinstance(state, LimitedState):
            lefts = [state.left]
            for j in range(context.tokens.shape[1]):
                lefts.append(tokens_left(lefts[-1], context.with_fields(tokens=context.tokens[:, j : j + 1])))
            return LimitedState(self.states_after(state.states, context), row_state.concat(lefts))
        memory, backend, count = self.memory(context), context.backend, context.batch
        steps = [context.with_fields(tokens=context.tokens[:, j : j + 1]) for j in range(context.tokens.shape[1])]
        if memory.dense and not _in_host_memory(context):
            found = [state]
            for step in steps:
                found.append(_device_states(memory.device_tables, found[-1], step))
            return backend.concat_rows(found)
        every = [node.state for node in _reached(memory, state, context.with_fields(tokens=None))]
        for n, step in enumerate(steps):
            before = every[-count:]
            after = [node.state for node in memory.reach(before, backend.to_numpy(step.tokens).tolist())]
            dead = [row for row, reached in enumerate(after) if reached == memory.dead != before[row]]
            if dead:
                error = self._illegal(dead, memory, self._packed(before, memory, backend), step)
                raise IllegalToken(str(error), row=(n + 1) * count + dead[0]) from error
            every += after
        return self._packed(every, memory, backend)

    def forced_tokens(self, state: Any, context: Context) -> list[list[int]] | None:
        """Per row the forced tokens: the run in which each token is the only allowed one."""
        memory = self.memory(context)
        nodes = _reached(memory, unlimited(state), context)
        if not isinstance(state, LimitedState):
            return [list(memory.forced(node)) for node in nodes]
        left = tokens_left(state.left, context)
        left = left if isinstance(left, Rows) else context.backend.to_numpy(left).tolist()
        return [memory.forced_within(*row) for row in zip(nodes, left, strict=True)]

    def text_end(self, state: Any, context: Context) -> list[TextEnd] | None:
        """Per row whether the text is over, and the number of bytes that do not belong to the text; ``None`` if the
        constraint ends no texts.

        Each new token is examined on its own, so the answer is exact for any number of new tokens.
        """
        memory = self.memory(context)
        if not memory.constraint.ends_texts:
            return None
        before = _reached(memory, unlimited(state), context.with_fields(tokens=None))
        tokens: list[list[int]] = [[]] * len(before)
        if context.tokens is not None:
            tokens = context.backend.to_numpy(context.tokens).tolist()
        return [_text_end(memory, node.state, taken) for node, taken in zip(before, tokens, strict=True)]

    def host_states(self, state: Any, context: Context) -> list[Any]:
        """Per row the constraint's state after the accepted tokens."""
        return [node.state for node in _reached(self.memory(context), unlimited(state), context)]

    # --- parts of a step ------------------------------------------------------------------------------------------

    @staticmethod
    def _packed(states: list[Any], memory: ConstraintMemory, backend: Backend) -> Any:
        return backend.asarray(states, "int32") if memory.dense else Rows(states)

    def _too_late(self, row: int, left: int, memory: ConstraintMemory, node: StateNode) -> IllegalToken:
        least = memory.constraint.least_tokens(node.state)
        return IllegalToken(
            f"{PluginName(type(self))}: row {row} has {max(left, 0)} tokens left, and the text needs "
            f"{'more' if least is None else least + 1} to be complete, end-of-sequence included: it accepted a token "
            f"that leads too far. Sample from the processed logits, or roll the row back.",
            row=row,
        )

    def _illegal(self, rows: list[int], memory: ConstraintMemory, state: Any, context: Context) -> IllegalToken:
        name, row, illegal = PluginName(type(self)), rows[0], tuple(rows)
        reached = _reached(memory, state, context.with_fields(tokens=None))[row].state
        taken = [] if context.tokens is None else context.backend.to_numpy(context.tokens)[row].tolist()
        for token in taken:
            after = memory.advance(reached, token)
            if after == memory.dead and reached != memory.dead:
                shown = memory.constraint.vocabulary.describe(token)
                return IllegalToken(
                    f"{name}: row {row} accepted token {token} ({shown}), which is not allowed there. Its text can no "
                    f"longer match; sample from the processed logits, or roll the row back.",
                    row=row,
                    rows=illegal,
                )
            reached = after
        return IllegalToken(
            f"{name}: row {row} accepted a token that is not allowed in an earlier step.", row=row, rows=illegal
        )


@dataclass(frozen=True)
class LimitedProcessor(ConstraintProcessor):
    """A constraint with the option ``finish_within``; derive from it where texts have to be complete.

    The option is given by name alone, and comes after the options of the processor itself.

    Example:
        >>> from logitloom.automata import TokenAutomaton, compile_pattern
        >>> @dataclass(frozen=True)
        ... class Years(LimitedProcessor):
        ...     first: int = 19
        ...     def constraint(self, vocabulary, vocab_size):
        ...         return TokenAutomaton(compile_pattern(f"({self.first}[0-9]{{2}} ?)+"), vocabulary, vocab_size)
        >>> Years(20, finish_within=12)
        Years(finish_within=12, first=20)
    """

    finish_within: int | None = option(
        None,
        help="Most tokens until a text is complete; default: as the loop or engine limits it; 0: none.",
        ge=0,
        kw_only=True,
    )


def _masked(logits: Array, rows: Any, context: Context) -> Array:
    backend, pool = context.backend, context.pool
    if pool is None or not backend.uses_buffer_pool:
        return backend.apply_token_rows(logits, rows, context.donate)
    return backend.apply_token_rows(logits, rows, context.donate, pool)


def _in_host_memory(context: Context) -> bool:
    return context.backend.on_host and not context.compiled


def _reached(memory: ConstraintMemory, state: Any, context: Context) -> list[StateNode]:
    backend, tokens = context.backend, context.tokens
    if not memory.dense:
        return memory.reach(state, None if tokens is None else host_list(backend, tokens))
    # Of one step all arrays have values, or none.
    if not (backend.on_host and backend.has_values(state)):
        state, tokens = backend.to_numpy(state), None if tokens is None else backend.to_numpy(tokens)
    return memory.reach(state.tolist(), None if tokens is None else tokens.tolist())


def _text_end(memory: ConstraintMemory, state: Any, tokens: Sequence[int]) -> TextEnd:
    constraint = memory.constraint
    special = (memory.finished, memory.dead)
    for position, token in enumerate(tokens):
        state = memory.advance(state, token)
        if state not in special and constraint.text_end(state).finished:
            hold = constraint.text_end(state).hold
            for later in tokens[position + 1 :]:
                if later in constraint.vocabulary.eos:
                    break
                hold += len(constraint.vocabulary.text_bytes([later])) if later >= 0 else 0
            return TextEnd(True, hold)
    return TextEnd(False, 0) if state in special else constraint.text_end(state)


def _device_states(tables: DeviceTables, state: Array, context: Context) -> Array:
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
