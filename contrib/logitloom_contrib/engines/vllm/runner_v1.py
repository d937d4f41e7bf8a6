"""Model runner V1: requests of the batch, grouped by chain, one call of each chain per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from logitloom import Array, backend_of
from logitloom.backend import TokenIds
from logitloom.masks.mask_row import MaskRow
from logitloom.trace import RecordedChain
from logitloom_contrib.engines.vllm import batch_order
from logitloom_contrib.engines.vllm.served_engine import ServedEngine
from logitloom_contrib.requests.chain_rows import ChainRows, closed_rows, force_end
from logitloom_contrib.requests.request import Request

__all__ = ["RunnerV1", "begin"]


class _Group(NamedTuple):
    """What requests have in common whose rows are processed together."""

    key: str
    room: int
    recorded: bool


class RunnerV1:
    """What ``update_state`` and ``apply`` do for one engine.

    Args:
        engine: whose batch it is.
    """

    def __init__(self, engine: ServedEngine) -> None:
        self.engine = engine
        #: Place in the batch -> request with a chain.
        self.places: dict[int, Request] = {}
        self._groups: dict[_Group, ChainRows] = {}
        #: Per group the places of its rows, and those places as an index of the logits.
        self._rows: list[tuple[ChainRows, list[int], Any]] = []
        self._changed = False
        #: The mask of a row that may have every token.
        self._free: MaskRow | None = None
        #: Host memory for logits, ``[rows, vocab]``: fresh pages cost as much as what is written to them.
        self._scratch: Any = None

    def update_state(self, update: Any) -> None:
        """Take notice of requests that joined, left or moved; None means nothing changed."""
        if update is None:
            return
        had_any, before = bool(self.places), list(self.places.values())
        batch_order.follow(self.places, update, lambda *told: begin(self.engine, *told))
        self._changed = self._changed or had_any or bool(self.places)
        staying = set(self.places.values())
        for request in before:
            if request.record is not None and request not in staying:
                request.write_record(self.engine.chains.permissions.record)

    def apply(self, logits: Array) -> Array:
        """Process the logits ``[requests, vocab]`` of a step; rows of requests without a chain are left alone."""
        if not self.places and not self._groups:
            return logits
        if self._changed or any(group.any_rewound() for group, _, _ in self._rows):
            self._regroup(logits)
        logits, left = self._masked(logits)
        for group, places, index in left:
            logits = self._processed(group, places, index, logits)
        failed = [(place, request) for place, request in self.places.items() if request.failure is not None]
        for place, request in failed:
            logits = force_end(logits, place, request)
        # Requests that failed leave their group, so that it need not look for them at the next step.
        self._changed = any(request in group.requests for _, request in failed for group, _, _ in self._rows)
        return logits

    def _masked(self, logits: Array) -> tuple[Array, list[tuple[ChainRows, list[int], Any]]]:
        """The logits after all chains that are a mask, applied in one pass; and the groups that are left."""
        count, width = logits.shape
        if self._free is None or self._free.vocab != width:
            self._free = MaskRow(False, [], int(width))
        rows: list[TokenIds] = [self._free] * count
        left: list[tuple[ChainRows, list[int], Any]] = []
        masked: dict[int, ChainRows] = {}
        for group, places, index in self._rows:
            found = group.masks(logits if len(places) == count else logits[: len(places)])
            if found is None:
                left.append((group, places, index))
                continue
            masked |= dict.fromkeys(places, group)
            for place, mask in zip(places, found, strict=True):
                rows[place] = mask
        if not masked:
            return logits, left
        logits = backend_of(logits).apply_token_rows(logits, rows, True)
        for place in closed_rows(logits):
            if place in masked:
                masked[place].close(self.places[place])  # the end is written with those of others
        return logits, left

    def _processed(self, group: ChainRows, places: list[int], index: Any, logits: Array) -> Array:
        scratch = self._scratch_like(logits, len(places))
        if len(places) == logits.shape[0] and places == list(range(len(places))):
            # All rows: a chain may write to the engine's own logits, if it tells what is wrong before it writes, or if
            # they are kept for the rows that are processed again.
            if group.all_or_nothing or scratch is None or not group.keeps_masked:
                return group.process(logits, lambda: logits, group.all_or_nothing)
            return group.process(logits, scratch.copy_(logits).clone, True)
        if scratch is None:
            out = group.process(logits.index_select(0, index), lambda: logits.index_select(0, index), True)
            logits.index_copy_(0, index, out)
            return logits
        # Whole rows: PyTorch's own writing by index takes three times as long as NumPy's.
        host = logits.numpy()
        host.take(places, axis=0, out=scratch.numpy(), mode="clip")
        host[places] = group.process(scratch, lambda: logits.index_select(0, index), True).numpy()
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
        wanted: dict[_Group, list[int]] = {}
        for place in sorted(self.places):
            request = self.places[place]
            if request.failure is None and request.compiled is not None:
                chain = request.compiled.chain
                room = request.capacity if "history" in chain.needs else 0
                wanted.setdefault(_Group(request.compiled.key, room, request.record is not None), []).append(place)
        self._groups = {key: self._groups.get(key) or self._group(key, places) for key, places in wanted.items()}
        self._rows = []
        place_of = {request: place for place, request in self.places.items()}
        for key, places in wanted.items():
            group = self._groups[key]
            if isinstance(group.chain, RecordedChain):
                for place in places:
                    self.places[place].recorded = group.chain
            group.settle([self.places[place] for place in places], logits)
            places = [place_of[request] for request in group.requests]
            if places:
                self._rows.append((group, places, backend_of(logits).asarray(np.asarray(places, dtype=np.int64))))
        self._changed = False

    def _group(self, key: _Group, places: Sequence[int]) -> ChainRows:
        compiled = self.places[places[0]].compiled
        assert compiled is not None
        chain = RecordedChain(compiled.chain, first=False) if key.recorded else compiled.chain
        return ChainRows(chain, key.room or self.engine.max_length)


def begin(engine: ServedEngine, params: Any, prompt: Any, output: Any) -> Request | None:
    """A request that enters the engine; None if it asks for no chain. Never raises: what is wrong ends the request."""
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
