"""Short contents of strings and numbers: texts of an automaton, the shortest first, and a value for equal texts."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom_plugins.json_schema.folds.value_reader import Container, ItemPosition, ItemReader
from logitloom_plugins.json_schema.grammar.keys import Keys, Label
from logitloom_plugins.json_schema.grammar.names import Linked
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine, Output
from logitloom_plugins.json_schema.values.numbers import number_of

__all__ = [
    "ORDER",
    "Canonical",
    "FoundNames",
    "canonical",
    "columns_of",
    "longest_path",
    "names_of_labels",
    "read_value",
    "representatives",
    "several",
]

#: The most bytes of a longest content whose length is found.
_MOST_ROUNDS: Final = 256
#: The most steps of one search, and the most bytes of a content that a search finds.
_MOST_SEARCHED: Final = 1 << 19
_CHARACTER: Final = ord("a")
#: The bytes of strings; bytes that stand for themselves in JSON come first.
_BYTES: Final = sorted(
    range(256), key=lambda byte: (not 0x20 <= byte < 0x7F or byte in b'"\\', byte != _CHARACTER, byte)
)
#: The index of each byte in this order.
ORDER: Final = bytes(_BYTES.index(byte) for byte in range(256))

#: The form of a string or number that all its texts share; of other values the text.
Canonical = tuple[bool, bytes, int | bytes] | str | bytes


def several(
    content: Content,
    content_state: int,
    visits: int,
    count: int,
    label: Output,
    work: list[int],
) -> Iterator[tuple[bytes, Output]]:
    """Short contents from a state on with their outputs, the shortest first.

    Args:
        content: the content.
        content_state, count: the state of its automaton, and the number of characters so far.
        visits: how many paths to one state are followed; with a label, the number of contents that are found, too.
        label: the only output that is asked for; ``None`` for any.
        work: a list with one number, to which the steps are added. Too many steps end the search.
    """
    automaton = content.automaton
    if content.counts and content.free and label is not None and content_state == automaton.start:
        # All characters are alike here, so only the number of characters matters.
        points = [count, *[point for point in content.points if point > count]]
        length = next((point for point in points if content.ends(content_state, point) == label), None)
        if length is not None and length - count <= _MOST_SEARCHED:
            yield bytes([_CHARACTER]) * (length - count), label
        return
    steps = _steps(automaton, visits)
    boundaries, table = automaton.boundaries, automaton.next
    queue = [(content_state, count)]
    texts: list[tuple[int, int]] = [(-1, -1)]
    seen: dict[tuple[int, int], int] = {(content_state, count): 1}
    #: By a state and the number of characters after the next byte: the next states by column, and those with an end.
    known: dict[tuple[int, int], tuple[list[int], set[int]]] = {}
    found = 0
    for at, (state, characters) in enumerate(queue):
        work[0] += len(steps)
        if work[0] > _MOST_SEARCHED:
            return
        output = content.ends(state, characters)
        if output is not None and (label is None or output == label):
            text, back = bytearray(), at
            while texts[back][0] >= 0:
                text.append(texts[back][1])
                back = texts[back][0]
            yield bytes(reversed(text)), output
            found += 1
            if label is not None and found >= visits:
                return
        following = content.counted(characters + boundaries[state])
        if (state, following) not in known:
            row = table[state].tolist()
            ends = {to for to in {*row} if to >= 0 and content.alive(to, following)}
            known[state, following] = row, ends
        row, ends = known[state, following]
        unvisited = {target for target in ends if seen.get((target, following), 0) < visits}
        for byte, column in steps if unvisited else ():
            target = row[column]
            if target in unvisited:
                seen[target, following] = times = seen.get((target, following), 0) + 1
                queue.append((target, following))
                texts.append((at, byte))
                if times == visits:
                    unvisited.remove(target)


def _steps(automaton: MooreMachine, visits: int) -> list[tuple[int, int]]:
    """The bytes that a search tries, each with its column.

    Bytes of one column lead to the same state, so no more of them are tried than paths to one state are followed.
    """
    columns: dict[int, list[int]] = {}
    for byte, column in zip(_BYTES, automaton.byte_class.take(_BYTES).tolist(), strict=True):
        columns.setdefault(column, []).append(byte)
    most_alike = min(visits, max(map(len, columns.values())))
    return [(alike[i], column) for i in range(most_alike) for column, alike in columns.items() if i < len(alike)]


class FoundNames(NamedTuple):
    """Short names of some labels.

    Attributes:
        names: the rests of the names by label.
        left: the labels of which some are missing, because the search took too many steps, as bits.
        work: the steps.
    """

    names: dict[Label, list[bytes]]
    left: int
    work: int


def names_of_labels(keys: Keys, labels: int, most: int, start: int) -> FoundNames:
    """The rests of short names of each of some labels, the shortest first, found together.

    The names of many labels begin alike, and each beginning is looked at once.

    Args:
        keys: the key automaton of an object.
        labels: the labels, as bits.
        most: the most names of a label, and how many paths to one state are followed.
        start: the state of the key automaton from which the names go on.
    """
    automaton, below = keys.automaton, keys.below
    steps, found = _steps(automaton, most), {label: list[bytes]() for label in keys.listed(labels)}
    #: By state the names that end there, and the bit of their label. To hash a label takes long.
    names_at: dict[int, tuple[list[bytes], int]] = {}
    queue, seen, work = deque[tuple[int, bytes]](), dict[int, int](), 0

    def reach(state: int, text: bytes) -> None:
        nonlocal labels
        queue.append((state, text))
        if state not in names_at:
            label = automaton.outputs[state]
            names_at[state] = (found[label], keys.bit[label]) if label in found else ([], 0)
        names, bit = names_at[state]
        if bit & labels:
            # The queue has the names in their order, so a label whose names are queued needs no further state.
            names.append(text)
            labels ^= bit if len(names) == most else 0

    reach(start, b"")
    seen[start] = 1
    while labels and queue:
        state, text = queue.popleft()
        row = automaton.next[state].tolist() if below[state] & labels else []
        going = {each for each in row if each >= 0 and below[each] & labels and seen.get(each, 0) < most}
        work += len(steps) if going else 0
        if work > _MOST_SEARCHED:
            return FoundNames(found, labels, work)
        for byte, column in steps if going else ():
            target = row[column]
            if target in going:
                seen[target] = seen.get(target, 0) + 1
                reach(target, text + bytes([byte]))
                if seen[target] == most or not below[target] & labels:
                    going.remove(target)
    return FoundNames(found, 0, work)


def canonical(text: bytes) -> Canonical:
    """The form that all texts of a value share; for objects and arrays the form that :class:`.ItemReader` writes."""
    if text[:1] in b"-0123456789":
        return number_of(text)
    if text[:1] == b'"':
        return json.dumps(json.loads(text))
    return read_value(text, ItemReader()) if text[:1] in (b"{", b"[") else text


def read_value(text: bytes, reader: ItemReader) -> bytes:
    """The canonical text of a value that is no number; under it the reader keeps the value's type and content."""
    at = ItemPosition(Linked(Container("array"), None))
    for byte in text:
        reached = reader.step(at, byte, False)
        assert reached is not None
        at = reached
    assert at.frame is not None
    assert at.frame.entry.done is not None
    whole: bytes = at.frame.entry.done.entry
    return whole


