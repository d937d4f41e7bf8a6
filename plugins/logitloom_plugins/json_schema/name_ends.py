"""Ends of names of members that must not come twice, in a walk of tokens."""

from __future__ import annotations

from typing import Any, Final

from numpy.typing import NDArray

from logitloom.automata.trie import Trie
from logitloom_plugins.json_schema.machine import Machine

__all__ = ["end_names"]

#: Characters from one name's end to that of the next, at least, and what must be among them: ``:1,""``.
_NEXT_NAME: Final = 5
_NAME_MARKS: Final = 1 << ord(":") | 1 << ord(",") | 1 << ord('"')


def end_names(
    machine: Machine, trie: Trie, codes: NDArray[Any], nodes: NDArray[Any], special: NDArray[Any], written: bytes
) -> None:
    """Replace the codes for ends of such names by what follows, in place.

    Args:
        machine: the automaton over bytes.
        trie: the words.
        codes, nodes: what has been reached, and where.
        special: the places in them of codes below -1.
        written: what was written of a name before the words.
    """
    for i in special.tolist():
        operation = machine.operations[-2 - int(codes[i])]
        if operation.kind != "name":
            continue
        prefix = bytearray()
        node = int(nodes[i])
        while node:
            prefix.append(int(trie.byte[node]))
            node = int(trie.parent[node])
        text = written + bytes(reversed(prefix))[:-1]
        at = len(text)
        while at and (text[at - 1] != ord('"') or _escaped(text, at - 1)):
            at -= 1
        node = int(nodes[i])
        # Seldom can one word write two names; only then is the first one remembered within it.
        again = int(trie.height[node]) >= _NEXT_NAME and int(trie.low[node]) & _NAME_MARKS == _NAME_MARKS
        codes[i] = machine.after_name(operation, text[at:], remember=again)


def _escaped(text: bytes, place: int) -> bool:
    """Whether an odd number of backslashes stands before a place."""
    return (place - len(text[:place].rstrip(b"\\"))) % 2 == 1
