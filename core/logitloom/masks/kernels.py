"""Protocol of the compiled loops over masks and logits of a plug-in of ``logitloom.kernels``, and their lookup.

NumPy is fast on long arrays. For a walk through a few hundred trie nodes or a mask of a few ids, the overhead of its
calls dominates; a compiled loop has no such overhead. The plug-in is optional, and ``LOGITLOOM_BLOCK=kernels/NAME``
switches it off. Each caller has NumPy code with the same result, and continues with it if a kernel raises
:class:`KernelFailed`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from logitloom.display.warning import warn

__all__ = [
    "ALLOWED",
    "DENSE",
    "FORBIDDEN",
    "ByteTable",
    "KernelFailed",
    "KernelsNotReady",
    "MaskKernels",
    "StepTables",
    "do_without_kernels",
    "host_kernels",
    "importing",
    "load_kernels",
    "load_kernels_with",
    "look_for_kernels_again",
]

#: Kind of a mask record: a list of the allowed ids.
ALLOWED: Final = 0
#: Kind of a mask record: a byte per id, 1 for allowed.
DENSE: Final = 1
#: Kind of a mask record: a list of the forbidden ids.
FORBIDDEN: Final = 2


class ByteTable(NamedTuple):
    """The transition table of a deterministic automaton over bytes, possibly incomplete.

    Attributes:
        next: ``[states, classes] int32``: next states, -1 for none. The caller handles entries below -1.
        ready: ``[states] bool``: whether a row of ``next`` is filled.
        byte_class: ``[256] uint8``: the class of each byte.
    """

    next: NDArray[np.int32]
    ready: NDArray[np.bool_]
    byte_class: NDArray[np.uint8]


class StepTables(NamedTuple):
    """The tables that :meth:`MaskKernels.step` reads.

    Attributes:
        automaton: the transition table.
        text, offsets: the bytes of all tokens, and ``[size + 1] int64``, where the bytes of each token begin.
        ends: end-of-sequence ids, after which a row is finished.
        accepting: ``[states + 2] bool``: whether a state accepts; the last two are the finished and the dead state.
        closing: ``[states] bool``: states after which a text must end with the current token.
        records: ``[states + 2, 3] int64``: the mask record of each state, as for :meth:`MaskKernels.write`; kind -1 if
            the mask was not computed yet.
    """

    automaton: ByteTable
    text: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    ends: NDArray[np.int32]
    accepting: NDArray[np.bool_]
    closing: NDArray[np.bool_]
    records: NDArray[np.int64]


class MaskKernels(Protocol):
    """Functions on masks and logits. All arrays are C-contiguous. An array that is only read may be read-only.

    A function that raises an error does so before it writes to logits. The process then calls no kernel again.
    """

    def step(
        self,
        states: NDArray[np.int32],
        tokens: NDArray[np.int32],
        tables: StepTables,
        reached: NDArray[np.int32],
        masks: NDArray[np.int64],
    ) -> tuple[bool, int]:
        """Advance the automaton state of each row by its tokens and look up the masks of the new states.

        Args:
            states: ``[rows]``; -2 and ``len(closing)`` mean finished, -1 and ``len(closing) + 1`` mean dead.
            tokens: ``[rows, n]``; negative entries are padding.
            tables: the automaton, the vocabulary and the masks.
            reached, masks: ``[rows]`` and ``[rows, 3]``: outputs, the new states and their mask records.

        Returns:
            Whether every row was advanced (not if a token is illegal or a table row is not filled), and the buffer
            cost of the masks (:attr:`logitloom.masks.mask_row.MaskRow.buffer_cost`), summed over the rows.
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
            masks: ``[rows, 3]``: the record of each mask: kind, address and length. Listed ids are 64-bit.
            forbidden: the bits of the value for forbidden ids.
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
        """Write masked rows to a buffer whose previous masks are known.

        Args:
            after: ``[at least rows, vocab]`` unsigned integers of 16 or 32 bits.
            before: the address of contiguous logits of the same type and width. An array library gives an address
                faster than a NumPy view.
            written: ``[len(after), 3]``: the mask records of the rows of ``after``. If the kind is :data:`ALLOWED`, all
                other entries of the row hold ``forbidden``. The function replaces the records by the new ones.
            masks, forbidden: as for :meth:`write`.
        """
        ...

    def exponentials(self, x: NDArray[np.float32], top: NDArray[np.float32], total: NDArray[np.float32]) -> None:
        """Sum the exponentials of each row, with a relative error of about 1e-6.

        Args:
            x: ``[rows, vocab]``.
            top: ``[rows]``, finite: the number that is subtracted from each row first, at least the row's largest
                entry.
            total: ``[rows]``: output.
        """
        ...

    def nucleus(
        self, x: NDArray[np.float32], top: NDArray[np.float32], p: float, threshold: NDArray[np.float32]
    ) -> None:
        """Find the least logit of each row's nucleus; see :meth:`logitloom.arrays.backend.Backend.nucleus_threshold`.

        Args:
            x: ``[rows, vocab]``.
            top: ``[rows]``, the largest entry of each row; one that is not finite gives a threshold of -inf.
            p: mass of the nucleus, from 0 to 1.
            threshold: ``[rows]``: output.
        """
        ...

    def reaching(
        self,
        x: NDArray[np.float32],
        maxima: NDArray[np.float32],
        least: NDArray[np.float32],
        ids: NDArray[np.int64],
    ) -> int:
        """List the ids of the values of each row that reach a bound.

        Args:
            x: ``[rows, vocab]``.
            maxima: ``[rows, blocks]``: of each row's values whose ids leave the same rest when divided by ``blocks``.
            least: ``[rows]``: the bounds.
            ids: ``[rows, n]``: output, ascending, -1 behind them.

        Returns:
            The largest number of ids of a row; -1 if one has more than ``n``.
        """
        ...

    def operate(
        self,
        logits: int,
        rows: int,
        vocab: int,
        highest: int,
        kinds: NDArray[np.int64],
        operands: NDArray[np.float64],
        tables: NDArray[np.int64],
        tokens: int,
        count: int,
        ids: NDArray[np.int64],
        left: NDArray[np.float32],
    ) -> int:
        """The tokens that some operations of :mod:`logitloom.arrays.row_operations` leave in each row; the logits are
        only read.

        Args:
            logits: address of ``[rows, vocab] float32``.
            rows, vocab: the shape.
            highest: how many of the highest logits the operations without tables need, ties included.
            kinds, operands: the operations, those with tables first.
            tables: the address of the table of each operation that has one.
            tokens, count: address and number of columns of ``[rows, count] int32``: newly accepted tokens of each row,
                which are entered into the tables first. Negative ids, and ids beyond the row, are skipped.
            ids, left: ``[rows, n]``: outputs, the ids whose logits are not -inf, in ascending order, and these logits;
                then -1 and -inf.

        Returns:
            The largest number of tokens in a row; -1 if a row has a NaN, or if more than ``n`` logits of a row may be
            among the highest. The tokens are entered into the tables then, too.
        """
        ...


