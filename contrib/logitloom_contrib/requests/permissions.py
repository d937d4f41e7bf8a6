"""The permissions of requests: which processors they may name, and how much time, memory and space they may use.

A request is written by a stranger, and everything here holds at every depth of its chain. The operator states the
permissions, for any server in the environment, or in vLLM's ``--additional-config '{"logitloom": {...}}'``, which wins:

===============================  =================  ==========================================================
environment                      additional config  meaning
===============================  =================  ==========================================================
LOGITLOOM_SERVER_ALLOW           allow              names; ``+name`` adds one to the safe ones
LOGITLOOM_SERVER_BYTES           bytes              most bytes of a request's chain, as JSON
LOGITLOOM_SERVER_PROCESSORS      processors         most processors of a chain, at every depth
LOGITLOOM_SERVER_STATES          states             most states of an automaton
LOGITLOOM_SERVER_SECONDS         seconds            most seconds of reading and compiling a request
LOGITLOOM_SERVER_ENGINE_SECONDS  engine_seconds     most seconds of those that the engine's process makes again
LOGITLOOM_SERVER_INTEGER         integer            largest integer of an option with a declared type
LOGITLOOM_SERVER_CHAINS          chains             compiled chains that are kept
LOGITLOOM_SERVER_RECORD          record             folder in which requests may leave records; empty: none
===============================  =================  ==========================================================
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from logitloom.errors import OptionError, UnknownPlugin
from logitloom.host.registry import available

__all__ = ["SAFE", "VARIABLES", "Permissions"]

#: Processors that run no code of the request, open no file and run no model, and whose cost per step the size of a
#: request bounds. Watermarks are not among them, because the operator decides about watermarks.
SAFE: Final = frozenset(
    {
        "bad_words", "bad_words_ids", "choice", "dry", "dynamic_temperature", "encoder_no_repeat_ngram",
        "encoder_repetition_penalty", "eos_above", "epsilon_cutoff", "eta_cutoff", "exponential_decay_length_penalty",
        "force_tokens", "forced_eos", "frequency_penalty", "json", "logit_bias", "min_p", "min_tokens",
        "no_repeat_ngram", "normalize", "p_less", "presence_penalty", "quadratic", "regex", "remove_invalid",
        "repetition_penalty", "sequence_bias", "stop", "stop_repetition", "suppress_tokens", "temperature", "top_a",
        "top_h", "top_k", "top_n_sigma", "top_p", "typical_p", "xtc",
    }
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Permissions:
    """The permissions of requests.

    Args:
        allow: names of processors, exactly as requests write them.
        bytes: most bytes of a chain as JSON.
        processors: most processors of a chain, nested processors included.
        states: most states of an automaton.
        seconds: most seconds of processor time for reading and compiling a request's chain, in the API server's process
            and in the engine's.
        engine_seconds: most of these seconds that may be spent in the engine's process, while all requests wait. The
            seconds are measured in the API server's process: reading, compilations without the stored results, and the
            first steps of a text with the distances to its end.
        integer: largest integer of an option with a declared type (schemas have none).
        chains: compiled chains kept at a time; chains of running requests are kept anyway.
        record: the folder of records; empty for none.

    Example:
        >>> Permissions.read({"LOGITLOOM_SERVER_ALLOW": "regex, choice"}, None).allow == {"choice", "regex"}
        True
    """

    allow: frozenset[str] = SAFE
    bytes: int = 1 << 20
    processors: int = 16
    states: int = 20_000
    seconds: float = 2.0
    engine_seconds: float = 0.25
    integer: int = 1_000_000
    chains: int = 128
    record: str = ""

    @classmethod
    def read(cls, environment: Mapping[str, str], config: Any) -> Permissions:
        """The permissions that an environment and an additional config (a table or nothing) state.

        Raises:
            OptionError: naming the setting.
        """
        values: dict[str, Any] = {}
        for variable, name in VARIABLES.items():
            if variable in environment:
                values[name] = _setting(name, environment[variable], variable)
        if config is not None:
            if not isinstance(config, Mapping):
                raise OptionError(f"'logitloom' in vLLM's additional config must be a table, but is {config!r}.")
            for name, value in config.items():
                if name not in VARIABLES.values():
                    raise OptionError(
                        f"'logitloom' in vLLM's additional config has no {name!r}; it has {', '.join(NAMES)}."
                    )
                values[name] = _setting(name, value, f"'logitloom.{name}' in vLLM's additional config")
        return cls(**values)

    def require(self, name: str) -> None:
        """Check that requests may name a processor.

        Raises:
            UnknownPlugin: there is no processor of that name.
            OptionError: it is not allowed. Both list the allowed names.
        """
        if name in self.allow:
            return
        may = f"they may use {_some(sorted(self.allow))}"
        bare, _, distribution = name.partition("@")
        if not any(r.name == bare and distribution in ("", r.distribution) for r in available("processors")):
            raise UnknownPlugin(f"There is no processor {name[:100]!r} on this server. As for requests, {may}.")
        raise OptionError(
            f"Requests to this server may not use the processor {name[:100]!r}; {may}. The operator allows more with "
            f"LOGITLOOM_SERVER_ALLOW."
        )


#: Characters of a message for the names that are allowed.
_NAMES_SHOWN: Final = 250

NAMES: Final = tuple(field.name for field in dataclasses.fields(Permissions))

#: Environment variable -> setting.
VARIABLES: Final = {f"LOGITLOOM_SERVER_{name.upper()}": name for name in NAMES}


def _setting(name: str, value: Any, place: str) -> Any:
    if name == "allow":
        return _names(value, place)
    if name == "record":
        if not isinstance(value, str) or (value and not Path(value).is_dir()):
            raise OptionError(f"{place} must be a folder that exists, but is {value!r}.")
        return value
    number = _number(value)
    in_seconds = name in ("seconds", "engine_seconds")
    if number is None or number <= 0 or not (in_seconds or number == int(number)):
        kind = "a number of seconds" if in_seconds else "a whole number"
        raise OptionError(f"{place} must be {kind} above 0, but is {value!r}.")
    return number if in_seconds else int(number)


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        return None
    return float(value)


def _some(names: list[str]) -> str:
    """The names, as many as fit into a message."""
    shown = textwrap.shorten(", ".join(names), _NAMES_SHOWN, placeholder="").rstrip(",")
    more = len(names) - shown.count(",") - 1
    return (f"{shown} and {more} more" if more else shown) if names else "none"


def _names(value: Any, place: str) -> frozenset[str]:
    parts = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(parts, Iterable) or isinstance(parts, Mapping) or not all(isinstance(p, str) for p in parts):
        raise OptionError(f"{place} must be names of processors, but is {value!r}.")
    names = [part.strip() for part in parts]
    added = {name[1:] for name in names if name.startswith("+")}
    plain = {name for name in names if not name.startswith("+")}
    return frozenset((plain or SAFE if added else plain) | added)
