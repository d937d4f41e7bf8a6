"""The states of a text, and the kinds of moves between them: typed, immutable values.

A state says what may come next. Equal states mean the same in every process with an equal schema, because their parts
do. Each kind of state has a field that names the kind, so that states of different kinds are never equal.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame
from logitloom_plugins.json_schema.grammar.contexts import NumberContext, StringContext
from logitloom_plugins.json_schema.grammar.keys import Label
from logitloom_plugins.json_schema.grammar.layout import COMPACT, Layout, settled
from logitloom_plugins.json_schema.grammar.members import TruthVector, ValueConstraint
from logitloom_plugins.json_schema.grammar.names import Linked, Name
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame

__all__ = [
    "DONE",
    "ArrayState",
    "ColonState",
    "DoneState",
    "EndsName",
    "Enters",
    "EscapeState",
    "GapState",
    "Leaves",
    "LiteralState",
    "Move",
    "NumberState",
    "ObjectState",
    "Opened",
    "Reads",
    "Return",
    "Stack",
    "State",
    "StructureState",
    "TextState",
    "ValueState",
    "compacted",
    "found_layout",
    "laid_out",
    "state_in",
    "without_gap",
]


class Return(Name):
    """Continuation of a text after an open string, object or array: a state for each accepted truth vector.

    The parts of the name are ``"return"`` and pairs of a truth vector and a state.

    Attributes:
        states: by truth vector the state.
    """

    def __init__(self, parts: tuple[object, ...], states: dict[TruthVector, State]) -> None:
        self.states = states


class ValueState(NamedTuple):
    """A value is to come.

    Attributes:
        demand: the constraint on the value.
        back: where the text goes on after the value.
        layout: of the text around the value, and the whitespace read before the value.
        gap: the kind of gap before the value: ``none``, ``colon`` or ``comma``.
    """

    demand: ValueConstraint
    back: Return
    layout: Layout
    gap: str
    kind: Literal["value"] = "value"


class NumberState(NamedTuple):
    """A number has begun.

    Attributes:
        numbers: the numbers that may come.
        content_state: state of their automaton.
        back: where the text goes on after the number.
    """

    numbers: NumberContext
    content_state: int
    back: Return
    kind: Literal["number"] = "number"


class LiteralState(NamedTuple):
    """``null``, ``false`` or ``true`` has begun.

    Attributes:
        rest: the rest of the literal.
        target: the state after the literal.
    """

    rest: bytes
    target: State
    kind: Literal["literal"] = "literal"


class ObjectState(NamedTuple):
    """An object is open, between two of its members.

    Attributes:
        frame: the members so far.
        phase: ``open`` after the bracket, ``next`` after a member, ``comma`` after a comma.
        layout: of the text within the object, and the whitespace read here.
    """

    frame: ObjectFrame
    phase: str
    layout: Layout
    kind: Literal["object"] = "object"


class ColonState(NamedTuple):
    """The name of a member has ended.

    Attributes:
        frame: the object without the member.
        label: the label of the name.
        layout: of the text within the object, and the whitespace read here.
    """

    frame: ObjectFrame
    label: Label
    layout: Layout
    kind: Literal["colon"] = "colon"


class ArrayState(NamedTuple):
    """An array is open, between two of its items; the fields are those of :class:`ObjectState`."""

    frame: ArrayFrame
    phase: str
    layout: Layout
    kind: Literal["array"] = "array"


class GapState(NamedTuple):
    """Whitespace of any kind has been read in a gap.

    Attributes:
        before: the state before the gap.
        read: the number of characters of whitespace.
    """

    before: GapBase
    read: int
    kind: Literal["gap"] = "gap"


class TextState(NamedTuple):
    """A string is open, between two characters or within the bytes of a character.

    Attributes:
        context: the strings that may come.
        content_state: state of the automaton of their content.
        characters: the number of characters; above the last bound on the length, that bound.
    """

    context: StringContext
    content_state: int
    characters: int
    kind: Literal["text"] = "text"


class EscapeState(NamedTuple):
    """An escape has begun in a string.

    Attributes:
        context, content_state, characters: of the string before the escape.
        written: what has been read of the escape, with digits in lower case.
    """

    context: StringContext
    content_state: int
    characters: int
    written: str
    kind: Literal["escape"] = "escape"


class DoneState(NamedTuple):
    """The whole value has ended."""

    kind: Literal["done"] = "done"


#: States that whitespace can follow.
GapBase = ValueState | ObjectState | ColonState | ArrayState
State = (
    ValueState
    | NumberState
    | LiteralState
    | ObjectState
    | ColonState
    | ArrayState
    | GapState
    | TextState
    | EscapeState
    | DoneState
)
DONE: Final = DoneState()
#: Layouts that are found in a text that was begun in another layout: by the first comma or colon in the text.
_FOUND: Final = frozenset(("compact", "spaced"))


class Opened(NamedTuple):
    """The entry of a stack for an open string, object or array.

    Attributes:
        back: where the text goes on after the string, object or array.
        names: the undeclared names that have come in an object and must not come again; empty in other cases.
    """

    back: Return
    names: frozenset[str]


#: The open strings, objects and arrays of a text, the innermost last.
Stack = Linked[Opened] | None


class Reads(NamedTuple):
    """One of some bytes leads to a state."""

    read: bytes
    target: State


class Enters(NamedTuple):
    """One of some bytes begins a string, an object or an array. After its end the text goes on at the return."""

    read: bytes
    back: Return
    target: State


class Leaves(NamedTuple):
    """One of some bytes ends a string, an object or an array.

    Attributes:
        read: the bytes.
        truth: the truth vector of the string, object or array.
        layout: the name of the layout of the text, if the string, object or array has decided it; else empty.
    """

    read: bytes
    truth: TruthVector
    layout: str = ""


class EndsName(NamedTuple):
    """One of some bytes ends the name of a member that must not come twice in its object."""

    read: bytes
    target: ColonState


Move = Reads | Enters | Leaves | EndsName
#: States outside strings.
StructureState = ValueState | NumberState | LiteralState | ObjectState | ColonState | ArrayState | GapState | DoneState


def found_layout(layout: Layout) -> str:
    """The name of a layout that a comma or colon decides; empty for others."""
    return layout.name if layout.name in _FOUND else ""


def laid_out(state: State, layout: str) -> State:
    """A state after a value in which the layout of the text was found."""
    if isinstance(state, ObjectState | ArrayState) and state.layout.name == "flat":
        return state._replace(layout=state.layout._replace(name=layout))
    return state


def compacted(state: State) -> State:
    """The state in a text without whitespace, if a value begins there or has just begun."""
    return state._replace(layout=COMPACT) if isinstance(state, ValueState | ObjectState | ArrayState) else state


def without_gap(state: State) -> State:
    """The state without whitespace that may be left out, in the layout with which a short completion goes on."""
    if isinstance(state, GapState):
        state = state.before
    if isinstance(state, ValueState | ObjectState | ColonState | ArrayState):
        layout = settled(state.layout)
        return state if layout is state.layout else state._replace(layout=layout)
    return state


def state_in(frame: ObjectFrame | ArrayFrame, phase: str, layout: Layout) -> ObjectState | ArrayState:
    """The state in an open object or array."""
    if isinstance(frame, ObjectFrame):
        return ObjectState(frame, phase, layout)
    return ArrayState(frame, phase, layout)
