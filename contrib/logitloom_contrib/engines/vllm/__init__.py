"""vLLM: chains named by each request, inside the engine's batch, for both of its model runners.

Installing logitloom is enough: the engine loads the processor by its entry point (``vllm.logits_processors``) and a
request brings its chain as plain data, checked before it is admitted::

    SamplingParams(extra_args=to_vllm(chain))                       # in Python
    extra_body={"vllm_xargs": to_vllm(chain, text=True)}            # over HTTP

:mod:`logitloom_contrib.requests` reads, checks and runs the chains of requests. ``served_engine`` says which chains an
engine can run, ``misplaced`` refuses requests whose chain the engine would not see, and ``batch_order`` and
``device_history`` translate the reports of the two runners about their batches.
"""

from __future__ import annotations

from typing import Any, Final

from logitloom import Chain
from logitloom.document import to_document, to_json
from logitloom.engines import bind
from logitloom_contrib.requests.request_document import KEY
from logitloom_contrib.requests.request_record import RECORD_KEY, read_record, record_name

__all__ = ["ENGINE", "GIVES", "read_record", "to_vllm"]

#: The values that vLLM gives to processors.
GIVES: Final = frozenset({"prompt", "length", "history", "vocabulary"})
ENGINE: Final = "vLLM"


def to_vllm(chain: Chain, *, text: bool = False, record: str | None = None) -> dict[str, Any]:
    """A chain as ``SamplingParams(extra_args=...)``, or as the ``vllm_xargs`` of an HTTP request.

    The tokenizer is not part of it: the engine uses the served model's.

    Args:
        chain: processors loaded by name.
        text: as JSON text, the only form in which HTTP requests can bring nested values.
        record: a name for the record of the distributions of the request's tokens; :func:`read_record` reads it, and a
            name is used once.

    Returns:
        ``{"logitloom": ...}``.

    Raises:
        NeedsNotMet: the chain needs what the engine does not give, or the name is none.
        ChainIncomplete: options are missing.
        ChainDocumentError: a processor has no name, or an option no plain form.

    Example:
        >>> from logitloom import processors
        >>> to_vllm(processors.load(("top_k", {"k": 5})))
        {'logitloom': {'logitloom': 1, 'processor': [{'use': 'top_k', 'options': {'k': 5}}]}}
    """
    bind(chain, ENGINE, GIVES)
    asked = {KEY: to_json(chain) if text else to_document(chain)}
    if record is not None:
        asked[RECORD_KEY] = record
        record_name(asked)
    return asked
