"""The walk of a trie inside strings: one table of next states per content, and no machine state for each of them.

The walk is :mod:`logitloom.automata.lift.level_walk`. A word is a token, or a rest of a token (:mod:`.string_rows`).
The table leaves quotes and backslashes to the caller, because the caller knows what follows the string.

A walk takes a bounded time. Where no word can break a bound on the length, the table has no numbers of characters. Near
a bound the table has the numbers of characters that words reach. If these are too many for a table, the next states are
computed at each level.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata.automaton_kernels import Paths, automaton_kernels
from logitloom.automata.lift.above_ascii import marks_above_ascii
from logitloom.automata.lift.compiled_walk import compiled_positions
from logitloom.automata.lift.default_paths import ascii_columns, default_transitions, followed, levels_of
from logitloom.automata.lift.endless_runs import lost_by_bytes, with_endless_runs
from logitloom.automata.lift.level_walk import WalkTable, level_walk
from logitloom.automata.lift.trie import Trie
from logitloom.automata.lift.trie_walk import characters_before, characters_below
from logitloom.masks.kernels import ByteTable, KernelFailed
from logitloom.vocabulary import kept_with_vocabulary
from logitloom_plugins.json_schema.grammar.contexts import NameContext, StringContext, TextContext
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine

__all__ = ["ContentWalk", "Ends", "FreeWalks", "Places", "Reached", "free_walks"]

#: The most entries of a table with numbers of characters, which is made in a few milliseconds, and of one without.
_MOST_ENTRIES: Final = 1 << 18
_MOST_UNCOUNTED: Final = 1 << 22
#: The largest number of states for which an array of flags finds the states that occur.
_MOST_MARKED: Final = 1 << 20
#: The most pairs of a state and a number of characters that are asked whether bounds on the length matter.
_MOST_ASKED: Final = 1 << 19
#: The most states whose walks of all words are remembered.
_MOST_WALKED: Final = 4
#: The most states of which it is remembered that all words have been walked.
_MOST_BEGUN: Final = 1 << 10
#: The most walks that are kept for a vocabulary: of all words, of 4 bytes for each token, and below other nodes.
_MOST_FREE: Final = 8
_MOST_BELOW: Final = 32
#: The most states of a table whose paths are followed for more than one character.
_MOST_FOLLOWED: Final = 1 << 13
_QUOTE, _BACKSLASH = b'"\\'

#: Where strings end or escapes begin: a node, the state and the number of characters before it, and whether the string
#: ends there.
Ends = list[tuple[int, tuple[int, int], bool]]
#: Numbers of words, nodes or pairs.
Places = NDArray[np.int32] | NDArray[np.int64]
#: The nodes of ends, by the state and the number of characters before them, and whether the string ends there.
EndNodes = dict[tuple[tuple[int, int], bool], list[int]]


class Reached(NamedTuple):
    """The words that stay in a string, and the states to which these words lead.

    Attributes:
        ids: the words; ``None`` for all ids of the vocabulary in their order.
        which: for each word an index into ``states``, or -1 if the word does not stay in the string.
        states: states of the content with numbers of characters; ``None`` where no text can go on.
        ends: where strings end or escapes begin.
    """

    ids: NDArray[np.int32] | None
    which: NDArray[np.int32]
    states: list[tuple[int, int] | None]
    ends: EndNodes

    def examples(self) -> list[int]:
        """A word for each of the states."""
        place = np.zeros(len(self.states) + 1, dtype=np.int64)
        place[self.which] = np.arange(len(self.which))
        found: list[int] = (place[:-1] if self.ids is None else self.ids.take(place[:-1])).tolist()
        return found


class _Table(WalkTable):
    """The automaton of a content as a table.

    The code of a quote is ``-2 - 2 * state``, that of a backslash ``-3 - 2 * state``. Where characters are counted, a
    state of the table is a pair: ``(count - first) * states + state``.

    Args:
        automaton: the table.
        states: number of states of the content.
        first: the least number of characters.
    """

    # With fewer pairs, a level is not searched for subtrees that may be skipped.
    least_pairs = 64
    least_tokens = 0
    reads_single = True
    leaves = True

    def __init__(self, automaton: ByteTable, states: int, first: int) -> None:
        self._table, self.states, self.first = automaton, states, first
        self._entries = automaton.next.ravel().data
        self._columns = automaton.byte_class.tobytes()
        #: Which subtrees may be skipped, by the height of the trie.
        self._found_paths: dict[int, tuple[Paths, Paths]] = {}

    @property
    def automaton(self) -> ByteTable:
        """The table."""
        return self._table

    @cached_property
    def loops(self) -> NDArray[np.bool_]:  # type: ignore[override]
        """``[pairs] bool``: whether most ASCII characters lead back to the pair itself."""
        following, _, byte_class = self._table
        default = default_transitions(following, ascii_columns(byte_class[:128].tobytes()))
        loops: NDArray[np.bool_] = default == np.arange(len(following))
        return loops

    def pairs(self, begun: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
        """Nodes with states of the table, from nodes with a state of the content and a number of characters each."""
        return [(node, (count - self.first) * self.states + content_state) for node, content_state, count in begun]

    def step(self, states: Places, read: NDArray[np.uint8]) -> Places:
        """The next states or codes for arrays of states and bytes, -1 for none."""
        found: Places = self._table.next[states, self._table.byte_class.take(read)]
        return found

    def row(self, state: int) -> Sequence[int]:
        """The entries of a state by column."""
        width = self._table.next.shape[1]
        return self._entries[state * width : (state + 1) * width]

    @property
    def columns(self) -> Sequence[int]:
        """The column of each byte."""
        return self._columns

    def paths(self, trie: Trie, states: Places | None = None) -> Paths:
        """The characters that leave the path which most characters take."""
        return self._paths_and_staying(trie)[0]

    def staying(self, trie: Trie) -> Paths:
        """See :class:`.WalkTable`."""
        return self._paths_and_staying(trie)[1]

    def _paths_and_staying(self, trie: Trie) -> tuple[Paths, Paths]:
        following, _, byte_class = self._table
        heights = trie.longest
        known = self._found_paths.get(heights)
        if known is None:
            kernels = automaton_kernels()
            columns = ascii_columns(byte_class[:128].tobytes())
            levels = max(heights - 1, 0).bit_length() if following.shape[0] <= _MOST_FOLLOWED else 0
            default = default_transitions(following, columns)
            given = marks_above_ascii(following, byte_class, default)
            found = followed(kernels, following, columns, default, given, levels)
            rows = levels_of(trie, levels) * (len(following) + 1)
            runs = with_endless_runs(found, lost_by_bytes(following, byte_class, given, columns))
            known = Paths(*runs, rows, len(following)), Paths(*found, rows, len(following))
            self._found_paths[heights] = known
        return known

    @property
    def size(self) -> int:
        """The number of pairs."""
        return len(self._table.next)


class _Computed(WalkTable):
    """The automaton of a content without a table: the states after a byte are computed when they are asked for.

    Args:
        context: the string.
        plain: ``[256]``, whether a byte stands for itself.
    """

    leaves = True
    first = 0

    def __init__(self, context: StringContext, plain: NDArray[np.bool_]) -> None:
        content, self._plain = context.content, plain
        self._automaton, self._alive = content.automaton, content.all_alive if content.counts else None
        self._living = context.living() if isinstance(context, NameContext) and not context.is_free else None
        self._limit = content.points[-1] if content.counts else 0
        self._boundaries = np.frombuffer(content.automaton.boundaries, dtype=bool)
        self._escapes = context.escapes is not False
        self.states = content.automaton.states
        self.size = (self._limit + 1) * self.states

    def pairs(self, begun: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
        """See :class:`_Table`."""
        return [(node, count * self.states + content_state) for node, content_state, count in begun]

    def step(self, states: Places, read: NDArray[np.uint8]) -> Places:
        """See :class:`_Table`."""
        counts, inner = np.divmod(states.astype(np.int64), self.states)
        between = self._boundaries.take(inner)
        following = np.minimum(counts + between, self._limit)
        target = self._automaton.next[inner, self._automaton.byte_class.take(read)]
        alive = self._plain.take(read) & (target >= 0)
        if self._living is not None:
            alive &= self._living.take(target)
        if self._alive is not None:
            alive &= self._alive(following, np.maximum(target, 0))
        found: NDArray[np.int64] = np.where(alive, following * self.states + target, -1)
        found = np.where((read == _QUOTE) & between, -2 - 2 * states, found)
        return np.where((read == _BACKSLASH) & between, -3 - 2 * states, found) if self._escapes else found


class FreeWalks:
    """Walks of words of a vocabulary in strings in which any character may come, for all schemas.

    Args:
        size: of the vocabulary.

    Attributes:
        walked: by what the strings may hold and the state where all words lead.
        below: by the same and nodes, each with a state, where the words below the nodes lead.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.walked: dict[Hashable, tuple[Trie, Reached]] = {}
        self.below: dict[Hashable, tuple[Trie, Reached]] = {}


