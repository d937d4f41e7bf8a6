"""Loops over logits in host memory, compiled by Numba; see :mod:`logitloom_plugins.kernels._numba_loops`."""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
from numba import types

from logitloom.arrays.row_operations import DIVIDE, KEEP_HIGHEST, KEEP_NEAR_TOP, LOWER_BY_COUNT, LOWER_SEEN
from logitloom_plugins.kernels._numba_shared import compiled, elements_at, read_only

__all__ = [
    "INFINITE",
    "MEMORY",
    "OPERATIONS",
    "SUMMED",
    "border",
    "exponential",
    "exponentials",
    "key_of",
    "kth_key",
    "mass_of",
    "memory_for",
    "nucleus",
    "number_of",
    "operate",
    "reaching",
    "reshape",
]

#: Flags of LLVM that let the terms of a sum be added in any order, so that the loop is vectorised. Infinities and NaN
#: keep their meaning.
SUMMED: Final = {"reassoc", "contract", "nsz", "arcp"}
_BINS: Final = 1024
#: Up to this many logits, halving the range of their keys is faster than sorting them into bins.
_FEW: Final = 4096
_LOWEST: Final = np.finfo(np.float32).min
_EPSILON: Final = float(np.finfo(np.float32).eps)
_ROWS_OF_LOGITS: Final = read_only(types.float32, 2)
_LOGITS: Final = read_only(types.float32)


@compiled(types.float32(types.float32), cache=True, nogil=True, fastmath=SUMMED)
def exponential(x: Any) -> Any:  # pragma: no cover - compiled
    """``exp(x)`` for x up to 0, vectorisable: a power of two and the Taylor polynomial of the rest."""
    x = x * np.float32(1.4426950408889634)
    x = x if x > np.float32(-126.0) else np.float32(-126.0)
    whole = np.int32(x - np.float32(0.5))
    y = x - np.float32(whole)
    found = np.float32(1.5403530e-4)
    for factor in (1.3333558e-3, 9.6181291e-3, 5.5504109e-2, 2.4022651e-1, 6.9314718e-1, 1.0):
        found = found * y + np.float32(factor)
    return found * np.int32((whole + np.int32(127)) << np.int32(23)).view(np.float32)


@compiled(types.float32(_LOGITS, types.float32), cache=True, nogil=True, fastmath=SUMMED)
def _exponentials(line: Any, top: Any) -> Any:  # pragma: no cover - compiled
    """The sum of ``exp(line - top)``."""
    total = np.float32(0)
    for index in range(len(line)):
        total += exponential(line[index] - top)
    return total


@compiled(types.void(_ROWS_OF_LOGITS, _LOGITS, types.float32[::1]), cache=True, nogil=True)
def exponentials(x: Any, top: Any, total: Any) -> None:  # pragma: no cover - compiled
    """See :meth:`logitloom.masks.kernels.MaskKernels.exponentials`."""
    for row in range(len(x)):
        total[row] = _exponentials(x[row], top[row])


@compiled(types.int32(types.int32), cache=True, nogil=True)
def key_of(bits: Any) -> Any:  # pragma: no cover - compiled
    """The key of a number from its bits: an int32 that sorts as the numbers do; of a key, the bits."""
    return np.int32(bits ^ np.int32(np.int32(bits >> 31) & np.int32(0x7FFFFFFF)))


@compiled(types.float32(types.int64), cache=True, nogil=True)
def number_of(key: int) -> Any:  # pragma: no cover - compiled
    """The number that has a key."""
    return np.int32(key_of(np.int32(key))).view(np.float32)


#: Values, their weights, the mass of bins, and keys: as long as a row, but for the bins.
MEMORY: Final = types.Tuple((types.float32[::1], types.float32[::1], types.float64[::1], types.int32[::1]))


@compiled(types.UniTuple(types.int64, 2)(types.int32[::1]), cache=True, nogil=True)
def _range(keys: Any) -> Any:  # pragma: no cover - compiled
    """The least and the largest key."""
    low = high = keys[0]
    for key in keys:
        low = key if key < low else low
        high = key if key > high else high
    return np.int64(low), np.int64(high)


