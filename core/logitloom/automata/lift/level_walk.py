"""Which tokens a state allows: a walk of the vocabulary's trie with an automaton over bytes, level by level with NumPy.

A walk carries pairs (node, state) and drops a pair when the state is dead, so the number of visited nodes grows with
the number of allowed tokens. Where many tokens are below the nodes, the walk skips subtrees that are allowed as a whole
(:mod:`.default_paths`). :mod:`.compiled_walk` is the same walk with compiled loops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import joined, members
from logitloom.automata.automaton_kernels import NO_PATHS, Paths
from logitloom.automata.lift.default_paths import reads_on
from logitloom.automata.lift.trie import HIGH_PARTIAL, Trie
from logitloom.automata.lift.trie_walk import bytes_at, children
from logitloom.contract import TokenSet
from logitloom.masks.kernels import ByteTable

__all__ = [
    "NEVER",
    "WalkTable",
    "Walked",
    "in_order",
    "is_thin",
    "level_walk",
    "one_by_one",
    "token_set_of",
    "token_set_of_mask",
    "walked_set",
]

#: A value of :attr:`WalkTable.least_tokens` with which no walk looks for subtrees.
NEVER: Final = 1 << 62
# A level with fewer nodes, and at most so many tokens below them, is walked node by node, without arrays.
_THIN: Final = 24
_THIN_TOKENS: Final = 191
# A list with more tokens than this is sorted by writing a mask of the vocabulary.
_SORTED_BY_MASK: Final = 4096


class WalkTable(ABC):
    """An automaton over bytes as a walk asks it: its states are numbers, and next states come in arrays.

    Attributes:
        least_pairs, least_tokens: a walk looks for subtrees that are allowed as a whole if it has more than
            ``least_pairs`` pairs, and more than ``least_tokens`` tokens are below their nodes.
        reads_single: whether :meth:`row` is fast, so that short walks go node by node.
        leaves: whether entries below -1 are left to the caller. Otherwise there are none.
        has_paths: whether the paths of all states are known already.
        loops: ``[states] bool``, the states whose default transition is a loop; ``None`` if they are not known.
    """

    least_pairs: int = 0
    least_tokens: int = NEVER
    reads_single: bool = False
    leaves: bool = False
    has_paths: bool = False
    loops: NDArray[np.bool_] | None = None

    @property
    def automaton(self) -> ByteTable | None:
        """The transition table for compiled loops; ``None`` if every next state is computed."""
        return None

    @abstractmethod
    def step(self, states: NDArray[Any], read: NDArray[np.uint8]) -> NDArray[Any]:
        """The next states for arrays of states and bytes: -1 for none, below -1 for what is left to the caller."""

    def after(self, state: int, byte: int) -> int:
        """The next state of one state after one byte, -1 for none."""
        return int(self.step(np.array([state]), np.array([byte], dtype=np.uint8))[0])

    def row(self, state: int) -> Sequence[int]:
        """The next states of one state by column; an entry below -1 stands for a state that :meth:`after` computes."""
        found: list[int] = self.step(np.full(256, state), np.arange(256, dtype=np.uint8)).tolist()
        return found

    @property
    def columns(self) -> Sequence[int]:
        """The column of each byte in :meth:`row`."""
        return range(256)

    def fill(self, states: NDArray[Any]) -> None:  # noqa: B027 - most tables have no rows to fill
        """Fill the rows of some states of the table, if they are not filled yet."""

    def reads(self, states: NDArray[Any]) -> None:  # noqa: B027 - most tables have no bound on work
        """Note the states whose rows a walk reads."""

    def computed(self, states: NDArray[Any], read: NDArray[np.uint8]) -> NDArray[Any] | None:
        """The entries below -1 at which a compiled loop has stopped; ``None`` if they are left to the caller."""
        return None

    def paths(self, trie: Trie, states: NDArray[Any] | None = None) -> Paths:
        """The paths of some states, or of all, for a walk of a trie."""
        return NO_PATHS

    def reads_on(self, trie: Trie, node: int, state: int) -> bool:
        """Whether it is known at little cost that a state allows every token below a node."""
        return False

    def allows(self, trie: Trie, nodes: NDArray[Any], states: NDArray[Any]) -> NDArray[np.bool_]:
        """For each pair whether every token below the node is allowed; leaves count only where this costs nothing."""
        if self.has_paths:
            return reads_on(self.paths(trie), trie, nodes, states)
        inner = (trie.child_count.take(nodes) > 0).nonzero()[0]
        known = np.zeros(len(nodes), dtype=bool)
        nodes, states = nodes.take(inner), states.take(inner)
        known[inner] = reads_on(self.paths(trie, states), trie, nodes, states)
        return known

    @property
    def knows_loops(self) -> bool:
        """Whether :meth:`stays` may be true."""
        return self.loops is not None

    def stays(self, trie: Trie, nodes: NDArray[Any], states: NDArray[Any]) -> NDArray[np.bool_]:
        """For each pair whether every token below the node is known to lead back to the state."""
        assert self.loops is not None
        # Most characters do not leave the state. A token that ends within a character does.
        known = reads_on(self.staying(trie), trie, nodes, states)
        known &= self.loops.take(states) & (trie.marks.take(nodes) & HIGH_PARTIAL == 0)
        return known

    def staying(self, trie: Trie) -> Paths:
        """The default paths of all states with a loop, for a walk that keeps states."""
        return self.paths(trie)


class Walked(NamedTuple):
    """The tokens that a walk has found.

    Each token ends at a node of ``alive``, or it begins with the prefix of a node of ``whole``, ``dead`` or ``left``.

    Attributes:
        alive: the nodes at which the state is alive, and below which the walk went on.
        whole: nodes at which and below which all tokens are allowed.
        dead: the first nodes at which the state is dead; empty if states were kept, or if entries are left.
        states: the states at ``alive`` and then those at ``whole``; empty unless they were kept.
        left: pairs of a node and an entry below -1, which the walk left to the caller.
    """

    alive: NDArray[Any]
    whole: NDArray[Any]
    dead: NDArray[Any]
    states: NDArray[Any]
    left: list[list[int]]

    def spans(self, trie: Trie) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The first positions and the numbers of tokens of ranges of ``Trie.order``, in the order of ``states``."""
        first = trie.first.take(np.concatenate([self.alive, self.whole]))
        last = np.concatenate([trie.own.take(self.alive), trie.last.take(self.whole)])
        return first, last - first

    def positions(self, trie: Trie) -> NDArray[Any]:
        """``[tokens]``: the positions of the tokens in ``Trie.order``, in no order."""
        return members(*self.spans(trie))

    def states_after(self, trie: Trie) -> NDArray[Any]:
        """``[tokens]``: the state after each of :meth:`positions`."""
        return self.states.repeat(self.spans(trie)[1])


