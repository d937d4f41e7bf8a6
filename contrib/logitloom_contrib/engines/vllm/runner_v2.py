"""Model runner V2: slots instead of rows of a batch, a history on the device, and a row of logits per draft token.

A slot is recycled without notice, but each new request in a slot is announced. Which requests take part in a step, and
in which order, changes with every step. Checked against the documented protocol; inside the runner itself, which needs
Triton, it has never run.
"""

from __future__ import annotations

from typing import Any

import torch

from logitloom import Array
from logitloom_contrib.engines.vllm.device_history import DeviceHistory
from logitloom_contrib.engines.vllm.served_engine import ServedEngine
from logitloom_contrib.requests.chain_rows import ChainRows, DraftRows, force_end
from logitloom_contrib.requests.request import Request
from logitloom_contrib.requests.request_document import KEY

__all__ = ["RunnerV2"]

#: Needs of a chain that require the prompt of a request.
_ABOUT_PROMPTS = frozenset({"prompt", "length", "history"})


class RunnerV2:
    """The methods ``add_request``, ``apply_staged_writes`` and ``apply`` of the vLLM processor, for one engine.

    Args:
        engine: the engine that owns the batch.
        states: its ``LogitsProcRequestState``.
    """

    def __init__(self, engine: ServedEngine, states: Any) -> None:
        self.engine, self._states = engine, states
        self.slots: dict[int, Request] = {}
        self._entering: dict[int, Any] = {}
        self._groups: dict[tuple[str, int], ChainRows] = {}
        drafts = int(getattr(engine.config, "num_speculative_tokens", 0) or 0)
        self._history = DeviceHistory(states, drafts)

    def add_request(self, slot: int, params: Any) -> bool:
        """Begin a request in a slot, in place of any earlier request; returns whether the new request has a chain."""
        self.slots.pop(slot, None)
        self._entering.pop(slot, None)
        extra = getattr(params, "extra_args", None)
        if not extra or KEY not in extra:
            return False
        self._entering[slot] = params
        return True

    def apply_staged_writes(self) -> None:
        """Read the tokens of new requests, now that the engine has written the tokens."""
        if not self._entering:
            return
        for slot, params in self._entering.items():
            self.slots[slot] = self._begun(slot, params)
        self._entering = {}
        live = set(self.slots.values())
        self._groups = {key: group for key, group in self._groups.items() if group.keep(live)}

    def _begun(self, slot: int, params: Any) -> Request:
        prompt_length = int(self._states.prompt_len.np[slot])
        # After a preemption, the engine prefills the request with its prompt and its output so far.
        length = int(self._states.prefill_len.np[slot])
        try:
            compiled, error = self.engine.chain_of(params), None
            told = length > prompt_length or bool(compiled and compiled.chain.needs & _ABOUT_PROMPTS)
            # The only time that the host waits for the device: once per request that has a prompt to look at.
            ids = self._history.download(slot, length) if told else [0] * length
        except Exception as raised:  # it was validated, but perhaps elsewhere and with other settings
            compiled, error, ids = None, raised, [0] * length
        ends = self.engine.ends(params)
        request = Request(compiled, ids[:prompt_length], ids[prompt_length:], params, ends, self.engine.max_length)
        if error is not None:
            request.fail(error, slot)
        self._history.begin(slot, length)
        return request

    def apply(self, logits: Array, ctx: Any) -> Array:
        """Process logits ``[rows, vocab]``; ``ctx`` says which slot each row belongs to and after how many drafts."""
        if not self.slots:
            return logits
        slots = ctx.idx_mapping_np.tolist()
        draft_positions = [0] * len(slots)
        if logits.shape[0] != len(slots):
            slots, draft_positions = ctx.expanded_idx_mapping.tolist(), ctx.expanded_local_pos.tolist()
        by_group: dict[tuple[str, int], list[int]] = {}
        for row, slot in enumerate(slots):
            request = self.slots.get(slot)
            if request is not None and request.failure is None and request.compiled is not None:
                room = request.capacity if "history" in request.compiled.chain.needs else 0
                by_group.setdefault((request.compiled.key, room), []).append(row)
        for key, rows in by_group.items():
            logits = self._processed(key, rows, slots, draft_positions, logits, ctx)
        for row, slot in enumerate(slots):
            request = self.slots.get(slot)
            if request is not None and request.failure is not None:
                logits = force_end(logits, row, request)
        return logits

    def _processed(
        self,
        key: tuple[str, int],
        rows: list[int],
        slots: list[int],
        draft_positions: list[int],
        logits: Array,
        ctx: Any,
    ) -> Array:
        group = self._groups.get(key)
        if group is None:
            compiled = self.slots[slots[rows[0]]].compiled
            assert compiled is not None
            group = self._groups[key] = ChainRows(compiled.chain, key[1] or self.engine.max_length)
        requests = list(dict.fromkeys(self.slots[slots[row]] for row in rows))
        present = set(requests)
        away = [r for r in self.slots.values() if r not in present and r.compiled and r.compiled.key == key[0]]
        group.settle(requests, logits, absent=away)
        at = {request: i for i, request in enumerate(group.requests)}
        rows = [row for row in rows if self.slots[slots[row]] in at]
        if not rows:
            return logits
        owner = [at[self.slots[slots[row]]] for row in rows]
        drafted = [draft_positions[row] > 0 for row in rows]
        index, slot_of, draft_position_of = (
            torch.tensor(values, dtype=torch.int64).to(logits.device, non_blocking=True)
            for values in (rows, [slots[row] for row in rows], [draft_positions[row] for row in rows])
        )
        most = max(draft_positions[row] for row in rows)
        tokens = self._history.new_tokens(slot_of, index, draft_position_of, most, ctx.input_ids)

        def tokens_of(some: Any) -> Any:
            return tokens if len(some) == len(rows) else tokens[list(some)]

        chosen = logits.index_select(0, index)
        drafts = DraftRows(owner, drafted, tokens_of)
        out = group.process(chosen, lambda: logits.index_select(0, index), True, drafts)
        self._history.commit(slot_of)
        logits.index_copy_(0, index, out)
        return logits
