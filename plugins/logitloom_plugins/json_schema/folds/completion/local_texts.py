"""Short texts from a state to the end of the innermost open string, object or array."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from logitloom_plugins.json_schema.folds.completion.completion_memory import (
    COPIED,
    MEMBER,
    NOTHING,
    CompletionMemory,
    Jump,
    Taken,
    Texts,
    merge,
    shortlex,
)
from logitloom_plugins.json_schema.folds.completion.content_texts import ContentTexts
from logitloom_plugins.json_schema.folds.completion.shortest_ends import shortest_ends
from logitloom_plugins.json_schema.grammar.members import TruthVector
from logitloom_plugins.json_schema.grammar.moves import SchemaGrammar, moves_between
from logitloom_plugins.json_schema.grammar.states import ColonState, EscapeState, Move, Return, State, TextState
from logitloom_plugins.json_schema.grammar.string_moves import StringMoves

__all__ = ["LocalTexts", "Specialised", "leading_on"]

#: Bytes of a colon, the shortest value, and a bracket.
_SHORTEST_VALUE: Final = 3

#: The jumps of the states of one type: a function of the texts of other states, the state, and what is taken.
Specialised = Callable[["LocalTexts", State, Taken], Iterable[Jump]]


class LocalTexts:
    """The texts of the states of one grammar, without whitespace.

    For most types of states a function is registered that finds jumps; the text of a state follows these jumps. For
    other states there is a search through the moves (:mod:`.shortest_ends`).

    Args:
        grammar: which moves states have outside strings.
        strings: which moves states have inside strings.
        memory: what was found.
        specialised: by type of state the function that finds its jumps.
    """

    def __init__(
        self,
        grammar: SchemaGrammar,
        strings: StringMoves,
        memory: CompletionMemory,
        specialised: Mapping[type[State], Specialised],
    ) -> None:
        self.grammar, self.values = grammar, grammar.values
        self.strings, self.memory = strings, memory
        self.contents = ContentTexts(grammar.escapes, memory)
        self._specialised = specialised

    def of(self, state: State, wanted: Collection[TruthVector], taken: Taken = NOTHING) -> Texts:
        """By truth vector a short text that ends the innermost string, object or array; the whole text after it.

        Args:
            state: the state.
            wanted: the truth vectors that are asked for. Texts with others may be found, too.
            taken: what must not come again.
        """
        jumps = self.jumps(state, taken)
        if jumps is None:
            return shortest_ends(self.moves, self.jumps, state, taken, wanted)
        found: Texts = {}
        for text, following, after, truth in sorted(jumps, key=lambda jump: shortlex(jump.text)):
            if following is None:
                merge(found, {truth: text})
                continue
            least = _SHORTEST_VALUE if isinstance(following, ColonState) else 1
            if all(each in found and _comes_first(found[each], text, least) for each in wanted):
                continue
            rests = self.of(following, wanted, after)
            if isinstance(following, ColonState):
                self.memory.work += MEMBER + sum([len(rest) for rest in rests.values()]) // COPIED
            merge(found, {end: text + rest for end, rest in rests.items()})
        return found

    def moves(self, state: State) -> Iterator[Move]:
        """The moves of a state."""
        if isinstance(state, TextState | EscapeState):
            return self.strings.moves(state)
        return moves_between(self.grammar, state)

    def jumps(self, state: State, taken: Taken) -> Iterable[Jump] | None:
        """The jumps of a state, from the function for its type; ``None`` if no function is registered."""
        special = self._specialised.get(type(state))
        return None if special is None else special(self, state, taken)


def _comes_first(found: bytes, text: bytes, more: int) -> bool:
    """Whether a text comes before each text that begins with another one and has so many more bytes."""
    return (len(found), found[: len(text)]) < (len(text) + more, text)


def leading_on(back: Return, texts: Texts, taken: Taken) -> list[Jump]:
    """The jumps over a value to the object or array that the value is in."""
    return [Jump(text, back.states[truth], taken) for truth, text in texts.items() if truth in back.states]
