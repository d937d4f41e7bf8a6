"""Completions of strings, names and numbers: the nearest ends of their contents, without a search."""

from __future__ import annotations

import itertools
from typing import Final

from logitloom_plugins.json_schema.folds.completion.completion_memory import (
    MEMBER,
    Jump,
    Taken,
    Texts,
    ends_of,
)
from logitloom_plugins.json_schema.folds.completion.local_texts import LocalTexts, leading_on
from logitloom_plugins.json_schema.folds.completion.required_texts import is_simple, next_required
from logitloom_plugins.json_schema.folds.value_reader import characters_of
from logitloom_plugins.json_schema.grammar.contexts import NameContext
from logitloom_plugins.json_schema.grammar.keys import Label
from logitloom_plugins.json_schema.grammar.states import ColonState, EscapeState, NumberState, State, TextState
from logitloom_plugins.json_schema.values.content import Content

__all__ = ["escape_jumps", "number_jumps", "text_jumps"]

#: A rest of a string with more bytes than these and the shortest rest is not looked at.
_MOST_LONGER: Final = 1 << 12


def number_jumps(texts: LocalTexts, state: State, taken: Taken) -> list[Jump]:
    """The jumps of a number."""
    assert isinstance(state, NumberState)
    found = texts.contents.texts(Content(state.numbers.automaton), state.content_state, 0, state.back.states)
    return leading_on(state.back, found, taken)


def text_jumps(texts: LocalTexts, state: State, taken: Taken) -> list[Jump]:
    """The jumps to the end of a string, closing quote included; after a name they lead on to its colon."""
    assert isinstance(state, TextState)
    context, contents = state.context, texts.contents
    if isinstance(context, NameContext):
        return _name_jumps(texts, context, state.content_state, taken)
    found = contents.texts(context.content, state.content_state, state.characters, context.content.found)
    # A rest that is thousands of bytes longer hardly lets the whole value end earlier.
    most = min(map(len, found.values()), default=0) + _MOST_LONGER
    short = [(truth, text) for truth, text in found.items() if len(text) <= most]
    return [Jump(contents.escaped(text) + b'"', None, taken, truth) for truth, text in short]


def _name_jumps(texts: LocalTexts, context: NameContext, content_state: int, taken: Taken) -> list[Jump]:
    frame, keys, contents = context.frame, context.keys, texts.contents
    already = characters_of(taken.written)
    others = taken.names if context.tracks else frozenset[str]()
    may_come = context.mask & context.below[content_state]

    def rest_of(label: Label) -> bytes | None:
        return contents.name(keys, content_state, label, others, already)

    labels = keys.listed(may_come)
    required = next_required(frame) if is_simple(frame) else None
    if required is not None and required in labels and rest_of(required) is not None:
        labels = [required]
    found = []
    for label in labels:
        rest = rest_of(label)
        if rest is not None:
            once = context.tracks and not frame.plan.declares(label)
            names = taken.names | {(already + rest).decode()} if once else taken.names
            after = ColonState(frame, label, context.layout)
            found.append(Jump(contents.escaped(rest) + b'"', after, Taken(names, taken.items)))
    return found


def escape_jumps(texts: LocalTexts, state: State, taken: Taken) -> list[Jump]:
    """The jumps of an escape that has begun.

    If the completion from before the escape begins with an escape that starts with the same bytes, this escape is
    completed in the same way; otherwise the next byte is the first byte that may come. Of a name that must not come
    twice, and may become few names, it is any byte.
    """
    assert isinstance(state, EscapeState)
    context, content_state, count, begun, _ = state
    written = taken.written[: -len(begun)] if taken.written else b""
    before = TextState(context, content_state, count)
    wanted = context.frame.wanted if isinstance(context, NameContext) else context.content.found

    def find() -> tuple[Texts, int]:
        found = texts.of(before, wanted, taken._replace(written=written))
        return found, MEMBER * len(found)

    # The text after a string is found elsewhere, so all the work for the string counts with this entry; the text from a
    # name leads to the end of the object.
    is_name = isinstance(context, NameContext)
    ahead = find()[0] if is_name else texts.memory.recalled(texts.memory.rests, before, find)
    found = {
        truth: text[len(begun) :] for truth, text in ahead.items() if text.lower().startswith(begun.encode().lower())
    }
    if found:
        return ends_of(found)
    moves = texts.strings.in_escape(state)
    if not (context.scarce and taken.names):
        moves = itertools.islice(moves, 1)
    bytes_to = [(bytes([min(move.read)]), move.target) for move in moves]
    return [
        Jump(byte, target, taken._replace(written=taken.written + byte if context.tracks else b""))
        for byte, target in bytes_to
    ]
