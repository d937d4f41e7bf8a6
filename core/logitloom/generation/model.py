"""The protocol of model adapters: a forward pass over new tokens, and a cache with row operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import Array, Backend
from logitloom.vocabulary import Vocabulary

__all__ = ["Cache", "HiddenStateModel", "LoadedModel", "ModelAdapter", "ModelLoader"]


class Cache(Protocol):
    """The key-value cache of a model for the tokens of each row: an immutable value, and a leaf of row trees.

    Every method returns a new cache and leaves the old one valid (implementations share buffers and copy on write), so
    caches can be forked, kept for rolling back, and held in a processor's state.
    """

    @property
    def lengths(self) -> NDArray[np.int32]:
        """``[rows]`` host integers: the number of tokens of each row in the cache."""
        ...

    def row_count(self) -> int:
        """Number of rows."""
        ...

    def take_rows(self, index: Any) -> Cache:
        """The rows ``index`` (host integers), in that order; rows may be repeated or left out."""
        ...

    def concat_rows(self, others: Sequence[Any]) -> Cache:
        """The rows of this cache, then the rows of the other caches."""
        ...

    def crop(self, lengths: NDArray[np.int32] | Sequence[int]) -> Cache:
        """Each row shortened to ``lengths[row]`` tokens (never lengthened)."""
        ...


class ModelAdapter(Protocol):
    """A causal language model on one backend.

    Attributes:
        backend: array library and device of its logits.
        vocab_size: width of its logits.
        max_length: the largest number of tokens of a row.
    """

    backend: Backend
    vocab_size: int
    max_length: int

    def empty_cache(self, rows: int) -> Cache:
        """A cache of ``rows`` rows without tokens."""
        ...

    def forward(self, tokens: NDArray[np.int32], cache: Cache, *, all_positions: bool = False) -> tuple[Array, Cache]:
        """Append tokens to the rows and return the logits after them.

        Args:
            tokens: ``[rows, n]`` host integers; rows with fewer new tokens are padded with -1 at the right (a row may
                have none).
            cache: the cache of the rows so far.
            all_positions: whether to return the logits after every new token instead of the last one of each row.

        Returns:
            ``[rows, vocab]`` floats on the backend, after each row's last new token (undefined for a row
            without any), or ``[rows, n, vocab]`` (undefined where ``tokens`` is -1); and the new cache.

        Raises:
            ModelError: if a row would exceed ``max_length``, or an id is out of range.
        """
        ...


class HiddenStateModel(ModelAdapter, Protocol):
    """A model adapter that also returns hidden states. The method is optional; contrastive search requires it."""

    def forward_hidden(self, tokens: NDArray[np.int32], cache: Cache) -> tuple[Array, Array, Cache]:
        """Append tokens to the rows, as ``forward`` does, and also return the last hidden states.

        Args:
            tokens: ``[rows, n]`` host integers; rows with fewer new tokens are padded with -1 at the right.
            cache: the cache of the rows so far.

        Returns:
            ``[rows, vocab]`` logits after each row's last new token; ``[rows, n, dim]`` floats, the input of the output
            head (the last layer's output after the final norm) at every new token, undefined where ``tokens`` is -1;
            and the new cache.

        Raises:
            ModelError: as ``forward`` does.
        """
        ...


class LoadedModel(ModelAdapter, Protocol):
    """A model together with its tokenizer.

    Attributes:
        tokenizer: an object with ``encode(text) -> ids``.
        vocabulary: the bytes of its tokens.
    """

    tokenizer: Any
    vocabulary: Vocabulary


class ModelLoader(Protocol):
    """The object of an entry point of the group ``logitloom.models``: a function that loads a model."""

    def __call__(self, path: Any = None, backend: Backend | str = "numpy", device: Any = None) -> LoadedModel:
        """Load a model.

        Args:
            path: the location of the model, in a form that depends on the loader; None for its default.
            backend: a backend, or the name of one.
            device: the library's own device object, or None for the backend's default.

        Raises:
            ModelError: if there is no such model, or it is of another kind.
            BackendMissing: if there is no backend of that name.
        """
        ...
