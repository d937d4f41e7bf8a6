"""The completions of positions: the text of the state, and the texts of what is open around it.

A completion is a function of the position alone. After the first bytes of a completion have been written, the rest is
the completion of the new position. So the number of tokens of a completion is a bound that decreases while the
completion is written. A completion is a shortest text in bytes with four exceptions: an object without alternatives is
written with exactly its required members; strings prefer characters that need no escape; strings with bounds on their
length have the fewest characters; and items that must be different are chosen one after another.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Final

from logitloom_plugins.json_schema.folds.completion.chosen_names import can_be_chosen
from logitloom_plugins.json_schema.folds.completion.completion_memory import (
    ENTRY,
    NOTHING,
    CompletionMemory,
    Jump,
    Taken,
    Texts,
)
from logitloom_plugins.json_schema.folds.completion.different_items import DifferentItems, Item, items_before
from logitloom_plugins.json_schema.folds.completion.local_texts import LocalTexts, Specialised
from logitloom_plugins.json_schema.folds.completion.member_texts import container_jumps
from logitloom_plugins.json_schema.folds.completion.part_texts import PartTexts
from logitloom_plugins.json_schema.folds.completion.required_texts import bytes_from
from logitloom_plugins.json_schema.folds.completion.short_contents import Canonical
from logitloom_plugins.json_schema.folds.completion.string_texts import escape_jumps, number_jumps, text_jumps
from logitloom_plugins.json_schema.folds.completion.value_texts import colon_jumps, value_jumps
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.folds.value_reader import OUTSIDE
from logitloom_plugins.json_schema.grammar.contexts import NameContext
from logitloom_plugins.json_schema.grammar.layout import FLEXIBLE, Layout, relaid_within, settled, string_end
from logitloom_plugins.json_schema.grammar.members import TruthVector
from logitloom_plugins.json_schema.grammar.states import (
    ArrayState,
    ColonState,
    EscapeState,
    LiteralState,
    NumberState,
    ObjectState,
    Stack,
    State,
    TextState,
    ValueState,
)

__all__ = ["SPECIALISED", "Completions"]

#: The most bytes of the memory, estimated.
_MOST_REMEMBERED: Final = 1 << 24
#: The work of a position, and of a byte of a completion. A byte is written, laid out, and counted in tokens.
_POSITION: Final = 100
_WRITTEN: Final = 2
#: The truth vectors of the whole value.
_WHOLE: Final[Collection[TruthVector]] = ((),)

#: For each type of state the function that finds the jumps of such states. For other types the moves are searched.
SPECIALISED: Final[Mapping[type[State], Specialised]] = {
    ArrayState: container_jumps,
    EscapeState: escape_jumps,
    NumberState: number_jumps,
    ObjectState: container_jumps,
    TextState: text_jumps,
    ValueState: value_jumps,
    ColonState: colon_jumps,
}


class Completions:
    """The completions of the positions of one machine.

    Args:
        machine: the pushdown automaton of the schema.
        specialised: for each type of state the function that finds the jumps of such states.

    Attributes:
        memory: the texts that completions are made from. Too many texts clear the memory, which changes no result.
        parts: texts of parts of the schema.
    """

    def __init__(self, machine: Machine, specialised: Mapping[type[State], Specialised] = SPECIALISED) -> None:
        self._machine = machine
        self.memory = CompletionMemory()
        strings = machine.codes.strings.moves
        self._texts = LocalTexts(machine.grammar, strings, self.memory, specialised, bytes_from)
        self.parts = PartTexts(self._texts)
        self._different = DifferentItems(machine, self._texts, self._complete)
        self._forget()

    def _forget(self) -> None:
        self.memory.clear()
        self._of_position: dict[Position, bytes | None] = {}
        self._of_stack: dict[tuple[Stack, TruthVector, tuple[Canonical, ...]], bytes | None] = {}
        #: Texts with the whitespace of a layout, and the layouts after them, by text, layout and gap.
        self._relaid: dict[tuple[bytes, Layout, str], tuple[bytes, Layout]] = {}

    @property
    def work(self) -> int:
        """The work for positions since :meth:`begin_counting`, as the memory counts it."""
        return self.memory.work

    @work.setter
    def work(self, work: int) -> None:
        self.memory.work = work

    def begin_counting(self) -> None:
        """Count the work from here on. The count does not depend on what is remembered."""
        self.memory.begin_counting()
        self._of_position.clear()
        self._of_stack.clear()

    def items_matter(self, position: Position) -> bool:
        """Whether items that must not come again make a difference to the completion of a position."""
        return self._different.matter(position)

    def alike_items(self, position: Position) -> Hashable | None:
        """A key: equal for positions of one state only if their completions are equal; ``None`` if not known.

        If there is a key, the characters of an unfinished string make no difference.
        """
        return self._different.alike(position)

    def without_items(self, position: Position) -> Position:
        """A position with the same completion, without the items so far if these make no difference."""
        return (
            position._replace(items=OUTSIDE) if position.items.frame and not self.items_matter(position) else position
        )

    def name_matters(self, position: Position) -> bool:
        """Whether the bytes of an unfinished name that must not come twice make a difference to its completion.

        If not, the completion is that of any such position with the same state.
        """
        state = self._machine.states[position.state]
        if not isinstance(state, TextState | EscapeState) or not isinstance(state.context, NameContext):
            return False
        names = frozenset[str]() if position.stack is None else position.stack.entry.names
        return can_be_chosen(self._texts, state.context, names, position.written)

    def of(self, position: Position) -> bytes | None:
        """A short text after which the whole value is complete; ``None`` if a bounded search finds none.

        Raises:
            WorkSpent: as :class:`.CompletionMemory` says.
        """
        if self.memory.remembered > _MOST_REMEMBERED:
            self._forget()
        position = self.without_items(position)
        if position not in self._of_position:
            memory = self.memory
            if position.items.frame:
                found, work = self._different.complete(position)
                memory.work += work
            else:
                found = self._complete(position)
            memory.spend(_POSITION + _WRITTEN * len(found or b""))
            self._of_position[position] = found
            memory.remembered += ENTRY + len(found or b"")
        return self._of_position[position]

    def _complete(self, position: Position, item: Item | None = None) -> bytes | None:
        """The completion of a position, with the given end of the current item, if any. Items may repeat."""
        number, stack, written, before = position
        items = items_before(self._machine, before)
        taken = Taken(frozenset() if stack is None else stack.entry.names, items, written)
        state = self._machine.states[number]
        wanted = _WHOLE if stack is None else stack.entry.back.states
        if item is None:
            texts = self._texts.of(state, wanted, taken)
        else:
            taken = taken._replace(items=(*items, item.value))
            texts = {item.truth: item.rest}
            if isinstance(state, NumberState):
                following = state.back.states[item.truth]
                texts = {truth: item.rest + rest for truth, rest in self._texts.of(following, wanted, taken).items()}
        found = self._joined(texts, stack, taken.items)
        if found is None:
            return None
        text, rest = found
        if self._machine.whitespace.start.name == FLEXIBLE:
            return text + rest
        begun = 0
        if isinstance(state, TextState | EscapeState):
            # Inside a string the layout is that of the object or array around the string.
            layout = state.context.layout if isinstance(state.context, NameContext) else self._layout_around(stack)
            begun = string_end(text, int(isinstance(state, EscapeState) and state.written == "\\"))
        else:
            layout = self._layout_of(state)
        within, after = self._laid_out(text[begun:], settled(layout), _gap_of(state))
        return text[:begun] + within + self._laid_out(rest, after, "close")[0]

    def _laid_out(self, text: bytes, layout: Layout, gap: str) -> tuple[bytes, Layout]:
        """The result of :func:`.relaid_within`, remembered: what follows a string is in many completions."""
        key = text, layout, gap
        found = self._relaid.get(key)
        if found is None:
            found = self._relaid[key] = relaid_within(text, layout, gap)
            self.memory.remembered += ENTRY + 2 * len(text)
        return found

    def _joined(self, texts: Texts, stack: Stack, items: tuple[Canonical, ...]) -> tuple[bytes, bytes] | None:
        """Among texts by truth vector the text that is shortest together with its completion, and this completion."""
        if stack is None:
            return None if () not in texts else (texts[()], b"")
        states = stack.entry.back.states
        known = [(truth, text) for truth, text in texts.items() if truth in states]
        ways = self._texts.ways([Jump(text, states[truth], NOTHING, truth) for truth, text in known])
        found: dict[TruthVector, tuple[bytes, bytes]] = {}
        for way in ways:
            if way.state is None:
                return found[way.truth]
            rest = self._after(stack, way.truth, items)
            if rest is not None:
                found[way.truth] = way.text, rest
                ways.add(way.text, [Jump(rest, None, NOTHING, way.truth)])
        return None

    def _after(self, stack: Stack, truth: TruthVector, items: tuple[Canonical, ...]) -> bytes | None:
        """The completion after the innermost value on a stack has ended with a truth vector."""
        assert stack is not None
        key = stack, truth, items
        if key not in self._of_stack:
            target = stack.entry.back.states.get(truth)
            found = None
            if target is not None:
                names, wanted = frozenset[str](), _WHOLE
                if stack.before is not None:
                    names, wanted = stack.before.entry.names, stack.before.entry.back.states
                parts = self._joined(self._texts.of(target, wanted, Taken(names, items)), stack.before, items)
                found = None if parts is None else parts[0] + parts[1]
            self._of_stack[key] = found
        return self._of_stack[key]

    # --- layouts ---------------------------------------------------------------------------------------------------

    def _layout_around(self, stack: Stack) -> Layout:
        """The layout of a text after the innermost value on a stack."""
        assert stack is not None
        return self._layout_of(next(iter(stack.entry.back.states.values())))

    def _layout_of(self, state: State) -> Layout:
        """The layout of a text in a state outside strings."""
        if isinstance(state, ValueState | ObjectState | ColonState | ArrayState):
            return state.layout
        if isinstance(state, NumberState):
            return self._layout_of(next(iter(state.back.states.values())))
        if isinstance(state, LiteralState):
            return self._layout_of(state.target)
        return self._machine.whitespace.start


def _gap_of(state: State) -> str:
    """The kind of gap in which a state outside strings stands."""
    if isinstance(state, ValueState):
        return state.gap
    return state.phase if isinstance(state, ObjectState | ArrayState) and state.phase != "next" else "close"
