"""The processors inside a combinator: constraints and others, which start anew each time their section begins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final

from logitloom import Array, Chain, Context, Vocabulary, processors
from logitloom.arrays.backend import NEG_INF
from logitloom.chain.links import Link
from logitloom.constraints import Constraint, LongestTokens, State
from logitloom.errors import ChainIncomplete, NeedsNotMet, OptionError, StageOrderError
from logitloom.host.hookspecs import TextEnd
from logitloom.host.loading import at_place
from logitloom.host.registry import load_plugin
from logitloom_plugins.combinators.finish_within import FinishWithin
from logitloom_plugins.combinators.intersection import Intersection
from logitloom_plugins.combinators.token_steps import AtTokens, at_tokens
from logitloom_plugins.combinators.triggers import token_texts

__all__ = ["Inner", "SharedInners", "plain_specs", "specs_of"]

#: The most vocabularies and widths for which the constraints of a section are kept.
_MOST_KEPT: Final = 16


def specs_of(given: Any) -> list[Any]:
    """The processors that an option names, as :func:`logitloom.processors.load` takes them.

    Args:
        given: a name, ``[name, options]``, a table ``{use = name, options = {...}}``, a processor, a chain, or a list
            of these; empty or ``None`` for nothing.

    Example:
        >>> specs_of(["top_k", {"k": 5}]), specs_of(["typical_p", {"use": "top_k", "options": {"k": 5}}])
        ([('top_k', {'k': 5})], ['typical_p', ('top_k', {'k': 5})])
    """
    if given is None or (isinstance(given, (list, tuple)) and not given):
        return []
    if isinstance(given, Chain):
        return list(given.links)
    if isinstance(given, Mapping):
        if not isinstance(given.get("use"), str) or set(given) - {"use", "options"}:
            raise OptionError(
                f"A processor inside another is written as a table with 'use' (a name) and 'options': "
                f"{dict(given)!r:.100}."
            )
        return [(given["use"], given.get("options", {}))]
    if isinstance(given, (list, tuple)):
        pair = len(given) == 2 and isinstance(given[0], (str, type)) and isinstance(given[1], Mapping)
        if pair and "use" not in given[1]:
            return [(given[0], given[1])]
        return [spec for part in given for spec in specs_of(part)]
    return [given]


def plain_specs(given: Any) -> Any:
    """What :func:`specs_of` takes, with the options of each named processor in plain data, for documents of chains.

    Example:
        >>> plain_specs(["json", {"schema": {"const": None}}])
        ['json', {'schema': '{"const": null}'}]
    """
    if isinstance(given, Mapping) and isinstance(given.get("use"), str) and isinstance(given.get("options"), Mapping):
        return {**given, "options": _plain_options(given["use"], given["options"])}
    if not isinstance(given, (list, tuple)):
        return given
    [spec, *more] = specs_of(given) or [None]
    if not more and isinstance(spec, tuple) and isinstance(spec[0], str) and given[0] is spec[0]:
        return [spec[0], _plain_options(*spec)]
    return [plain_specs(part) for part in given]


def _plain_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    plain = getattr(load_plugin("processors", name), "plain_option", lambda option, value: value)
    return {option: plain(option, value) for option, value in options.items()}


class Inner:
    """The processors of one section of a combinator.

    A processor that implements the hook ``constraint`` is a constraint. The text of the section satisfies all
    constraints of the section. The other processors form a chain that runs on the rows that are in the section. This
    chain sees the prompt, and of the generated tokens only the tokens of its section. A combinator with processors
    that are not constraints is both.

    Args:
        given: as for :func:`specs_of`.
        owner: name of the combinator, for messages.
        option: the option of the combinator that the processors are given with, for messages; empty if the combinator
            makes them itself.
        written: a text that the constraints read before the section begins.

    Attributes:
        links: all processors.
        constraints: the processors that are constraints.
        others: the chain of the other processors, or ``None``.

    Raises:
        StageOrderError: for guidance, which must be first in the outermost chain.
        NeedsNotMet: for processors that must see every step.
        ChainIncomplete: if options are missing.
    """

    def __init__(self, given: Any, owner: str, option: str = "", *, written: str = "") -> None:
        self.owner, self.option, self.written = owner, option, written
        with self._at_option():
            links = [link for spec in specs_of(given) for link in _links_of(spec)]
        for link in links:
            if link.declared("stage") == "guidance" or link.declared("branches") > 1:
                raise StageOrderError(
                    f"Guidance cannot work inside {owner!r}: {link.label!r} mixes rows of logits, and has to do so at "
                    f"every step, before everything else. Put it first in the outermost chain."
                )
            if link.sees_every_step:
                raise NeedsNotMet(
                    f"{owner!r} runs processors in a part of the text only, but {link.label!r} must see every step of "
                    f"a sequence. Put it into the outermost chain."
                )
            if link.missing:
                raise ChainIncomplete(
                    f"Processor {link.label!r} inside {owner!r} misses options: {', '.join(link.missing)}. Give "
                    f"them with its name: [{link.label!r}, {{{link.missing[0]!r}: ...}}]."
                )
        self.links = tuple(links)
        self._found: dict[tuple[Vocabulary, int], list[Constraint]] = {}
        self._together: dict[tuple[Vocabulary, int], Constraint] = {}
        combined = [link for link in links if link.is_constraint or _combines(link.processor)]
        self.constraints = tuple(link.processor for link in combined)
        self._combined = tuple(combined)
        others = [link for link in links if not link.is_constraint]
        self.others = Chain([_within_another(link, later=False) for link in others]) if others else None
        combine = any(_combines(link.processor) for link in others)
        self._later = Chain([_within_another(link, later=True) for link in others]) if combine else self.others
        self._keeps = all(link.effect.keeps_forbidden for link in others)

    def _at_option(self) -> AbstractContextManager[None]:
        return at_place(f"Option {self.option!r} of {self.owner!r}") if self.option else nullcontext()

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint | None:
        """The intersection of all constraints of the section; ``None`` if there are none.

        Raises:
            LogitloomError: if the intersection is empty, or if it cannot be computed.
        """
        key = vocabulary, vocab_size
        together = self._together.get(key)
        if together is None and (found := self._each(*key)):
            together = found[0] if len(found) == 1 else self._intersection(found)
            self._together[key] = together
        return together

    def _intersection(self, found: list[Constraint]) -> Constraint:
        """The intersection of the constraints, in longest tokens if one of the processors asks for longest tokens.

        Raises:
            LogitloomError: if no text satisfies all constraints, or one of them cannot be combined with others.
        """
        for one, link in zip(found, self._combined, strict=True):
            if at_tokens(one.automaton()):
                raise OptionError(
                    f"Several constraints are in one part of {self.owner!r}, and {link.label!r} has no automaton over "
                    f"bytes, which is needed to find the texts that satisfy all. {self._remedy(link)}"
                )
        together = Intersection(found, self.owner)
        longest = any(_longest_tokens(each) or getattr(each, "forces_longest", False) for each in self.constraints)
        return LongestTokens(together) if longest else together

    def _remedy(self, link: Link) -> str:
        if getattr(link.processor, "finish_within", None):
            return (
                f"It counts tokens because of its option 'finish_within': leave the option out, or give it to "
                f"{self.owner!r}."
            )
        return f"Put {link.label!r} next to {self.owner!r} in the chain, or write them as one grammar."

    def _each(self, vocabulary: Vocabulary, vocab_size: int) -> list[Constraint]:
        key = vocabulary, vocab_size
        found = self._found.get(key)
        if found is None:
            found = [self._read_by_bytes(link, *key) for link in self._combined]
            if len(self._found) >= _MOST_KEPT:
                self._found.clear()
                self._together.clear()
            self._found[key] = found
        return found

    def _read_by_bytes(self, link: Link, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        processor = link.processor
        find = processor.combination if _combines(processor) else link.constraint
        with self._at_option(), at_place("Processor", link.label) if self.option else nullcontext():
            constraint: Constraint = find(vocabulary, vocab_size)
        if _longest_tokens(processor) and len(self.constraints) == 1:
            constraint = LongestTokens(constraint)
        tokens = getattr(processor, "finish_within", None)
        if tokens:
            try:
                constraint = FinishWithin(constraint, tokens)
            except ValueError as error:
                raise OptionError(f"Option 'finish_within' of {link.label}: {error}") from error
        return AtTokens(constraint) if constraint.automaton() is None else constraint

    def start(self, constraint: Constraint) -> State:
        """The state of the constraint at the start of the section: after the text ``written``.

        Raises:
            OptionError: if the constraint does not allow that text.
        """
        if not self.written:
            return constraint.start()
        texts = token_texts(constraint.vocabulary)
        pieces = texts.spelling(self.written.encode(), self.owner)
        state: State | None = constraint.start()
        position = 0
        while position < len(pieces) and state is not None:
            state = constraint.advance(state, texts.ids_of(pieces[position])[0])
            position += len(pieces[position])
        if state is None:
            raise OptionError(
                f"No text that {self.owner!r} allows begins with {self.written!r}. Give another beginning, or change "
                f"the constraint."
            )
        return state

    def start_states(self, constraint: Constraint, context: Context) -> Sequence[State]:
        """Per row the start state of the constraint in the first section of a text, which may depend on the prompt."""
        if self.written:
            return [self.start(constraint)] * context.batch
        columns: list[Sequence[State]] = []
        for processor, one in zip(
            self.constraints, self._each(constraint.vocabulary, constraint.vocab_size), strict=True
        ):
            starts: Any = getattr(processor, "start_states", None)
            if starts is None or at_tokens(one.automaton()):
                columns.append([one.start()] * context.batch)
            else:
                columns.append(starts(one, context))
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    # --- processors that are not constraints ----------------------------------------------------------------------

    def first_tokens(self, token: int, rest: bytes, vocabulary: Vocabulary) -> list[int]:
        """The tokens that the other processors see for a token in which the section begins.

        Args:
            token: the token.
            rest: the bytes of the token in the section.
            vocabulary: the tokens.

        Returns:
            The token; tokens that write the rest if a processor is a combinator, which reads the text of its tokens.
        """
        if not any(map(_combines, self.constraints)):
            return [token]
        texts, found = token_texts(vocabulary), list[int]()
        pieces = texts.spelling(rest, self.owner)
        while rest:
            piece = pieces[len(pieces) - len(rest)]
            found += texts.ids_of(piece)[:1]
            rest = rest[len(piece) :]
        return found

    def init_states(self, context: Context) -> tuple[Any, Any]:
        """The initial state of the other processors, and the one in which a section begins after generated text."""
        assert self.others is not None
        assert self._later is not None
        first = self.others.init_state(context)
        return first, first if self._later is self.others else self._later.init_state(context)

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """Apply the processors that are not constraints. Masked logits stay masked."""
        assert self.others is not None
        forbidden = None if self._keeps else logits == NEG_INF
        logits, state = self.others.process(logits, state, context)
        if forbidden is not None:
            logits = context.backend.masked_fill(logits, forbidden, NEG_INF)
        return logits, state

    @property
    def keeps_last(self) -> bool:
        """Whether the processors that are not constraints keep the last legal token of a row."""
        return self.others is None or all(link.effect.keeps_last for link in self.others.links)

    def text_ends(self, state: Any, context: Context) -> list[TextEnd] | None:
        """Where the processors that are not constraints end the text of each row; ``None`` if none of them does."""
        assert self.others is not None
        return self.others.text_ends(state, context)


class SharedInners:
    """The processors of the sections of one combinator: sections with equal processors share one :class:`Inner`.

    Such sections share the constraints, and the memory of the constraints.

    Args:
        owner: name of the combinator, for messages.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        #: By the processors as JSON, in which the identity of an object stands for data that JSON cannot write. The
        #: given processors are kept, too, so that no other object gets the same identity.
        self._made: dict[str, tuple[Any, Inner]] = {}

    def of(self, given: Any, *, written: str = "") -> Inner:
        """The processors, given as for :class:`Inner`, which are all constraints."""
        key = json.dumps([given, written], default=id)
        if key not in self._made:
            self._made[key] = given, Inner(given, self._owner, written=written)
        return self._made[key][1]


def _combines(processor: Any) -> bool:
    """Whether a processor is a combinator with processors that are not constraints."""
    return hasattr(processor, "within_another") and processor.constraint is None


def _longest_tokens(processor: Any) -> bool:
    """Whether a processor was asked to allow only the longest token where one text must come next."""
    return bool(getattr(processor, "longest_tokens", False))


def _within_another(link: Link, *, later: bool) -> Link:
    return replace(link, processor=link.processor.within_another(later=later)) if _combines(link.processor) else link


def _links_of(spec: Any) -> tuple[Link, ...]:
    return (spec,) if isinstance(spec, Link) else processors.load(spec).links
