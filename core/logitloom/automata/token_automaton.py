"""A byte automaton lifted to the tokens of a vocabulary.

Tokens are byte strings, so a token leads from a state to the state after its bytes, and is allowed if that
state exists. Rows are found when a state is first visited, or all at once as tables for devices. Both ways give the
same answers, and the choice is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitloom.automata.budget import Budget, Meter
from logitloom.automata.dfa import DEAD, Dfa
from logitloom.automata.reach import ends_reachable
from logitloom.automata.row_walk import SORTED_BY_MASK, RowWalk
from logitloom.automata.token_tables import token_classes
from logitloom.automata.traps import every_state_can_go_on
from logitloom.automata.trie import vocabulary_trie
from logitloom.errors import VocabularyError
from logitloom.masks.mask_row import which_allowed
from logitloom.vocabulary import Vocabulary

__all__ = ["FINISHED", "TokenAutomaton", "TokenRow", "TokenTables", "allowed_steps"]

FINISHED: Final = -2
"""The state after end-of-sequence: only end-of-sequence is allowed."""

_MEMO_LIMIT: Final = 1 << 16
_ROW_BYTES_LIMIT: Final = 64 << 20
_MANY: Final = 512


class TokenRow(NamedTuple):
    """One state's row, written the shorter way: ``ids`` are allowed if ``allowed``, else they are forbidden."""

    allowed: bool
    ids: NDArray[np.int32]

    def mask(self, size: int) -> NDArray[np.bool_]:
        """``[size] bool``: which ids are allowed."""
        return which_allowed(self.allowed, self.ids, size)


class TokenTables(NamedTuple):
    """A whole token automaton as arrays.

    Rows are the states of the byte automaton, then the finished one, then a dead one, so that the states ``FINISHED``
    (-2) and ``DEAD`` (-1) are the right rows wherever negative indices count from the end. Use :meth:`total` for
    libraries and kernels where they do not.

    Attributes:
        token_class: ``[vocabulary] int32``.
        next: ``[rows, classes] int32``, -1 for dead, -2 for finished.
        allowed: ``[rows, classes] bool``.
        accepting: ``[rows] bool``; these allow end-of-sequence.
        start: first state.
    """

    token_class: NDArray[np.int32]
    next: NDArray[np.int32]
    allowed: NDArray[np.bool_]
    accepting: NDArray[np.bool_]
    start: int

    def total(self) -> NDArray[np.int32]:
        """``next`` with row numbers in place of -1 and -2: the last row is dead, the last but one finished."""
        return np.where(self.next >= 0, self.next, len(self.next) + self.next).astype(np.int32)

    @property
    def nbytes(self) -> int:
        """Size in memory, in bytes."""
        return self.token_class.nbytes + self.next.nbytes + self.allowed.nbytes + self.accepting.nbytes


