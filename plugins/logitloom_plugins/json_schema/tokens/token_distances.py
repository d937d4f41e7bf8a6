"""How many tokens are needed to the end of a value, after each token that may come next.

The number is the fewest tokens that write the completion of a position (:mod:`..folds.completion`). One walk of the
vocabulary's trie finds the position after each token. Inside strings the walk takes whole levels of the trie at once,
and asks once for each state of the content.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata.lift.words import Words
from logitloom.constraints import UNKNOWN
from logitloom.vocabulary import kept_with_vocabulary
from logitloom_plugins.json_schema.folds.completion.completion_memory import COPIED, WorkSpent
from logitloom_plugins.json_schema.folds.completion.position_texts import Completions
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.folds.value_reader import ItemPosition
from logitloom_plugins.json_schema.grammar.contexts import StringContext
from logitloom_plugins.json_schema.grammar.states import Stack, State, TextState
from logitloom_plugins.json_schema.tokens.content_walk import ContentWalk, Reached, free_walks

__all__ = ["TokenDistances"]

Key = TypeVar("Key")
Entry = TypeVar("Entry")

#: The most bytes of a token with which texts are counted. So the time of counting is proportional to the text.
_LONGEST: Final = 24
#: Tokens of more bytes are looked up by so many first bytes.
_BEGINNING: Final = 4
#: More tokens than write any text.
_NOT_WRITTEN: Final = 2 * UNKNOWN
#: The tokens of a text are counted in parts that end before these bytes, so that a part that many texts share is
#: counted once.
_SEPARATOR: Final = b',"'
_LONGEST_PART: Final = 64
_MOST_REMEMBERED: Final = 1 << 12
#: The most work of one mask in an array of different items, counted in bytes of completions. A unit of work takes more
#: time elsewhere, so other masks have so many eighths of it.
_MOST_WORK: Final = 5 << 14
_EIGHTHS_ELSEWHERE: Final = 5
#: The work of a node of the trie.
_NODE: Final = 20
#: The work of one more node at a position.
_ALIKE: Final = 5
#: The work of finding out which earlier items make a difference to a position.
_JUDGED: Final = 56
#: The work of finding out whether an unfinished name makes a difference.
_NAMED: Final = 24
_NOT_COUNTED: Final = -1
#: The bytes that end a string or begin an escape.
_MARKS: Final = dict.fromkeys(b'"\\', 0)

#: By a string nodes within the string, with the position at each.
_Strings = dict[tuple[StringContext, Stack, ItemPosition], dict[int, Position]]


class TokenDistances:
    """The tokens from positions to the end of the value.

    Args:
        machine: the pushdown automaton of the schema.
        completions: of its positions.
        words: the trie of the vocabulary.
        content: the walk inside the strings of the machine.
        vocabulary: the same tokens.
    """

    def __init__(
        self, machine: Machine, completions: Completions, words: Words, content: ContentWalk, vocabulary: Vocabulary
    ) -> None:
        self.machine, self._completions, self._words = machine, completions, words
        self._texts, self._vocabulary = _texts_of(vocabulary), vocabulary
        self._content, self._free, self._size = content, free_walks(vocabulary), vocabulary.size
        self._parts: dict[tuple[bytes, int, tuple[int, ...]], list[int]] = {}
        #: The text that was counted last, with the numbers for its ends. Completions of one mask often end alike.
        self._counted_before: tuple[bytes, list[int]] = b"", [0]
        self._least: dict[Position, int | None] = {}
        #: The most work of the current mask.
        self._most = 0
        #: For the current mask: by the parts of a position that affect its completion, the first such position.
        self._alike: dict[tuple[int, Stack, Hashable], Position] = {}
        #: For the current mask: completions.
        self._rests: dict[Position, bytes] = {}

    def least(self, position: Position) -> int | None:
        """The fewest tokens that write the completion; ``None`` if there is none."""
        return _remembered(self._least, position, self._find_least)

    def _find_least(self, position: Position) -> int | None:
        text = self._rests[position] if position in self._rests else self._completions.of(position)
        if text is None:
            return None
        self._rests[position] = text
        return self._fewest(text)

    def _follow(self, before: Position, byte: bytes, reached: Position) -> None:
        """Note the completion of the position after a byte, if the byte is the first of a known completion."""
        text = self._rests.get(before)
        # Some items are chosen, and differ from earlier items.
        if text and text[:1] == byte and not reached.items.frame:
            self._completions.work += len(text) // COPIED
            self._rests[reached] = text[1:]

    def after(self, position: Position) -> tuple[NDArray[np.int32], NDArray[np.int32], bool]:
        """The tokens that may come, and the number of tokens that are needed after each.

        The work is bounded. Tokens that write the completion come first, then shorter tokens before longer ones.

        Returns:
            The ids; :meth:`least` after each id, with :data:`UNKNOWN` for ``None``; and whether the ids are all that
            may come.
        """
        machine, completions, words = self.machine, self._completions, self._words
        completions.begin_counting()
        self._least.clear()
        self._alike.clear()
        self._rests.clear()
        self._most = _MOST_WORK if position.items.frame else _EIGHTHS_ELSEWHERE * _MOST_WORK // 8
        found = _FoundDistances(words, self._size)
        self._along(position, found)
        pending = _Pending()
        #: Nodes within strings, with the position at each, which are walked together.
        strings = _Strings()
        self._go_on(position, self._matters(position), [0], found, pending, strings)
        while (pending or strings) and completions.work < self._most:
            # Nodes in strings take little work together, and come before single positions have taken half of the work.
            if strings and (not pending or completions.work > self._most // 2):
                place, begun = strings.popitem()
                self._in_string(*place, begun, found, pending, strings)
                continue
            at, nodes = pending.pop()
            state = machine.states[at.state]
            completions.work += _NODE + _ALIKE * len(nodes)
            for byte, children in words.read_by_byte(nodes, self._readable(at.state, state)).items():
                completions.work += _NODE
                reached = machine.read(at, byte)
                if reached is not None:
                    self._follow(at, byte, reached)
                    self._go_on(*self._first_alike(reached), children, found, pending, strings)
        return *found.sorted(), completions.work < self._most

    def _go_on(
        self,
        position: Position,
        matters: bool,
        nodes: list[int],
        found: _FoundDistances,
        pending: _Pending,
        strings: _Strings,
    ) -> None:
        """Add the tokens that end at some nodes, and note the nodes with children.

        Args:
            position: at all of the nodes.
            matters: as :meth:`_matters` says of the position.
            nodes: the nodes.
            found: gets the tokens.
            pending, strings: get the nodes that are still to be visited.
        """
        same, items_decide = self._judged(position)
        self._add(nodes, same, found)
        going_on = [node for node in nodes if self._words.has_children(node)]
        if not going_on:
            return
        state = self.machine.states[position.state]
        if (
            isinstance(state, TextState)
            and not (state.context.is_listed or state.context.content.automaton.narrow[state.content_state])
            and not matters
            and not items_decide
        ):
            # The characters of the string up to here make no difference.
            place = state.context, position.stack, position.items._replace(text=b"")
            strings.setdefault(place, {}).update(dict.fromkeys(going_on, position))
        else:
            pending.add(position, going_on)

    def _judged(self, position: Position) -> tuple[Position, bool]:
        """A position with the same completion, and whether the earlier items decide which completion that is."""
        completions = self._completions
        position = completions.without_items(position)
        if not position.items.frame:
            return position, False
        completions.work += _JUDGED
        alike = completions.alike_items(position)
        if alike is None:
            return position, True
        return self._alike.setdefault((position.state, position.stack, alike), position), False

    def _matters(self, position: Position) -> bool:
        """Whether an unfinished name that must not come twice makes a difference to the completion of a position."""
        if position.state not in self.machine.numbering.tracked:
            return False
        self._completions.work += _NAMED
        return self._completions.name_matters(position)

    def _first_alike(self, position: Position) -> tuple[Position, bool]:
        """The first position of this mask that differs only in an unfinished name without effect on completions.

        The second result says whether the unfinished name has an effect, as :meth:`_matters`.
        """
        matters = self._matters(position)
        if matters or position.state not in self.machine.numbering.tracked:
            return position, matters
        return self._alike.setdefault((position.state, position.stack, position.items), position), False

    def _readable(self, number: int, state: State) -> Mapping[int, int]:
        """A mapping whose keys contain all bytes that may come in a state."""
        codes = self.machine.codes
        if not isinstance(state, TextState):
            return codes.sparse_row(number) or {}
        return codes.strings.moves.steps(state.context, state.content_state) | _MARKS

    def _along(self, position: Position, found: _FoundDistances) -> None:
        """Add the tokens that write the beginning of the completion."""
        text = self._completions.of(position)
        if text is None:
            return
        self._rests[position] = text
        fewest = self._fewest_of_ends(text)
        words, node = self._words, 0
        for left, byte in zip(range(len(text) - 1, -1, -1), text, strict=True):
            node = words.child(node, byte)
            if node < 0:
                return
            found.add_first(node, min(fewest[left], UNKNOWN))

    def _in_string(
        self,
        context: StringContext,
        stack: Stack,
        items: ItemPosition,
        begun: dict[int, Position],
        found: _FoundDistances,
        pending: _Pending,
        strings: _Strings,
    ) -> None:
        """Add the tokens that stay in a string below some nodes.

        Args:
            context, stack, items: the string.
            begun: the nodes, each with the position there.
            found: gets the tokens.
            pending, strings: get the nodes at which the string ends or an escape begins, with the position there.
        """
        completions, machine, words = self._completions, self.machine, self._words
        nodes = [(node, *self._in_content(at)) for node, at in begun.items()]
        walked = self._content.reached(words.trie, context, nodes, self._free)
        items_matter = completions.items_matter(next(iter(begun.values())))
        examples = self._examples(begun, walked) if context.tracks or items_matter else []
        # The last entry is for words that do not stay in the string.
        least = np.full(len(walked.states) + 1, _NOT_COUNTED, dtype=np.int32)
        #: The needed tokens by a state of the content and a number of characters; one number stands for all that are
        #: alike.
        known: dict[tuple[int, int], int] = {}
        for number, at in enumerate(walked.states):
            if at is not None and completions.work < self._most:
                alike = at[0], context.content.alike(at[1], 0)
                if alike not in known:
                    here = Position(machine.codes.strings.text(context, *alike), stack)
                    if examples:
                        before, read_after = examples[number]
                        here = here._replace(written=before.written + read_after if context.tracks else b"")
                    if items_matter:
                        here = here._replace(items=before.items._replace(text=before.items.text + read_after))
                    known[alike] = self._counted(self._judged(self._first_alike(here)[0])[0])
                least[number] = known[alike]
        found.add_all(walked.ids, least.take(walked.which))
        read = self._ends_alike(context, stack, items, begun, walked)
        for (before, text), alike_nodes in read.items():
            completions.work += _NODE + _ALIKE * len(alike_nodes)
            reached = machine.read(before, text)
            if reached is not None and completions.work < self._most:
                self._go_on(reached, self._matters(reached), alike_nodes, found, pending, strings)

    def _ends_alike(
        self,
        context: StringContext,
        stack: Stack,
        items: ItemPosition,
        begun: dict[int, Position],
        walked: Reached,
    ) -> dict[tuple[Position, bytes], list[int]]:
        """The nodes at which strings end or escapes begin, by a position and the bytes that are read from there."""
        words, read = self._words, dict[tuple[Position, bytes], list[int]]()
        for ((content_state, count), is_end), ends in walked.ends.items():
            if items.frame:
                # What is remembered of the items depends on each byte, for tokens that go on.
                going_on = [node for node in ends if words.has_children(node)]
                for alike_nodes in (
                    [node for node in ends if not words.has_children(node)],
                    *[[each] for each in going_on],
                ):
                    if alike_nodes:
                        begin, text = words.text_from(begun, alike_nodes[0])
                        read.setdefault((begun[begin], text), []).extend(alike_nodes)
                continue
            if context.tracks:
                # The name makes no difference here.
                begin, text = words.text_from(begun, ends[0])
                before = begun[begin]
            else:
                # Where the string goes on, a bound on the number of characters may be near after some more of them.
                count = context.content.alike(count, 0 if is_end else words.trie.longest)
                before = Position(self.machine.codes.strings.text(context, content_state, count), stack)
                text = b'"' if is_end else b"\\"
            read[before, text] = read.get((before, text), []) + ends
        return read

    def _in_content(self, position: Position) -> tuple[int, int]:
        """The state of the content and the number of characters at a position in a string."""
        state = self.machine.states[position.state]
        assert isinstance(state, TextState)
        return state.content_state, state.characters

    def _examples(self, begun: dict[int, Position], walked: Reached) -> list[tuple[Position, bytes]]:
        """For each state that tokens reach in a string a position within such a token, and the rest of the token."""
        found = [(next(iter(begun.values())), b"")] * len(walked.states)
        for number, token in enumerate(walked.examples()):
            node, text = 0, self._vocabulary.token_bytes[token]
            for at, byte in enumerate(text):
                if node in begun:
                    found[number] = begun[node], text[at:]
                    break
                node = self._words.child(node, byte)
        return found

    def _add(self, nodes: list[int], reached: Position, found: _FoundDistances) -> None:
        """Add the tokens that end at some nodes, unless they write the completion or too much has been counted."""
        new = [node for node in nodes if self._words.is_word(node) and node not in found.known]
        if new and self._completions.work < self._most:
            needed = self._counted(reached)
            if needed != _NOT_COUNTED:
                found.add(new, needed)

    def _counted(self, position: Position) -> int:
        """:meth:`least`, or :data:`_NOT_COUNTED` if that takes more than is left of the work of the mask."""
        memory = self._completions.memory
        memory.most = self._most
        try:
            needed = self.least(position)
        except WorkSpent:
            memory.work = max(memory.work, self._most)
            return _NOT_COUNTED
        finally:
            memory.most = math.inf
        return UNKNOWN if needed is None else needed

    def _fewest(self, text: bytes) -> int | None:
        """The fewest tokens that write a text, ``None`` if none do."""
        fewest = self._fewest_of_ends(text)[-1]
        return None if fewest >= UNKNOWN else fewest

    def farthest_end(self, text: bytes) -> int:
        """The largest of the fewest numbers of tokens that write the ends of a text."""
        return min(max(self._fewest_of_ends(text)), UNKNOWN)

    def _fewest_of_ends(self, text: bytes) -> list[int]:
        """The fewest tokens for each end of a text, by the number of its bytes; :data:`UNKNOWN` if none write it."""
        before, counted = self._counted_before
        same = _common_end(text, before)
        # Entry ``n`` is the fewest tokens that write the last ``n`` bytes of the text.
        fewest, end = counted[: same + 1], len(text) - same
        while end:
            begin = max(text.rfind(_SEPARATOR, max(end - _LONGEST_PART, 0), end - 1), end - _LONGEST_PART, 0)
            base = fewest[-1]
            tail = tuple([each - base for each in fewest[-_LONGEST:]])
            part = _remembered(self._parts, (text[begin : end + _LONGEST - 1], end - begin, tail), self._find_part)
            fewest += [base + each for each in part]
            end = begin
        self._counted_before = text, fewest
        return fewest

    def _find_part(self, key: tuple[bytes, int, tuple[int, ...]]) -> list[int]:
        """The fewest tokens for each end of a text that begins in a part of the text.

        Args:
            key: three values. The first is the part, with as much of the text after it as a token reaches. The second
                is the size of the part. The third has the fewest tokens for the ends of the text after the part, the
                longest end last, as differences from the number for the longest end.
        """
        text, size, tail = key
        lengths, texts = self._texts
        lengths_from = lengths.get
        # Behind the end of the text nothing can be written.
        fewest = [*[_NOT_WRITTEN] * (_LONGEST - len(tail)), *tail]
        for begin in range(size - 1, -1, -1):
            best = fewest[-1] if text[begin : begin + 1] in texts else _NOT_WRITTEN
            if (after := fewest[-2]) < best and text[begin : begin + 2] in texts:
                best = after
            if (after := fewest[-3]) < best and text[begin : begin + 3] in texts:
                best = after
            for length in lengths_from(text[begin : begin + _BEGINNING], ()):
                if (after := fewest[-length]) < best and text[begin : begin + length] in texts:
                    best = after
            fewest.append(best + 1 if best < UNKNOWN // 2 else UNKNOWN)
        return fewest[_LONGEST:]


class _Pending:
    """Nodes that are still to be visited, by their positions. Positions are visited in the order in which they came."""

    def __init__(self) -> None:
        self._positions = deque[Position]()
        self._nodes: dict[Position, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._positions)

    def add(self, position: Position, nodes: list[int]) -> None:
        """Add some nodes at a position."""
        known = self._nodes.get(position)
        if known is None:
            self._positions.append(position)
            known = self._nodes[position] = []
        known += nodes

    def pop(self) -> tuple[Position, list[int]]:
        """The first position with all its nodes, which are pending no longer."""
        position = self._positions.popleft()
        return position, self._nodes.pop(position)


class _FoundDistances:
    """Tokens with the number of tokens that are needed after each.

    Args:
        words: the trie of the vocabulary.
        size: of the vocabulary.

    Attributes:
        known: the nodes whose number of tokens is known beforehand.
    """

    def __init__(self, words: Words, size: int) -> None:
        self._words, self._size = words, size
        self.known = set[int]()
        #: By token the least number that was found at single nodes.
        self._few: dict[int, int] = {}
        #: ``[size]``: the same for tokens at many positions. Unsigned, so that -1, for "not counted", is the largest.
        self._many: NDArray[np.uint32] | None = None

    def add_first(self, node: int, needed: int) -> None:
        """Add the tokens that end at a node whose number of tokens is known beforehand."""
        self.known.add(node)
        self.add([node], needed)

    def add(self, nodes: list[int], needed: int) -> None:
        """Add the tokens that end at some nodes, with one number for all. A token keeps its least number."""
        few = self._few
        for token in self._words.listed_at(nodes):
            known = few.get(token)
            if known is None or needed < known:
                few[token] = needed

    def add_all(self, ids: NDArray[np.int32] | None, needed: NDArray[np.int32]) -> None:
        """Add some tokens, by default all, without those that were not counted."""
        if self._many is None:
            self._many = np.full(self._size, _NOT_COUNTED, dtype=np.int32).view(np.uint32)
        if ids is None:
            np.minimum(self._many, needed.view(np.uint32), out=self._many)
        else:
            self._many[ids] = np.minimum(self._many.take(ids), needed.view(np.uint32))

    def sorted(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The tokens in ascending order, each once, with the least that was found for it."""
        if self._many is None:
            few = np.array(sorted(self._few.items()), dtype=np.int32).reshape(-1, 2).T
            return few[0], few[1]
        few_ids = np.fromiter(self._few.keys(), dtype=np.int64, count=len(self._few))
        few_needed = np.fromiter(self._few.values(), dtype=np.uint32, count=len(self._few))
        self._many[few_ids] = np.minimum(self._many.take(few_ids), few_needed)
        least = self._many.view(np.int32)
        ids = np.flatnonzero(least != _NOT_COUNTED)
        return ids.astype(np.int32), least.take(ids)