def columns_of(automaton: MooreMachine) -> list[tuple[int, int]]:
    """Of each byte class the first byte of :data:`_BYTES`, and the class; in the order of these bytes."""
    first: dict[int, int] = {}
    for byte, column in zip(_BYTES, automaton.byte_class.take(_BYTES).tolist(), strict=True):
        first.setdefault(column, byte)
    return [(byte, column) for column, byte in first.items()]


def representatives(automaton: MooreMachine) -> list[int]:
    """The bytes of which short contents are made: the bytes of :func:`columns_of` that lead on from some state."""
    alive = np.asarray((automaton.next >= 0).any(axis=0))
    return [byte for byte, column in columns_of(automaton) if alive[column]]


def longest_path(following: NDArray[np.int32]) -> int | None:
    """The length of the longest path through states, without steps from a state to itself.

    ``None`` if a longer loop allows paths of any length, or if the path is too long to be found.
    """
    going = (following >= 0) & (following != np.arange(len(following))[:, None])
    # States from which no path is longer than the number of rounds are taken away; those on longer loops stay.
    rows, left = np.arange(len(following)), np.ones(len(following), dtype=bool)
    for length in range(_MOST_ROUNDS):
        stays = (going[rows] & left[following[rows]]).any(axis=1)
        if stays.all():
            return length - 1 if not len(rows) else None
        left[rows[~stays]] = False
        rows = rows[stays]
    return None
