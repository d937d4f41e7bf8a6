"""Sequences in safetensors files: tokens, weights and cache, with a JSON header that identifies their vocabulary."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.display.warning import warn
from logitloom.errors import GenerationError, WriteError
from logitloom.generation.model import Cache, ModelAdapter
from logitloom.rows.atomic_file import replacing
from logitloom.vocabulary import Vocabulary

__all__ = ["SavedSequences", "load", "save"]

KIND = "logitloom sequence state"
VERSION = 2

#: The tolerated difference of keys and values between backends and dtypes, relative to the largest absolute value.
_TOLERANCE = 0.05


class SavedSequences(NamedTuple):
    """The content of a file without the cache.

    Attributes:
        rows: the token ids of each of ``batch * samples`` sequences.
        weights: ``[batch, samples]`` cumulative log-probabilities.
        scored: ``[batch, samples]``, number of tokens in each weight.
        vocabulary: the fingerprint of the vocabulary, None if there was none.
    """

    rows: Sequence[Sequence[int]]
    weights: NDArray[np.float64]
    scored: NDArray[np.int64]
    vocabulary: str | None


def save(path: str | os.PathLike[str], state: SavedSequences, cache: Cache | None) -> None:
    """Write sequences. The cache is written if it has a method ``to_host``; otherwise a warning is given.

    Args:
        path: the file.
        state: the sequences.
        cache: the cache of the first tokens of each row; None if no token is cached.

    Raises:
        GenerationError: if the package safetensors is not installed.
        WriteError: if the file cannot be written; an existing file is then unchanged.
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
        warn(
            f"The cache of this model, a {type(cache).__name__}, has no method to_host, so the file holds none; "
            f"a program that reads the file computes it again.",
        )
    header = {
        "kind": KIND,
        "version": VERSION,
        "batch": state.weights.shape[0],
        "samples": state.weights.shape[1],
        "vocabulary": state.vocabulary,
    }
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    header["checksum"] = _checksum(header, tensors)
    with replacing(path) as new:
        try:
            safetensors.numpy.save_file(tensors, os.fspath(new), metadata={"logitloom": json.dumps(header)})
        except safetensors.SafetensorError as error:
            raise WriteError(f"The file {os.fspath(path)!r} cannot be written: {error}. It is as it was.") from error


def load(
    path: str | os.PathLike[str], model: ModelAdapter, vocabulary: Vocabulary | None
) -> tuple[SavedSequences, Cache | None]:
    """Read sequences, and their cache on the model's backend if the file has one and the model can load it.

    Args:
        path: a file that :func:`save` wrote.
        model: the model that continues the sequences.
        vocabulary: the vocabulary of that model's tokenizer.

    Raises:
        GenerationError: if the file is damaged, or of another kind, vocabulary or model, or safetensors is not
            installed.
    """
    name = os.fspath(path)
    header, tensors = _read(name)
    _check_vocabulary(header.get("vocabulary"), vocabulary, name)
    _check_content(header, tensors, model.vocab_size, name)
    ends = np.cumsum(tensors["lengths"])[:-1]
    rows = [part.tolist() for part in np.split(tensors["tokens"], ends)]
    cache = None
    if "cache_lengths" in tensors:
        arrays = {key.removeprefix("cache."): array for key, array in tensors.items() if key.startswith("cache.")}
        cache = _restored(model, arrays, tensors["cache_lengths"], rows, name)
    shape = header["batch"], header["samples"]
    saved = SavedSequences(
        rows, tensors["weights"].reshape(shape), tensors["scored"].reshape(shape), header.get("vocabulary")
    )
    return saved, cache


