"""Models of llama.cpp as model adapters of logitloom's own loop, in a context of their own."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import threading
from collections import deque
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Backend
from logitloom.errors import ModelError
from logitloom.host.registry import load_backend
from logitloom_contrib.engines._column_cache import check_tokens
from logitloom_contrib.engines._given import number, read_from
from logitloom_contrib.engines._stored_beginnings import PrefixCache

__all__ = ["LlamaCppModel"]

_NO_ROOM: Final = 1
#: llama.cpp counts cells in 32 bits.
_MOST_CELLS: Final = 1 << 31


class _LlamaSequence:
    """A sequence in the memory of llama.cpp; its number is free again when nobody refers to it any more."""

    __slots__ = ("_released", "length", "number")

    def __init__(self, number: int, length: int, released: deque[int]) -> None:
        self.number, self.length, self._released = number, length, released

    def __del__(self) -> None:
        # The memory itself is not touched here: this may run in any thread, at any time.
        self._released.append(self.number)


class LlamaCppModel:
    """A model of llama-cpp-python: the decoding loop's model adapter.

    The adapter shares the weights of a ``Llama`` and has a context of its own, so that the ``Llama`` may generate
    meanwhile.

    Args:
        llama: the ``llama_cpp.Llama``; kept open as long as this adapter is used.
        rows: most sequences that are stored at a time: the rows of a batch, and those that are kept for going back.
        cells: most tokens that are stored at a time, over all rows; the common beginning of forked rows counts once.
            Default: 4,096, or the context size of the ``Llama`` if that is more.
        tokenizer: kept as ``tokenizer`` for callers that want text.

    Raises:
        ModelError: for models with recurrent layers or an encoder, whose memory cannot be cropped; if llama.cpp
            refuses the context; and if it is no ``Llama``.
        InvalidContext: ``rows`` or ``cells`` is no whole number.
    """

    def __init__(self, llama: Any, *, rows: int = 64, cells: int | None = None, tokenizer: Any = None) -> None:
        self._library = library = importlib.import_module("llama_cpp")
        # The handle of the weights, for which the library has no public name.
        weights = read_from(llama, lambda given: given._model.model, "llama-cpp-python")
        rows, cells = number(rows, "rows") or 0, number(cells, "cells")
        for kind, found in (
            ("recurrent layers", library.llama_model_is_recurrent(weights) or library.llama_model_is_hybrid(weights)),
            ("an encoder", library.llama_model_has_encoder(weights)),
        ):
            if found:
                raise ModelError(
                    f"{llama.model_path} has {kind}; logitloom's loop needs full attention in all layers, because "
                    f"rejected drafts are cropped from the cache. Use the Llama with to_llama_cpp."
                )
        self.llama, self.tokenizer = llama, tokenizer
        self.backend: Backend = load_backend("numpy")
        self.vocab_size = int(llama.n_vocab())
        most = int(library.llama_max_parallel_sequences())
        if not 1 <= rows <= most:
            raise ModelError(f"This build of llama.cpp stores 1 to {most} sequences, but {rows} rows are asked for.")
        if cells is None:
            cells = max(4096, int(llama.n_ctx()))
        if not rows <= cells < _MOST_CELLS:
            raise ModelError(f"A context of {rows} rows has {rows} cells or more, but {cells} cells are asked for.")
        params = library.llama_context_default_params()
        params.n_ctx = cells
        params.n_batch = params.n_ubatch = min(512, params.n_ctx)
        params.n_seq_max, params.kv_unified, params.swa_full = rows, True, True
        params.n_threads, params.n_threads_batch = llama.n_threads, llama.n_threads_batch
        params.flash_attn_type = llama.context_params.flash_attn_type
        for name in ("rope_freq_base", "rope_freq_scale", "rope_scaling_type", "type_k", "type_v", "offload_kqv"):
            setattr(params, name, getattr(llama.context_params, name))
        self._close = contextlib.ExitStack()
        self._context = library.llama_init_from_model(weights, params)
        if not self._context:
            raise ModelError(f"llama.cpp could not make a context of {params.n_ctx} tokens and {rows} sequences.")
        self._close.callback(library.llama_free, self._context)
        self._memory = library.llama_get_memory(self._context)
        self._most = int(library.llama_n_batch(self._context))
        self._batch = library.llama_batch_init(self._most, 0, 1)
        self._close.callback(library.llama_batch_free, self._batch)
        self._cells = int(library.llama_n_ctx(self._context))
        self.max_length = min(self._cells, int(library.llama_model_n_ctx_train(weights)))
        self._rows = rows
        self._free = list(range(rows - 1, -1, -1))
        self._released: deque[int] = deque()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Give back the context's memory; the adapter and its caches are of no use after that."""
        self._close.close()

    def __del__(self) -> None:
        if hasattr(self, "_close"):
            self._close.close()

    def empty_cache(self, rows: int) -> PrefixCache[_LlamaSequence]:
        """A cache of ``rows`` rows without tokens."""
        return PrefixCache([(None, 0)] * rows)

    def forward(
        self, tokens: NDArray[np.int32], cache: PrefixCache[_LlamaSequence], *, all_positions: bool = False
    ) -> tuple[Array, PrefixCache[_LlamaSequence]]:
        """Append tokens to the rows; see :class:`logitloom.generation.model.ModelAdapter`."""
        host = np.asarray(tokens)
        check_tokens(host, cache, self.vocab_size, self.max_length)
        given = host >= 0
        counts = given.sum(axis=1)
        out = np.zeros((*host.shape, self.vocab_size) if all_positions else (len(host), self.vocab_size), np.float32)
        with self._lock:
            while self._released:
                number = self._released.popleft()
                self._library.llama_memory_seq_rm(self._memory, number, -1, -1)
                self._free.append(number)
            rows = tuple(
                self._room_for(*row, n) if n else row for row, n in zip(cache.rows, counts.tolist(), strict=True)
            )
            at = [
                (row, column, length + nth, all_positions or nth == counts[row] - 1)
                for row, (_, length) in enumerate(cache.rows)
                for nth, column in enumerate(np.flatnonzero(given[row]).tolist())
            ]
            for begin in range(0, len(at), self._most):
                part = at[begin : begin + self._most]
                for i, (row, column, position, asked) in enumerate(part):
                    stored = rows[row][0]
                    assert stored is not None
                    self._batch.token[i], self._batch.pos[i] = int(host[row, column]), position
                    self._batch.n_seq_id[i], self._batch.seq_id[i][0] = 1, stored.number
                    self._batch.logits[i] = int(asked)
                self._batch.n_tokens = len(part)
                self._decode()
                for i, (row, column, _, asked) in enumerate(part):
                    if asked:
                        logits = self._library.llama_get_logits_ith(self._context, i)
                        line = np.ctypeslib.as_array(
                            ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (self.vocab_size,)
                        )
                        out[(row, column) if all_positions else row] = line
        return out, PrefixCache(rows)

    def _room_for(self, stored: _LlamaSequence | None, length: int, more: int) -> tuple[_LlamaSequence, int]:
        """A row that is ``more`` tokens longer: the stored sequence if the sequence ends with the row, else a new
        sequence.
        """
        if stored is not None and stored.length == length:
            stored.length += more
            return stored, length + more
        if not self._free:
            raise ModelError(
                f"All {self._rows} sequences of the context are in use: by rows, and by earlier states of them that "
                f"are kept. Make the adapter with more: LlamaCppModel(llama, rows={2 * self._rows})."
            )
        own = _LlamaSequence(self._free.pop(), length + more, self._released)
        if stored is not None:
            self._library.llama_memory_seq_cp(self._memory, stored.number, own.number, 0, length)
        return own, length + more

    def _decode(self) -> None:
        code = self._library.llama_decode(self._context, self._batch)
        if code == _NO_ROOM:
            raise ModelError(
                f"The context has room for {self._cells} tokens over all rows, and they are used up. Make the adapter "
                f"with more: LlamaCppModel(llama, cells={2 * self._cells})."
            )
        if code:
            raise ModelError(f"llama_decode failed with code {code}.")