def level_walk(trie: Trie, table: WalkTable, begun: list[tuple[int, int]], keep_states: bool = False) -> Walked:
    """Walk below some nodes.

    Args:
        trie: the trie of a vocabulary.
        table: the automaton.
        begun: nodes, each with the state at the node; the root is node 0. The tokens at these nodes are not found.
        keep_states: whether the state after each token is wanted. Then only subtrees below states with a loop on
            themselves are allowed as a whole.
    """
    nodes, states = np.array([node for node, _ in begun]), np.array([state for _, state in begun])
    alive: list[NDArray[Any]] = []
    whole: list[NDArray[Any]] = []
    dead: list[NDArray[Any]] = []
    states_alive: list[NDArray[Any]] = []
    states_whole: list[NDArray[Any]] = []
    left: list[list[int]] = []
    # Where states are kept, single nodes are not read, and dead nodes are not needed.
    searches = table.least_tokens < NEVER and (not keep_states or table.knows_loops)
    while len(nodes):
        below, counts = children(trie, nodes)
        if not len(below):
            break
        if table.reads_single and not keep_states and is_thin(trie, nodes, below):
            known_whole: list[int] = []
            found = one_by_one(trie, table, nodes, states, left, known_whole if not table.least_tokens else None)
            alive.append(found[0])
            whole.append(np.array(known_whole, dtype=np.int64))
            dead.append(found[2])
            break
        table.fill(states)
        table.reads(states)
        reached = table.step(states.repeat(counts), bytes_at(trie, below))
        live = reached >= 0
        kept = live.nonzero()[0]
        nodes, states = below, reached
        if len(kept) < len(below):
            nodes, states = below.take(kept), reached.take(kept)
            if table.leaves:
                special = (reached < -1).nonzero()[0]
                left += np.stack([below.take(special), reached.take(special)], axis=1).tolist()
            elif not keep_states:
                dead.append(below.take((~live).nonzero()[0]))
        if searches and len(nodes) > table.least_pairs and _more_tokens_below(trie, nodes, table.least_tokens):
            known = (table.stays if keep_states else table.allows)(trie, nodes, states)
            done = known.nonzero()[0]
            if len(done):
                whole.append(nodes.take(done))
                if keep_states:
                    states_whole.append(states.take(done))
                further = (~known).nonzero()[0]
                nodes, states = nodes.take(further), states.take(further)
        alive.append(nodes)
        if keep_states:
            states_alive.append(states)
    return Walked(joined(alive), joined(whole), joined(dead), joined(states_alive + states_whole), left)