class KernelFailed(Exception):
    """A kernel raised an error, which its caller need not look at: NumPy does the same, and a warning was given."""


class KernelsNotReady(Exception):
    """Raised by a plug-in of kernels whose functions are still being compiled: NumPy does their work until then.

    The plug-in calls :func:`look_for_kernels_again` when they are ready.
    """


class _Guarded:
    """Kernels whose errors become :class:`KernelFailed`. The first error warns, and kernels are not used afterwards."""

    def __init__(self, kernels: Any) -> None:
        self.kernels = kernels

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self.kernels, name, None)

        def call(*given: Any) -> Any:
            try:
                if kernel is None:
                    raise NotImplementedError("These kernels lack it.")
                return kernel(*given)
            except Exception as error:
                _give_up(name, error)
                raise KernelFailed(name) from error

        setattr(self, name, call)
        return call


def _give_up(name: str, error: Exception) -> None:
    """Do without kernels from now on, and say why, once."""
    global _failed
    if not _failed:
        _failed = True
        look_for_kernels_again()
        warn(
            f"Going on with NumPy, without compiled kernels: {name} raised {type(error).__name__}: {error!s:.300}",
        )


_wanted = True
_failed = False
#: Work for which NumPy takes about as long as loading compiled kernels from disk: one call of :func:`host_kernels` with
#: the least work takes some 10 microseconds longer without kernels.
_PAYS: Final = 1 << 28
_LEAST_WORK: Final = 1 << 16
_work = 0
_looked = False
#: The number of the current search: what an earlier search finds is not wanted any more.
_search = 0
_kernels: MaskKernels | None = None

