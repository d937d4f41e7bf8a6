"""Tokens of a schema for as long as a server runs.

States and configurations are made as texts first get somewhere, and the numbers that rows hold may be any of them, so
nothing can be forgotten one by one. Instead a machine that has become large is left to the rows that are in it: texts
that begin later get another one, whose numbers are others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitloom.automata import TokenRow
from logitloom.errors import BudgetExceeded, StateMismatch
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.json_schema.machine import Machine
from logitloom_plugins.json_schema.pushdown_tokens import MOST_CONFIGURATIONS, PushdownTokens

__all__ = ["RenewedTokens"]

#: The part of what a machine may grow by that makes it large.
_LARGE: Final = 0.5
#: So much of what is remembered of arrays with different items makes it large, too.
_MANY_VALUES: Final = 1 << 18
#: Machines that are kept for the rows that are in them.
_KEPT: Final = 3


class RenewedTokens:
    """Like :class:`PushdownTokens`, but what it keeps does not grow with the number of texts that it reads.

    Args:
        machine: the automaton over bytes.
        renew: makes one like a machine that has become large.
        vocabulary: the bytes of each id.
        vocab_size: width of the model's logits.
        configurations: most of them for one machine.
    """

    dfa = PushdownTokens.dfa
    follows_bytes = False
    visited: int | None = None

    def __init__(
        self,
        machine: Machine,
        renew: Callable[[Machine], Machine],
        vocabulary: Vocabulary,
        vocab_size: int,
        configurations: int = MOST_CONFIGURATIONS,
    ) -> None:
        self.vocabulary = vocabulary
        self.vocab_size = vocab_size
        self._renew = renew
        self._most = configurations
        self._kept: tuple[PushdownTokens, ...] = ()
        self.eos = self._take(machine, 0).eos

    def _take(self, machine: Machine, first: int) -> PushdownTokens:
        tokens = PushdownTokens(machine, self.vocabulary, self.vocab_size, first=first, most=self._most)
        begun = len(machine.states)
        #: From so many states on the newest machine is large. Its schema alone may be: that is not what texts add.
        self._large = begun + _LARGE * (machine.budget.states - begun)
        self._kept = (*self._kept[1 - _KEPT :], tokens)
        return tokens

    @property
    def machine(self) -> Machine:
        """The automaton over bytes of texts that begin now."""
        return self._kept[-1].machine

    @property
    def start(self) -> int:
        """The configuration of a text that begins now."""
        newest = self._kept[-1]
        if (
            newest.size > _LARGE * self._most
            or len(newest.machine.states) > self._large
            or newest.machine.distinct.size > _MANY_VALUES
        ):
            newest = self._renewed(newest)
        return newest.start

    def _renewed(self, old: PushdownTokens) -> PushdownTokens:
        with old.machine.lock:
            newest = self._kept[-1]
            first = old.first + self._most
            if newest is not old or first + self._most > self.dfa.states:
                return newest
            try:
                return self._take(self._renew(old.machine), first)
            except BudgetExceeded:
                return old  # a busy moment: there is room still, and the next text asks again

    def _of(self, configuration: int) -> PushdownTokens:
        if configuration < 0:
            return self._kept[-1]
        for tokens in reversed(self._kept):
            if configuration >= tokens.first:
                return tokens
        raise StateMismatch(
            f"The state {configuration} of a row of 'json' is of a machine that has been replaced {_KEPT} times since, "
            f"because texts had made it too large. Begin the row again, or raise max_states of the processor."
        )

    def advance(self, configuration: int, token: int) -> int:
        """As :meth:`PushdownTokens.advance`."""
        return self._of(configuration).advance(configuration, token)

    def advance_many(self, configurations: ArrayLike, tokens: ArrayLike) -> NDArray[np.int32]:
        """As :meth:`PushdownTokens.advance_many`."""
        result = np.array(configurations, dtype=np.int32)
        columns = np.asarray(tokens).reshape(len(result), -1)
        for row, reached in enumerate(result.tolist()):
            result[row] = self._of(reached).advance_many([reached], columns[row : row + 1])[0]
        return result

    def row_kind(self, configuration: int) -> TokenRow:
        """As :meth:`PushdownTokens.row_kind`."""
        return self._of(configuration).row_kind(configuration)

    def row(self, configuration: int) -> NDArray[np.int32]:
        """As :meth:`PushdownTokens.row`."""
        return self._of(configuration).row(configuration)

    def mask(self, configuration: int) -> NDArray[np.bool_]:
        """As :meth:`PushdownTokens.mask`."""
        return self._of(configuration).mask(configuration)

    def forced_tokens(self, configuration: int, limit: int = 4096) -> list[int]:
        """As :meth:`PushdownTokens.forced_tokens`."""
        return self._of(configuration).forced_tokens(configuration, limit)
