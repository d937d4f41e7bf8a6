"""Compiled loops for host memory, an optional plug-in: the same results as the NumPy code beside them, sooner.

NumPy works on whole arrays, which suits walks that are wide and masks that are long. A walk through a few hundred nodes
of a trie, or a mask of a few ids, costs it mostly calls. Whoever installs a plug-in of the group ``logitloom.kernels``
has these loops compiled; without one everything works as well. ``LOGITLOOM_BLOCK=kernels/NAME`` switches one off.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ALLOWED",
    "DENSE",
    "ENDLESS",
    "FORBIDDEN",
    "NO_COUNTING",
    "HostKernels",
    "Notes",
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

#: For :meth:`HostKernels.walk`: states are all there is.
NO_COUNTING: Final = (
    0,
    np.zeros(0, dtype=np.uint8),
    np.zeros(0, dtype=bool),
    np.zeros(0, dtype=np.int32),
    np.zeros(0, dtype=bool),
)


#: Where a walk notes the tokens that it finds: few are listed, many are marked, which costs all tokens once.
#: ``[n]``, places in the order of the trie, relied on as long as no more than ``n`` are found, and
#: ``[8 * ceil(tokens / 8)]``, then 1 for each that is found.
Notes = tuple[NDArray[np.int32], NDArray[np.uint8]]


class HostKernels(Protocol):
    """What a plug-in provides. Arrays are C-contiguous; those that are only read may be read-only."""

    def walk(
        self,
        automaton: tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.uint8]],
        nodes: NDArray[Any],
        byte: NDArray[np.uint8],
        characters: tuple[NDArray[np.uint16], NDArray[np.uint16]],
        paths: tuple[Any, ...],
        counting: tuple[int, NDArray[np.uint8], NDArray[np.bool_], NDArray[np.int32], NDArray[np.bool_]],
        pairs: NDArray[np.int32],
        notes: Notes,
        found: int,
        begin: int,
        end: int,
        waiting: int,
        special: int,
        limit: int,
    ) -> tuple[int, int, int, int, int]:
        """Walk a prefix trie with an automaton and note the tokens that lead to a live state.

        Args:
            automaton: ``[states, classes]`` next states (-1: none; what is below is left to the caller), ``[states]``
                whether a row of them can be relied on, ``[256]`` the class of each byte.
            nodes, byte, characters: the trie's attributes ``records``, ``byte`` and ``characters``.
            paths: what is known of whole subtrees: ``low``, ``high`` and ``marks`` of what must not occur below a node
                in a state, at ``row_of_height[height] + stride * min(state, known)``, then these three; ``known`` is
                -1 if nothing is.
            counting: :data:`NO_COUNTING`, or how an automaton counts beside its states: their number, ``[states]``
                how much is counted in each, by ``count * states + state`` whether a text can be completed there, and
                how high a subtree may be to be taken whole, and ``[states]`` from which of them exactly the tokens of
                no more characters than that are allowed, where a subtree is higher. These numbers take the place of
                states in pairs; the last count stands for all above. What is left to the caller is written less twice
                the number from which it was reached, and is -2 or -3 before.
            pairs: ``[nodes, 2] int32``: pairs (node, state) of which the children are to be visited, at the
                beginning those that wait because the row of their state cannot be relied on, and at the end pairs of a
                node and what is below -1.
            notes: where tokens that are found are noted.
            found: how many are noted already.
            begin, end: the pairs to visit are ``pairs[begin:end]``, and those that are found come behind them.
            waiting: how many wait, at most ``begin``.
            special: the pairs left to the caller are ``pairs[special:]``.
            limit: after so many nodes the walk pauses.

        Returns:
            ``begin``, ``end``, ``waiting``, ``special`` and ``found`` afterwards.
        """
        ...

    def paths(
        self,
        source: NDArray[np.int32],
        columns: NDArray[np.uint8],
        sizes: NDArray[np.int64],
        bits: NDArray[np.uint64],
        split: int,
        kinds: NDArray[np.bool_],
        given: NDArray[np.uint8],
        levels: int,
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]:
        """What leaves the usual path of each state within 1, 2, 4, ... characters.

        Args:
            source: ``[states, classes]``, next states; from each the usual step is that of its largest class.
            columns, sizes, bits: of the classes of ASCII, as from :func:`logitloom.automata.row_walk.ascii_columns`.
            split: the first class above ASCII.
            kinds: ``[2, classes above ASCII + 1]``: which of them hold word characters, and which others.
            given: marks of each state's own step, ``[states]``; if it is empty they follow from ``kinds``.
            levels: how many times to go twice as far.

        Returns:
            ``low``, ``high`` and ``marks`` as bits, ``[(levels + 2) * (states + 1)]`` each: of a state within
            ``2 ** level`` characters at ``level * (states + 1) + state``. The last state of each level, and the last
            level, are left by everything.
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

    def product(
        self,
        first: NDArray[np.int32],
        second: NDArray[np.int32],
        start_first: int,
        start_second: int,
        needs_first: bool,
        needs_second: bool,
        limit: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The pairs of states that two automata reach together, in the order in which they are found.

        Args:
            first, second: ``[states + 1, columns]``, next states; the last state of each is dead.
            start_first, start_second: where both begin.
            needs_first, needs_second: which of them must not be dead; of neither: not both at once.
            limit: the search ends when more pairs are found.

        Returns:
            ``[pairs, 2]``, and ``[pairs, columns]`` the next pair, -1 for none.
        """
        ...

    def determinize(
        self,
        first: NDArray[np.int32],
        follow: NDArray[np.int32],
        follow_at: NDArray[np.int64],
        set_at: NDArray[np.int32],
        members: NDArray[np.int32],
        members_at: NDArray[np.int64],
        classes: int,
        limit: int,
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Subset construction over sets of places, of which the first stands for the end of the text.

        Args:
            first: the places of the start.
            follow, follow_at: after place ``p`` come ``follow[follow_at[p] : follow_at[p + 1]]``.
            set_at: by place the number of the set of characters that is read there.
            members, members_at: in the same form the classes of each set.
            classes: number of classes.
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
        automaton: tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.uint8]],
        texts: tuple[NDArray[np.uint8], NDArray[np.int64]],
        ends: NDArray[np.int32],
        accepting: NDArray[np.bool_],
        closing: NDArray[np.bool_],
        records: NDArray[np.int64],
        reached: NDArray[np.int32],
        masks: NDArray[np.int64],
    ) -> tuple[bool, int]:
        """Advance rows through an automaton and look up their masks, while no other thread of Python runs.

        Args:
            states: ``[rows]``; -2 is finished, -1 dead, and so are ``len(closing)`` and ``len(closing) + 1``.
            tokens: ``[rows, n]``, negative ones stand for nothing.
            automaton: as for :meth:`walk`.
            texts: all tokens' bytes, and ``[size + 1]`` where each begins.
            ends: end-of-sequence ids, after which a row is finished.
            accepting, closing: ``[states + 2]`` where a text may end, ``[states]`` where it must.
            records: ``[states + 2, 3]``: the mask of each state as for :meth:`write`, of kind -1 where it is not known.
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
