"""A recogniser of grammars whose terminals take the longest match, which tells how a text can be completed.

A state is that of a recogniser over terminals and, for each terminal that may come next, the state of its automaton. A
terminal ends where no terminal that was expected can be read on: what is ignored if that is among those that have
ended, else all that have ended at once. So a text that is written may be no text of the rules: after ``if``, ``x``
makes a name of it.

Completions use only texts that are certain to be read as intended. Each position of a rule has at most one text of its
terminal. The next text can follow it, directly or after an ignored separator, whatever other terminals are expected.
The next byte of a completion is that of the shortest completion. Each byte makes this completion shorter by one, so it
ends. If no completion is known, the text is treated as one that cannot be completed.

References:
    J. Earley, "An efficient context-free parsing algorithm", Communications of the ACM 13, 1970.
    A. Aho, M. Lam, R. Sethi, J. Ullman, "Compilers: Principles, Techniques, and Tools", 2nd ed., 2006, 3.5 (longest
    match), 4.4 (FIRST and FOLLOW).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import BYTE_ORDER, DEAD, Dfa
from logitloom.constraints import ByteAutomaton, State
from logitloom.errors import BudgetExceeded
from logitloom_plugins.grammars.byte_rules import ByteRules, Part
from logitloom_plugins.grammars.context_free import Chars
from logitloom_plugins.grammars.lark import LarkGrammar
from logitloom_plugins.grammars.recogniser import Recogniser

__all__ = ["LongestMatch", "TerminalRules"]

_MOST_PAIRS: Final = 200_000
_MOST_SEPARATORS: Final = 8


class Terminal:
    """The automaton of a terminal, and the shortest texts to its end.

    Args:
        automaton: trimmed.
        usable: the bytes that shortest texts may have.

    Attributes:
        rows: the next state by state and byte; -1 for none.
        by_class: the same by classes of bytes, which are those of all terminals of a grammar.
        accepting: by state.
        start: the first state.
        rests: by state a shortest text to an accepting one; ``None`` if no text of usable bytes leads there.
        shortest: a shortest text that is not empty, or ``None``.
    """

    def __init__(self, automaton: Dfa, usable: Iterable[int]) -> None:
        self.rows: list[list[int]] = automaton.by_byte.tolist()
        self.by_class = self.rows
        self.accepting: list[bool] = automaton.accepting.tolist()
        self.start = automaton.start
        self.rests: list[bytes | None] = [b"" if accepting else None for accepting in self.accepting]
        first_bytes: dict[int, int] = {}
        for byte in sorted(set(usable), key=BYTE_ORDER.__getitem__):
            first_bytes.setdefault(int(automaton.byte_class[byte]), byte)
        self._usable = list(first_bytes.values())
        before: list[list[int]] = [[] for _ in self.rows]
        for at, row in enumerate(self.rows):
            for following in {row[byte] for byte in self._usable} - {DEAD}:
                before[following].append(at)
        layer = [at for at, accepting in enumerate(self.accepting) if accepting]
        while layer:
            reached = {each for at in layer for each in before[at] if self.rests[each] is None}
            texts = {at: self._through_next(at) for at in reached}
            for at, text in texts.items():
                self.rests[at] = text
            layer = list(reached)
        self.shortest = self._through_next(self.start)

    def _through_next(self, at: int) -> bytes | None:
        """The shortest text that leads through a next state of which the text is known."""
        row = self.rows[at]
        ways = [(byte, rest) for byte in self._usable if row[byte] >= 0 and (rest := self.rests[row[byte]]) is not None]
        return min((bytes([byte]) + rest for byte, rest in ways), key=len, default=None)

    def after(self, text: bytes) -> int:
        """The state after a text; -1 for none."""
        at = self.start
        for byte in text:
            at = self.rows[at][byte] if at >= 0 else -1
        return at

    def reads(self, text: bytes) -> bool:
        """Whether this is one of its texts."""
        at = self.after(text)
        return at >= 0 and self.accepting[at]

    def heads(self, at: int) -> set[int]:
        """The bytes that can come next."""
        return set() if at < 0 else {byte for byte, following in enumerate(self.rows[at]) if following >= 0}


class TerminalRules(ByteRules):
    """The positions of a grammar over terminals, and a text for each, behind which the next can come.

    Args:
        grammar: as it was read.
        usable: the bytes that shortest texts may have.

    Attributes:
        terminals: by number.
        ignored: what may stand between them, or ``None``.
        byte_classes: ``[256]``, bytes that no terminal tells apart.
        separators: texts that are ignored, short ones first.
        always_ends: whether a completion is known of everything that can be written, but for the beginning.

    Raises:
        BudgetExceeded: if too many positions can be expected together.
    """

    def __init__(self, grammar: LarkGrammar, usable: Iterable[int]) -> None:
        usable = frozenset(usable)
        self.terminals = [Terminal(each, usable) for each in grammar.terminals]
        self.automata = [*grammar.terminals, *([] if grammar.ignored is None else [grammar.ignored])]
        self.ignored = None if grammar.ignored is None else Terminal(grammar.ignored, usable)
        self.separators = [] if self.ignored is None else _separators(self.ignored, usable)
        columns = np.array([each.byte_class for each in self.automata], dtype=np.uint8).reshape(-1, 256)
        _, some, classes = np.unique(columns, axis=1, return_index=True, return_inverse=True)
        self.byte_classes: NDArray[np.uint8] = classes.reshape(256).astype(np.uint8)
        for terminal in [*self.terminals, *([self.ignored] if self.ignored else [])]:
            terminal.by_class = [[row[byte] for byte in some.tolist()] for row in terminal.rows]
        self._shared: dict[tuple[int, int], bool] = {}
        self._reading_on: dict[tuple[int, int], dict[int, set[int]]] = {}
        super().__init__(grammar.rules, usable)
        self.always_ends = False
        with suppress(BudgetExceeded):
            self.always_ends = self.growth is not None and self._always_ends()

    def characters(self, node: Chars) -> Part:
        """The position of a terminal."""
        position = self.leaf(1 << node.ranges[0][0], -1)
        return Part(False, [position], [position])

    def terminal_at(self, position: int) -> int:
        """The number of the terminal at a position."""
        return self.mask[position].bit_length() - 1

    def texts_of_positions(self, usable: Iterable[int]) -> list[bytes | None]:
        """A text of each terminal, with a separator where others might be read on."""
        del usable
        self._following = self._positions_after()
        self._expected = self._expected_together()
        found: list[bytes | None] = [None] * len(self.mask)
        for position in self._expected:
            text = self._sure_text(position)
            found[position] = None if text is None else bytes(BYTE_ORDER[byte] for byte in text)
        return found

    def _positions_after(self) -> dict[int, int]:
        """By terminal position a bit set of those that may come next."""
        first: list[int] = []
        for rule in range(len(self.first)):
            seen, found, waiting = {rule}, 0, list(self.first[rule])
            while waiting:
                at = waiting.pop()
                if self.called[at] < 0:
                    found |= 1 << at
                elif self.called[at] not in seen:
                    seen.add(self.called[at])
                    waiting += self.first[self.called[at]]
            first.append(found)
        rule_of: dict[int, int] = {}
        for rule, begins in enumerate(self.first):
            waiting = list(begins)
            while waiting:
                at = waiting.pop()
                if at not in rule_of:
                    rule_of[at] = rule
                    waiting += self.follow[at]
        inside = {
            at: _united((1 << each) if self.called[each] < 0 else first[self.called[each]] for each in self.follow[at])
            for at in rule_of
        }
        behind = [0] * len(self.first)
        changed = True
        while changed:
            changed = False
            for at, rule in rule_of.items():
                called = self.called[at]
                if called >= 0:
                    after = behind[called] | inside[at] | (behind[rule] if self.last[at] else 0)
                    changed |= after != behind[called]
                    behind[called] = after
        self._begins = first[self.start]
        return {
            at: inside[at] | (behind[rule] if self.last[at] else 0)
            for at, rule in rule_of.items()
            if self.called[at] < 0
        }

    def _expected_together(self) -> dict[int, int]:
        """By terminal position a bit set of those that some text leads to as well."""
        expected: dict[int, int] = {}
        waiting = [(self._begins, self._begins)]
        seen, steps = set(waiting), 0
        while waiting:
            some, others = waiting.pop()
            self._tracker.check_time()
            for at in _bits(some):
                added = others & ~expected.get(at, 0)
                expected[at] = expected.get(at, 0) | others
                for other in _bits(added):
                    steps += 1
                    if steps > _MOST_PAIRS:
                        raise BudgetExceeded("Too many terminals of the grammar can be expected at one place.")
                    pair = self._following[at], self._following[other]
                    if pair not in seen and self._share_text(self.terminal_at(at), self.terminal_at(other)):
                        seen |= {pair, pair[::-1]}
                        waiting += {pair, pair[::-1]}
        return expected

    def _share_text(self, one: int, other: int) -> bool:
        if one == other:
            return True
        key = min(one, other), max(one, other)
        if key not in self._shared:
            left, right = self.terminals[one], self.terminals[other]
            reached, found = set[tuple[int, int]](), False
            waiting = [(left.start, right.start)]
            while waiting and not found:
                self._tracker.check_time()
                a, b = waiting.pop()
                for pair in set(zip(left.by_class[a], right.by_class[b], strict=True)) - reached:
                    if DEAD not in pair:
                        found |= left.accepting[pair[0]] and right.accepting[pair[1]]
                        reached.add(pair)
                        waiting.append(pair)
            self._shared[key] = found
        return self._shared[key]

    def _sure_text(self, position: int) -> bytes | None:
        """A text behind which whatever may follow it can come; ``None`` if there is none."""
        text, others = self.terminals[self.terminal_at(position)].shortest, self._expected[position]
        if text is None or (self.ignored is not None and self.ignored.reads(text)):
            return None
        reads_on = set[int]()
        for terminal in [*self._terminals_at(others), *([self.ignored] if self.ignored else [])]:
            reads_on |= terminal.heads(terminal.after(text))
        after = _united(self._following[at] for at in _bits(others) if self.terminals[self.terminal_at(at)].reads(text))
        separator = self._separator(self._heads(after), reads_on, after)
        return None if separator is None else text + separator

    def _separator(self, heads: set[int], reads_on: set[int], after: int) -> bytes | None:
        """What has to stand before any of some bytes, where others would be read on; ``None`` if nothing helps.

        Args:
            heads: the bytes that may come next.
            reads_on: the bytes with which what has just been read may go on.
            after: the positions that may come next.
        """
        if not heads & reads_on:
            return b""
        then = self._terminals_at(_united(self._expected.get(at, 0) for at in _bits(after)))
        for separator in self.separators:
            assert self.ignored is not None
            if (
                separator[0] not in reads_on
                and not heads & self.ignored.heads(self.ignored.after(separator))
                and all(terminal.after(separator) == DEAD for terminal in then)
            ):
                return separator
        return None

    def _always_ends(self) -> bool:
        """Whether whatever text a terminal has, one of the ways on can be taken behind it."""
        terminals = [*self.terminals, *([self.ignored] if self.ignored else [])]
        if any(None in terminal.rests for terminal in terminals):
            return False
        ignored = [len(self.terminals)] if self.ignored else []
        for position, others in self._expected.items():
            number = self.terminal_at(position)
            beside = [*{self.terminal_at(at) for at in _bits(others)}, *ignored]
            after = _united(
                self._following[at] for at in _bits(others) if self._share_text(number, self.terminal_at(at))
            )
            for read, then in [(number, after), *((skipped, 1 << position) for skipped in ignored)]:
                heads = self._heads(then)
                if any(self._separator(heads, reads_on, then) is None for reads_on in self._reads_on(read, beside)):
                    return False
        return True

    def _reads_on(self, one: int, beside: Iterable[int]) -> list[set[int]]:
        """The bytes with which some of these can be read on, by the state in which a text of one of them ends."""
        found: dict[int, set[int]] = {}
        for other in beside:
            for at, heads in self._reads_on_by_state(one, other).items():
                found[at] = found.get(at, set()) | heads
        return list({frozenset(heads): heads for heads in found.values()}.values())

    def _reads_on_by_state(self, one: int, other: int) -> dict[int, set[int]]:
        """The same for two of them; what is ignored has a number, too."""
        key = one, other
        if key not in self._reading_on:
            terminals = [*self.terminals, *([self.ignored] if self.ignored else [])]
            left, right = terminals[one], terminals[other]
            reached, found = set[tuple[int, int]](), dict[int, set[int]]()
            waiting = [(left.start, right.start)]
            while waiting:
                self._tracker.check_time()
                a, b = waiting.pop()
                for pair in set(zip(left.by_class[a], right.by_class[b], strict=True)) - reached:
                    if DEAD not in pair:
                        reached.add(pair)
                        waiting.append(pair)
            for a, b in reached:
                if left.accepting[a]:
                    found[a] = found.get(a, set()) | right.heads(b)
            self._reading_on[key] = found
        return self._reading_on[key]

    def _terminals_at(self, positions: int) -> list[Terminal]:
        return [self.terminals[number] for number in {self.terminal_at(at) for at in _bits(positions)}]

    def _heads(self, positions: int) -> set[int]:
        """The first bytes of the shortest texts of terminals."""
        return {terminal.shortest[0] for terminal in self._terminals_at(positions) if terminal.shortest is not None}


def _separators(ignored: Terminal, usable: Iterable[int]) -> list[bytes]:
    """Some short texts of what is ignored."""
    ones = [bytes([byte]) for byte in sorted(usable, key=BYTE_ORDER.__getitem__)]
    found = [one for one in ones if ignored.reads(one)]
    found += [ignored.shortest] if ignored.shortest is not None and not found else []
    return found[:_MOST_SEPARATORS]


def _united(sets: Iterable[int]) -> int:
    found = 0
    for each in sets:
        found |= each
    return found


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


class _Lexer:
    """Terminals that may be read, each with the state of its automaton; the last one may be what is ignored.

    Attributes:
        states: number and state.
        accepting: the numbers of those that may end here; only what is ignored, if that may.
        next: by class of bytes, once it was asked for.
    """

    __slots__ = ("accepting", "next", "states")

    def __init__(self, states: tuple[tuple[int, int], ...], accepting: tuple[int, ...]) -> None:
        self.states = states
        self.accepting = accepting
        self.next: dict[int, _Lexer | None] = {}


class _Reading:
    """The state after some bytes.

    Attributes:
        parsed: the state of the recogniser over terminals, before the one that is being read.
        lexer: of the terminal that is being read.
        fresh: whether nothing was read at all.
        ended: whether the text may end; ``None`` before it was asked.
        way: the bytes of the shortest way to an end that is known, and the next byte of it.
        completion: the text to the end, once it was asked for.
    """

    __slots__ = ("completion", "ended", "fresh", "lexer", "next", "parsed", "way")

    def __init__(self, parsed: State, lexer: _Lexer, fresh: bool) -> None:
        self.parsed = parsed
        self.lexer = lexer
        self.fresh = fresh
        self.ended: bool | None = None
        self.way: tuple[int, int] | None = None
        self.completion: bytes | None = None
        self.next: dict[int, _Reading | None] = {}


class LongestMatch(ByteAutomaton):
    """The automaton of a grammar whose terminals take the longest match. Its states live in one process.

    A state from which no completion is known is no state.

    Args:
        rules: the grammar.

    Example:
        >>> from logitloom_plugins.grammars.lark import parse_lark
        >>> text = 'start: NAME "in" NAME\\n%ignore " "\\nNAME: /[a-z]+/'
        >>> grammar = LongestMatch(TerminalRules(parse_lark(text, {}.__getitem__), range(256)))
        >>> state = grammar.start()
        >>> state = grammar.step(state, ord("x"))
        >>> grammar.completion(state)  # without the space the name would go on
        b' ina'
    """

    def __init__(self, rules: TerminalRules) -> None:
        self._rules = rules
        self._parser = Recogniser(rules)
        self._ignored = len(rules.terminals)
        self._terminals = [*rules.terminals, *([] if rules.ignored is None else [rules.ignored])]
        self._classes = rules.byte_classes
        self._class_of: list[int] = self._classes.tolist()
        self._lexers: dict[tuple[tuple[int, int], ...], _Lexer] = {}
        self._readings: dict[tuple[int, _Lexer, bool], _Reading] = {}
        self._ignored_heads = set() if rules.ignored is None else rules.ignored.heads(rules.ignored.start)
        begin = self._parser.start()
        self._begin = self._reading(begin, self._expecting(begin, ignoring=False), fresh=True)
        self._begin.way = self._way(self._begin)

    @property
    def made(self) -> int:
        """How many states there are, all of which it keeps."""
        return self._parser.made + len(self._lexers) + len(self._readings)

    @cached_property
    def growth(self) -> NDArray[np.int64] | None:
        """``[256]``, by how many bytes each byte can at most move the end of a text away; ``None`` if it is unknown."""
        known = self._rules.growth
        if known is None:
            return None
        found = np.zeros(256, dtype=np.int64)
        for number, terminal in enumerate(self._rules.terminals):
            for byte in terminal.heads(terminal.start):
                found[byte] = max(found[byte], int(known[number]))
        return found

    @cached_property
    def _longest_rest(self) -> int:
        """The bytes at most from within a terminal to its end, with a separator."""
        rests = [len(rest) for terminal in self._terminals for rest in terminal.rests if rest is not None]
        return max(rests, default=0) + max(map(len, self._rules.separators), default=0)

    @property
    def fingerprint(self) -> bytes:
        """Of the positions and the terminals."""
        digest = hashlib.blake2b(self._parser.fingerprint, digest_size=16)
        for automaton in self._rules.automata:
            digest.update(automaton.fingerprint.encode())
        return digest.digest()

    # --- methods of ByteAutomaton -----------------------------------------------------------------------------------

    def start(self) -> State:
        """Nothing was read."""
        return self._begin

    def step(self, state: State, byte: int) -> State | None:
        """The state after one more byte."""
        reading, number = _reading_of(state), self._class_of[byte]
        if number not in reading.next:
            found = self.read(reading, byte)
            reading.next[number] = None
            if found is not None:
                following = _reading_of(found)
                following.way = following.way or self._way(following)
                if following.way is not None or self.accepts(following):
                    reading.next[number] = following
        return reading.next[number]

    def accepts(self, state: State) -> bool:
        """Whether the text may end."""
        reading = _reading_of(state)
        if reading.ended is None:
            after = reading.parsed if reading.fresh else self._parsed(reading.parsed, reading.lexer)
            reading.ended = after is not None and self._parser.accepts(after)
        return reading.ended

    def byte_classes(self) -> NDArray[np.uint8]:
        """Bytes that no terminal tells apart."""
        return self._classes

    def completion(self, state: State) -> bytes | None:
        """A short text with which the whole text follows the grammar."""
        reading, path = _reading_of(state), list[_Reading]()
        while reading.completion is None:
            if self.accepts(reading):
                reading.completion = b""
            elif reading.way is None:
                return None
            else:
                path.append(reading)
                reading = _reading_of(self.step(reading, reading.way[1]))
        text = reading.completion
        for each in reversed(path):
            assert each.way is not None
            text = each.completion = bytes([each.way[1]]) + text
        return text

    def bound(self, state: State) -> int | None:
        """No completion of the state is longer, in bytes; ``None`` if that is unknown.

        Each byte makes it larger by at most :attr:`growth`: one that begins a terminal opens what that opens.
        """
        reading, growth = _reading_of(state), self._rules.growth
        parsed = self._parser.bound(reading.parsed)
        if growth is None or parsed is None or not self._rules.always_ends or reading.fresh:
            return None
        opened = max((int(growth[number]) for number, _ in reading.lexer.states if number != self._ignored), default=0)
        return parsed + opened + self._longest_rest

    # --- states ---------------------------------------------------------------------------------------------------

    def _reading(self, parsed: State, lexer: _Lexer, fresh: bool = False) -> _Reading:
        key = id(parsed), lexer, fresh  # the parser keeps its states
        if key not in self._readings:
            self._readings[key] = _Reading(parsed, lexer, fresh)
        return self._readings[key]

    def _lexer(self, states: tuple[tuple[int, int], ...]) -> _Lexer:
        if states not in self._lexers:
            ended = tuple(number for number, at in states if self._terminals[number].accepting[at])
            ended = (self._ignored,) if self._ignored in ended else ended
            self._lexers[states] = _Lexer(states, ended)
        return self._lexers[states]

    def _expecting(self, parsed: State, ignoring: bool = True) -> _Lexer:
        """The terminals that may come next; without any, nothing is ignored either."""
        numbers = sorted(self._parser.expected(parsed))
        if numbers and ignoring and self._rules.ignored is not None:
            numbers.append(self._ignored)
        return self._lexer(tuple((number, self._terminals[number].start) for number in numbers))

    def _lexed(self, lexer: _Lexer, byte: int) -> _Lexer | None:
        """The terminals that can be read on with a byte."""
        number = self._class_of[byte]
        if number not in lexer.next:
            moved = ((each, self._terminals[each].rows[at][byte]) for each, at in lexer.states)
            states = tuple((each, at) for each, at in moved if at >= 0)
            lexer.next[number] = self._lexer(states) if states else None
        return lexer.next[number]

    def _parsed(self, parsed: State, lexer: _Lexer) -> State | None:
        """What was read, if the terminal ends here."""
        if lexer.accepting == (self._ignored,):
            return parsed
        return self._parser.after(parsed, lexer.accepting) if lexer.accepting else None

    def read(self, state: State, byte: int) -> State | None:
        """The state after one more byte, even if no completion of it is known."""
        reading = _reading_of(state)
        # The engine ignores nothing at the beginning, but for some grammars with terminals that may be empty.
        if reading.fresh and byte in self._ignored_heads:
            return None
        lexer = self._lexed(reading.lexer, byte)
        if lexer is not None:
            return self._reading(reading.parsed, lexer)
        parsed = None if reading.fresh else self._parsed(reading.parsed, reading.lexer)
        if parsed is None:
            return None
        lexer = self._lexed(self._expecting(parsed), byte)
        return None if lexer is None else self._reading(parsed, lexer)

    # --- ways to an end -------------------------------------------------------------------------------------------

    def _way(self, reading: _Reading) -> tuple[int, int] | None:
        """The shortest way, by one of the terminals that are being read."""
        rests = [
            self._terminals[number].shortest if reading.fresh else self._terminals[number].rests[at]
            for number, at in reading.lexer.states
        ]
        ways = [way for rest in rests if rest is not None and (way := self._way_by(reading, rest)) is not None]
        ways = [way for way in ways if not reading.fresh or (way and way[0] not in self._ignored_heads)]
        if not ways:
            return None
        text = min(ways, key=lambda way: (len(way), [BYTE_ORDER[byte] for byte in way[:1]]))
        return (len(text), text[0]) if text else None

    def _way_by(self, reading: _Reading, rest: bytes) -> bytes | None:
        """The rest of a terminal, a separator where there has to be one, and a sure text of what is left."""
        lexer: _Lexer | None = reading.lexer
        for byte in rest:
            assert lexer is not None
            lexer = self._lexed(lexer, byte)
        assert lexer is not None
        parsed = self._parsed(reading.parsed, lexer)
        then = None if parsed is None else self._parser.completion(parsed)
        if then is None:
            return None
        if not then or self._lexed(lexer, then[0]) is None:
            return rest + then
        for separator in self._rules.separators:
            if self._separates(lexer, parsed, separator, then[0]):
                return rest + separator + then
        return None

    def _separates(self, lexer: _Lexer, parsed: State, separator: bytes, head: int) -> bool:
        """Whether a separator ends a terminal, is nothing else, and is ended by the next byte."""
        if self._lexed(lexer, separator[0]) is not None:
            return False
        ignoring: _Lexer | None = self._expecting(parsed)
        for byte in separator:
            ignoring = None if ignoring is None else self._lexed(ignoring, byte)
        return (
            ignoring is not None
            and [number for number, _ in ignoring.states] == [self._ignored]
            and ignoring.accepting == (self._ignored,)
            and self._lexed(ignoring, head) is None
        )


def _reading_of(state: State | None) -> _Reading:
    assert isinstance(state, _Reading)
    return state
