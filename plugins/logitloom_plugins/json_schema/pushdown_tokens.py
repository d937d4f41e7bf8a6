"""From the pushdown automaton over bytes to tokens: which may come next, and where each leads.

A configuration is a state of the machine and what it remembers, both as numbers, and itself has a number: the state of
a row. A row of allowed tokens is found by one walk of the vocabulary's trie, on whole levels at once; below a node
whose tokens hold no quotes, backslashes or control characters, free text is allowed without looking.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitloom.automata import FINISHED, TokenRow, vocabulary_trie
from logitloom.automata.trie import MALFORMED
from logitloom.errors import VocabularyError
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.json_schema.machine import DEAD, Machine

__all__ = ["PushdownTokens"]

_FEW: Final = 64
_VERY_FEW: Final = 12
_LOW_SPECIAL: Final = np.uint64((1 << 32) - 1 | 1 << ord('"'))
_HIGH_SPECIAL: Final = np.uint64(1 << (ord("\\") - 64))
_ROW_BYTES_LIMIT: Final = 64 << 20
_MEMO_LIMIT: Final = 1 << 18


class _NoStates(NamedTuple):
    """Numbers of configurations have no upper bound; what only large numbers could mean, none means."""

    states: int = (1 << 31) - 8


class PushdownTokens:
    """Tokens of a schema's texts; has the interface of :class:`logitloom.automata.TokenAutomaton` that loops use.

    A configuration is a number; ``FINISHED`` (-2) after end-of-sequence, ``DEAD`` (-1) after a token not allowed.

    Args:
        machine: the automaton over bytes.
        vocabulary: the bytes of each id.
        vocab_size: width of the model's logits.
    """

    dfa = _NoStates()

    def __init__(self, machine: Machine, vocabulary: Vocabulary, vocab_size: int | None = None) -> None:
        self.machine = machine
        self.vocabulary = vocabulary
        self.vocab_size = vocabulary.size if vocab_size is None else int(vocab_size)
        self.eos = vocabulary.eos
        if not self.eos:
            raise VocabularyError(
                f"{vocabulary.name} has no end-of-sequence id, so no text could ever end. Use Vocabulary.with_eos."
            )
        self._trie = vocabulary_trie(vocabulary)
        self._lock = threading.RLock()
        # What is remembered: number -> (return, number of what was remembered before); 0 is nothing.
        self._stacks: list[tuple[int, int]] = [(-1, -1)]
        self._stack_number: dict[tuple[int, int], int] = {}
        # State, stack, and what is written of a name that must not come twice.
        self._configurations: list[tuple[int, int, bytes]] = []
        self._number: dict[tuple[int, int, bytes], int] = {}
        self._rows: dict[int, TokenRow] = {}
        self._row_bytes = 0
        self._memo: dict[tuple[int, int], int] = {}
        self.start = self._configuration(machine.start, 0)
        padding = np.arange(vocabulary.size, self.vocab_size, dtype=np.int32)
        self._textless = np.concatenate([self._trie.textless, padding])

    def _configuration(self, state: int, stack: int, written: bytes = b"") -> int:
        key = (state, stack, written)
        known = self._number.get(key)
        if known is None:
            known = self._number[key] = len(self._configurations)
            self._configurations.append(key)
        return known

    def _applied(self, code: int, stack: int) -> tuple[int, int]:
        """State and stack after an operation."""
        operation = self.machine.operations[-2 - code]
        if operation.kind == "push":
            key = (operation.value, stack)
            known = self._stack_number.get(key)
            if known is None:
                known = self._stack_number[key] = len(self._stacks)
                self._stacks.append(key)
            return operation.target, known
        back, below = self._stacks[stack]
        return self.machine.returns[back][operation.value], below

    # --- steps -------------------------------------------------------------------------------------------------

    def advance(self, configuration: int, token: int) -> int:
        """The configuration after one more token; ``DEAD`` if it is not allowed. ``token=-1`` changes nothing."""
        if token == -1 or configuration == FINISHED:
            return configuration
        if configuration == DEAD:
            return DEAD
        key = (configuration, token)
        known = self._memo.get(key)
        if known is None:
            with self._lock:
                if len(self._memo) >= _MEMO_LIMIT:
                    self._memo.clear()
                known = self._memo[key] = self._advance(configuration, token)
        return known

    def _advance(self, configuration: int, token: int) -> int:
        state, stack, written = self._configurations[configuration]
        if token in self.eos:
            return FINISHED if stack == 0 and self.machine.accepting(state) else DEAD
        if not 0 <= token < self.vocabulary.size:
            return DEAD
        text = self.vocabulary.token_bytes[token]
        if not text:
            return DEAD
        tracked = self.machine.tracked
        for byte in text:
            code = int(self.machine.row(state)[byte])
            if code == DEAD:
                return DEAD
            if code < DEAD:
                operation = self.machine.operations[-2 - code]
                if operation.kind == "name":
                    code = self.machine.after_name(operation, written)
                    if code == DEAD:
                        return DEAD
                else:
                    code, stack = self._applied(code, stack)
            if code in tracked:
                written = written + bytes([byte]) if state in tracked else b""
            elif written:
                written = b""
            state = code
        return self._configuration(state, stack, written)

    def advance_many(self, configurations: ArrayLike, tokens: ArrayLike) -> NDArray[np.int32]:
        """Configurations after any number of tokens per row: ``[batch] int32``, ``[batch, n]`` or ``[batch]``."""
        result = np.asarray(configurations).tolist()
        columns = np.asarray(tokens)
        if columns.ndim == 1:
            columns = columns[:, None]
        for row, taken in enumerate(columns.tolist()):
            reached = result[row]
            for token in taken:
                reached = self.advance(reached, token)
            result[row] = reached
        return np.array(result, dtype=np.int32)

    # --- rows --------------------------------------------------------------------------------------------------

    def row_kind(self, configuration: int) -> TokenRow:
        """The row of a configuration written the shorter way: allowed ids, or forbidden ids."""
        known = self._rows.get(configuration)
        if known is None:
            with self._lock:
                known = self._find_row(configuration)
                known.ids.setflags(write=False)
                self._row_bytes += known.ids.nbytes
                if self._row_bytes > _ROW_BYTES_LIMIT:
                    self._rows.clear()
                    self._row_bytes = known.ids.nbytes
                self._rows[configuration] = known
        return known

    def row(self, configuration: int) -> NDArray[np.int32]:
        """The ids allowed in a configuration, ``[n] int32``, sorted."""
        kind = self.row_kind(configuration)
        if kind.allowed:
            return np.sort(kind.ids)
        mask = np.ones(self.vocab_size, dtype=bool)
        mask[kind.ids] = False
        return mask.nonzero()[0].astype(np.int32)

    def mask(self, configuration: int) -> NDArray[np.bool_]:
        """``[vocab_size] bool``: which ids are allowed in a configuration."""
        kind = self.row_kind(configuration)
        mask = np.full(self.vocab_size, not kind.allowed)
        mask[kind.ids] = kind.allowed
        return mask

    def _find_row(self, configuration: int) -> TokenRow:
        if configuration == DEAD:
            return TokenRow(True, np.zeros(0, dtype=np.int32))
        if configuration == FINISHED:
            return TokenRow(True, np.array(sorted(self.eos), dtype=np.int32))
        state, stack, written = self._configurations[configuration]
        ends = self.eos if stack == 0 and self.machine.accepting(state) else ()
        listed, ids = self._walk(state, stack, written, self.vocab_size // 2)
        if listed:
            return TokenRow(True, np.concatenate([ids, np.array(ends, dtype=np.int32)]))
        textless = self._textless
        for token in ends:
            textless = textless[textless != token]
        return TokenRow(False, np.concatenate([ids, textless]))

    def _walk(self, state: int, stack: int, written: bytes, most: int) -> tuple[bool, NDArray[np.int32]]:
        trie, machine = self._trie, self.machine
        whole: list[NDArray[Any]] = []
        alive: list[NDArray[Any]] = []
        dead: list[NDArray[Any]] = []
        nodes = np.arange(1, 1 + int(trie.child_count[0]))
        states = np.full(len(nodes), state, dtype=np.int32)
        stacks = np.full(len(nodes), stack, dtype=np.int32)
        while len(nodes):
            table = machine.rows(states)
            codes = table.ravel().take(states.astype(np.int64) * 256 + trie.byte.take(nodes))
            gone = codes == DEAD
            if gone.any():
                dead.append(nodes[gone])
                kept = (~gone).nonzero()[0]
                nodes, codes, stacks = nodes.take(kept), codes.take(kept), stacks.take(kept)
            special = (codes < DEAD).nonzero()[0]
            if len(special) and machine.tracked:
                self._end_names(codes, nodes, special, written)
                gone = codes == DEAD
                if gone.any():
                    dead.append(nodes[gone])
                    kept = (~gone).nonzero()[0]
                    nodes, codes, stacks = nodes.take(kept), codes.take(kept), stacks.take(kept)
                special = (codes < DEAD).nonzero()[0]
            if len(special):
                stacks = stacks.copy()
                pairs = (codes[special].astype(np.int64) << 32) | stacks[special]
                unique, inverse = np.unique(pairs, return_inverse=True)
                results = [self._applied(int(pair >> 32), int(pair & 0xFFFFFFFF)) for pair in unique.tolist()]
                both = np.array(results, dtype=np.int32)[inverse.ravel()]
                codes[special], stacks[special] = both[:, 0], both[:, 1]
            states = codes
            if len(nodes) > _FEW:
                free = machine.free.take(states)
                if free.any():
                    done = (
                        (trie.height.take(nodes) <= free)
                        & (free > 0)
                        & (trie.low.take(nodes) & _LOW_SPECIAL == 0)
                        & (trie.high.take(nodes) & _HIGH_SPECIAL == 0)
                        & (trie.marks.take(nodes) & MALFORMED == 0)
                    )
                    if done.any():
                        whole.append(nodes[done])
                        left = (~done).nonzero()[0]
                        nodes, states, stacks = nodes.take(left), states.take(left), stacks.take(left)
            alive.append(nodes)
            if len(nodes) <= _VERY_FEW and not machine.tracked:
                # Long tokens of blanks make deep levels of one node each, for which arrays do not pay.
                self._walk_on(nodes, states, stacks, alive, dead)
                break
            counts = trie.child_count.take(nodes)
            ends = counts.cumsum()
            total = int(ends[-1]) if len(ends) else 0
            if not total:
                break
            nodes = np.arange(total) + (trie.child_start.take(nodes) - ends + counts).repeat(counts)
            states, stacks = states.repeat(counts), stacks.repeat(counts)
        below, here = _joined(whole), _joined(alive)
        first = np.concatenate([trie.first.take(below), trie.first.take(here)])
        stop = np.concatenate([trie.last.take(below), trie.own.take(here)])
        counts = stop - first
        if int(counts.sum()) > most:
            lost = _joined(dead)
            first = trie.first.take(lost)
            return False, trie.order.take(_members(first, trie.last.take(lost) - first))
        return True, trie.order.take(_members(first, counts))

    def _walk_on(
        self,
        nodes: NDArray[Any],
        states: NDArray[np.int32],
        stacks: NDArray[np.int32],
        alive: list[NDArray[Any]],
        dead: list[NDArray[Any]],
    ) -> None:
        """The rest of a walk below a few nodes, one by one."""
        trie, machine = self._trie, self.machine
        lives: list[int] = []
        dies: list[int] = []
        pending = list(zip(nodes.tolist(), states.tolist(), stacks.tolist(), strict=True))
        while pending:
            node, state, stack = pending.pop()
            first, count = int(trie.child_start[node]), int(trie.child_count[node])
            if not count:
                continue
            codes = machine.row(state)[trie.byte[first : first + count]].tolist()
            for child, code in enumerate(codes, first):
                if code == DEAD:
                    dies.append(child)
                    continue
                lives.append(child)
                if code < DEAD:
                    pending.append((child, *self._applied(code, stack)))
                else:
                    pending.append((child, code, stack))
        alive.append(np.array(lives, dtype=np.int64))
        dead.append(np.array(dies, dtype=np.int64))

    def _end_names(self, codes: NDArray[np.int32], nodes: NDArray[Any], special: NDArray[Any], written: bytes) -> None:
        """Replace the codes for ends of names that must not come twice by what follows; in place."""
        machine, trie = self.machine, self._trie
        for i in special.tolist():
            operation = machine.operations[-2 - int(codes[i])]
            if operation.kind != "name":
                continue
            prefix = bytearray()
            node = int(nodes[i])
            while node:
                prefix.append(int(trie.byte[node]))
                node = int(trie.parent[node])
            text = written + bytes(reversed(prefix))[:-1]
            at = len(text)
            while at and (text[at - 1] != ord('"') or _escaped(text, at - 1)):
                at -= 1
            codes[i] = machine.after_name(operation, text[at:], remember=False)

    # --- forced runs -------------------------------------------------------------------------------------------

    def forced_tokens(self, configuration: int, limit: int = 4096) -> list[int]:
        """The tokens that must come next while exactly one is allowed; ends after an end-of-sequence id."""
        run: list[int] = []
        while len(run) < limit and configuration != FINISHED:
            kind = self.row_kind(configuration)
            if not kind.allowed or len(kind.ids) != 1:
                break
            run.append(int(kind.ids[0]))
            configuration = self.advance(configuration, run[-1])
        return run


def _escaped(text: bytes, place: int) -> bool:
    """Whether an odd number of backslashes stands before a place."""
    return (place - len(text[:place].rstrip(b"\\"))) % 2 == 1


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _members(first: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    """All of ``first[i] .. first[i] + counts[i] - 1``, one after the other."""
    ends = counts.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    members: NDArray[Any] = np.arange(total) + (first - ends + counts).repeat(counts)
    return members
