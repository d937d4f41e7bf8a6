"""A recogniser of context-free grammars over bytes, which tells how a text can be completed.

The recogniser is an Earley parser whose items hold no positions in the text. An item of a set is a position in a rule
with the frames that wait for the end of that rule; a frame is a position with frames of its own. Equal items and frames
are one object, so the state is the same after each character inside a string. A rule that is named at the end of
another rule gets the frames of the other rule, so recursive lists do not grow.

The shortest completion of an item is the shortest completion of its rule, followed by that of its frames. The
completion of frames is found once, since frames never change.

References:
    J. Earley, "An efficient context-free parsing algorithm", Communications of the ACM 13, 1970.
    E. Scott, A. Johnstone, "GLL parsing", 2010 (frames shared by all items that wait for them).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom.constraints import ByteAutomaton, State, TextTokens
from logitloom_plugins.grammars.byte_rules import BEGIN, END, ORDER, ByteRules

__all__ = ["Recogniser"]

#: Units of the work of a state, besides one for each ``_POSITIONS_OF_A_UNIT`` positions that may come next.
_OF_A_STATE: Final = 4
_POSITIONS_OF_A_UNIT: Final = 3
#: As many positions as measuring the frames of one rule in rounds takes time.
_OF_ROUNDS: Final = 6


class _Frames:
    """A frame: the positions that wait for the end of a rule.

    Attributes:
        callers: positions at which rules named this rule, with the frames of the calling rules.
        completion: the shortest text that ends one of the callers and all rules around this caller, by rank; ``None``
            if there is none.
        farthest: the bytes of the longest of the shortest completions of the callers.
    """

    __slots__ = ("callers", "completion", "farthest")

    def __init__(self) -> None:
        self.callers: frozenset[_Item] = frozenset()
        self.completion: bytes | None = None
        self.farthest = 0


_Item = tuple[int, _Frames]
_Open = tuple[int, "_Frames | int"]


class _Set:
    """The state after some bytes.

    Attributes:
        items: the positions that were just passed, with their frames.
        completion: the shortest text to an end, by rank; ``None`` if there is none.
        farthest: the longest of the shortest completions after any item or frame.
        next: by class of bytes, the positions that may come next, once they were asked for.
        work: how much work finding ``next`` takes, once it was asked for.
    """

    __slots__ = ("completion", "farthest", "items", "next", "work")

    def __init__(self, items: frozenset[_Item]) -> None:
        self.items = items
        self.completion: bytes | None = None
        self.farthest = 0
        self.next: dict[int, list[_Item]] | None = None
        self.work: int | None = None


class Recogniser(ByteAutomaton):
    """The automaton of a grammar, whose states are objects that live in one process and are compared by identity.

    Args:
        rules: the grammar.

    Attributes:
        made: the number of states and frames, all of which the recogniser keeps.

    Example:
        >>> from logitloom_plugins.grammars.gbnf import parse_gbnf
        >>> brackets = Recogniser(ByteRules(parse_gbnf('root ::= "(" root ")" root | "[" root "]" | ""'), range(256)))
        >>> state = brackets.start()
        >>> for byte in b"([":
        ...     state = brackets.step(state, byte)
        >>> brackets.completion(state), brackets.step(state, ord(")")), brackets.accepts(state)
        (b'])', None, False)
    """

    def __init__(self, rules: ByteRules) -> None:
        self._rules = rules
        self._outermost = _Frames()
        self._outermost.completion = b""
        self._frames: dict[frozenset[_Item], _Frames] = {}
        self._sets: dict[frozenset[_Item], _Set] = {}
        self._begin = self._set([(BEGIN, self._outermost)])
        self._classes = rules.byte_class
        self._class_of: list[int] = self._classes.tolist()
        self._classes_in = {
            mask: sorted({number for byte, number in enumerate(self._class_of) if mask >> byte & 1})
            for mask in set(rules.mask)
        }
        self._cyclic = 0
        self._in_rounds = _measured_in_rounds(rules)

    @property
    def made(self) -> int:
        """See the class."""
        return len(self._frames) + len(self._sets) + self._cyclic

    @property
    def growth(self) -> NDArray[np.int32] | None:
        """:attr:`.ByteRules.growth`."""
        return self._rules.growth

    @property
    def fingerprint(self) -> bytes:
        """A hash of the positions."""
        rules = self._rules
        parts = repr((rules.mask, rules.called, rules.follow, rules.last, rules.first, rules.start, rules.rest))
        return hashlib.blake2b(parts.encode(), digest_size=16).digest()

    # --- methods of ByteAutomaton -----------------------------------------------------------------------------------

    def start(self) -> State:
        """The state before the first byte."""
        return self._begin

    def step(self, state: State, byte: int) -> State | None:
        """The state after one more byte."""
        found = self._next(_set(state)).get(self._class_of[byte])
        return None if found is None else self._set(found)

    def accepts(self, state: State) -> bool:
        """Whether the text may end."""
        return _set(state).completion == b""

    def byte_classes(self) -> NDArray[np.uint8]:
        """Bytes that are in the same byte sets."""
        return self._classes

    def completion(self, state: State) -> bytes | None:
        """The first of the shortest texts with which the whole text follows the grammar."""
        text = _set(state).completion
        return None if text is None else text.translate(ORDER)

    def completion_bound(self, tokens: TextTokens) -> Callable[[State], int | None] | None:
        """:meth:`bound`, and what the longest token may add."""
        growth = self._rules.growth
        if growth is None:
            return None
        most = tokens.longest * int(growth.max(initial=0))
        return lambda state: None if _set(state).completion is None else _set(state).farthest + most

    def work(self, state: State) -> int:
        """By the positions at which rules begin after the state."""
        found = _set(state)
        if found.work is None:
            rules, count, begun = self._rules, 0, set[int]()
            waiting = [after for position, _ in found.items for after in rules.follow[position]]
            while waiting:
                rule = rules.called[waiting.pop()]
                count += 1
                if rule >= 0 and rule not in begun:
                    begun.add(rule)
                    waiting += rules.first[rule]
                    count += _OF_ROUNDS * (rule in self._in_rounds)
            found.work = _OF_A_STATE + count // _POSITIONS_OF_A_UNIT
        return found.work

    def bound(self, state: State) -> int | None:
        """An upper bound on the bytes of the shortest completion of the state; ``None`` if no bound is known.

        Each byte makes it larger by at most :attr:`growth`. The bound is the longest shortest completion, over the
        unfinished rules and over all frames that wait for their end: a rule that ends leaves only some frames.
        """
        return None if self._rules.growth is None else _set(state).farthest

    # --- states ---------------------------------------------------------------------------------------------------

    def _set(self, passed: Iterable[_Item]) -> _Set:
        """The state after some positions were passed, with every rule that ended there."""
        rules, seen, items = self._rules, set[_Item](), set[_Item]()
        waiting = list(passed)
        while waiting:
            item = waiting.pop()
            if item in seen:
                continue
            seen.add(item)
            position, frames = item
            if rules.follow[position]:
                items.add((rules.alike[position], frames))
            if rules.last[position]:
                if frames is self._outermost:
                    items.add((END, frames))
                else:
                    waiting += frames.callers
        key = frozenset(items)
        found = self._sets.get(key)
        if found is None:
            found = _Set(key)
            texts = [text for item in key if (text := self._after(item)) is not None]
            found.completion = min(texts, key=_short_first, default=None)
            found.farthest = max([*map(len, texts), *(frames.farthest for _, frames in key)])
            self._sets[key] = found
        return found

    def _after(self, item: _Item) -> bytes | None:
        """The shortest completion after a position."""
        rest, outside = self._rules.rest[item[0]], item[1].completion
        return None if rest is None or outside is None else rest + outside

    def _next(self, state: _Set) -> dict[int, list[_Item]]:
        if state.next is None:
            rules = self._rules
            callers: dict[int, set[_Open]] = {}
            ends: list[tuple[int, int]] = []  # a rule, and one at whose end it stands
            byte_sets: list[_Open] = []
            waiting: list[_Open] = [
                (after, frames) for position, frames in state.items for after in rules.follow[position]
            ]
            while waiting:
                position, frames = waiting.pop()
                rule = rules.called[position]
                if rule < 0:
                    byte_sets.append((position, frames))
                    continue
                if rule not in callers:
                    callers[rule] = set()
                    waiting += [(each, rule) for each in rules.first[rule]]
                if rules.follow[position]:
                    callers[rule].add((position, frames))
                elif isinstance(frames, int):
                    ends.append((rule, frames))
                else:
                    callers[rule] |= frames.callers if frames is not self._outermost else {(END, frames)}
            known = self._framed(callers, ends)
            found: dict[int, list[_Item]] = {}
            for position, frames in byte_sets:
                item = position, known[frames] if isinstance(frames, int) else frames
                for number in self._classes_in[rules.mask[position]]:
                    found.setdefault(number, []).append(item)
            state.next = found
        return state.next

    def _framed(self, callers: dict[int, set[_Open]], ends: list[tuple[int, int]]) -> dict[int, _Frames]:
        """The frames of the rules that begin at a state."""
        at_end: dict[int, list[int]] = {}
        for rule, other in ends:
            at_end.setdefault(other, []).append(rule)
        grown = list(at_end)
        while grown:
            other = grown.pop()
            for rule in at_end.get(other, ()):
                if not callers[other] <= callers[rule]:
                    callers[rule] |= callers[other]
                    grown.append(rule)
        known: dict[int, _Frames] = {}
        needs = {rule: {outer for _, outer in each if isinstance(outer, int)} for rule, each in callers.items()}
        needed_by: dict[int, list[int]] = {}
        for rule, others in needs.items():
            for other in others:
                needed_by.setdefault(other, []).append(rule)
        ready = [rule for rule, others in needs.items() if not others]
        while ready:
            rule = ready.pop()
            del needs[rule]
            key = _callers(callers[rule], known)
            if key not in self._frames:
                frames = self._frames[key] = _Frames()
                frames.callers = key
                self._measure(frames)
            known[rule] = self._frames[key]
            for other in needed_by.get(rule, ()):
                needs[other].discard(rule)
                if not needs[other]:
                    ready.append(other)
        if needs:  # rules that begin with each other
            self._circle({rule: callers[rule] for rule in needs}, known)
        return known

    def _circle(self, left: dict[int, set[_Open]], known: dict[int, _Frames]) -> None:
        """Add the frames of rules that begin with each other, which have no frames to share."""
        known.update({rule: _Frames() for rule in left})
        self._cyclic += len(left)
        for rule, each in left.items():
            known[rule].callers = _callers(each, known)
        # Bounds are found when the completions are known, which come nearer and nearer until then.
        for _ in range(2):
            for rule in left:
                known[rule].farthest = 0
            # Each round measures every rule. Restarting the round after each change would take quadratic time.
            while sum(self._measure(known[rule]) for rule in left):
                pass

    def _measure(self, frames: _Frames) -> bool:
        """Find the completion of frames from the frames around them; returns whether the completion has changed."""
        before = frames.completion, frames.farthest
        texts = [text for item in frames.callers if (text := self._after(item)) is not None]
        frames.completion = min(texts, key=_short_first, default=None)
        frames.farthest = max([*map(len, texts), *(outer.farthest for _, outer in frames.callers)], default=0)
        return before != (frames.completion, frames.farthest)


def _measured_in_rounds(rules: ByteRules) -> frozenset[int]:
    """The rules whose frames may have no order: left-recursive rules, and rules with which such rules begin."""
    begins = [{rules.called[at] for at in first if rules.called[at] >= 0} for first in rules.first]
    waits = Counter([other for others in begins for other in others])
    ready = [rule for rule in range(len(begins)) if not waits[rule]]
    for rule in ready:
        waits.subtract(begins[rule])
        ready += [other for other in begins[rule] if not waits[other]]
    return frozenset(rule for rule, count in waits.items() if count)


def _callers(items: Iterable[_Open], known: dict[int, _Frames]) -> frozenset[_Item]:
    return frozenset((at, known[outer] if isinstance(outer, int) else outer) for at, outer in items)


def _short_first(text: bytes) -> tuple[int, bytes]:
    return len(text), text


def _set(state: State) -> _Set:
    assert isinstance(state, _Set)
    return state
