"""One vLLM engine as requests see it: its vocabulary, its chains, and whether it runs processors at all.

vLLM drops processors found by entry point without a word in some configurations. When a request is validated, the
engine's configuration is checked, and a request whose chain would be dropped is refused with a sentence.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from logitloom import Chain, Vocabulary
from logitloom.engines import stop_strings
from logitloom.errors import LogitloomError, NeedsNotMet, OptionError
from logitloom.host.registry import read_vocabulary
from logitloom.process_memory import ProcessLock
from logitloom_contrib.engines.vllm.shared_folder import shared_folder
from logitloom_contrib.requests.chain_cache import ChainCache, CompiledChain
from logitloom_contrib.requests.engine_constraints import require_agreement, require_no_grammar
from logitloom_contrib.requests.permissions import Permissions
from logitloom_contrib.requests.request import LOG
from logitloom_contrib.requests.request_document import KEY
from logitloom_contrib.requests.request_record import RECORD_KEY, admitted_record

__all__ = ["CLASS_PATH", "STRUCTURED_VARIABLE", "ServedEngine", "config_of_caller"]

#: How vLLM's option ``--logits-processors`` names the class.
CLASS_PATH: Final = "logitloom_contrib.engines.vllm.vllm_processor:LogitloomProcessor"
#: Set to 1 where a release of vLLM does not show its configuration to ``validate_params``.
UNCHECKED_VARIABLE: Final = "LOGITLOOM_VLLM_UNCHECKED"
#: Set to 1 to have logitloom enforce vLLM's structured outputs; the key of the additional config with the same meaning.
STRUCTURED_VARIABLE: Final = "LOGITLOOM_VLLM_STRUCTURED_OUTPUTS"
STRUCTURED_KEY: Final = "structured_outputs"
_FRAMES: Final = 12

# Lines about requests appear where the engine's do.
LOG.parent = logging.getLogger("vllm")


class ServedEngine:
    """One engine, seen from its frontend or from a worker. Making this object costs nothing: the configuration and the
    vocabulary are read when they are first needed.

    Args:
        config: vLLM's ``VllmConfig``.
        environment: default: that of the process.
        vocabulary: of the served model; default: read from its tokenizer.
    """

    def __init__(
        self, config: Any, *, environment: Mapping[str, str] | None = None, vocabulary: Vocabulary | None = None
    ) -> None:
        self.config = config
        self.max_length = int(config.model_config.max_model_len)
        self._environment = os.environ if environment is None else environment
        self._vocabulary = vocabulary
        self._caches: dict[str, ChainCache] = {}
        self._lock = ProcessLock()

    @classmethod
    def of(cls, config: Any) -> ServedEngine:
        """The engine of a configuration; the same object for the same configuration."""
        with _LOCK:
            for engine in _ENGINES:
                if engine.config is config:
                    return engine
            _ENGINES.append(engine := cls(config))
            del _ENGINES[:-_MOST_ENGINES]
            return engine

    @property
    def chains(self) -> ChainCache:
        """The compiled chains.

        Raises:
            LogitloomError: the operator's settings are wrong, or no reader knows the tokenizer.
        """
        return self._cache()

    @property
    def structured_chains(self) -> ChainCache:
        """The compiled chains that stand for structured outputs: one processor each, which may be ``all_of``.

        Raises:
            LogitloomError: as :attr:`chains`.
        """
        return self._cache("all_of")

    def _cache(self, *more: str) -> ChainCache:
        with self._lock:
            key = " ".join(more)
            if key not in self._caches:
                permissions = Permissions.read(self._environment, self._settings(STRUCTURED_KEY))
                permissions = dataclasses.replace(permissions, allow=permissions.allow.union(more))
                if self._vocabulary is None:
                    self._vocabulary = _vocabulary_of(self.config.model_config)
                width = int(self.config.model_config.get_vocab_size())
                shared = shared_folder(self._environment)
                self._caches[key] = ChainCache(permissions, self._vocabulary, width, shared, engine="vLLM")
            return self._caches[key]

    def _settings(self, without: str = "") -> Any:
        """The table of logitloom in vLLM's additional config, without one of its keys."""
        settings = getattr(self.config, "additional_config", None)
        own = settings.get(KEY) if isinstance(settings, Mapping) else None
        return {key: own[key] for key in own if key != without} if isinstance(own, Mapping) else own

    @property
    def enforces_structured_outputs(self) -> bool:
        """Whether the operator wants logitloom to enforce vLLM's structured outputs.

        Raises:
            OptionError: the setting is neither on nor off.
        """
        own = self._settings()
        place, value = f"The variable {STRUCTURED_VARIABLE}", self._environment.get(STRUCTURED_VARIABLE, "")
        if isinstance(own, Mapping) and STRUCTURED_KEY in own:
            place, value = f"'logitloom.{STRUCTURED_KEY}' in vLLM's additional config", own[STRUCTURED_KEY]
        if not isinstance(value, (str, int)) or value not in _SWITCH:
            raise OptionError(f"{place} must be 1 (on) or 0 (off), but is {value!r}.")
        return _SWITCH[value]

    @property
    def refusal(self) -> str | None:
        """Why this engine would not run processors, or not right; None if it does."""
        config, model = self.config, self.config.model_config
        if getattr(model, "is_diffusion", False):
            return "Diffusion models do not write token by token, so vLLM cannot run a logitloom chain with them."
        if config.use_v2_model_runner:
            return None
        if config.speculative_config is not None:
            return (
                "This vLLM engine runs speculative decoding on model runner V1, which calls no custom logits "
                "processors, so a logitloom chain would be ignored. Start it without --speculative-config, or on "
                "model runner V2."
            )
        if config.scheduler_config.async_scheduling and not model.logits_processors:
            return (
                "This vLLM engine schedules asynchronously on model runner V1 and shows no token ids to logits "
                "processors found by entry point, so a logitloom chain could not be followed. Start it with "
                f"--no-async-scheduling, or with --logits-processors {CLASS_PATH}."
            )
        return None

    def chain_of(self, params: Any, admitting: bool = False) -> CompiledChain | None:
        """The chain that a request's ``SamplingParams`` ask for; None if they ask for none.

        Args:
            params: of the request.
            admitting: as for :meth:`.ChainCache.get`; otherwise the request was admitted, by this or another process.

        Raises:
            LogitloomError: saying what is wrong with the request's chain.
        """
        extra = getattr(params, "extra_args", None)
        if not extra or KEY not in extra:
            return None
        unchecked = self._environment.get(UNCHECKED_VARIABLE, "") not in ("", "0")
        return self.chains.get(extra[KEY], admitting, tried=not admitting and not unchecked)

    def admit(self, params: Any) -> None:
        """Check a request before it enters the engine.

        Raises:
            ValueError: in a sentence, which vLLM answers with HTTP 400.
        """
        extra = getattr(params, "extra_args", None)
        if not extra or KEY not in extra:
            return
        if self.refusal is not None:
            raise NeedsNotMet(self.refusal)
        try:
            compiled = self.chain_of(params, admitting=True)
            if compiled is not None and params.max_tokens is not None:
                self.chains.require_room(compiled.chain, params.max_tokens)
        except ValueError:
            raise
        except LogitloomError as error:
            raise NeedsNotMet(str(error)) from error
        assert compiled is not None
        self._admit_record(params)
        if not self.ends(params):
            raise NeedsNotMet(
                "This vLLM engine knows no end-of-sequence token, so a request with a logitloom chain could not be "
                "ended. Give the request stop_token_ids."
            )
        if not self.enforces_structured_outputs:  # otherwise the two were compiled together
            require_no_grammar(params, compiled)
        require_agreement(params, compiled)
        _hand_on_stop_strings(params, compiled.chain)

    def _admit_record(self, params: Any) -> None:
        """Check a request's wish for a record.

        Raises:
            NeedsNotMet: it cannot be written.
        """
        if admitted_record(params.extra_args, self.chains.permissions.record) is None:
            return
        if self.config.use_v2_model_runner:
            raise NeedsNotMet(
                f"The request asks for a record ({RECORD_KEY!r}), and model runner V2 keeps its tokens on the device."
            )
        if getattr(params, "n", 1) > 1:
            raise NeedsNotMet(f"A record ({RECORD_KEY!r}) is of one text, but the request asks for n={params.n}.")

    def ends(self, params: Any) -> tuple[int, ...]:
        """Ids with which the engine ends this request, the most usual first."""
        stops: Iterable[int] = (
            getattr(params, "all_stop_token_ids", None) or getattr(params, "stop_token_ids", None) or ()
        )
        known = self._vocabulary.eos if self._vocabulary is not None else ()
        stopping = sorted(stops, key=lambda token: (known.index(token) if token in known else len(known), token))
        return tuple(dict.fromkeys([*stopping, *known]))