@compiled(types.int32(types.int32[::1], types.int32), cache=True, nogil=True)
def _reached(keys: Any, least: Any) -> Any:  # pragma: no cover - compiled
    """How many keys are at least a bound. Counts of 32 bits let a vector register hold as many counts as keys."""
    reached = np.int32(0)
    for index in range(len(keys)):
        reached = np.int32(reached + np.int32(keys[index] >= least))
    return reached


@compiled(types.int64(types.int32[::1], types.int64, types.int64), cache=True, nogil=True)
def kth_key(keys: Any, k: int, most: int) -> Any:  # pragma: no cover - compiled
    """A bound that between ``k`` and ``most`` keys reach; more only if keys are equal to the k-th largest.

    The range of the keys is halved until such a bound is found.
    """
    low, high = _range(keys)
    while low < high:
        middle = (low + high + 1) >> 1
        reached = _reached(keys, np.int32(middle))
        if reached >= k:
            low = middle
            if reached <= most:
                break
        else:
            high = middle - 1
    return low


@compiled(types.float32(types.float32[::1], types.int32[::1], types.int32), cache=True, nogil=True, fastmath=SUMMED)
def mass_of(weights: Any, keys: Any, least: Any) -> Any:  # pragma: no cover - compiled
    """The sum of the weights whose keys are at least a bound."""
    found = np.float32(0)
    for index in range(len(keys)):
        found += weights[index] if keys[index] >= least else np.float32(0)
    return found


@compiled(types.float32(types.float32[::1], types.int32[::1], types.float64), cache=True, nogil=True)
def _reaching_mass(weights: Any, keys: Any, mass: float) -> Any:  # pragma: no cover - compiled
    """The number of the largest key that together with all larger keys has this mass; of the least key if none has."""
    low, high = _range(keys)
    # How many keys are at least the lower end of the range, and how many are above the upper end.
    reached, above = np.int64(len(keys)), np.int64(0)
    while low < high and reached > above + 1:
        middle = (low + high + 1) >> 1
        count = np.int64(_reached(keys, np.int32(middle)))
        if mass_of(weights, keys, np.int32(middle)) >= mass:
            low, reached = middle, count
        else:
            high, above = middle - 1, count
    least = np.int32(0x7FFFFFFF)
    for key in keys:
        least = key if key >= low and key < least else least
    return number_of(least)


@compiled(types.float32(_LOGITS, types.float32, types.float64, types.float64, MEMORY), cache=True, nogil=True)
def border(line: Any, highest: Any, reached: float, total: float, memory: Any) -> Any:  # pragma: no cover - compiled
    """The least logit of a row's nucleus; -inf if its largest entry is not finite.

    A token whose mass is less than the mass outside of the nucleus divided by the length of the row is outside. If few
    tokens remain, the border is found by halving the range of their logits. If many remain, the masses of bins tell in
    which bin of logits the border is, and only that bin is sorted.

    Args:
        line: the logits of a row, or only the logits of the row's tokens that are still allowed.
        highest: the largest of these logits.
        reached: the mass of the nucleus, in units of ``exp(line - highest)``.
        total: the sum of ``exp(line - highest)``.
        memory: buffers of :func:`memory_for`.
    """
    likely, weights, mass, keys = memory
    if not np.isfinite(highest):
        return np.float32(-np.inf)
    share = (total - reached) / len(line)
    # A forbidden token is never kept, also with a share of 0.
    least = highest + np.float32(np.log(share)) if share > 0 else _LOWEST
    found = 0
    for index in range(len(line)):
        likely[found] = line[index]
        found += line[index] >= least
    if not found:
        return np.float32(-np.inf)
    if found <= _FEW:
        for index in range(found):
            weights[index] = exponential(likely[index] - highest)
            keys[index] = key_of(np.float32(likely[index]).view(np.int32))
        return _reaching_mass(weights[:found], keys[:found], reached)
    lowest = highest
    for index in range(found):
        weights[index] = exponential(likely[index] - highest)
        lowest = min(lowest, max(likely[index], highest - np.float32(126)))
    factor = np.float32(_BINS) / max(highest - lowest, np.float32(1e-6))
    mass[:] = 0
    for index in range(found):
        mass[np.uint64(min((highest - likely[index]) * factor, np.float32(_BINS - 1)))] += weights[index]
    border, above = 0, 0.0
    while border < _BINS - 1 and above + mass[border] < reached:
        above += mass[border]
        border += 1
    inside = 0
    for index in range(found):
        if np.uint64(min((highest - likely[index]) * factor, np.float32(_BINS - 1))) == np.uint64(border):
            likely[inside] = likely[index]
            inside += 1
    if not inside:  # only the last bin can be empty, by rounding
        return lowest
    likely[:inside].sort()
    index = inside - 1
    while index > 0:
        above += exponential(likely[index] - highest)
        if above >= reached:
            break
        index -= 1
    return likely[index]


