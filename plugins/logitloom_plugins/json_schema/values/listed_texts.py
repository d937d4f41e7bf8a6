"""Moore machines that tell listed texts apart: the prefix trie of the texts, alone or within all UTF-8 texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import BudgetTracker, any_text
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine, Output, from_steps

__all__ = ["among_all_texts", "texts_alone", "trie_among_all"]


def texts_alone(outputs: Mapping[str, Output], tracker: BudgetTracker) -> MooreMachine:
    """The machine of some texts, each with its output."""
    ordered = sorted(outputs)
    sources, read, ends = _trie(ordered, tracker)
    found: list[Output] = [None] * (len(sources) + 1)
    for text, state in zip(ordered, ends, strict=True):
        found[state] = outputs[text]
    return from_steps(sources, read, np.arange(1, len(found)), found, tracker)


def among_all_texts(outputs: Mapping[str, Output], other: Output, tracker: BudgetTracker) -> MooreMachine:
    """The machine of all texts: some of them with their own outputs, the others with one output, not ``None``."""
    ordered = sorted(outputs)
    sources, read, ends = _trie(ordered, tracker)
    tracker.check_bytes(4 * len(sources) * (any_text().classes + len(np.unique(read))))
    found = dict(zip(ends, [outputs[text] for text in ordered], strict=True))
    return trie_among_all(sources.tolist(), read.tolist(), found, other)[0]


def trie_among_all(
    sources: Sequence[int], read: Sequence[int], ends: Mapping[int, Output], other: Output
) -> tuple[MooreMachine, list[int]]:
    """The Moore machine of all UTF-8 texts that tells the texts of a prefix trie apart.

    Args:
        sources, read: ``[n]`` each: for each state of the trie but the root, in their order, an earlier state and the
            byte that leads from there.
        ends: by state of the trie the output of the text that ends there.
        other: the output of all other texts, which is not ``None``.

    Returns:
        The machine, whose states are those of the automaton of all texts and then those of the trie, beginning with the
        root; and ``[n + 1]``, per state of the trie the state of the automaton of all texts after the same bytes.
    """
    text, (steps, classes, accepting, boundaries) = any_text(), _text_lists()
    base, at = text.states, [text.start]
    for source, byte in zip(sources, read, strict=True):
        at.append(steps[at[source]][classes[byte]])
    # Each byte that occurs in the trie has its own column, after those of the automaton of all texts.
    used = sorted({*read})
    byte_class = text.byte_class.copy()
    byte_class[used] = np.arange(text.classes, text.classes + len(used))
    table = text.next.take([*range(text.classes), *text.byte_class[used].tolist()], axis=1)
    table = table.take([*range(base), *at], axis=0)
    table[np.array(sources, dtype=np.intp) + base, byte_class[[*read]]] = np.arange(base + 1, base + len(at))
    outputs = [other if end else None for end in accepting]
    outputs += [outputs[outside] for outside in at]
    for state, output in ends.items():
        outputs[base + state] = output
    machine = MooreMachine(byte_class, table, outputs, base)
    # Set here, because reading them off the whole table takes long. No state is narrow: other texts may come.
    machine.boundaries = boundaries + bytes([boundaries[outside] for outside in at])
    machine.narrow = bytes(len(outputs))
    return machine, at


@cache
def _text_lists() -> tuple[list[list[int]], list[int], list[bool], bytes]:
    """The table, the byte classes, the accepting states and the boundaries of the automaton of all UTF-8 texts."""
    text = any_text()
    return text.next.tolist(), text.byte_class.tolist(), text.accepting.tolist(), MooreMachine.of(text, ()).boundaries


def _trie(ordered: list[str], tracker: BudgetTracker) -> tuple[NDArray[np.int64], NDArray[np.uint8], list[int]]:
    """The prefix trie of some sorted texts, whose root is state 0.

    Returns:
        For each state but the root the state before it, and the byte between the two; and per text the state at which
        it ends.
    """
    texts = [text.encode() for text in ordered]
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    read = np.frombuffer(b"".join(texts), dtype=np.uint8)
    shared = _shared(read, lengths)
    # Each text adds consecutive new states, one after each byte that it does not share with the text before.
    new = lengths - shared
    tracker.check_states(int(new.sum()) + 1)
    first = 1 + new.cumsum() - new
    place = np.arange(len(read)) - np.repeat(lengths.cumsum() - lengths, lengths)
    is_new = place >= np.repeat(shared, lengths)
    sources = np.arange(int(new.sum()))
    # The first new state of a text comes after a state of an earlier text: the last text that shares fewer bytes with
    # the text before it than this text does.
    branches = new > 0
    path: list[tuple[int, int]] = [(0, 0)]
    befores = []
    for common, number, some in zip(shared.tolist(), first.tolist(), branches.tolist(), strict=True):
        while path[-1][0] > common:
            path.pop()
        depth, state = path[-1]
        befores.append(state + common - depth)
        if some:
            path.append((common + 1, number))
    sources[first[branches] - 1] = np.array(befores)[branches]
    return sources, read[is_new], (first + new - 1).tolist()


def _shared(read: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[texts]``: how many bytes each of some texts in ascending order has in common with the text before it.

    Args:
        read: the bytes of all texts.
        lengths: of the texts.
    """
    ends = lengths.cumsum()
    most = np.minimum(lengths[1:], lengths[:-1])
    # Only the first text may be empty.
    pairs = np.flatnonzero(most)
    most = most[pairs]
    begins = most.cumsum() - most
    place = np.arange(int(most.sum())) - np.repeat(begins, most)
    before, after = (place + np.repeat((ends - lengths)[pairs + offset], most) for offset in (0, 1))
    differs = np.where(read[before] != read[after], place, np.repeat(most, most))
    shared = np.zeros(len(lengths), dtype=np.int64)
    if len(pairs):
        shared[pairs + 1] = np.minimum.reduceat(differs, begins)
    return shared
