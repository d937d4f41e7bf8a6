"""One running request: its options, its tokens, and how many of the tokens its chain has seen."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Any, Final

from logitloom.arrays import rng
from logitloom.errors import LogitloomError, NeedsNotMet
from logitloom.trace import RecordedChain
from logitloom_contrib.requests.chain_cache import CompiledChain
from logitloom_contrib.requests.engine_constraints import engine_constraints
from logitloom_contrib.requests.request_record import record_name, write_record

__all__ = ["LOG", "Request"]

LOG: Final = logging.getLogger("logitloom.requests")
_SMALLEST_HISTORY: Final = 256


class Request:
    """A request inside the engine's batch.

    Args:
        compiled: its chain; None if the request has no chain that can run (``failure`` says why).
        prompt: ids of its prompt; None if the engine has no ids (prompts given as embeddings).
        output: the engine's own list of the request's output, which grows.
        params: its sampling parameters.
        ends: ids that end the request.
        max_length: most tokens of any request.
    """

    __slots__ = (
        "capacity",
        "compiled",
        "ends",
        "engine_constraints",
        "failure",
        "fed",
        "last",
        "most",
        "output",
        "prompt",
        "record",
        "recorded",
        "seed",
    )

    def __init__(
        self,
        compiled: CompiledChain | None,
        prompt: Sequence[int] | None,
        output: Sequence[int],
        params: Any,
        ends: tuple[int, ...],
        max_length: int,
    ) -> None:
        self.compiled, self.prompt, self.output, self.ends = compiled, prompt, output, ends
        #: Options with which the engine itself forbids this request tokens.
        self.engine_constraints = engine_constraints(params)
        self.failure: str | None = None
        #: The name of the request's record, and the chain that collects the record.
        self.record = record_name(getattr(params, "extra_args", None))
        self.recorded: RecordedChain | None = None
        #: How many of the output's tokens the chain has seen, and the last of them.
        self.fed, self.last = 0, -1
        seed = getattr(params, "seed", None)
        # Every rank of a tensor-parallel engine draws the same numbers, so nothing here depends on the process.
        self.seed = rng.fold(len(prompt or ()) if seed is None else int(seed))
        most = getattr(params, "max_tokens", None)
        self.capacity = _capacity(len(prompt or ()), most, max_length)
        #: Most tokens of its output.
        self.most = max(min(max_length - len(prompt or ()), max_length if most is None else int(most)), 1)

    def pending(self) -> list[int]:
        """The tokens that the chain has not seen.

        Raises:
            NeedsNotMet: the engine does not show them.
        """
        tokens = list(self.output[self.fed :])
        if tokens and min(tokens) < 0:
            raise NeedsNotMet(
                "vLLM shows placeholders instead of tokens (asynchronous scheduling), so the chain cannot be "
                "followed. Start it with --no-async-scheduling."
            )
        return tokens

    @property
    def end(self) -> int:
        """The id that ends the request; requests that nothing can end are not admitted."""
        return self.ends[0] if self.ends else 0

    @property
    def rewound(self) -> bool:
        """Whether the engine took back tokens that the chain has seen."""
        return self.fed > 0 and (len(self.output) < self.fed or self.output[self.fed - 1] != self.last)

    def restart(self) -> None:
        """Forget what the chain has seen."""
        self.fed, self.last = 0, -1

    def advance(self, tokens: Sequence[int]) -> None:
        """Count tokens that the chain has seen."""
        if tokens:
            self.fed += len(tokens)
            self.last = tokens[-1]

    def write_record(self, folder: str) -> None:
        """Write the record that the request asks for, with the tokens that the engine shows."""
        tokens = list(itertools.takewhile(lambda token: token >= 0, self.output))
        if self.record is None or self.recorded is None or not tokens:
            return
        try:
            write_record(folder, self.record, self.recorded.sampled(tokens, prompt=self.prompt))
        except (LogitloomError, OSError) as error:  # the text is written; nobody can be told but the operator
            LOG.error("logitloom could not write the record %r: %s", self.record, error)

    def fail(self, error: BaseException | str, slot: int | None = None) -> None:
        """End this request and no other."""
        self.failure = str(error) or type(error).__name__
        named = isinstance(error, BaseException)
        LOG.error(
            "logitloom ends the request%s after %d tokens: %s%s",
            "" if slot is None else f" in slot {slot}",
            len(self.output),
            f"{type(error).__name__}: " if named else "",
            self.failure,
        )


def _capacity(prompt: int, max_tokens: int | None, max_length: int) -> int:
    """Room for a request's history: few different sizes, so that requests can share a state."""
    needed = max_length if max_tokens is None else min(max_length, prompt + max_tokens)
    room = _SMALLEST_HISTORY
    while room < needed:
        room *= 2
    return max(min(room, max_length), prompt)