@compiled(MEMORY(types.int64), cache=True, nogil=True)
def memory_for(width: int) -> Any:  # pragma: no cover - compiled
    """Buffers for rows of up to ``width`` logits."""
    return (
        np.empty(width, np.float32),
        np.empty(width, np.float32),
        np.empty(_BINS, np.float64),
        np.empty(width, np.int32),
    )


@compiled(types.void(_ROWS_OF_LOGITS, _LOGITS, types.float64, types.float32[::1]), cache=True, nogil=True)
def nucleus(x: Any, top: Any, p: float, threshold: Any) -> None:  # pragma: no cover - compiled
    """See :meth:`logitloom.masks.kernels.MaskKernels.nucleus`."""
    memory = memory_for(x.shape[1])
    for row in range(len(x)):
        total = np.float64(_exponentials(x[row], top[row]))
        threshold[row] = border(x[row], top[row], p * total, total, memory)


@compiled(types.int64(_ROWS_OF_LOGITS, _ROWS_OF_LOGITS, _LOGITS, types.int64[:, ::1]), cache=True, nogil=True)
def reaching(x: Any, maxima: Any, least: Any, ids: Any) -> int:  # pragma: no cover - compiled
    """See :meth:`logitloom.masks.kernels.MaskKernels.reaching`."""
    (rows, vocab), count, width, most = x.shape, maxima.shape[1], ids.shape[1], 0
    hit = np.empty(count, np.int64)
    for row in range(rows):
        line, bound, hits, found = x[row], least[row], 0, 0
        for block in range(count):
            hit[hits] = block
            hits += maxima[row, block] >= bound
        for first in range(0, vocab, count):
            for index in range(hits):
                token = first + hit[index]
                if token < vocab and line[token] >= bound:
                    if found == width:
                        return -1
                    ids[row, found] = token
                    found += 1
        ids[row, found:] = -1
        most = max(most, found)
    return most


#: Largest and least size of a block of neighbouring logits. If blocks had to be smaller, each logit is a block.
_LARGEST_BLOCK: Final = 128
_LEAST_BLOCK: Final = 8
#: Least number of blocks per logit that the first truncation keeps.
_BLOCKS: Final = 4
#: Key of infinity; that of -infinity is ``-1 - INFINITE``. Larger and lesser keys are NaN.
INFINITE: Final = 0x7F800000
_KEYS: Final = read_only(types.int32)
OPERATIONS: Final = types.Tuple((read_only(types.int64), read_only(types.float64)))
_NUMBERS: Final = types.Tuple((read_only(types.int64), read_only(types.float64), types.int64[::1]))


@compiled(types.int32(_KEYS, types.int64, types.int32[::1]), cache=True, nogil=True)
def _tops(bits: Any, size: int, tops: Any) -> Any:  # pragma: no cover - compiled
    """Write the largest key of each block to ``tops``; returns the least key of the row."""
    lowest = np.int32(0x7FFFFFFF)
    for block in range(len(tops)):
        top = np.int32(-0x80000000)
        line = bits[block * size : (block + 1) * size]
        for index in range(len(line)):
            key = key_of(line[index])
            top = key if key > top else top
            lowest = key if key < lowest else lowest
        tops[block] = top
    return lowest


