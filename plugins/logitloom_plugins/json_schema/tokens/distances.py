"""How many tokens each token leaves to the end of a value.

The number is that of the fewest tokens that write the completion of a position (:mod:`..structure.completion`). One
walk of the vocabulary's trie finds where each token leads. Inside strings it walks whole levels of the trie at once and
asks once for each state of the content.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.constraints import UNKNOWN
from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.structure.completion import Completions
from logitloom_plugins.json_schema.structure.members import ValueConstraint
from logitloom_plugins.json_schema.structure.satisfiability import Frame
from logitloom_plugins.json_schema.structure.string_states import StringContext
from logitloom_plugins.json_schema.structure.value_reader import Position, Stack
from logitloom_plugins.json_schema.tokens.content_walk import ContentWalk
from logitloom_plugins.json_schema.tokens.token_walk import Words

__all__ = ["TokenDistances"]

Key = TypeVar("Key")
Entry = TypeVar("Entry")

#: Tokens are no longer than this in the texts that are counted, so that a text is counted in a time like its length.
_LONGEST: Final = 24
#: Texts are counted in parts that end before these bytes, so that a part which many texts have is counted once.
_SEPARATOR: Final = b',"'
_LONGEST_PART: Final = 64
_MOST_REMEMBERED: Final = 1 << 12
#: The work of one mask, in bytes of completions, and that of a node of the trie.
_MOST_WORK: Final = 1 << 18
_NODE: Final = 20
_NOT_COUNTED: Final = -1
#: Members that are looked at for a bound, and the bytes that end any number.
_MOST_LOOKED_AT: Final = 1 << 12
_FARTHEST_NUMBER: Final = 32


class _Near(NamedTuple):
    """What a token may write in an object, an array or a value, and in those that it opens in it.

    Attributes:
        inside: the bytes that a string may at most still take.
        end: the tokens that end the object or array itself.
        ends: the most tokens that end one of these objects and arrays.
        begun: the most tokens of a name, or of a short value, of a member of one of them.
    """

    inside: int
    end: int
    ends: int
    begun: int


class TokenDistances:
    """The tokens from positions to the end of the value.

    Args:
        machine: the pushdown automaton of the schema.
        completions: of its positions.
        words: the trie of the vocabulary.
        content: the walk inside the strings of the machine.
        vocabulary: the same tokens.
    """

    def __init__(
        self, machine: Any, completions: Completions, words: Words, content: ContentWalk, vocabulary: Vocabulary
    ) -> None:
        self.machine, self._completions, self._words = machine, completions, words
        self._texts, self._opened = _prepared(vocabulary)
        self._content = content
        self._near_to: dict[Any, _Near | None] = {}
        self._looked_at: dict[Any, tuple[_Near, list[Any], int] | None] = {}
        self._parts: dict[tuple[bytes, int, tuple[int, ...]], list[int]] = {}
        self._least: dict[Position, int | None] = {}

    def least(self, position: Position) -> int | None:
        """The fewest tokens that write the completion; ``None`` if there is none."""
        return _remembered(self._least, position, self._find_least)

    def _find_least(self, position: Position) -> int | None:
        text = self._completions.of(position)
        return None if text is None else self._fewest(text)

    def most_after(self, position: Position) -> int:
        """No more tokens than these are needed after any that may come; :data:`UNKNOWN` without a look at them.

        A token ends some of the open objects and arrays, goes on in another, and opens some in it. What it can at most
        add to the completion is the end of each that it opens and a member that it begins. Where formulas are open,
        what it writes may also decide how those end that stay open.
        """
        frames, values, inside = self._completions.open_frames(position)
        parts = [*dict.fromkeys((*frames, *values))]
        found = [near for near in map(self._near, parts) if near is not None]
        least = self.least(position)
        if least is None or len(found) < len(parts):
            return UNKNOWN
        undecided = {frame for frame in frames if not frame.only_hard}
        inside = max([inside, *[near.inside for near in found]])
        ends = max((near.ends for near in found), default=0)
        begun = max((near.begun for near in found), default=0)
        decided = sum(near.end for part, near in zip(parts, found, strict=True) if part in undecided)
        return least + decided + (self._opened + 2) * (ends + 2 * begun) + inside + _FARTHEST_NUMBER

    def _near(self, start: Frame | ValueConstraint) -> _Near | None:
        """What a token may write in an open object or array, or in a value; ``None``: too much to be looked at."""
        return _remembered(self._near_to, start, self._find_near)

    def _find_near(self, start: Frame | ValueConstraint) -> _Near | None:
        """The same, by a breadth-first search through members, as many levels deep as one token opens."""
        near, members = _Near(0, 0, 0, 0), 0
        queue: list[tuple[Frame | ValueConstraint, int]] = [(start, self._opened)]
        seen = {start}
        for part, levels in queue:
            found = _remembered(self._looked_at, part, self._look_at)
            if found is None:
                return None
            own, following, count = found
            near = _Near(
                max(near.inside, own.inside),
                own.end if part == start else near.end,
                max(near.ends, own.ends),
                max(near.begun, own.begun),
            )
            members += count
            if members > _MOST_LOOKED_AT:
                return None
            left = levels - isinstance(part, ValueConstraint)
            if left >= 0:
                queue += [(below, left) for below in following if below not in seen]
                seen.update(following)
        return near

    def _look_at(self, part: Frame | ValueConstraint) -> tuple[_Near, list[Any], int] | None:
        """What a token may write in a part without what is below it, the parts right below, and how many members or
        short values were counted.
        """
        following: list[Any]
        try:
            if isinstance(part, ValueConstraint):
                inside, begun, following = self._completions.openings(part)
                end = 0
            else:
                # A member is its name and a value, which is looked at by itself.
                inside, text, named = self._completions.members(part, _MOST_LOOKED_AT)
                end, begun, following = self._fewest(text) or 0, [name for name, _ in named], [at for _, at in named]
        except BudgetExceeded:
            return None
        longest = max([self._fewest(text) or len(text) for text in begun], default=0)
        return _Near(inside, end, end, longest), [*dict.fromkeys(following)], len(begun)

    def after(self, position: Position) -> tuple[NDArray[np.int32], NDArray[np.int32], bool]:
        """The tokens that may come, :meth:`least` after each, :data:`UNKNOWN` for ``None``, and whether they are all.

        The work is bounded. Shorter tokens are looked at first. Those that write the completion are always there.
        """
        machine, completions = self.machine, self._completions
        starts, sizes, texts = self._words.starts, self._words.sizes, self._words.bytes
        completions.begin_counting()
        self._least.clear()
        found = _Found(self._words.trie.order)
        self._along(position, found)
        pending = deque([(0, position)])
        #: Nodes within strings, with the state of the content and the number of characters, which are walked together.
        strings: dict[tuple[StringContext, Stack], list[tuple[int, int, int]]] = {}
        large: set[StringContext] = set()
        while (pending or strings) and completions.work < _MOST_WORK:
            if not pending:
                (context, stack), begun = strings.popitem()
                ends = self._in_string(context, stack, begun, found)
                if ends is None:
                    large.add(context)
                    ends = [
                        (node, Position(context.text(content_state, count), stack))
                        for node, content_state, count in begun
                    ]
                pending += ends
                continue
            node, at = pending.popleft()
            state = machine.states[at.state]
            if state[0] == "text" and not at.items.frame and at.state not in machine.tracked and state[1] not in large:
                strings.setdefault((state[1], at.stack), []).append((node, state[2], state[3]))
                continue
            for child in range(starts[node], starts[node] + sizes[node]):
                reached = machine.read(at, texts[child : child + 1])
                completions.work += _NODE
                if reached is None:
                    continue
                self._add(child, reached, found)
                if sizes[child]:
                    pending.append((child, reached))
        return *found.sorted(), completions.work < _MOST_WORK

    def _along(self, position: Position, found: _Found) -> None:
        """Add the tokens that write the beginning of the completion."""
        text = self._completions.of(position)
        fewest = [] if text is None else self._fewest_of_ends(text)
        words, node = self._words, 0
        for left, byte in zip(range(len(fewest) - 2, -1, -1), text or b"", strict=False):
            begin = words.starts[node]
            node = words.bytes.find(byte, begin, begin + words.sizes[node])
            if node < 0:
                return
            if words.own[node] > words.first[node]:
                found.add(words.first[node], words.own[node], min(fewest[left], UNKNOWN))

    def _in_string(
        self, context: StringContext, stack: Stack, begun: list[tuple[int, int, int]], found: _Found
    ) -> list[tuple[int, Position]] | None:
        """Add the tokens that stay in a string below some nodes.

        Returns:
            The nodes at which the string ends or an escape begins, and where they lead; ``None`` if the string is too
            large to be walked at once.
        """
        walked = self._content.reached(self._words.trie, context, begun)
        if walked is None:
            return None
        positions, which, states, ends = walked
        completions, machine, words = self._completions, self.machine, self._words
        least = np.full(len(states), _NOT_COUNTED, dtype=np.int32)
        for number, (content_state, count) in enumerate(states):
            if completions.work < _MOST_WORK:
                needed = self.least(Position(context.text(content_state, count), stack))
                least[number] = UNKNOWN if needed is None else needed
        found.add_all(positions, least[which])
        following = []
        for node, (content_state, count), _ in ends:
            completions.work += _NODE
            reached = machine.read(Position(context.text(content_state, count), stack), words.bytes[node : node + 1])
            if reached is not None and completions.work < _MOST_WORK:
                self._add(node, reached, found)
                following.append((node, reached))
        return following

    def _add(self, node: int, reached: Position, found: _Found) -> None:
        """Add the tokens that end at a node, unless too much has been counted."""
        first, own = self._words.first[node], self._words.own[node]
        if own > first and self._completions.work < _MOST_WORK:
            found.add(first, own, self.least(reached))

    def _fewest(self, text: bytes) -> int | None:
        """The fewest tokens that write a text, ``None`` if none do."""
        fewest = self._fewest_of_ends(text)[-1]
        return None if fewest >= UNKNOWN else fewest

    def _fewest_of_ends(self, text: bytes) -> list[int]:
        """The fewest tokens for each end of a text, by the number of its bytes; :data:`UNKNOWN` if none write it."""
        # By how many bytes are left: the fewest tokens for them.
        fewest, end = [0], len(text)
        while end:
            begin = max(text.rfind(_SEPARATOR, max(end - _LONGEST_PART, 0), end - 1), end - _LONGEST_PART, 0)
            base = fewest[-1]
            tail = tuple([each - base for each in fewest[-_LONGEST:]])
            part = _remembered(self._parts, (text[begin : end + _LONGEST - 1], end - begin, tail), self._find_part)
            fewest += [base + each for each in part]
            end = begin
        return fewest

    def _find_part(self, key: tuple[bytes, int, tuple[int, ...]]) -> list[int]:
        """The fewest tokens for each longer end of a text.

        Args:
            key: a part of a text, and what comes after it, as far as a token reaches; the size of the part; and the
                fewest tokens for the ends of what comes after it, the longest last, of which tokens are counted from
                those of the last on.
        """
        text, size, tail = key
        tokens = self._texts
        fewest = [*tail]
        for begin in range(size - 1, -1, -1):
            best = 2 * UNKNOWN
            for length in range(1, min(len(fewest), _LONGEST) + 1):
                if fewest[-length] < best and text[begin : begin + length] in tokens:
                    best = fewest[-length]
            fewest.append(best + 1 if best < UNKNOWN // 2 else UNKNOWN)
        return fewest[len(tail) :]


class _Found:
    """Tokens with the number of tokens that are needed after each.

    Args:
        order: the tokens in the order of a trie.
    """

    def __init__(self, order: NDArray[np.int32]) -> None:
        self._order = order
        self._ids: list[NDArray[np.int32]] = []
        self._needed: list[NDArray[np.int32]] = []

    def add(self, begin: int, end: int, needed: int | None) -> None:
        """Add the tokens of a range of the order, which all need the same."""
        self._ids.append(self._order[begin:end])
        self._needed.append(np.full(end - begin, UNKNOWN if needed is None else needed, dtype=np.int32))

    def add_all(self, positions: NDArray[Any], needed: NDArray[np.int32]) -> None:
        """Add the tokens at some positions of the order, but those that were not counted."""
        counted = needed != _NOT_COUNTED
        self._ids.append(self._order[positions[counted]])
        self._needed.append(needed[counted])

    def sorted(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The tokens in ascending order, each once, with the least that was found for it."""
        if not self._ids:
            return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
        ids, needed = np.concatenate(self._ids), np.concatenate(self._needed)
        order = np.lexsort((needed, ids))
        ids, needed = ids[order], needed[order]
        once = np.append(True, ids[1:] != ids[:-1])
        return ids[once], needed[once]


def _remembered(memory: dict[Key, Entry], key: Key, find: Callable[[Key], Entry]) -> Entry:
    """The entry of a bounded memory, or what a function finds for its key."""
    if key not in memory:
        found = find(key)
        if len(memory) > _MOST_REMEMBERED:
            memory.clear()
        memory[key] = found
    return memory[key]


@lru_cache(maxsize=8)
def _prepared(vocabulary: Vocabulary) -> tuple[frozenset[bytes], int]:
    """The texts of the tokens, and the most objects and arrays that one token opens."""
    flat = vocabulary.flat_bytes
    opening = ((flat == ord("{")) | (flat == ord("["))).nonzero()[0]
    opened = np.bincount(vocabulary.offsets.searchsorted(opening, "right"))
    return frozenset(vocabulary.token_bytes), int(np.max(opened, initial=0))
