"""TensorRT-LLM (PyTorch backend): a chain as ``LogitsProcessor`` and as ``BatchedLogitsProcessor``.

Logits are changed in place, ``[beams, 1, vocab]`` per request. Checked against the protocol; it has never
run inside TensorRT-LLM.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import torch

from logitloom import Chain
from logitloom.engines import bind
from logitloom.errors import InvalidContext
from logitloom_contrib.row_tracking import RowTracker, right_aligned

__all__ = ["TensorRtBatch", "TensorRtRequest", "to_tensorrt_llm"]

GIVES: Final = frozenset({"prompt", "length", "history"})
ENGINE: Final = "TensorRT-LLM"
#: Requests whose prompt length is remembered.
_REQUESTS: Final = 4096


def to_tensorrt_llm(
    chain: Chain, tokenizer: Any = None, *, batched: bool = False, seed: int = 0
) -> TensorRtRequest | TensorRtBatch:
    """A chain for ``SamplingParams(logits_processor=...)``, or for ``LLM(batched_logits_processor=...)``.

    Args:
        chain: the processors.
        tokenizer: any tokenizer, for processors that need a vocabulary; default: the chain's.
        batched: whether the object serves all requests of an engine in one call per step.
        seed: of processors that draw random numbers.

    Raises:
        NeedsNotMet: the chain needs what the engine does not give.
        ChainIncomplete: options are missing.
    """
    chain = bind(chain, ENGINE, GIVES, tokenizer=tokenizer)
    return TensorRtBatch(chain, seed) if batched else TensorRtRequest(chain, seed)


class TensorRtBatch:
    """A chain for all requests of an engine; made by :func:`to_tensorrt_llm`."""

    def __init__(self, chain: Chain, seed: int) -> None:
        self.chain = chain
        eos = chain.vocabulary.eos if chain.vocabulary is not None else ()
        self._tracker = RowTracker(chain, eos=eos, seed=seed)
        #: A request's prompt is what it was first asked with.
        self._prompt_lengths: OrderedDict[int, int] = OrderedDict()

    def __call__(
        self,
        req_ids: Sequence[int],
        logits: Sequence[torch.Tensor],
        token_ids: Sequence[Sequence[Sequence[int]]],
        stream_ptr: int | None,
        client_ids: Sequence[int | None],
    ) -> None:
        """Process the logits ``[beams, 1, vocab]`` of each request in place, all of them together."""
        del client_ids
        rows: list[Sequence[int]] = []
        prompt_lengths: list[int] = []
        for request, part, beams in zip(req_ids, logits, token_ids, strict=True):
            if part.ndim != 3 or part.shape[:2] != (len(beams), 1):
                raise InvalidContext(
                    f"{ENGINE} passed logits of shape {list(part.shape)} for {len(beams)} beams of request {request}; "
                    f"they are [beams, 1, vocab]."
                )
            length = self._prompt_lengths.setdefault(request, len(beams[0]))
            self._prompt_lengths.move_to_end(request)
            rows += beams
            prompt_lengths += [length] * len(beams)
        while len(self._prompt_lengths) > max(_REQUESTS, len(req_ids)):
            self._prompt_lengths.popitem(last=False)
        with _on_stream(stream_ptr):
            together = torch.cat([part[:, 0] for part in logits])
            ids, starts = right_aligned(rows)
            out = self._tracker.process(
                together, ids, starts, prompt_lengths=prompt_lengths, tentative=lambda: len(rows) > len(req_ids)
            )
            at = 0
            for part in logits:
                part[:, 0].copy_(out[at : at + len(part)])
                at += len(part)


class TensorRtRequest:
    """A chain for one request; made by :func:`to_tensorrt_llm`."""

    def __init__(self, chain: Chain, seed: int) -> None:
        self._batch = TensorRtBatch(chain, seed)

    def __call__(
        self,
        req_id: int,
        logits: torch.Tensor,
        token_ids: Sequence[Sequence[int]],
        stream_ptr: int | None,
        client_id: int | None,
    ) -> None:
        """Process logits ``[beams, 1, vocab]`` in place."""
        self._batch([req_id], [logits], [token_ids], stream_ptr, [client_id])


def _on_stream(stream_ptr: int | None) -> contextlib.AbstractContextManager[Any]:
    if stream_ptr is None:
        return contextlib.nullcontext()
    stream: contextlib.AbstractContextManager[Any] = torch.cuda.stream(torch.cuda.ExternalStream(stream_ptr))
    return stream
