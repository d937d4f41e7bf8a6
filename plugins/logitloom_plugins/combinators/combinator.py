"""Base class of combinators: processors that apply other processors to parts of a text."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np

from logitloom import MASK, Array, Context, Effect, Vocabulary, option
from logitloom.constraints import Constraint, ConstraintProcessor, LimitedProcessor, State
from logitloom.errors import IllegalToken, OptionError
from logitloom.generation.partial_values import ValueReader, value_reader_of
from logitloom.host.hookspecs import TextEnd
from logitloom.rows import tree as rows
from logitloom_plugins.combinators.combination import Combination
from logitloom_plugins.combinators.inner import Inner, plain_specs
from logitloom_plugins.combinators.section import Section
from logitloom_plugins.combinators.section_automaton import SectionAutomaton
from logitloom_plugins.combinators.token_steps import at_tokens
from logitloom_plugins.combinators.triggers import check_sizes, check_triggers

__all__ = ["Combinator", "CombinatorState"]


class CombinatorState(NamedTuple):
    """State of a combinator with inner processors that are not constraints: a row tree.

    Attributes:
        states: the states of the combination of the constraints.
        others: the states of the processors that are not constraints, one entry per section that has such processors.
            Rows outside the section have the initial state.
        first: the initial states of the other processors, for the next time that the section begins.
    """

    states: Any
    others: tuple[Any, ...]
    first: tuple[Any, ...]


class Combinator(LimitedProcessor):
    """A processor made of sections; derive from it and implement :meth:`sections`.

    The constraints of all sections form one exact constraint: a token is allowed if the whole text can still be
    completed after it. A section with restricting constraints ends with one of its exit strings, wherever its inner
    text may end. If the string could also belong to this text, both readings are followed. Other sections end with the
    first occurrence of an exit string. Exit strings are found in generated text only, also across token borders. A
    token may contain the end of one section and the beginning of the next.

    Inner processors that are not constraints run on the rows that are in their section. The combinator is then not a
    constraint itself, and a section is over as soon as a string that may end it is complete.
    """

    compilable = False
    #: Whether a forced string must be written with its longest tokens, so that loops can skip the model.
    forces_longest: ClassVar[bool] = False
    #: The names of the options that hold processors.
    inner_options: ClassVar[tuple[str, ...]] = ("inner", "then")

    def __post_init__(self) -> None:
        super().__post_init__()
        sections = tuple(self.sections())
        for section in sections:
            strings = [exit.string for exit in section.exits]
            check_sizes(strings, self.name)
            if section.budget != 0:
                check_triggers(strings, self.name)
        others = [i for i, section in enumerate(sections) if section.inner is not None and section.inner.others]
        self.__dict__.update(
            _sections=sections, _others=others, _skeleton=None, _is_included=False, _begins_later=False
        )
        if others:
            # The combinator is then not a constraint, so it does not have the hooks of a constraint.
            own = type(self)  # messages name the combinator
            named = type(
                own.__name__, (_SectionConstraints,), {"__module__": own.__module__, "__qualname__": own.__qualname__}
            )
            self.__dict__.update(constraint=None, states_after=None, _skeleton=named(self))

    @classmethod
    def plain_option(cls, name: str, value: Any) -> Any:
        """For documents of chains: the options of inner processors in plain data."""
        return plain_specs(value) if name in cls.inner_options else value

    @property
    def name(self) -> str:
        """The name of the processor, for messages."""
        return type(self).__name__.lower()

    def sections(self) -> Sequence[Section]:
        """The sections; called once, when the processor is made.

        Raises:
            LogitloomError: if the options contradict each other.
        """
        raise NotImplementedError(f"{type(self).__name__} must define sections().")

    @property
    def first_section(self) -> int:
        """The number of the section in which a text begins, as far as the options say."""
        return 0

    def first_sections(self, context: Context) -> list[int]:
        """The number of the first section of each row, which may depend on the prompt."""
        return [self.first_section] * context.batch

    def value_reader(self) -> ValueReader | None:
        """A reader of the value in the text so far, if one section has the whole text and one of its processors reads
        texts as values; else ``None``.
        """
        written = [
            one for one in self.__dict__["_sections"] if one.inner or one.exits or not (one.ends or one.budget == 0)
        ]
        inner = written[0].inner if len(written) == 1 and not written[0].exits and not written[0].follows else None
        readers = (value_reader_of(link.processor) for link in inner.links) if inner and not inner.written else ()
        return next((reader for reader in readers if reader is not None), None)

    # -- declarations --------------------------------------------------------------------------------------

    def _inners(self) -> Iterator[Inner]:
        return (section.inner for section in self.__dict__["_sections"] if section.inner is not None)

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """A vocabulary, and what the inner processors need."""
        return frozenset({"vocabulary"}).union(
            *(link.declared("needs") for inner in self._inners() for link in inner.links)
        )

    @property
    def effect(self) -> Effect:  # type: ignore[override]
        """The effect of a mask, together with the effects of the inner processors."""
        return Effect.of([MASK, *(link.effect for inner in self._inners() for link in inner.links)])

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Check the combination of the constraints, and the inner processors that are none."""
        constraints: ConstraintProcessor | None = self.__dict__["_skeleton"]
        if constraints is None:
            super().check_vocabulary(vocabulary)
        else:
            constraints.check_vocabulary(vocabulary)

    def within_another(self, *, later: bool) -> Self:
        """The combinator for a section of an outer combinator, whose constraint includes the constraints of both.

        The outer combinator forbids all tokens that this combinator forbids, and only the outer combinator knows the
        token limit and which bytes belong to the string that ends its section. So the returned combinator has no limit
        and no mask. It only follows its text; the bytes of the outer string belong to none of its sections.

        Args:
            later: whether the section begins after generated text, so that the first section does not depend on the
                prompt.
        """
        found = copy.copy(self)
        skeleton = type(self.__dict__["_skeleton"])(found)
        found.__dict__.update(finish_within=0, _skeleton=skeleton, _is_included=True, _begins_later=later)
        return found

    # -- the combination of the constraints ------------------------------------------------------------------

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Combination:
        """The combination of all constraints. If an inner processor is not a constraint, this attribute is ``None``.

        Raises:
            LogitloomError: if tokens cannot write a string, or nothing satisfies all constraints of a section.
        """
        return self.combination(vocabulary, vocab_size)

    def combination(self, vocabulary: Vocabulary, vocab_size: int) -> Combination:
        """The combination of the inner processors that are constraints."""
        parts, constraints = [], []
        for section in self.__dict__["_sections"]:
            inner = None if section.inner is None else section.inner.constraint(vocabulary, vocab_size)
            automaton = None if inner is None else inner.automaton()
            part = SectionAutomaton(
                automaton=automaton,
                start=None if inner is None else section.inner.start(inner),
                written="" if inner is None else section.inner.written,
                restricts=inner is not None and inner.restricts,
                exits=tuple((exit.string.encode(), exit.section) for exit in section.exits),
                at_start=tuple(exit.at_start for exit in section.exits),
                at_tokens=at_tokens(automaton),
                budget=section.budget,
                after=section.after,
                may_end=section.may_end,
                ends=section.ends,
                follows=section.follows,
            )
            if part.follows and part.at_tokens:
                raise OptionError(
                    f"{self.name!r} has a section that ends without a string, and an inner constraint that runs on a "
                    f"grammar engine, whose texts end only with a token. Put a string between the two sections."
                )
            parts.append(part)
            constraints.append(inner)
        decided = bool(self.__dict__["_others"])
        return Combination(
            parts, constraints, vocabulary, vocab_size,
            owner=self.name, decided=decided, first=self.first_section, longest=self.forces_longest,
        )  # fmt: skip

    def constraint_fingerprint(self, vocabulary: Vocabulary | None, vocab_size: int | None) -> tuple[int, bytes] | None:
        """The fingerprint of the combination; the options distinguish other inner processors."""
        skeleton: _SectionConstraints | None = self.__dict__["_skeleton"]
        if skeleton is None:
            return super().constraint_fingerprint(vocabulary, vocab_size)
        return skeleton.constraint_fingerprint(vocabulary, vocab_size)

    def start_states(self, constraint: Constraint, context: Context) -> Sequence[State]:
        """Per row the first section, and the state in which its inner constraint begins."""
        combination: Any = constraint
        later = self.__dict__["_begins_later"]
        first = [self.first_section] * context.batch if later else self.first_sections(context)
        inner: dict[int, Sequence[State]] = {}
        for section in set(first):
            own, within = combination.constraints[section], self.__dict__["_sections"][section].inner
            inner[section] = [None] * context.batch if own is None else within.start_states(own, context)
        return [combination.start_in(section, inner[section][row]) for row, section in enumerate(first)]

    def constraint_for(self, context: Context) -> Constraint:
        """The combination that a generation with this context uses."""
        skeleton: _SectionConstraints | None = self.__dict__["_skeleton"]
        return super().constraint_for(context) if skeleton is None else skeleton.constraint_for(context)

    def host_states(self, state: Any, context: Context) -> list[Any]:
        """Per row the combination's state after the accepted tokens."""
        skeleton: _SectionConstraints | None = self.__dict__["_skeleton"]
        if skeleton is None:
            return super().host_states(state, context)
        return skeleton.host_states(state.states, context)

    # -- hooks -----------------------------------------------------------------------------------------------

    def init_state(self, context: Context) -> Any:
        """The states of the combination, or a :class:`CombinatorState` if an inner processor is not a constraint."""
        skeleton = self.__dict__["_skeleton"]
        if skeleton is None:
            return super().init_state(context)
        inners = map(self._inner, self.__dict__["_others"])
        first, later = zip(*[inner.init_states(context) for inner in inners], strict=True)
        return CombinatorState(skeleton.init_state(context), first, later)

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """Advance each row by its tokens, apply the mask of the constraints, then apply the other processors."""
        skeleton = self.__dict__["_skeleton"]
        if skeleton is None:
            return super().process(logits, state, context)
        tracks = self._tracks(state, context)
        given = logits
        if self.__dict__["_is_included"]:
            states = skeleton.followed(state.states, context)
        else:
            logits, states = skeleton.process(logits, state.states, context.with_fields(donate_state=False, pool=None))
        context = context.with_fields(donate_state=False, donate=context.donate or logits is not given)
        others = []
        for k, section in enumerate(self.__dict__["_others"]):
            within = [track for track in tracks if track.section == section]
            logits, after, context = self._run(k, within, logits, state, context)
            others.append(after)
        if context.tokens is not None:
            state = CombinatorState(states, tuple(others), state.first)
        return logits, state

    def forced_tokens(self, state: Any, context: Context) -> list[list[int]] | None:
        """Per row the forced tokens: the tokens of forced strings and the forced tokens of the inner constraints."""
        skeleton = self.__dict__["_skeleton"]
        if skeleton is None:
            return super().forced_tokens(state, context)
        if not all(inner.keeps_last for inner in self._inners()):
            return None
        found: list[list[int]] | None = skeleton.forced_tokens(state.states, context)
        return found

    def text_end(self, state: Any, context: Context) -> list[TextEnd] | None:
        """Per row where the processors of the row's section end the text; ``None`` if no processor ends texts."""
        skeleton = self.__dict__["_skeleton"]
        if skeleton is None:
            return super().text_end(state, context)
        found: list[TextEnd] | None = skeleton.text_end(state.states, context)
        tracks = self._tracks(state, context)
        for k, section in enumerate(self.__dict__["_others"]):
            within = [track for track in tracks if track.section == section]
            ends = self._inner(section).text_ends(*self._fed(k, within, state, context)) if within else None
            if ends is not None:
                found = found or [TextEnd(False, 0)] * len(tracks)
                for track, end in zip(within, ends, strict=True):
                    found[track.row] = max(found[track.row], end)
        return found

    # -- processors that are not constraints -------------------------------------------------------------------

    def _inner(self, section: int) -> Inner:
        inner: Inner = self.__dict__["_sections"][section].inner
        return inner

    def _tracks(self, state: CombinatorState, context: Context) -> list[_Track]:
        """The section of each row after ``context.tokens``."""
        memory = self.__dict__["_skeleton"].memory(context)
        combination: Combination = memory.constraint
        rows = self.__dict__["_skeleton"].host_states(state.states, context.with_fields(tokens=None))
        tokens = [[]] * len(rows) if context.tokens is None else context.backend.to_numpy(context.tokens).tolist()
        tracks = []
        for row, (states, taken) in enumerate(zip(rows, tokens, strict=True)):
            track = _Track(row, _NO_SECTION if states is memory.dead else _section_of(states))
            for token in taken:
                if token < 0:
                    continue
                after = memory.advance(states, token)
                if after is memory.dead:
                    # Within another combinator the token belongs to the string that ends the section; elsewhere the
                    # combination raises the error for this row.
                    track = _Track(row, _NO_SECTION)
                    break
                moved: bool | None = False
                if token not in combination.vocabulary.eos and states is not memory.finished:
                    moved = combination.read(states, token)[1]
                section = _section_of(after)
                if moved is not False or section != track.section:
                    rest = combination.rest_within(states, token) if moved else b""
                    track = _Track(row, section, True, self._first_tokens(section, token, rest, combination.vocabulary))
                else:
                    track.fed.append(token)
                states = after
            tracks.append(track)
        return tracks

    def _first_tokens(self, section: int, token: int, rest: bytes, vocabulary: Vocabulary) -> list[int]:
        """The tokens that the other processors of a section see for a token in which the section begins.

        If a processor is a combinator, these are tokens that write ``rest``, else the token itself.
        """
        if not rest or section not in self.__dict__["_others"]:
            return []
        return self._inner(section).first_tokens(token, rest, vocabulary)

    def _fed(self, k: int, tracks: Sequence[_Track], state: CombinatorState, context: Context) -> tuple[Any, Context]:
        """The states of one section's other processors for some rows, and the context with the tokens new to them."""
        before = [state.first[k] if track.entered else state.others[k] for track in tracks]
        inner = rows.concat([rows.take(one, [track.row]) for one, track in zip(before, tracks, strict=True)])
        more = context.with_fields(tokens=None, donate_state=False, pool=None)
        return inner, more.accept([track.fed for track in tracks]) if any(track.fed for track in tracks) else more

    def _run(
        self, k: int, within: Sequence[_Track], logits: Array, state: CombinatorState, context: Context
    ) -> tuple[Array, Any, Context]:
        """Apply the other processors of one section to the rows in it; rows outside it keep the initial state."""
        if not within:
            return logits, state.first[k], context
        backend, count = context.backend, int(logits.shape[0])
        before, fed = self._fed(k, within, state, context)
        index = np.asarray([track.row for track in within], dtype=np.int32)
        part = backend.take_rows(logits, index)
        try:
            inner = self._inner(self.__dict__["_others"][k])
            processed, after = inner.process(part, before, fed.with_fields(donate=True))
        except IllegalToken as error:
            row = within[error.row].row
            text = str(error).replace(f"row {error.row} ", f"row {row} ", 1)
            raise IllegalToken(f"Inside {self.name!r}: {text}", row=row) from error
        order = np.arange(count, dtype=np.int32)
        order[index] = count + np.arange(len(index), dtype=np.int32)
        logits = backend.take_rows(backend.concat_rows([logits, processed]), order)
        after = rows.take(rows.concat([state.first[k], after]), order)
        return logits, after, context.with_fields(donate=True)


