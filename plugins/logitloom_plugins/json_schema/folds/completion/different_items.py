"""Completions within an array of different items: a search that judges each text by reading it."""

from __future__ import annotations

import heapq
import itertools
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from logitloom_plugins.json_schema.folds.completion.completion_memory import COPIED, MEMBER, shortlex
from logitloom_plugins.json_schema.folds.completion.local_texts import LocalTexts
from logitloom_plugins.json_schema.folds.completion.short_contents import ORDER, Canonical, canonical, read_value
from logitloom_plugins.json_schema.folds.completion.strings_that_differ import TRIED, others
from logitloom_plugins.json_schema.folds.completion.value_texts import values_in_order
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.folds.value_reader import Container, ItemPosition, ItemReader
from logitloom_plugins.json_schema.grammar.arrays import item
from logitloom_plugins.json_schema.grammar.contexts import NameContext
from logitloom_plugins.json_schema.grammar.layout import PIECE, string_end
from logitloom_plugins.json_schema.grammar.members import TruthVector, ValueConstraint
from logitloom_plugins.json_schema.grammar.names import Linked
from logitloom_plugins.json_schema.grammar.states import (
    ArrayState,
    EscapeState,
    GapState,
    LiteralState,
    NumberState,
    State,
    TextState,
    ValueState,
)
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import Output

__all__ = ["DifferentItems", "Item", "items_before"]

#: The most work of one search.
_MOST_READ: Final = 1 << 17
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
#: The work of reading a byte.
_READ: Final = 4
#: So many values of a list may come before the first string, as the shortest value and the literals do.
_FURTHER: Final = 8


class Item(NamedTuple):
    """The end of an item that has begun: its truth vector, the rest of its text, and its canonical value."""

    truth: TruthVector
    rest: bytes
    value: Canonical


def items_before(machine: Machine, position: ItemPosition) -> tuple[Canonical, ...]:
    """The earlier items of an array of different items, if it is the innermost open object or array."""
    frame = position.frame
    if frame is None or frame.before is not None:
        return ()
    items = machine.items.listed(frame.entry.done)
    # The canonical text of a string is that of a reader already.
    return tuple(
        [item.decode() if item[:1] == b'"' else item if item[:1] in b"{[" else canonical(item) for item in items]
    )


class _Choices(NamedTuple):
    """The values from which further items of an array are chosen.

    Attributes:
        values: the values.
        strings: the characters of those that are strings, in ascending order.
        containers: the canonical texts of those that are objects and arrays.
        letters: the bytes of ``containers``.
    """

    values: frozenset[Canonical]
    strings: list[bytes]
    containers: list[bytes]
    letters: bytes

    def has_string(self, begun: bytes) -> bool:
        """Whether one of the strings begins with some characters."""
        at = bisect_left(self.strings, begun)
        return at < len(self.strings) and self.strings[at].startswith(begun)


