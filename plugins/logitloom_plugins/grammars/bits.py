"""Sets of small numbers as the bits of an integer."""

from __future__ import annotations

__all__ = ["set_bits"]


def set_bits(bits: int) -> list[int]:
    """The numbers of the bits that are set, ascending."""
    return [at for at, bit in enumerate(reversed(f"{bits:b}")) if bit == "1"]