def _hand_on_stop_strings(params: Any, chain: Chain) -> None:
    """Let the engine cut texts at the strings of a chain's ``stop``: chains see no texts.

    Raises:
        NeedsNotMet: the request keeps stop strings in its text, and the chain does not.
    """
    if not getattr(params, "detokenize", True):
        return
    own = list(getattr(params, "stop", None) or ())
    more = [string for string in stop_strings(chain) if string not in own]
    kept = [string for string in stop_strings(chain, kept=True) if string not in own]
    if more and own and params.include_stop_str_in_output:
        raise NeedsNotMet(
            f"The request keeps its stop strings in the text (include_stop_str_in_output), and its chain's 'stop' "
            f"leaves out {more[0]!r}. Give 'stop' the option include=true, or put the request's stop strings there."
        )
    if more:
        params.stop, params.include_stop_str_in_output = [*own, *more], False
    elif kept and (not own or params.include_stop_str_in_output):
        params.stop, params.include_stop_str_in_output = [*own, *kept], True
    else:
        return
    # vLLM streams no letters that may be the beginning of a string that is left out.
    params.output_text_buffer_length = 0 if params.include_stop_str_in_output else max(map(len, params.stop)) - 1


#: The values of the switch, in the environment and in the additional config (where 1 equals True).
_SWITCH: Final[Mapping[Any, bool]] = {"": False, "0": False, "1": True, 0: False, 1: True}