def allowed_steps(table: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which steps of a table (``TokenTables.next``) are allowed: those not dead; when finished, the last class only."""
    allowed: NDArray[np.bool_] = table != DEAD
    allowed[FINISHED, :-1] = False
    return allowed


class TokenAutomaton:
    """Which tokens may come next, and where each leads.

    A state is the number of a state of ``dfa``, or ``FINISHED`` (-2, after end-of-sequence), or ``DEAD``
    (-1: a token was taken that is not allowed; nothing is allowed any more). End-of-sequence ids are allowed exactly
    in accepting states and after themselves; whatever follows them (engines pad finished rows) changes nothing.
    Other special ids, ids without bytes and ids from ``vocabulary.size`` up are never allowed.

    Args:
        dfa: a trim automaton over bytes.
        vocabulary: the bytes of each id.
        vocab_size: width of the model's logits, at least ``vocabulary.size`` (padded vocabularies).
        eos: end-of-sequence ids; default: those of the vocabulary.
        closing: states of ``dfa`` in which a text must end: only end-of-sequence is allowed there at the border
            of two tokens, although bytes of the same token may follow. Stop strings need this.
        budget: what later, larger computations may cost.
        tables: what :meth:`tables` returned for equal arguments, to save computing it again.

    Raises:
        VocabularyError: if no sequence of tokens writes an accepted text, or an id is out of range.

    Example:
        >>> from logitloom.automata import compile_pattern
        >>> words = Vocabulary([b"", b"a", b"b", b"ab"], eos=[0])
        >>> automaton = TokenAutomaton(compile_pattern("(ab)+"), words)
        >>> automaton.row(automaton.start).tolist()
        [1, 3]
        >>> automaton.row(automaton.advance(automaton.start, 3)).tolist()
        [0, 1, 3]
    """

    def __init__(
        self,
        dfa: Dfa,
        vocabulary: Vocabulary,
        vocab_size: int | None = None,
        eos: Iterable[int] | None = None,
        *,
        closing: ArrayLike | None = None,
        budget: Budget | None = None,
        tables: TokenTables | None = None,
    ) -> None:
        if closing is None:
            dfa = dfa.trimmed()
        self.dfa = dfa
        self.vocabulary = vocabulary
        self.vocab_size = vocabulary.size if vocab_size is None else int(vocab_size)
        self.eos: tuple[int, ...] = vocabulary.eos if eos is None else tuple(dict.fromkeys(int(i) for i in eos))
        self.budget = budget
        self.start = dfa.start
        self.closing: NDArray[np.bool_] = np.zeros(dfa.states, dtype=bool)
        if closing is not None:
            self.closing[np.asarray(closing, dtype=np.int64)] = True
        self._check_arguments()
        self.accepting: NDArray[np.bool_] = np.zeros(dfa.states + 2, dtype=bool)
        np.logical_or(dfa.accepting, self.closing, out=self.accepting[:-2])
        self.accepting[-2] = True
        self._trie = vocabulary_trie(vocabulary)
        self._walk = RowWalk(dfa, self._trie)
        self._rows: dict[int, TokenRow] = {}
        self._row_bytes = 0
        self._class_rows: dict[bytes, TokenRow] = {}
        self._memo: dict[tuple[int, int], int] = {}
        # Where every step of the automaton can be made with a token of one byte, no state is a trap. Where not,
        # traps are found and removed on the whole table, once.
        if tables is not None:
            self.__dict__["_tables"] = tables
        self._pruned = not every_state_can_go_on(dfa, self._trie)
        if self._pruned and not self.tables().allowed[self.start].any():
            raise VocabularyError(self._no_text_message())

    def _check_arguments(self) -> None:
        name, size = self.vocabulary.name, self.vocabulary.size
        if self.vocab_size < size:
            raise VocabularyError(
                f"vocab_size={self.vocab_size} is less than the {size} ids of {name}. Give the width of the "
                f"model's logits, which is at least the size of the vocabulary."
            )
        if not self.eos:
            raise VocabularyError(f"{name} has no end-of-sequence id, so no text could ever end. Give eos=[...].")
        for token in self.eos:
            if not 0 <= token < self.vocab_size or (token < size and self.vocabulary.token_bytes[token]):
                raise VocabularyError(
                    f"The end-of-sequence id {token} is not one of the {self.vocab_size} ids, or it stands for text "
                    f"in {name}. Give ids without text."
                )
        if self.dfa.is_empty and not self.closing.any():
            raise VocabularyError(
                "The automaton accepts no text at all, so every token would be forbidden. Check the pattern: an "
                "anchor inside it, or an intersection, may contradict the rest."
            )

    def _no_text_message(self) -> str:
        example = self.dfa.shortest()
        return (
            f"No sequence of tokens of {self.vocabulary.name} writes a text that the automaton accepts; a "
            f"shortest such text is {example!r}. Use a vocabulary that has its bytes, or a pattern "
            f"that needs no others."
        )

    def __repr__(self) -> str:
        return f"TokenAutomaton({self.dfa!r}, {self.vocabulary.name!r}, vocab_size={self.vocab_size})"

    # --- rows --------------------------------------------------------------------------------------------------

    def row_kind(self, state: int) -> TokenRow:
        """The row of a state written the shorter way: allowed ids, or forbidden ids. Sorted, read-only."""
        known = self._rows.get(state)
        if known is None:
            known = self._find_row(state)
            if known.ids.flags.writeable:  # not a row that other states have already
                known.ids.setflags(write=False)
                self._row_bytes += known.ids.nbytes
                if self._row_bytes > _ROW_BYTES_LIMIT:
                    self._rows.clear()
                    self._class_rows.clear()
                    self._row_bytes = known.ids.nbytes
            self._rows[state] = known
        return known

    def row(self, state: int) -> NDArray[np.int32]:
        """The ids allowed in a state, ``[n] int32``, sorted. Empty for the dead state only."""
        kind = self.row_kind(state)
        return kind.ids if kind.allowed else kind.mask(self.vocab_size).nonzero()[0].astype(np.int32)

    def mask(self, state: int) -> NDArray[np.bool_]:
        """``[vocab_size] bool``: which ids are allowed in a state."""
        return self.row_kind(state).mask(self.vocab_size)

    def _find_row(self, state: int) -> TokenRow:
        if state == DEAD:
            return TokenRow(True, np.zeros(0, dtype=np.int32))
        if state == FINISHED or self.closing[state]:
            return TokenRow(True, np.array(sorted(self.eos), dtype=np.int32))
        if "_tables" in self.__dict__:
            return self._row_of_classes(self._tables.allowed[state])
        return self._walked(state, self.eos if self.accepting[state] else ())

    def _walked(self, state: int, ends: Iterable[int]) -> TokenRow:
        """A row by a walk: the tokens after whose bytes the text can go on, and some without bytes."""
        allowed_ends = np.array([*ends], dtype=np.int32)
        return TokenRow(*self._walk.token_row(state, allowed_ends, self._textless, self.vocab_size))

    @cached_property
    def _class_members(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The ids in the order of their classes, and where each class begins (and the last one ends)."""
        token_class = self._tables.token_class
        sizes = np.bincount(token_class, minlength=self._tables.next.shape[1])
        return token_class.argsort(kind="stable").astype(np.int32), np.append(0, sizes.cumsum())

    def _row_of_classes(self, allowed: NDArray[np.bool_]) -> TokenRow:
        """The row that allows some classes of tokens; one for all states of which that is so."""
        key = allowed.tobytes()
        known = self._class_rows.get(key)
        if known is None:
            order, starts = self._class_members
            sizes = np.diff(starts)
            shorter = 2 * int(sizes[allowed].sum()) <= self.vocab_size
            classes = (allowed if shorter else ~allowed).nonzero()[0]
            if sizes[classes].sum() > SORTED_BY_MASK:
                mask = allowed[self._tables.token_class]
                ids = (mask if shorter else ~mask).nonzero()[0].astype(np.int32)
            else:
                ids = np.concatenate([order[:0], *[order[starts[c] : starts[c + 1]] for c in classes.tolist()]])
                ids.sort()
            known = TokenRow(shorter, ids)
            self._class_rows[key] = known
        return known

    @property
    def follows_bytes(self) -> bool:
        """Whether a token leads exactly where its bytes lead in ``dfa``: no other rule, and nothing removed."""
        return type(self) is TokenAutomaton and not self._pruned

    @property
    def visited(self) -> int | None:
        """What finding rows has cost so far, in nodes of the vocabulary's trie; ``None`` where that is not counted."""
        return self._walk.visited

    def mask_of_text(self, state: int) -> NDArray[np.bool_]:
        """``[vocab_size] bool``: tokens with bytes after which a state of ``dfa`` is alive, whatever ends a text."""
        return self._walked(state, ()).mask(self.vocab_size)

    @cached_property
    def _textless(self) -> NDArray[np.int32]:
        """Ids that write no text: special ones, unused ones, padding of the vocabulary."""
        padding = np.arange(self.vocabulary.size, self.vocab_size, dtype=np.int32)
        return np.concatenate([self._trie.textless, padding])

    # --- steps -------------------------------------------------------------------------------------------------

    def advance(self, state: int, token: int) -> int:
        """The state after one more token; -1 if the token is not allowed. ``token=-1`` changes nothing."""
        if token == -1:
            return state
        key = (state, token)
        known = self._memo.get(key)
        if known is None:
            if len(self._memo) >= _MEMO_LIMIT:
                self._memo.clear()
            known = self._memo[key] = self._advance(state, token)
        return known

    def _advance(self, state: int, token: int) -> int:
        if state == FINISHED:
            return FINISHED
        if state == DEAD or not 0 <= token < self.vocab_size:
            return DEAD
        if "_tables" in self.__dict__:
            return int(self._tables.next[state, self._tables.token_class[token]])
        if token in self.eos:
            return FINISHED if self.accepting[state] else DEAD
        if self.closing[state] or token >= self.vocabulary.size:
            return DEAD
        text = self.vocabulary.token_bytes[token]
        return self.dfa.walk(text, state) if text else DEAD

    def advance_many(self, states: ArrayLike, tokens: ArrayLike) -> NDArray[np.int32]:
        """States after any number of tokens per row.

        Args:
            states: ``[batch] int32``.
            tokens: ``[batch, n] int32`` or ``[batch]``, in order; -1 means that no token was accepted there.

        Returns:
            ``[batch] int32``.
        """
        current = np.array(states, dtype=np.int32)
        columns = np.asarray(tokens)
        if columns.ndim == 1:
            columns = columns[:, None]
        if "_tables" not in self.__dict__ and columns.size <= _MANY:
            result = current.tolist()
            for row, taken in enumerate(columns.tolist()):
                state = result[row]
                for token in taken:
                    if token != -1:
                        state = self.advance(state, token)
                result[row] = state
            return np.array(result, dtype=np.int32)
        tables = self.tables()
        for column in columns.T:
            known = (column >= 0) & (column < self.vocab_size)
            token_class = tables.token_class[np.where(known, column, 0)]
            after = tables.next[current, token_class]
            after = np.where(known | (current == FINISHED), after, DEAD)
            current = np.where(column == -1, current, after).astype(np.int32)
        return current

    # --- tables ------------------------------------------------------------------------------------------------

    def tables(self) -> TokenTables:
        """The whole automaton as arrays, computed once.

        Raises:
            BudgetExceeded: if that takes more bytes or seconds than the budget allows.
        """
        return self._tables

    @cached_property
    def _tables(self) -> TokenTables:
        meter = Meter(self.budget, f"the token tables of {self.dfa!r}")
        states = self.dfa.states
        of_token, inner = token_classes(self.dfa, self._trie, self.vocab_size, meter)
        meter.check_bytes(5 * (states + 2) * (inner.shape[1] + 1))
        eos_class = inner.shape[1]
        of_token[list(self.eos)] = eos_class
        table = np.full((states + 2, eos_class + 1), DEAD, dtype=np.int32)
        table[:states, :eos_class] = inner
        table[:states][self.closing] = DEAD
        table[self.accepting, eos_class] = FINISHED
        table[FINISHED] = FINISHED
        if self._pruned:
            table[(table >= 0) & ~ends_reachable(table[:states], self.accepting[:states])[table]] = DEAD
        return TokenTables(of_token, table, allowed_steps(table), self.accepting, self.start)

    def packed_masks(self) -> NDArray[np.uint32]:
        """``[states + 2, ceil(vocab_size / 32)] uint32``: bit ``i % 32`` of word ``i // 32`` allows id ``i``."""
        tables = self.tables()
        rows = len(tables.next)
        words = -(-self.vocab_size // 32)
        Meter(self.budget, f"the bit masks of {self.dfa!r}").check_bytes(4 * rows * words)
        packed = np.zeros((rows, 4 * words), dtype=np.uint8)
        for row in range(rows):
            bits = np.packbits(tables.allowed[row][tables.token_class], bitorder="little")
            packed[row, : len(bits)] = bits
        return packed.view("<u4").astype(np.uint32, copy=False)

    # --- forced runs -------------------------------------------------------------------------------------------

    def forced_bytes(self, state: int, limit: int = 4096) -> bytes:
        """The bytes that must come next, as far as there is no choice; at most ``limit``."""
        run = bytearray()
        byte_class = self.dfa.byte_class
        while state >= 0 and not self.accepting[state] and len(run) < limit:
            row = self.dfa.rows(np.array([state]))[state]
            possible = (row[byte_class] >= 0).nonzero()[0]
            if len(possible) != 1:
                break
            run.append(int(possible[0]))
            state = int(row[byte_class[run[-1]]])
        return bytes(run)

    def forced_tokens(self, state: int, limit: int = 4096) -> list[int]:
        """The tokens that must come next while exactly one is allowed; ends after an end-of-sequence id."""
        run: list[int] = []
        while len(run) < limit and state != FINISHED:
            kind = self.row_kind(state)
            if not kind.allowed or len(kind.ids) != 1:
                break
            run.append(int(kind.ids[0]))
            if run[-1] in self.eos:
                break
            state = self.advance(state, run[-1])
        return run
