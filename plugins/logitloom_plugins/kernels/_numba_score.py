"""Loops that score tokens by rows of logits in host memory, compiled by Numba.

See :mod:`logitloom_plugins.kernels._numba_loops`.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
from numba import types

from logitloom.row_operations import DIVIDE, KEEP_HIGHEST, KEEP_NEAR_TOP, KEEP_NUCLEUS, LOWER_BY_COUNT, LOWER_SEEN
from logitloom_plugins.kernels._numba_logits import (
    INFINITE,
    OPERATIONS,
    SUMMED,
    exponential,
    key_of,
    kth_key,
    mass_of,
    memory_for,
    number_of,
    reshape,
)
from logitloom_plugins.kernels._numba_loops import compiled, elements_at, read_only

__all__ = ["own_logits", "score"]

#: Least and largest number of blocks of a row. A block has the ids that are equal modulo the number of blocks.
_LEAST_BLOCKS: Final = 512
_MOST_BLOCKS: Final = 2048
#: How often the range of weights is halved to find a lower bound of a nucleus, and the factor that rounding may change.
_HALVINGS: Final = 4
_SLACK: Final = np.float32(1 + 1e-5)
_TINY: Final = np.float32(1e-37)
_EPSILON: Final = float(np.finfo(np.float32).eps)
_LINE: Final = types.float32[::1]
_TABLES: Final = types.float32[:, :, ::1]
_IDS: Final = read_only(types.int64)
_FLOATS: Final = read_only(types.float32)
_NUMBERS: Final = read_only(types.int32, 2)


@compiled(types.void(types.int64, OPERATIONS, _TABLES, types.int64, _LINE), cache=True, nogil=True)
def _penalise(
    number: int, operations: Any, tables: Any, sequence: int, own: Any
) -> None:  # pragma: no cover - compiled
    """Apply the operations that have tables to the logits of a sequence's own tokens.

    Args:
        number: the index in ``own`` of the token that the sequence accepted before this row, -1 for none. The tables
            count it.
        operations: kinds and operands, those of operations with tables first.
        tables: ``[operations, sequences, n]``: how often each token occurred.
        sequence: the index of the sequence.
        own: ``[n]``: the logits of the sequence's own tokens. Written to.
    """
    kinds, values = operations
    for i in range(len(tables)):
        counts, kind, value = tables[i, sequence], kinds[i], np.float32(values[i])
        if number >= 0:
            counts[number] += np.float32(1)
        if kind == LOWER_BY_COUNT:
            for j in range(len(own)):
                own[j] = own[j] + counts[j] * -value
        elif kind == LOWER_SEEN:
            for j in range(len(own)):
                own[j] = own[j] - (value if counts[j] != 0 else np.float32(0))
        elif value >= 1:
            for j in range(len(own)):
                x = own[j]
                own[j] = min(x * value, x / value) if counts[j] != 0 else x
        else:
            for j in range(len(own)):
                x = own[j]
                own[j] = max(x * value, x / value) if counts[j] != 0 else x


@compiled(types.void(_LINE, _LINE), cache=True, nogil=True)
def _copy(line: Any, scratch: Any) -> None:  # pragma: no cover - compiled
    """Copy a row, several times as fast as ``scratch[:] = line``."""
    for j in range(len(line)):
        scratch[j] = line[j]


@compiled(
    types.void(
        types.UniTuple(types.int64, 6), read_only(types.int64, 2), _NUMBERS, *OPERATIONS, _TABLES, types.float32[:, ::1]
    ),
    cache=True,
    nogil=True,
)
def own_logits(
    lines: Any, ids: Any, numbers: Any, kinds: Any, operands: Any, tables: Any, own: Any
) -> None:  # pragma: no cover - compiled
    """See :meth:`logitloom.masks.kernels.MaskKernels.own_logits`."""
    logits, positions, batch, vocab, by_position, by_sequence = lines
    for position in range(positions):
        for sequence in range(batch):
            line = numba.carray(
                elements_at(logits + position * by_position + sequence * by_sequence, np.float32(0)), (vocab,)
            )
            given, number = own[position * batch + sequence], np.int64(numbers[position, sequence])
            for j in range(len(given)):
                given[j] = line[max(ids[sequence, j], 0)]
            _penalise(number, (kinds, operands), tables, sequence, given)


@compiled(types.UniTuple(types.int32, 2)(_LINE, types.int32[::1]), cache=True, nogil=True)
def _maxima(line: Any, tops: Any) -> Any:  # pragma: no cover - compiled
    """Write the largest key of each block to ``tops``; returns the least and the largest key of the row."""
    count, bits, lowest = len(tops), line.view(np.int32), np.int32(0x7FFFFFFF)
    tops[:] = -0x80000000
    for first in range(0, len(bits), count):
        here = bits[first : min(first + count, len(bits))]
        for block in range(len(here)):
            key = key_of(here[block])
            tops[block] = key if key > tops[block] else tops[block]
            lowest = key if key < lowest else lowest
    top = tops[0]
    for key in tops:
        top = key if key > top else top
    return lowest, top


@compiled(types.UniTuple(types.int32, 2)(_LINE), cache=True, nogil=True)
def _range(line: Any) -> Any:  # pragma: no cover - compiled
    """The least and the largest key of a row."""
    lowest, top, bits = np.int32(0x7FFFFFFF), np.int32(-0x80000000), line.view(np.int32)
    for index in range(len(bits)):
        key = key_of(bits[index])
        top = key if key > top else top
        lowest = key if key < lowest else lowest
    return lowest, top


@compiled(types.float32(_LINE, types.float32, types.float32), cache=True, nogil=True, fastmath=SUMMED)
def _sum(line: Any, top: Any, factor: Any) -> Any:  # pragma: no cover - compiled
    """The sum of ``exp((line - top) * factor)``."""
    total = np.float32(0)
    for index in range(len(line)):
        total += exponential((line[index] - top) * factor)
    return total


@compiled(
    types.int64(_LINE, types.int32[::1], types.float32, types.int32[::1], types.int32[::1], _LINE),
    cache=True,
    nogil=True,
)
def _listed(line: Any, tops: Any, least: Any, hit: Any, ids: Any, left: Any) -> int:  # pragma: no cover - compiled
    """Write the ids and logits of the tokens that reach a bound, in order; returns their number."""
    # -0.0 equals 0.0 but has a lesser key.
    least_key, hits, found = np.int32(-1) if least == 0 else key_of(np.float32(least).view(np.int32)), 0, 0
    for block in range(len(tops)):
        hit[hits] = block
        hits += tops[block] >= least_key
    for first in range(0, len(line), len(tops)):
        here = line[first : min(first + len(tops), len(line))]
        while hits and hit[hits - 1] >= len(here):
            hits -= 1
        for index in range(hits):
            column = np.uint32(hit[index])
            if here[column] >= least:
                ids[found], left[found] = first + column, here[column]
                found += 1
    return found


@compiled(types.float32(_LINE, types.float32, types.float32, _LINE), cache=True, nogil=True, fastmath=SUMMED)
def _weigh(line: Any, top: Any, factor: Any, weights: Any) -> Any:  # pragma: no cover - compiled
    """Write ``exp((line - top) * factor)`` to ``weights``; returns the sum."""
    total = np.float32(0)
    for index in range(len(line)):
        weight = exponential((line[index] - top) * factor)
        weights[index] = weight
        total += weight
    return total


@compiled(types.float32(_LINE, types.float32, types.float32), cache=True, nogil=True)
def _light(weights: Any, total: Any, p: Any) -> Any:  # pragma: no cover - compiled
    """A lower bound of the weights in a nucleus: ``1 / vocab`` of the mass outside, raised by halving the range above.

    The bits of positive numbers, read as integers, sort as the numbers do.
    """
    share = np.float32(total * (np.float32(1) - p) / np.float32(len(weights)))
    if share < _TINY:
        return np.float32(0)
    bits, low, high = weights.view(np.int32), np.float32(share).view(np.int32), np.float32(1).view(np.int32)
    for _ in range(_HALVINGS if low < high else 0):
        middle = np.int32((low + high) >> 1)
        if mass_of(weights, bits, middle) >= p * total * _SLACK:
            low = middle
        else:
            high = middle
    return np.int32(low).view(np.float32)


@compiled(
    types.float64(types.float32, types.float32, types.int64, types.int32[::1], OPERATIONS, types.int64),
    cache=True,
    nogil=True,
)
def _bound(
    top: Any, light: Any, index: int, tops: Any, operations: Any, first: int
) -> float:  # pragma: no cover - compiled
    """A lower bound of the logits of a row that the first truncation keeps, lowered so that rounding cannot matter.

    Args:
        top: the largest logit.
        light: for a nucleus, a lower bound of the weights in it, where the largest logit has weight 1.
        index: the index of the truncation.
        tops: the largest keys of blocks.
        operations: kinds and operands; the operations from ``first`` up to the truncation are divisions.
        first: the index of the first division.
    """
    kinds, values = operations
    divisor = 1.0
    for i in range(first, index):
        divisor *= values[i]
    if kinds[index] == KEEP_HIGHEST:
        k = np.int64(values[index])
        bound = np.float64(number_of(kth_key(tops, k, k + k // 4))) if k <= len(tops) else -np.inf
    elif kinds[index] == KEEP_NEAR_TOP:
        bound = top + values[index] * divisor
    else:
        bound = top + np.log(np.float64(light)) * divisor
    return bound - 16 * _EPSILON * (abs(bound) + abs(np.float64(top))) if np.isfinite(bound) else bound


@compiled(types.void(_LINE, _IDS, _LINE, _IDS, _FLOATS), cache=True, nogil=True)
def _replace(line: Any, own_ids: Any, given: Any, listed: Any, added: Any) -> None:  # pragma: no cover - compiled
    """Replace the logits of a sequence's own tokens in a row, and add to the logits of listed tokens."""
    for j in range(len(given)):
        if own_ids[j] >= 0:
            line[own_ids[j]] = given[j]
    for j in range(len(listed)):
        line[listed[j]] += added[j]


