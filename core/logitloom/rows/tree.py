"""Row trees: states whose leading axis is the sequence, and the few functions that move rows around.

A state is a tree of tuples, named tuples and dictionaries, and the leaves are arrays ``[rows, ...]`` of any
supported library, or :class:`Rows` of immutable host objects. Because every leaf has the same leading axis,
beam reordering, duplication, dropping, joining, forking and rolling back are the same handful of functions
for every processor, and no author of a processor thinks about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeGuard, runtime_checkable

import numpy as np

from logitloom.arguments import shown, whole
from logitloom.arrays.backend import Array, backend_of
from logitloom.errors import LogitloomError, StateMismatch

__all__ = [
    "RowLeaf",
    "Rows",
    "check_handles",
    "check_like",
    "check_rows",
    "concat",
    "first_array",
    "is_row_leaf",
    "leaves",
    "map_leaves",
    "repeat",
    "row_count",
    "select",
    "take",
]

State = Any


@runtime_checkable
class RowLeaf(Protocol):
    """A leaf that is no array: an object that makes copies of itself with other rows."""

    def row_count(self) -> int:
        """Number of rows."""
        ...

    def take_rows(self, index: np.ndarray[Any, Any]) -> RowLeaf:
        """A leaf with rows ``index`` (host integers) of this leaf."""
        ...

    def concat_rows(self, others: Sequence[Any]) -> RowLeaf:
        """A leaf with the rows of this leaf, then the rows of the other leaves."""
        ...


#: Whether arrays of a type, or other objects, are row leaves. No cached function: compilers warn of those.
_ROW_LEAVES: Final[dict[type, bool]] = {}


def is_row_leaf(leaf: Any) -> TypeGuard[RowLeaf]:
    """``isinstance(leaf, RowLeaf)``, which takes 20 microseconds: once per type instead of once per step and leaf."""
    kind: type = type(leaf)
    known = _ROW_LEAVES.get(kind)
    if known is None:
        known = _ROW_LEAVES[kind] = all(hasattr(kind, name) for name in ("row_count", "take_rows", "concat_rows"))
    return known


class Rows(tuple[Any, ...]):
    """One immutable host handle per row, as a leaf of a state.

    Advancing a handle means making a new one (copy on write), never changing the old one.

    >>> take(Rows(["a", "b"]), [1, 1])
    Rows('b', 'b')
    """

    __slots__ = ()

    def row_count(self) -> int:
        """Number of rows."""
        return len(self)

    def take_rows(self, index: np.ndarray[Any, Any]) -> Rows:
        """Rows ``index`` of this leaf."""
        return Rows(self[int(i)] for i in index)

    def concat_rows(self, others: Sequence[Rows]) -> Rows:
        """The rows of this leaf, then the rows of the other leaves."""
        return Rows(handle for leaf in (self, *others) for handle in leaf)

    def __repr__(self) -> str:
        return f"Rows({', '.join(repr(handle) for handle in self)})"


def map_leaves(function: Callable[..., Any], state: State, *others: State) -> State:
    """The tree with ``function`` applied to each leaf (and to the corresponding leaves of ``others``)."""
    if isinstance(state, Rows):
        return function(state, *others)
    if isinstance(state, tuple):
        parts = [map_leaves(function, part, *(o[i] for o in others)) for i, part in enumerate(state)]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    if isinstance(state, dict):
        return {key: map_leaves(function, part, *(o[key] for o in others)) for key, part in state.items()}
    return function(state, *others)


def leaves(state: State, path: str = "state") -> Iterator[tuple[str, Any]]:
    """The leaves of a tree, each with its path, which messages name."""
    if isinstance(state, tuple) and not isinstance(state, Rows):
        names = getattr(state, "_fields", None)
        for i, part in enumerate(state):
            yield from leaves(part, f"{path}.{names[i]}" if names else f"{path}[{i}]")
    elif isinstance(state, dict):
        for key, part in state.items():
            yield from leaves(part, f"{path}[{key!r}]")
    else:
        yield path, state


def _leaf_rows(leaf: Any) -> int:
    try:
        return int(leaf.row_count()) if is_row_leaf(leaf) else int(leaf.shape[0])
    except (AttributeError, TypeError, IndexError):
        raise StateMismatch(
            f"A state holds {shown(leaf)}, which has no rows. Its leaves are arrays and Rows."
        ) from None


def row_count(state: State) -> int | None:
    """Number of rows of a state; None for a state without leaves (a stateless processor's)."""
    # Asked at every step, so without the paths of "leaves", and without a call for each part.
    parts = [state]
    for part in parts:
        if isinstance(part, Rows):
            return len(part)
        if isinstance(part, tuple):
            parts += part
        elif isinstance(part, dict):
            parts += part.values()
        else:
            return _leaf_rows(part)
    return None


def first_array(state: State) -> Any:
    """The first leaf of a state that is an array; None for a state without arrays."""
    parts = [state]  # as in row_count
    for part in parts:
        if isinstance(part, Rows):
            continue
        if isinstance(part, tuple):
            parts += part
        elif isinstance(part, dict):
            parts += part.values()
        elif not is_row_leaf(part):
            return part
    return None


def _host_index(index: Any) -> np.ndarray[Any, Any]:
    """Row numbers on the host.

    Raises:
        StateMismatch: the index is no list of whole numbers, or one of truth values, which say nothing of an order.
    """
    try:
        found = np.asarray(index)
        if found.ndim == 1 and (found.dtype.kind in "iu" or not found.size):
            return found if isinstance(index, np.ndarray) and found.size else np.asarray(index, dtype=np.int32)
        truth = found.dtype.kind == "b"
    except (ValueError, TypeError, OverflowError, RecursionError):
        truth = False
    raise _no_index(index, truth)


def _no_index(index: Any, truth: bool) -> StateMismatch:
    remedy = " Of truth values give the places that are true: numpy.flatnonzero(index)." if truth else ""
    return StateMismatch(f"Rows are named by a list of their numbers, but the index is {shown(index)}.{remedy}")


def _check_range(index: np.ndarray[Any, Any], state: State) -> None:
    """Raise unless a state has the rows: libraries read other memory, the last row, or the first one otherwise."""
    rows = row_count(state)
    wrong = index[(index < 0) | (index >= rows)] if rows is not None else index[:0]
    if wrong.size:
        raise StateMismatch(
            f"Row {wrong[0]} is to be taken of a state with {rows} rows. Give numbers from 0 to {rows - 1}."
            if rows
            else f"Row {wrong[0]} is to be taken of a state without rows. Take none of it."
        )


def take(state: State, index: Array | Sequence[int]) -> State:
    """Rows ``index`` of a state, in that order; rows may repeat (forking) and be left out (dropping).

    Args:
        state: a row tree.
        index: ``[m]`` integers, ``0 <= index < rows``: a list, a NumPy array, or a native array (which keeps
            array leaves free of host synchronisation; :class:`Rows` leaves need host integers).

    Raises:
        StateMismatch: the index is none, or names a row that the state does not have.

    Example:
        >>> take((np.array([10, 20, 30]),), [2, 0, 0])
        (array([30, 10, 10]),)
    """
    dtype = None if isinstance(index, (np.ndarray, np.generic)) else getattr(index, "dtype", None)
    native = dtype is not None
    if native and str(dtype).endswith("bool"):
        raise _no_index(index, truth=True)

    def one(leaf: Any) -> Any:
        if is_row_leaf(leaf):
            return leaf.take_rows(backend_of(index).to_numpy(index) if native else host)
        return backend_of(leaf).take_rows(leaf, host)

    try:
        host: Any = index if native else _host_index(index)
        if not native:
            _check_range(host, state)
        return map_leaves(one, state)
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, LogitloomError):
            raise
        raise StateMismatch(f"Rows {shown(index)} cannot be taken of {shown(state)}: {error!s:.80}.") from error