class _Track:
    """The section of one row, whether the new tokens entered the section, and the new tokens that belong to it."""

    __slots__ = ("entered", "fed", "row", "section")

    def __init__(self, row: int, section: int, entered: bool = False, fed: Sequence[int] = ()) -> None:
        self.row, self.section, self.entered, self.fed = row, section, entered, list(fed)


@dataclass(frozen=True)
class _SectionConstraints(ConstraintProcessor):
    """The constraints of a combinator that also has inner processors that are not constraints."""

    owner: Any = option(help="The combinator.")

    @property
    def finish_within(self) -> int | None:  # type: ignore[override]
        """The option of the combinator."""
        found: int | None = self.owner.finish_within
        return found

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        combination: Constraint = self.owner.combination(vocabulary, vocab_size)
        return combination

    def start_states(self, constraint: Constraint, context: Context) -> Sequence[State]:
        states: Sequence[State] = self.owner.start_states(constraint, context)
        return states

    def followed(self, state: Any, context: Context) -> Any:
        """The states after the accepted tokens, of which some may not be allowed, without a mask."""
        if context.tokens is None:
            return state
        return self._packed(self.host_states(state, context), self.memory(context), context.backend)


#: Instead of the number of a section, for rows whose text is no longer that of the combinator.
_NO_SECTION: Final = -1


def _section_of(state: Any) -> int:
    """The section of a text: the lowest section number of its configurations."""
    section: int = min(config.section for config in state)
    return section
