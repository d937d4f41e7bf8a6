"""Sequences in safetensors files: tokens, weights and cache, with a JSON header that says what they belong to."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.errors import GenerationError
from logitloom.generation.model import Cache, ModelAdapter
from logitloom.vocabulary import Vocabulary

__all__ = ["SavedSequences", "load", "save"]

KIND = "logitloom sequence state"
VERSION = 1

#: How far keys and values of one token may differ between backends and dtypes, relative to the largest.
_TOLERANCE = 0.05


class SavedSequences(NamedTuple):
    """What a file holds beside the cache.

    Attributes:
        rows: the token ids of each of ``batch * samples`` sequences.
        weights: ``[batch, samples]`` cumulative log-probabilities.
        scored: ``[batch, samples]``, how many tokens each weight is the sum of.
        vocabulary: the fingerprint of the vocabulary, None if there was none.
    """

    rows: Sequence[Sequence[int]]
    weights: NDArray[np.float64]
    scored: NDArray[np.int64]
    vocabulary: str | None


def save(path: str | os.PathLike[str], state: SavedSequences, cache: Cache | None) -> None:
    """Write sequences. The cache is written if it can tell its arrays (``cache.to_host()``); else a warning says so.

    Args:
        path: the file.
        state: the sequences.
        cache: of the first tokens of each row; None if nothing is held.

    Raises:
        GenerationError: if the package safetensors is not installed.
    """
    safetensors = _safetensors()
    lengths = np.asarray([len(row) for row in state.rows], dtype=np.int64)
    tensors: dict[str, NDArray[Any]] = {
        "tokens": np.asarray([token for row in state.rows for token in row], dtype=np.int64),
        "lengths": lengths,
        "weights": np.asarray(state.weights),
        "scored": np.asarray(state.scored, dtype=np.int64),
    }
    to_host = getattr(cache, "to_host", None)
    if to_host is not None and cache is not None:
        tensors["cache_lengths"] = np.asarray(cache.lengths, dtype=np.int64)
        tensors |= {f"cache.{name}": array for name, array in to_host().items()}
    elif cache is not None:
        warnings.warn(
            f"The cache of this model, a {type(cache).__name__}, has no method to_host, so the file holds none; "
            f"whoever goes on with the state computes it anew.",
            UserWarning,
            stacklevel=3,
        )
    header = {
        "kind": KIND,
        "version": VERSION,
        "batch": state.weights.shape[0],
        "samples": state.weights.shape[1],
        "vocabulary": state.vocabulary,
    }
    safetensors.numpy.save_file(tensors, os.fspath(path), metadata={"logitloom": json.dumps(header)})


def load(
    path: str | os.PathLike[str], model: ModelAdapter, vocabulary: Vocabulary | None
) -> tuple[SavedSequences, Cache | None]:
    """Read sequences, and their cache on the model's backend if the file holds one that the model can take.

    Args:
        path: a file that :func:`save` wrote.
        model: to go on with.
        vocabulary: of that model's tokenizer.

    Raises:
        GenerationError: if the file is of another kind, vocabulary or model, or safetensors is not installed.
    """
    safetensors = _safetensors()
    name = os.fspath(path)
    try:
        with safetensors.safe_open(name, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("logitloom", "{}"))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118, not a dictionary
    except (safetensors.SafetensorError, json.JSONDecodeError) as error:
        raise GenerationError(f"{name!r} cannot be read as a safetensors file: {error}.") from error
    if header.get("kind") != KIND or header.get("version") != VERSION:
        raise GenerationError(
            f"{name!r} is no sequence state of version {VERSION}: its header says kind {header.get('kind')!r}, version "
            f"{header.get('version')!r}. Save it again with SequenceState.save."
        )
    _check_vocabulary(header["vocabulary"], vocabulary, name)
    ends = np.cumsum(tensors["lengths"])[:-1]
    rows = [part.tolist() for part in np.split(tensors["tokens"], ends)]
    cache = None
    if "cache_lengths" in tensors:
        arrays = {key.removeprefix("cache."): array for key, array in tensors.items() if key.startswith("cache.")}
        cache = _restored(model, arrays, tensors["cache_lengths"], rows, name)
    shape = header["batch"], header["samples"]
    saved = SavedSequences(
        rows, tensors["weights"].reshape(shape), tensors["scored"].reshape(shape), header["vocabulary"]
    )
    return saved, cache


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise GenerationError(
            "Sequence states are kept in safetensors files, and the package safetensors is not installed. Install it: "
            "pip install 'logitloom[safetensors]'."
        ) from error
    return safetensors


def _check_vocabulary(fingerprint: str | None, vocabulary: Vocabulary | None, name: str) -> None:
    if fingerprint is not None and vocabulary is not None and fingerprint != vocabulary.fingerprint:
        raise GenerationError(
            f"{name!r} was saved with another vocabulary than {vocabulary!r}, so its ids would mean something else. "
            f"Load it with a generator of the same tokenizer."
        )


def _restored(
    model: ModelAdapter, arrays: dict[str, NDArray[Any]], lengths: NDArray[Any], rows: list[list[int]], name: str
) -> Cache | None:
    """The cache on the model's backend, after checking with one token that this model made it."""
    from_host = getattr(model, "cache_from_host", None)
    if from_host is None:
        warnings.warn(
            f"{type(model).__name__} has no method cache_from_host, so the cache in {name!r} is computed anew.",
            UserWarning,
            stacklevel=4,
        )
        return None
    cache: Cache = from_host(arrays, lengths)
    row = int(np.argmax(lengths))
    if lengths[row]:
        _, first = model.forward(np.asarray([rows[row][:1]], dtype=np.int32), model.empty_cache(1))
        own = getattr(first, "to_host")()  # noqa: B009, not part of the protocol
        for key, wanted in own.items():
            stored = arrays[key][row, :, :1].astype(np.float32)
            wanted = wanted[0, :, :1].astype(np.float32)
            if np.abs(stored - wanted).max() > _TOLERANCE * max(float(np.abs(wanted).max()), 1e-6):
                raise GenerationError(
                    f"The cache in {name!r} was made by another model than {model!r}: they differ on the first token. "
                    f"Load the state with a generator of its own model."
                )
    return cache