@compiled(types.float32(types.int32[::1], _LINE, types.int64), cache=True, nogil=True)
def _log_probability(ids: Any, left: Any, token: int) -> Any:  # pragma: no cover - compiled
    """The log-probability of a token among those with ids ``ids`` and logits ``left``; -inf if it is not among them."""
    top, value = np.float32(-np.inf), np.float32(-np.inf)
    for j in range(len(ids)):
        top = max(top, left[j])
        value = left[j] if ids[j] == token else value
    total = _sum(left, top, np.float32(1))
    return np.float32(np.float64(value) - top - np.log(np.float64(total)))


@compiled(types.int64(types.int32[::1], _LINE, types.int64[::1], _LINE), cache=True, nogil=True)
def _kept(ids: Any, left: Any, kept_ids: Any, kept: Any) -> int:  # pragma: no cover - compiled
    """Write the ids and logits of the tokens that are not -inf; returns their number, -1 if there is no room."""
    count = 0
    for j in range(len(ids)):
        if left[j] > -np.inf:
            if count == len(kept):
                return -1
            kept_ids[count], kept[count] = ids[j], left[j]
            count += 1
    return count


@compiled(
    types.int64(
        types.UniTuple(types.int64, 6), read_only(types.int64, 2), _NUMBERS, *OPERATIONS, _TABLES,
        read_only(types.float32, 2), _IDS, _FLOATS, _IDS, _LINE, types.int64[:, ::1], types.float32[:, ::1],
    ),
    cache=True,
    nogil=True,
)  # fmt: skip
def score(
    lines: Any, own_ids: Any, numbers: Any, kinds: Any, operands: Any, tables: Any, own: Any, listed: Any, added: Any,
    chosen: Any, logprob: Any, ids: Any, left: Any,
) -> int:  # fmt: skip  # pragma: no cover - compiled
    """See :meth:`logitloom.masks.kernels.MaskKernels.score`."""
    logits, positions, batch, vocab, by_position, by_sequence = lines
    first, width, room, operations = len(tables), own_ids.shape[1], ids.shape[1], (kinds, operands)
    index, factor = first, 1.0
    while index < len(kinds) and kinds[index] == DIVIDE:
        factor /= operands[index]
        index += 1
    blocks = min(vocab, max(_LEAST_BLOCKS, min(vocab // 16, _MOST_BLOCKS)))
    tops, hit, memory = np.empty(blocks, np.int32), np.empty(blocks + 1, np.int32), memory_for(vocab)
    scratch, weights, given = np.empty(vocab, np.float32), np.empty(vocab, np.float32), np.empty(width, np.float32)
    here, values = np.empty(vocab, np.int32), np.empty(vocab, np.float32)
    counts, most = np.empty(positions * batch, np.int64), 0
    for row in range(positions * batch):
        position, sequence = row // batch, row % batch
        address = logits + position * by_position + sequence * by_sequence
        line = numba.carray(elements_at(address, np.float32(0)), (vocab,))
        if width or len(listed):
            # Copy before single logits are read: reading memory in order is faster.
            _copy(line, scratch)
            line = scratch
            for j in range(width):
                given[j] = own[row, j] if len(own) else line[max(own_ids[sequence, j], 0)]
            if first:
                _penalise(np.int64(numbers[position, sequence]), operations, tables, sequence, given)
            _replace(line, own_ids[sequence], given, listed, added)
        lowest, key = _range(line) if index == len(kinds) else _maxima(line, tops)
        top = number_of(key)
        if lowest < -1 - INFINITE or not np.isfinite(top):
            return -1
        if index == len(kinds):
            mass = np.log(np.float64(_sum(line, top, np.float32(factor))))
            logprob[row] = np.float32((np.float64(line[chosen[row]]) - top) * factor - mass)
            continue
        total, light = 0.0, np.float32(0)
        if kinds[index] == KEEP_NUCLEUS:
            total = np.float64(_weigh(line, top, np.float32(factor), weights))
            light = _light(weights, np.float32(total), np.float32(operands[index]))
        least = np.float32(_bound(top, light, index, tops, operations, first))
        found = _listed(line, tops, least, hit, here, values)
        reshape(values[:found], operations, first, total, memory)
        if not room:
            logprob[row] = _log_probability(here[:found], values[:found], chosen[row])
            continue
        counts[row] = _kept(here[:found], values[:found], ids[row], left[row])
        if counts[row] < 0:
            return -1
        most = max(most, counts[row])
    for row in range(positions * batch if room else 0):
        ids[row, counts[row] : most], left[row, counts[row] : most] = -1, -np.inf
    return most