@kept_with_vocabulary
def free_walks(vocabulary: Vocabulary) -> FreeWalks:
    """The walks of a vocabulary."""
    return FreeWalks(vocabulary.size)


class ContentWalk:
    """Walks inside the strings of one machine.

    Args:
        plain: ``[256]``, whether a byte stands for itself.
    """

    def __init__(self, plain: NDArray[np.bool_]) -> None:
        self._plain = plain
        self._tables: dict[Hashable, _Table | _Computed] = {}
        #: Where words lead in other strings, by trie, table or automaton, nodes and states.
        self._walked: dict[Hashable, tuple[Trie, Reached]] = {}
        #: The strings with bounds on their length of which all words have been walked, by trie, automaton and state.
        self._begun = set[Hashable]()

    def __call__(self, trie: Trie, context: StringContext, begun: list[tuple[int, int, int]]) -> tuple[Places, Ends]:
        """The words below nodes of a trie that stay inside a string.

        Args:
            trie: the words.
            context: the string.
            begun: nodes with the state of the content and the number of characters at each. No node is below another.

        Returns:
            The positions of the words in the trie's order, and where strings end.
        """
        from_root = context.content.counts and bool(begun) and begun[0][0] == 0
        if isinstance(context, TextContext):
            if from_root and self._is_begun_again(self._key(trie, context, begun)):
                return self._counted_from_root(trie, context, begun[0])
            if self._keeps_within_bounds(trie, context, begun):
                positions, ends = self(trie, context.unbounded, [(node, state, 0) for node, state, _ in begun])
                return positions, _counted_ends(trie, context, begun, ends)
        table = self._table(context, trie, begun)
        if isinstance(context, TextContext) and from_root and isinstance(table, _Computed):
            return self._counted_from_root(trie, context, begun[0])
        kernels, pairs = automaton_kernels(), table.pairs(begun)
        if kernels is not None and table.automaton is not None:
            with suppress(KernelFailed):
                positions, left = compiled_positions(kernels, trie, table, pairs)
                return positions, _ends(table, left)
        walked = level_walk(trie, table, pairs)
        return walked.positions(trie), _ends(table, walked.left)

    def _is_begun_again(self, key: Hashable) -> bool:
        """Whether a walk from the root that does not count characters is known, or pays for the numbers that follow.

        It takes twice as long as a walk that counts, and without compiled loops what is read off it a third.
        """
        if key in self._walked:
            return True
        again = key in self._begun
        if len(self._begun) >= _MOST_BEGUN:
            self._begun.clear()
        self._begun.add(key)
        return again and len(self._walked) < _MOST_WALKED and automaton_kernels() is None

    def _counted_from_root(self, trie: Trie, context: TextContext, begun: tuple[int, int, int]) -> tuple[Places, Ends]:
        """The results of a call with the root alone, from a walk that does not count characters."""
        found = _moved(self._uncounted(trie, context, [begun]), context.content, begun[2])
        lives = np.array([*[state is not None for state in found.states], False])
        ends = [(node, *place) for place, nodes in found.ends.items() for node in nodes]
        return lives.take(found.which.take(trie.order)).nonzero()[0], ends

    def _keeps_within_bounds(self, trie: Trie, context: TextContext, begun: list[tuple[int, int, int]]) -> bool:
        """Whether every word below some nodes leaves an end within the bounds on the length."""
        content = context.content
        if not content.counts or not begun:
            return False
        counts, height = [count for _, _, count in begun], trie.longest
        first, last = min(counts), max(counts) + height
        if (last - first + 1) * content.automaton.states > _MOST_ASKED:
            return False
        every = np.arange(first, last + 1)[:, None], np.arange(content.automaton.states)
        return bool(np.all(content.all_alive(*every)))

    def reached(
        self, trie: Trie, context: StringContext, begun: list[tuple[int, int, int]], free: FreeWalks
    ) -> Reached:
        """The words below nodes of a trie that stay inside a string, and where each word leads.

        Args:
            trie: the words.
            context: the string.
            begun: as for a call. The root is begun alone.
            free: walks of the same trie in strings of any characters.
        """
        if isinstance(context, TextContext) and (context.content.free or context.content.counts):
            return self._counted(trie, context, begun, free)
        table = self._table(context, trie, begun)
        if begun[0][0] != 0:
            return self._reached(table, trie, begun, free.size)
        # The trie is kept alive, so that no other trie gets the same ``id``.
        key = id(trie), id(table), begun[0]
        if key not in self._walked:
            if len(self._walked) >= _MOST_WALKED:
                del self._walked[next(iter(self._walked))]
            self._walked[key] = trie, self._reached(table, trie, begun, free.size)
        return self._walked[key][1]

    def _counted(self, trie: Trie, context: TextContext, begun: list[tuple[int, int, int]], free: FreeWalks) -> Reached:
        """:meth:`reached` where the number of characters matters, computed from walks that do not count characters."""
        found: list[Reached] = []
        # The characters before the text of a word, if the whole word were in the string.
        before = [count - int(trie.characters[node]) for node, _, count in begun]
        for each in dict.fromkeys(before):
            alike = [at for at, count in zip(begun, before, strict=True) if count == each]
            found.append(_moved(self._uncounted(trie, context, alike, free), context.content, each))
        walked = _joined(found)
        missing = free.size - len(walked.which) if walked.ids is None else 0
        return walked._replace(which=np.append(walked.which, np.full(missing, -1, np.int32))) if missing else walked

    def _uncounted(
        self, trie: Trie, context: TextContext, begun: list[tuple[int, int, int]], free: FreeWalks | None = None
    ) -> Reached:
        """The words below nodes that stay in a string without bounds, and where each word leads.

        Instead of the characters of the string the numbers count those of the whole word.

        Args:
            trie: the words.
            context: the string.
            begun: as for a call; the numbers of characters make no difference.
            free: walks of the same trie, for strings of any characters.
        """
        root, key = begun[0][0] == 0, self._key(trie, context, begun)
        memory, most = self._walked, _MOST_WALKED
        if free is not None and context.content.free:
            automaton = context.content.automaton
            parts = automaton.next, automaton.byte_class, automaton.accepting, self._plain
            key = (*[each.tobytes() for each in parts], key[-1])
            memory, most = (free.walked, _MOST_FREE) if root else (free.below, _MOST_BELOW)
        found = memory.get(key)
        if found is None:
            size = int(trie.order.max(initial=-1)) + 1
            found = trie, self._reached(self._table(context.unbounded, trie, []), trie, begun, size, True)
            if root or memory is not self._walked:
                if len(memory) >= most:
                    del memory[next(iter(memory))]
                memory[key] = found
        return found[1]

    def _key(self, trie: Trie, context: TextContext, begun: list[tuple[int, int, int]]) -> tuple[Hashable, ...]:
        return id(trie), context.content.automaton, tuple([(node, state) for node, state, _ in begun])

    def _reached(
        self, table: _Table | _Computed, trie: Trie, begun: list[tuple[int, int, int]], size: int, counts: bool = False
    ) -> Reached:
        """Where words lead in a string without bounds on the length; with ``counts`` as :meth:`_uncounted` says."""
        walked = level_walk(trie, table, [(node, state) for node, state, _ in begun], keep_states=True)
        positions, states = walked.positions(trie), walked.states_after(trie)
        numbers = trie.longest + 1 if counts else 1
        if counts:
            states = states * np.int64(numbers) + trie.characters_of_words.take(positions)
        different, found = _distinct(states, table.size * numbers)
        reached: list[tuple[int, int] | None] = [divmod(pair, numbers) for pair in different.tolist()]
        ends: EndNodes = {}
        left = _ends(table, walked.left)
        before = characters_before(trie, np.array([node for node, _, _ in left], dtype=np.int64)).tolist()
        for (node, (state, _), is_end), characters in zip(left, before, strict=True):
            count = characters if counts else 0
            ends.setdefault(((state, count), is_end), []).append(node)
        ids, which = trie.order.take(positions), found.astype(np.int32)
        if begun[0][0] != 0:
            return Reached(ids, which, reached, ends)
        by_id = np.full(size, -1, dtype=np.int32)
        by_id[ids] = which
        return Reached(None, by_id, reached, ends)

    def _table(self, context: StringContext, trie: Trie, begun: list[tuple[int, int, int]]) -> _Table | _Computed:
        """The table of a content: for all numbers of characters or, if they are many, for those that words reach."""
        content, automaton = context.content, context.content.automaton
        first, last = 0, content.points[-1] if content.counts else 0
        most = _MOST_ENTRIES if content.counts else _MOST_UNCOUNTED
        if (last + 1) * automaton.next.size > most and content.counts and begun:
            counts, height = [count for _, _, count in begun], trie.longest
            first, last = content.window(min(counts), min(max(counts) + height, last), height)
        fits = (last - first + 1) * automaton.next.size <= most and automaton.classes < 0x100 - 3
        key: Hashable = (content, first if fits else None, last) if content.counts else automaton
        if isinstance(context, NameContext) and not context.is_free:
            living = context.living()
            key = automaton, living.tobytes()
        if key not in self._tables:
            if not fits:
                self._tables[key] = _Computed(context, self._plain)
            else:
                if content.counts:
                    following = content.counted_steps(first, last)
                else:
                    following = automaton.among(living) if type(key) is tuple else automaton.next
                self._tables[key] = self._made(following, automaton, context.escapes is not False, first)
        return self._tables[key]

    def _made(self, following: NDArray[np.int32], automaton: MooreMachine, escapes: bool, first: int = 0) -> _Table:
        pairs, classes = following.shape
        counts = pairs // automaton.states
        byte_class = automaton.byte_class.copy()
        byte_class[~self._plain] = classes
        byte_class[_QUOTE], byte_class[_BACKSLASH] = classes + 1, classes + 2
        table = np.full((pairs, classes + 3), -1, dtype=np.int32)
        table[:, :classes] = following
        codes = -2 - 2 * np.arange(pairs, dtype=np.int32)
        between = np.tile(np.frombuffer(automaton.boundaries, dtype=bool), counts)
        table[:, classes + 1] = np.where(np.tile(automaton.accepting, counts) & between, codes, -1)
        if escapes:
            table[:, classes + 2] = np.where(between, codes - 1, -1)
        return _Table(ByteTable(table, np.ones(pairs, dtype=bool), byte_class), automaton.states, first)


