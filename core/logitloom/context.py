"""The immutable record that a loop or an engine hands to a chain, at the start and at each step."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final

import numpy as np

from logitloom.arguments import id_lists, seeds, shown, whole
from logitloom.arrays import rng
from logitloom.arrays.backend import Array, Backend, BufferPool, backend_of, library_of
from logitloom.errors import InvalidContext
from logitloom.vocabulary import Vocabulary, vocabulary_of

__all__ = ["Context", "check_logits", "padded"]

#: Types of arrays and elements of logits that were looked at: asking a library takes longer than a step. Each pair
#: begins with the type of the array, so that no library has to compare its dtypes with dtypes of another library.
_FLOATING: set[tuple[type, Any]] = set()


def check_logits(logits: Any) -> None:
    """Raise unless something is an array of logits.

    Raises:
        InvalidContext: it is no array, has more than two axes, or another type than floating numbers.
    """
    unlike = _unlike_arrays(logits)
    if unlike:
        raise InvalidContext(f"Logits must be an array [rows, vocab] with all of its values, but are {unlike}.")
    shape, dtype = getattr(logits, "shape", None), getattr(logits, "dtype", None)
    if shape is None or dtype is None or isinstance(logits, type):
        raise InvalidContext(
            f"Logits must be an array [rows, vocab] of an array library, but are a {type(logits).__name__}. Give, for "
            f"example, numpy.asarray(logits, dtype=numpy.float32)."
        )
    if len(shape) not in (1, 2):
        raise InvalidContext(f"Logits have shape {tuple(shape)}; give [batch, vocab], or [vocab] for one sequence.")
    if (type(logits), dtype) in _FLOATING:
        return
    backend = backend_of(logits)
    if not backend.is_floating(logits):
        raise InvalidContext(
            f"Logits have the type {dtype}, and must be floating numbers of 16 bits or more, in a type of "
            f"{backend.name} itself and in the byte order of this machine. Cast them, for example to float32."
        )
    _FLOATING.add((type(logits), dtype))


_UNLIKE: Final = {
    "is_nested": "a nested tensor. Give a padded one",
    "is_sparse": "a sparse tensor. Give logits.to_dense()",
    "is_sparse_csr": "a sparse tensor. Give logits.to_dense()",
}


def _unlike_arrays(logits: Any) -> str:
    """What something is that has a shape and a type of elements, and does not behave as an array; else nothing."""
    kind = type(logits).__name__
    if isinstance(logits, np.ndarray) and kind in ("matrix", "MaskedArray"):
        return f"a {kind} of NumPy. Give numpy.asarray(logits)"
    # As PyTorch tells of its tensors.
    for attribute, found in _UNLIKE.items():
        if getattr(logits, attribute, False) is True:
            return found
    return ""


@dataclass(frozen=True, eq=False)
class Context:
    """What a processor may know.

    The first group of fields is set once per generation. A step adds ``tokens`` (:meth:`accept`); the
    chain adds ``sequence``, ``length`` and ``prompt_length``, kept as row state, for the processors that
    declare a need for them. Processors must not use ``batch`` in ``process``: rows may have joined or left, so
    the number of rows is that of the logits.

    To a type checker, the fields that processors can declare a need for are never None, because processors that
    declare the need get values.

    Attributes:
        backend: array library and device of logits and state.
        batch: number of sequences at the start.
        vocab_size: width of the logits (may exceed the vocabulary's own size).
        vocabulary: the bytes of each token, or None if no tokenizer was given.
        prompt: the prompt's token ids, one tuple per row (ragged), or None if the engine does not tell.
        max_length: most tokens a sequence can reach, prompt included; fixes the shape of histories. A row that grows
            longer under a processor that needs histories is an ``InvalidContext`` in host memory.
        max_new_tokens: most tokens that rows may generate, end-of-sequence included: one number for all rows, or one
            per row; None if the number is not known. Constraints keep to it.
        seed: an integer for the whole batch, or one per row. With one integer, row ``i`` gets a seed derived from this
            integer and ``i``, so the rows differ.
        model: the model adapter, for processors that run a model themselves.
        compiled: the step will run inside a compiled loop: everything must be prepared by ``init_state``.
        shift_free: only each row's distribution counts afterwards, so a processor may leave out what it would add to
            all logits of a row. Loops that sample or take the likeliest token set this field; beam search does not,
            because it compares rows.
        donate: the logits may be overwritten (the chain also says so for what an earlier processor returned).
        donate_state: the caller gives up the state it passes; its arrays may be overwritten. Never set where
            earlier states are kept, as beam search and speculation do.
        pool: buffers for processed logits, which may then be read-only arrays. The chain hands the pool to its last
            processor only, because no processor may write to a buffer of the pool.
        tokens: ``[rows, n] int32``, accepted since the last call, -1 = none; None on the first call.
        chosen_logprob: ``[rows, n] float32``, for each of ``tokens`` the log-probability with which the sampler chose
            it, after the whole chain (0 where ``tokens`` is -1); None if the loop does not tell. A beam search gives
            the number that each token adds to the score of the hypothesis. Only for chains with a processor that
            declares the need.
        sequence: ``[rows, capacity] int32``, prompt and accepted tokens from the left, then -1.
        length: ``[rows] int32``, number of tokens in ``sequence``.
        prompt_length: ``[rows] int32``, how many of them are the prompt's.
    """

    backend: Backend
    batch: int
    vocab_size: int
    vocabulary: Vocabulary | None = None
    prompt: tuple[tuple[int, ...], ...] | None = None
    max_length: int | None = None
    max_new_tokens: int | tuple[int, ...] | None = None
    seed: int | tuple[int, ...] = 0
    model: Any = None
    compiled: bool = False
    shift_free: bool = False
    donate: bool = False
    donate_state: bool = False
    pool: BufferPool | None = None
    tokens: Array | None = None
    chosen_logprob: Array = None
    sequence: Array = None
    length: Array = None
    prompt_length: Array = None

    @classmethod
    def start(
        cls,
        logits: Array,
        *,
        prompt: Sequence[Sequence[int]] | None = None,
        vocabulary: Any = None,
        max_length: int | None = None,
        seed: int | Sequence[int] = 0,
        **more: Any,
    ) -> Context:
        """The context of a new generation whose logits look like ``logits`` (``[batch, vocab]`` or ``[vocab]``).

        The vocabulary may be a tokenizer of any library, or a :class:`~logitloom.Vocabulary`.

        Raises:
            VocabularyError: if no installed reader knows the tokenizer.
            InvalidContext: if the logits are no array of floating numbers, the number of prompts or seeds is not the
                number of rows, or a prompt is longer than ``max_length``.

        Example:
            >>> Context.start(np.zeros((2, 10)), prompt=[[1, 2], [3]]).batch
            2
        """
        check_logits(logits)
        _check_names(more, "Context.start", {"branches", *_FIELDS})
        branches = whole(more.pop("branches", 1), "branches", InvalidContext, least=1)
        if vocabulary is not None:
            vocabulary = vocabulary_of(vocabulary)
        limit = more.get("max_new_tokens")
        if limit is not None:
            more["max_new_tokens"] = seeds(limit, "max_new_tokens", InvalidContext, least=0, most=2**31 - 1)
        rows, left = (1, 0) if logits.ndim == 1 else divmod(int(logits.shape[0]), branches)
        if left:
            raise InvalidContext(f"{logits.shape[0]} rows of logits cannot be split into {branches} branches each.")
        return cls(
            backend=backend_of(logits),
            batch=rows,
            vocab_size=int(logits.shape[-1]),
            vocabulary=vocabulary,
            prompt=None if prompt is None else id_lists(prompt, "prompt", InvalidContext),
            max_length=None if max_length is None else whole(max_length, "max_length", InvalidContext, least=0),
            seed=seeds(seed, "seed", InvalidContext),
            **more,
        ).validated()

    def validated(self) -> Context:
        """This context, after checking that its fields agree with each other."""
        for given, name, remedy in (
            (self.prompt, "prompts", "one prompt per row"),
            (self.seed, "seeds", "one integer, or one per row"),
            (self.max_new_tokens, "limits in max_new_tokens", "one integer, or one per row"),
        ):
            if given is not None and not isinstance(given, int) and len(given) != self.batch:
                raise InvalidContext(f"The context has {self.batch} rows but {len(given)} {name}; give {remedy}.")
        for row, prompt in enumerate(self.prompt or ()):
            if prompt and min(prompt) < 0:
                raise InvalidContext(f"The prompt of row {row} has the id {min(prompt)}; ids are never negative.")
            if self.max_length is not None and len(prompt) > self.max_length:
                raise InvalidContext(
                    f"The prompt of row {row} has {len(prompt)} tokens, but max_length is {self.max_length}."
                )
        if self.vocabulary is not None and self.vocabulary.size > self.vocab_size:
            highest = max((i for i, b in enumerate(self.vocabulary.token_bytes) if b), default=-1)
            if highest >= self.vocab_size:
                raise InvalidContext(
                    f"The logits have {self.vocab_size} columns, but the vocabulary {self.vocabulary.name!r} has a "
                    f"token with id {highest}. Logits and tokenizer belong to different models."
                )
        return self

    def accept(self, tokens: Any, *, chosen_logprob: Any = None, **changes: Any) -> Context:
        """The context of the next step, after each row accepted some tokens.

        Args:
            tokens: a native ``[rows, n]`` or ``[rows]`` integer array (-1 = none), or host lists, which may be
                ragged: ``[[5], [], [7, 8]]``.
            chosen_logprob: for each of ``tokens`` the log-probability with which it was chosen, in the same form.
            changes: other fields to replace, by name.

        Raises:
            InvalidContext: if the tokens are no ids of the logits, the log-probabilities are not one number for each
                token, or there is no field of a name.
        """
        if changes:
            _check_names(changes, "accept", _FIELDS)
        # Loops pass int32 arrays, which skip the conversion: code here costs time in every step, with CPU caches that
        # the logits have filled.
        if tokens is not None:
            if getattr(tokens, "dtype", self) is not self.backend.int32 or tokens.ndim != 2:
                tokens = self._native(tokens)
            elif self.backend.on_host and not self.compiled:
                self._check_ids(tokens)
        if chosen_logprob is not None:
            chosen_logprob = self._native_logprobs(chosen_logprob, tokens)
        new = self.with_fields(tokens=tokens, chosen_logprob=chosen_logprob)
        return new.with_fields(**changes) if changes else new

    def _native(self, tokens: Any) -> Array:
        """Tokens of any form as ``[rows, n] int32`` of the backend."""
        backend = self.backend
        if isinstance(tokens, (list, tuple)):
            tokens = padded(tokens)
        elif not hasattr(tokens, "ndim") or not hasattr(tokens, "dtype"):
            raise InvalidContext(
                f"Accepted tokens are integers, one list per row or an array [rows, n], but came as {shown(tokens)}."
            )
        elif not _is_integer(tokens.dtype) or tokens.ndim not in (1, 2):
            raise InvalidContext(
                f"Accepted tokens are integers [rows, n] or [rows], but came as {tokens.dtype}{list(tokens.shape)}."
            )
        elif library_of(tokens) not in (backend.name, "numpy"):
            tokens = backend_of(tokens).to_numpy(tokens)
        is_numpy = isinstance(tokens, np.ndarray)
        if is_numpy or (backend.on_host and not self.compiled):
            self._check_ids(tokens)
        if is_numpy and backend.name != "numpy":
            return backend.asarray(padded(tokens))
        if tokens.ndim == 1:
            tokens = tokens[:, None]
        return backend.cast(tokens, "int32")

    def _check_ids(self, tokens: Array) -> None:
        """Raise for ids that the logits do not have: tables would be read outside of their rows."""
        if not isinstance(tokens, np.ndarray) and not self.backend.has_values(tokens):
            return
        # A step has few ids, so a loop over lists is faster than calls of NumPy.
        size = self.vocab_size
        for row in tokens.tolist() if tokens.ndim == 2 else [tokens.tolist()]:
            for token in row:
                if not -1 <= token < size:
                    raise InvalidContext(
                        f"The id {token} was accepted, and ids are from 0 to {size - 1} (-1 stands for none)."
                    )

    def _native_logprobs(self, logprobs: Any, tokens: Any) -> Array:
        """Log-probabilities of any form as ``[rows, n] float32`` of the backend, 0 where there is no token."""
        backend, given = self.backend, logprobs
        host = backend.name != "numpy" if isinstance(logprobs, np.ndarray) else isinstance(logprobs, (list, tuple))
        if host:
            logprobs = _host_logprobs(logprobs)
            logprobs = None if logprobs is None else backend.asarray(logprobs)
        shape = getattr(logprobs, "shape", None)
        if shape is not None and len(shape) == 1:
            logprobs = logprobs[:, None]
            shape = logprobs.shape
        if shape is None or (tokens is not None and tuple(shape) != tuple(tokens.shape)):
            raise InvalidContext(
                f"The log-probabilities of accepted tokens are numbers in the form of the tokens, one for each, but "
                f"came as {shown(given)}."
            )
        return backend.cast(logprobs, "float32")

    def with_fields(self, **changes: Any) -> Context:
        """The context with other fields, unchecked: what ``dataclasses.replace`` does, at a tenth of its cost.

        A step makes one or two contexts, so this function is a considerable part of a chain's overhead.
        """
        new = object.__new__(Context)
        if self.compiled:
            # Before version 2.13 the compiler of PyTorch does not trace the dictionary of an object.
            for name in _FIELDS:
                object.__setattr__(new, name, changes[name] if name in changes else getattr(self, name))
            return new
        object.__setattr__(new, "__dict__", self.__dict__ | changes)
        return new

    @property
    def step(self) -> Array:
        """``[rows] int32``: how many tokens each row has generated so far."""
        if self.length is None or self.prompt_length is None:
            raise InvalidContext(
                "The context has no lengths here. A processor that uses context.step declares needs = {'length'}."
            )
        return self.length - self.prompt_length

    def row_seeds(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """``[batch] int32`` on the host: the seed of each row."""
        if isinstance(self.seed, int):
            return rng.row_seeds(self.seed, self.batch)
        return np.asarray([rng.fold(seed) for seed in self.seed], dtype=np.int32)


#: The names of the fields of a context.
_FIELDS: Final = tuple(each.name for each in fields(Context))


def _check_names(given: Collection[str], call: str, known: Collection[str]) -> None:
    """Raise if a given name is not a known name."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Its fields are {', '.join(sorted(known))}."
            raise InvalidContext(f"{call}() takes no argument {name!r}: a context has no such field. {hint}")


def _host_logprobs(logprobs: Any) -> np.ndarray[Any, np.dtype[np.float32]] | None:
    """Log-probabilities, one number or a list of numbers per row, as ``[rows, n]``; ``None`` for any other input."""
    lists = [row if hasattr(row, "__len__") else [row] for row in logprobs]
    out = np.zeros((len(lists), max(map(len, lists), default=0)), dtype=np.float32)
    try:
        for i, row in enumerate(lists):
            out[i, : len(row)] = row
    except (TypeError, ValueError):
        return None
    return None if np.isnan(out).any() else out


def _is_integer(dtype: Any) -> bool:
    # The text of a NumPy dtype costs more than the rest of a step's look at its tokens.
    return dtype.kind in "iu" if isinstance(dtype, np.dtype) else "int" in str(dtype)


def padded(rows: Any) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Host tokens (ragged lists, one id per row, or an array) as ``[rows, n] int32``, -1 at the right.

    Raises:
        InvalidContext: if they are something else than integers.
    """
    if isinstance(rows, np.ndarray):
        return np.ascontiguousarray(rows if rows.ndim == 2 else rows[:, None], dtype=np.int32)
    lists = []
    for row in rows:
        values = row.tolist() if hasattr(row, "tolist") else row
        lists.append(values if hasattr(values, "__len__") and not isinstance(values, str) else [values])
    width = max(map(len, lists), default=0)
    if width == 1:  # the usual step
        with suppress(TypeError, OverflowError):  # told below
            return np.array([operator.index(row[0]) if row else -1 for row in lists], dtype=np.int32)[:, None]
    out = np.full((len(lists), width), -1, dtype=np.int32)
    for i, row in enumerate(lists):
        try:
            out[i, : len(row)] = [operator.index(token) for token in row]
        except (TypeError, OverflowError) as error:
            raise InvalidContext(
                f"Accepted tokens are integers, one list per row, but row {i} is {shown(row)} ({error!s:.100})."
            ) from None
    return out
