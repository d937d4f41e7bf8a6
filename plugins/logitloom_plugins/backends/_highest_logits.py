"""The highest logits of each row in host memory, found without sorting the vocabulary."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.masks.kernels import KernelFailed, host_kernels
from logitloom_plugins.backends._log_probability import read_only
from logitloom_plugins.backends._set_positions import set_positions

__all__ = ["kth_largest", "survivors"]

#: Blocks per wanted value. With more, fewer other values lie above the bound; with fewer, the maxima are sooner sorted.
_BLOCKS: Final = 4
#: Blocks per wanted value for selecting the bound: with this number about one value in fifteen is listed needlessly.
_COARSE: Final = 8
#: Least size of a block, below which selection from the whole row is as fast.
_LEAST_BLOCK: Final = 4
_LARGEST_BLOCK: Final = 64
#: At most twice the wanted ids and this many more are listed: ties, and other ids above the bound.
_MORE: Final = 64
#: Least vocabulary size at which rows are processed one at a time, so that each pass finds the row in the cache.
_WIDE: Final = 1 << 15


def kth_largest(x: NDArray[Any], k: int) -> NDArray[Any]:
    """The k-th largest value of each row; see :meth:`logitloom.arrays.backend.Backend.kth_largest`.

    Args:
        x: ``[rows, vocab]``.
        k: from 1 to the vocabulary.

    Returns:
        ``[rows, 1]``.
    """
    rows, vocab = x.shape
    if k == 1:
        top: NDArray[Any] = np.maximum.reduce(x, axis=-1, keepdims=True)
        return top
    if vocab >= _WIDE and rows > 1:
        return np.concatenate([kth_largest(line[None], k) for line in x])
    maxima = _block_maxima(x, k)
    if maxima is None:
        return _selected(x, k)
    index = _reaching(x, maxima, _selected(_folded(maxima, k), k))
    if index is None or index.shape[1] < k or index[:, k - 1].min() < 0:  # a row that is nearly all equal, or has a NaN
        return _selected_of_possible(x, k)
    return _selected(_taken(x, index), k)


def _selected_of_possible(x: NDArray[Any], k: int) -> NDArray[Any]:
    """The k-th largest value of each row; selection is slow among many equal values, as forbidden tokens have."""
    found = np.full((len(x), 1), -np.inf, dtype=x.dtype)
    for row, line in enumerate(x):
        possible = line[line != -np.inf]
        if len(possible) >= k:
            found[row] = _selected(possible[None], k)[0]
    return found


def survivors(x: NDArray[Any], highest: int | None) -> NDArray[np.int64] | None:
    """The ids of the tokens that may be among the highest; see :meth:`logitloom.arrays.backend.Backend.survivors`."""
    vocab = x.shape[1]
    if highest is None:
        kept = x != -np.inf
        if np.count_nonzero(kept) * 4 >= kept.size:
            return None
        return _by_row(kept.reshape(-1).nonzero()[0], len(x), vocab)
    if highest * 4 >= vocab:
        return None
    if (vocab >= _WIDE or len(x) == 1) and _block_size(x, highest):
        return _of_rows(x, highest)
    maxima = _block_maxima(x, highest)
    bound = kth_largest(x, highest) if maxima is None else _selected(_folded(maxima, highest), highest)
    top = np.maximum.reduce(x if maxima is None else maxima, axis=-1, keepdims=True)
    if np.isnan(top).any():
        return None  # what is not a number must not be lost
    # The distance below the bound within which a sum or a quotient with the highest logit may round to the same value.
    slack = 8 * np.finfo(x.dtype).eps * (np.abs(bound) + np.abs(top))
    # At -inf the row has fewer possible tokens than that, and all others are forbidden.
    least = np.where(np.isfinite(slack), bound - slack, np.finfo(x.dtype).min).astype(x.dtype)
    if maxima is None:
        return _by_row(set_positions((x >= least).reshape(-1)), len(x), vocab)
    found = _listed(x, maxima, least, highest)
    return _reaching(x, maxima, least) if found is None else found


def _listed(x: NDArray[Any], maxima: NDArray[Any], least: NDArray[Any], highest: int) -> NDArray[np.int64] | None:
    """As :func:`_reaching`, by a compiled loop; None if there is none, or a row has many more than it should have."""
    kernels = host_kernels(x.size)
    if kernels is None or x.dtype != np.float32 or not x.flags.c_contiguous:
        return None
    ids = np.empty((len(x), min(2 * highest + _MORE, x.shape[1] // 4)), dtype=np.int64)
    with contextlib.suppress(KernelFailed):
        most = kernels.reaching(read_only(x), read_only(maxima), read_only(least[:, 0]), ids)
        return ids[:, :most].copy() if most >= 0 else None
    return None


def _of_rows(x: NDArray[Any], highest: int) -> NDArray[np.int64] | None:
    """The ids of each row, found row by row, so that the second pass over a row finds the row in the cache."""
    found = []
    for line in x:
        ids = _of_one_row(line, highest)
        if ids is None:
            return None
        found.append(ids)
    if len(found) == 1:
        return found[0][None]
    index = np.full((len(found), max(map(len, found))), -1, dtype=np.int64)
    for row, ids in zip(index, found, strict=True):
        row[: len(ids)] = ids
    return index


def _of_one_row(x: NDArray[Any], highest: int) -> NDArray[np.int64] | None:
    """The ids of one row, found with numbers in place of arrays.

    Args:
        x: ``[vocab]``.
        highest: see there.
    """
    blocks = _block_maxima(x[None], highest)
    assert blocks is not None
    maxima, coarse = blocks[0], _folded(blocks, highest)[0]
    count, top = len(maxima), float(np.maximum.reduce(coarse))
    if math.isnan(top):
        return None
    bound = float(np.partition(coarse, len(coarse) - highest)[len(coarse) - highest])
    limits = np.finfo(x.dtype)
    slack = 8 * float(limits.eps) * (abs(bound) + abs(top))
    least = x.dtype.type(bound - slack if math.isfinite(slack) else limits.min)
    hit = (maxima >= least).nonzero()[0]
    if len(hit) * 8 >= count:
        found = set_positions(x >= least)
        return found if len(found) * 4 < len(x) else None
    size = len(x) // count
    reach = x[: size * count].reshape(size, count).take(hit, axis=1) >= least
    line, column = np.divmod(reach.reshape(-1).nonzero()[0], len(hit))
    inside: NDArray[np.int64] = line * count + hit.take(column)
    inside.sort()
    if size * count == len(x):
        return inside
    behind: NDArray[np.int64] = (x[size * count :] >= least).nonzero()[0] + size * count
    return np.concatenate([inside, behind])


def _block_maxima(x: NDArray[Any], k: int) -> NDArray[Any] | None:
    """The maxima of blocks, ``[rows, blocks]``, at least ``k``; None where a selection from the row is as fast.

    The k-th largest of them is a lower bound of the k-th largest value: k blocks hold a value that is as high. A block
    holds values that lie ``blocks`` apart, so the maxima of all blocks are found side by side. Each value left over at
    the end of the row is a block of its own.
    """
    rows, vocab = x.shape
    size = _block_size(x, k)
    if not size:
        return None
    count = vocab // size
    maxima: NDArray[Any] = np.maximum.reduce(x[:, : size * count].reshape(rows, size, count), axis=1)
    left = vocab - size * count
    if left:
        np.maximum(maxima[:, :left], x[:, size * count :], out=maxima[:, :left])
    return maxima


def _block_size(x: NDArray[Any], k: int) -> int:
    """The size of a block; 0 where a selection from the row is as fast."""
    size = min(_LARGEST_BLOCK, x.shape[1] // (_BLOCKS * k), math.isqrt(x.shape[1]))
    return 0 if size < _LEAST_BLOCK or x.dtype.itemsize < 4 or not len(x) else size


def _folded(maxima: NDArray[Any], k: int) -> NDArray[Any]:
    """The maxima of larger blocks, of which the k-th largest is a bound too, hardly lower, and sooner selected."""
    while (half := maxima.shape[1] // 2) >= _COARSE * k and maxima.shape[1] % 2 == 0:
        maxima = np.maximum(maxima[:, :half], maxima[:, half:])
    return maxima


def _reaching(x: NDArray[Any], maxima: NDArray[Any], least: NDArray[Any]) -> NDArray[np.int64] | None:
    """The ids of the values that reach a bound, looked for only in the blocks whose maximum does.

    Args:
        x: ``[rows, vocab]``.
        maxima: of :func:`_block_maxima`.
        least: ``[rows, 1]``.
    """
    (rows, vocab), count = x.shape, maxima.shape[1]
    hit = (maxima >= least).reshape(-1).nonzero()[0]
    if len(hit) * 8 >= maxima.size:
        return _by_row(set_positions((x >= least).reshape(-1)), rows, vocab)
    row, block = np.divmod(hit, count)
    columns = block + count * np.arange(-(-vocab // count))[:, None]
    first = row * vocab
    inside = columns < vocab
    positions = np.where(inside, columns, block) + first
    reach = (x.reshape(-1).take(positions) >= least[row, 0]) & inside
    found = positions[reach]
    return _by_row(np.sort(found) if rows > 1 else found, rows, vocab)


def _by_row(position: NDArray[np.int64], rows: int, vocab: int) -> NDArray[np.int64] | None:
    """Indices of the flat array as columns of each row, padded with -1; None if a row has too many to save time."""
    if rows == 1:
        return position[None] if len(position) * 4 < vocab else None
    row = position // vocab
    count = np.bincount(row, minlength=rows)
    width = int(count.max(initial=0))
    if width * 4 >= vocab:
        return None
    first = np.cumsum(count) - count
    index = np.full((rows, width), -1, dtype=np.int64)
    index[row, np.arange(len(position)) - first[row]] = position - row * vocab
    return index


def _taken(x: NDArray[Any], index: NDArray[np.int64]) -> NDArray[Any]:
    """The values at the ids of each row, -inf where there is none."""
    if len(x) == 1:
        return x[:, index[0]]
    values = np.take_along_axis(x, index, axis=1)  # -1 takes the last, which is overwritten
    values[index < 0] = -np.inf
    return values


def _selected(x: NDArray[Any], k: int) -> NDArray[Any]:
    """The k-th largest value of each row, by selection."""
    position = x.shape[-1] - k
    return np.partition(x, position, axis=-1)[..., position : position + 1]
