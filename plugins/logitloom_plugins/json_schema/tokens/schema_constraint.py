"""A JSON Schema as a constraint over the tokens of a vocabulary.

One walk of the vocabulary's trie finds the tokens that may come next (:mod:`.token_walk`). Inside strings of any
content the token set is combined from precomputed slices of the vocabulary (:mod:`.string_rows`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Hashable, Iterator
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata.array_ranges import distinct
from logitloom.automata.lift.trie import vocabulary_trie
from logitloom.automata.lift.trie_walk import nodes_along
from logitloom.automata.lift.words import vocabulary_words
from logitloom.constraints import UNKNOWN, Constraint, TokenSet
from logitloom.errors import VocabularyError
from logitloom.state_memory import StateMemory
from logitloom_plugins.json_schema.folds.schema_automaton import Configuration, SchemaAutomaton
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.grammar.contexts import TextContext
from logitloom_plugins.json_schema.grammar.states import Stack, TextState
from logitloom_plugins.json_schema.schema.schema_document import JSONValue
from logitloom_plugins.json_schema.tokens.bounds import TokenBounds
from logitloom_plugins.json_schema.tokens.doubtful_tokens import DoubtfulTokens
from logitloom_plugins.json_schema.tokens.shared_token_sets import token_sets
from logitloom_plugins.json_schema.tokens.string_rows import StringRows
from logitloom_plugins.json_schema.tokens.token_distances import TokenDistances
from logitloom_plugins.json_schema.tokens.token_walk import TokenWalk

__all__ = ["SchemaConstraint", "can_write"]

#: The bytes of JSON texts without rare characters. Other characters can be left out, or be written with these bytes.
_NEEDED: Final = (*range(0x20, 0xC0), *range(0xC2, 0xF1))
#: The parts of a pattern that may name characters from U+40000 on, and no others: a code point, the first half of a
#: surrogate pair, a property. Letters, numbers, punctuation, symbols and separators have no such characters.
_RARE: Final = re.compile(
    r"\\(u\{0*(10|[4-9a-fA-F])[0-9a-fA-F]{4}\}|u[dD](8[c-fC-F]|[9abAB])|p\{(?![LNPSZ][a-z&]?\})|P\{)"
)


def can_write(document: JSONValue, vocabulary: Vocabulary) -> bool:
    """Whether tokens can complete each text that bytes can: single-byte tokens suffice for what a schema asks for.

    Vocabularies often lack control characters and the first bytes of code points from U+40000 on. JSON escapes control
    characters, and only a schema that names such code points needs their first bytes.
    """
    single = vocabulary_trie(vocabulary).single >= 0
    if not single[list(_NEEDED)].all():
        return False
    text = "\n".join(_texts(document))
    asked = np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
    return bool(single[asked[asked >= 0x80]].all()) and _RARE.search(text) is None


def _texts(document: JSONValue) -> Iterator[str]:
    """Every text of a schema, names included, however deeply the schema is nested."""
    waiting, seen = [document], set[int]()
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, (dict, list)) and id(part) not in seen:
            seen.add(id(part))
            waiting += [*part, *part.values()] if isinstance(part, dict) else part


class SchemaConstraint(Constraint):
    """The tokens with which a text can still become a JSON value that satisfies a schema.

    Args:
        schema: the automaton over bytes.
        vocabulary: the bytes of each id.
        vocab_size: width of the model's logits.

    Example:
        >>> from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
        >>> words = Vocabulary([b"", b"1", b"2", b"[", b"]", b","], eos=[0])
        >>> schema = SchemaAutomaton(compile_schema({"type": "array", "items": {"const": 1}, "minItems": 1}))
        >>> constraint = SchemaConstraint(schema, words, 6)
        >>> constraint.allowed(constraint.advance(constraint.start(), 3)).ids.tolist()
        [1]
    """

    exact_least = False
    unlimited_because = "No short text of the JSON Schema was found in a bounded time."

    def __init__(self, schema: SchemaAutomaton, vocabulary: Vocabulary, vocab_size: int | None = None) -> None:
        self.schema = schema
        self.vocabulary = vocabulary
        self.vocab_size = vocabulary.size if vocab_size is None else int(vocab_size)
        if not vocabulary.eos:
            raise VocabularyError(
                f"{vocabulary.name} has no end-of-sequence id, so no text could ever end. Use Vocabulary.with_eos."
            )
        self._texts = vocabulary.token_bytes
        # Set here: the cached property would give the constraint a dictionary, from which attributes are read slower.
        self.memory = StateMemory()
        self._known_masks = _Masks(schema, vocabulary, self.vocab_size, self.memory)
        self._sets: dict[Hashable, TokenSet] = self.memory.table("token sets")

    def forget(self) -> None:
        """Drop what is remembered of visited configurations, by the automaton too. Results do not change."""
        self.schema.forget()
        super().forget()

    @property
    def _masks(self) -> _Masks:
        """The masks of the schema's machine, which may have been replaced."""
        if self._known_masks.machine is not self.schema.machine:
            self._known_masks = _Masks(self.schema, self.vocabulary, self.vocab_size, self.memory)
        return self._known_masks

    # --- methods of Constraint ---------------------------------------------------------------------------------

    @property
    def fingerprint(self) -> bytes:
        """Equal for equal schemas, options, vocabularies and widths, in every process."""
        digest = hashlib.blake2b(self.schema.fingerprint, digest_size=16)
        digest.update(f"{self.vocabulary.fingerprint} {self.vocab_size}".encode())
        return digest.digest()

    def automaton(self) -> SchemaAutomaton:
        """The automaton over bytes."""
        return self.schema

    def start(self) -> Configuration:
        """The configuration before the first token."""
        return self.schema.start()

    def advance(self, state: Hashable, token: int) -> Configuration | None:
        """The configuration after one more token; ``None`` if it is not allowed."""
        texts = self._texts
        text = texts[token] if 0 <= token < len(texts) else b""
        return self.schema.run(self.schema.after, state, text) if text else None

    def may_end(self, state: Hashable) -> bool:
        """Whether the text may end."""
        return self.schema.accepts(state)

    def least_tokens(self, state: Hashable) -> int | None:
        """The fewest tokens that write a short text which completes the value; a bound if this text is too long."""
        if self.may_end(state):
            return 0
        found = self.schema.run(lambda at: self._masks.distances.least(at), state)
        if found is not None:
            return found
        most = self.schema.run(lambda at: self._masks.bounds.near(at), state)
        return None if most == UNKNOWN else most + 1

    def least_after(self, state: Hashable) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The allowed ids and :meth:`least_tokens` after each, or :meth:`most_after` where that takes too long."""
        return self.schema.run(lambda at: self._masks.least_after(at), state)

    def allowed_within(self, state: Hashable, most: int) -> TokenSet | None:
        """The ids where :meth:`least_after` would have to find the whole of a bound that is larger than ``most``."""
        return self.schema.run(lambda at: self._masks.allowed_within(at, most), state)

    def most_after(self, state: Hashable, enough: int = 0) -> int:
        """An upper bound: the sum of bounds for the open parts, and for the parts that a token can open in them.

        In a large schema it may be unknown in the first steps.
        """
        return self.schema.run(lambda at: self._masks.bounds.soon_after_any(at, enough), state)

    def allowed(self, state: Hashable) -> TokenSet:
        """The tokens that may come next.

        Raises:
            BudgetExceeded: if a part of the schema that the text has just reached exceeds the budget.
        """
        known = self._sets.get(state)
        if known is None:
            known = self.schema.run(lambda at: self._masks.found(at), state)
            self.memory.note(known.ids)
            self._sets[state] = known
        return known


class _Masks:
    """Finds the tokens that may come next at a position of a machine.

    Args:
        schema: the automaton over bytes.
        vocabulary: the bytes of each id.
        size: width of the model's logits.
        memory: the memory of the constraint, whose tables of an earlier machine are emptied.

    Attributes:
        machine: the machine of the schema when this object was made.
    """

    def __init__(self, schema: SchemaAutomaton, vocabulary: Vocabulary, size: int, memory: StateMemory) -> None:
        self.machine = machine = schema.machine
        self._numbering = machine.numbering
        self.words = vocabulary_words(vocabulary)
        self._vocabulary = vocabulary
        self._sets = token_sets(vocabulary, size)
        self._walk = TokenWalk(machine, self.words.trie.longest)
        self._strings = StringRows(machine, vocabulary, self._walk, self._sets, memory)
        self._schema = schema
        self._distances: TokenDistances | None = None
        self._bounds: TokenBounds | None = None
        self._memory = memory
        self._rows: dict[tuple[int, Stack], tuple[TokenSet, bool]] = memory.table("rows", renew=True)
        self._searches: dict[Position, tuple[NDArray[np.int32], NDArray[np.int32], bool]] = memory.table(
            "searches", renew=True
        )

    @property
    def distances(self) -> TokenDistances:
        """How many tokens are needed to the end. Texts without a limit do not ask."""
        if self._distances is None:
            content, completions = self._walk.content, self._schema.completions
            self._distances = TokenDistances(self.machine, completions, self.words, content, self._vocabulary)
        return self._distances

    @property
    def bounds(self) -> TokenBounds:
        """Upper bounds on the tokens that are needed after any token."""
        if self._bounds is None:
            parts = self._schema.completions.parts
            self._bounds = TokenBounds(self.machine, parts, self.distances.farthest_end, self._vocabulary)
        return self._bounds

    @cached_property
    def _doubtful(self) -> DoubtfulTokens:
        """The tokens that may repeat an item or a name. Most schemas never ask for them."""
        return DoubtfulTokens(self.machine, self.words, self._vocabulary, self._sets.size)

    def found(self, position: Position) -> TokenSet:
        """The tokens that may come next at a position.

        All such tokens are found unless that takes too much work. In that case the found tokens include the tokens with
        which the completion begins.
        """
        row, whole = self._row(position.state, position.stack)
        if not self.machine.may_repeat(position):
            return row if whole else self._with_completion(row, position)
        found, are_all = self._doubtful.left_out(row, position)
        if whole and are_all:
            return found
        found = self._with_completion(found, position)
        return found if len(found.ids) or not found.allowed else self._doubtful.left_out(row, position, math.inf)[0]

    def _with_completion(self, row: TokenSet, position: Position) -> TokenSet:
        """A row with the tokens with which the completion of a position begins."""
        nodes = nodes_along(self.words.trie, self._schema.completions.of(position) or b"")
        allowed = row.mask(self._sets.size)
        allowed[self.words.ids_of(nodes, [])] = True
        return self._sets.many(allowed.nonzero()[0].astype(np.int32))

    def least_after(self, position: Position) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The tokens that may come next, and for each a bound on the tokens that are needed after it."""
        ids, needed, are_all = self._searched(position)
        if are_all:
            return ids, needed
        size = self._sets.size
        every = distinct(np.concatenate([self.found(position).listed(size), ids]), size).astype(np.int32)
        bounds = np.full(size, self.bounds.after_any(position), dtype=np.int32)
        bounds[ids] = needed
        return every, bounds.take(every)

    def allowed_within(self, position: Position, most: int) -> TokenSet | None:
        """As :meth:`.SchemaConstraint.allowed_within`."""
        ids, needed, are_all = self._searched(position)
        return None if are_all or not self.bounds.exceeds(position, most) else TokenSet(True, ids[needed <= most])

    def _searched(self, position: Position) -> tuple[NDArray[np.int32], NDArray[np.int32], bool]:
        """The tokens that a search finds, as :meth:`.TokenDistances.after`."""
        known = self._searches.get(position)
        if known is None:
            known = self.distances.after(position)
            self._memory.note(known)
            self._searches[position] = known
        return known

    def _row(self, state: int, stack: Stack) -> tuple[TokenSet, bool]:
        """The tokens that may come next if items and names may be repeated, and whether all such tokens were found."""
        known = self._rows.get((state, stack))
        if known is None:
            kind = self.machine.states[state]
            if isinstance(kind, TextState):
                context, content_state, count, _ = kind
                known = self._strings.row(state, stack)
                if known is None and isinstance(context, TextContext) and self._is_far(context, count):
                    # No token can reach a bound of the length, so the row is that of a string without bounds.
                    known = self._row(self.machine.codes.strings.text(context.unbounded, content_state, 0), stack)
            if known is None:
                walked = self._walk.from_root(self.words, state, stack)
                known = walked.token_set(self.words, self._sets), walked.whole
            self._memory.note(known[0].ids)
            self._rows[state, stack] = known
        return known

    def _is_far(self, context: TextContext, count: int) -> bool:
        """Whether a string has bounds on the length that no token can reach."""
        return context.content.counts and context.content.is_far(count, self._strings.longest)