def _read(name: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the arrays of a file, after the comparison of their checksum."""
    safetensors = _safetensors()
    try:
        os.fsencode(name)  # earlier releases of safetensors than 0.8 panic at half a surrogate pair
        with safetensors.safe_open(name, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("logitloom", "{}"))
            _check_version(header, name)
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118, not a dictionary
    except GenerationError:
        raise
    except (safetensors.SafetensorError, OSError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise GenerationError(f"{name!r} cannot be read as a safetensors file: {error}.") from error
    except AttributeError as error:  # safetensors asks NumPy for a type that it lacks
        raise GenerationError(f"{name!r} cannot be read as a safetensors file: {error}.") from error
    if header.get("checksum") != _checksum({k: v for k, v in header.items() if k != "checksum"}, tensors):
        raise GenerationError(
            f"{name!r} is damaged: its content does not have the checksum that its header says. Take another copy, or "
            f"generate the state again."
        )
    return header, tensors


def _check_version(header: Any, name: str) -> None:
    told = header if isinstance(header, dict) else {}
    if told.get("kind") != KIND or told.get("version") != VERSION:
        raise GenerationError(
            f"{name!r} is no sequence state of version {VERSION}: its header says kind {told.get('kind')!r:.100}, "
            f"version {told.get('version')!r:.100}. Save it again with SequenceState.save."
        )


def _checksum(header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> str:
    """Hex digest of the header, and of the name, dtype, shape and bytes of each array."""
    digest = hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=32)
    for key in sorted(tensors):
        array = tensors[key]
        digest.update(f"\n{key!r} {array.dtype.str} {array.shape}\n".encode("utf-8", "backslashreplace"))
        digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def _check_content(header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], vocab_size: int, name: str) -> None:
    """Raise unless all sizes agree and all ids are valid. The checksum detects damage, not files of another origin."""
    batch, samples = header.get("batch"), header.get("samples")
    n = batch * samples if isinstance(batch, int) and isinstance(samples, int) and batch > 0 and samples > 0 else 0
    lengths, tokens = tensors.get("lengths"), tensors.get("tokens")
    cached = tensors.get("cache_lengths", np.zeros(n, dtype=np.int64))
    sound = (
        n > 0
        and lengths is not None
        and tokens is not None
        and all(array.dtype == np.int64 for array in (lengths, tokens, cached))
        and lengths.shape == cached.shape == (n,)
        and bool((lengths >= 0).all())
        and tokens.shape == (int(lengths.sum()),)
        and bool(((cached >= 0) & (cached <= lengths)).all())
        and all(key in tensors and tensors[key].size == n for key in ("weights", "scored"))
        and all(tensors[key].dtype.kind == kind for key, kind in (("weights", "f"), ("scored", "i")))
    )
    if not sound:
        raise GenerationError(
            f"{name!r} contradicts itself: the numbers of rows, tokens and weights in it do not agree. Save it again "
            f"with SequenceState.save."
        )
    assert tokens is not None
    if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab_size:
        wrong = int(tokens.min() if tokens.min() < 0 else tokens.max())
        raise GenerationError(f"{name!r} has the token id {wrong}, and the model's ids are 0 to {vocab_size - 1}.")


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
    """The cache on the model's backend, after a check on the first token that the same model computed the cache."""
    from_host = getattr(model, "cache_from_host", None)
    if from_host is None:
        warn(
            f"{type(model).__name__} has no method cache_from_host, so the cache in {name!r} is computed anew.",
        )
        return None
    cache: Cache = from_host(arrays, lengths)
    row = int(np.argmax(lengths))
    if lengths[row]:
        _, first = model.forward(np.asarray([rows[row][:1]], dtype=np.int32), model.empty_cache(1))
        # Only the model knows the layout of a cache in its arrays, so the stored cache is cut to the same token.
        stored, computed = (_on_host(each) for each in (cache.take_rows([row]).crop([1]), first))
        if not all(_close(stored[key], wanted) for key, wanted in computed.items()):
            raise GenerationError(
                f"The cache in {name!r} was made by another model than {model!r}: they differ on the first token. "
                f"Load the state with a generator of its own model."
            )
    return cache


def _on_host(cache: Cache) -> Mapping[str, NDArray[Any]]:
    """The arrays of a cache, by a method that is not part of its protocol."""
    arrays: Mapping[str, NDArray[Any]] = getattr(cache, "to_host")()  # noqa: B009
    return arrays


def _close(stored: NDArray[Any], wanted: NDArray[Any]) -> bool:
    """Whether two arrays are equal but for rounding."""
    if stored.shape != wanted.shape:
        return False
    difference = np.abs(stored.astype(np.float32) - wanted.astype(np.float32)).max(initial=0.0)
    return bool(difference <= _TOLERANCE * max(float(np.abs(wanted.astype(np.float32)).max(initial=0.0)), 1e-6))