_ENGINES: Final[list[ServedEngine]] = []
_MOST_ENGINES: Final = 8
_LOCK: Final = ProcessLock()


def config_of_caller() -> Any:
    """The configuration of the engine that is validating a request; None if it cannot be seen.

    ``validate_params`` is a class method that gets the parameters alone. The caller of ``validate_params`` holds the
    configuration as ``vllm_config``, so the configuration is looked for among the callers.
    """
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        config = getattr(frame.f_locals.get("self"), "vllm_config", None)
        if hasattr(config, "model_config"):
            return config
    return None


def _vocabulary_of(model_config: Any) -> Vocabulary | None:
    """The vocabulary of the served model's tokenizer, ending with every id with which the engine ends a text."""
    from vllm.tokenizers import cached_tokenizer_from_config

    tokenizer = cached_tokenizer_from_config(model_config)
    if tokenizer is None:
        return None
    vocabulary = read_vocabulary(tokenizer)
    told = (model_config.try_get_generation_config() or {}).get("eos_token_id") or ()
    more = [told] if isinstance(told, int) else list(told)
    eos = [token for token in dict.fromkeys([*vocabulary.eos, *more]) if 0 <= token < vocabulary.size]
    return vocabulary if list(vocabulary.eos) == eos else vocabulary.with_eos(eos)
