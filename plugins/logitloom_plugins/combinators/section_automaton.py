"""The automaton over bytes of a combination of constraints: the concatenation of its sections.

A text can have several readings: where the inner text may end and the string that ends the section could begin, the
inner text may also continue. So a state is a set of configurations, one per reading, as in the subset construction.
Every configuration can be completed: an inner automaton has no dead states, a string can always be written, and
sections in which nothing can be written are refused.
"""

# ruff: noqa: D102 - the methods of ByteAutomaton are documented there

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import common_classes
from logitloom.constraints import ByteAutomaton, State
from logitloom.host.hookspecs import TextEnd
from logitloom_plugins.combinators.characters import missing_after
from logitloom_plugins.combinators.triggers import TriggerMatcher

__all__ = ["CombinedAutomaton", "Crossing", "CrossingAutomaton", "SectionAutomaton", "SectionConfiguration", "States"]


class SectionConfiguration(NamedTuple):
    """A configuration of the automaton: one reading of the text so far.

    Attributes:
        section: number of the section.
        state: state of the section's inner automaton.
        node: node of the section's trigger matcher, if the first occurrence of a string ends the section.
        spent: number of tokens in the section so far, if the section has a budget.
        counted: whether ``spent`` includes the current token.
        missing: bytes that the last character still lacks, if the section is free text with a budget.
        over: whether the inner text is over, so that only a string that ends the section, or the end of the text, may
            come.
        exit: number of the string that is being written, or -1.
        written: how many bytes of that string have been written.
        hold: if the text has ended, the number of bytes at its end that do not belong to it; else -1.
    """

    section: int
    state: State = None
    node: TriggerMatcher.Node | None = None
    spent: int = 0
    counted: bool = False
    missing: int = 0
    over: bool = False
    exit: int = -1
    written: int = 0
    hold: int = -1


States = frozenset[SectionConfiguration]


