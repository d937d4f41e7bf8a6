"""The constraint of an automaton that has a whole table: masks state by state, and tables for devices.

Token sets are computed when a state is first visited, or all at once from the tables. Both ways give the same results.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitloom.automata.automaton_kernels import automaton_kernels
from logitloom.automata.compilation_budget import Budget, BudgetTracker
from logitloom.automata.deterministic.dense import DenseAutomaton, preferred_bytes
from logitloom.automata.deterministic.dfa import DEAD, Dfa
from logitloom.automata.deterministic.reach import ends_reachable, steps_to
from logitloom.automata.lift.compiled_walk import compiled_set
from logitloom.automata.lift.dense_table import DenseTable
from logitloom.automata.lift.level_walk import in_order, level_walk, walked_set
from logitloom.automata.lift.lifted_automaton import LiftedAutomaton
from logitloom.automata.lift.shortest_texts import tokens_of_shortest_texts
from logitloom.automata.lift.token_tables import TooManyFunctions, token_classes
from logitloom.automata.lift.traps import every_state_can_go_on
from logitloom.contract import FINISHED, UNKNOWN, CompiledStep, State, TokenSet, TokenTables
from logitloom.errors import BudgetExceeded, VocabularyError
from logitloom.masks.kernels import ByteTable, KernelFailed
from logitloom.vocabulary import Vocabulary

__all__ = ["TokenAutomaton", "allowed_steps"]

_FINISHED: Final = FINISHED.value
#: Bytes of memory per token text: the object, its place in the list of texts and its offset.
_BYTES_OF_TEXT: Final = 49
_NO_STATES: Final = np.zeros(0, dtype=np.int32)
_NO_IDS: Final = np.zeros(0, dtype=np.int32)
_NO_IDS.setflags(write=False)

#: The unit of cost is the "expensive row", a row that allows an eighth of the vocabulary. A token set costs in
#: proportion to its number of tokens, at least a tenth of an expensive row and at most one. After ``_EXPENSIVE_ROWS``
#: such rows (more if there are many states) all rows are computed as tables. The cost of compiled walks is the number
#: of visited trie nodes, and their limit is higher.
_EXPENSIVE_PART: Final = 8
_CHEAPEST: Final = 0.1
_EXPENSIVE_ROWS: Final = 4
_EXPENSIVE_NODES: Final = 20_000
_COMPILED_EXPENSIVE_ROWS: Final = 96
_STATES_PER_ROW: Final = 500
#: The most work of tables that are computed within a step; more are computed only where they are asked for.
_MOST_WORK_OF_TABLES: Final = 2_000_000


def allowed_steps(table: NDArray[np.int32]) -> NDArray[np.bool_]:
    """The allowed entries of ``TokenTables.next``: all that are not dead; in the finished state the last class only."""
    allowed: NDArray[np.bool_] = table != DEAD
    allowed[_FINISHED, :-1] = False
    return allowed


class TokenAutomaton(LiftedAutomaton):
    """A constraint from an automaton over bytes with a whole table.

    A state is the number of a state of ``dfa``. Ids without text (special tokens, unused ids, padding of the
    vocabulary) are never allowed if the constraint restricts; otherwise they are allowed and do not change the state.

    Args:
        dfa: an automaton over bytes; without ``closing`` it is trimmed.
        vocabulary: the bytes of each id.
        vocab_size: width of the model's logits, at least ``vocabulary.size`` (padded vocabularies).
        restricts: whether the text must be in a language. If not, the text is only observed (every state of ``dfa``
            accepts).
        closing: states of ``dfa`` in which a text must end: no token is allowed there, although further bytes of the
            same token may follow. If an engine continues the text anyway, the state still advances.
        ended: ``[states] int32``, the state after end-of-sequence, which can record how the text ended; these states
            are closing and never left. Default: the finished state.
        hold: ``[states] int32``, the number of bytes at the end of the text that do not belong to it (in closing
            states) or may not belong to it (in other states).
        budget: the limits of later, larger computations.
        tables: the result of :meth:`tables` for equal arguments and of :attr:`takes_little`, if they are known.

    Raises:
        VocabularyError: if no sequence of tokens writes an accepted text, or an id is out of range.

    Example:
        >>> from logitloom.automata import compile_pattern
        >>> words = Vocabulary([b"", b"a", b"b", b"ab"], eos=[0])
        >>> automaton = TokenAutomaton(compile_pattern("(ab)+"), words)
        >>> automaton.row(automaton.start()).tolist()
        [1, 3]
        >>> automaton.row(automaton.advance(automaton.start(), 3)).tolist()
        [0, 1, 3]
        >>> from logitloom.automata import AhoCorasick
        >>> words = Vocabulary([b"", b"<pad>", b"b", b"ad"], eos=[0], special=[1])
        >>> matcher = TokenAutomaton(AhoCorasick(["bad"]).avoiding(), words, restricts=False)
        >>> matcher.row(matcher.advance(matcher.start(), 2)).tolist()
        [0, 1, 2]
    """

    def __init__(
        self,
        dfa: Dfa,
        vocabulary: Vocabulary,
        vocab_size: int | None = None,
        *,
        restricts: bool = True,
        closing: ArrayLike | None = None,
        ended: ArrayLike | None = None,
        hold: ArrayLike | None = None,
        budget: Budget | None = None,
        tables: tuple[TokenTables, bool] | None = None,
    ) -> None:
        if closing is None and restricts:
            dfa = dfa.trimmed()
        self.dfa = dfa
        self.eos: tuple[int, ...] = vocabulary.eos
        self.budget = budget
        self.states = dfa.states
        self._closes = closing is not None
        self.closing: NDArray[np.bool_] = np.zeros(dfa.states, dtype=bool)
        if closing is not None:
            self.closing[np.asarray(closing, dtype=np.int64)] = True
        self.ended: NDArray[np.int32] = np.asarray(
            np.full(dfa.states, _FINISHED) if ended is None else ended, dtype=np.int32
        )
        self.hold = None if hold is None else np.asarray(hold, dtype=np.int32)
        self.accepting: NDArray[np.bool_] = np.zeros(dfa.states + 2, dtype=bool)
        np.logical_or(dfa.accepting, self.closing, out=self.accepting[:-2])
        self.accepting[-2] = True
        self._expensive_rows = 0.0
        self._of_completions_among: dict[frozenset[int], NDArray[np.int32]] = {}
        #: The cost of all compiled walks so far, in nodes; ``None`` as long as there are no compiled kernels.
        self._visited_nodes: int | None = None
        if tables is not None:
            self.__dict__["_tables"], self.__dict__["takes_little"] = tables
        super().__init__(DenseAutomaton(dfa, self.closing, self.hold), vocabulary, vocab_size, restricts=restricts)
        self.ends_texts = hold is not None

    def __reduce__(self) -> tuple[Any, ...]:
        closing = self.closing.nonzero()[0] if self._closes else None
        make = partial(
            TokenAutomaton,
            restricts=self.restricts,
            closing=closing,
            ended=self.ended,
            hold=self.hold,
            budget=self.budget,
        )
        return make, (self.dfa, self.vocabulary, self.vocab_size)

    def _has_text(self) -> bool:
        # If single-byte tokens can make every transition of the automaton, no state is a trap. Otherwise traps are
        # found and removed once, on the whole table.
        self._check_arguments()
        self._pruned = self.restricts and not every_state_can_go_on(self.dfa, self._trie)
        return not self._pruned or bool(self.tables().allowed[self.dfa.start].any())

    def _check_arguments(self) -> None:
        name, size = self.vocabulary.name, self.vocabulary.size
        if not self.eos:
            raise VocabularyError(
                f"{name} has no end-of-sequence id, so no text could ever end. Use Vocabulary.with_eos."
            )
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

    @property
    def nbytes(self) -> int:
        """Bytes of the tables and of the token sets that are remembered."""
        tables: TokenTables | None = self.__dict__.get("_tables")
        whole = () if tables is None else (tables.token_class, tables.next, tables.allowed)
        return self.dfa.next.nbytes + self.memory.nbytes + sum(array.nbytes for array in whole)

    @property
    def vocabulary_bytes(self) -> int:
        """Size in bytes of the vocabulary and its trie, which all automata over this vocabulary share."""
        return self._trie.nbytes + self.vocabulary.flat_bytes.nbytes + _BYTES_OF_TEXT * self.vocabulary.size

    @cached_property
    def fingerprint(self) -> bytes:
        """A hash of the automaton, the vocabulary and the width."""
        digest = hashlib.blake2b(digest_size=16, person=b"token automaton")
        for part in (self.automaton().fingerprint, self.vocabulary.fingerprint.encode(), self.ended.tobytes()):
            digest.update(part)
        digest.update(repr((self.vocab_size, self.restricts)).encode())
        return digest.digest()

    # --- token sets -----------------------------------------------------------------------------------------------

    def _found(self, state: State) -> TokenSet:
        number: int = state  # type: ignore[assignment]
        found = self._find_set(number)
        self._count_cost(found)
        return found

    def _find_set(self, state: int) -> TokenSet:
        if self.closing[state]:
            return TokenSet(True, _NO_IDS)
        if self.restricts and "_tables" in self.__dict__:
            return self._set_of_classes(self._tables.allowed[state])
        if not self.restricts and (self.dfa.next != DEAD).all():
            return TokenSet(False, self._ends)
        return self._walked_set(state)

    def _walked_set(self, state: int) -> TokenSet:
        """The tokens after whose bytes the text can be continued, by a walk of the trie."""
        ids = self._free, self._textless, self.vocab_size
        kernels = automaton_kernels()
        if kernels is not None:
            with contextlib.suppress(KernelFailed):
                found, visited = compiled_set(kernels, self._trie, self._dense_table, state, *ids)
                self._visited_nodes = (self._visited_nodes or 0) + visited
                return found
        self._visited_nodes = None
        return walked_set(self._trie, level_walk(self._trie, self._dense_table, [(0, state)]), *ids)

    @cached_property
    def _dense_table(self) -> DenseTable:
        return DenseTable(self.dfa, self._trie)

    def _count_cost(self, found: TokenSet) -> None:
        """Compute all rows as tables once single rows have cost about as much."""
        visited = self._visited_nodes
        limit = _EXPENSIVE_ROWS if visited is None else _COMPILED_EXPENSIVE_ROWS
        limit += self.dfa.states // _STATES_PER_ROW
        if self._expensive_rows >= limit:
            return
        if visited is not None:
            self._expensive_rows = visited / _EXPENSIVE_NODES
        else:
            part = _EXPENSIVE_PART * len(found.ids) / self.vocab_size if found.allowed else 1.0
            self._expensive_rows += min(1.0, max(part, _CHEAPEST))
        if self._expensive_rows >= limit:
            _ = self.takes_little

    @cached_property
    def _class_members(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The ids in the order of their classes, and the index at which each class begins (and the last one ends)."""
        token_class = self._tables.token_class
        sizes = np.bincount(token_class, minlength=self._tables.next.shape[1])
        # Numbers of two bytes are sorted many times faster.
        kind = np.uint16 if len(sizes) < 1 << 16 else token_class.dtype
        return token_class.astype(kind).argsort(kind="stable").astype(np.int32), np.append(0, sizes.cumsum())

    def _set_of_classes(self, allowed: NDArray[np.bool_]) -> TokenSet:
        """The token set of the given classes; states with the same classes share one object."""
        allowed = allowed.copy()
        allowed[-1] = False  # end-of-sequence
        key = allowed.tobytes()
        known = self.memory.shared.get(key)
        if known is None:
            order, starts = self._class_members
            sizes = np.diff(starts)
            shorter = 2 * int(sizes[allowed].sum()) <= self.vocab_size
            classes = (allowed if shorter else ~allowed).nonzero()[0]
            listed = [order[starts[c] : starts[c + 1]] for c in classes.tolist()]
            known = TokenSet(shorter, in_order(np.concatenate([order[:0], *listed]), self.vocab_size))
            self.memory.note(known.ids)
            self.memory.shared[key] = known
        return known

    @cached_property
    def _ends(self) -> NDArray[np.int32]:
        ends = np.array(sorted(self.eos), dtype=np.int32)
        ends.setflags(write=False)
        return ends

    # --- steps ----------------------------------------------------------------------------------------------------

    def advance(self, state: State, token: int) -> State | None:
        """The state after the bytes of a token; ``None`` if it is not allowed."""
        number: int = state  # type: ignore[assignment]
        if not 0 <= token < self.vocab_size:
            return None
        if "_tables" in self.__dict__:
            after = int(self._tables.next[number, self._tables.token_class[token]])
            return None if after == DEAD else after
        text = self.vocabulary.token_bytes[token] if token < self.vocabulary.size else b""
        if not text:
            return None if self.restricts else state
        after = DEAD if self.closing[number] and self.restricts else self.dfa.walk(text, number)
        return None if after == DEAD else after

    def finish(self, state: State) -> State:
        """The finished state, or the state in ``ended``, which records how the text ended."""
        ended = int(self.ended[state])  # type: ignore[call-overload]
        return FINISHED if ended == _FINISHED else ended

    def compiled_step(self) -> CompiledStep | None:
        """The byte table, unless traps were removed or ids without text are followed."""
        if self._pruned or not self.restricts:
            return None
        dfa = self.dfa
        # Rows that are filled later are filled in the same table.
        return CompiledStep(ByteTable(dfa.rows(_NO_STATES), dfa.ready, dfa.byte_class), self.accepting, self.closing)

    # --- distance to the end --------------------------------------------------------------------------------------

    def least_tokens(self, state: State) -> int | None:
        """The least number of tokens to an accepting state, ``None`` if it is unknown; see :attr:`exact_least`."""
        least = int(self._least[state])  # type: ignore[call-overload]
        return None if least == UNKNOWN else least

    def least_after(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The allowed ids and :meth:`least_tokens` after each, from the tables if they are computed."""
        least = self._least  # comes first, because it may compute the tables
        return self._after(state, least)

    def completions_after(
        self, state: State, among: frozenset[int] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """As :meth:`least_after`; the numbers count the tokens of shortest texts, which are the completions."""
        if among is None:
            return self._after(state, self._of_completions)
        if among not in self._of_completions_among:
            steps, read = self._steps_of(among)
            least = self._tokens_of_texts(steps, read, steps_to(steps, self.accepting[: self.dfa.states]))
            self._of_completions_among[among] = least
        return self._after(state, self._of_completions_among[among])

    def _after(self, state: State, least: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The allowed ids, and after each the entry of ``least`` for its state."""
        number: int = state  # type: ignore[assignment]
        ids = self.allowed(state).listed(self.vocab_size)
        if "_tables" in self.__dict__:
            return ids, least.take(self._tables.next[number].take(self._tables.token_class.take(ids)))
        walked = level_walk(self._trie, self._dense_table, [(0, number)], keep_states=True)
        reached = np.full(self.vocab_size, number, dtype=np.int32)
        reached[self._trie.order.take(walked.positions(self._trie))] = walked.states_after(self._trie)
        return ids, least.take(reached.take(ids))

    def most_after(self, state: State, enough: int = 0) -> int:
        """The bytes of the longest of the shortest texts from any state, if tokens of one byte write one from each."""
        return self._most

    @cached_property
    def _most(self) -> int:
        """See :meth:`most_after`."""
        if not self._trie.every_byte and np.min(self._by_bytes, initial=0) < 0:
            return UNKNOWN
        return int(np.max(self._by_bytes, initial=0))

    @cached_property
    def _by_bytes(self) -> NDArray[np.int32]:
        """``[states] int32``: the bytes of a shortest text in single-byte tokens, -1 if there is none."""
        return steps_to(self._single_steps[0], self.accepting[: self.dfa.states])

    @cached_property
    def _single_steps(self) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """The next states after tokens of one byte, a column per byte class that has one, and a byte of each class."""
        return self._steps_of(range(256))

    def _steps_of(self, used: Iterable[int]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """The same for tokens of some bytes."""
        read = preferred_bytes(self.dfa.byte_class, [byte for byte in used if self._trie.single[byte] >= 0])
        steps = self.dfa.next[:, self.dfa.byte_class[read]]
        steps[self.closing] = DEAD
        return steps, read

    @cached_property
    def _least(self) -> NDArray[np.int32]:
        """``[states] int32``: see :meth:`least_tokens`."""
        if not self.takes_little:
            return self._of_completions
        tables, states = self.tables(), self.dfa.states
        after = np.where(tables.allowed[:states, :-1], tables.next[:states, :-1], DEAD)
        least = steps_to(after, self.accepting[:states])
        least[least < 0] = UNKNOWN
        return least

    @cached_property
    def _of_completions(self) -> NDArray[np.int32]:
        """``[states] int32``: the tokens that write a shortest text, ``UNKNOWN`` where tokens write none."""
        return self._tokens_of_texts(*self._single_steps, self._by_bytes)

    def _tokens_of_texts(
        self, steps: NDArray[np.int32], read: NDArray[np.uint8], by_bytes: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """``[states] int32``: the tokens that write a shortest text of some bytes, ``UNKNOWN`` where none do."""
        least = tokens_of_shortest_texts(self._trie, steps, read, by_bytes)
        least[least < 0] = UNKNOWN
        return least

    # --- tables ---------------------------------------------------------------------------------------------------

    @cached_property
    def takes_little(self) -> bool:
        """Whether :meth:`tables` takes a bounded amount of work, which is the same in every process.

        Then masks and numbers of tokens are found in the tables once walks have taken as long.
        """
        if not self._pruned:
            try:
                tables = self._built(_MOST_WORK_OF_TABLES)
            except (TooManyFunctions, BudgetExceeded):
                return False
            self.__dict__.setdefault("_tables", tables)
        return True

    @property
    def exact_least(self) -> bool:  # type: ignore[override]
        """Whether :meth:`least_tokens` is exact: where tables take much work, it is the tokens of a shortest text."""
        return self.takes_little

    def tables(self) -> TokenTables:
        """The whole automaton as arrays, computed once.

        Raises:
            BudgetExceeded: if that takes more bytes or seconds than the budget allows.
        """
        return self._tables

    @cached_property
    def _tables(self) -> TokenTables:
        return self._built(None)

    def _built(self, most_work: int | None) -> TokenTables:
        tracker = BudgetTracker(self.budget, f"the token tables of {self.dfa!r}")
        states = self.dfa.states
        of_token, inner = token_classes(self.dfa, self._trie, self.vocab_size, tracker, most_work)
        textless, end = inner.shape[1], inner.shape[1] + (not self.restricts)
        tracker.check_bytes(5 * (states + 2) * (end + 1))
        if not self.restricts:
            of_token[self._textless] = textless
        of_token[list(self.eos)] = end
        table = np.full((states + 2, end + 1), DEAD, dtype=np.int32)
        table[:states, :textless] = inner
        if self.restricts:
            table[:states][self.closing] = DEAD
        else:
            table[:states, textless] = np.arange(states)
        may_end = self.accepting[:states]
        table[:states, end] = np.where(may_end, self.ended, DEAD)
        table[_FINISHED] = _FINISHED
        if self._pruned:
            # The finished and the dead row come last, so that the negative entries of the table are indices of these
            # rows.
            alive = np.append(ends_reachable(table[:states], may_end), [True, True])
            table[~alive[table]] = DEAD
        allowed = allowed_steps(table)
        allowed[:states][self.closing, :end] = False
        return TokenTables(of_token, table, allowed, self.accepting, self.dfa.start)
