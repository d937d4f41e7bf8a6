"""What the body of a request asks for: one meaning of ``response_format``, ``tools`` and chains in all servers.

A server that runs chains itself (mlx-lm, llama.cpp) reads bodies with :func:`asked_chain`. vLLM reads
``response_format`` and ``tools`` itself, before logitloom sees a request.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

from logitloom import processors
from logitloom.errors import NeedsNotMet, OptionError
from logitloom_contrib.requests.permissions import Permissions
from logitloom_contrib.requests.request_document import KEY, read
from logitloom_contrib.requests.request_key import require_right_fields, require_right_key
from logitloom_contrib.response_format import processors_of

__all__ = ["asked_chain"]


def asked_chain(
    body: Mapping[str, Any], *, chat_template: str | None = None, permissions: Permissions | None = None
) -> Any:
    """The chain that a request asks for, as a document or a list of processors; None if it asks for none.

    ``response_format`` and ``tools`` are each a constraint. A chain of the request may add samplers, penalties and
    biases to one of them.

    Args:
        body: the request's JSON.
        chat_template: of the model, from which the form of its tool calls is found.
        permissions: what requests may ask for.

    Raises:
        NeedsNotMet: it asks for two constraints at once, for a form that does not exist, or in a field that nobody
            reads.
        LogitloomError: a chain that is added to ``response_format`` or ``tools`` is invalid.

    Example:
        >>> asked_chain({"response_format": {"type": "json_object"}})
        [{'use': 'json', 'options': {'schema': {'type': 'json_object'}}}]
        >>> sampler = [{"use": "top_k", "options": {"k": 5}}]
        >>> [each["use"] for each in asked_chain({"response_format": {"type": "json_object"}, "logitloom": sampler})]
        ['json', 'top_k']
    """
    require_right_fields(body)
    extra = body.get("vllm_xargs")
    if extra is not None and not isinstance(extra, Mapping):
        raise NeedsNotMet("'vllm_xargs' of a request is a table, such as {'logitloom': [...]}, but is none here.")
    require_right_key(extra or ())
    chains = [given for given in (body.get(KEY), (extra or {}).get(KEY)) if given is not None]
    if len(chains) > 1:
        raise NeedsNotMet(f"The request has {KEY!r} twice, at the top and in 'vllm_xargs'. Give one of them.")
    meant = {
        "response_format": processors_of(body.get("response_format")),
        "tools": _of_tools(body, chat_template),
    }
    constraints = [name for name, chain in meant.items() if chain is not None]
    if len(constraints) > 1:
        raise NeedsNotMet(
            "The request asks for a constraint in 'response_format' and in 'tools'. Give one of them; tool_choice "
            "'none' leaves tools out."
        )
    if not constraints:
        return chains[0] if chains else None
    [name] = constraints
    constraint = meant[name] or []
    if not chains:
        return constraint
    added = read(chains[0], Permissions() if permissions is None else permissions).document["processor"]
    for entry in added:
        if processors.describe(entry["use"]).stage == "constraint":
            raise NeedsNotMet(
                f"The request asks for a constraint in {KEY!r} ({entry['use']!r}) and in {name!r}. Give one of them; a "
                f"chain of samplers and penalties may stand beside {name!r}."
            )
    return [*constraint, *added]


def _of_tools(body: Mapping[str, Any], chat_template: str | None) -> list[dict[str, Any]] | None:
    """A field that is null counts as absent."""
    tools, choice, parallel = (body.get(name) for name in ("tools", "tool_choice", "parallel_tool_calls"))
    choice = "auto" if choice is None else choice
    if not tools and choice not in ("auto", "none"):
        raise NeedsNotMet(f"The request has tool_choice {choice!r:.100} and no tools. Give the tools in 'tools'.")
    if not tools or choice == "none":
        return None
    form = os.environ.get("LOGITLOOM_TOOL_FORMAT", "auto")
    options = {"tools": tools, "choice": choice, "format": form}
    if parallel is not None:
        options["parallel"] = parallel
    if form == "auto":
        is_told = chat_template is not None and _tells_calls(chat_template)
        if not is_told and choice == "auto":
            return None  # the model cannot call tools, and need not
        if not is_told:
            raise NeedsNotMet(
                f"The request has tool_choice {choice!r:.100}, and the model has no chat template that says how calls "
                f"are written. Start the server with the form's name, such as LOGITLOOM_TOOL_FORMAT=hermes."
            )
        options["chat_template"] = chat_template
    return [{"use": "tool_call", "options": options}]


@functools.lru_cache(maxsize=16)
def _tells_calls(chat_template: str) -> bool:
    """Whether a chat template says how calls of tools are written."""
    try:
        processors.load(("tool_call", {"tools": [{"name": "any"}], "format": "auto", "chat_template": chat_template}))
    except OptionError:
        return False
    return True
