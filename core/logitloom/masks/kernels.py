"""Compiled loops for host memory, an optional plug-in: the same results as the NumPy code beside them, sooner.

NumPy works on whole arrays, which suits walks that are wide and masks that are long. A walk through a few hundred nodes
of a trie, or a mask of a few ids, costs it mostly calls. Whoever installs a plug-in of the group ``logitloom.kernels``
has these loops compiled; without one everything works as well. ``LOGITLOOM_BLOCK=kernels/NAME`` switches one off.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ALLOWED",
    "DENSE",
    "ENDLESS",
    "FORBIDDEN",
    "NO_PATHS",
    "AsciiClasses",
    "ByteTable",
    "Factor",
    "HostKernels",
    "Notes",
    "Paths",
    "PositionAutomaton",
    "Progress",
    "Ragged",
    "StepTables",
    "bits_of",
    "do_without_kernels",
    "host_kernels",
    "load_kernels_with",
]

#: A kind of prepared mask: its ids are the allowed ones.
ALLOWED: Final = 0
#: A kind of prepared mask: it has a byte for each id.
DENSE: Final = 1
#: A kind of prepared mask: its ids are the forbidden ones.
FORBIDDEN: Final = 2

#: For :meth:`HostKernels.walk`: without a pause.
ENDLESS: Final = 1 << 62


class ByteTable(NamedTuple):
    """A deterministic automaton over bytes, as far as it is known.

    Attributes:
        next: ``[states, classes] int32``: -1 for none; what is below is left to the caller.
        ready: ``[states] bool``: whether a row of ``next`` can be relied on.
        byte_class: ``[256] uint8``: the class of each byte.
    """

    next: NDArray[np.int32]
    ready: NDArray[np.bool_]
    byte_class: NDArray[np.uint8]


class Paths(NamedTuple):
    """What would leave each state's usual path within some number of characters.

    From every state one step is usual: where its largest class of ASCII bytes leads. Entries are at
    ``row_of_height[characters] + stride * min(state, known)``: the first ``known`` states have entries of their own,
    and the next one speaks for the others.

    Attributes:
        low, high: ``uint64``: a bit for each ASCII character, 0-63 and 64-127, that leads elsewhere from some state of
            the path.
        marks: ``uint8``: a bit for each kind of other contents that may, as in ``Trie.marks``.
        row_of_height: ``int64``, by the height of a subtree.
        known: -1 if nothing is known.
        stride: between the entries of two states.
    """

    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    marks: NDArray[np.uint8]
    row_of_height: NDArray[np.int64]
    known: int
    stride: int = 1


#: What stands for :class:`Paths` as long as they are not asked for.
NO_PATHS: Final = Paths(
    np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.uint8), np.zeros(1, np.int64), -1
)


class Notes(NamedTuple):
    """Where a walk notes the tokens that it finds: few are listed, many are marked, which costs all tokens once.

    Attributes:
        listed: ``[n] int32``, places in the order of the trie; relied on as long as no more than ``n`` are found.
        marked: ``[8 * ceil(tokens / 8)] uint8``, then 1 for each that is found.
    """

    listed: NDArray[np.int32]
    marked: NDArray[np.uint8]


class Progress(NamedTuple):
    """How far a walk has come.

    Attributes:
        begin, end: the pairs to visit are ``pairs[begin:end]``, and those that are found come behind them.
        waiting: the pairs ``pairs[:waiting]`` wait, because the row of their state cannot be relied on.
        special: the pairs left to the caller are ``pairs[special:]``.
        found: how many tokens are noted.
    """

    begin: int
    end: int
    waiting: int
    special: int
    found: int


class AsciiClasses(NamedTuple):
    """Which columns of a table the ASCII bytes have.

    Attributes:
        columns: ``[n] uint8``.
        sizes: ``[n] int64``: how many ASCII bytes each has.
        bits: ``[2, n] uint64``: these bytes as bits, 0-63 and 64-127.
    """

    columns: NDArray[np.uint8]
    sizes: NDArray[np.int64]
    bits: NDArray[np.uint64]


class Ragged(NamedTuple):
    """Lists of numbers: list ``i`` is ``values[starts[i] : starts[i + 1]]``."""

    values: NDArray[np.int32]
    starts: NDArray[np.int64]


class PositionAutomaton(NamedTuple):
    """A nondeterministic automaton whose states are positions in a pattern; position 0 stands for the end of the text.

    Attributes:
        first: ``[n] int32``: the positions at the start.
        follow: after each position, the positions that may come next.
        set_at: ``[positions] int32``: the number of the set of characters that is read there.
        members: by the number of a set, its classes of characters.
        classes: number of classes.
    """

    first: NDArray[np.int32]
    follow: Ragged
    set_at: NDArray[np.int32]
    members: Ragged
    classes: int


class Factor(NamedTuple):
    """One automaton of a product.

    Attributes:
        next: ``[states + 1, columns] int32``; the last state is dead.
        start: where it begins.
        needed: whether a pair counts only if this one is not dead. If neither is needed, one of them must be alive.
    """

    next: NDArray[np.int32]
    start: int
    needed: bool


class StepTables(NamedTuple):
    """What a step through a batch reads.

    Attributes:
        automaton: where bytes lead.
        text, offsets: the bytes of all tokens, ``[size + 1] int64`` where each begins.
        ends: end-of-sequence ids, after which a row is finished.
        accepting: ``[states + 2] bool``: where a text may end; the last rows are the finished and the dead state.
        closing: ``[states] bool``: where a text must end at the border of two tokens.
        records: ``[states + 2, 3] int64``: the mask of each state as for :meth:`HostKernels.write`, of kind -1 where it
            is not known.
    """

    automaton: ByteTable
    text: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    ends: NDArray[np.int32]
    accepting: NDArray[np.bool_]
    closing: NDArray[np.bool_]
    records: NDArray[np.int64]


class HostKernels(Protocol):
    """What a plug-in provides. Arrays are C-contiguous; those that are only read may be read-only."""

    def walk(
        self,
        automaton: ByteTable,
        nodes: NDArray[Any],
        byte: NDArray[np.uint8],
        paths: Paths,
        pairs: NDArray[np.int32],
        notes: Notes,
        progress: Progress,
        limit: int,
    ) -> Progress:
        """Walk a prefix trie with an automaton and note the tokens that lead to a live state.

        Args:
            automaton: next states.
            nodes, byte: the trie's attributes ``records`` and ``byte``.
            paths: what is known of whole subtrees; they are taken whole if nothing in them leaves the state's path.
            pairs: ``[nodes, 2]``: pairs (node, state) of which the children are to be visited, at the beginning those
                that wait, and at the end pairs of a node and what is below -1.
            notes: where tokens that are found are noted.
            progress: where to go on. At most ``begin`` pairs wait.
            limit: after so many nodes the walk pauses.

        Returns:
            How far it came.
        """
        ...

    def paths(
        self,
        source: NDArray[np.int32],
        ascii_part: AsciiClasses,
        split: int,
        kinds: NDArray[np.bool_],
        given: NDArray[np.uint8],
        levels: int,
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]:
        """What leaves the usual path of each state within 1, 2, 4, ... characters.

        Args:
            source: ``[states, classes]``, next states; from each the usual step is that of its largest class.
            ascii_part: the columns of ASCII.
            split: the first class above ASCII.
            kinds: ``[2, classes above ASCII + 1]``: which of them hold word characters, and which others.
            given: marks of each state's own step, ``[states]``; if it is empty they follow from ``kinds``.
            levels: how many times to go twice as far.

        Returns:
            ``low``, ``high`` and ``marks`` as in :class:`Paths`, ``[(levels + 2) * (states + 1)]`` each: of a state
            within ``2 ** level`` characters at ``level * (states + 1) + state``. The last state of each level, and the
            last level, are left by everything.
        """
        ...

    def marks(
        self,
        table: NDArray[np.int32],
        byte_class: NDArray[np.uint8],
        usual: NDArray[np.int32],
        kinds: tuple[NDArray[Any], ...],
    ) -> NDArray[np.uint8]:
        """Which kinds of characters above ASCII may lead elsewhere than where they usually do.

        Args:
            table: ``[states, classes]``, next states, negative for none.
            byte_class: ``[256]``.
            usual: ``[states]``, the usual next state, negative for none.
            kinds: :class:`logitloom.automata.above_ascii.Kinds`.

        Returns:
            ``[states]``, bits as in ``Trie.marks``.
        """
        ...

    def product(self, first: Factor, second: Factor, limit: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The pairs of states that two automata reach together, in the order in which they are found.

        Args:
            first, second: the automata.
            limit: the search ends when more pairs are found.

        Returns:
            ``[pairs, 2]``, and ``[pairs, columns]`` the next pair, -1 for none.
        """
        ...

    def determinize(self, automaton: PositionAutomaton, limit: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Subset construction.

        Args:
            automaton: the positions.
            limit: the search ends when more states are found.

        Returns:
            ``[states, classes]`` next states, -1 for none, and ``[states]`` whether a text may end there. States are in
            the order in which they are found, class by class; all rows are right unless there are more than ``limit``.
        """
        ...

    def spread(self, ids: NDArray[np.int32], value: bool, mask: NDArray[np.bool_]) -> bool:
        """Write a value at the places of a mask that are listed.

        Args:
            ids: ``[n]``.
            value: what to write.
            mask: ``[size]``, written to.

        Returns:
            Whether all ids are within the mask; if not, some of it may be written.
        """
        ...

    def collect(
        self,
        notes: Notes,
        order: NDArray[np.int32],
        found: int,
        ends: NDArray[np.int32],
        textless: NDArray[np.int32],
        size: int,
    ) -> tuple[bool, NDArray[np.int32]]:
        """The ids of a row, in the shorter way.

        Args:
            notes: the allowed tokens; may be changed.
            order: ``[tokens]``, the ids of the trie's tokens.
            found: how many are noted.
            ends: further allowed ids, all of them among ``textless``.
            textless: the ids that are not in the trie.
            size: number of ids in all.

        Returns:
            Whether the allowed ids are listed (at most half of all) or the forbidden ones, and these ids, sorted.
        """
        ...

    def step(
        self,
        states: NDArray[np.int32],
        tokens: NDArray[np.int32],
        tables: StepTables,
        reached: NDArray[np.int32],
        masks: NDArray[np.int64],
    ) -> tuple[bool, int]:
        """Advance rows through an automaton and look up their masks, while no other thread of Python runs.

        Args:
            states: ``[rows]``; -2 is finished, -1 dead, and so are ``len(closing)`` and ``len(closing) + 1``.
            tokens: ``[rows, n]``, negative ones stand for nothing.
            tables: the automaton, the vocabulary and the masks.
            reached, masks: ``[rows]`` and ``[rows, 3]``: the results.

        Returns:
            Whether all is done (not if a token is illegal, or something is not known), and the buffer cost of
            the masks (:attr:`logitloom.masks.mask_row.MaskRow.buffer_cost`), summed over the rows.
        """
        ...

    def write(
        self,
        after: NDArray[Any],
        before: NDArray[Any],
        masks: NDArray[np.int64],
        forbidden: int,
        in_place: bool,
    ) -> None:
        """Write masked rows.

        Args:
            after, before: ``[rows, vocab]`` unsigned integers of 16 or 32 bits: the logits' own bits.
            masks: ``[rows, 3]``: kind, address and length of each mask. Lists are 64-bit integers.
            forbidden: the bits of what is forbidden.
            in_place: whether ``after`` is ``before``.
        """
        ...

    def rewrite(
        self,
        after: NDArray[Any],
        before: int,
        written: NDArray[np.int64],
        masks: NDArray[np.int64],
        forbidden: int,
    ) -> None:
        """Write masked rows over others of which is known what their masks left.

        Args:
            after: ``[at least rows, vocab]`` unsigned integers of 16 or 32 bits.
            before: the address of logits of the same type and width, one row after the other. Asking a library for an
                address takes a fraction of what a NumPy array of its memory does.
            written: ``[len(after), 3]``: rows of ``after`` are forbidden but for what these masks leave, where their
                kind is that of allowed ids; afterwards the new masks are there.
            masks, forbidden: as for :meth:`write`.
        """
        ...


_wanted = True

#: Gives the installed kernels.
_load_kernels: Callable[[], HostKernels | None] | None = None


def load_kernels_with(load: Callable[[], HostKernels | None]) -> None:
    """Set what :func:`host_kernels` asks for the installed kernels, the first time that somebody needs them.

    :mod:`logitloom.registry` sets a function that asks the plug-ins when it is imported.
    """
    global _load_kernels
    _load_kernels = load
    host_kernels.cache_clear()


def do_without_kernels() -> None:
    """Load no kernels in this process from now on; for engines that a library of theirs would disturb.

    Kernels that were loaded before stay.
    """
    global _wanted
    _wanted = False


@cache
def host_kernels() -> HostKernels | None:
    """The installed kernels (the first by name that is not blocked), or ``None``; found once."""
    return _load_kernels() if _wanted and _load_kernels is not None else None


@cache
def bits_of(dtype: np.dtype[Any], value: Any) -> tuple[np.dtype[Any], int] | None:
    """The unsigned integers of a dtype's size, and a value as one of them; ``None`` if no kernel takes them."""
    if dtype.itemsize not in (2, 4):
        return None
    kind = np.dtype(f"u{dtype.itemsize}")
    return kind, int(np.array(value, dtype=dtype).view(kind))
