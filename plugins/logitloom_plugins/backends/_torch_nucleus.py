"""The border of the nucleus as a Triton kernel, for PyTorch tensors on a device that Triton compiles for.

One Triton program finds the border of one row. A token whose mass is less than the mass outside of the nucleus divided
by the vocabulary size is outside, so the program packs the other tokens and halves the range of these tokens' logits
until one logit is left. A sort of the vocabulary costs several times as much. Sums are added in a fixed order, so a
row has the same border in every batch. Where there is no device, the tests run the kernel by Triton's interpreter.
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl

from logitloom import Array

__all__ = ["DTYPES", "nucleus_threshold"]

#: Dtypes whose values float32 holds.
DTYPES: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})

#: Number of logits that a program reads at a time, and number of the program's warps.
_BLOCK: Final = 2048
_WARPS: Final = 8
#: How often a range is halved before only its logits stay packed.
_HALVINGS: Final = 8


@triton.jit
def _ordered(bits):  # type: ignore[no-untyped-def]
    """The bits of numbers as integers in the order of the numbers; applied again, the bits."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _key(x):  # type: ignore[no-untyped-def]
    """An integer in the order of the numbers."""
    return _ordered(x.to(tl.int32, bitcast=True))


@triton.jit
def _pack(packed, count, x, kept):  # type: ignore[no-untyped-def]
    """Append the kept logits to the ``count`` logits packed so far; returns the new count."""
    place = count + tl.cumsum(kept.to(tl.int32), 0) - 1
    tl.store(packed + place, x, mask=kept)
    return count + tl.sum(kept.to(tl.int32))


@triton.jit  # type: ignore[untyped-decorator]
def _highest(line, vocab, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The highest logit of a row; inf if one is no number."""
    lane = tl.arange(0, block)
    largest = tl.full([block], float("-inf"), tl.float32)
    for first in range(0, vocab, block):
        x = tl.load(line + first + lane, mask=first + lane < vocab, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(largest, tl.where(x == x, x, float("inf")))
    return tl.max(largest)


@triton.jit  # type: ignore[untyped-decorator]
def _mass(x, count, least, highest, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of ``exp(x - highest)`` of those of ``count`` logits whose keys are at least ``least``."""
    lane = tl.arange(0, block)
    sums = tl.zeros([block], tl.float32)
    for first in range(0, count, block):
        each = tl.load(x + first + lane, mask=first + lane < count, other=float("-inf")).to(tl.float32)
        sums += tl.where(_key(each) >= least, tl.exp(each - highest), 0.0)
    return tl.sum(sums)


@triton.jit  # type: ignore[untyped-decorator]
def _border(logits, likely, out, vocab, stride, p, block: tl.constexpr, halvings: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the border of one row's nucleus to ``out``; ``likely`` is memory for the row's candidates."""
    row = tl.program_id(0).to(tl.int64)
    line, packed = logits + row * stride, likely + row * vocab
    lane = tl.arange(0, block)
    highest = _highest(line, vocab, block)
    if (highest == float("-inf")) | (highest == float("inf")):
        tl.store(out + row, float("-inf"))
        return
    total = _mass(line, vocab, -0x80000000, highest, block)
    # A forbidden token is never kept, also with a share of 0.
    least = tl.maximum(highest + tl.log((1.0 - p) * total / vocab), -3.4028234663852886e38)

    found = 0
    smallest = tl.full([block], 0x7FFFFFFF, tl.int32)
    for first in range(0, vocab, block):
        x = tl.load(line + first + lane, mask=first + lane < vocab, other=float("-inf")).to(tl.float32)
        found = _pack(packed, found, x, x >= least)
        smallest = tl.minimum(smallest, tl.where(x >= least, _key(x), 0x7FFFFFFF))
    tl.debug_barrier()  # what one thread wrote, others read

    # Tokens from the lower end of the range up have the mass of the nucleus, tokens above the upper end have less.
    low, high, above = tl.min(smallest).to(tl.int64), _key(highest).to(tl.int64), 0.0
    while low < high:
        halved = 0
        while (low < high) & (halved < halvings):
            middle = (low + high + 1) >> 1
            if above + _mass(packed, found, middle, highest, block) >= p * total:
                low = middle
            else:
                high = middle - 1
            halved += 1
        if found > block:
            above += _mass(packed, found, high + 1, highest, block)
            inside = 0
            smallest = tl.full([block], 0x7FFFFFFF, tl.int32)
            for first in range(0, found, block):
                x = tl.load(packed + first + lane, mask=first + lane < found, other=float("-inf"))
                tl.debug_barrier()  # all have read before one writes
                is_inside = (_key(x) >= low) & (_key(x) <= high)
                inside = _pack(packed, inside, x, is_inside)
                smallest = tl.minimum(smallest, tl.where(is_inside, _key(x), 0x7FFFFFFF))
            found = inside
            low = tl.min(smallest).to(tl.int64)
            tl.debug_barrier()
    tl.store(out + row, _ordered(low.to(tl.int32)).to(tl.float32, bitcast=True))


def nucleus_threshold(x: Array, p: float) -> Array:
    """See :meth:`logitloom.arrays.backend.Backend.nucleus_threshold`; -inf for a row whose highest entry is not finite.

    Args:
        x: ``[batch, vocab]`` of one of :data:`DTYPES`; the last axis is contiguous.
        p: mass of the nucleus, from 0 to below 1.

    Returns:
        ``[batch, 1]`` of the dtype of ``x``.
    """
    batch, vocab = x.shape
    out = torch.empty(batch, 1, dtype=torch.float32, device=x.device)
    if batch:
        likely = torch.empty(batch, vocab, dtype=torch.float32, device=x.device)
        _border[(batch,)](x, likely, out, vocab, x.stride(0), p, block=_BLOCK, halvings=_HALVINGS, num_warps=_WARPS)
    return out.to(x.dtype)
