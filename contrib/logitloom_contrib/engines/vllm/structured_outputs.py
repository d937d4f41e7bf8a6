"""vLLM's structured outputs (``response_format``, strict tools, ``structured_outputs``) as constraints of logitloom.

A request is checked in the process that serves it, and its constraint is compiled again in the engine's process, in
one of vLLM's threads for this, while other requests go on.
"""

from __future__ import annotations

import json
import weakref
from typing import Any, Final

import numpy as np

from logitloom import Context
from logitloom.errors import ChainDocumentError, LogitloomError, NeedsNotMet
from logitloom_contrib.engines.vllm.served_engine import ServedEngine
from logitloom_contrib.requests.chain_cache import CompiledChain
from logitloom_contrib.requests.engine_constraints import require_agreement
from logitloom_contrib.requests.request_constraint import RequestConstraint
from logitloom_contrib.response_format import constraint_entry

__all__ = ["BACKEND", "StructuredOutputs"]

#: The name of the backend in requests that were checked.
BACKEND: Final = "logitloom"
#: Options of a request's structured outputs that change what its schema means -> what says the same.
_OTHERS: Final = {
    "disable_additional_properties": '"additionalProperties": false in the schema',
    "whitespace_pattern": "disable_any_whitespace, or the processor json with its option whitespace",
}


class StructuredOutputs:
    """The structured outputs of the requests to one engine.

    Args:
        engine: the engine.
    """

    def __init__(self, engine: ServedEngine) -> None:
        self.engine = engine

    def admit(self, params: Any) -> None:
        """Check the structured outputs of a request, together with the constraints of its chain.

        Args:
            params: vLLM's ``SamplingParams`` with ``structured_outputs``; noted there is which backend checked them.

        Raises:
            LogitloomError: saying what is wrong.
        """
        given = params.structured_outputs
        if getattr(self.engine.config.model_config, "is_diffusion", False):
            raise NeedsNotMet("Diffusion models do not write token by token, so no constraint can follow their texts.")
        if given._backend not in (None, BACKEND):
            raise NeedsNotMet(
                f"The request names the backend {given._backend!r} for structured outputs, and logitloom enforces them "
                f"on this server. Leave out '_backend'."
            )
        for name, remedy in _OTHERS.items():
            if getattr(given, name, None):
                raise NeedsNotMet(f"logitloom does not read {name!r} of structured outputs. Write {remedy}.")
        compiled = self._compiled(params, admitting=True)
        if params.max_tokens is not None:
            self.engine.structured_chains.require_room(compiled.chain, params.max_tokens)
        require_agreement(params, compiled)
        given._backend = BACKEND

    def of_request(self, request: Any) -> RequestConstraint:
        """The constraint of a request that was checked.

        Args:
            request: vLLM's ``Request``.

        Raises:
            LogitloomError: the constraint cannot be had in this process.
        """
        params = request.sampling_params
        if params.structured_outputs._backend != BACKEND:
            raise NeedsNotMet(
                f"Another process checked this request for the backend {params.structured_outputs._backend!r}, and "
                f"logitloom enforces structured outputs in this one. Set all processes of the server alike."
            )
        prompt, limit = request.num_prompt_tokens, self.engine.max_length
        most = max(min(limit - prompt, request.max_tokens or limit), 1)
        # The request holds its constraint, and must not be held by it.
        held = weakref.ref(request)

        def generated() -> int:
            alive = held()
            return 0 if alive is None else int(alive.num_output_tokens)

        chain = self._compiled(params, admitting=False).chain
        return self._begun(chain, request.prompt_token_ids, most, stops=params.all_stop_token_ids, generated=generated)

    def of_text(self, kind: str, text: str, stops: Any = None) -> RequestConstraint:
        """The constraint that a text of some kind stands for, without a limit on tokens.

        Args:
            kind: as :func:`.constraint_entry`.
            text: as there.
            stops: further ids that end the request.

        Raises:
            LogitloomError: saying what is wrong.
        """
        chain = self.engine.structured_chains.get([constraint_entry(kind, text)]).chain
        return self._begun(chain, None, None, stops=stops or ())

    def _begun(self, chain: Any, prompt: Any, most: int | None, **given: Any) -> RequestConstraint:
        logits = np.zeros((1, self.engine.structured_chains.vocab_size), dtype=np.float32)
        context = Context.start(
            logits, prompt=[list(prompt or [0])], max_length=self.engine.max_length, vocabulary=chain.vocabulary,
            max_new_tokens=most,
        )  # fmt: skip
        return RequestConstraint.begin(chain.links[0].processor, context, **given)

    def _compiled(self, params: Any, admitting: bool) -> CompiledChain:
        """A chain of one processor: the structured outputs, together with the constraints of the request's chain."""
        entry, beside = _entry(params.structured_outputs), self._beside(params, admitting)
        entries = [{"use": "all_of", "options": {"inner": [entry, *beside]}}] if beside else [entry]
        try:
            return self.engine.structured_chains.get(entries, admitting, tried=not admitting)
        except LogitloomError as error:
            if not beside:
                raise
            names = " and ".join(repr(each["use"]) for each in beside)
            raise ChainDocumentError(
                f"The request asks for structured outputs ({entry['use']!r}) and for a chain with {names}, and one "
                f"text must satisfy both: {error}"
            ) from error

    def _beside(self, params: Any, admitting: bool) -> list[dict[str, Any]]:
        """The constraints of the request's chain, as entries of its document."""
        compiled = self.engine.chain_of(params, admitting)
        if compiled is None:
            return []
        found = []
        for entry, link in zip(json.loads(compiled.key)["processor"], compiled.chain.links, strict=True):
            if link.declared("stage") != "constraint":
                continue
            if not link.is_constraint:
                raise NeedsNotMet(
                    f"The request asks for structured outputs and for a chain with {link.label!r}, which cannot be "
                    f"decided together with another constraint. Leave one of them out."
                )
            found.append(entry)
        return found


def _entry(given: Any) -> dict[str, Any]:
    """The processor that ``StructuredOutputsParams`` stand for."""
    from vllm.v1.structured_output.request import get_structured_output_key

    kind, text = get_structured_output_key(given)
    name = kind.name.lower()
    compact = given.disable_any_whitespace and name in ("json", "json_object")
    return constraint_entry(name, text, **({"whitespace": "compact"} if compact else {}))
