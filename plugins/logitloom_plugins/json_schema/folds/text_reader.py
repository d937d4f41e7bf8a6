"""Reading a text byte by byte: the state after the text, the stack, the names and items that must not come twice."""

from __future__ import annotations

import json
from typing import NamedTuple

from logitloom_plugins.json_schema.folds.value_reader import OUTSIDE, ItemPosition, ItemReader, characters_of
from logitloom_plugins.json_schema.folds.visited_states import DEAD, NO_NAMES, ByteCodes, NameEnd, Numbering, Push
from logitloom_plugins.json_schema.grammar.contexts import NameContext
from logitloom_plugins.json_schema.grammar.names import Linked
from logitloom_plugins.json_schema.grammar.objects import counted
from logitloom_plugins.json_schema.grammar.states import ColonState, Opened, Stack, TextState

__all__ = ["Position", "TextReader"]


class Position(NamedTuple):
    """How far a text has been read.

    Attributes:
        state: the number of the state.
        stack: what is open.
        written: the bytes of an unfinished name that must not come twice.
        items: the items of open arrays whose items must be different.
    """

    state: int
    stack: Stack = None
    written: bytes = b""
    items: ItemPosition = OUTSIDE


class TextReader:
    """Reads texts of one grammar.

    Args:
        codes: the codes of the states.
        numbering: of the states.
        items: the values that texts have written.
    """

    def __init__(self, codes: ByteCodes, numbering: Numbering, items: ItemReader) -> None:
        self._codes = codes
        self._numbering = numbering
        self._items = items

    def applied(self, code: int, stack: Stack, written: bytes | None = None) -> tuple[int, Stack]:
        """State and stack after a code below ``DEAD``; the state is ``DEAD`` after a name that has come before.

        Args:
            code: the code of a byte that begins or ends a value.
            stack: the stack before the byte.
            written: the bytes between the quotes of a name that ends here; ``None`` if the name may come twice.
        """
        numbering = self._numbering
        operation = numbering.operations[-2 - code]
        if isinstance(operation, Push):
            key = operation.back, stack
            pushed = numbering.pushed.get(key)
            if pushed is None:
                pushed = numbering.pushed[key] = Linked(Opened(operation.back, NO_NAMES), stack)
            return operation.target, pushed
        assert stack is not None
        back, names = stack.entry
        if not isinstance(operation, NameEnd):
            return numbering.after(back, operation.truth, operation.layout), stack.before
        target = operation.target
        if names:
            state = numbering.states[target]
            assert isinstance(state, ColonState)
            left = counted(state.frame, state.label, names)
            target = target if left is state.frame else numbering.number(state._replace(frame=left))
        if written is not None:
            name = _name_of(written)
            if name in names:
                return DEAD, stack
            stack = Linked(Opened(back, names | {name}), stack.before)
        return target, stack

    def has_another_name(self, number: int, names: frozenset[str], written: bytes) -> bool:
        """Whether an unfinished name can become a name that has not come."""
        state = self._numbering.states[number]
        if isinstance(state, TextState) and isinstance(state.context, NameContext):
            begun, keys, mask = characters_of(written), state.context.keys, state.context.mask
            alike = [name for name in names if name.encode().startswith(begun) and keys.bit[keys.label(name)] & mask]
            return bool(keys.left(mask)[state.content_state] > len(alike))
        # Hexadecimal digits in lower case are enough: in upper case they write the same characters.
        row = self._codes.sparse_row(number) or {}
        codes = [(code, bytes([byte])) for byte, code in row.items() if byte not in b"ABCDEF"]
        return any(self.has_another_name(code, names, written + byte) for code, byte in codes)

    def read(self, reached: Position, text: bytes) -> Position | None:
        """Read some bytes; ``None`` if they are not allowed.

        An item of an array whose items must be different does not come twice. Whether such an array can still be
        completed is another question.

        Args:
            reached: how far the text has been read.
            text: the bytes.
        """
        state, stack, written, items = reached
        numbering, code_of, reader = self._numbering, self._codes.code, self._items
        states, codes, tracked, opening = numbering.states, self._codes.codes, numbering.tracked, numbering.opening
        at, size = 0, len(text)
        while at < size:
            if not items.frame and state not in tracked and isinstance(here := states[state], TextState):
                state, at = self._codes.strings.run(state, here, text, at)
                if state == DEAD:
                    return None
                if at == size:
                    break
            byte = text[at]
            at += 1
            sparse = codes.get(state)
            code = sparse.get(byte, DEAD) if sparse is not None else code_of(state, byte)
            if code == DEAD:
                return None
            if code < DEAD:
                code, stack = self.applied(code, stack, written)
                if code == DEAD:
                    return None
            if code in tracked:
                written = written + bytes([byte]) if state in tracked else b""
            elif written:
                written = b""
            if items.frame:
                items_after = reader.step(items, byte, code in opening)
                if items_after is None:
                    return None
                items = items_after
            elif code in opening:
                items = reader.begin()
            state = code
        if state in numbering.scarce and stack is not None:
            names = stack.entry.names
            if names and not self.has_another_name(state, names, written):
                return None
        # The same as calling the constructor, with one call of a function less.
        return tuple.__new__(Position, (state, stack, written, items))


def _name_of(written: bytes) -> str:
    """The name of a member, from the bytes between its quotes."""
    name: str = json.loads(b'"' + written + b'"')
    return name
