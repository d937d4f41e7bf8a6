"""How many tokens a combination of constraints needs to the end of its text: an upper bound that counts down.

The inner constraint of a section is brought to an end, then the string that ends the section is written, then the rest
of the text from the section that follows. The least number of tokens for all this is the length of a shortest path
through the sections. A section with a budget is left as soon as the budget is spent and the inner text may end, so the
text can end in the section only before.

References:
    R. Bellman, "On a routing problem", 1958.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, reduce
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.constraints import UNKNOWN, Constraint, TokenSet
from logitloom_plugins.combinators.allowed_sets import difference, intersection, nothing, selected, union
from logitloom_plugins.combinators.characters import missing_after
from logitloom_plugins.combinators.section_automaton import SectionAutomaton, SectionConfiguration, States
from logitloom_plugins.combinators.triggers import TriggerMatcher, textless_ids

__all__ = ["Distances"]

#: In place of the tokens needed after a token that is not allowed.
_FORBIDDEN: Final = UNKNOWN + 1


class Distances:
    """The tokens from the configurations of a combination to the end.

    Args:
        combination: a :class:`~logitloom_plugins.combinators.combination.Combination`.

    Attributes:
        tells: whether each section can be brought to an end, as far as its constraint can tell.
    """

    def __init__(self, combination: Any) -> None:
        self._combination = combination
        self._automaton = combination.automaton()
        self._parts: tuple[SectionAutomaton, ...] = self._automaton.parts
        self._constraints: tuple[Constraint | None, ...] = combination.constraints
        #: Per section, string and position in the string the tokens that write the rest of the string.
        self._pieces = [
            [combination.pieces_left(section, exit) for exit in range(len(part.exits))]
            for section, part in enumerate(self._parts)
        ]
        memory = combination.memory
        #: The tokens from nodes of trigger matchers, by section, node and what is left of the budget.
        self._from_node: dict[tuple[int, TriggerMatcher.Node, int | None], int] = memory.table("least tokens of nodes")
        #: Tokens that end free text, and the tokens needed after each, by section and node of the trigger matcher.
        self._crossed: dict[tuple[int, TriggerMatcher.Node], tuple[NDArray[np.int32], NDArray[np.int64]]] = (
            memory.table("least tokens after free text")
        )
        self._fresh, self._longest_exit = cache(self._find_fresh), cache(self._find_longest_exit)
        count = len(self._parts)
        #: Per section the tokens from its start to the end of the text.
        self._from: list[int] = [UNKNOWN] * count
        starts = [[*self._automaton.enter(section)] for section in range(count)]
        changed = True
        while changed:  # a distance only becomes smaller
            changed = False
            for section in reversed(range(count)):
                found = self.least(starts[section])
                if found < self._from[section]:
                    self._from[section], changed = found, True
                    self._from_node.clear()
                    self._fresh.cache_clear()
                    self._longest_exit.cache_clear()
        self.tells = max(self._from) < UNKNOWN
        self._most = self._most_by_section()

    # --- one state ------------------------------------------------------------------------------------------------

    def least(self, configs: Iterable[SectionConfiguration]) -> int:
        """The tokens from the nearest of some readings; :data:`UNKNOWN` if that cannot be told."""
        return min((self._least(config) for config in configs), default=UNKNOWN)

    def _least(self, config: SectionConfiguration) -> int:
        if self._automaton.may_end(config):
            return 0
        if config.exit >= 0:
            return self._from_exit(config.section, config.exit, config.written)
        part, inner = self._parts[config.section], self._constraints[config.section]
        if inner is None or config.over:
            least = 0
        else:
            found = inner.least_tokens(config.state)
            if found is None:
                return UNKNOWN
            least = found
        if not least and part.matcher is not None and config.node is not None:
            return self._from_text(config.section, config.node, _left(part, config.spent))
        return int(self._from_inner(config.section, config.spent, np.array([least]))[0])

    def _from_inner(self, section: int, spent: int, least: NDArray[Any]) -> NDArray[np.int64]:
        """The tokens to the end where the inner text of a section needs ``least`` tokens, ``spent`` of its budget."""
        part = self._parts[section]
        least = least.astype(np.int64)
        if part.ends:
            return least
        found = least + (0 if part.may_end else self._onward(section))
        if part.budget is not None:
            left = max(part.budget - spent, 0)
            # With the budget spent, the section is left where the inner text may end; free text may end anywhere.
            inner = least if part.restricts else np.minimum(least, left)
            found = np.where(least >= left, inner + self._leave(section), found)
            if not part.restricts:
                found = np.minimum(found, left + self._leave(section))
        return np.where(least >= UNKNOWN, UNKNOWN, np.minimum(found, UNKNOWN))

    def _onward(self, section: int) -> int:
        """The tokens from where the inner text of a section may end, if the text must go on in another section."""
        part = self._parts[section]
        found = [self._from[following] for following in part.follows]
        found += [fewest for _, fewest in self._fresh(section, False)[:1]]
        return min(found, default=UNKNOWN)

    def _leave(self, section: int) -> int:
        """The tokens from where the budget of a section is spent and the section is left; the most for free text."""
        part = self._parts[section]
        if part.exits:
            return self._longest_exit(section) if part.matcher is not None else self._onward(section)
        return UNKNOWN if part.after is None else self._from[part.after]

    def _from_exit(self, section: int, exit: int, written: int) -> int:
        """The tokens for the rest of a string that ends a section, and for the text after the string."""
        return _sum(self._pieces[section][exit][written], self._from[self._parts[section].exits[exit][1]])

    def _find_longest_exit(self, section: int) -> int:
        """The largest value of :meth:`_from_exit` over all positions that tokens lead to."""
        found = [
            _sum(pieces, self._from[target])
            for exit, (_, target) in enumerate(self._parts[section].exits)
            for pieces in set(self._pieces[section][exit])
            if pieces < UNKNOWN
        ]
        return max(found, default=0)

    # --- free text ------------------------------------------------------------------------------------------------

    def _from_text(self, section: int, node: TriggerMatcher.Node, left: int | None) -> int:
        """The number of tokens that are needed from a node of the trigger matcher of a section.

        Args:
            section: the section, whose inner text may end here.
            node: the node.
            left: tokens that are left of the budget, or ``None`` without one.
        """
        part = self._parts[section]
        if part.may_end and (left is None or left > 0):
            return 0
        key = section, node, left if left is None else min(left, max(len(text) for text, _ in part.exits))
        known = self._from_node.get(key)
        if known is None:
            known = self._find_from_node(*key)
            self._combination.memory.note()
            self._from_node[key] = known
        return known

    def _find_from_node(self, section: int, node: TriggerMatcher.Node, left: int | None) -> int:
        part = self._parts[section]
        assert part.matcher is not None
        inside = part.automaton is None
        least = UNKNOWN
        for exit, written in part.matcher.begun(node) if inside else ():
            least = min(least, self._written(section, node, exit, written, left))
        for exit, fewest in self._fresh(section, node == (b"", True)):
            if least <= fewest and (left is None or not inside):
                break
            least = min(least, self._written(section, node, exit, 0, left if inside else None))
        return least

    def _find_fresh(self, section: int, at_start: bool) -> list[tuple[int, int]]:
        """The strings that may begin in a section, or at its start; and the fewest tokens from each, sorted."""
        begun = [exit for exit, first in enumerate(self._parts[section].at_start) if at_start or not first]
        return sorted(((exit, self._from_exit(section, exit, 0)) for exit in begun), key=itemgetter(1))

    def _written(self, section: int, node: TriggerMatcher.Node, exit: int, written: int, left: int | None) -> int:
        """The tokens to the end if a string that ends a section is written from a position on.

        :data:`UNKNOWN` if another string is found within one of these tokens, or tokens cannot write the string.
        """
        part = self._parts[section]
        assert part.matcher is not None
        text, count, missing = part.exits[exit][0], 0, 0
        while written < len(text):
            if left is not None and count == left:
                begun = part.matcher.rests(node)
                after = (self._from_exit(section, *one) for one in begun if one[1] == begun[0][1])
                return _sum(count, min(after))
            piece = self._combination.piece_at(section, exit, written)
            if not piece:
                return UNKNOWN
            for n, byte in enumerate(piece):
                node, done = part.matcher.step(node, byte)
                if done >= 0:
                    last = n + 1 == len(piece)
                    return _sum(count + 1, self._from[part.exits[done][1]]) if last else UNKNOWN
            written, count, missing = written + len(piece), count + 1, missing_after(missing, piece)
            if left is not None and missing > left - count:
                return UNKNOWN
        return UNKNOWN

    # --- all tokens of a state ------------------------------------------------------------------------------------

    def after(self, configs: frozenset[SectionConfiguration]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The allowed ids (ids that give way included), and :meth:`least` after each."""
        combination = self._combination
        needed = reduce(np.minimum, map(self._after_one, configs))
        settled, after = self._settled(configs)
        needed[settled] = after
        ids = (needed < _FORBIDDEN).nonzero()[0].astype(np.int32)
        forced = None if combination.gives_way else combination.forced_pieces(configs)
        if forced is not None:
            ids = intersection(TokenSet(True, ids), forced, combination.vocab_size).ids
        return ids, needed.take(ids).astype(np.int32)

    def within(self, configs: frozenset[SectionConfiguration], most: int) -> TokenSet | None:
        """The ids of :meth:`after` after which at most so many tokens are needed; ``None`` if no constraint tells."""
        inside = {config: self._inner_within(config, most) for config in configs}
        if all(found is None for found in inside.values()):
            return None
        combination = self._combination
        size = combination.vocab_size
        found = union([self._one_within(config, kept, most) for config, kept in inside.items()], size)
        settled, after = self._settled(configs)
        if len(settled):
            found = union([difference(found, settled, size), selected(settled[after <= most])], size)
        forced = None if combination.gives_way else combination.forced_pieces(configs)
        return found if forced is None else intersection(found, forced, size)

    def _settled(self, configs: frozenset[SectionConfiguration]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The tokens about which all readings decide together, and :meth:`least` after each."""
        ids, states, which = self._combination.settled(configs)
        return ids, np.array([self._after_all(state) for state in states], dtype=np.int64).take(which)

    def _one_within(self, config: SectionConfiguration, kept: TokenSet | None, most: int) -> TokenSet:
        """The tokens of one configuration that fit the limit; ``kept`` is the result of :meth:`_inner_within`."""
        combination = self._combination
        size = combination.vocab_size
        if kept is None:
            return selected((self._after_one(config) <= most).nonzero()[0])
        crossing, needed = self._across(config)
        others = self._apart(config)
        fitting = [token for token in others if self._after_token(config, token) <= most]
        kept = difference(kept, np.array([*others], dtype=np.int32), size) if others else kept
        return union([kept, selected(crossing[needed <= most]), selected(fitting)], size)

    def _inner_within(self, config: SectionConfiguration, most: int) -> TokenSet | None:
        """The tokens that stay in a section and fit: of free text, or as the constraint of the section finds them."""
        inner, part = self._constraints[config.section], self._parts[config.section]
        if not _is_inside(config, part):
            return None
        if inner is None:
            return self._text_within(config, part, most)
        if part.matcher is not None:
            return None
        least = np.append(np.arange(most + 1), UNKNOWN - 1)
        fits = self._from_inner(config.section, config.spent + 1, least) <= most
        count = int(fits.sum())
        # The number of tokens may decrease where the inner text needs more, because a spent budget ends the section.
        return inner.allowed_within(config.state, count - 1) if fits[:count].all() and count <= most + 1 else None

    def _text_within(self, config: SectionConfiguration, part: SectionAutomaton, most: int) -> TokenSet:
        """The tokens that stay in free text and fit."""
        combination, section = self._combination, config.section
        inside: TokenSet = combination.inside(config)
        if part.matcher is None or config.node is None:
            return inside if self._from_inner(section, config.spent + 1, np.zeros(1))[0] <= most else nothing()
        left = _left(part, config.spent + 1)
        groups = self._nodes_after(section, config.node)
        fits = self._from_text(section, next(groups)[1], left) <= most
        others = np.zeros(combination.vocab_size, dtype=bool)
        for tokens, node in groups:
            others[tokens] = (self._from_text(section, node, left) <= most) != fits
        found = others.nonzero()[0].astype(np.int32)
        size = combination.vocab_size
        return difference(inside, found, size) if fits else intersection(inside, TokenSet(True, found), size)

    def _after_one(self, config: SectionConfiguration) -> NDArray[np.int64]:
        """``[vocab_size]``: :meth:`least` after each token of one configuration, ``_FORBIDDEN`` if not allowed."""
        combination = self._combination
        needed = np.full(combination.vocab_size, _FORBIDDEN, dtype=np.int64)
        part = self._parts[config.section]
        if config.hold >= 0:
            return needed
        if _is_inside(config, part):
            self._stay(config, part, needed)
        crossing, after = self._across(config)
        needed[crossing] = np.minimum(needed[crossing], after)
        if config.exit >= 0 and config.node is not None:
            needed[textless_ids(combination.vocabulary, combination.vocab_size)] = self._least(config)
        for token in self._apart(config):
            needed[token] = self._after_token(config, token)
        return needed

    def _after_token(self, config: SectionConfiguration, token: int) -> int:
        return self._after_all(self._combination.read([config], token)[0])

    def _after_all(self, state: States) -> int:
        """:meth:`least` of the readings after a token, ``_FORBIDDEN`` if there are none."""
        return self.least(state) if state else _FORBIDDEN

    def _apart(self, config: SectionConfiguration) -> set[int]:
        """The tokens that are read one by one: special tokens of strings, and the next tokens of begun strings."""
        return {*self._combination.special_tokens(config), *self._next_pieces(config)}

    def _across(self, config: SectionConfiguration) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The tokens that may leave the section of a configuration, and the tokens needed after each of them."""
        part, node = self._parts[config.section], config.node
        if part.follows and config.exit < 0:
            return self._needed_after(*self._combination.successors(config))
        if part.automaton is not None or config.exit >= 0 or node is None:
            return self._needed_after(*self._combination.crossing(config))
        # Free text: a budget plays no part in the result.
        known = self._crossed.get((config.section, node))
        if known is None:
            known = self._needed_after(*self._combination.crossing(config))
            self._combination.memory.note(known)
            self._crossed[config.section, node] = known
        return known

    def _needed_after(
        self, ids: NDArray[np.int32], states: Sequence[States], which: NDArray[np.intp]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        return ids, np.array([self.least(state) for state in states], dtype=np.int64).take(which)

    def _stay(self, config: SectionConfiguration, part: SectionAutomaton, needed: NDArray[np.int64]) -> None:
        """Set the tokens needed after each token that stays in the section."""
        combination, section = self._combination, config.section
        inner = self._constraints[section]
        free = np.zeros(combination.vocab_size, dtype=bool)
        if inner is None:
            free = combination.inside(config).mask(combination.vocab_size)
            needed[free] = self._from_inner(section, config.spent + 1, np.zeros(1))[0]
        else:
            ids, least = inner.least_after(config.state)
            if part.matcher is not None:
                inside = combination.inside(config).mask(combination.vocab_size)[ids]
                ids, least = ids[inside], least[inside]
                free[ids[least == 0]] = True
            needed[ids] = self._from_inner(section, config.spent + 1, least)
        if part.matcher is not None and config.node is not None:
            left = _left(part, config.spent + 1)
            for tokens, node in self._nodes_after(section, config.node):
                tokens = tokens[free[tokens]]
                if len(tokens):
                    needed[tokens] = self._from_text(section, node, left)

    def _nodes_after(
        self, section: int, node: TriggerMatcher.Node
    ) -> Iterator[tuple[NDArray[np.int32], TriggerMatcher.Node]]:
        """Groups of tokens of free text and the node after each token; a later group replaces earlier ones."""
        combination, matcher = self._combination, self._parts[section].matcher
        assert matcher is not None
        yield np.arange(combination.vocab_size, dtype=np.int32), (b"", False)
        yield from combination.nodes_of_tokens(section)
        yield textless_ids(combination.vocabulary, combination.vocab_size), node
        for token, text in combination.tokens_within(section, matcher.rests(node)):
            at, done = node, -1
            for byte in text:
                at, done = matcher.step(at, byte)
                if done >= 0:
                    break
            if done < 0:
                yield np.array([token], dtype=np.int32), at

    def _next_pieces(self, config: SectionConfiguration) -> list[int]:
        """The tokens that continue the strings that may end the section of a configuration."""
        matcher = self._parts[config.section].matcher
        begun = [] if matcher is None or config.node is None or config.exit >= 0 else matcher.rests(config.node)
        return [token for exit in begun for token in self._combination.pieces_at(config.section, *exit)]

    # --- bounds without a search ----------------------------------------------------------------------------------

    def most_after(self, configs: Iterable[SectionConfiguration], enough: int = 0) -> int:
        """No more tokens than these are needed after any token that is allowed; :data:`UNKNOWN` without a search.

        A bound of ``enough`` tokens is not improved.
        """
        return max((self._most_after(config, enough) for config in configs), default=0)

    def _most_after(self, config: SectionConfiguration, enough: int) -> int:
        most = self._most[config.section]
        inner = self._constraints[config.section]
        if config.exit >= 0 or config.hold >= 0 or config.over:
            return most
        crossed = None if config.node is None or inner is not None else self._crossed.get((config.section, config.node))
        if crossed is not None:
            # Once all tokens that end the text have been looked at, the farthest is known.
            starts = [self._from[target] for _, target in self._parts[config.section].exits]
            most = max([self._longest_exit(config.section), int(crossed[1].max(initial=0)), *starts])
        if inner is None:
            return max(most, self._bound(config.section, config.spent + 1, 0))
        # The inner text may take what the sections behind it leave.
        behind = self._bound(config.section, config.spent + 1, 0)
        within = inner.most_after(config.state, max(enough - behind, 0))
        return max(most, self._bound(config.section, config.spent + 1, within))

    def _bound(self, section: int, spent: int, within: int) -> int:
        """A bound for the tokens needed after a token in a section whose inner text then needs at most ``within``."""
        part = self._parts[section]
        if part.ends:
            return 0
        onward = [self._from[following] for following in part.follows]
        onward += [self._longest_exit(section)] if part.exits else []
        rest = 0 if part.may_end else max(onward, default=0)
        if part.budget is not None and within >= part.budget - spent:
            rest = max([rest, *onward, *([] if part.after is None else [self._from[part.after]])])
        return _sum(within, rest)

    def _most_by_section(self) -> list[int]:
        """Per section the most tokens needed after a token that leaves the section, or in which an end string begins.

        A token that contains the whole string of the next section may go on to the section after that.
        """
        count = len(self._parts)
        inside = []
        for section, inner in enumerate(self._constraints):
            within = 0 if inner is None else inner.most_after(self._parts[section].start)
            inside.append(max(self._from[section], self._bound(section, 1, within)))
        further: list[set[int]] = []
        for section, part in enumerate(self._parts):
            short = {target for _, target in part.exits}
            short = {target for target in short if self._combination.in_a_token(section, target)}
            further.append(short | set(part.follows) | ({part.after} if part.after is not None else set()))
        found = []
        for section in range(count):
            part = self._parts[section]
            waiting = [target for _, target in part.exits] + [*part.follows]
            waiting += [] if part.after is None else [part.after]
            reached: set[int] = set()
            most = self._longest_exit(section) if part.exits else 0
            while waiting:
                at = waiting.pop()
                if at not in reached:
                    reached.add(at)
                    most = max(most, inside[at], self._longest_exit(at) if self._parts[at].exits else 0)
                    waiting += further[at]
            found.append(most)
        return found


def _is_inside(config: SectionConfiguration, part: SectionAutomaton) -> bool:
    """Whether the text of a section goes on, which has an end of its own."""
    return config.exit < 0 and config.hold < 0 and not part.ends and not config.over and not part.follows


def _left(part: SectionAutomaton, spent: int) -> int | None:
    return None if part.budget is None else max(part.budget - spent, 0)


def _sum(one: int, other: int) -> int:
    return UNKNOWN if max(one, other) >= UNKNOWN else one + other
