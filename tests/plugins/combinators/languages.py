"""What combinations accept, computed from whole texts by trying every split: slow, and without any state."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

Node = tuple[Any, ...]
"""A combination as a tree: its kind, then what it is made of."""

FREE: Node = ("free",)
PATTERNS = ("a*", "(ab)*;?", "[ab;]{1,3}", "a;b|ab", "(;a|b)+", "1{2}", "(a;)*b", "[^;]*", "ab;cd|a", ";*1")
TRIGGERS = (";", ";;", "ab", "a;", "b1", "1a1")
PHRASES = (["ba"], ["b;", "11"], ["aaa"])
ARRAY = {"type": "array", "items": {"type": "boolean"}}


def drawn(draw: random.Random, depth: int, *, texts: bool = True) -> Node:
    """A random combination of combinations, at most ``depth`` deep."""
    kinds = ["regex", "regex", "choice", "json", "bad_words", "both", "free"]
    if depth:
        kinds = ["after", "until", "between", "budget"] if depth > 1 or draw.random() < 0.8 else kinds
    kind = draw.choice(kinds)

    def inner(least: int = 0) -> Node:
        return drawn(draw, max(depth - 1, least), texts=texts)

    match kind:
        case "regex":
            return ("regex", draw.choice(PATTERNS))
        case "choice":
            return ("choice", draw.choice((("ab", "a;b", "1"), ("a", "ab;"), (";", "b;;b"))))
        case "bad_words":
            return ("bad_words", tuple(draw.choice(PHRASES)))
        case "both":
            return ("both", ("regex", draw.choice(PATTERNS)), ("bad_words", tuple(draw.choice(PHRASES))))
        case "after":
            return ("after", draw.choice(TRIGGERS), inner(), draw.random() < 0.5)
        case "until":
            return ("until", draw.choice(TRIGGERS), inner(), draw.choice((FREE, inner())), draw.random() < 0.5)
        case "between":
            pair = draw.sample(TRIGGERS, 2)
            return ("between", *pair, inner(), draw.random() < 0.5, draw.random() < 0.5)
        case "budget":
            text = draw.choice(("", "", "!", "b;")) if texts else ""
            then = draw.choice((None, FREE, inner()))
            return ("budget", draw.randrange(4), inner(), text, then)
    return (kind,)


def spec(node: Node) -> Any:
    """How a combination is given to ``load``; ``()`` for free text."""
    match node:
        case ("free",):
            return ()
        case ("regex", pattern):
            return ["regex", {"pattern": pattern}]
        case ("choice", choices):
            return ["choice", {"choices": list(choices)}]
        case ("json",):
            return ["json", {"schema": ARRAY, "whitespace": "compact"}]
        case ("bad_words", phrases):
            return ["bad_words", {"phrases": list(phrases)}]
        case ("both", one, other):
            return [spec(one), spec(other)]
        case ("after", trigger, inner, required):
            return ["after", {"trigger": trigger, "inner": spec(inner), "required": required}]
        case ("until", trigger, inner, then, required):
            options = {"trigger": trigger, "inner": spec(inner), "then": spec(then), "required": required}
            return ["until", options]
        case ("between", opening, closing, inner, repeat, required):
            options = {"open": opening, "close": closing, "inner": spec(inner), "repeat": repeat, "required": required}
            return ["between", options]
        case ("budget", n, inner, text, then):
            more = {"end": True} if then is None else {"then": spec(then)}
            return ["budget", {"n": n, "inner": spec(inner), "text": text, **more}]
    raise AssertionError(node)


def restricts(node: Node) -> bool:
    return node[0] not in ("free", "bad_words") and (node[0] != "both" or any(map(restricts, node[1:])))


def accepts(node: Node, tokens: Sequence[bytes]) -> bool:
    """Whether a combination accepts a text that was written with some tokens."""
    return _Text(tokens).fits(node, 0, sum(map(len, tokens)))


class _Text:
    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.text = b"".join(tokens)
        self.borders = [sum(map(len, tokens[: n + 1])) for n in range(len(tokens))]
        self.fits = cache(self._fits)

    def _splits(self, inner: Node, string: str, start: int, end: int) -> list[tuple[int, int]]:
        """Where an inner text can end and what follows begin, with a string between."""
        needle = string.encode()
        found = []
        place = self.text.find(needle, start, end)
        while place >= 0:
            if self.fits(inner, start, place):
                found.append((place, place + len(needle)))
            if not restricts(inner):
                break
            place = self.text.find(needle, place + 1, end)
        return found

    def _unfinished(self, inner: Node, string: str, start: int, end: int) -> bool:
        """Whether the text ends inside the inner text."""
        return (restricts(inner) or string.encode() not in self.text[start:end]) and self.fits(inner, start, end)

    def _fits(self, node: Node, start: int, end: int) -> bool:
        text = self.text[start:end]
        match node:
            case ("free",):
                return True
            case ("regex", pattern):
                return re.fullmatch(pattern.encode(), text, re.DOTALL) is not None
            case ("choice", choices):
                return text.decode(errors="replace") in choices
            case ("json",):
                return re.fullmatch(rb"\[((true|false)(,(true|false))*)?\]", text) is not None
            case ("bad_words", phrases):
                return not any(phrase.encode() in text for phrase in phrases)
            case ("both", one, other):
                return self.fits(one, start, end) and self.fits(other, start, end)
            case ("after", trigger, inner, required):
                if not required and self._unfinished(FREE, trigger, start, end):
                    return True
                return any(self.fits(inner, next, end) for _, next in self._splits(FREE, trigger, start, end))
            case ("until", trigger, inner, then, required):
                if not required and self._unfinished(inner, trigger, start, end):
                    return True
                return any(self.fits(then, next, end) for _, next in self._splits(inner, trigger, start, end))
            case ("between", opening, closing, inner, repeat, required):
                if not required and self._unfinished(FREE, opening, start, end):
                    return True
                again = ("between", opening, closing, inner, repeat, False) if repeat else FREE
                opened = [next for _, next in self._splits(FREE, opening, start, end)]
                closed = [next for place in opened for _, next in self._splits(inner, closing, place, end)]
                return any(self.fits(again, place, end) for place in closed)
            case ("budget", n, inner, forced, then):
                return self._budget(n, inner, forced, then, start, end)
        raise AssertionError(node)

    def _budget(self, n: int, inner: Node, forced: str, then: Node | None, start: int, end: int) -> bool:
        within = [border for border in self.borders if start < border <= end]
        spent = ([start] if n == 0 else []) + within[max(n - 1, 0) :]
        if restricts(inner):
            spent = [place for place in spent if self.fits(inner, start, place)]
        if not spent:
            return bool(self.fits(inner, start, end))
        place = spent[0]
        after = place + len(forced.encode())
        if not self.fits(inner, start, place) or self.text[place:after] != forced.encode() or after > end:
            return False
        return after == end if then is None else bool(self.fits(then, after, end))
