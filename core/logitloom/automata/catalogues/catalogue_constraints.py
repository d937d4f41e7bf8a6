"""Constraints that a text is one item of a catalogue; a state is an interval of the sorted items."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.catalogues.catalogue import Catalogue, Interval
from logitloom.automata.lift import trie_walk
from logitloom.automata.lift.level_walk import token_set_of
from logitloom.automata.lift.lifted_automaton import LiftedAutomaton
from logitloom.automata.lift.words import vocabulary_words
from logitloom.contract import UNKNOWN, ByteAutomaton, Constraint, State, TokenSet
from logitloom.errors import VocabularyError
from logitloom.vocabulary import Vocabulary

__all__ = ["IdCatalogue", "TextCatalogue", "catalogue_constraint"]

#: Intervals with at most this number of items are walked item by item, and their shortest completion is exact.
_SMALL_INTERVAL: Final = 32


class ItemBytes(ByteAutomaton):
    """The automaton over bytes that accepts the texts of a catalogue; states are intervals."""

    def __init__(self, items: Catalogue) -> None:
        self.items = items

    @property
    def fingerprint(self) -> bytes:
        """The fingerprint of the items."""
        return self.items.fingerprint

    def start(self) -> State:
        """The interval of all items."""
        return 0, len(self.items), 0

    def step(self, state: State, byte: int) -> State | None:
        """The interval after one more byte, by binary search; ``None`` if no item continues with it."""
        return self.items.step(state, byte)  # type: ignore[arg-type]

    def accepts(self, state: State) -> bool:
        """Whether an item is complete."""
        return self.items.ends(state)  # type: ignore[arg-type]

    def byte_classes(self) -> NDArray[np.uint8] | None:
        """One class per byte that occurs in an item, and one class for all other bytes."""
        return self._classes

    @cached_property
    def _classes(self) -> NDArray[np.uint8]:
        used = np.bincount(self.items.symbols, minlength=256) > 0
        return np.where(used, used.cumsum() - 1, min(int(used.sum()), 255)).astype(np.uint8)


class TextCatalogue(LiftedAutomaton):
    """The constraint that a text is one of the texts of a catalogue.

    This constraint equals that of :func:`~logitloom.automata.lift.lift.lift`, but computes token sets for whole
    intervals. :meth:`least_tokens` is exact for intervals of at most 32 items. For larger intervals it is the least
    number of tokens of a shortest item that tokens can write.

    Args:
        items: the texts.
        vocabulary: the bytes of each id.
        vocab_size: width of the model's logits; default: the size of the vocabulary.

    Raises:
        VocabularyError: if the width is too small, or no item can be written with the tokens.
    """

    def __init__(self, items: Catalogue, vocabulary: Vocabulary, vocab_size: int | None = None) -> None:
        self.items = items
        super().__init__(ItemBytes(items), vocabulary, vocab_size)

    def __reduce__(self) -> tuple[Any, ...]:
        return TextCatalogue, (self.items, self.vocabulary, self.vocab_size)

    def __repr__(self) -> str:
        return f"TextCatalogue({self.items!r}, {self.vocabulary.name!r}, vocab_size={self.vocab_size})"

    def least_tokens(self, state: State) -> int | None:
        """The least number of tokens that complete an item; see the class."""
        found = self.memory.least.get(state, UNKNOWN)
        if found == UNKNOWN:
            found = self._fewest(state)  # type: ignore[arg-type]
            self.memory.note()
            self.memory.least[state] = found
        return found

    def _fewest(self, state: Interval) -> int | None:
        first, last, depth = state
        if self.items.ends(state):
            return 0
        small = last - first <= _SMALL_INTERVAL
        order = range(last - first) if small else self.items.lengths(first, last).argsort(kind="stable")
        fewest: int | None = None
        for index in order:
            text = self.items.rest(first + int(index), depth).tobytes()
            found = trie_walk.fewest_tokens(self._trie, text)[0]
            if found is not None:
                fewest = found if fewest is None else min(fewest, found)
                if not small:
                    break
        return fewest

    def _has_text(self) -> bool:
        return self._can_end(self.start())

    def _can_end(self, state: State) -> bool:
        """Whether tokens can complete an item: always, if each byte is a token."""
        return self._trie.every_byte or self.least_tokens(state) is not None

    def advance(self, state: State, token: int) -> State | None:
        """The interval after the bytes of a token; ``None`` if no item continues with them."""
        reached: State | None = state
        for byte in (text := self.vocabulary.token_bytes[token] if 0 <= token < self.vocabulary.size else b""):
            reached = self.items.step(reached, byte)  # type: ignore[arg-type]
            if reached is None:
                return None
        return reached if text and self._can_end(reached) else None

    def _found(self, state: State) -> TokenSet:
        ids, which, values = self._successors_of(state)
        kept = np.array([self._can_end(value) for value in values], dtype=bool)
        return token_set_of(ids[kept.take(which)] if len(values) else ids, self.vocab_size)

    def _successors_of(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int64], list[State]]:
        interval: Interval = state  # type: ignore[assignment]
        first, last, _ = interval
        nodes, values = (
            self._nodes_one_by_one(interval) if last - first <= _SMALL_INTERVAL else self._nodes_by_level(interval)
        )
        ids, which = trie_walk.tokens_at(self._trie, np.array(nodes, dtype=np.int64))
        return ids, which, values

    def _nodes_one_by_one(self, state: Interval) -> tuple[list[int], list[State]]:
        """The trie nodes whose prefix begins the rest of an item, and their intervals, found node by node."""
        words = vocabulary_words(self.vocabulary)
        nodes: list[int] = []
        values: list[State] = []
        pairs = [(0, state)]
        while pairs:
            node, (first, last, depth) = pairs.pop()
            if first + 1 == last:
                heads = self.items.rest(first, depth)[:1].tolist()
                bounds = [first, last]
            else:
                symbols, begins = self.items.groups((first, last, depth))
                heads, bounds = symbols.tolist(), begins.tolist()
            for head, begin, end in zip(heads, bounds, bounds[1:], strict=False):
                child = words.child(node, head)
                if child >= 0:
                    reached = begin, end, depth + 1
                    nodes.append(child)
                    values.append(reached)
                    pairs.append((child, reached))
        return nodes, values

    def _nodes_by_level(self, state: Interval) -> tuple[list[int], list[State]]:
        """The nodes and intervals of a state, found level by level, with all binary searches of a level at once."""
        trie, items = self._trie, self.items
        nodes: list[int] = []
        values: list[State] = []
        first, last = (np.array([bound], dtype=np.int64) for bound in state[:2])
        at, depth = np.zeros(1, dtype=np.int64), state[2]
        while len(at):
            first = first + (items.offsets.take(first + 1) - items.offsets.take(first) == depth)
            at, counts = trie_walk.children(trie, at)
            heads, first, last = trie_walk.bytes_at(trie, at), first.repeat(counts), last.repeat(counts)
            first = items.search(first, last, depth, heads, right=False)
            last = items.search(first, last, depth, heads, right=True)
            depth += 1
            alive = (first < last).nonzero()[0]
            at, first, last = at.take(alive), first.take(alive), last.take(alive)
            nodes += at.tolist()
            values += [(*pair, depth) for pair in zip(first.tolist(), last.tolist(), strict=True)]
        return nodes, values


class IdCatalogue(Constraint):
    """The constraint that the generated ids are one of the lists of ids of a catalogue.

    The ids are compared, not their texts. Lists may contain special tokens, but not end-of-sequence.
    :meth:`least_tokens` is exact.

    Args:
        items: the lists of ids.
        vocabulary: the vocabulary, for its end-of-sequence ids.
        vocab_size: width of the model's logits; default: the size of the vocabulary.

    Raises:
        VocabularyError: if the width is too small, or an item has an id that is not below it or is end-of-sequence.

    Example:
        >>> words = Vocabulary([b"", b"<5>", b"<6>", b"a"], eos=[0], special=[1, 2])
        >>> items = IdCatalogue(Catalogue.of_ids([[1, 2], [1, 3, 3]]), words)
        >>> state = items.advance(items.start(), 1)
        >>> items.row(state).tolist(), items.row(items.advance(state, 2)).tolist()
        ([2, 3], [0])
    """

    def __init__(self, items: Catalogue, vocabulary: Vocabulary, vocab_size: int | None = None) -> None:
        self.items, self.vocabulary = items, vocabulary
        self.vocab_size = vocabulary.size if vocab_size is None else int(vocab_size)
        vocabulary.check_width(self.vocab_size)
        used = np.unique(items.symbols)
        wrong = used[(used >= self.vocab_size) | np.isin(used, vocabulary.eos)]
        if len(wrong):
            raise VocabularyError(
                f"The catalogue holds the id {wrong[0]}, which is end-of-sequence of {vocabulary.name} or not below "
                f"vocab_size={self.vocab_size}. Leave end-of-sequence out of the items, it follows them by itself, "
                f"and give ids of this vocabulary."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return IdCatalogue, (self.items, self.vocabulary, self.vocab_size)

    def __repr__(self) -> str:
        return f"IdCatalogue({self.items!r}, {self.vocabulary.name!r}, vocab_size={self.vocab_size})"

    @property
    def fingerprint(self) -> bytes:
        """A hash of the items, the vocabulary and the width."""
        digest = hashlib.blake2b(self.items.fingerprint, digest_size=16, person=b"id catalogue")
        digest.update(repr((self.vocabulary.fingerprint, self.vocab_size)).encode())
        return digest.digest()

    def start(self) -> State:
        """The interval of all items."""
        return 0, len(self.items), 0

    def advance(self, state: State, token: int) -> State | None:
        """The interval after one more id, by binary search; ``None`` if no item continues with it."""
        return self.items.step(state, token)  # type: ignore[arg-type]

    def allowed(self, state: State) -> TokenSet:
        """The ids with which an item continues."""
        found = token_set_of(self.items.following(state), self.vocab_size)  # type: ignore[arg-type]
        found.ids.setflags(write=False)
        return found

    def may_end(self, state: State) -> bool:
        """Whether an item is complete."""
        return self.items.ends(state)  # type: ignore[arg-type]

    def least_tokens(self, state: State) -> int:
        """The number of missing ids of the shortest item of the interval."""
        interval: Interval = state  # type: ignore[assignment]
        first, last, depth = interval
        return int(self.items.lengths(first, last).min()) - depth

    def least_after(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The allowed ids and :meth:`least_tokens` after each, computed for all ids at once."""
        ids, begins = self.items.groups(state)  # type: ignore[arg-type]
        depth: int = state[2]  # type: ignore[index]
        if not len(ids):
            return ids, ids
        lengths = self.items.lengths(int(begins[0]), int(begins[-1]))
        least = np.minimum.reduceat(lengths, begins[:-1] - begins[0]) - depth - 1
        return ids, least.astype(np.int32)


def catalogue_constraint(items: Catalogue, vocabulary: Vocabulary, vocab_size: int | None = None) -> Constraint:
    """The constraint that a text is one of the items.

    Args:
        items: texts or lists of ids.
        vocabulary: the bytes of each id.
        vocab_size: width of the model's logits; default: the size of the vocabulary.

    Raises:
        VocabularyError: if the items cannot be written with the vocabulary.

    Example:
        >>> words = Vocabulary([b"", b"a", b"b", b"ab"], eos=[0])
        >>> constraint = catalogue_constraint(Catalogue.of_texts(["ab", "b"]), words)
        >>> constraint.row(constraint.start()).tolist()
        [1, 2, 3]
    """
    made = IdCatalogue if items.holds_ids else TextCatalogue
    return made(items, vocabulary, vocab_size)
