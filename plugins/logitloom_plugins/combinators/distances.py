"""How many tokens a combination of constraints needs to the end of its text: an upper bound that counts down.

The inner constraint of a section is brought to an end, then the string that ends the section is written, then the rest
of the text from the section that follows. What that takes from each section on is a shortest path through the sections.

References:
    R. Bellman, "On a routing problem", 1958.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.constraints import UNKNOWN
from logitloom_plugins.combinators.automaton import Configuration

__all__ = ["Distances"]


class Distances:
    """The tokens from the configurations of a combination to the end.

    Args:
        combination: a :class:`~logitloom_plugins.combinators.combination.Combination`.
    """

    def __init__(self, combination: Any) -> None:
        self._combination = combination
        self._automaton = combination.automaton()
        count = len(self._automaton.parts)
        #: Per section the tokens from its start to the end of the text, and from where its inner text may end.
        self._from: list[int] = [UNKNOWN] * count
        self._rest: list[int] = [UNKNOWN] * count
        for _ in range(count + 1):
            self._rest = [self._after_inner(section) for section in range(count)]
            self._from = [self.least(self._automaton.enter(section)) for section in range(count)]
        parts, constraints = self._automaton.parts, combination.constraints
        #: Whether each section can be brought to an end, as far as its constraint can tell.
        self.tells = max(self._from) < UNKNOWN
        begun = (
            _sum(0 if inner is None else inner.most_after(parts[section].start), self._rest[section])
            for section, inner in enumerate(constraints)
        )
        #: No more than so many tokens are needed after a token that ends a section.
        self._most = max([*begun, *self._rest])

    def least(self, configs: Iterable[Configuration]) -> int:
        """The tokens from the nearest of some readings; :data:`UNKNOWN` if that cannot be told."""
        return min((self._least(config) for config in configs), default=UNKNOWN)

    def most_after(self, configs: Iterable[Configuration]) -> int:
        """No more tokens than these are needed after any token that is allowed; :data:`UNKNOWN` without a search."""
        found = [self._most]
        for config in configs:
            inner = self._combination.constraints[config.section]
            if inner is not None and config.exit < 0 and not config.over and config.hold < 0:
                found.append(_sum(inner.most_after(config.state), self._rest[config.section]))
        return max(found)

    def after(self, configs: frozenset[Configuration]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The allowed ids, and :meth:`least` after each."""
        combination = self._combination
        needed = np.full(combination.vocab_size, UNKNOWN, dtype=np.int32)
        for config in configs:
            part, inner = self._automaton.parts[config.section], combination.constraints[config.section]
            one_by_one: NDArray[np.int32] = combination.of_configuration(config).listed(combination.vocab_size)
            if config.exit < 0 and config.hold < 0 and not part.ends and not config.over and not part.follows:
                rest = np.int64(self._rest[config.section])
                inside, one_by_one = combination.inside_and_crossing(config)
                if inner is None:
                    ids, least = inside, np.zeros(len(inside), dtype=np.int64)
                else:
                    ids, least = inner.least_after(config.state)
                    kept = np.isin(ids, inside)
                    ids, least = ids[kept], least[kept].astype(np.int64)
                total = np.where((least >= UNKNOWN) | (rest >= UNKNOWN), UNKNOWN, least + rest)
                needed[ids] = np.minimum(needed[ids], total)
            pieces = [combination.pieces_at(config.section, *exit) for exit in self._begun(config)]
            for token in {*one_by_one.tolist(), *(token for ids_of_piece in pieces for token in ids_of_piece)}:
                needed[token] = min(int(needed[token]), self.least(combination.read([config], token)[0]))
        ids = combination.allowed(configs).listed(combination.vocab_size)
        return ids, needed.take(ids)

    def _least(self, config: Configuration) -> int:
        part = self._automaton.parts[config.section]
        if self._automaton.may_end(config):
            return 0
        if config.exit >= 0:
            target = part.exits[config.exit][1]
            return _sum(self._combination.pieces_left(config.section, config.exit, config.written), self._from[target])
        inner = self._combination.constraints[config.section]
        if inner is None or config.over:
            found = [
                _sum(self._combination.pieces_left(config.section, exit, written), self._from[part.exits[exit][1]])
                for exit, written in self._begun(config)
            ]
            return min([self._rest[config.section], *found])
        least = inner.least_tokens(config.state)
        return _sum(UNKNOWN if least is None else least, self._rest[config.section])

    def _begun(self, config: Configuration) -> list[tuple[int, int]]:
        """The strings that may end the section of a configuration, and how many bytes of each are written."""
        matcher = self._automaton.parts[config.section].matcher
        return [] if matcher is None or config.node is None or config.exit >= 0 else matcher.rests(config.node)

    def _after_inner(self, section: int) -> int:
        """The tokens from where the inner text of a section may end to the end of the text."""
        part = self._automaton.parts[section]
        if part.ends or part.may_end:
            return 0
        found = [self._from[following] for following in part.follows]
        for exit, (_, target) in enumerate(part.exits):
            if not part.at_start[exit]:
                found.append(_sum(self._combination.pieces_left(section, exit, 0), self._from[target]))
        if part.after is not None and not part.exits and part.automaton is None:
            found.append(_sum(part.budget or 0, self._from[part.after]))
        return min(found, default=UNKNOWN)


def _sum(one: int, other: int) -> int:
    return UNKNOWN if max(one, other) >= UNKNOWN else one + other
