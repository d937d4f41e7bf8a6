"""Parse a Python regular expression to a tree of regular operations.

The standard library's own parser reads the pattern, so its meaning is always that of ``re``. The result is translated
to seven kinds of nodes. Constructs that are not regular are refused; the message has their name and their position.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.patterns import char_sets
from logitloom.automata.patterns.boundaries import boundary_contexts
from logitloom.automata.patterns.char_sets import CharSet
from logitloom.errors import BudgetExceeded, UnsupportedPattern

__all__ = [
    "Alternation",
    "Atomic",
    "Boundary",
    "Characters",
    "Concatenation",
    "LookAround",
    "Node",
    "Repeat",
    "nodes",
    "parse_pattern",
    "shortened",
]


class Characters(NamedTuple):
    """One character of a set."""

    chars: CharSet


class Concatenation(NamedTuple):
    """A sequence of parts; without parts it matches the empty text."""

    parts: tuple[Any, ...]


class Alternation(NamedTuple):
    """A choice between branches; a choice without branches matches no text."""

    branches: tuple[Any, ...]


class Repeat(NamedTuple):
    """A part ``least`` to ``most`` times; ``most`` is ``None`` for no upper limit."""

    part: Any
    least: int
    most: int | None
    greedy: bool


class Boundary(NamedTuple):
    """The empty text in certain contexts, which are a bit set; see :mod:`.boundaries`."""

    contexts: int


class Atomic(NamedTuple):
    """A part that is never re-entered by backtracking: ``(?>...)`` or a possessive quantifier."""

    part: Any
    name: str
    ordinal: int


class LookAround(NamedTuple):
    """The empty text where a match of the part follows (``ahead``) or precedes; with ``negated`` where none does.

    Look-around cannot be compiled to an automaton here.
    """

    part: Any
    ahead: bool
    negated: bool
    ordinal: int


Node = Characters | Concatenation | Alternation | Repeat | Boundary | Atomic | LookAround

EMPTY: Final = Concatenation(())
_KINDS_OF_TEXT: Final = int(re.ASCII | re.UNICODE)
_SUPPORTED_FLAGS: Final = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE | re.ASCII | re.UNICODE
_CATEGORIES: Final = {
    sre.CATEGORY_DIGIT: "d",
    sre.CATEGORY_NOT_DIGIT: "D",
    sre.CATEGORY_SPACE: "s",
    sre.CATEGORY_NOT_SPACE: "S",
    sre.CATEGORY_WORD: "w",
    sre.CATEGORY_NOT_WORD: "W",
}
NOT_NEWLINE: Final = char_sets.negate(char_sets.NEWLINE)

LOOK_AROUND: Final = "look-around"
BACK_REFERENCE: Final = "back-reference"
CONDITIONAL: Final = "conditional group"
ATOMIC: Final = "atomic group"
POSSESSIVE: Final = "possessive quantifier"


def parse_pattern(
    pattern: str,
    flags: int = 0,
    tracker: BudgetTracker | None = None,
    *,
    look_around: bool = False,
    written: str | None = None,
) -> Node:
    """Translate a pattern to a tree.

    Args:
        pattern: a regular expression in the syntax of Python's ``re`` for text.
        flags: flags of ``re``, as an int: ``IGNORECASE``, ``MULTILINE``, ``DOTALL``, ``VERBOSE``, ``ASCII``.
        tracker: the budget tracker; default: a new one with the default budget.
        look_around: whether look-around becomes a node; otherwise it is refused.
        written: the pattern as messages quote it, if ``pattern`` is its translation from another syntax.

    Raises:
        UnsupportedPattern: if the pattern is not a valid regular expression, or uses a construct that is not regular.
        BudgetExceeded: if the pattern is too long for the budget, or nested too deeply for the parser.
    """
    if not isinstance(pattern, str):
        raise UnsupportedPattern(
            f"A pattern is a str, and {type(pattern).__name__} was given. Decode bytes patterns first: "
            f"the automaton itself works on the UTF-8 bytes of the text."
        )
    flags = int(flags)
    if flags & ~int(_SUPPORTED_FLAGS):
        raise UnsupportedPattern(
            f"Flags {re.RegexFlag(flags & ~int(_SUPPORTED_FLAGS))!r} of pattern {shortened(pattern)} have no meaning "
            f"here. Use IGNORECASE, MULTILINE, DOTALL, VERBOSE or ASCII only."
        )
    tracker = tracker if tracker is not None else BudgetTracker(subject=f"pattern {shortened(pattern)}")
    tracker.check_pattern_length(len(pattern))
    try:
        parsed = sre_parser.parse(pattern, flags)
        flags = parsed.state.flags
        return _Translator(pattern if written is None else written, flags, tracker, look_around).sequence(
            parsed.data, flags
        )
    except re.error as error:
        if written is not None:
            raise UnsupportedPattern(
                f"Pattern {shortened(written)} is no valid regular expression: {error.msg}. Correct the pattern."
            ) from error
        where = f"at position {error.pos}" if error.pos is not None else "at an unknown position"
        raise UnsupportedPattern(
            f"Pattern {shortened(pattern)} is no valid regular expression: {error.msg} {where}. Correct the pattern; "
            f"the syntax is that of Python's re."
        ) from error
    except (RecursionError, OverflowError) as error:
        raise too_deep(tracker) from error


def nodes(tree: Node, kind: type[Any]) -> Iterator[Any]:
    """Yield the nodes of a kind in a tree, from left to right; of kind ``object`` all nodes."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, kind):
            yield node
        if isinstance(node, (Concatenation, Alternation)):
            waiting += node[0][::-1]
        elif not isinstance(node, (Characters, Boundary)):
            waiting.append(node.part)


