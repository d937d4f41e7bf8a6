"""A context-free grammar cut into lexemes so that a lexer that always takes the longest match reads the same language.

Engines with a lexer are fast because most of a text is read by an automaton, but they read another language: in
``[a-z]* "end"`` the longest match of the first part eats the ``end``. Here regular parts become lexemes as large as
they can be, and are cut again until this holds for all lexemes A and B that can be expected at the same position:

    no text of A, followed by a byte that can come after A, begins a text of B.

Then the longest match ends exactly where the grammar would have ended the lexeme. Single characters always pass.

References:
    A. Aho, M. Lam, R. Sethi, J. Ullman, "Compilers: Principles, Techniques, and Tools", 2nd ed., 2006, 4.4 (FIRST and
    FOLLOW).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import DEAD, Budget, BudgetTracker, Dfa, compile_pattern
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
    RuleSequence,
    children,
    is_nullable,
    recursive,
    spelled,
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
    compiled: dict[Node, Dfa] = {}
    tracker = BudgetTracker(subject="the grammar")
    while True:
        tracker.check_time()
        cutting = _Cutting(grammar, circles, cut, compiled, tracker)
        try:
            more = cutting.too_long()
        except BudgetExceeded:
            tracker.check_time()
            more = {node for node in cutting.lexemes if not isinstance(node, Chars)}
        if not more:
            return Lexed(cutting.rules, grammar.start, tuple(cutting.lexemes), parts)
        cut |= more


class _Automata(NamedTuple):
    """The automata of all lexemes, side by side.

    Attributes:
        table: ``[states + 1, bytes]``: the next state, for one of the bytes that are alike in all lexemes. The last row
            belongs to the dead state, which is the last state here, too.
        accepting: by state.
        start: by lexeme.
        owner: by state its lexeme; the dead state has the number behind the last lexeme.
    """

    table: NDArray[np.int32]
    accepting: NDArray[np.bool_]
    start: NDArray[np.int64]
    owner: NDArray[np.int64]


class _Cutting:
    """One attempt: the grammar with some regular parts cut into smaller ones.

    Args:
        grammar: the grammar.
        circles: the rules of the grammar that :func:`recursive` finds.
        cut: the parts to cut.
        compiled: automata of lexemes, which the attempts share.
        tracker: the budget tracker.
    """

    def __init__(
        self,
        grammar: ContextFreeGrammar,
        circles: frozenset[str],
        cut: set[Node],
        compiled: dict[Node, Dfa],
        tracker: BudgetTracker,
    ) -> None:
        self.grammar = grammar
        self.circles = circles
        self.cut = cut
        self.nullable = grammar.nullable
        self.lexemes: list[Node] = []
        self._numbers: dict[Node, int] = {}
        #: By identity of a node of the grammar whether it names a rule with circles.
        self._circular: dict[int, bool] = {}
        self._steps = _MOST_STEPS
        self._tracker, self._compiled = tracker, compiled
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
            inner: list[Node] = []
            outer: list[Lexical] = []
            for option in node.options:
                if self._is_regular(option):
                    inner.append(option)
                else:
                    outer.append(self._converted(option))
            if inner:
                outer.append(self._regular(inner[0] if len(inner) == 1 else RuleChoice(tuple(inner))))
            return RuleChoice(tuple(outer))
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
        if isinstance(node, LiteralText):
            return RuleSequence(tuple(map(self._regular, spelled(node))))
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
        """The lexemes to cut: too large lexemes, or, without such, lexemes in whose texts another may end earlier."""
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
            for each in set_bits(after):
                before[each] |= numbers
        partners: list[int] = [0] * len(self.lexemes)
        for one, other in same:
            partners[one] |= 1 << other
        shared = sum(1 << number for number, each in enumerate(partners) if each)

        def expected(i: int, j: int) -> bool:
            """Whether both can come first, or after texts that are equal."""
            if first >> i & first >> j & 1 or before[i] & before[j]:
                return True
            return any(partners[each] & before[j] for each in set_bits(before[i] & shared))

        return {self.lexemes[j] for i, j in longer if expected(i, j)}

    def _following(self) -> tuple[list[int], int]:
        """Per lexeme the lexemes that may come next, and the lexemes that may come first in a text, as bits."""
        firsts = self._firsts()
        after: dict[str | int, int] = dict.fromkeys([*self.rules, *range(len(self.lexemes))], 0)
        #: Per rule the rules and lexemes that can end its texts: whatever follows the rule follows them, too.
        ends: dict[str, list[str | int]] = {name: [] for name in self.rules}

        def spread(node: Lexical, then: int, ends_of: list[str | int] | None) -> None:
            """Add what follows to the leaves of a node.

            Args:
                node: a part of a rule.
                then: what follows the node in the rule.
                ends_of: gets the leaves that can end the rule; ``None`` if the node cannot.
            """
            if isinstance(node, Lexeme | Reference):
                leaf = node.number if isinstance(node, Lexeme) else node.name
                after[leaf] |= then
                if ends_of is not None:
                    ends_of.append(leaf)
            elif isinstance(node, RuleRepeat):
                spread(node.part, then | (self._first(node.part, firsts) if node.most != 1 else 0), ends_of)
            elif isinstance(node, RuleChoice):
                for option in node.options:
                    spread(option, then, ends_of)
            else:
                for part in reversed(node.parts):
                    spread(part, then, ends_of)
                    first = self._first(part, firsts)
                    then, ends_of = (then | first, ends_of) if self._is_empty(part) else (first, None)

        for name, node in self.rules.items():
            self._tracker.check_time()
            spread(node, 0, ends[name])
        waiting = [*self.rules]
        while waiting:
            self._tracker.check_time()
            rule = waiting.pop()
            for leaf in dict.fromkeys(ends[rule]):
                together = after[leaf] | after[rule]
                if together != after[leaf]:
                    after[leaf] = together
                    if isinstance(leaf, str):
                        waiting.append(leaf)
        return [after[number] for number in range(len(self.lexemes))], firsts[self.grammar.start]

    def _firsts(self) -> dict[str, int]:
        """Per rule the lexemes that may come first in its texts, as bits."""
        found: dict[str, int] = dict.fromkeys(self.rules, 0)
        begun_by: dict[str, list[str]] = {name: [] for name in self.rules}
        for name, node in self.rules.items():
            self._tracker.check_time()
            waiting = [node]
            while waiting:
                node = waiting.pop()
                if isinstance(node, Lexeme):
                    found[name] |= 1 << node.number
                elif isinstance(node, Reference):
                    begun_by[node.name].append(name)
                elif isinstance(node, RuleSequence):
                    waiting += self._beginnings(node)
                else:
                    waiting += children(node)
        names = [*self.rules]
        while names:
            self._tracker.check_time()
            name = names.pop()
            for user in begun_by[name]:
                if found[user] | found[name] != found[user]:
                    found[user] |= found[name]
                    names.append(user)
        return found

    def _first(self, node: Lexical, firsts: dict[str, int]) -> int:
        """The lexemes that may come first in the texts of a node, as bits."""
        if isinstance(node, Lexeme):
            return 1 << node.number
        if isinstance(node, Reference):
            return firsts[node.name]
        found = 0
        for part in self._beginnings(node) if isinstance(node, RuleSequence) else children(node):
            found |= self._first(part, firsts)
        return found

    def _beginnings(self, node: RuleSequence) -> list[Lexical]:
        """The parts of a sequence with which its texts can begin."""
        count = next((at for at, part in enumerate(node.parts, 1) if not self._is_empty(part)), len(node.parts))
        return [*node.parts[:count]]

    def _is_empty(self, node: Lexical) -> bool:
        """Whether a node can stand for the empty text; no lexeme can."""
        return not isinstance(node, Lexeme) and is_nullable(node, self.nullable)

    # --- their automata ------------------------------------------------------------------------------------------

    @cached_property
    def _automata(self) -> _Automata:
        texts: dict[int, bytes] = {}
        compiled: dict[int, Dfa] = {}
        sizes: list[int] = []
        for number, node in enumerate(self.lexemes):
            self._tracker.check_time()
            text = _literal(node)
            if text is not None:
                texts[number] = text
                sizes.append(len(text) + 1)
            else:
                if node not in self._compiled:
                    self._compiled[node] = compile_pattern(self._pattern(node), budget=_BUDGET).trimmed()
                compiled[number] = self._compiled[node]
                sizes.append(compiled[number].states)
        joined = np.frombuffer(b"".join(texts.values()), dtype=np.uint8)
        # Two bytes are alike if no automaton distinguishes them and neither stands in a literal text.
        of_texts = np.zeros(256, dtype=np.intp)
        of_texts[joined] = joined + 1
        alike = np.stack([of_texts, *{id(dfa): dfa.byte_class for dfa in compiled.values()}.values()])
        _, first, column = np.unique(alike, axis=1, return_index=True, return_inverse=True)
        begins = np.cumsum([0, *sizes])
        table = np.full((begins[-1] + 1, len(first)), DEAD, dtype=np.int32)
        accepting = np.zeros(len(table), dtype=np.bool_)
        start = begins[:-1].copy()
        for number, dfa in compiled.items():
            own = slice(begins[number], begins[number + 1])
            reached = dfa.next[:, dfa.byte_class[first]]
            table[own] = np.where(reached == DEAD, DEAD, reached + begins[number])
            accepting[own] = dfa.accepting
            start[number] += dfa.start
        rows = [np.arange(begins[number], begins[number + 1] - 1) for number in texts]
        if rows:
            before = np.concatenate(rows)
            table[before, column[joined]] = before + 1
            accepting[[begins[number + 1] - 1 for number in texts]] = True
        return _Automata(table, accepting, start, np.append(np.arange(len(sizes)).repeat(sizes), len(sizes)))

    def _compared(self, following: list[int]) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """Pairs of lexemes between which the longest match may decide wrongly.

        The first result has the pairs of different lexemes that share a text. The second has the pairs in which a text
        of the first lexeme, followed by a byte that can come after that lexeme, begins a text of the second lexeme. A
        single character is never the second lexeme.

        All lexemes are read at once, as long as a text begins texts of several of them.

        Args:
            following: per lexeme the lexemes that may come next, as bits.
        """
        table, ends, start, owner = self._automata
        heads = self._heads(following, table[start])
        long = np.array([*(not isinstance(node, Chars) for node in self.lexemes), False])
        at_end = ends.nonzero()[0]
        alone = owner[at_end[((table[at_end] != DEAD) & heads[owner[at_end]]).any(axis=1)]]
        same, longer = set[tuple[int, int]](), {(i, i) for i in alone.tolist() if long[i]}
        first = np.sort(start).astype(np.int32)
        seen, waiting = {first.tobytes()}, [first]
        while waiting:
            states = waiting.pop()
            self._steps -= len(states)
            self._tracker.check_time()
            if self._steps < 0:
                raise BudgetExceeded("Comparing lexemes takes too many steps.")
            numbers, rows = owner[states], table[states]
            going = rows != DEAD
            ended = numbers[ends[states]].tolist()
            same.update((i, j) for i in ended for j in ended if i != j)
            for i in ended:
                longer.update((i, j) for j in numbers[(going & heads[i]).any(axis=1) & long[numbers]].tolist())
            # Bytes with fewer than two lexemes left tell nothing more.
            bytes_left = (going.sum(axis=0) > 1).nonzero()[0]
            columns = np.ascontiguousarray(np.sort(rows[:, bytes_left], axis=0).T)
            for column in {each.tobytes(): each for each in columns}.values():
                reached = column[column >= 0]
                if reached.tobytes() not in seen:
                    seen.add(reached.tobytes())
                    waiting.append(reached)
        return same, longer

    def _heads(self, following: list[int], rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """``[lexemes + 1, bytes]``: the bytes that can come after each lexeme; ``rows`` are those of start states."""
        begins = rows != DEAD
        known: dict[int, NDArray[np.bool_]] = {}
        found = np.zeros((len(rows) + 1, rows.shape[1]), dtype=np.bool_)
        for number, after in enumerate(following):
            if after not in known:
                known[after] = begins[set_bits(after)].any(axis=0)
            found[number] = known[after]
        return found

    def _size(self, node: Node, known: dict[str, int]) -> int:
        """The number of characters of a node after references and repetitions are written out."""
        if isinstance(node, Chars):
            return 1
        if isinstance(node, LiteralText):
            return len(node.text)
        if isinstance(node, Reference):
            if node.name not in known:
                known[node.name] = self._size(self.grammar.rules[node.name], known)
            return known[node.name]
        if isinstance(node, RuleRepeat):
            return self._size(node.part, known) * max(node.least, node.most or 1)
        return sum(self._size(part, known) for part in children(node))

    def _pattern(self, node: Node) -> str:
        if isinstance(node, Chars):
            return "[" + "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in node.ranges) + "]"
        if isinstance(node, LiteralText):
            return re.escape(node.text)
        if isinstance(node, Reference):
            return self._pattern(self.grammar.rules[node.name])
        if isinstance(node, RuleRepeat):
            return f"(?:{self._pattern(node.part)}){{{node.least},{'' if node.most is None else node.most}}}"
        if isinstance(node, RuleChoice):
            return "(?:" + "|".join(map(self._pattern, node.options)) + ")"
        return "".join(map(self._pattern, node.parts))


def _literal(node: Node) -> bytes | None:
    """The only text of a node of single characters."""
    if isinstance(node, LiteralText):
        return node.text.encode()
    parts = node.parts if isinstance(node, RuleSequence) else (node,)
    found = []
    for part in parts:
        if not isinstance(part, Chars) or len(part.ranges) != 1 or part.ranges[0][0] != part.ranges[0][1]:
            return None
        found.append(chr(part.ranges[0][0]))
    return "".join(found).encode()