def is_thin(trie: Trie, nodes: NDArray[Any], below: NDArray[Any]) -> bool:
    """Whether few nodes and tokens are below some nodes, so that a walk node by node is faster than arrays.

    Args:
        trie: the trie.
        nodes: the nodes.
        below: their children.
    """
    return len(below) < _THIN and not _more_tokens_below(trie, nodes, _THIN_TOKENS)


def _more_tokens_below(trie: Trie, nodes: NDArray[Any], most: int) -> bool:
    """Whether more than ``most`` tokens are below some nodes, without those at the nodes."""
    return not most or int((trie.last.take(nodes) - trie.own.take(nodes)).sum()) > most


def one_by_one(
    trie: Trie,
    table: WalkTable,
    nodes: NDArray[Any],
    states: NDArray[Any],
    left: list[list[int]],
    whole: list[int] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Walk below some pairs of a node and a state, node by node.

    Args:
        trie: the trie.
        table: the next states.
        nodes, states: the pairs.
        left: gets the entries that the table leaves to the caller, as in :class:`Walked`.
        whole: gets the nodes of which all tokens are allowed; by default the walk does not look for them.

    Returns:
        The nodes whose state is alive, except the nodes in ``whole``; the states of these nodes; and the first nodes
        whose state is dead.
    """
    alive: list[int] = []
    states_alive: list[int] = []
    dead: list[int] = []
    child_start, child_count, byte = trie.views
    row_of, columns, leaves = table.row, table.columns, table.leaves
    pairs = zip(nodes.tolist(), states.tolist(), strict=True)
    stack = [(node, state) for node, state in pairs if child_count[node]]
    while stack:
        node, state = stack.pop()
        begin, row = child_start[node], row_of(state)
        for child in range(begin, begin + child_count[node]):
            target = row[columns[byte[child]]]
            if target < -1 and leaves:
                left.append([child, target])
                continue
            if target < -1:
                target = table.after(state, byte[child])
            if target < 0:
                dead.append(child)
            elif whole is not None and child_count[child] and table.reads_on(trie, child, target):
                whole.append(child)
            else:
                alive.append(child)
                states_alive.append(target)
                if child_count[child]:
                    stack.append((child, target))
    return np.array(alive, dtype=np.int64), np.array(states_alive, dtype=np.int64), np.array(dead, dtype=np.int64)


def walked_set(trie: Trie, walked: Walked, free: NDArray[np.int32], textless: NDArray[np.int32], size: int) -> TokenSet:
    """The tokens of a walk as a token set.

    Args:
        trie: the trie.
        walked: the result of the walk from the root.
        free: further ids of the set, which have no text.
        textless: all ids without text.
        size: number of ids in all.
    """
    first, counts = walked.spans(trie)
    if 2 * (int(counts.sum()) + len(free)) <= size:
        return token_set_of(np.concatenate([trie.order.take(members(first, counts)), free]), size)
    first = trie.first.take(walked.dead)
    others = trie.order.take(members(first, trie.last.take(walked.dead) - first))
    without = textless if not len(free) else textless[~np.isin(textless, free)]
    return TokenSet(False, in_order(np.concatenate([others, without]), size))


def token_set_of(ids: NDArray[np.int32], size: int) -> TokenSet:
    """The token set of some ids, each once, in any order."""
    if 2 * len(ids) <= size:
        return TokenSet(True, in_order(ids, size))
    mask = np.zeros(size, dtype=bool)
    mask[ids] = True
    return token_set_of_mask(mask)


def token_set_of_mask(members: NDArray[np.bool_]) -> TokenSet:
    """The token set of the ids where ``[size] bool`` is true."""
    allowed = 2 * int(np.count_nonzero(members)) <= len(members)
    return TokenSet(allowed, (members if allowed else ~members).nonzero()[0].astype(np.int32))


def in_order(ids: NDArray[np.int32], size: int) -> NDArray[np.int32]:
    """Some ids below ``size``, each once, sorted."""
    if len(ids) <= _SORTED_BY_MASK:
        ids = ids.copy()
        ids.sort()
        return ids
    mask = np.zeros(size, dtype=bool)
    mask[ids] = True
    return mask.nonzero()[0].astype(np.int32)