@compiled(types.int32(_KEYS, types.int32[::1]), cache=True, nogil=True)
def _each_key(bits: Any, keys: Any) -> Any:  # pragma: no cover - compiled
    """As :func:`_tops`, for blocks of one logit."""
    lowest = np.int32(0x7FFFFFFF)
    for index in range(len(bits)):
        key = key_of(bits[index])
        keys[index] = key
        lowest = key if key < lowest else lowest
    return lowest


@compiled(types.boolean(types.int64, types.int64, _NUMBERS), cache=True, nogil=True)
def _occurs(start: int, stop: int, numbers: Any) -> Any:  # pragma: no cover - compiled
    """Whether one of the tokens with indices from ``start`` to ``stop`` in the flat tables occurred."""
    kinds, _, tables = numbers
    for i in range(len(tables)):
        size = np.int64(4 if kinds[i] == LOWER_BY_COUNT else 1)
        address, length = tables[i] + start * size, (stop - start) * size
        words = numba.carray(elements_at(address, np.uint64(0)), (length // 8,))
        found = np.uint64(0)
        for index in range(len(words)):
            found |= words[index]
        octets = numba.carray(elements_at(address, np.uint8(0)), (length,))
        for index in range(length // 8 * 8, length):
            found |= np.uint64(octets[index])
        if found:
            return True
    return False


@compiled(types.float32(types.float32, types.int64, _NUMBERS), cache=True, nogil=True)
def _penalised(x: Any, index: int, numbers: Any) -> Any:  # pragma: no cover - compiled
    """The logit ``x`` of the token at ``index`` of the flat tables, after the operations that have tables, in order."""
    kinds, values, tables = numbers
    for i in range(len(tables)):
        kind, value = kinds[i], np.float32(values[i])
        if kind == LOWER_BY_COUNT:
            count = numba.carray(elements_at(tables[i] + 4 * index, np.float32(0)), (1,))[0]
            x = x + count * -value if count != 0 else x
        elif numba.carray(elements_at(tables[i] + index, np.uint8(0)), (1,))[0]:
            if kind == LOWER_SEEN:
                x = x - value
            elif value >= 1:
                x = min(x * value, x / value)
            else:
                x = max(x * value, x / value)
    return x


@compiled(types.void(types.float32[::1], OPERATIONS, types.int64, types.float64, MEMORY), cache=True, nogil=True)
def reshape(line: Any, operations: Any, first: int, total: float, memory: Any) -> None:  # pragma: no cover - compiled
    """Apply the operations that have no tables, in order. The logits of tokens that the operations forbid become -inf.

    Args:
        line: the logits of a row, or only the logits of the row's tokens that are still allowed. Written to.
        operations: kinds and operands of all operations.
        first: the index of the first operation without a table.
        total: the sum of ``exp(x - max(x))`` over the whole row, if ``line`` is only a part of the row (the first
            truncation measures its mass by this sum); 0 if ``line`` is the whole row.
        memory: buffers of :func:`memory_for`.
    """
    (kinds, values), keys = operations, memory[3]
    for i in range(first, len(kinds)):
        kind, value = kinds[i], np.float32(values[i])
        if kind == DIVIDE:
            for index in range(len(line)):
                line[index] = line[index] / value
            continue
        least = np.float32(-np.inf)
        if kind == KEEP_HIGHEST:
            if len(line) > values[i]:
                for index in range(len(line)):
                    keys[index] = key_of(np.float32(line[index]).view(np.int32))
                least = number_of(kth_key(keys[: len(line)], np.int64(values[i]), np.int64(values[i])))
        else:
            top = line[0]
            for index in range(len(line)):
                top = max(top, line[index])
            if kind == KEEP_NEAR_TOP:
                least = top + value
            else:
                here = np.float64(_exponentials(line, top))
                least = border(line, top, values[i] * (total if total > 0 else here), here, memory)
        total = 0.0
        for index in range(len(line)):
            line[index] = -np.inf if line[index] < least else line[index]


_ROW: Final = types.Tuple((types.int64, types.int64, types.int64))


@compiled(types.int32(_ROW, types.int64, types.int64, types.int32, _NUMBERS), cache=True, nogil=True)
def _top(row: Any, start: int, stop: int, top: Any, numbers: Any) -> Any:  # pragma: no cover - compiled
    """The largest key of a block in which a token occurred, after the operations that have tables.

    Args:
        row: as for :func:`_tops_of_row`.
        start, stop: the ids of the block.
        top: the largest key of the block before the operations.
        numbers: the operations: kinds, operands, addresses of tables.
    """
    logits, first, vocab = row
    values = numba.carray(elements_at(logits, np.float32(0)), (vocab,))
    changed = np.int32(-0x80000000)
    lost = False
    for i in range(len(numbers[2])):
        size = np.int64(4 if numbers[0][i] == LOWER_BY_COUNT else 1)
        table, each = numbers[2][i] + (first + start) * size, np.int64(8 // size)
        words = numba.carray(elements_at(table, np.uint64(0)), ((stop - start) // each,))
        for begin in range(start, stop, each):
            word = (begin - start) // each
            if word < len(words) and words[word] == 0:
                continue
            end: Any = min(begin + each, stop)
            for index in range(begin, end):
                x = values[index]
                y = _penalised(x, first + index, numbers)
                if y != x:
                    lost = lost or key_of(np.float32(x).view(np.int32)) == top
                    changed = max(changed, key_of(np.float32(y).view(np.int32)))
    if not lost:
        return max(top, changed)
    top = np.int32(-0x80000000)
    for index in range(start, stop):
        top = max(top, key_of(np.float32(_penalised(values[index], first + index, numbers)).view(np.int32)))
    return top


@compiled(types.boolean(_ROW, types.int64, _NUMBERS, types.boolean[::1], types.int32[::1]), cache=True, nogil=True)
def _tops_of_row(row: Any, size: int, numbers: Any, occurs: Any, tops: Any) -> Any:  # pragma: no cover - compiled
    """The largest keys of the blocks of a row, after the operations that have tables.

    Args:
        row: the address of the row's logits, the index of its first entry in the flat tables, and its length.
        size: logits of a block.
        numbers: the operations: kinds, operands, addresses of tables.
        occurs: output: whether a token of each block occurred.
        tops: output: the largest keys.

    Returns:
        Whether no logit is NaN or +infinity.
    """
    logits, first, vocab = row
    bits = numba.carray(elements_at(logits, np.int32(0)), (vocab,))
    lowest = _each_key(bits, tops) if size == 1 else _tops(bits, size, tops)
    for block in range(len(tops) if len(numbers[2]) else 0):
        start, stop = block * size, min((block + 1) * size, vocab)
        occurs[block] = _occurs(first + start, first + stop, numbers)
        if occurs[block]:
            tops[block] = _top(row, start, stop, tops[block], numbers)
    highest = tops[0]
    for key in tops:
        highest = max(highest, key)
    return lowest >= -1 - INFINITE and highest < INFINITE


@compiled(types.float32(types.int32[::1], types.int64), cache=True, nogil=True)
def _bound(tops: Any, highest: int) -> Any:  # pragma: no cover - compiled
    """A lower bound of the ``highest`` largest logits of a row, lowered so that later rounding cannot matter."""
    key = tops[0]
    for top in tops:
        key = max(key, top)
    bound = np.float64(number_of(kth_key(tops, highest, highest + highest // 4)))
    slack = 8 * np.float64(_EPSILON) * (abs(bound) + abs(np.float64(number_of(key))))
    # A bound of -inf means that fewer tokens than ``highest`` are allowed: all allowed ones reach the lowest number.
    return np.float32(bound - slack) if np.isfinite(slack) else _LOWEST


@compiled(
    types.int64(
        _ROW, types.int64, _NUMBERS, types.boolean[::1], types.int32[::1], types.float32, types.int64[::1],
        types.float32[::1],
    ),
    cache=True,
    nogil=True,
)  # fmt: skip
def _listed(
    row: Any, size: int, numbers: Any, occurs: Any, tops: Any, least: Any, ids: Any, left: Any
) -> Any:  # pragma: no cover - compiled
    """Write the ids and logits of the tokens that reach a bound; returns their number, -1 if there is no room."""
    logits, first, vocab = row
    values, found = numba.carray(elements_at(logits, np.float32(0)), (vocab,)), 0
    # -0.0 equals 0.0 but has a lesser key.
    least_key = np.int32(-1) if least == 0 else key_of(np.float32(least).view(np.int32))
    for block in range(len(tops)):
        if tops[block] < least_key:
            continue
        for token in range(block * size, min((block + 1) * size, vocab)):
            x = values[token]
            x = _penalised(x, first + token, numbers) if occurs[block] else x
            if x >= least:
                if found == len(ids):
                    return -1
                ids[found], left[found] = token, x
                found += 1
    return found


@compiled(types.void(types.int64, types.int64, types.int64, types.int64, _NUMBERS), cache=True, nogil=True)
def _count(tokens: int, rows: int, count: int, vocab: int, numbers: Any) -> None:  # pragma: no cover - compiled
    """Enter the newly accepted tokens of each row into the tables."""
    kinds, _, tables = numbers
    ids = numba.carray(elements_at(tokens, np.int32(0)), (rows, count))
    for i in range(len(tables)):
        for row in range(rows):
            for token in ids[row]:
                if not 0 <= token < vocab:
                    continue
                index = row * vocab + token
                if kinds[i] == LOWER_BY_COUNT:
                    numba.carray(elements_at(tables[i] + 4 * index, np.float32(0)), (1,))[0] += np.float32(1)
                else:
                    numba.carray(elements_at(tables[i] + index, np.uint8(0)), (1,))[0] = 1


@compiled(
    types.int64(
        types.int64, types.int64, types.int64, types.int64, *_NUMBERS, types.int64, types.int64, types.int64[:, ::1],
        types.float32[:, ::1],
    ),
    cache=True,
    nogil=True,
)  # fmt: skip
def operate(
    logits: int,
    rows: int,
    vocab: int,
    highest: int,
    kinds: Any,
    operands: Any,
    tables: Any,
    tokens: int,
    count: int,
    ids: Any,
    left: Any,
) -> int:  # pragma: no cover - compiled
    """See :meth:`logitloom.masks.kernels.MaskKernels.operate`."""
    numbers = kinds, operands, tables
    size = _LARGEST_BLOCK
    while size > 1 and size * _BLOCKS * highest > vocab:
        size = size // 2 if size > _LEAST_BLOCK else 1
    tops, occurs = np.empty(-(-vocab // size), np.int32), np.zeros(-(-vocab // size), np.bool_)
    width, most = ids.shape[1], 0
    memory = memory_for(width)
    # The tokens are entered after every statement that could raise, so an exception means that no token was entered.
    _count(tokens, rows, count, vocab, numbers)
    for row in range(rows):
        here = logits + 4 * row * vocab, row * vocab, vocab
        if not _tops_of_row(here, size, numbers, occurs, tops):
            return -1
        least = _bound(tops, highest)
        found = _listed(here, size, numbers, occurs, tops, least, ids[row], left[row])
        if found < 0:
            return -1
        if found:
            reshape(left[row, :found], (kinds, operands), len(tables), 0.0, memory)
        kept = 0
        for index in range(found):
            if left[row, index] > -np.inf:
                ids[row, kept], left[row, kept] = ids[row, index], left[row, index]
                kept += 1
        ids[row, kept:], left[row, kept:] = -1, -np.inf
        most = max(most, kept)
    return most
