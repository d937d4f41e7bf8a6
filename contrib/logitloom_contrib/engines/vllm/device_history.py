"""Model runner V2: the tokens that are new to each row, read where the engine keeps them, on the device.

Committed tokens are in the engine's table, a line per slot; the drafts of a step are only in its inputs.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["DeviceHistory"]


class DeviceHistory:
    """Per slot the number of tokens that its chain has seen, and the tokens that are new to the chain. The host waits
    for nothing here.

    Args:
        states: the engine's ``LogitsProcRequestState``.
        drafts: most draft tokens per request and step.
    """

    def __init__(self, states: Any, drafts: int) -> None:
        self._states = states
        #: ``[max_num_reqs] int64``.
        self.seen = torch.zeros(states.max_num_reqs, dtype=torch.int64, device=states.device)
        # Between two steps a request gains its accepted drafts and one token more.
        self._window = torch.arange(1 + drafts, dtype=torch.int64, device=states.device)

    def begin(self, slot: int, length: int) -> None:
        """State that a slot's chain has seen its first ``length`` tokens."""
        self.seen[slot] = length

    def download(self, slot: int, length: int) -> list[int]:
        """The first tokens of a slot, on the host."""
        ids: list[int] = self._states.all_token_ids.gpu[slot, :length].tolist()
        return ids

    def new_tokens(
        self, slots: torch.Tensor, rows: torch.Tensor, draft_positions: torch.Tensor, drafts: int, inputs: torch.Tensor
    ) -> torch.Tensor:
        """The tokens that are new to rows of logits.

        Args:
            slots: ``[n]``: the slot of each row.
            rows: ``[n]``: where the rows stand among all rows of logits.
            draft_positions: ``[n]``: how many draft tokens each row stands after.
            drafts: the largest of ``draft_positions``.
            inputs: ``[rows of logits]``: the token that was fed for each row.

        Returns:
            ``[n, committed + drafts] int32``, -1 = none.
        """
        table, total = self._states.all_token_ids.gpu, self._states.total_len.gpu
        at = self.seen[slots][:, None] + self._window[None, :]
        known = at < total[slots][:, None]
        committed = table[slots[:, None], at.clamp(max=table.shape[1] - 1)]
        tokens = torch.where(known, committed, -1).to(torch.int32)
        if drafts == 0:
            return tokens
        nth = torch.arange(1, drafts + 1, device=inputs.device)[None, :]
        before = draft_positions[:, None] >= nth
        fed = inputs[((rows - draft_positions)[:, None] + nth).clamp(max=inputs.shape[0] - 1)]
        return torch.cat([tokens, torch.where(before, fed, -1).to(torch.int32)], dim=1)

    def commit(self, slots: torch.Tensor) -> None:
        """State that the chains of these slots have seen all committed tokens."""
        self.seen[slots] = self._states.total_len.gpu[slots].to(torch.int64)
