"""A context-free grammar cut into lexemes, so that a lexer which always takes the longest match changes nothing.

Engines with a lexer are fast because most of a text is read by an automaton, but they read another language: in
``[a-z]* "end"`` the longest match of the first part eats the ``end``. Here regular parts become lexemes as large as
they can be, and are cut again until this holds for all lexemes A and B that can be expected at the same position:

    no text of A, followed by a byte that can come after A, begins a text of B.

Then the longest match ends exactly where the grammar would have ended it. Single characters always pass.

References:
    A. Aho, M. Lam, R. Sethi, J. Ullman, "Compilers: Principles, Techniques, and Tools", 2nd ed., 2006, 4.4 (FIRST and
    FOLLOW).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import DEAD, Budget, BudgetTracker, Dfa, compile_pattern
from logitloom.errors import BudgetExceeded
from logitloom_plugins.grammars.context_free import (
    Chars,
    ContextFreeGrammar,
    Node,
    Reference,
    RuleChoice,
    RuleRepeat,
    RuleSequence,
    children,
    is_nullable,
    nullable,
    recursive,
)

__all__ = ["Lexed", "Lexeme", "lexed"]

_EMPTY: Final = RuleSequence(())
_LARGEST: Final = 3_000
_MOST_STEPS: Final = 50_000
_BUDGET: Final = Budget(states=2_000, seconds=1.0)


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A leaf: one lexeme, by number."""

    number: int


Lexical: TypeAlias = Any
"""A node whose leaves are lexemes and references to rules."""


@dataclass(frozen=True)
class Lexed:
    """A grammar over lexemes.

    Attributes:
        rules: by name; leaves are :class:`Lexeme` and references to other rules of this dictionary.
        start: the rule that a whole text follows.
        lexemes: the body of each lexeme; leaves are characters and references to ``parts``.
        parts: rules that stand inside lexemes; none of them contains itself.
    """

    rules: dict[str, Lexical]
    start: str
    lexemes: tuple[Node, ...]
    parts: dict[str, Node]


def lexed(grammar: ContextFreeGrammar) -> Lexed:
    """The grammar over lexemes.

    Args:
        grammar: without useless parts (``pruned``).

    Example:
        >>> from logitloom_plugins.grammars.gbnf import parse_gbnf
        >>> len(lexed(parse_gbnf('root ::= [a-z]* "end"')).lexemes)
        1
        >>> len(lexed(parse_gbnf('root ::= "let" root | [a-z]+')).lexemes)  # l, e, t, and one letter
        4
    """
    circles = recursive(grammar)
    parts = {name: node for name, node in grammar.rules.items() if name not in circles}
    if grammar.start not in circles:
        return Lexed({grammar.start: Lexeme(0)}, grammar.start, (grammar.rules[grammar.start],), parts)
    cut: set[Node] = set()
    tracker = BudgetTracker(subject="the grammar")
    while True:
        tracker.check_time()
        cutting = _Cutting(grammar, circles, cut, tracker)
        try:
            more = cutting.too_long()
        except BudgetExceeded:
            tracker.check_time()
            more = {node for node in cutting.lexemes if not isinstance(node, Chars)}
        if not more:
            return Lexed(cutting.rules, grammar.start, tuple(cutting.lexemes), parts)
        cut |= more


