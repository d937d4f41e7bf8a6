"""Ends of names of members that must not come twice, in a walk of tokens."""

from __future__ import annotations

from typing import Final

from logitloom.automata.trie import Trie
from logitloom_plugins.json_schema.structure.stacks import Stacks

__all__ = ["end_name", "may_name_again"]

#: Characters from one name's end to that of the next, at least, and what must be among them: ``:1,""``.
_NEXT_NAME: Final = 5
_NAME_MARKS: Final = 1 << ord(":") | 1 << ord(",") | 1 << ord('"')


def end_name(stacks: Stacks, trie: Trie, node: int, code: int, stack: int, written: bytes) -> tuple[int, int]:
    """State and stack after the end of such a name; the state is ``DEAD`` if the name has come before.

    Args:
        stacks: what is remembered.
        trie: the words.
        node: where the name has ended.
        code: what the row of the machine said.
        stack: what is remembered before.
        written: what was written of a name before the words.
    """
    # Seldom can one word write two names; only then is the first one remembered within it.
    again = int(trie.height[node]) >= _NEXT_NAME and int(trie.low[node]) & _NAME_MARKS == _NAME_MARKS
    if not again and not stacks.names(stack):
        return stacks.named(code, stack, b"", remember=False)
    prefix = bytearray()
    while node:
        prefix.append(int(trie.byte[node]))
        node = int(trie.parent[node])
    text = written + bytes(reversed(prefix))[:-1]
    at = len(text)
    while at and (text[at - 1] != ord('"') or _escaped(text, at - 1)):
        at -= 1
    return stacks.named(code, stack, text[at:], remember=again)


def may_name_again(rest: bytes) -> bool:
    """Whether another name may end in what follows a name's closing quote."""
    return len(rest) >= _NEXT_NAME and b":" in rest and b"," in rest and rest.count(b'"') > 1


def _escaped(text: bytes, place: int) -> bool:
    """Whether an odd number of backslashes stands before a place."""
    return (place - len(text[:place].rstrip(b"\\"))) % 2 == 1
