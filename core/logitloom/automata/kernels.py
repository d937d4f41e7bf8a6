"""Compiled loops over automata: what a plug-in of the group ``logitloom.kernels`` provides beside those over masks.

Each does what the NumPy code beside its caller does, sooner. Without a plug-in everything works as well.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from logitloom.masks.kernels import ByteTable, MaskKernels, host_kernels

__all__ = [
    "ENDLESS",
    "NO_PATHS",
    "AsciiClasses",
    "AutomatonKernels",
    "Factor",
    "HostKernels",
    "Notes",
    "Paths",
    "PositionAutomaton",
    "Progress",
    "Ragged",
    "automaton_kernels",
]

#: For :meth:`AutomatonKernels.walk`: without a pause.
ENDLESS: Final = 1 << 62


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


class AutomatonKernels(Protocol):
    """Functions on automata. Arrays are C-contiguous; those that are only read may be read-only."""

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


class HostKernels(AutomatonKernels, MaskKernels, Protocol):
    """What a plug-in of the group ``logitloom.kernels`` provides."""


def automaton_kernels() -> AutomatonKernels | None:
    """The installed kernels, as :func:`logitloom.masks.kernels.host_kernels`; ``None`` if there are none."""
    return cast("AutomatonKernels | None", host_kernels())