def repeat(state: State, times: int) -> State:
    """Each row ``times`` times, copies side by side: rows 0, 0, 1, 1, ... for ``times = 2``."""
    times = whole(times, "times", StateMismatch, least=0, most=2**31 - 1)
    rows = row_count(state)
    return state if rows is None else take(state, np.repeat(np.arange(rows, dtype=np.int32), times))


def concat(states: Sequence[State]) -> State:
    """The rows of several states of one structure, one after the other (joining batches).

    Raises:
        StateMismatch: if the structures differ, or the shapes of a row.
    """
    if not isinstance(states, (list, tuple)) or isinstance(states, Rows) or not states:
        raise StateMismatch(f"States are joined from a list of one or more, but this is {shown(states)}.")
    first, *rest = states
    if not rest:
        return first
    wanted = [path for path, _ in leaves(first)]
    for state in rest:
        found = [path for path, _ in leaves(state)]
        if found != wanted:
            raise StateMismatch(
                f"States of another structure cannot be joined: one has the leaves {', '.join(wanted) or 'none'}, "
                f"another {', '.join(found) or 'none'}. Join states of one chain, begun with max_new_tokens= "
                f"for all rows or for none."
            )

    def one(leaf: Any, *others: Any) -> Any:
        kinds = {None if is_row_leaf(each) else backend_of(each).name for each in (leaf, *others)}
        if len(kinds) > 1:
            raise TypeError("Array libraries would convert what is no array of theirs.")
        return leaf.concat_rows(others) if is_row_leaf(leaf) else backend_of(leaf).concat_rows([leaf, *others])

    try:
        return map_leaves(one, first, *rest)
    except (TypeError, ValueError, RuntimeError) as error:
        for (path, leaf), *others in zip(*map(leaves, states), strict=True):
            forms = [_form_of_row(each) for each in (leaf, *(other for _, other in others))]
            other = next((form for form in forms if form != forms[0]), None)
            if other is not None:
                raise StateMismatch(
                    f"States with other rows cannot be joined: {path} has {forms[0]} per row in one, {other} in "
                    f"another. Begin states that join with one max_length, one compiled= and one array library."
                ) from error
        raise