def _distinct(numbers: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different numbers of an array, ascending, and for each entry the place of its number among these.

    Args:
        numbers: the array.
        size: a bound above all numbers.
    """
    if size > _MOST_MARKED:
        return np.unique(numbers, return_inverse=True)
    here = np.zeros(size, dtype=bool)
    here[numbers] = True
    return here.nonzero()[0], (here.cumsum() - 1).take(numbers)


def _moved(walked: Reached, content: Content, before: int) -> Reached:
    """The result of a walk after some characters, computed from the result in a string without bounds.

    Args:
        walked: the result of :meth:`ContentWalk._uncounted`.
        content: the content with its bounds.
        before: the characters before the whole word.
    """
    places = [at for at in walked.states if at is not None] + [at for at, _ in walked.ends]
    states, counts = np.array(places, dtype=np.int64).reshape(-1, 2).T
    counts = counts + before
    alive = np.broadcast_to(content.all_alive(counts, states), counts.shape) if content.counts else states >= 0
    moved = [
        (state, content.counted(count)) if lives else None
        for state, count, lives in zip(states.tolist(), counts.tolist(), alive.tolist(), strict=True)
    ]
    ends: EndNodes = {}
    for (_, is_end), nodes, after in zip(walked.ends, walked.ends.values(), moved[len(walked.states) :], strict=True):
        # Ends beyond the bounds are left out, because no text could go on there.
        if after is not None:
            ends[after, is_end] = ends.get((after, is_end), []) + nodes
    return walked._replace(states=moved[: len(walked.states)], ends=ends)


def _joined(found: list[Reached]) -> Reached:
    """The results of several walks, none of all words."""
    if len(found) == 1:
        return found[0]
    sizes = np.cumsum([0, *[len(each.states) for each in found]])
    ends: EndNodes = {}
    for each in found:
        for place, nodes in each.ends.items():
            ends[place] = ends.get(place, []) + nodes
    return Reached(
        np.concatenate([each.ids for each in found if each.ids is not None]),
        np.concatenate([each.which + size for each, size in zip(found, sizes.tolist(), strict=False)]),
        [state for each in found for state in each.states],
        ends,
    )


def _ends(table: _Table | _Computed, left: list[list[int]]) -> Ends:
    """The ends, from nodes with the codes of quotes and backslashes."""
    ends: Ends = []
    for node, code in left:
        count, content_state = divmod((-2 - code) >> 1, table.states)
        ends.append((node, (content_state, table.first + count), not code & 1))
    return ends


def _counted_ends(trie: Trie, context: StringContext, begun: list[tuple[int, int, int]], ends: Ends) -> Ends:
    """Ends of strings with the numbers of characters before them, from ends without these numbers."""
    nodes = np.array([node for node, _, _ in ends], dtype=np.int64)
    roots, before = np.array([(node, count) for node, _, count in begun], dtype=np.int64).T
    above, between = characters_below(trie, roots, nodes)
    counts, content = before.take(above) + between, context.content
    return [
        (node, (state, content.counted(count)), is_end)
        for (node, (state, _), is_end), count in zip(ends, counts.tolist(), strict=True)
    ]
