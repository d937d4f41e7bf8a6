"""The way of vLLM's structured outputs to logitloom.

vLLM chooses among backends of its own, by a closed list of names. Where the operator asks for logitloom
(``LOGITLOOM_VLLM_STRUCTURED_OUTPUTS=1``), three methods of vLLM lead to logitloom instead: the check of a request, the
beginning of the engine's manager of constraints, and the constraint of a request.
:func:`open_front_door` wraps these methods in every process; without the setting the wrapped methods do what they did.
Where a release of vLLM has other methods, an engine with the setting does not start.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from logitloom.errors import LogitloomError, NeedsNotMet
from logitloom_contrib.engines.vllm.served_engine import STRUCTURED_VARIABLE, ServedEngine, config_of_caller
from logitloom_contrib.requests.request import LOG

__all__ = ["open_front_door", "require_front_door"]


class _Door(NamedTuple):
    """A method of vLLM, with its parameters as they must be."""

    module: str
    owner: str
    method: str
    parameters: tuple[str, ...]
    wrapped: Callable[[Any], Any]


def open_front_door() -> None:
    """Wrap vLLM's methods, once in a process.

    Raises:
        NeedsNotMet: this vLLM has other methods, and the environment asks for logitloom.
    """
    global _missing
    _missing = next(filter(None, map(_opened, _DOORS)), None)
    if _missing and os.environ.get(STRUCTURED_VARIABLE, "") not in ("", "0"):
        raise NeedsNotMet(_missing)


def require_front_door(engine: ServedEngine) -> None:
    """Refuse an engine whose structured outputs logitloom should enforce and cannot.

    Raises:
        NeedsNotMet: saying what this vLLM does not have.
    """
    if engine.enforces_structured_outputs and _missing is not None:
        raise NeedsNotMet(_missing)


def _opened(door: _Door) -> str | None:
    """Why a method cannot be wrapped; ``None`` when it was."""
    place = f"{door.module}.{door.owner}.{door.method}"
    try:
        owner = getattr(importlib.import_module(door.module), door.owner)
        original = vars(owner)[door.method]
        found = tuple(inspect.signature(original).parameters)
    except (ImportError, AttributeError, KeyError, TypeError, ValueError) as error:
        return _sentence(f"{place} is missing ({type(error).__name__}: {error})")
    if hasattr(original, "leads_to_logitloom"):
        return None
    if found != door.parameters:
        return _sentence(f"{place} takes ({', '.join(found)}) in place of ({', '.join(door.parameters)})")
    wrapped: Any = functools.wraps(original)(door.wrapped(original))
    wrapped.leads_to_logitloom = True
    setattr(owner, door.method, wrapped)
    return None


def _sentence(difference: str) -> str:
    return (
        f"logitloom cannot enforce the structured outputs of this release of vLLM: {difference}. Leave out the setting "
        f"{STRUCTURED_VARIABLE} (structured_outputs in the additional config), or install a release that logitloom "
        f"knows (0.32)."
    )


_missing: str | None = _sentence("it did not run the plug-in logitloom (is VLLM_PLUGINS set without it?)")


# --- the methods ------------------------------------------------------------------------------------------------------


def _validating(original: Any) -> Any:
    """Of ``SamplingParams``: the check of a request's structured outputs."""

    def validate(self: Any, model_config: Any, structured_outputs_config: Any, tokenizer: Any) -> None:
        config = config_of_caller() if self.structured_outputs is not None else None
        if config is None or not ServedEngine.of(config).enforces_structured_outputs:
            if config is None and self.structured_outputs is not None:
                _require_seen_config()
            original(self, model_config, structured_outputs_config, tokenizer)
            return
        from vllm.exceptions import VLLMValidationError

        from logitloom_contrib.engines.vllm.structured_outputs import StructuredOutputs

        try:
            StructuredOutputs(ServedEngine.of(config)).admit(self)
        except LogitloomError as error:
            raise VLLMValidationError(str(error)) from error

    return validate


def _require_seen_config() -> None:
    if os.environ.get(STRUCTURED_VARIABLE, "") not in ("", "0"):
        raise NeedsNotMet(
            "This release of vLLM does not show its configuration when it checks structured outputs, so logitloom "
            f"cannot enforce them. Leave out the setting {STRUCTURED_VARIABLE}."
        )


def _beginning(original: Any) -> Any:
    """Of the manager in the engine's process: its backend is there from the beginning."""

    def begin(self: Any, vllm_config: Any) -> None:
        original(self, vllm_config)
        engine = ServedEngine.of(vllm_config)
        if not engine.enforces_structured_outputs:
            return
        named = vllm_config.structured_outputs_config.backend
        if named != "auto":
            raise NeedsNotMet(
                f"vLLM's structured_outputs_config names the backend {named!r}, and {STRUCTURED_VARIABLE} (or the "
                f"additional config) asks for logitloom. Leave one of them out."
            )
        from logitloom_contrib.engines.vllm.grammar_backend import LogitloomBackend

        width = vllm_config.model_config.get_vocab_size()
        self.backend = LogitloomBackend(vllm_config, getattr(self, "tokenizer", None), width)
        LOG.info("Structured outputs of requests are enforced by logitloom.")

    return begin


def _creating(original: Any) -> Any:
    """Of the manager: the constraint of a request, which the backend alone could not limit to the request's tokens."""

    def create(self: Any, request: Any) -> Any:
        grammar_of = getattr(self.backend, "grammar_of", None)
        if grammar_of is None:
            return original(self, request)
        try:
            return grammar_of(request)
        except Exception as error:
            LOG.error("logitloom ends the request %s before its first token: %s", request.request_id, error)
            raise

    return create


_DOORS: Final = (
    _Door(
        "vllm.sampling_params", "SamplingParams", "_validate_structured_outputs",
        ("self", "model_config", "structured_outputs_config", "tokenizer"), _validating,
    ),
    _Door("vllm.v1.structured_output", "StructuredOutputManager", "__init__", ("self", "vllm_config"), _beginning),
    _Door("vllm.v1.structured_output", "StructuredOutputManager", "_create_grammar", ("self", "request"), _creating),
)  # fmt: skip