@dataclass(frozen=True)
class SectionAutomaton:
    """A section with the automaton of its inner constraints.

    Attributes:
        automaton: the automaton of the inner constraints; ``None`` for free text.
        start: the state of the automaton in which the section begins; ``written`` is the text that leads there.
        restricts: whether the inner constraints restrict the text. If not, or without constraints, the first occurrence
            of a string ends the section.
        exits: the strings that end the section, each with the number of the section that follows.
        at_start: per string whether it ends the section only at the section's start.
        at_tokens: whether the inner text can end only at a token border.
        budget, after, may_end, ends, follows: as of :class:`~logitloom_plugins.combinators.section.Section`.
    """

    automaton: ByteAutomaton | None = None
    start: State = None
    written: str = ""
    restricts: bool = False
    exits: tuple[tuple[bytes, int], ...] = ()
    at_start: tuple[bool, ...] = ()
    at_tokens: bool = False
    budget: int | None = None
    after: int | None = None
    may_end: bool = True
    ends: bool = False
    follows: tuple[int, ...] = ()
    matcher: TriggerMatcher | None = field(init=False, default=None, compare=False)
    #: The strings that end the section anywhere, by their first byte.
    beginning: dict[int, list[int]] = field(init=False, default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for exit, (text, _) in enumerate(self.exits):
            if not self.at_start[exit]:
                self.beginning.setdefault(text[0], []).append(exit)
        if self.exits and not self.restricts:
            object.__setattr__(self, "matcher", TriggerMatcher([text for text, _ in self.exits], self.at_start))


class CombinedAutomaton(ByteAutomaton):
    """The automaton of a combination.

    Args:
        parts: the sections.
        decided: whether only one reading is followed: a section is over as soon as a string that ends the section is
            complete.
        first: the number of the section in which a text begins.

    Example:
        >>> closed = SectionAutomaton(exits=((b"--", 1),), at_start=(False,))
        >>> sections = CombinedAutomaton([closed, SectionAutomaton(ends=True)])
        >>> state = sections.start()
        >>> for byte in b"a--":
        ...     state = sections.step(state, byte)
        >>> sections.accepts(state), sections.step(state, ord("a"))
        (True, None)
    """

    def __init__(self, parts: Sequence[SectionAutomaton], *, decided: bool = False, first: int = 0) -> None:
        self.parts, self.decided, self.first = tuple(parts), decided, first
        self._counts_tokens = any(map(_counts_tokens, self.parts))
        #: Per section the shortest known text from its start; found when a completion is first asked for.
        self._texts: list[bytes | None] | None = None

    @cached_property
    def fingerprint(self) -> bytes:
        digest = hashlib.blake2b(digest_size=16, person=b"combination")
        for part in self.parts:
            inner = b"" if part.automaton is None else part.automaton.fingerprint
            strings = part.restricts, part.exits, part.at_start, part.follows
            ends = part.budget, part.after, part.may_end, part.ends
            digest.update(repr((inner, part.written, strings, ends)).encode())
        digest.update(repr((self.decided, self.first)).encode())
        return digest.digest()

    # --- methods of ByteAutomaton ---------------------------------------------------------------------------------

    def start(self) -> States:
        return frozenset(self.enter(self.first))

    def _following(
        self, part: SectionAutomaton, state: State, seen: tuple[int, ...] = ()
    ) -> Iterator[SectionConfiguration]:
        """The configurations at the start of the sections that may begin here without a string."""
        if part.follows and (part.automaton is None or part.automaton.accepts(state)):
            for section in part.follows:
                if section not in seen:
                    yield from self.enter(section, seen=(*seen, section))

    def step(self, state: State, byte: int) -> States | None:
        return self.read(state, byte)[0] or None  # type: ignore[arg-type]

    def accepts(self, state: State) -> bool:
        return any(self.may_end(config) for config in _configs(state))

    def token_border(self, state: State) -> States | None:
        return frozenset(found for config in _configs(state) for found in self.at_border(config)) or None

    @property
    def counts_tokens(self) -> bool:
        return self._counts_tokens

    def completion(self, state: State) -> bytes | None:
        return _shortest(self.completions_of(state))

    def completions_of(self, state: State) -> Sequence[bytes]:
        if self.decided:  # the text of one reading may end the section of another one before
            return ()
        if self._texts is None:
            self._texts = self._shortest_texts()
        return [*dict.fromkeys(text for config in _configs(state) for text in self._completions(config, self._texts))]

    def text_end(self, state: State) -> TextEnd:
        return max(self._text_end(config) for config in _configs(state))

    def alternatives(self, state: State) -> Sequence[State]:
        if self.decided:  # each configuration's transitions then depend on the others, so all stay together
            return (state,)
        return [frozenset((one,)) for config in _configs(state) for one in self._alternatives(config)]

    def _alternatives(self, config: SectionConfiguration) -> Sequence[SectionConfiguration]:
        part = self.parts[config.section]
        # With a budget, the whole inner state decides whether the section is left when the budget is spent.
        if part.automaton is None or config.state is None or part.budget is not None:
            return (config,)
        return [config._replace(state=one) for one in part.automaton.alternatives(config.state)]

    def byte_classes(self) -> NDArray[np.uint8] | None:
        columns: list[NDArray[Any]] = [np.array([missing_after(3, bytes([byte])) for byte in range(256)])]
        for part in self.parts:
            if part.automaton is not None:
                inner = part.automaton.byte_classes()
                if inner is None:
                    return None
                columns.append(inner)
            for byte in {byte for text, _ in part.exits for byte in text}:
                columns.append(np.arange(256) == byte)
        columns.append(np.arange(256) // 64 == 2)
        return common_classes(columns)

    # --- completions ----------------------------------------------------------------------------------------------

    def _shortest_texts(self) -> list[bytes | None]:
        """Per section the shortest text from its start that the completions of inner constraints give."""
        found: list[bytes | None] = [None] * len(self.parts)
        starts = [[*self.enter(section)] for section in range(len(self.parts))]
        changed = True
        while changed:  # a text only becomes shorter
            changed = False
            for section in reversed(range(len(self.parts))):
                known = found[section]
                texts = (text for config in starts[section] for text in self._completions(config, found))
                found[section] = _shortest(texts if known is None else (known, *texts))
                changed |= found[section] != known
        return found

    def _completions(self, config: SectionConfiguration, texts: Sequence[bytes | None]) -> Iterator[bytes]:
        """The rest of the inner text, a string that ends the section, and the text of the section that follows."""
        part = self.parts[config.section]
        if self.may_end(config):
            yield b""
        elif config.exit >= 0:
            yield from self._onward(part, config.node, [(config.exit, config.written)], texts)
        elif part.automaton is None and part.matcher is not None and config.node is not None:
            # Of free text the matcher alone knows which strings have begun.
            yield from self._onward(part, config.node, part.matcher.rests(config.node), texts)
        else:
            for inner in (b"",) if part.automaton is None else part.automaton.completions_of(config.state):
                yield from self._after_inner(part, config.node, inner, texts)

    def _after_inner(
        self, part: SectionAutomaton, node: TriggerMatcher.Node | None, inner: bytes, texts: Sequence[bytes | None]
    ) -> Iterator[bytes]:
        """The shortest text that begins with the rest of an inner text."""
        if part.may_end:
            yield inner
            return
        if part.matcher is not None and node is not None:
            for byte in inner:
                node, done = part.matcher.step(node, byte)
                if done >= 0:
                    return
        whole = [(exit, 0) for exit, first in enumerate(part.at_start) if not first]
        onward = [text for following in part.follows if (text := texts[following]) is not None]
        shortest = _shortest((*onward, *self._onward(part, node, whole, texts)))
        if shortest is not None:
            yield inner + shortest

    def _onward(
        self, part: SectionAutomaton, node: TriggerMatcher.Node | None, begun: Iterable[tuple[int, int]],
        texts: Sequence[bytes | None],
    ) -> Iterator[bytes]:  # fmt: skip
        """The rests of strings that end a section, each with the text of the section that follows."""
        for exit, written in begun:
            text, following = part.exits[exit]
            rest = texts[following]
            found = part.matcher is None or node is None or part.matcher.finds(node, exit, written)
            if found and rest is not None:
                yield text[written:] + rest

    # --- configurations -------------------------------------------------------------------------------------------

    def enter(self, section: int, state: State = None, seen: tuple[int, ...] = ()) -> Iterator[SectionConfiguration]:
        """The configurations at the start of a section, optionally with another state of its inner automaton.

        ``seen`` are sections that were entered on the way here without a string.
        """
        part = self.parts[section]
        node = None if part.matcher is None else part.matcher.start
        config = SectionConfiguration(section, part.start if state is None else state, node)
        if part.budget == 0 and self._may_leave(config, part):
            yield from self._leave(config, part)
            yield from self._following(part, config.state, seen)
            return
        yield config
        yield from self._following(part, config.state, seen)
        if part.automaton is not None:
            for exit, first in enumerate(part.at_start):
                if first:
                    yield SectionConfiguration(section, node=node, exit=exit)

    def read(self, state: Iterable[SectionConfiguration], byte: int) -> tuple[States, bool]:
        """The configurations after one more byte, and whether this byte entered a section."""
        going: list[SectionConfiguration] = []
        entered: list[SectionConfiguration] = []
        for config in state:
            if config.hold >= 0:
                continue
            inside = self.inside(config, byte)
            if inside is not None:
                going.append(inside)
                part = self.parts[config.section]
                entered += self._following(part, inside.state) if part.follows else ()
            for found, new in self.begun(config, byte):
                (entered if new else going).append(found)
        return frozenset(entered if self.decided and entered else going + entered), bool(entered)

    def inside(self, config: SectionConfiguration, byte: int) -> SectionConfiguration | None:
        """The configuration after one more byte of the inner text."""
        part = self.parts[config.section]
        if config.exit >= 0 or config.over or part.ends:
            return None
        state, node = config.state, config.node
        if part.matcher is not None:
            node, done = part.matcher.step(node, byte)  # type: ignore[arg-type]
            if done >= 0:
                return None
        if part.automaton is not None:
            state = part.automaton.step(state, byte)
            if state is None:
                return None
        if part.budget is None:
            return SectionConfiguration(config.section, state, node)
        missing = 0 if part.restricts else missing_after(config.missing, bytes([byte]))
        return SectionConfiguration(config.section, state, node, config.spent + (not config.counted), True, missing)

    def begun(self, config: SectionConfiguration, byte: int) -> Iterator[tuple[SectionConfiguration, bool]]:
        """The configurations after one more byte of a string that ends the section, and whether the section ended."""
        part = self.parts[config.section]
        node, done = config.node, -1
        if node is not None:
            assert part.matcher is not None
            node, done = part.matcher.step(node, byte)
        if config.exit >= 0:
            begun: Iterable[int] = (config.exit,)
        elif part.automaton is None:
            if done >= 0:
                yield from ((found, True) for found in self.enter(part.exits[done][1]))
            return
        else:
            begun = part.beginning.get(byte, ())
            if not begun or not part.automaton.accepts(config.state):
                return
        for exit in begun:
            text, following = part.exits[exit]
            if text[config.written] != byte:
                continue
            last = config.written + 1 == len(text)
            if done >= 0 and not (last and exit == done):
                continue
            if last:
                yield from ((found, True) for found in self.enter(following))
            else:
                yield SectionConfiguration(config.section, node=node, exit=exit, written=config.written + 1), False

    def at_border(self, config: SectionConfiguration, *, inner: bool = True) -> Iterable[SectionConfiguration]:
        """The configurations after the last byte of a token; none if the token must not end here.

        Args:
            config: the configuration after the byte.
            inner: whether the inner automaton's ``token_border`` is called, too.
        """
        part = self.parts[config.section]
        if config.exit >= 0 or config.hold >= 0:
            return (config,)
        if part.automaton is not None and not config.over:
            if part.automaton.must_end(config.state):
                config = config._replace(over=True)
            elif inner:
                state = part.automaton.token_border(config.state)
                if state is None:
                    return ()
                if state is not config.state:
                    config = config._replace(state=state)
        if part.budget is None or not config.counted:
            return (config,)
        config = config._replace(counted=False)
        left = max(part.budget - config.spent, 0)
        if config.missing > left:
            return ()
        return self._leave(config, part) if not left and self._may_leave(config, part) else (config,)

    def may_end(self, config: SectionConfiguration) -> bool:
        part = self.parts[config.section]
        if config.hold >= 0 or part.ends:
            return True
        if config.exit >= 0 or not part.may_end:
            return False
        return part.automaton is None or part.automaton.accepts(config.state)

    def _may_leave(self, config: SectionConfiguration, part: SectionAutomaton) -> bool:
        return not part.restricts or part.automaton is None or part.automaton.accepts(config.state)

    def _leave(self, config: SectionConfiguration, part: SectionAutomaton) -> Iterable[SectionConfiguration]:
        """The configurations after the budget of a section is spent.

        Each configuration is inside a string that ends the section (in the rest of a begun string), or at the start of
        section ``after``.
        """
        if not part.exits:
            return () if part.after is None else self.enter(part.after)
        begun = [(exit, 0) for exit in range(len(part.exits))]
        if part.matcher is not None and config.node is not None:
            rests = part.matcher.rests(config.node)
            begun = [(exit, written) for exit, written in rests if written == rests[0][1]]
        return [SectionConfiguration(config.section, exit=exit, written=written) for exit, written in begun]

    def _text_end(self, config: SectionConfiguration) -> TextEnd:
        if config.hold >= 0:
            return TextEnd(True, config.hold)
        inner = self.parts[config.section].automaton
        return TextEnd(False, 0) if inner is None or config.exit >= 0 else inner.text_end(config.state)


class Crossing(NamedTuple):
    """A state of :class:`CrossingAutomaton`.

    Attributes:
        inside: the reading that has stayed in the section, ``None`` if there is none any more.
        crossed: the readings in which a string that ends the section began.
    """

    inside: SectionConfiguration | None
    crossed: States = frozenset()


class CrossingAutomaton(ByteAutomaton):
    """The bytes of one token from a configuration in a constrained section on.

    Args:
        automaton: the automaton of the combination.
    """

    def __init__(self, automaton: CombinedAutomaton) -> None:
        self._automaton = automaton

    @cached_property
    def fingerprint(self) -> bytes:
        return b"crossing " + self._automaton.fingerprint

    def start(self) -> Crossing:
        return Crossing(None, self._automaton.start())

    def step(self, state: State, byte: int) -> Crossing | None:
        inside, crossed = _crossing(state)
        reached = self._automaton.read(crossed, byte)[0]
        if inside is not None:
            reached |= {one for one, _ in self._automaton.begun(inside, byte)}
            at_tokens = self._automaton.parts[inside.section].at_tokens
            inside = None if at_tokens else self._automaton.inside(inside, byte)
        return None if inside is None and not reached else Crossing(inside, reached)

    def accepts(self, state: State) -> bool:
        return True  # a token may end anywhere

    def byte_classes(self) -> NDArray[np.uint8] | None:
        return self._automaton.byte_classes()


def _crossing(state: State) -> Crossing:
    return state  # type: ignore[return-value]


def _configs(state: State) -> States:
    return state  # type: ignore[return-value]


def _counts_tokens(part: SectionAutomaton) -> bool:
    """Whether a token border may change a configuration of a section. Free text with a budget of 0 is left at once."""
    if part.budget is not None and (part.budget > 0 or part.restricts):
        return True
    return part.automaton is not None and (part.automaton.counts_tokens or part.automaton.forces_ends)


def _shortest(texts: Iterable[bytes]) -> bytes | None:
    """The shortest text, of equally long ones the first in the order of bytes."""
    return min(texts, key=lambda text: (len(text), text), default=None)
