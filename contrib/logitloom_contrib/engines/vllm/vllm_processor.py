"""The class that vLLM loads by entry point, for both model runners of vLLM.

The class is importable without vLLM, for tools that look at entry points; only making an object needs the engine.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Final

from logitloom import Array
from logitloom.errors import NeedsNotMet
from logitloom_contrib.engines.vllm.front_door import require_front_door
from logitloom_contrib.engines.vllm.interfaces import BASES, MISSING
from logitloom_contrib.engines.vllm.misplaced import require_chain
from logitloom_contrib.engines.vllm.runner_v1 import RunnerV1
from logitloom_contrib.engines.vllm.served_engine import UNCHECKED_VARIABLE, ServedEngine, config_of_caller
from logitloom_contrib.requests.request import LOG
from logitloom_contrib.requests.request_document import KEY
from logitloom_contrib.requests.request_key import require_right_key

__all__ = ["LogitloomProcessor"]

#: Configuration (by identity) -> the object that serves it: the class may be found by entry point and named besides.
_SERVING: Final[weakref.WeakValueDictionary[int, LogitloomProcessor]] = weakref.WeakValueDictionary()


class LogitloomProcessor(*BASES):  # type: ignore[misc]  # as many base classes as this vLLM has
    """Runs the chains that requests ask for.

    Args:
        vllm_config: vLLM's configuration.
        runner: ``(device, is_pin_memory)`` of model runner V1, or ``(req_states,)`` of model runner V2.

    Raises:
        NeedsNotMet: there is no vLLM, or logitloom should enforce its structured outputs and cannot.
    """

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        if MISSING is not None:
            raise NeedsNotMet(MISSING)
        engine = ServedEngine.of(vllm_config)
        require_front_door(engine)
        first = _SERVING.get(id(vllm_config))
        self._engine: ServedEngine = engine
        self._idle = first is not None and first._engine is engine
        self._runner: Any = _runner_v2(engine, *runner) if len(runner) == 1 else RunnerV1(engine)
        if self._idle:
            return
        _SERVING[id(vllm_config)] = self
        if engine.refusal is not None:
            LOG.warning("Requests for logitloom chains will be refused: %s", engine.refusal)

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Check what a request asks for.

        Raises:
            ValueError: in a sentence, which vLLM answers with HTTP 400.
        """
        extra = getattr(sampling_params, "extra_args", None) or {}
        require_right_key(extra)
        require_chain(extra)
        config = config_of_caller()
        if config is not None and getattr(sampling_params, "structured_outputs", None) is not None:
            require_front_door(ServedEngine.of(config))
        if KEY not in extra:
            return
        if config is not None:
            ServedEngine.of(config).admit(sampling_params)
        elif os.environ.get(UNCHECKED_VARIABLE, "") in ("", "0"):
            raise NeedsNotMet(
                "This release of vLLM does not show its configuration when it validates a request, so it cannot be "
                "known whether it runs logitloom chains. If its model runner calls logits processors, set "
                f"{UNCHECKED_VARIABLE}=1; chains are then checked inside the engine alone."
            )

    # -- model runner V1 ------------------------------------------------------------------------------

    def is_argmax_invariant(self) -> bool:
        """No: chains forbid tokens."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Take notice of changes of the batch."""
        if not self._idle:
            self._runner.update_state(batch_update)

    # -- model runner V2 ------------------------------------------------------------------------------

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Begin a request in a slot; whether it has a chain."""
        return not self._idle and bool(self._runner.add_request(req_idx, sampling_params))

    def apply_staged_writes(self) -> None:
        """Read what the engine has written about new requests."""
        if not self._idle:
            self._runner.apply_staged_writes()

    # -- both ------------------------------------------------------------------------------------------

    def apply(self, logits: Array, ctx: Any = None) -> Array:
        """Process the logits of a step."""
        if self._idle:
            return logits
        return self._runner.apply(logits) if ctx is None else self._runner.apply(logits, ctx)


def _runner_v2(engine: ServedEngine, states: Any) -> Any:
    # Imported here, because the module imports PyTorch, which tools that look at entry points may do without.
    from logitloom_contrib.engines.vllm.runner_v2 import RunnerV2

    return RunnerV2(engine, states)
