"""The tokens that must be read one by one: those that may complete a repeated item in an array with ``uniqueItems``,
and those that may begin a member name of which only repetitions are left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.trie import members
from logitloom_plugins.json_schema.structure.machine import DEAD, Machine
from logitloom_plugins.json_schema.structure.string_states import STRING_KINDS
from logitloom_plugins.json_schema.structure.value_reader import BACKSLASH, BLANKS, Position, characters_of
from logitloom_plugins.json_schema.tokens.token_walk import Words

__all__ = ["DistinctRows"]

#: A quote that may begin a name, and what comes after it and does not end it.
_BEGUN: Final = re.compile(rb'(?:^|[{,\s])"((?:[^"\\]|\\.)+\\?|\\)$', re.DOTALL)
#: The end of a name, and the comma after the member.
_MEMBER: Final = re.compile(rb":.*,", re.DOTALL)


class _Commas(NamedTuple):
    """Tokens with a comma, which may end an item or a member.

    Attributes:
        every: all of them.
        quoted: those with a quotation mark before the comma.
        opened: those with an opening square bracket before the comma.
    """

    every: NDArray[np.int32]
    quoted: NDArray[np.int32]
    opened: NDArray[np.int32]


class DistinctRows:
    """The doubtful tokens of one machine and vocabulary: those whose row entries may be wrong where something must not
    come twice.

    Args:
        machine: the automaton over bytes.
        words: the trie of the vocabulary.
        texts: the bytes of each id.
    """

    def __init__(self, machine: Machine, words: Words, texts: Sequence[bytes]) -> None:
        self._machine = machine
        self._words = words
        self._texts = texts

    def doubtful(self, reached: Position) -> NDArray[np.int32]:
        """Token ids ``[n] int32`` that include every token that may complete a repeated item; some occur twice.

        An unfinished item or name can become a repeated one while it is a prefix of an earlier one. Otherwise the token
        must begin another item, for which it must contain a comma.
        """
        place = reached.items
        if not place.frame:
            return self._commas.opened
        inside = self._machine.states[reached.state][0] in STRING_KINDS
        commas = self._commas.quoted if inside else self._commas.every
        if not self._machine.distinct.candidates(place):
            return commas
        distinct = self._machine.distinct
        alike = self._alike(
            reached,
            lambda at: distinct.next_bytes(at.items),
            lambda after: bool(after.items.frame and distinct.candidates(after.items)),
        )
        return np.concatenate([commas, alike])

    def doubtful_names(self, reached: Position) -> NDArray[np.int32]:
        """Token ids ``[n] int32`` that include every token that leads into a name of which no other is left."""
        every, by_beginning = _begun_names(self._texts)
        found = [every]
        stack, scarce = reached.stack, self._machine.scarce
        if reached.state in scarce and stack is not None:
            names = [name.encode() for name in stack.entry[1]]
            found.append(
                self._alike(reached, lambda at: self._next_bytes(at, names), lambda after: after.state in scarce)
            )
        else:
            while stack is not None:
                names = [name.encode() for name in stack.entry[1]]
                begun = {name[:size] for name in names for size in range(1, len(name) + 1)}
                found += [by_beginning[beginning] for beginning in begun.intersection(by_beginning)]
                stack = stack.before
        return np.concatenate(found)

    def _next_bytes(self, before: Position, names: list[bytes]) -> frozenset[int] | None:
        """The bytes after which an unfinished name goes on as one that has come; ``None`` for any byte."""
        if self._machine.states[before.state][0] != "text":
            return None
        begun = characters_of(before.written)
        return frozenset([BACKSLASH, *[n[len(begun)] for n in names if n.startswith(begun) and n != begun]])

    @cached_property
    def _commas(self) -> _Commas:
        trie, texts = self._words.trie, self._texts
        every = sorted({*self._below((trie.byte == ord(",")).nonzero()[0]).tolist()})
        before = [(token, texts[token][: texts[token].rindex(b",")]) for token in every]
        found = (
            every,
            [token for token, text in before if b'"' in text],
            [token for token, text in before if b"[" in text],
        )
        return _Commas(*[np.array(tokens, dtype=np.int32) for tokens in found])

    def _below(self, nodes: Any) -> NDArray[np.int32]:
        trie = self._words.trie
        first = trie.first.take(nodes)
        return trie.order.take(members(first, trie.last.take(nodes) - first))

    def _alike(
        self,
        reached: Position,
        next_bytes: Callable[[Position], frozenset[int] | None],
        can_be: Callable[[Position], bool],
    ) -> NDArray[np.int32]:
        """The tokens after which an unfinished item or name can still be an earlier one, or is refused because it is.

        Args:
            reached: where it has been begun.
            next_bytes: the bytes with which it goes on as an earlier one; ``None`` for any byte.
            can_be: whether it can still be an earlier one at a position.
        """
        machine, trie = self._machine, self._words.trie
        here: list[int] = []
        ended: list[int] = []
        pending = [(0, reached)]
        while pending:
            node, before = pending.pop()
            first = int(trie.child_start[node])
            wanted = next_bytes(before)
            for child, byte in enumerate(self._words.bytes[first : first + int(trie.child_count[node])], first):
                if wanted is not None and byte not in wanted:
                    continue
                code = machine.code(before.state, byte)
                if code == DEAD:
                    continue
                if not before.items.text and byte in BLANKS and machine.gap(code) is not None:
                    # Whitespace does not change the item. The row already limits the amount of whitespace.
                    pending.append((child, before))
                    continue
                after = machine.follow(before, bytes([byte]))
                if after is None:
                    ended.append(child)
                elif can_be(after):
                    here.append(child)
                    pending.append((child, after))
        begins = trie.first.take(here)
        return np.concatenate([trie.order.take(members(begins, trie.own.take(here) - begins)), self._below(ended)])


@lru_cache(maxsize=8)
def _begun_names(texts: tuple[bytes, ...]) -> tuple[NDArray[np.int32], dict[bytes, NDArray[np.int32]]]:
    """The tokens that may end in a name: with an escape in it or after another name; the others by what is begun."""
    every: list[int] = []
    by_beginning: dict[bytes, list[int]] = {}
    for token, text in enumerate(texts):
        found = _BEGUN.search(text) if b'"' in text else None
        if found is None:
            continue
        if b"\\" in found[1] or _MEMBER.search(text, 0, found.start(1)):
            every.append(token)
        else:
            by_beginning.setdefault(found[1], []).append(token)
    listed = {text: np.array(tokens, dtype=np.int32) for text, tokens in by_beginning.items()}
    return np.array(every, dtype=np.int32), listed