def too_deep(tracker: BudgetTracker) -> BudgetExceeded:
    """The error for a pattern that is nested too deeply for the parser, or has too large a repeat count for it."""
    return BudgetExceeded(
        f"Compiling {tracker.subject} ran out of stack or integer range: its groups are nested too deeply or a repeat "
        f"count is too large. Nest less, or raise the limit with sys.setrecursionlimit."
    )


def shortened(pattern: str, limit: int = 60) -> str:
    """A pattern as messages show it: at most ``limit`` characters, with escapes for unprintable ones."""
    shown = pattern if len(pattern) <= limit else pattern[: limit - 3] + "..."
    return "'" + "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in shown) + "'"


@lru_cache(maxsize=4096)
def _literal(code_point: int, flags: int) -> Characters:
    """One node for all occurrences of a letter, because making a node takes longer than looking it up."""
    return Characters(char_sets.literal(code_point, flags))


def _has_one_length(part: Any) -> bool:
    """Whether all texts of a part have the same length: then backtracking has nothing to try again in the part."""
    least, most = part.getwidth()
    return bool(least == most)


class _Translator:
    def __init__(self, pattern: str, flags: int, tracker: BudgetTracker, look_around: bool) -> None:
        self.pattern = pattern
        self.look_around = look_around
        self.look_arounds = 0
        self.tracker = tracker
        self.verbose = bool(flags & re.VERBOSE)
        self.atomic_groups = 0
        self.possessive_quantifiers = 0

    def refuse(self, construct: str, ordinal: int = 0) -> UnsupportedPattern:
        return unsupported(self.pattern, construct, ordinal, self.verbose)

    def sequence(self, items: Sequence[tuple[Any, Any]], flags: int) -> Node:
        if len(items) == 1:
            return self.node(items[0], flags)
        return Concatenation(tuple([self.node(item, flags) for item in items]))

    def node(self, item: tuple[Any, Any], flags: int) -> Node:
        self.tracker.check_time()
        op, value = item
        if op is sre.LITERAL:
            return _literal(value, flags & 258)
        if op is sre.IN:
            return Characters(self.set(value, flags))
        if op is sre.MAX_REPEAT or op is sre.MIN_REPEAT:
            least, most, part = value
            if most == 0:
                return EMPTY
            limit = None if most is sre.MAXREPEAT else most
            return Repeat(self.sequence(part.data, flags), least, limit, op is sre.MAX_REPEAT)
        if op is sre.SUBPATTERN:
            _, added, removed, part = value
            if added & _KINDS_OF_TEXT:
                flags &= ~_KINDS_OF_TEXT  # ASCII and UNICODE exclude each other: (?a)(?u:...) is Unicode inside
            return self.sequence(part.data, (flags | added) & ~removed)
        if op is sre.BRANCH:
            return Alternation(tuple([self.sequence(branch.data, flags) for branch in value[1]]))
        if op is sre.ANY:
            return Characters(char_sets.ANY if flags & re.DOTALL else NOT_NEWLINE)
        if op is sre.NOT_LITERAL:
            return Characters(char_sets.negate(char_sets.literal(value, flags & 258)))
        if op is sre.AT:
            return Boundary(boundary_contexts(str(value), flags))
        if op is sre.FAILURE:
            return Alternation(())
        if op is sre.ATOMIC_GROUP:
            ordinal = self.atomic_groups
            self.atomic_groups += 1
            inner = self.sequence(value.data, flags)
            return inner if _has_one_length(value) else Atomic(inner, ATOMIC, ordinal)
        if op is sre.POSSESSIVE_REPEAT:
            least, most, part = value
            inner = self.sequence(part.data, flags)
            # Counted after the part is translated, because the quantifier comes after the part in the pattern.
            ordinal = self.possessive_quantifiers
            self.possessive_quantifiers += 1
            limit = None if most is sre.MAXREPEAT else most
            repeated = Repeat(inner, least, limit, True) if most else EMPTY
            return repeated if least == most and _has_one_length(part) else Atomic(repeated, POSSESSIVE, ordinal)
        if op is sre.ASSERT_NOT and not value[1].data:
            return Alternation(())  # (?!) never matches, which is regular
        if op is sre.ASSERT or op is sre.ASSERT_NOT:
            direction, part = value
            ordinal = self.look_arounds
            if not self.look_around:
                raise self.refuse(LOOK_AROUND, ordinal)
            self.look_arounds += 1
            return LookAround(self.sequence(part.data, flags), direction > 0, op is sre.ASSERT_NOT, ordinal)
        if op is sre.GROUPREF:
            raise self.refuse(BACK_REFERENCE)
        if op is sre.GROUPREF_EXISTS:
            raise self.refuse(CONDITIONAL)
        raise self.refuse(str(op).lower().replace("_", " "))

    def set(self, items: Sequence[tuple[Any, Any]], flags: int) -> CharSet:
        ranges = []
        categories = ""
        negated = False
        for op, value in items:
            if op is sre.RANGE:
                ranges.append(value)
            elif op is sre.LITERAL:
                ranges.append((value, value))
            elif op is sre.CATEGORY:
                categories += _CATEGORIES[value]
            else:
                negated = True
        return char_sets.char_set(tuple(ranges), categories, negated, flags & 258)