def _form_of_row(leaf: Any) -> str:
    """What a leaf holds of each row, for messages."""
    return "a host object" if is_row_leaf(leaf) else f"{backend_of(leaf).name} {list(leaf.shape[1:])}"


def select(states: Sequence[State], which: Sequence[int] | np.ndarray[Any, Any]) -> State:
    """For each row, its version in one of several earlier states (rolling rows back to different points).

    Args:
        states: the same rows at different times.
        which: ``[rows]`` host integers: row ``i`` of the result is row ``i`` of ``states[which[i]]``.

    Raises:
        StateMismatch: if a state has another number of rows, or there is none of a number.

    Example:
        >>> select([(np.array([1, 2]),), (np.array([10, 20]),)], [1, 0])
        (array([10,  2]),)
    """
    chosen = _host_index(which)
    used = sorted({int(w) for w in chosen})
    if used and not 0 <= used[0] <= used[-1] < len(states):
        wrong = used[0] if used[0] < 0 else used[-1]
        raise StateMismatch(f"State {wrong} was chosen for a row, but there are the states 0 to {len(states) - 1}.")
    rows = len(chosen)
    for w in used:
        if row_count(states[w]) not in (None, rows):
            raise StateMismatch(
                f"A version was chosen for {rows} rows, but state {w} has {row_count(states[w])} rows. "
                f"Every version holds the same rows."
            )
    if len(used) == 1:
        return states[used[0]]
    order = {w: i for i, w in enumerate(used)}
    index = np.asarray([order[int(w)] * rows + i for i, w in enumerate(chosen)], dtype=np.int32)
    return take(concat([states[w] for w in used]), index)


def check_rows(state: State, rows: int, owner: str, kind: str = "Processor") -> None:
    """Raise unless every leaf has ``rows`` rows.

    Args:
        state: the state.
        rows: the number of sequences.
        owner: the name of what made the state, for messages.
        kind: what the owner is, for messages.

    Raises:
        StateMismatch: naming the leaf.
    """
    for path, leaf in leaves(state):
        shape = getattr(leaf, "shape", None)
        if not is_row_leaf(leaf) and (shape is None or len(shape) == 0):
            told = f"of the type {type(leaf).__name__}" if shape is None else "an array without axes"
            raise StateMismatch(
                f"{kind} {owner!r}: {path} is {told}, but every leaf of a state is an array [rows, ...], or "
                f"logitloom.state.Rows with one immutable value per sequence. Keep settings and shared tables in the "
                f"{kind.lower()} itself, and return () where there is no state."
            )
        if _leaf_rows(leaf) != rows:
            raise StateMismatch(
                f"{kind} {owner!r}: {path} has {_leaf_rows(leaf)} rows, but there are {rows} sequences. "
                f"The leading axis of every leaf is the sequence."
            )


#: Types of Python that can be changed in place, and what to keep in a state instead.
_UNCHANGING: dict[type, str] = {list: "a tuple", set: "a frozenset", dict: "a tuple of pairs", bytearray: "bytes"}


def check_handles(state: State, owner: str) -> None:
    """Raise if a host object of a row can be changed in place: rows that were copied from it would change, too.

    Raises:
        StateMismatch: naming the leaf, the row and the type.
    """
    for path, leaf in leaves(state):
        for row, handle in enumerate(leaf if isinstance(leaf, Rows) else ()):
            instead = _UNCHANGING.get(type(handle))
            if instead is not None:
                raise StateMismatch(
                    f"Processor {owner!r}: {path} holds a {type(handle).__name__} for row {row}, which can be changed "
                    f"in place, and with it every row that was copied from this one. Keep {instead}, and let process "
                    f"make a new one."
                )


def check_like(new: State, old: State, owner: str) -> None:
    """Raise unless ``new`` has the structure, shapes and dtypes of ``old``.

    Raises:
        StateMismatch: naming the leaf and both forms.
    """
    before, after = (
        [(p, _form(leaf)) for p, leaf in leaves(old)],
        [(p, _form(leaf)) for p, leaf in leaves(new)],
    )
    for (path, form), (new_path, new_form) in zip(before, after, strict=False):
        if path != new_path or form != new_form:
            raise StateMismatch(
                f"Processor {owner!r} returned a state whose {new_path} is {new_form}, where init_state made "
                f"{path} {form}. Structure, shapes and dtypes of a state are fixed by init_state."
            )
    if len(before) != len(after):
        raise StateMismatch(
            f"Processor {owner!r} returned a state with {len(after)} leaves, where init_state made {len(before)}. "
            f"Structure, shapes and dtypes of a state are fixed by init_state."
        )


def _form(leaf: Any) -> str:
    if is_row_leaf(leaf):
        return f"{type(leaf).__name__} of {leaf.row_count()}"
    return f"{getattr(leaf, 'dtype', type(leaf).__name__)}{list(getattr(leaf, 'shape', ()))}"
