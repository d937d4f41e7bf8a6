"""A context-free grammar as positions over bytes, and the shortest text from each to the end of its rule.

Each byte set and each named rule in the body of a rule is a position; a position knows the positions that may come next
(Glushkov's construction). Repetitions of more than a byte set, and choices of many, become rules of their own, so that
positions have few links. The shortest texts are least derivations, found in the order of their length (Knuth). Among
shortest texts an order of the bytes decides, so that every suffix of a chosen text is the chosen text from its
position.

References:
    V. M. Glushkov, "The abstract theory of automata", 1961.
    D. E. Knuth, "A generalization of Dijkstra's algorithm", Information Processing Letters 6, 1977.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import BYTE_ORDER, BudgetTracker
from logitloom.automata.patterns.utf8 import byte_sequences
from logitloom.errors import BudgetExceeded
from logitloom_plugins.grammars.bits import set_bits
from logitloom_plugins.grammars.context_free import (
    Chars,
    ContextFreeGrammar,
    LiteralText,
    Node,
    Reference,
    RuleChoice,
    RuleRepeat,
    children,
    is_nullable,
)

__all__ = ["BEGIN", "END", "ORDER", "ByteRules"]

#: The positions before a whole text and after it.
BEGIN: Final = 0
END: Final = 1
_MOST_POSITIONS: Final = 50_000
_MOST_LINKS: Final = 200_000
_MOST_TEXT: Final = 1 << 24
#: Choices of more options are rules of their own.
_MANY: Final = 4
_BITS: Final = [1 << byte for byte in range(256)]
_MOST_FOLLOWED: Final = 2_000_000
#: ``ORDER[rank]`` is the byte with a rank in ``BYTE_ORDER``.
ORDER: Final = bytes(sorted(range(256), key=BYTE_ORDER.__getitem__))
#: The text of each byte, by rank.
_RANKS: Final = [bytes((BYTE_ORDER[byte],)) for byte in range(256)]


class _NodeDraft(NamedTuple):
    """A node in the making.

    Attributes:
        empty: whether the node can stand for the empty text.
        first, last: the positions at which the node's texts begin and end.
    """

    empty: bool
    first: list[int]
    last: list[int]


class ByteRules:
    """The positions of a grammar, by number.

    Args:
        grammar: without useless parts (``pruned``).
        usable: the bytes that shortest texts may have.

    Attributes:
        mask: by position the byte set, with bit ``b`` for byte ``b``; 0 if the position is a named rule.
        called: by position the number of the named rule; -1 if the position is a byte set.
        follow: the positions that may come next in the rule.
        last: whether the rule may end after the position.
        alike: the first position with the same ``follow`` and ``last``.
        rest: a shortest text from after the position to the end of the rule, by rank (:data:`ORDER`); ``None`` if there
            is no such text of usable bytes.
        byte_class: ``[256] uint8``: bytes of one class are in the same byte sets.
        first: by rule, the positions at which the rule may begin.
        start: the rule that a whole text follows.
        growth: ``[257, 256] int32``: the most bytes by which reading a byte (column) after another byte (row; 256 for
            the start of the text) can make the shortest completion longer; ``None`` if the rest of some rule has no
            text.

    Raises:
        BudgetExceeded: if the grammar has too many positions or rules, or a shortest text is too long.
    """

    def __init__(self, grammar: ContextFreeGrammar, usable: Iterable[int]) -> None:
        self._tracker = BudgetTracker(subject="the grammar")
        self._rules = dict(grammar.rules)
        self._nullable = grammar.nullable
        self._number = {name: number for number, name in enumerate(grammar.rules)}
        self._made: dict[Node, str] = {}
        self.mask: list[int] = [0, 0]
        self.called: list[int] = [-1, -1]
        self._follow: list[list[int]] = [[], []]
        self.last: list[bool] = [False, True]
        #: By position whether it is inside a literal: exactly the next position follows.
        self._inside = bytearray(2)
        #: By the last position of a literal the text of the literal.
        self._literals: dict[int, bytes] = {}
        self._links = 0
        self.start = self._number[grammar.start]
        self.first: list[tuple[int, ...]] = []
        self._ends: list[list[int]] = []
        waiting = list(self._number)
        for name in waiting:
            before = len(self._made)
            part = self._part(self._rules[name])
            self.first.append(tuple(dict.fromkeys(part.first)))
            self._ends.append(part.last)
            for position in part.last:
                self.last[position] = True
            waiting += list(self._made.values())[before:]
        self._follow[BEGIN] = list(self.first[self.start])
        self.last[BEGIN] = grammar.start in self._nullable
        self.follow: list[tuple[int, ...]] = [
            tuple(dict.fromkeys(after)) if len(after) > 1 else tuple(after) for after in self._follow
        ]
        known: dict[tuple[tuple[int, ...], bool], int] = {}
        self.alike = [
            at if inside else known.setdefault((self.follow[at], self.last[at]), at)
            for at, inside in enumerate(self._inside)
        ]
        self.byte_class = _byte_classes(self.mask)
        self._followed = 0
        self._text_bytes = 0
        self.rest = self._shortest(usable)
        self.growth = self._most_growth()

    # --- positions ------------------------------------------------------------------------------------------------

    def _leaf(self, mask: int, called: int) -> int:
        """A new position."""
        if len(self.mask) >= _MOST_POSITIONS:
            raise BudgetExceeded(f"The grammar has more than {_MOST_POSITIONS} positions.")
        if len(self.mask) % 64 == 0:
            self._tracker.check_time()
        self.mask.append(mask)
        self.called.append(called)
        self._follow.append([])
        self.last.append(False)
        self._inside.append(False)
        return len(self.mask) - 1

    def _link(self, before: list[int], after: list[int]) -> None:
        self._links += len(before) * len(after)
        if self._links > _MOST_LINKS:
            raise BudgetExceeded(f"The positions of the grammar have more than {_MOST_LINKS} links.")
        for position in before:
            self._follow[position] += after

    def _call(self, name: str, empty: bool) -> _NodeDraft:
        position = self._leaf(0, self._number[name])
        return _NodeDraft(empty, [position], [position])

    def _own_rule(self, node: Node) -> _NodeDraft:
        """A position that names the rule whose body is ``node``. Equal nodes have one rule."""
        if node not in self._made:
            name = f" {len(self._made)}"  # no rule of a grammar begins with a blank
            self._made[node] = name
            self._rules[name] = node
            self._number[name] = len(self._number)
        return self._call(self._made[node], is_nullable(node, self._nullable))

    def _part(self, node: Node) -> _NodeDraft:
        if isinstance(node, Chars):
            return self._characters(node)
        if isinstance(node, LiteralText):
            return self._literal(node.text.encode())
        if isinstance(node, Reference):
            return self._call(node.name, node.name in self._nullable)
        if isinstance(node, RuleRepeat):
            return self._repeated(node)
        if isinstance(node, RuleChoice):
            parts = [self._own_rule(each) if _is_long(each) else self._part(each) for each in node.options]
            first = [position for part in parts for position in part.first]
            return _NodeDraft(any(part.empty for part in parts), first, [last for part in parts for last in part.last])
        found = _NodeDraft(True, [], [])
        for each in node.parts:
            part = self._own_rule(each) if _is_long(each) else self._part(each)
            self._link(found.last, part.first)
            first = found.first + part.first if found.empty else found.first
            found = _NodeDraft(found.empty and part.empty, first, part.last + found.last if part.empty else part.last)
        return found

    def _repeated(self, node: RuleRepeat) -> _NodeDraft:
        copies = max(node.least, 1) if node.most is None else node.most
        simple = isinstance(node.part, (Chars, Reference)) or copies == 1
        parts = [self._part(node.part) if simple else self._own_rule(node.part) for _ in range(copies)]
        if not parts:
            return _NodeDraft(True, [], [])
        for one, other in itertools.pairwise(parts):
            self._link(one.last, other.first)
        if node.most is None:
            self._link(parts[-1].last, parts[-1].first)
        empty = parts[0].empty or not node.least
        enough = 0 if empty else node.least - 1
        return _NodeDraft(empty, parts[0].first, [last for part in parts[enough:] for last in part.last])

    def _characters(self, node: Chars) -> _NodeDraft:
        """The positions of a character."""
        if node.ranges and node.ranges[-1][1] < 0x80:
            one = [self._leaf(sum(map(_mask, node.ranges)), -1)]
            return _NodeDraft(False, one, one)
        tails: dict[tuple[tuple[int, int], ...], int] = {}
        for low, high in node.ranges:
            for head, *tail in byte_sequences(low, high):
                tails[tuple(tail)] = tails.get(tuple(tail), 0) | _mask(head)
        first, last = [], []
        for following, mask in tails.items():
            position = self._leaf(mask, -1)
            first.append(position)
            for each in following:
                before, position = position, self._leaf(_mask(each), -1)
                self._link([before], [position])
            last.append(position)
        return _NodeDraft(False, first, last)

    def _literal(self, text: bytes) -> _NodeDraft:
        """A position for each byte of a text, one after the other."""
        begin, end = len(self.mask), len(self.mask) + len(text)
        if end > _MOST_POSITIONS:
            raise BudgetExceeded(f"The grammar has more than {_MOST_POSITIONS} positions.")
        self._tracker.check_time()
        self._links += len(text) - 1
        self.mask += map(_BITS.__getitem__, text)
        self.called += [-1] * len(text)
        self._follow += ([position] for position in range(begin + 1, end))
        self._follow.append([])
        self.last += [False] * len(text)
        self._inside += b"\1" * (len(text) - 1) + b"\0"
        self._literals[end - 1] = text
        return _NodeDraft(False, [begin], [end - 1])

    # --- shortest texts -------------------------------------------------------------------------------------------

    def _shortest(self, usable: Iterable[int]) -> list[bytes | None]:
        """:attr:`rest`."""
        usable = set(usable)
        kept = sum(1 << byte for byte in usable)
        #: A shortest text of each byte set, by rank; ``None`` for a named rule, and if no usable byte is in it.
        ranks = [_least_rank(mask & kept) for mask in self.mask]
        rest: list[bytes | None] = [None] * len(self.mask)
        texts: list[bytes | None] = [None] * len(self.first)
        before, heads, callers = self._backwards()
        # Entries are a length, a text, and the owner of the text: a position, or a rule by its complement.
        heap: list[tuple[int, bytes, int]] = [(0, b"", at) for at, last in enumerate(self.last) if last]

        def reached(position: int) -> None:
            """Offer the text from a position on to the positions and rules before it, if the whole text is known."""
            rule = self.called[position]
            own, after = (ranks[position] if rule < 0 else texts[rule]), rest[position]
            if own is None or after is None:
                return
            literal = self._literals.get(position, b"")
            for byte in reversed(literal[1:]):
                if byte not in usable:
                    return
                position -= 1
                # No other text competes inside a literal.
                rest[position] = after = _RANKS[byte] + after
                self._add_text(after)
            if literal:
                if literal[0] not in usable:
                    return
                own = _RANKS[literal[0]]
            text = own + after
            for each in before[position]:
                if rest[each] is None:
                    heapq.heappush(heap, (len(text), text, each))
            for each in heads[position]:
                if texts[each] is None:
                    heapq.heappush(heap, (len(text), text, ~each))

        while heap:
            _, text, what = heapq.heappop(heap)
            self._tracker.check_time()
            if (rest[what] if what >= 0 else texts[~what]) is not None:
                continue
            self._add_text(text)
            if what >= 0:
                rest[what] = text
                reached(what)
            else:
                texts[~what] = text
                for position in callers[~what]:
                    reached(position)
        return rest

    def _backwards(self) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
        """By position the positions before it and the rules that begin with it; by rule the positions that name it."""
        before: list[list[int]] = [[] for _ in self.mask]
        for position in self._outside():
            for each in self.follow[position]:
                before[each].append(position)
        heads: list[list[int]] = [[] for _ in self.mask]
        for rule, first in enumerate(self.first):
            for position in first:
                heads[position].append(rule)
        callers: list[list[int]] = [[] for _ in self.first]
        for position, rule in enumerate(self.called):
            if rule >= 0:
                callers[rule].append(position)
        return before, heads, callers

    def _outside(self) -> Iterator[int]:
        """The positions that are not inside a literal."""
        return (position for position, inside in enumerate(self._inside) if not inside)

    def _add_text(self, text: bytes) -> None:
        """Count a shortest text that is found."""
        self._text_bytes += len(text)
        if self._text_bytes > _MOST_TEXT:
            raise BudgetExceeded("The shortest texts of the grammar are too long.")

    def _most_growth(self) -> NDArray[np.int32] | None:
        """:attr:`growth`."""
        if None in self.rest:
            return None
        rest = [len(text) for text in self.rest if text is not None]
        by_byte = self.byte_class.tolist()
        members = [0] * (max(by_byte) + 1)
        for byte, number in enumerate(by_byte):
            members[number] |= 1 << byte
        classes_of = lru_cache(maxsize=None)(lambda mask: [kind for kind, each in enumerate(members) if each & mask])
        begins, ends = self._border_bytes(self.first), self._border_bytes(self._ends)
        named = [[at for at in first if self.called[at] >= 0] for first in self.first]
        starts = [self.mask[at] if rule < 0 else begins[rule] for at, rule in enumerate(self.called)]
        deepest = [
            {kind: self._deepest(rule, members[kind], rest, named, starts) for kind in classes_of(mask)}
            for rule, mask in enumerate(begins)
        ]
        found = [[0] * len(members) for _ in range(len(members) + 1)]
        # Inside a literal the shortest completion only becomes shorter.
        for position in self._outside():
            grown: dict[int, int] = {}
            for at in self.follow[position]:
                rule, more = self.called[at], rest[at] - rest[position]
                if rule < 0 and more <= 0:
                    continue
                for kind in classes_of(starts[at]):
                    size = more + deepest[rule][kind] if rule >= 0 else more
                    if size > grown.get(kind, 0):
                        grown[kind] = size
            if grown:
                rule = self.called[position]
                mask = ends[rule] if rule >= 0 else self.mask[position]
                for before in [len(members)] if position == BEGIN else classes_of(mask):
                    row = found[before]
                    for kind, size in grown.items():
                        row[kind] = max(row[kind], size)
        return np.array(found, dtype=np.int32)[np.ix_([*by_byte, len(members)], by_byte)]

    def _border_bytes(self, borders: Sequence[Iterable[int]]) -> list[int]:
        """By rule the bytes with which its texts begin, or end, as bits.

        Args:
            borders: by rule the first positions, or the last positions.
        """
        found = [0] * len(borders)
        changed = True
        while changed:
            changed = False
            for rule, positions in enumerate(borders):
                mask = found[rule]
                for at in positions:
                    mask |= self.mask[at] if self.called[at] < 0 else found[self.called[at]]
                changed |= mask != found[rule]
                found[rule] = mask
        return found

    def _deepest(self, rule: int, members: int, rest: list[int], named: list[list[int]], starts: list[int]) -> int:
        """The bytes of the longest rest among the positions that one of some bytes can open, as the first of a rule.

        The rest of the rule itself does not count.
        """
        distance = {rule: 0}
        heap, done, deepest = [(0, rule)], set[int](), 0
        while heap:
            size, at = heapq.heappop(heap)
            if at in done:
                continue
            done.add(at)
            self._followed += len(self.first[at])
            if self._followed > _MOST_FOLLOWED:
                raise BudgetExceeded("The grammar has too many rules that begin with each other.")
            for position in self.first[at]:
                if starts[position] & members:
                    deepest = max(deepest, size + rest[position])
            for position in named[at]:
                if starts[position] & members:
                    other, opened = self.called[position], size + rest[position]
                    if opened < distance.get(other, opened + 1):
                        distance[other] = opened
                        heapq.heappush(heap, (opened, other))
        return deepest


def _is_long(node: Node) -> bool:
    return isinstance(node, RuleChoice) and len(children(node)) > _MANY


def _mask(span: tuple[int, int]) -> int:
    return (1 << span[1] + 1) - (1 << span[0])


@lru_cache(maxsize=1024)
def _least_rank(mask: int) -> bytes | None:
    """The shortest text of a byte set, by rank."""
    return bytes([min(BYTE_ORDER[byte] for byte in set_bits(mask))]) if mask else None


def _byte_classes(masks: Iterable[int]) -> NDArray[np.uint8]:
    """:attr:`ByteRules.byte_class`."""
    bits = np.frombuffer(b"".join(mask.to_bytes(32, "little") for mask in set(masks)), dtype=np.uint8)
    by_byte = np.unpackbits(bits.reshape(-1, 32), axis=1, bitorder="little").T
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in by_byte], dtype=np.uint8)
