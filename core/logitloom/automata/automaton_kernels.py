"""Protocol of the compiled loops over automata that a plug-in of the group ``logitloom.kernels`` provides.

Each function gives the same result as the NumPy code of its caller, in less time. Without a plug-in, NumPy is used.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from logitloom.masks.kernels import ByteTable, MaskKernels, host_kernels

__all__ = [
    "ENDLESS",
    "NO_PATHS",
    "SHORT",
    "AsciiClasses",
    "AutomatonKernels",
    "Factor",
    "HostKernels",
    "Notes",
    "Paths",
    "PositionTables",
    "Ragged",
    "WalkProgress",
    "automaton_kernels",
]

#: A limit for :meth:`AutomatonKernels.walk` that is never reached.
ENDLESS: Final = 1 << 62
#: A limit for a walk without :class:`Paths`: after this many visited nodes, making the paths costs less than going on.
SHORT: Final = 1024


class Paths(NamedTuple):
    """Which characters can leave the default path of each state within some number of characters.

    The default transition of a state is the transition that its largest class of ASCII bytes takes. The default path
    follows default transitions. The entry of a state for a subtree of some height is at
    ``row_of_height[height] + stride * min(state, known)``: the first ``known`` states have entries of their own, and
    all others share the next entry.

    Attributes:
        low, high: ``uint64``: a bit for each ASCII character, 0-63 and 64-127, that leaves the path in some state on
            it.
        marks: ``uint8``: a bit for each kind of other contents that can leave the path, as in ``Trie.marks``.
        row_of_height: ``int64``, by the height of a subtree in characters.
        known: number of states with entries of their own; -1 if there are no entries.
        stride: distance between the entries of two states.
    """

    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    marks: NDArray[np.uint8]
    row_of_height: NDArray[np.int64]
    known: int
    stride: int = 1


#: A :class:`Paths` without entries, with which a walk skips no subtree.
NO_PATHS: Final = Paths(
    np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.uint8), np.zeros(1, np.int64), -1
)


class Notes(NamedTuple):
    """The tokens that a walk finds: a list of at most ``n`` tokens, or above that an array with a byte per token.

    Attributes:
        listed: ``[n] int32``, positions in ``Trie.order``; valid if at most ``n`` tokens were found.
        marked: ``[8 * ceil(tokens / 8)] uint8``; valid if more were found: 1 for each token that was found.
    """

    listed: NDArray[np.int32]
    marked: NDArray[np.uint8]


class WalkProgress(NamedTuple):
    """The position of a walk in its queue of pairs (node, state).

    Attributes:
        begin, end: the pairs to visit are ``pairs[begin:end]``; new pairs are appended at ``end``.
        waiting: the pairs ``pairs[:waiting]`` wait until the row of their state is filled.
        special: the pairs ``pairs[special:]`` are left to the caller.
        found: number of recorded tokens.
        known: the pairs ``pairs[known:special]`` were left to the caller, whose table has their entries now. These
            pairs hold a node and ``-2 - n``, where ``n`` is the state before the node's byte, and are visited first.
    """

    begin: int
    end: int
    waiting: int
    special: int
    found: int
    known: int = ENDLESS


class AsciiClasses(NamedTuple):
    """The columns of a transition table that ASCII bytes use.

    Attributes:
        columns: ``[n] uint8``.
        sizes: ``[n] int64``: number of ASCII bytes per column.
        bits: ``[2, n] uint64``: the ASCII bytes of each column as bits, 0-63 and 64-127.
    """

    columns: NDArray[np.uint8]
    sizes: NDArray[np.int64]
    bits: NDArray[np.uint64]


class Ragged(NamedTuple):
    """Lists of numbers: list ``i`` is ``values[starts[i] : starts[i + 1]]``."""

    values: NDArray[np.int32]
    starts: NDArray[np.int64]


class PositionTables(NamedTuple):
    """A nondeterministic automaton whose states are positions in a pattern; position 0 stands for the end of the text.

    Attributes:
        first: ``[n] int32``: the positions at the start.
        follow: after each position, the positions that may come next.
        set_at: ``[positions] int32``: the number of the character set that each position reads.
        members: the character classes of each set.
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
        start: the start state.
        needed: whether pairs in which this automaton is dead are dropped. Pairs in which both are dead always are.
    """

    next: NDArray[np.int32]
    start: int
    needed: bool


class AutomatonKernels(Protocol):
    """Functions on automata. All arrays are C-contiguous. An array that is only read may be read-only."""

    def walk(
        self,
        automaton: ByteTable,
        nodes: NDArray[Any],
        byte: NDArray[np.uint8],
        paths: Paths,
        pairs: NDArray[np.int32],
        notes: Notes,
        progress: WalkProgress,
        limit: int,
    ) -> WalkProgress:
        """Walk a prefix trie with an automaton and record the tokens that lead to a live state.

        Args:
            automaton: the transition table.
            nodes, byte: the trie's attributes ``records`` and ``byte``.
            paths: a subtree is recorded as a whole if no character in it can leave the default path of its state.
            pairs: ``[nodes, 2]``: pairs (node, state) whose children are to be visited, at the indices in
                :class:`WalkProgress`. Pairs that are left to the caller hold a node and its table entry below -1.
            notes: where the walk records tokens.
            progress: where the walk continues. At most ``begin`` pairs wait.
            limit: the walk returns after this number of nodes, but not before all known pairs are visited.

        Returns:
            The progress of the walk when it stopped.
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
        """Which characters can leave the default path of each state within 1, 2, 4, ... characters.

        Args:
            source: ``[states, classes]``, next states.
            ascii_part: the columns of ASCII bytes.
            split: the first class above ASCII.
            kinds: ``[2, classes above ASCII + 1]``: which classes contain word characters, and which contain other
                characters.
            given: ``[states]``: ``marks`` for one character; if the array is empty, the kernel computes them from
                ``kinds``.
            levels: how many times the number of characters is doubled.

        Returns:
            ``low``, ``high`` and ``marks`` as in :class:`Paths`, ``[(levels + 2) * (states + 1)]`` each: of a state
            within ``2 ** level`` characters at ``level * (states + 1) + state``. In the last entry of each level, and
            in the whole last level, every bit is set.
        """
        ...

    def marks(
        self,
        table: NDArray[np.int32],
        byte_class: NDArray[np.uint8],
        default: NDArray[np.int32],
        kinds: tuple[NDArray[Any], ...],
    ) -> NDArray[np.uint8]:
        """Which kinds of characters above ASCII can take another than the default transition.

        Args:
            table: ``[states, classes]``, next states, negative for none.
            byte_class: ``[256]``.
            default: ``[states]``, the target of the default transition, negative for none.
            kinds: :class:`logitloom.automata.lift.above_ascii.Kinds`.

        Returns:
            ``[states]``, bits as in ``Trie.marks``.
        """
        ...

    def product(self, first: Factor, second: Factor, limit: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The product of two automata: the reachable pairs of states, in breadth-first order.

        Args:
            first, second: the automata.
            limit: the construction stops when there are more pairs.

        Returns:
            The states of each pair, ``[pairs, 2]``, and the number of the next pair, ``[pairs, columns]``, -1 for none.
        """
        ...

    def determinize(
        self, automaton: PositionTables, limit: int, most_held: int
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Subset construction.

        Args:
            automaton: the position automaton of a pattern.
            limit: the construction stops when there are more states.
            most_held: the construction stops when the states have more positions, all together.

        Returns:
            Next states ``[states, classes]``, -1 for none, and ``[states]`` whether a state accepts. States are
            numbered in the order in which they are found, class by class. There are no states if the construction
            stops.
        """
        ...

    def partition(self, edges: NDArray[np.int64], set_starts: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """The classes of code points from U+0080 up that some sets distinguish, and the table of their encodings.

        Args:
            edges: set by set, the first code point of each range and the first after it, in order.
            set_starts: ``[sets + 1]``: where the edges of each set begin.

        Returns:
            ``[segments] int64`` the first code point of each segment between edges; ``[segments] int64`` its class, -1
            for none, in the order of their first characters; ``[sets, classes] bool`` which classes each set has;
            ``nodes [K, columns]`` and ``root [columns]``, ``int64``, as in :class:`.utf8.Shape`, with
            equal nodes merged, those of the last bytes first; and ``[128] uint8``, the column of each byte from 0x80.
        """
        ...

    def regroup(
        self, nodes: NDArray[np.intp], root: NDArray[np.intp], codes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Nodes and root with other codes for completed characters, and with equal nodes merged.

        Args:
            nodes, root: as in :class:`logitloom.automata.patterns.utf8.Shape`; each node only leads to nodes before it.
            codes: ``[classes]``: the new value for the code of each class; below -1, or -1 for none.
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
        """The mask of a walk, as a list of the allowed or of the forbidden ids.

        Args:
            notes: the tokens that a walk recorded; may be overwritten.
            order: ``[tokens]``, the ids of the trie's tokens.
            found: number of recorded tokens.
            ends: further allowed ids, a subset of ``textless``.
            textless: the ids of tokens without bytes, which are not in the trie.
            size: number of ids in all.

        Returns:
            True and the allowed ids if these are at most half of all ids; otherwise False and the forbidden ids.
            The ids are sorted.
        """
        ...


class HostKernels(AutomatonKernels, MaskKernels, Protocol):
    """The functions that a plug-in of the group ``logitloom.kernels`` provides."""


def automaton_kernels(work: int = 0) -> AutomatonKernels | None:
    """The installed kernels, as :func:`logitloom.masks.kernels.host_kernels`; ``None`` if there are none."""
    return cast("AutomatonKernels | None", host_kernels(work))
