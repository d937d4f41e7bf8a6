"""Compiled loops for host memory, an optional plug-in: the same results as the NumPy code beside them, sooner.

NumPy works on whole arrays, which suits walks that are wide and masks that are long. A walk through a few hundred nodes
of a trie, or a mask of a few ids, costs it mostly calls. Whoever installs a plug-in of the group ``logitloom.kernels``
has these loops compiled; without one everything works as well. ``LOGITLOOM_BLOCK=kernels/NAME`` switches one off.

Each caller has NumPy code that does the same, and goes on with it where a kernel raises :class:`KernelFailed`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ALLOWED",
    "DENSE",
    "FORBIDDEN",
    "ByteTable",
    "KernelFailed",
    "MaskKernels",
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


class StepTables(NamedTuple):
    """What a step through a batch reads.

    Attributes:
        automaton: where bytes lead.
        text, offsets: the bytes of all tokens, ``[size + 1] int64`` where each begins.
        ends: end-of-sequence ids, after which a row is finished.
        accepting: ``[states + 2] bool``: where a text may end; the last rows are the finished and the dead state.
        closing: ``[states] bool``: where a text must end at the border of two tokens.
        records: ``[states + 2, 3] int64``: the mask of each state as for :meth:`MaskKernels.write`, of kind -1 where it
            is not known.
    """

    automaton: ByteTable
    text: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    ends: NDArray[np.int32]
    accepting: NDArray[np.bool_]
    closing: NDArray[np.bool_]
    records: NDArray[np.int64]


class MaskKernels(Protocol):
    """Functions on masks. Arrays are C-contiguous; those that are only read may be read-only.

    What raises an error raises it before it has written to logits. Then kernels are not called again in this process.
    """

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


class KernelFailed(Exception):
    """A kernel raised an error, which its caller need not look at: NumPy does the same, and a warning was given."""


class _Guarded:
    """Kernels whose errors become :class:`KernelFailed`, after a warning; the first one is the last."""

    def __init__(self, kernels: Any) -> None:
        self.kernels = kernels

    def __getattr__(self, name: str) -> Any:
        found = _guarded(name, getattr(self.kernels, name, _lacking))
        setattr(self, name, found)
        return found


def _guarded(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        try:
            return kernel(*given)
        except Exception as error:
            _give_up(name, error)
            raise KernelFailed(name) from error

    return call


def _lacking(*given: Any) -> Any:
    raise NotImplementedError("These kernels lack it.")


def _give_up(name: str, error: Exception) -> None:
    """Do without kernels from now on, and say why, once."""
    global _failed
    if not _failed:
        _failed = True
        host_kernels.cache_clear()
        warnings.warn(
            f"Going on with NumPy, without compiled kernels: {name} raised {type(error).__name__}: {error!s:.300}",
            RuntimeWarning,
            stacklevel=4,
        )


_wanted = True
_failed = False

#: Gives the installed kernels.
_load_kernels: Callable[[], MaskKernels | None] | None = None


def load_kernels_with(load: Callable[[], MaskKernels | None]) -> None:
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
def host_kernels() -> MaskKernels | None:
    """The installed kernels (the first by name that is not blocked), or ``None``; found once."""
    found = _load_kernels() if _wanted and not _failed and _load_kernels is not None else None
    return None if found is None else cast(MaskKernels, _Guarded(found))


@cache
def bits_of(dtype: np.dtype[Any], value: Any) -> tuple[np.dtype[Any], int] | None:
    """The unsigned integers of a dtype's size, and a value as one of them; ``None`` if no kernel takes them."""
    if dtype.itemsize not in (2, 4):
        return None
    kind = np.dtype(f"u{dtype.itemsize}")
    return kind, int(np.array(value, dtype=dtype).view(kind))