# --- positions of constructs -------------------------------------------------------------------------------

_TOKENS: Final = re.compile(
    r"""(?P<escape>\\(?:(?P<reference>[1-9])|.))
    |(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])
    |(?P<comment>\(\?\#[^)]*\))
    |(?P<failure>\(\?!\))
    |(?P<look>\(\?<?[=!])
    |(?P<named>\(\?P=)
    |(?P<conditional>\(\?\()
    |(?P<atomic>\(\?>)
    |(?P<possessive>(?:[*+?]|\{\d*,?\d*\})\+)
    |(?P<line>\#[^\n]*)""",
    re.VERBOSE | re.DOTALL,
)


def _constructs(pattern: str, verbose: bool) -> Iterator[tuple[str, int, str]]:
    """Yield each irregular or atomic construct in a pattern: its kind, its position and its first characters."""
    position = 0
    while found := _TOKENS.search(pattern, position):
        position = found.end()
        if found["line"] is not None and not verbose:
            position = found.start() + 1
        elif found["reference"] or found["named"]:
            yield BACK_REFERENCE, found.start(), found.group()
        elif found["look"]:
            yield LOOK_AROUND, found.start(), found.group()
        elif found["conditional"]:
            yield CONDITIONAL, found.start(), found.group()
        elif found["atomic"]:
            yield ATOMIC, found.start(), found.group()
        elif found["possessive"]:
            yield POSSESSIVE, found.start(), found.group()


def unsupported(pattern: str, construct: str, ordinal: int = 0, verbose: bool = False) -> UnsupportedPattern:
    """The error for the ``ordinal``-th use of a construct in a pattern."""
    positions = [(at, text) for kind, at, text in _constructs(pattern, verbose) if kind == construct]
    at, text = positions[min(ordinal, len(positions) - 1)] if positions else (None, "")
    where = f"{text!r} at position {at}" if at is not None else "somewhere"
    if construct in (ATOMIC, POSSESSIVE):
        reason = "here it may change which texts match, in a way that depends on backtracking"
        remedy = "Write the plain group or quantifier, or make what follows start with other characters"
    elif construct == LOOK_AROUND:
        reason = "what it asks of the text on one side depends on the whole rest, and no automaton is made of that here"
        remedy = "Write the pattern without it, or combine two with intersection or difference of logitloom.automata"
    else:
        reason = "it is not regular, so no automaton with finitely many states recognises it"
        remedy = "Write the pattern without it, or combine several automata with logitloom.automata"
    article = "an" if construct == ATOMIC else "a"
    return UnsupportedPattern(f"Pattern {shortened(pattern)} uses {article} {construct} ({where}): {reason}. {remedy}.")