def _remembered(memory: dict[Key, Entry], key: Key, find: Callable[[Key], Entry]) -> Entry:
    """The entry of a bounded memory for a key; a function makes an entry that is missing."""
    if key not in memory:
        found = find(key)
        if len(memory) > _MOST_REMEMBERED:
            memory.clear()
        memory[key] = found
    return memory[key]


def _common_end(one: bytes, other: bytes) -> int:
    """The number of bytes with which two texts end alike."""
    same, most = 0, min(len(one), len(other))
    while same < most:
        size = (same + most + 1) // 2
        if one.endswith(other[-size:]):
            same = size
        else:
            most = size - 1
    return same


@kept_with_vocabulary
def _texts_of(vocabulary: Vocabulary) -> tuple[dict[bytes, list[int]], frozenset[bytes]]:
    """The texts of the tokens, and by the first bytes of longer ones their lengths, ascending."""
    flat, offsets = vocabulary.flat_bytes, vocabulary.offsets
    sizes = np.diff(offsets)
    longer = ((sizes >= _BEGINNING) & (sizes <= _LONGEST)).nonzero()[0]
    beginnings = flat[offsets.take(longer)[:, None] + np.arange(_BEGINNING)]
    # Pairs of a beginning, as a number of four bytes, and a length.
    pairs = np.unique(beginnings.view(">u4").ravel().astype(np.int64) << 8 | sizes.take(longer))
    is_first = np.diff(pairs >> 8, prepend=-1) != 0
    keys, lengths = (pairs[is_first] >> 8).astype(">u4").tobytes(), (pairs & 0xFF).tolist()
    ends = [*is_first.nonzero()[0].tolist(), len(lengths)]
    groups = [lengths[begin:end] for begin, end in itertools.pairwise(ends)]
    found = {keys[_BEGINNING * at : _BEGINNING * (at + 1)]: group for at, group in enumerate(groups)}
    return found, frozenset(vocabulary.token_bytes)