#: The function that returns the installed kernels; its argument is whether to wait until they are loaded.
_load_kernels: Callable[[bool], MaskKernels | None] | None = None


def load_kernels_with(load: Callable[[bool], MaskKernels | None]) -> None:
    """Set the function from which the installed kernels come; its argument says whether to wait until they are loaded.

    When :mod:`logitloom.host.registry` is imported, it sets a function that loads the plug-in.
    """
    global _load_kernels
    _load_kernels = load
    look_for_kernels_again()


def look_for_kernels_again() -> None:
    """Let the next call of :func:`host_kernels` ask the plug-in again. Running chains take the kernels then."""
    global _looked, _kernels, _search
    _looked, _kernels, _search = False, None, _search + 1


def do_without_kernels() -> None:
    """Load no kernels in this process from now on, for engines that do not work beside the kernels' library.

    Kernels that were loaded before stay in use.
    """
    global _wanted
    _wanted = False


def load_kernels() -> MaskKernels | None:
    """Load the installed kernels now, before any work: for services, which may start slowly, and for measurements.

    Returns:
        The first kernels by name that are not blocked; ``None`` if there are none. Kernels that are not on disk are
        compiled first, which takes some twenty seconds.
    """
    global _work
    _work = _PAYS
    return _kernels or _look(wait=True)


def host_kernels(work: int = 0) -> MaskKernels | None:
    """The installed kernels (the first by name that is not blocked), or ``None``.

    A process begins with NumPy. Once the work of all calls would have paid for loading the kernels, a thread looks for
    the plug-in, which loads them. The results do not depend on the moment when the kernels are loaded.

    Args:
        work: the numbers that NumPy would read instead, at least about that of a short walk.
    """
    global _work
    if _looked:
        return _kernels
    if _work < _PAYS:
        _work += max(work, _LEAST_WORK)
        return None
    return _look(wait=False)


def _look(wait: bool) -> MaskKernels | None:
    global _looked
    # The flag is set first: kernels that are ready while the plug-in still answers are then looked for again.
    _looked = True
    if wait:
        _find(True, _search)
        # A plug-in that has compiled kernels asks for a further search, which this one was.
        _looked = True
    else:
        # A thread, because a look at the metadata of all that is installed takes longer than a step.
        _forks_wait()
        beside = threading.Thread(target=_find_beside, args=(_search,), name="logitloom kernel search", daemon=True)
        try:
            beside.start()
        except RuntimeError:
            # No threads can be started while the interpreter ends, and on systems without threads.
            _find_beside(_search)
    return _kernels


def _find_beside(search: int) -> None:
    with importing():
        _find(False, search)


def _find(wait: bool, search: int) -> None:
    global _looked, _kernels
    if not _wanted or _failed or _load_kernels is None:
        return
    found = _load_kernels(wait)
    if found is not None and (wait or search == _search) and _wanted:
        _looked, _kernels = True, cast(MaskKernels, _Guarded(found))


_importing = threading.Lock()


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Let no process be forked while a thread imports what kernels need."""
    _forks_wait()
    with _importing:
        yield


def _let_go() -> None:
    if _importing.locked():
        _importing.release()


def _begin_in_child() -> None:
    _let_go()
    look_for_kernels_again()


@functools.cache
def _forks_wait() -> None:
    """Let forks wait until no thread imports."""
    # What is registered last is called first. Imports use the lock of this module, which a fork takes, too.
    import logging  # noqa: F401

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=functools.partial(_importing.acquire, timeout=5.0),
            after_in_parent=_let_go,
            after_in_child=_begin_in_child,
        )
