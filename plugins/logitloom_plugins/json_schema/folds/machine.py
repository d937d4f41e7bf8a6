"""The texts of a schema as a pushdown automaton over bytes, made state by state as texts visit it.

A state has a code for each byte. A code has one of three meanings:

- the byte leads to another state;
- the byte begins a string, an object or an array: push a return, and go to the first state inside;
- the byte ends a string, an object or an array with a truth vector: pop the return.

A *return* holds for each accepted truth vector the state in which the text goes on. Every state can be completed, so no
text runs into a dead end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

from logitloom.automata import BudgetTracker
from logitloom_plugins.json_schema.folds.distinct_items import DistinctItems
from logitloom_plugins.json_schema.folds.text_reader import Position, TextReader
from logitloom_plugins.json_schema.folds.value_reader import ItemReader
from logitloom_plugins.json_schema.folds.visited_states import DEAD, NO_NAMES, STATE_BYTES, ByteCodes, Numbering
from logitloom_plugins.json_schema.grammar.layout import Whitespace
from logitloom_plugins.json_schema.grammar.moves import SchemaGrammar, may_end
from logitloom_plugins.json_schema.grammar.names import Linked, Name
from logitloom_plugins.json_schema.grammar.satisfiability import Satisfiability
from logitloom_plugins.json_schema.grammar.states import DONE, GapState

__all__ = ["DEAD", "NO_NAMES", "STATE_BYTES", "Machine", "accepts", "read"]

Part = TypeVar("Part")


class Machine:
    """The automaton of a schema.

    Args:
        values: which values satisfy the schema.
        whitespace: where whitespace may stand.
        escapes: how characters of strings may be written: ``any``, ``minimal`` or ``ascii``.

    Attributes:
        grammar: which moves states have.
        numbering: the visited states.
        codes: which bytes may come in the visited states.
        items: the values that texts have written in arrays whose items must all be different.
        reader: reads texts. The reader does not ask whether an array of different items can be completed.
        distinct: tells whether an array of different items can be completed.
        start: the number of the first state.
    """

    def __init__(self, values: Satisfiability, whitespace: Whitespace, escapes: str) -> None:
        self.values, self.keywords, self.root = values, values.keywords, values.root
        #: Held while states and rows are made. All texts of a schema share the states and rows; the first text that
        #: visits a state makes the state.
        self.lock = self.keywords.lock
        self.whitespace = whitespace
        self.grammar = SchemaGrammar(values, whitespace, escapes)
        self.numbering = Numbering(values.tracker)
        self.codes = ByteCodes(self.grammar, self.numbering)
        self.items = ItemReader()
        self.reader = TextReader(self.codes, self.numbering, self.items)
        self.distinct = DistinctItems(self.items, self.reader, self.codes, self.numbering)
        self.budget = values.tracker.budget
        self.states = self.numbering.states
        self.satisfiable = values.possible(self.root)
        self.numbering.number(DONE)
        self.start = self.numbering.number(self.grammar.start())

    @property
    def description(self) -> str:
        """The schema and the options, as text: equal for machines that accept the same texts by the same states."""
        keywords = self.keywords
        parts = [keywords.document.nodes[keywords.document.root].schema, *self.whitespace, self.grammar.escapes]
        parts += [keywords.formats, keywords.additional_properties, keywords.integers, sorted(keywords.repeatable)]
        return repr(parts)

    def fresh(self) -> Machine:
        """A machine of the same schema and options, whose states no text has visited.

        Raises:
            BudgetExceeded: if making the machine takes too long.
        """
        tracker = BudgetTracker(self.budget, "the schema")
        self.keywords.forget_unfinished()
        machine = Machine(Satisfiability(self.keywords, tracker), self.whitespace, self.grammar.escapes)
        tracker.stop_the_clock()
        return machine

    # --- states of other machines ------------------------------------------------------------------------------------

    def adopted(self, value: Part) -> Part:
        """A state or stack of another machine of the schema, with what this machine has made of the same names."""
        return cast("Part", self._adopted(value))

    def _adopted(self, value: object) -> object:
        if isinstance(value, Name):
            return self._adopted_name(value)
        if isinstance(value, Linked):
            found: Linked[Hashable] | None = None
            for entry in value.entries():
                found = Linked(self.adopted(entry), found)
            return found
        if isinstance(value, tuple):
            parts = [self._adopted(part) for part in value]
            make: Callable[..., object] = type(value)
            return make(*parts) if hasattr(value, "_fields") else tuple(parts)
        return value

    def _adopted_name(self, value: Name) -> object:
        kind, *parts = (self._adopted(part) for part in value.parts)
        grammar, values = self.grammar, self.values
        make: dict[object, Callable[..., Name]] = {
            "return": lambda *states: grammar.returning(dict(states)),
            "string": grammar.text_context,
            "name": grammar.name_context,
            "number": grammar.number_context,
            "object": values.object_plan,
            "array": values.array_plan,
        }
        return make[kind](*parts)

    def before_gap(self, state: int) -> int:
        """The state before the whitespace that was read; the given state itself if whitespace does not lead to it."""
        before = self.states[state] if state >= 0 else None
        return self.numbering.number(before.before) if isinstance(before, GapState) else state

    def accepting(self, state: int) -> bool:
        """Whether the text may end in a state, if nothing is open."""
        return may_end(self.states[state])

    # --- texts -----------------------------------------------------------------------------------------------------

    def read(self, reached: Position, text: bytes, can_end: bool = True) -> Position | None:
        """Read some bytes; ``None`` if they are not allowed.

        Args:
            reached: how far the text has been read.
            text: the bytes.
            can_end: whether to refuse bytes after which an array of different items cannot be completed. Otherwise
                only repeated items are refused.
        """
        following = self.reader.read(reached, text)
        if following is None or not can_end or not following.items.frame or self.distinct.has_completion(following):
            return following
        return None

    def may_repeat(self, position: Position) -> bool:
        """Whether a token may repeat an item or a name; after the states that a token leads to have been visited."""
        return bool(self.may_repeat_items(position) or self.numbering.tracked)

    def may_repeat_items(self, position: Position) -> bool:
        """Whether an array of different items is open, or a token may open one; visited as for :meth:`may_repeat`.

        A machine that has gone on with a text in the middle of an array has not visited the state that opens the array.
        """
        return bool(position.items.frame or self.numbering.opening)

    def ends(self, position: Position) -> bool:
        """Whether the text may end at a position."""
        return position.stack is None and self.accepting(position.state)


def read(machine: Machine, data: bytes) -> Position | None:
    """The position after some bytes; ``None`` if no accepted text begins with them."""
    return machine.read(Position(machine.start), data)


def accepts(machine: Machine, text: str | bytes) -> bool:
    """Whether a text is the JSON text of a valid value."""
    if isinstance(text, str):
        try:
            text = text.encode()
        except UnicodeEncodeError:
            return False
    reached = read(machine, text)
    return reached is not None and machine.ends(reached)