class _Cutting:
    """One attempt: the grammar with some regular parts cut into smaller ones."""

    def __init__(
        self, grammar: ContextFreeGrammar, circles: frozenset[str], cut: set[Node], tracker: BudgetTracker
    ) -> None:
        self.grammar = grammar
        self.circles = circles
        self.cut = cut
        self.nullable = nullable(grammar)
        self.lexemes: list[Node] = []
        self._numbers: dict[Node, int] = {}
        #: By identity of a node of the grammar whether it names a rule with circles.
        self._circular: dict[int, bool] = {}
        self._steps = _MOST_STEPS
        self._tracker = tracker
        self.rules = {name: self._converted(grammar.rules[name]) for name in grammar.rules if name in circles}

    # --- nodes -------------------------------------------------------------------------------------------------

    def _converted(self, node: Node) -> Lexical:
        if self._is_regular(node):
            return self._regular(node)
        if isinstance(node, Reference):
            return node
        if isinstance(node, RuleRepeat):
            return RuleRepeat(self._converted(node.part), node.least, node.most)
        if isinstance(node, RuleChoice):
            inner = [option for option in node.options if self._is_regular(option)]
            outer = tuple(self._converted(option) for option in node.options if not self._is_regular(option))
            if not inner:
                return RuleChoice(outer)
            return RuleChoice((*outer, self._regular(inner[0] if len(inner) == 1 else RuleChoice(tuple(inner)))))
        return RuleSequence(tuple(self._runs(children(node))))

    def _runs(self, parts: tuple[Node, ...]) -> list[Lexical]:
        found: list[Lexical] = []
        run: list[Node] = []
        for part in [*parts, None]:
            if part is not None and self._is_regular(part):
                run.append(part)
                continue
            if run:
                found.append(self._regular(run[0] if len(run) == 1 else RuleSequence(tuple(run))))
                run = []
            if part is not None:
                found.append(self._converted(part))
        return found

    def _is_regular(self, node: Node) -> bool:
        if isinstance(node, Reference):
            return node.name not in self.circles
        known = self._circular.get(id(node))
        if known is None:
            known = self._circular[id(node)] = not all(map(self._is_regular, children(node)))
        return not known

    def _regular(self, node: Node) -> Lexical:
        """A regular node as one lexeme, or cut into several where it may be empty or was found to be too long."""
        empty = is_nullable(node, self.nullable)
        if not empty and node not in self.cut:
            return Lexeme(self._numbers.setdefault(node, self._number(node)))
        if isinstance(node, Reference):
            return self._regular(self.grammar.rules[node.name])
        if isinstance(node, RuleChoice):
            return RuleChoice(tuple(self._regular(option) for option in node.options))
        if isinstance(node, RuleSequence):
            if not node.parts:
                return _EMPTY
            if empty or all(isinstance(part, Chars) for part in node.parts):
                return RuleSequence(tuple(self._regular(part) for part in node.parts))
            front = node.parts[:-1]
            return RuleSequence(
                (self._regular(front[0] if len(front) == 1 else RuleSequence(front)), self._regular(node.parts[-1]))
            )
        if not isinstance(node, RuleRepeat):
            raise AssertionError("A single character is never cut.")
        if is_nullable(node.part, self.nullable):
            return RuleRepeat(self._regular(node.part), 0, node.most)
        if empty:
            some = node.part if node.most == 1 else RuleRepeat(node.part, 1, node.most)
            return RuleChoice((_EMPTY, self._regular(some)))
        return RuleRepeat(self._regular(node.part), node.least, node.most)

    def _number(self, node: Node) -> int:
        if node not in self._numbers:
            self.lexemes.append(node)
        return self._numbers.get(node, len(self.lexemes) - 1)

    # --- which lexemes are too long ------------------------------------------------------------------------------

    def too_long(self) -> set[Node]:
        """The lexemes to cut: those that are too large, or else those in whose texts another lexeme may end earlier."""
        large: set[Node] = {
            node for node in self.lexemes if not isinstance(node, Chars) and self._size(node, {}) > _LARGEST
        }
        if large:
            return large
        following, first = self._following()
        same, longer = self._compared(following)
        having: dict[int, int] = {}
        for number, after in enumerate(following):
            having[after] = having.get(after, 0) | 1 << number
        before: list[int] = [0] * len(self.lexemes)
        for after, numbers in having.items():
            for each in _members(after):
                before[each] |= numbers
        partners: list[int] = [0] * len(self.lexemes)
        for one, other in same:
            partners[one] |= 1 << other
        shared = sum(1 << number for number, each in enumerate(partners) if each)

        def expected(i: int, j: int) -> bool:
            """Whether both can come first, or after texts that are equal."""
            if first >> i & first >> j & 1 or before[i] & before[j]:
                return True
            return any(partners[each] & before[j] for each in _members(before[i] & shared))

        return {self.lexemes[j] for i, j in longer if expected(i, j)}

    def _following(self) -> tuple[list[int], int]:
        """Per lexeme the lexemes that may come next, and the lexemes that may come first in a text, as bits."""
        empty: set[str] = set()
        firsts: dict[str, int] = dict.fromkeys(self.rules, 0)
        changed = True
        while changed:
            changed = False
            for name, node in self.rules.items():
                self._tracker.check_time()
                found = self._first(node, firsts, empty) | firsts[name]
                if found != firsts[name] or (name not in empty and _empty(node, empty)):
                    firsts[name] = found
                    changed = True
                    if _empty(node, empty):
                        empty.add(name)
        after: dict[str, int] = dict.fromkeys(self.rules, 0)
        following: list[int] = [0] * len(self.lexemes)
        changed = True
        while changed:
            before = [*after.values()], [*following]
            for name, node in self.rules.items():
                self._tracker.check_time()
                self._spread(node, after[name], firsts, empty, after, following)
            changed = before != ([*after.values()], following)
        return following, firsts[self.grammar.start]

    def _first(self, node: Lexical, firsts: dict[str, int], empty: set[str]) -> int:
        if isinstance(node, Lexeme):
            return 1 << node.number
        if isinstance(node, Reference):
            return firsts[node.name]
        if isinstance(node, RuleRepeat):
            return self._first(node.part, firsts, empty)
        found = 0
        if isinstance(node, RuleChoice):
            for option in node.options:
                found |= self._first(option, firsts, empty)
            return found
        for part in node.parts:
            found |= self._first(part, firsts, empty)
            if not _empty(part, empty):
                break
        return found

    def _spread(
        self, node: Lexical, then: int, firsts: dict[str, int], empty: set[str],
        after: dict[str, int], following: list[int],
    ) -> None:  # fmt: skip
        if isinstance(node, Lexeme):
            following[node.number] |= then
        elif isinstance(node, Reference):
            after[node.name] |= then
        elif isinstance(node, RuleRepeat):
            again = self._first(node.part, firsts, empty) if node.most != 1 else 0
            self._spread(node.part, then | again, firsts, empty, after, following)
        elif isinstance(node, RuleChoice):
            for option in node.options:
                self._spread(option, then, firsts, empty, after, following)
        else:
            for part in reversed(node.parts):
                self._spread(part, then, firsts, empty, after, following)
                then = self._first(part, firsts, empty) | (then if _empty(part, empty) else 0)

    # --- their automata ------------------------------------------------------------------------------------------

    @cached_property
    def _automata(self) -> list[tuple[NDArray[np.int32], NDArray[np.bool_], int]]:
        made: list[tuple[NDArray[np.int32], NDArray[np.bool_], int]] = []
        for node in self.lexemes:
            self._tracker.check_time()
            text = _literal(node)
            if text is not None:
                made.append(_table_of(text))
                continue
            dfa: Dfa = compile_pattern(self._pattern(node), budget=_BUDGET).trimmed()
            made.append((dfa.by_byte, np.asarray(dfa.accepting, dtype=np.bool_), dfa.start))
        return made

    def _compared(self, following: list[int]) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """Pairs of lexemes between which the longest match may decide wrongly.

        The first result has the pairs of different lexemes that share a text. The second has the pairs in which a text
        of the first lexeme, followed by a byte that can come after that lexeme, begins a text of the second lexeme. A
        single character is never the second lexeme.

        All lexemes are read at once, as long as a text begins texts of several of them.

        Args:
            following: per lexeme the lexemes that may come next, as bits.
        """
        sizes = [len(table) for table, _, _ in self._automata]
        starts = np.cumsum([0, *sizes[:-1]])
        # The last row is the row of the dead state, which is the last state here.
        table = np.concatenate([*[table for table, _, _ in self._automata], np.full((1, 256), DEAD, dtype=np.int32)])
        offsets = np.append(starts, 0).repeat([*sizes, 1]).astype(np.int32)
        table = np.where(table == DEAD, np.int32(-1), table + offsets[:, None])
        ends = np.concatenate([*[ends for _, ends, _ in self._automata], [False]])
        owner = np.append(np.arange(len(sizes)).repeat(sizes), len(sizes))
        heads = self._heads(
            following, [table[at + begin] for at, (_, _, begin) in zip(starts, self._automata, strict=True)]
        )
        long = np.array([*(not isinstance(node, Chars) for node in self.lexemes), False])
        going_on = table != -1
        at_end = ends.nonzero()[0]
        alone = owner[at_end[(going_on[at_end] & heads[owner[at_end]]).any(axis=1)]]
        same, longer = set[tuple[int, int]](), {(i, i) for i in alone.tolist() if long[i]}
        first = np.sort(starts + [begin for _, _, begin in self._automata]).astype(np.int32)
        seen, waiting = {first.tobytes()}, [first]
        while waiting:
            states = waiting.pop()
            self._steps -= len(states)
            self._tracker.check_time()
            if self._steps < 0:
                raise BudgetExceeded("Comparing lexemes takes too many steps.")
            numbers, going = owner[states], going_on[states]
            ended = numbers[ends[states]].tolist()
            same.update((i, j) for i in ended for j in ended if i != j)
            for i in ended:
                longer.update((i, j) for j in numbers[(going & heads[i]).any(axis=1) & long[numbers]].tolist())
            # Bytes with fewer than two lexemes left tell nothing more.
            bytes_left = (going.sum(axis=0) > 1).nonzero()[0]
            for column in table[np.ix_(states, bytes_left)].T:
                reached = np.sort(column[column >= 0])
                if reached.tobytes() not in seen:
                    seen.add(reached.tobytes())
                    waiting.append(reached)
        return same, longer

    def _heads(self, following: list[int], rows: list[NDArray[np.int32]]) -> NDArray[np.bool_]:
        """``[lexemes + 1, 256]``: the bytes that can come after each lexeme; ``rows`` are those of start states."""
        begins = np.array(rows) != -1
        known: dict[int, NDArray[np.bool_]] = {}
        found = np.zeros((len(rows) + 1, 256), dtype=np.bool_)
        for number, after in enumerate(following):
            if after not in known:
                known[after] = begins[_members(after)].any(axis=0)
            found[number] = known[after]
        return found

    def _size(self, node: Node, known: dict[str, int]) -> int:
        """The number of characters of a node after references and repetitions are written out."""
        if isinstance(node, Chars):
            return 1
        if isinstance(node, Reference):
            if node.name not in known:
                known[node.name] = self._size(self.grammar.rules[node.name], known)
            return known[node.name]
        if isinstance(node, RuleRepeat):
            return self._size(node.part, known) * max(node.least, node.most or 1)
        return sum(self._size(part, known) for part in (node.parts if isinstance(node, RuleSequence) else node.options))

    def _pattern(self, node: Node) -> str:
        if isinstance(node, Chars):
            return "[" + "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in node.ranges) + "]"
        if isinstance(node, Reference):
            return self._pattern(self.grammar.rules[node.name])
        if isinstance(node, RuleRepeat):
            return f"(?:{self._pattern(node.part)}){{{node.least},{'' if node.most is None else node.most}}}"
        if isinstance(node, RuleChoice):
            return "(?:" + "|".join(map(self._pattern, node.options)) + ")"
        return "".join(map(self._pattern, node.parts))


def _literal(node: Node) -> bytes | None:
    """The only text of a node of single characters."""
    parts = node.parts if isinstance(node, RuleSequence) else (node,)
    found = []
    for part in parts:
        if not isinstance(part, Chars) or len(part.ranges) != 1 or part.ranges[0][0] != part.ranges[0][1]:
            return None
        found.append(chr(part.ranges[0][0]))
    return "".join(found).encode()


def _table_of(text: bytes) -> tuple[NDArray[np.int32], NDArray[np.bool_], int]:
    """The automaton of one text: the table by byte, the accepting states, and the start."""
    size = len(text)
    table = np.full((size + 1, 256), DEAD, dtype=np.int32)
    table[np.arange(size), np.frombuffer(text, dtype=np.uint8)] = np.arange(1, size + 1)
    return table, np.arange(size + 1) == size, 0


def _members(bits: int) -> list[int]:
    """The numbers of the bits that are set, ascending."""
    return [at for at, bit in enumerate(reversed(f"{bits:b}")) if bit == "1"]


def _empty(node: Lexical, empty: set[str]) -> bool:
    if isinstance(node, Lexeme):
        return False
    return is_nullable(node, frozenset(empty))