class DifferentItems:
    """Finds completions within arrays of different items.

    Args:
        machine: reads texts.
        texts: the short texts of states.
        complete: finds the completion of a position: with a given end of the current item, or, for ``None``, as if
            items might repeat.
    """

    def __init__(
        self, machine: Machine, texts: LocalTexts, complete: Callable[[Position, Item | None], bytes | None]
    ) -> None:
        self._machine, self._texts, self._contents, self._complete = machine, texts, texts.contents, complete
        self._values = ItemReader()
        #: The choices by the constraint on items and their least number.
        self._listed: dict[tuple[ValueConstraint, int], _Choices] = {}

    def matter(self, position: Position) -> bool:
        """Whether the items so far make a difference to the completion.

        Earlier items make none where the current item cannot become an earlier one, and no further items must come.
        """
        if not position.items.frame:
            return False
        # Within an escape the question is asked for the text before the escape, because the character may have been
        # chosen there.
        if self._machine.distinct.can_recur(position.items._replace(escape=b"")):
            return True
        state = self._machine.states[position.state]
        around: list[State] = [state.before if isinstance(state, GapState) else state]
        if isinstance(around[0], NumberState | ValueState):
            around = [*around[0].back.states.values()]
        elif isinstance(around[0], LiteralState):
            around = [around[0].target]
        for entry in () if position.stack is None else position.stack.entries():
            around += entry.back.states.values()
        frames = [each.frame for each in around if isinstance(each, ArrayState) and each.frame.plan.distinct]
        return any(not frame.only_hard or frame.length < frame.plan.least for frame in frames)

    def alike(self, position: Position) -> Hashable | None:
        """A key of all by which the earlier items affect a completion with further items; ``None`` if not known.

        Further items are chosen from a list. Earlier items that are not in the list make no difference. Nor do the
        characters of a string that can become neither an earlier item nor one of the list.
        """
        listed, (frame, phase, text, _) = self._choices(position), position.items
        frames = list[Linked[Container]]()
        while frame is not None:
            frames.append(frame)
            frame = frame.before
        if listed is None or not frames or any(each.entry.kind == "distinct" for each in frames[:-1]):
            return None
        if text or len(frames) > 1:
            if len(frames) == 1 and text[:1] != b'"':
                return None
            if self._machine.distinct.can_recur(position.items._replace(escape=b"")):
                return None
            if len(frames) == 1:
                becomes_listed = listed.has_string(text[1:])
            else:
                becomes_listed = any(self._may_become(value, frames, text) for value in listed.containers)
            if becomes_listed:
                return None
        before = frozenset(items_before(self._machine, ItemPosition(frames[-1])))
        return before & listed.values, phase, text[:1], len(frames)

    def _may_become(self, value: bytes, frames: list[Linked[Container]], text: bytes) -> bool:
        """Whether an unfinished item may become a given value of the list of further items.

        Args:
            value: the canonical text of the value.
            frames: the open arrays and objects, the innermost first; the last one is the array of the item.
            text: the part of a string, a number or a literal that has been read in the innermost of these.
        """
        for frame in frames[-2::-1]:
            (kind, content), container = self._values.values[value], frame.entry
            done = self._machine.items.listed(container.done)
            if kind != container.kind:
                return False
            if not (content.issuperset(done) if kind == "object" else content[: len(done)] == done):
                return False
            if kind == "object" and container.name is None:
                return True
            following = (
                dict(content).get(container.name) if kind == "object" else dict(enumerate(content)).get(len(done))
            )
            if following is None:
                return kind == "array" and not text and frame is frames[0]
            value = following
        kind, content = self._values.values[value]
        return text[:1] != b'"' or (kind == "string" and content.startswith(text[1:]))

    def _choices(self, position: Position) -> _Choices | None:
        """The values from which further items are chosen.

        ``None`` if several arrays of different items are open, or if the items are not alike.
        """
        groups: list[list[State]] = [[self._machine.states[position.state]]]
        groups += [[*entry.back.states.values()] for entry in (position.stack.entries() if position.stack else ())]
        arrays = [
            group
            for group in groups
            if any(isinstance(each, ArrayState) and each.frame.plan.distinct for each in group)
        ]
        [state, *others] = arrays[0] if len(arrays) == 1 else [None]
        if others or not isinstance(state, ArrayState) or not state.frame.only_hard:
            return None
        one = item(state.frame) if state.frame.length >= state.frame.plan.varied else None
        if one is None:
            return None
        key = one.demand, state.frame.plan.least
        if key not in self._listed:
            every = {
                value: text for _, text, value in values_in_order(self._texts, one.demand, 1 << key[1].bit_length())
            }
            # Of the first values, some of which have come, one after the other is chosen.
            first = dict(itertools.islice(every.items(), key[1] + _FURTHER))
            strings = sorted([json.loads(text).encode() for text in first.values() if text[:1] == b'"'])
            containers = [read_value(text, self._values) for text in first.values() if text[:1] in b"{["]
            self._listed[key] = _Choices(frozenset(first), strings, containers, bytes({*b"".join(containers)}))
        return self._listed[key]

    def complete(self, position: Position) -> tuple[bytes | None, int]:
        """The completion, ``None`` if a bounded search finds none, and the work of the search.

        The search takes as lower bounds the completions as if items might repeat.
        """
        machine = self._machine
        queue = [(0, b"", b"", self._complete(position, None) or b"", position)]
        seen: set[Hashable] = set()
        # The work of trying bytes is counted in ``tries``, because it does not end the search.
        work, tries, listed = 0, 0, self._choices(position)
        tried_everywhere = {*TRIED, *(listed.letters if listed else b"")}
        while queue and work < _MOST_READ:
            _, _, text, ahead, at = heapq.heappop(queue)
            if at in seen:
                continue
            seen.add(at)
            items = items_before(machine, at.items)
            rest = None
            if items and at.items.text:
                rest, tried = self._chosen(at, items)
                work += tried
            if rest is None:
                rest = self._with_item(at, ahead)
            work += _READ * len(rest or ahead)
            if rest is not None:
                return text + rest, work + MEMBER * tries
            for byte in {*tried_everywhere, *ahead[:1], *self._others(at)}:
                reached = machine.read(at, bytes([byte]))
                # Where the next item must come, a short one may have come before.
                rest = b"" if reached is None else self._complete(reached, None) or b""
                work += _READ + len(rest) // COPIED
                if reached is not None:
                    tries += 1
                    longer = text + bytes([byte])
                    heapq.heappush(queue, (len(longer) + len(rest), longer.translate(ORDER), longer, rest, reached))
        return None, work + MEMBER * tries

    def _others(self, position: Position) -> list[int]:
        """Bytes that are tried in a string or a name beside those that are tried everywhere."""
        state = self._machine.states[position.state]
        if not isinstance(state, TextState):
            return []
        return others(state.context.content.automaton, state.content_state)

    def _chosen(self, position: Position, items: tuple[Canonical, ...]) -> tuple[bytes | None, int]:
        """The completion that ends the current string or number as one of the values from which new items are chosen.

        ``None`` if the text has left these values. The second result is the work of the search.
        """
        state, _, text, escape = self._machine.states[position.state], *position.items[1:]
        if isinstance(state, NumberState):
            content, begun = Content(state.numbers.automaton), text
        elif isinstance(state, TextState | EscapeState) and not isinstance(state.context, NameContext):
            content, begun = state.context.content, text[1:]
        else:
            return None, 0
        quoted, taken = not isinstance(state, NumberState), frozenset(items)
        first: dict[Output, tuple[bytes, Canonical]] = {}
        for truth, written, value in self._contents.short_values(content, quoted, 1 << len(items).bit_length()):
            if value not in taken:
                first.setdefault(truth, (written, value))
        found = []
        for truth, (written, value) in first.items():
            raw = json.loads(written).encode() if quoted else written
            if not raw.startswith(begun):
                continue
            rest = self._contents.escaped(raw[len(begun) :]) + b'"' if quoted else raw[len(begun) :]
            if rest.startswith(escape):
                found.append(self._complete(position, Item(truth, rest[len(escape) :], value)))
        best = min([rest for rest in found if rest is not None], key=shortlex, default=None)
        return best if self._is_complete_after(position, best) else None, MEMBER

    def _with_item(self, position: Position, ahead: bytes) -> bytes | None:
        """The current item as a completion ends it, and then a short completion; ``None`` if an item repeats."""
        machine, at, size = self._machine, position, _size_in_item(position.items, ahead)
        if size:
            reached = machine.read(at, ahead[:size], can_end=False)
            if reached is None:
                return None
            at = reached
        while at.items.text and size < len(ahead):
            reached = machine.read(at, ahead[size : size + 1], can_end=False)
            if reached is None:
                return None
            at, size = reached, size + 1
        rest = self._complete(at, None)
        # Of the items that follow none is one of those before.
        is_complete = rest is not None and (not at.items.text or self._is_complete_after(at, rest))
        return ahead[:size] + rest if rest is not None and is_complete else None

    def _is_complete_after(self, position: Position, text: bytes | None) -> bool:
        """Whether a text ends the whole value, and no item in it repeats."""
        if text is not None and _is_flat(position.items, text):
            # The completion has chosen all further strings, numbers and literals to differ from the earlier items.
            return True
        end = None if text is None else self._machine.read(position, text, can_end=False)
        return end is not None and self._machine.ends(end)


def _size_in_item(position: ItemPosition, text: bytes) -> int:
    """The bytes of a text that end an item that is an object or array; 0 if no such item has begun."""
    depth, frame = -1, position.frame
    while frame is not None:
        depth, frame = depth + 1, frame.before
    if depth <= 0:
        return 0
    size = string_end(text, int(position.escape == b"\\")) if position.text[:1] == b'"' else 0
    for piece in PIECE.finditer(text, size):
        depth += (piece[0] in (b"{", b"[")) - (piece[0] in (b"}", b"]"))
        if not depth:
            return piece.end()
    return len(text)


def _is_flat(position: ItemPosition, text: bytes) -> bool:
    """Whether a text ends an item that is no object or array, and no objects or arrays follow."""
    frame, _, begun, escape = position
    if frame is not None and frame.before is not None:
        return False
    outside = _STRING.sub(b"", b'"' + escape + text if begun[:1] == b'"' else text)
    return b"[" not in outside and b"{" not in outside
