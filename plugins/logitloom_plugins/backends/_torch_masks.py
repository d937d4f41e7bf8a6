"""Masks of tokens as Triton kernels, for PyTorch tensors on a device that Triton compiles for.

Each Triton program writes one contiguous part of one row. Donated logits are never read: only forbidden tokens are
written, so the memory traffic is the mask and the changed logits. Logits that are not donated are read where they are
allowed, and written once. Where there is no device, the tests run the kernels by Triton's interpreter.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import triton
import triton.language as tl

from logitloom import Array

__all__ = ["apply_class_mask", "apply_token_mask"]

#: Words of 32 tokens per program.
_WORDS: Final = 64


@triton.jit  # type: ignore[untyped-decorator]
def _write(logits, out, position, row, stride, out_stride, inside, allowed, in_place: tl.constexpr):  # type: ignore[no-untyped-def]
    """Forbid what is not allowed, in the logits themselves or in a copy."""
    target = out + row * out_stride + position
    if in_place:
        tl.store(target, float("-inf"), mask=inside & (allowed == 0))
    else:
        kept = tl.load(logits + row * stride + position, mask=inside & (allowed != 0), other=float("-inf"))
        tl.store(target, kept, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _packed(logits, out, bits, vocab, stride, out_stride, bit_stride, words: tl.constexpr, in_place: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(1).to(tl.int64)
    word = tl.program_id(0) * words + tl.arange(0, words)
    read = tl.load(bits + row * bit_stride + word, mask=word * 32 < vocab, other=0)
    lane = tl.arange(0, 32)
    position = word[:, None] * 32 + lane[None, :]
    allowed = (read[:, None] >> lane[None, :]) & 1
    _write(logits, out, position, row, stride, out_stride, position < vocab, allowed, in_place)


@triton.jit  # type: ignore[untyped-decorator]
def _classed(  # type: ignore[no-untyped-def]
    logits, out, allowed_classes, token_class, vocab, stride, out_stride, class_stride,
    block: tl.constexpr, in_place: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1).to(tl.int64)
    position = tl.program_id(0) * block + tl.arange(0, block)
    inside = position < vocab
    kind = tl.load(token_class + position, mask=inside, other=0)
    allowed = tl.load(allowed_classes + row * class_stride + kind, mask=inside, other=0)
    _write(logits, out, position, row, stride, out_stride, inside, allowed, in_place)


def apply_token_mask(logits: Array, bits: Array, in_place: bool) -> Array:
    """``logits`` with -inf where a token's bit is 0.

    Args:
        logits: ``[batch, vocab]`` of any floating dtype; the last axis is contiguous.
        bits: ``[batch, ceil(vocab / 32)] int32``, bit ``i % 32`` of word ``i // 32`` for token ``i``.
        in_place: whether to write into ``logits``.
    """
    batch, vocab = logits.shape
    out = logits if in_place else torch.empty_like(logits)
    bits = bits if bits.stride(-1) == 1 else bits.contiguous()
    if batch:
        grid = (triton.cdiv(vocab, 32 * _WORDS), batch)
        _launch(
            _packed, grid, logits, out, bits, vocab, logits.stride(0), out.stride(0), bits.stride(0), words=_WORDS,
            in_place=in_place,
        )  # fmt: skip
    return out


def apply_class_mask(logits: Array, allowed: Array, token_class: Array, in_place: bool) -> Array:
    """``logits`` with -inf where the class of a token is not allowed.

    Args:
        logits: as above.
        allowed: ``[batch, classes] bool``.
        token_class: ``[vocab] int32``.
        in_place: whether to write into ``logits``.
    """
    batch, vocab = logits.shape
    out = logits if in_place else torch.empty_like(logits)
    rows = (allowed if allowed.stride(-1) == 1 else allowed.contiguous()).view(torch.uint8)
    if batch:
        block = 32 * _WORDS
        grid = (triton.cdiv(vocab, block), batch)
        _launch(
            _classed, grid, logits, out, rows, token_class.contiguous(), vocab, logits.stride(0), out.stride(0),
            rows.stride(0), block=block, in_place=in_place,
        )  # fmt: skip
    return out


def _launch(kernel: Any, grid: tuple[int, int], *args: Any, **constants: Any) -> None:
    kernel[grid](*args, **constants)
