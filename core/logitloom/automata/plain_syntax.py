"""The syntax that most patterns keep to, read in one pass over their tokens.

Sets, escapes, groups without names, bars, greedy and lazy quantifiers: reading them here takes a third of the time that
the general parser (:mod:`logitloom.automata.pattern`) takes, which was up to a quarter of a first mask. Everything
else, and everything that may be an error, is left to that parser.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from logitloom.automata import char_sets
from logitloom.automata.char_sets import CharSet
from logitloom.automata.pattern import EMPTY, NOT_NEWLINE, Alternation, Characters, Node, Repeat, Sequence_

__all__ = ["plain_tree"]

_FLAGS: Final = re.IGNORECASE | re.ASCII | re.DOTALL | re.UNICODE
#: Those that say which characters a set has.
_OF_SETS: Final = int(re.IGNORECASE | re.ASCII)

#: An escape that stands for one character.
_ESCAPED: Final = r"\\(?:[^a-zA-Z0-9]|[fnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})"
#: One character of a set. What newer versions of Python may read differently is not among them.
_MEMBER: Final = rf"(?:[^\\\[\]&~|^-]|{_ESCAPED})"
_TOKENS: Final = re.compile(
    rf"""(?P<text>[^\\\[\](){{}}|*+?.^$]+)
    |\[(?P<negated>\^?)(?P<set>-?(?:{_MEMBER}-{_MEMBER}|{_MEMBER}|\\[dDwWsS](?!-[^\]])|-(?=\]))+)\]
    |\\(?P<category>[dDwWsS])
    |(?P<escaped>{_ESCAPED})
    |(?P<any>\.)
    |(?P<open>\((?:\?:|(?!\?)))
    |(?P<bar>\|)
    |(?P<close>\))
    |(?P<often>[*+?])(?P<lazily>\??)
    |\{{(?P<least>[0-9]{{1,6}})(?P<most>,[0-9]{{0,6}})?\}}(?P<seldom>\??)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ITEMS: Final = re.compile(rf"\\([dDwWsS])|({_MEMBER})-({_MEMBER})|({_MEMBER}|-)", re.DOTALL)
_CONTROLS: Final = {"f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_OFTEN: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def plain_tree(pattern: str, flags: int) -> Node | None:
    """The tree of a pattern, or ``None`` if the general parser has to read it.

    Args:
        pattern: a regular expression in the syntax of Python's ``re``.
        flags: flags of ``re``, as an int.
    """
    flags = int(flags)
    if flags & ~int(_FLAGS):
        return None
    kinds = flags & _OF_SETS
    outer: list[tuple[list[Node], list[Node]]] = []
    branches: list[Node] = []
    parts: list[Node] = []
    repeatable = False
    for token in _TOKENS.finditer(pattern):
        kind = token.lastgroup
        if kind == "text":
            parts += [_character(letter, kinds) for letter in token[0]]
        elif kind == "set":
            chars = _set(token["set"], token["negated"] != "", kinds)
            if chars is None:
                return None
            parts.append(Characters(chars))
        elif kind == "category":
            parts.append(Characters(char_sets.char_set((), token[0][1], False, kinds)))
        elif kind == "escaped":
            parts.append(_character(token[0], kinds))
        elif kind == "any":
            parts.append(Characters(char_sets.ANY if flags & re.DOTALL else NOT_NEWLINE))
        elif kind == "open":
            outer.append((branches, parts))
            branches, parts, repeatable = [], [], False
            continue
        elif kind == "bar":
            branches.append(_sequence(parts))
            parts, repeatable = [], False
            continue
        elif kind == "close" and outer:
            whole = _alternation([*branches, _sequence(parts)])
            branches, parts = outer.pop()
            parts.append(whole)
        elif kind in ("lazily", "seldom") and repeatable:
            if kind == "lazily":
                least, most = _OFTEN[token["often"]]
            else:
                least, bound = int(token["least"]), token["most"]
                most = least if bound is None else int(bound[1:]) if bound != "," else None
                if most is not None and most < least:
                    return None
            parts[-1] = EMPTY if most == 0 else Repeat(parts[-1], least, most, token[kind] == "")
            repeatable = False
            continue
        else:
            return None
        repeatable = True
    return None if outer else _alternation([*branches, _sequence(parts)])


@lru_cache(maxsize=4096)
def _character(written: str, kinds: int) -> Characters:
    return Characters(char_sets.literal(_code_point(written), kinds))


def _code_point(written: str) -> int:
    """What a character, or an escape that stands for one, is."""
    if len(written) > 2:
        return int(written[2:], 16)
    return _CONTROLS.get(written[1], ord(written[1])) if len(written) == 2 else ord(written)


def _set(text: str, negated: bool, kinds: int) -> CharSet | None:
    ranges: list[tuple[int, int]] = []
    categories = ""
    for category, low, high, single in _ITEMS.findall(text):
        if category:
            categories += category
        else:
            first, last = _code_point(low or single), _code_point(high or single)
            if first > last:
                return None
            ranges.append((first, last))
    return char_sets.char_set(tuple(ranges), categories, negated, kinds)


def _sequence(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Sequence_(tuple(parts))


def _alternation(branches: list[Node]) -> Node:
    if len(branches) == 1:
        return branches[0]
    sets = [branch.chars for branch in branches if isinstance(branch, Characters)]
    return Characters(char_sets.union(sets)) if len(sets) == len(branches) else Alternation(tuple(branches))
