"""Listed texts among all texts: the prefix trie of some texts within the automaton of all UTF-8 texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from logitloom.automata import any_text
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine, Output

__all__ = ["among_all_texts"]


def among_all_texts(
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
