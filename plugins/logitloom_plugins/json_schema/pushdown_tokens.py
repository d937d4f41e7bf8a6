"""From the pushdown automaton over bytes to tokens: which may come next, and where each leads.

A configuration is a state of the machine and what it remembers, both as numbers, and itself has a number: the state of
a row. A row of allowed tokens is found by one walk of the vocabulary's trie (:mod:`.token_walk`), inside free strings
by putting together what is known about the vocabulary (:mod:`.string_rows`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitloom.automata import FINISHED, TokenRow
from logitloom.errors import BudgetExceeded, VocabularyError
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.json_schema.distinct_rows import DistinctRows
from logitloom_plugins.json_schema.machine import DEAD, Machine, Reached
from logitloom_plugins.json_schema.stacks import EMPTY
from logitloom_plugins.json_schema.string_rows import StringRows
from logitloom_plugins.json_schema.string_tables import words_of
from logitloom_plugins.json_schema.token_walk import TokenWalk

__all__ = ["MOST_CONFIGURATIONS", "PushdownTokens"]

#: Some hundred bytes each.
MOST_CONFIGURATIONS: Final = 1 << 21
_ROW_BYTES_LIMIT: Final = 64 << 20
_MEMO_LIMIT: Final = 1 << 18
_COMMON_LIMIT: Final = 1 << 7


class _NoStates(NamedTuple):
    """Numbers of configurations have no upper bound; what only large numbers could mean, none means."""

    states: int = (1 << 31) - 8


def _late(error: BudgetExceeded | RecursionError) -> BudgetExceeded:
    """The error of a part of the schema that a text has now reached for the first time."""
    said = error if isinstance(error, BudgetExceeded) else "A part of the schema is nested too deeply to be compiled."
    return BudgetExceeded(
        f"{said} It came while decoding, because what a schema says is worked out as texts first get there: only the "
        f"requests whose texts do so are concerned. Simplify that part of the schema, raise max_states of the "
        f"processor, or give engine='llguidance'; 'logitloom validate --json' visits every part beforehand."
    )


class PushdownTokens:
    """Tokens of a schema's texts; has the interface of :class:`logitloom.automata.TokenAutomaton` that loops use.

    A configuration is a number; ``FINISHED`` (-2) after end-of-sequence, ``DEAD`` (-1) after a token not allowed.

    Args:
        machine: the automaton over bytes.
        vocabulary: the bytes of each id.
        vocab_size: width of the model's logits.
        first: the number of the first configuration.
        most: most configurations.
    """

    dfa = _NoStates()
    #: A token leads where the machine goes, stack and all, and nothing counts what finding a row costs.
    follows_bytes = False
    visited: int | None = None

    def __init__(
        self,
        machine: Machine,
        vocabulary: Vocabulary,
        vocab_size: int | None = None,
        *,
        first: int = 0,
        most: int = MOST_CONFIGURATIONS,
    ) -> None:
        self.machine = machine
        self.first = first
        self._most = most
        self.vocabulary = vocabulary
        self.vocab_size = vocabulary.size if vocab_size is None else int(vocab_size)
        self.eos = vocabulary.eos
        if not self.eos:
            raise VocabularyError(
                f"{vocabulary.name} has no end-of-sequence id, so no text could ever end. Use Vocabulary.with_eos."
            )
        self._words = words_of(vocabulary)
        self._walk = TokenWalk(machine, int(self._words.trie.height[0]))
        self._strings = StringRows(machine, vocabulary, self._walk)
        self._distinct = DistinctRows(machine, self._words)
        self._lock = machine.lock
        self._configurations: list[Reached] = []
        self._number: dict[Reached, int] = {}
        self._rows: dict[int, TokenRow] = {}
        self._row_bytes = 0
        self._common: dict[tuple[int, int], tuple[bool, NDArray[np.int32]]] = {}
        self._shared: dict[tuple[int, int], tuple[NDArray[np.int32], TokenRow]] = {}
        self._memo: dict[tuple[int, int], int] = {}
        self.start = self._configuration(Reached(machine.start))
        padding = np.arange(vocabulary.size, self.vocab_size, dtype=np.int32)
        self._textless = np.concatenate([self._words.trie.textless, padding])

    def _configuration(self, reached: Reached) -> int:
        known = self._number.get(reached)
        if known is None:
            if self.size == self._most:
                raise BudgetExceeded(f"Texts have come to more than {self._most} different places in the schema.")
            known = self._number[reached] = self.first + self.size
            self._configurations.append(reached)
        return known

    @property
    def size(self) -> int:
        """How many configurations there are."""
        return len(self._configurations)

    def configuration(self, number: int) -> Reached:
        """What has been reached."""
        return self._configurations[number - self.first]

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
                try:
                    known = self._memo[key] = self._advance(configuration, token)
                except (BudgetExceeded, RecursionError) as error:
                    raise _late(error) from error
        return known

    def _advance(self, configuration: int, token: int) -> int:
        before = self.configuration(configuration)
        if token in self.eos:
            return FINISHED if before.stack == EMPTY and self.machine.accepting(before.state) else DEAD
        if not 0 <= token < self.vocabulary.size:
            return DEAD
        text = self.vocabulary.token_bytes[token]
        reached = self.machine.read(before, text) if text else None
        return DEAD if reached is None else self._configuration(reached)

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
                try:
                    known = self._find_row(configuration)
                except (BudgetExceeded, RecursionError) as error:
                    raise _late(error) from error
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
        return np.sort(kind.ids) if kind.allowed else kind.mask(self.vocab_size).nonzero()[0].astype(np.int32)

    def mask(self, configuration: int) -> NDArray[np.bool_]:
        """``[vocab_size] bool``: which ids are allowed in a configuration."""
        return self.row_kind(configuration).mask(self.vocab_size)

    def _find_row(self, configuration: int) -> TokenRow:
        if configuration == DEAD:
            return TokenRow(True, np.zeros(0, dtype=np.int32))
        if configuration == FINISHED:
            return TokenRow(True, np.array(sorted(self.eos), dtype=np.int32))
        reached = self.configuration(configuration)
        ends = self.eos if reached.stack == EMPTY and self.machine.accepting(reached.state) else ()
        most = self.vocab_size // 2
        if reached.items.frame and not reached.written:
            row = self._elsewhere(reached.state, reached.stack, most)
        else:
            row = self._written(reached, most)
        if self.machine.opening:
            row = self._without(row, self._distinct.doubtful(reached), reached)
        listed, ids = row
        if listed:
            return TokenRow(True, np.concatenate([ids, np.array(ends, dtype=np.int32)]))
        # Configurations of which the same ids are forbidden share one row, so that its mask is prepared once.
        shared = self._shared.get((id(ids), len(ends)))
        if shared is None or shared[0] is not ids:
            textless = self._textless
            for token in ends:
                textless = textless[textless != token]
            if len(self._shared) >= _COMMON_LIMIT:
                self._shared.clear()
            shared = self._shared[id(ids), len(ends)] = ids, TokenRow(False, np.concatenate([ids, textless]))
        return shared[1]

    def _written(self, reached: Reached, most: int) -> tuple[bool, NDArray[np.int32]]:
        """The tokens with bytes that are allowed if they are at most so many, else those that are not."""
        state, stack, written, _ = reached
        stacks, tracked = self.machine.stacks, state in self.machine.tracked
        known = self._strings.row(state, stacks.nameless(stack) if tracked else stack, most)
        if known is not None:
            if not tracked:
                return known
            return self._without(known, self._strings.doubtful(written, stacks.names(stack)), reached)
        far = self.machine.strings.far(self.machine.states[state], self._strings.longest)
        if far is not None:
            # In a string whose length cannot matter yet it is the same at the next character.
            return self._elsewhere(self.machine.number(far), stack, most)
        found = self._walk.from_root(self._words, state, stack, written)
        return (True, found.allowed()) if found.size <= most else (False, found.forbidden())

    def _without(
        self, row: tuple[bool, NDArray[np.int32]], doubtful: NDArray[np.int32], reached: Reached
    ) -> tuple[bool, NDArray[np.int32]]:
        """A row that is right but for some tokens, which are read one by one."""
        listed, ids = row
        texts = self.vocabulary.token_bytes
        asked = np.zeros(self.vocab_size, dtype=bool)
        asked[doubtful] = True
        if listed:
            asked = asked.take(ids)
            allowed = ids[asked]
        else:
            asked[ids] = False
            allowed = asked.nonzero()[0].astype(np.int32)
        dead = [token for token in allowed.tolist() if self.machine.read(reached, texts[token]) is None]
        if not dead:
            return row
        return listed, ids[~np.isin(ids, dead)] if listed else np.append(ids, np.array(dead, dtype=np.int32))

    def _elsewhere(self, state: int, stack: int, most: int) -> tuple[bool, NDArray[np.int32]]:
        """The same where only state and stack matter; it is asked for again from other places with the same ones."""
        known = self._common.get((state, stack))
        if known is None:
            if len(self._common) >= _COMMON_LIMIT:
                self._common.clear()
            known = self._common[state, stack] = self._written(Reached(state, stack), most)
        return known

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
