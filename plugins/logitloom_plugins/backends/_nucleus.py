"""The border of the nucleus in host memory, without sorting the vocabulary."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.masks.kernels import KernelFailed, host_kernels
from logitloom_plugins.backends._log_probability import read_only

__all__ = ["LEAST_VOCAB", "mass_threshold", "nucleus_threshold"]

#: From this vocabulary on it is faster than a vectorised sort of all rows at once.
LEAST_VOCAB: Final = 2048

#: Bins by distance from the largest key, and their width; the last bin takes all farther keys.
_BINS: Final = 4096
_WIDTH: Final = 1.0 / 256


def nucleus_threshold(x: NDArray[Any], p: float) -> NDArray[Any]:
    """The least logit of each row's nucleus; see :meth:`logitloom.arrays.backend.Backend.nucleus_threshold`.

    Tokens with less than ``(1 - p) / vocab`` of the mass have less than ``1 - p`` together, so none of them is in the
    nucleus. Only the other tokens (a few hundred or thousand, for a language model) have to be sorted.

    Args:
        x: ``[batch, vocab]`` logits, float32 or float64.
        p: mass of the nucleus, from 0 to 1.

    Returns:
        ``[batch, 1]``; -inf, which keeps everything, for a row that is all -inf or has a NaN.
    """
    thresholds = np.full((len(x), 1), -np.inf, dtype=x.dtype)
    kernels = host_kernels(x.size)
    if kernels is not None and x.dtype == np.float32 and x.flags.c_contiguous:
        with contextlib.suppress(KernelFailed):
            kernels.nucleus(read_only(x), read_only(np.maximum.reduce(x, axis=-1)), p, thresholds[:, 0])
            return thresholds
    share = (1.0 - p) / x.shape[1]
    for position, line in enumerate(x):  # row by row, so that the passes find the row in the cache
        top = line.max()
        if not np.isfinite(top):
            continue
        weights = line - top
        np.exp(weights, out=weights)
        total = weights.sum()
        likely = (weights >= total * share).nonzero()[0]
        if not len(likely):
            continue
        values = line.take(likely)
        values.sort()
        values = values[::-1]
        above = np.exp(values - top).cumsum(dtype=np.float64)
        # The nucleus has the first token and every token with less than p of the mass above it.
        thresholds[position] = values[min(int(above.searchsorted(p * float(total))), len(values) - 1)]
    return thresholds


def mass_threshold(keys: NDArray[Any], mass: NDArray[Any], p: float) -> NDArray[Any]:
    """The least of the largest keys that have a mass; see :meth:`logitloom.arrays.backend.Backend.mass_threshold`.

    The mass of bins of keys tells which bin the border lies in, and only this bin is sorted.

    Args:
        keys: ``[batch, vocab]``, float32 or float64.
        mass: ``[batch, vocab]``.
        p: above 0.

    Returns:
        ``[batch, 1]``; -inf also for a row that has a NaN.
    """
    thresholds = np.full((len(keys), 1), -np.inf, dtype=keys.dtype)
    for position, (line, weights) in enumerate(zip(keys, mass, strict=True)):
        top = line.max()
        if not np.isfinite(top):
            continue
        distance = np.subtract(top, line)
        np.multiply(distance, 1.0 / _WIDTH, out=distance)
        bins = np.minimum(distance, _BINS - 1, out=distance).astype(np.int16)
        upto = np.bincount(bins, weights=weights, minlength=_BINS).cumsum()
        found = int(upto.searchsorted(p))
        if found == _BINS:
            continue
        inside = (bins == found).nonzero()[0]
        order = np.argsort(-line[inside], kind="stable")
        reached = weights[inside][order].cumsum(dtype=np.float64) + (upto[found - 1] if found else 0.0)
        border = min(int(reached.searchsorted(p)), len(inside) - 1)
        thresholds[position] = line[inside[order[border]]]
    return thresholds
