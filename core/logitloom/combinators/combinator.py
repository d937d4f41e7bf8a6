"""Base class of combinators: processors that apply others to parts of a text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import state as rows
from logitloom.backend import Array
from logitloom.combinators.inner import Inner, Permission
from logitloom.combinators.place import Place, Plan
from logitloom.combinators.section import Section
from logitloom.combinators.watcher import Watched, check_strings
from logitloom.context import Context
from logitloom.errors import IllegalToken, NeedsNotMet
from logitloom.hookspecs import TextEnd
from logitloom.masks.mask_row import MaskRow
from logitloom.processor import Processor
from logitloom.vocabulary import Vocabulary

__all__ = ["Combinator", "CombinatorState"]

#: Forced runs are told this far ahead.
_LONGEST_RUN = 512


class CombinatorState(NamedTuple):
    """State of a combinator: a row tree.

    Attributes:
        places: ``[rows, 5 + words] int32``: section, mode, node of the watcher, tokens spent, bytes that the last
            character lacks, and bits for the exits that were begun.
        inners: the states of the inner processors, one per section that has some. Where they are not in force, their
            first state.
        first: their first states, for the next time that the section begins.
    """

    places: Array
    inners: tuple[Any, ...]
    first: tuple[Any, ...]


class Combinator(Processor):
    """A processor made of sections; derive from it and implement :meth:`sections`.

    Strings that end a section are found in generated text only, also across tokens, and end where a token ends: a
    token that would run over the end is forbidden. What follows starts with a token of its own, so an inner processor
    gets exactly the tokens of its part, and no part of a token.

    In a section ruled by a constraint (one that may forbid a text to end), a string may begin only where a token
    begins and where the constraint would allow the text to end; there it is allowed besides. It may not occur anywhere
    else, so its first occurrence is always the end of the section.
    """

    stage = "constraint"
    compilable = False

    def __post_init__(self) -> None:
        super().__post_init__()
        sections = tuple(self.sections())
        for section in sections:
            check_strings([Watched(e.string.encode(), e.at_start) for e in section.exits], self.name)
        self.__dict__["_sections"] = sections
        self.__dict__["_inners"] = tuple(s.inner for s in sections if s.inner is not None)
        places = [i for i, section in enumerate(sections) if section.inner is not None]
        self.__dict__["_place_of_inner"] = {section: k for k, section in enumerate(places)}
        self.__dict__["_plans"] = {}
        self.__dict__["_lock"] = threading.Lock()

    @property
    def name(self) -> str:
        """The name of the processor, for messages."""
        return type(self).__name__.lower()

    def sections(self) -> Sequence[Section]:
        """The sections; called once, when the processor is made.

        Raises:
            LogitloomError: if the options make no sense together.
        """
        raise NotImplementedError(f"{type(self).__name__} must define sections().")

    def first_sections(self, context: Context) -> list[int]:
        """The section that each row begins with."""
        return [0] * context.batch

    # -- declarations --------------------------------------------------------------------------------------

    def _inner_declared(self, name: str) -> list[Any]:
        return [value for inner in self.__dict__["_inners"] for value in inner.declared(name)]

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """A vocabulary, and what the inner processors need."""
        return frozenset({"vocabulary"}).union(*self._inner_declared("needs"))

    @property
    def mask_only(self) -> bool:  # type: ignore[override]
        """Whether the inner processors only mask, too."""
        return all(self._inner_declared("mask_only"))

    @property
    def preserves_masked(self) -> bool:  # type: ignore[override]
        """Whether the inner processors keep what is forbidden."""
        pairs = zip(self._inner_declared("mask_only"), self._inner_declared("preserves_masked"), strict=True)
        return all(masks or keeps for masks, keeps in pairs)

    @property
    def shift_invariant(self) -> bool:  # type: ignore[override]
        """Whether the inner processors are so."""
        return all(self._inner_declared("shift_invariant"))

    # -- hooks ---------------------------------------------------------------------------------------------

    def init_state(self, context: Context) -> CombinatorState:
        """Check that the vocabulary can write the strings, and start the inner processors."""
        plan = self._plan(context)
        begun = [plan.start(row, section) for row, section in enumerate(self.first_sections(context))]
        first = tuple(inner.init_state(context) for inner in self.__dict__["_inners"])
        return CombinatorState(self._packed(begun, plan, context), first, first)

    def process(self, logits: Array, state: CombinatorState, context: Context) -> tuple[Array, CombinatorState]:
        """Move each row by its tokens, forbid what its section forbids, and let the inner processors do their part."""
        plan = self._plan(context)
        places = self._walked(plan, state, context)
        masks: list[MaskRow | None] = []
        exempt: list[list[int]] = []
        permissions = self._permissions(plan, places, state, context)
        for place in places:
            mask, spared = plan.mask(place, permissions.get(place.row))
            masks.append(mask)
            exempt.append(spared)
        if any(mask is not None for mask in masks):
            nothing = _nothing(context.vocab_size)
            given, logits = (
                logits,
                context.backend.apply_token_rows(logits, [mask or nothing for mask in masks], context.donate),
            )
            if logits is not given:
                context = context.with_fields(donate=True)
        context = context.with_fields(donate_state=False)
        inners = []
        for k, inner in enumerate(self.__dict__["_inners"]):
            ruled = [place for place in places if plan.rules(place) and self._inner_of(place) == k]
            logits, new, context = self._run(inner, k, ruled, exempt, logits, state, context)
            inners.append(new)
        if context.tokens is not None:
            state = CombinatorState(self._packed(places, plan, context), tuple(inners), state.first)
        return logits, state

    def forced_tokens(self, state: CombinatorState, context: Context) -> list[list[int]] | None:
        """Per row the tokens that must come next: tags, the end of a budget, and what the inner processors force."""
        plan = self._plan(context)
        places = self._walked(plan, state, context)
        return [self._forced(plan, place, state, context) for place in places]

    def text_end(self, state: CombinatorState, context: Context) -> list[TextEnd] | None:
        """Per row where the inner processor in force ends the text; ``None`` if none of them ends texts."""
        plan = self._plan(context)
        places = self._walked(plan, state, context)
        found: list[TextEnd] | None = None
        for k, inner in enumerate(self.__dict__["_inners"]):
            ruled = [place for place in places if plan.rules(place) and self._inner_of(place) == k]
            if not ruled:
                continue
            ends = inner.text_ends(*self._fed(k, ruled, state, context))
            if ends is not None:
                found = found or [TextEnd(False, 0)] * len(places)
                for place, end in zip(ruled, ends, strict=True):
                    found[place.row] = end
        return found

    # -- parts of a step -------------------------------------------------------------------------------------

    def _plan(self, context: Context) -> Plan:
        plans: dict[tuple[Vocabulary | None, int], Plan] = self.__dict__["_plans"]
        key = (context.vocabulary, context.vocab_size)
        plan = plans.get(key)
        if plan is None:
            if context.vocabulary is None:
                raise NeedsNotMet(
                    f"Processor {self.name!r} needs a vocabulary: load the chain with tokenizer=..., or give the "
                    f"context one."
                )
            with self.__dict__["_lock"]:
                plan = plans.setdefault(key, Plan(self.__dict__["_sections"], context, self.name))
        return plan

    def _inner_of(self, place: Place) -> int:
        k: int = self.__dict__["_place_of_inner"].get(place.section, -1)
        return k

    def _packed(self, places: Sequence[Place], plan: Plan, context: Context) -> Array:
        width = 5 + plan.words
        packed = [place.packed(plan.words) for place in places]
        return context.backend.asarray(np.asarray(packed, dtype=np.int32).reshape(len(packed), width))

    def _walked(self, plan: Plan, state: CombinatorState, context: Context) -> list[Place]:
        """The places of all rows after the context's tokens."""
        host = context.backend.to_numpy(state.places).tolist()
        places = [Place(row, packed) for row, packed in enumerate(host)]
        if context.tokens is None:
            return places
        permission = self._asking(state, context)
        for place, tokens in zip(places, context.backend.to_numpy(context.tokens).tolist(), strict=True):
            for token in tokens:
                if token >= 0:
                    plan.take(place, token, permission)
        return places

    def _asking(self, state: CombinatorState, context: Context) -> Callable[[Place], Permission]:
        """What the inner processors of one row allow, asked only where it matters."""

        def permission(place: Place) -> Permission:
            k = self._inner_of(place)
            inner: Inner = self.__dict__["_inners"][k]
            return inner.permissions(*self._fed(k, [place], state, context))[0]

        return permission

    def _permissions(
        self, plan: Plan, places: Sequence[Place], state: CombinatorState, context: Context
    ) -> dict[int, Permission]:
        found: dict[int, Permission] = {}
        for k, inner in enumerate(self.__dict__["_inners"]):
            asking = [place for place in places if self._inner_of(place) == k and plan.asks(place)]
            if asking:
                told = self._naming_rows(asking, inner.permissions, *self._fed(k, asking, state, context))
                found.update(zip((place.row for place in asking), told, strict=True))
        return found

    def _fed(self, k: int, places: Sequence[Place], state: CombinatorState, context: Context) -> tuple[Any, Context]:
        """The states of one inner for some rows, and the context with the tokens that they have not seen."""
        count = int(state.places.shape[0])
        here = [place.row for place in places]
        everyone = here == list(range(count))
        if not any(place.entered for place in places):
            inner = state.inners[k] if everyone else rows.take(state.inners[k], here)
        elif all(place.entered for place in places):
            inner = state.first[k] if everyone else rows.take(state.first[k], here)
        else:
            both = rows.concat([state.inners[k], state.first[k]])
            inner = rows.take(both, [place.row + count * place.entered for place in places])
        more = context.with_fields(tokens=None, donate_state=False, pool=None)
        if any(place.fed for place in places):
            more = more.accept([place.fed for place in places])
        return inner, more

    def _run(
        self,
        inner: Inner,
        k: int,
        ruled: Sequence[Place],
        exempt: Sequence[Sequence[int]],
        logits: Array,
        state: CombinatorState,
        context: Context,
    ) -> tuple[Array, Any, Context]:
        """Apply one inner to the rows that it rules; the others have its first state."""
        if not ruled:
            return logits, state.first[k], context
        count = int(logits.shape[0])
        before, fed = self._fed(k, ruled, state, context)
        spared = [exempt[place.row] for place in ruled]
        if len(ruled) == count:
            # No other inner has a row, so nobody goes on with these logits.
            processed, after = self._naming_rows(ruled, inner.process, logits, before, fed, spared)
            return processed, after, context
        backend = context.backend
        index = np.asarray([place.row for place in ruled], dtype=np.int32)
        part, fed = backend.take_rows(logits, index), fed.with_fields(donate=True)
        processed, after = self._naming_rows(ruled, inner.process, part, before, fed, spared)
        order = np.arange(count, dtype=np.int32)
        order[index] = count + np.arange(len(index), dtype=np.int32)
        logits = backend.take_rows(backend.concat_rows([logits, processed]), order)
        states = rows.take(rows.concat([state.first[k], after]), order)
        return logits, states, context.with_fields(donate=True)

    def _naming_rows(self, places: Sequence[Place], step: Callable[..., Any], *arguments: Any) -> Any:
        """Say of a row that an inner processor refuses which row of the batch it is."""
        try:
            return step(*arguments)
        except IllegalToken as error:
            row = places[error.row].row
            text = str(error).replace(f"row {error.row} ", f"row {row} ", 1)
            raise IllegalToken(f"Inside {self.name!r}: {text}", row=row) from error

    def _forced(self, plan: Plan, place: Place, state: CombinatorState, context: Context) -> list[int]:
        """The run of one row; its place moves along."""
        run: list[int] = []
        permission = self._asking(state, context)

        def taken(tokens: Iterable[int]) -> bool:
            """Add tokens to the run; whether the row can go on."""
            for token in tokens:
                plan.take(place, token, permission)
                run.append(token)
                if token in plan.eos:
                    return False
            return True

        while len(run) < _LONGEST_RUN:
            mask, spared = plan.mask(place, permission(place) if plan.asks(place) else None)
            if mask is not None and mask.allowed:
                if len(mask.ids) != 1 or not taken(mask.ids.tolist()):
                    break
                continue
            if not plan.rules(place) or spared:
                break
            section = place.section
            ahead = self._forced_inside(plan, place, state, context)
            if not ahead or not taken(ahead) or plan.watchers[section] is None:
                break
        return run

    def _forced_inside(self, plan: Plan, place: Place, state: CombinatorState, context: Context) -> list[int]:
        """What the inner processors of one row force, as far as it stays in the section."""
        k, section, watcher = self._inner_of(place), plan.sections[place.section], plan.watchers[place.section]
        inner: Inner = self.__dict__["_inners"][k]
        if watcher is not None and not watcher.at_borders:
            # The text may end anywhere, so nothing is forced.
            return []
        found = inner.forced_tokens(*self._fed(k, [place], state, context))
        run = found[0] if found else []
        if section.budget is not None:
            run = run[: max(section.budget - place.spent, 0)]
        if not section.may_end or watcher is not None:
            run = [token for token in run if token not in plan.eos]
        if watcher is not None:
            node = place.node
            for n, token in enumerate(run):
                node = watcher.dfa.walk(watcher.data(token), node)
                if node < 0:
                    return run[:n]
        return run


_NOTHING: dict[int, MaskRow] = {}


def _nothing(vocab: int) -> MaskRow:
    """A mask that forbids nothing."""
    found = _NOTHING.get(vocab)
    if found is None:
        empty: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        found = _NOTHING[vocab] = MaskRow(False, empty, vocab)
    return found
