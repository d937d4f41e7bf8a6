"""vLLM's classes for a backend of structured outputs, over the constraints of requests."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar

from logitloom_contrib.engines.vllm.served_engine import ServedEngine
from logitloom_contrib.engines.vllm.structured_outputs import StructuredOutputs
from logitloom_contrib.requests.request_constraint import RequestConstraint

__all__ = ["LogitloomBackend", "LogitloomGrammar"]


class LogitloomGrammar(StructuredOutputGrammar):  # type: ignore[misc]  # vLLM has no types here
    """The constraint of one request.

    Args:
        constraint: the constraint.
    """

    def __init__(self, constraint: RequestConstraint) -> None:
        self.constraint = constraint

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Whether the text may go on with the tokens, which are then part of it."""
        return self.constraint.accept_tokens(tokens)

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The longest prefix of draft tokens that is allowed."""
        return self.constraint.validate_tokens(tokens)

    def rollback(self, num_tokens: int) -> None:
        """Take back tokens."""
        self.constraint.rollback(num_tokens)

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Write the mask of the next token into a row of ``[rows, ceil(vocab_size / 32)] int32``."""
        self.constraint.fill_bitmask(bitmask.numpy(), batch_index)

    def is_terminated(self) -> bool:
        """Whether the text is over."""
        return self.constraint.is_terminated()

    def reset(self) -> None:
        """Take back all tokens."""
        self.constraint.reset()


class LogitloomBackend(StructuredOutputBackend):  # type: ignore[misc]
    """The backend of an engine.

    Args:
        vllm_config: vLLM's configuration.
        tokenizer: vLLM's tokenizer; the engine's vocabulary is read from its own.
        vocab_size: width of the logits.
    """

    def __init__(self, vllm_config: Any, tokenizer: Any, vocab_size: int) -> None:
        super().__init__(vllm_config, tokenizer, vocab_size)
        self.outputs = StructuredOutputs(ServedEngine.of(vllm_config))

    def grammar_of(self, request: Any) -> LogitloomGrammar:
        """The constraint of a request, within the request's limit on tokens.

        Raises:
            LogitloomError: it cannot be had.
        """
        return LogitloomGrammar(self.outputs.of_request(request))

    def compile_grammar(
        self, request_type: Any, grammar_spec: str, stop_token_ids: set[int] | None = None
    ) -> LogitloomGrammar:
        """A constraint without a limit on tokens, of which vLLM does not tell this method.

        Raises:
            LogitloomError: it cannot be had.
        """
        return LogitloomGrammar(self.outputs.of_text(request_type.name.lower(), grammar_spec, stop_token_ids))

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        """``[max_num_seqs, ceil(vocab_size / 32)] int32``, all ids allowed."""
        return torch.full((max_num_seqs, -(-self.vocab_size // 32)), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """Nothing to do: constraints are values."""
