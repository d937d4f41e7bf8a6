"""Model runner V1: requests of the batch, grouped by chain, one call of each chain per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from logitloom import Array, backend_of
from logitloom.arrays.backend import TokenIds
from logitloom.masks.mask_row import MaskRow
from logitloom.trace import RecordedChain
from logitloom_contrib.engines.vllm import batch_order
from logitloom_contrib.engines.vllm.served_engine import ServedEngine
from logitloom_contrib.requests.chain_rows import ChainRows, closed_rows, force_end
from logitloom_contrib.requests.request import Request

__all__ = ["RunnerV1", "begin"]


class _RequestGroup(NamedTuple):
    """The common values of requests whose rows are processed together."""

    key: str
    room: int
    recorded: bool


class RunnerV1:
    """The methods ``update_state`` and ``apply`` of the vLLM processor, for one engine.

    Args:
        engine: the engine that owns the batch.
    """

    def __init__(self, engine: ServedEngine) -> None:
        self.engine = engine
        #: Row of the batch -> request with a chain.
        self.requests: dict[int, Request] = {}
        self._groups: dict[_RequestGroup, ChainRows] = {}
        #: Per group its rows of the batch, and those as an index of the logits.
        self._rows: list[tuple[ChainRows, list[int], Any]] = []
        self._changed = False
        #: The mask of a row that may have every token.
        self._free: MaskRow | None = None
        #: Host memory for logits, ``[rows, vocab]``, used again: fresh pages cost as much as the copy into them.
        self._scratch: Any = None

    def update_state(self, update: Any) -> None:
        """Take notice of requests that joined, left or moved; None means nothing changed."""
        if update is None:
            return
        had_any, before = bool(self.requests), list(self.requests.values())
        batch_order.follow(self.requests, update, lambda *told: begin(self.engine, *told))
        self._changed = self._changed or had_any or bool(self.requests)
        staying = set(self.requests.values())
        for request in before:
            if request.record is not None and request not in staying:
                request.write_record(self.engine.chains.permissions.record)

    def apply(self, logits: Array) -> Array:
        """Process the logits ``[requests, vocab]`` of a step; rows of requests without a chain are left alone."""
        if not self.requests and not self._groups:
            return logits
        if self._changed or any(group.any_rewound() for group, _, _ in self._rows):
            self._regroup(logits)
        logits, left = self._masked(logits)
        for group, rows, index in left:
            logits = self._processed(group, rows, index, logits)
        failed = [(row, request) for row, request in self.requests.items() if request.failure is not None]
        for row, request in failed:
            logits = force_end(logits, row, request)
        # If a group still contains a failed request, the groups are rebuilt without the request before the next step.
        self._changed = any(request in group.requests for _, request in failed for group, _, _ in self._rows)
        return logits

    def _masked(self, logits: Array) -> tuple[Array, list[tuple[ChainRows, list[int], Any]]]:
        """The logits after all chains that are a single mask, applied in one pass; and the groups still to process."""
        count, width = logits.shape
        if self._free is None or self._free.vocab != width:
            self._free = MaskRow(False, [], int(width))
        masks: list[TokenIds] = [self._free] * count
        left: list[tuple[ChainRows, list[int], Any]] = []
        masked: dict[int, ChainRows] = {}
        for group, rows, index in self._rows:
            found = group.masks(logits if len(rows) == count else logits[: len(rows)])
            if found is None:
                left.append((group, rows, index))
                continue
            masked |= dict.fromkeys(rows, group)
            for row, mask in zip(rows, found, strict=True):
                masks[row] = mask
        if not masked:
            return logits, left
        logits = backend_of(logits).apply_token_rows(logits, masks, True)
        for row in closed_rows(logits, masks):
            if row in masked:
                masked[row].close(self.requests[row])  # the end is written together with the other ends
        return logits, left

    def _processed(self, group: ChainRows, rows: list[int], index: Any, logits: Array) -> Array:
        scratch = self._scratch_like(logits, len(rows))
        if len(rows) == logits.shape[0] and rows == list(range(len(rows))):
            # All rows: a chain may write to the engine's own logits in two cases: the chain raises before it writes, or
            # a copy of the logits is kept for the rows that are processed again.
            if group.all_or_nothing or scratch is None or not group.keeps_masked:
                return group.process(logits, lambda: logits, group.all_or_nothing)
            return group.process(logits, scratch.copy_(logits).clone, True)
        if scratch is None:
            out = group.process(logits.index_select(0, index), lambda: logits.index_select(0, index), True)
            logits.index_copy_(0, index, out)
            return logits
        # Whole rows: PyTorch's own writing by index takes three times as long as NumPy's.
        host = logits.numpy()
        host.take(rows, axis=0, out=scratch.numpy(), mode="clip")
        host[rows] = group.process(scratch, lambda: logits.index_select(0, index), True).numpy()
        return logits

    def _scratch_like(self, logits: Array, rows: int) -> Any:
        """``[rows, vocab]`` to be overwritten; None on devices, whose libraries keep memory, and for other types."""
        if not logits.is_cpu or str(logits.dtype) != "torch.float32":
            return None
        scratch = self._scratch
        if scratch is None or len(scratch) < rows or scratch.shape[1] != logits.shape[1]:
            scratch = self._scratch = logits.new_empty(logits.shape)
        return scratch[:rows]

    def _regroup(self, logits: Array) -> None:
        wanted: dict[_RequestGroup, list[int]] = {}
        for row in sorted(self.requests):
            request = self.requests[row]
            if request.failure is None and request.compiled is not None:
                chain = request.compiled.chain
                room = request.capacity if "history" in chain.needs else 0
                wanted.setdefault(_RequestGroup(request.compiled.key, room, request.record is not None), []).append(row)
        self._groups = {key: self._groups.get(key) or self._group(key, rows) for key, rows in wanted.items()}
        self._rows = []
        row_of = {request: row for row, request in self.requests.items()}
        for key, rows in wanted.items():
            group = self._groups[key]
            if isinstance(group.chain, RecordedChain):
                for row in rows:
                    self.requests[row].recorded = group.chain
            group.settle([self.requests[row] for row in rows], logits)
            rows = [row_of[request] for request in group.requests]
            if rows:
                self._rows.append((group, rows, backend_of(logits).asarray(np.asarray(rows, dtype=np.int64))))
        self._changed = False

    def _group(self, key: _RequestGroup, rows: Sequence[int]) -> ChainRows:
        compiled = self.requests[rows[0]].compiled
        assert compiled is not None
        chain = RecordedChain(compiled.chain, first=False) if key.recorded else compiled.chain
        return ChainRows(chain, key.room or self.engine.max_length)


def begin(engine: ServedEngine, params: Any, prompt: Any, output: Any) -> Request | None:
    """A request that enters the engine; None if it asks for no chain. Never raises: an error ends the request."""
    extra = getattr(params, "extra_args", None)
    if not extra:
        return None
    try:
        compiled, error = engine.chain_of(params), None
        if compiled is None:
            return None
    except Exception as raised:  # it was validated, but perhaps elsewhere and with other settings
        compiled, error = None, raised
    request = Request(compiled, prompt, output, params, engine.ends(params), engine.max_length)
    if error is not None:
        request.fail(error)
    return request
