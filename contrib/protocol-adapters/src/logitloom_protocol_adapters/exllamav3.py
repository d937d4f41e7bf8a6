"""ExLlamaV3: a chain before a job's sampler, ``Job(sampler=...)``.

The generator calls the sampler of a job once per token, with the job's ids so far and its logits ``[1, 1, vocab]``, and
again with fewer ids after it took tokens back. Checked against that protocol as release 1.4.1 has it; it has never run
inside ExLlamaV3, which needs a CUDA device.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import torch

from logitloom import Chain
from logitloom.engines import bind
from logitloom.errors import InvalidContext, NeedsNotMet
from logitloom_protocol_adapters.text_rows import TextRows

__all__ = ["ExLlamaV3Sampler", "to_exllamav3"]

GIVES: Final = frozenset({"prompt", "length", "history"})
ENGINE: Final = "ExLlamaV3"


def to_exllamav3(chain: Chain, tokenizer: object = None, *, sampler: Any = None, seed: int = 0) -> ExLlamaV3Sampler:
    """A chain and a sampler, as the ``sampler`` of ExLlamaV3's ``Job`` or of ``Generator.generate``.

    Args:
        chain: the processors.
        tokenizer: any tokenizer that logitloom reads, for processors that need a vocabulary; default: the chain's.
            ExLlamaV3's own is none: give the model's folder, or the tokenizer of transformers.
        sampler: what samples from the processed logits; default: ExLlamaV3's ``DefaultSampler()``.
        seed: of processors that draw random numbers; texts with equal ids draw equal numbers.

    Raises:
        NeedsNotMet: the chain needs what the engine does not give.
        ChainIncomplete: options are missing.
    """
    bound = bind(chain, ENGINE, GIVES, tokenizer=tokenizer)
    if sampler is None:
        from exllamav3 import DefaultSampler

        sampler = DefaultSampler()
    return ExLlamaV3Sampler(bound, sampler, seed)


class ExLlamaV3Sampler:
    """A chain for any number of jobs; made by :func:`to_exllamav3`.

    A call with the ids of an earlier call and one more, or with the same, goes on with that text. Any other begins one,
    and its ids are the prompt.
    """

    #: The generator passes ids to samplers that ask for them.
    reqs_past_ids = True

    def __init__(self, chain: Chain, sampler: Any, seed: int) -> None:
        self.chain, self.sampler, self._rows = chain, sampler, TextRows(chain, seed)
        self.reqs_torch_seed: bool = sampler.reqs_torch_seed

    def forward(
        self,
        logits: torch.Tensor,
        sequence_ids: torch.Tensor | None = None,
        rand_u32: int | None = None,
        tokenizer: Any = None,
        **more: Any,
    ) -> Any:
        """Sample from logits ``[1, 1, vocab]`` after ids ``[1, length]``; the logits are not modified.

        Args:
            logits, sequence_ids, rand_u32, tokenizer, more: what the generator passes; ``sampler`` gets it too.

        Raises:
            InvalidContext: there are no ids, or several rows.
            NeedsNotMet: the job heals its prompt's last token, of which the chain would see what the text leaves out.
        """
        if sequence_ids is None or len(sequence_ids) != 1 or logits.numel() != logits.shape[-1]:
            shown = None if sequence_ids is None else list(sequence_ids.shape)
            raise InvalidContext(
                f"{ENGINE} passes ids [1, length] and logits [1, 1, vocab] of one text, but they have the shapes "
                f"{shown} and {list(logits.shape)}. Chains run in jobs with one sequence."
            )
        _require_unhealed(sys._getframe(1).f_locals.get("self"))
        row = sequence_ids[0].cpu().numpy()
        processed = self._rows.process(row, logits.reshape(-1)).view(logits.shape)
        return self.sampler.forward(processed, sequence_ids, rand_u32, tokenizer, **more)


def _require_unhealed(job: Any) -> None:
    if getattr(job, "prefix_token", None) is not None and getattr(job, "new_tokens", 0) < 0:
        raise NeedsNotMet(
            f"{ENGINE} heals the last token of this prompt: the token that takes its place may hold letters of the "
            f"answer, which a chain could not tell from those of the prompt. Make the job with token_healing=False."
        )
