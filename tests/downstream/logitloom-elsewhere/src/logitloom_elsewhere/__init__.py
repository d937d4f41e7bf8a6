"""Bans and a small regular expression as automata over bytes, written only against the public reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import Vocabulary, option
from logitloom.constraints import ByteAutomaton, Constraint, ConstraintProcessor, State, lift
from logitloom.host.hookspecs import TextEnd

__all__ = ["TheirBadWords", "TheirRegex", "TheirStop"]


class Bans(ByteAutomaton):
    """Texts in which no phrase occurs. A state is the longest end of the text that begins a phrase."""

    def __init__(self, phrases: tuple[bytes, ...]) -> None:
        self.phrases = phrases

    @property
    def fingerprint(self) -> bytes:
        return b"bans " + repr(self.phrases).encode()

    def start(self) -> State:
        return b""

    def step(self, state: Any, byte: int) -> State | None:
        text = state + bytes([byte])
        if any(text.endswith(phrase) for phrase in self.phrases):
            return None
        ends = (text[n:] for n in range(len(text) + 1))
        return next(end for end in ends if any(phrase.startswith(end) for phrase in self.phrases))

    def accepts(self, state: Any) -> bool:
        del state
        return True


class Stops(ByteAutomaton):
    """Texts that end with one of some strings. A state is the end of the text that begins one, and what is too much.

    ``too_much`` is -1 before a string is complete, and then the number of bytes that do not belong to the text.
    """

    def __init__(self, strings: tuple[bytes, ...]) -> None:
        self.strings = strings

    @property
    def fingerprint(self) -> bytes:
        return b"stops " + repr(self.strings).encode()

    def start(self) -> State:
        return b"", -1

    def step(self, state: Any, byte: int) -> State | None:
        end, too_much = state
        if too_much >= 0:
            return b"", too_much + 1
        text = end + bytes([byte])
        found = [len(string) for string in self.strings if text.endswith(string)]
        if found:
            return b"", max(found)
        ends = (text[n:] for n in range(len(text) + 1))
        return next(end for end in ends if any(string.startswith(end) for string in self.strings)), -1

    def accepts(self, state: Any) -> bool:
        del state
        return True

    def must_end(self, state: Any) -> bool:
        return bool(state[1] >= 0)

    def text_end(self, state: Any) -> TextEnd:
        end, too_much = state
        return TextEnd(True, too_much) if too_much >= 0 else TextEnd(False, len(end))


class Pattern(ByteAutomaton):
    """Bytes, ``[abc]``, ``|``, ``(...)``, ``*`` and ``+``, by derivatives: a state is what the rest must match.

    References:
        J. Brzozowski, "Derivatives of Regular Expressions", 1964.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern.encode()
        self._tree, rest = self._either(self.pattern)
        assert not rest, f"{rest!r} cannot be read"

    @property
    def fingerprint(self) -> bytes:
        return b"pattern " + self.pattern

    def start(self) -> State:
        return self._tree

    def step(self, state: Any, byte: int) -> State | None:
        return _derived(state, byte)

    def accepts(self, state: Any) -> bool:
        return _empty(state)

    def _either(self, text: bytes) -> tuple[Any, bytes]:
        options = []
        while True:
            found, text = self._sequence(text)
            options.append(found)
            if text[:1] != b"|":
                return _any_of(options), text
            text = text[1:]

    def _sequence(self, text: bytes) -> tuple[Any, bytes]:
        parts: list[Any] = []
        while text and text[:1] not in b"|)":
            if text[:1] == b"(":
                part, text = self._either(text[1:])
                text = text[1:]
            elif text[:1] == b"[":
                letters, _, text = text[1:].partition(b"]")
                part = "set", frozenset(letters)
            else:
                part, text = ("set", frozenset(text[:1])), text[1:]
            while text[:1] in (b"*", b"+"):
                part = ("many", part) if text[:1] == b"*" else ("then", part, ("many", part))
                text = text[1:]
            parts.append(part)
        whole: Any = ("empty",)
        for part in reversed(parts):
            whole = _then(part, whole)
        return whole, text


def _then(first: Any, second: Any) -> Any:
    if first is None:
        return None
    if first == ("empty",):
        return second
    if second == ("empty",):
        return first
    if first[0] == "then":
        return "then", first[1], _then(first[2], second)
    return "then", first, second


def _any_of(options: list[Any]) -> Any:
    found: set[Any] = set()
    for option_ in options:
        found |= option_[1] if option_ is not None and option_[0] == "any" else {option_}
    found.discard(None)
    return ("any", frozenset(found)) if len(found) > 1 else next(iter(found), None)


def _empty(tree: Any) -> bool:
    kind = tree[0]
    if kind == "any":
        return any(map(_empty, tree[1]))
    return kind in ("empty", "many") or (kind == "then" and _empty(tree[1]) and _empty(tree[2]))


def _derived(tree: Any, byte: int) -> Any:
    """What must follow a byte; ``None`` if nothing can."""
    kind = tree[0]
    if kind == "set":
        return ("empty",) if byte in tree[1] else None
    if kind == "any":
        return _any_of([_derived(part, byte) for part in tree[1]])
    if kind == "many":
        return _then(_derived(tree[1], byte), tree)
    if kind == "then":
        options = [_then(_derived(tree[1], byte), tree[2])]
        if _empty(tree[1]):
            options.append(_derived(tree[2], byte))
        return _any_of(options)
    return None


@dataclass(frozen=True)
class TheirBadWords(ConstraintProcessor):
    """Ban phrases."""

    compilable = False

    phrases: tuple[str, ...] = option(help="What must not be written.")

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """The bans over a vocabulary."""
        return lift(Bans(tuple(p.encode() for p in self.phrases)), vocabulary, vocab_size, restricts=False)


@dataclass(frozen=True)
class TheirStop(ConstraintProcessor):
    """Stop after a string."""

    compilable = False

    strings: tuple[str, ...] = option(help="Where the text ends.")

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """The strings over a vocabulary."""
        return lift(Stops(tuple(s.encode() for s in self.strings)), vocabulary, vocab_size, restricts=False)


@dataclass(frozen=True)
class TheirRegex(ConstraintProcessor):
    """A small regular expression."""

    compilable = False

    pattern: str = option(help="The pattern.")

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """The pattern over a vocabulary."""
        return lift(Pattern(self.pattern), vocabulary, vocab_size)
