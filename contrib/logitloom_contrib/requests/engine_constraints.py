"""The constraints that a request asks of the engine itself, beside a chain: refused where both cannot hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from logitloom import Chain
from logitloom.errors import NeedsNotMet
from logitloom.generation.dead_ends import truncations
from logitloom_contrib.requests.chain_cache import CompiledChain

__all__ = ["engine_constraints", "no_token_left", "require_agreement", "require_no_grammar"]

#: Options of ``SamplingParams`` with which the engine itself forbids tokens.
_OPTIONS: Final = ("min_tokens", "allowed_token_ids", "bad_words", "structured_outputs")


def engine_constraints(params: Any) -> tuple[str, ...]:
    """The options of a request with which the engine itself forbids tokens.

    Example:
        >>> from types import SimpleNamespace
        >>> engine_constraints(SimpleNamespace(min_tokens=4, bad_words=[]))
        ('min_tokens',)
    """
    return tuple(name for name in _OPTIONS if _asked(getattr(params, name, None)))


def require_no_grammar(params: Any, compiled: CompiledChain) -> None:
    """Refuse a request that has structured outputs, which the engine enforces itself, and a constraint in its chain.

    vLLM advances its own grammar by each token. Where the grammar and the chain have no token in common, this fails,
    and the request ends with an internal error.

    Args:
        params: vLLM's ``SamplingParams``.
        compiled: the request's chain.

    Raises:
        NeedsNotMet: naming the options and the processors.
    """
    mine = _constraints(compiled)
    if mine and _asked(getattr(params, "structured_outputs", None)):
        raise NeedsNotMet(
            f"The request asks for vLLM's structured outputs (structured_outputs, response_format, a tool that is "
            f"strict, or a tool_choice that forces a call) and for a chain with {_names(mine)}. The two may have no "
            f"token in common, which vLLM cannot handle. Put the whole constraint into the chain, or leave one out."
        )


def require_agreement(params: Any, compiled: CompiledChain) -> None:
    """Refuse a request whose chain and ``allowed_token_ids`` allow no first token together.

    Args:
        params: vLLM's ``SamplingParams``.
        compiled: the request's chain.

    Raises:
        NeedsNotMet: naming the ids and the processors.
    """
    allowed = getattr(params, "allowed_token_ids", None)
    if allowed and compiled.first and not _any_allowed(compiled.first, allowed):
        raise NeedsNotMet(
            f"None of the request's allowed_token_ids ({_shown(allowed)}) may begin a text of its chain, which has "
            f"{_names(_constraints(compiled))}. Give more ids, or loosen the chain."
        )


def no_token_left(chain: Chain, options: Sequence[str]) -> str:
    """The sentence for a request that has no legal token left.

    Args:
        chain: its chain.
        options: its :func:`engine_constraints`.
    """
    labels = ", ".join(chain.labels)
    if options or len(chain.labels) == 1:
        others = f"the request's {', '.join(options)}" if options else "the engine's own constraints"
        return f"No token is legal for the chain ({labels}) and {others} together. Loosen one of them."
    hard = [link for link in chain.links if not link.effect.keeps_last]
    early = [link.label for link in truncations(chain.links)]
    if early and len(hard) == 1:
        name = repr(hard[0].label)
        # What looks at logits counts on the truncations before it.
        behind = f"Put {_names(early)} behind {name}."
        remedy = behind if hard[0].effect.ignores_logits else f"Set the options of {_names(early)} to keep more."
        return f"{_names(early)} kept no token that {name} allows. {remedy}"
    found = ", ".join(label for label in chain.labels if label in {*(link.label for link in hard), *early}) or labels
    return f"Processors {found} contradict each other: together they leave no token. Loosen one of them."


def _constraints(compiled: CompiledChain) -> list[str]:
    return [link.label for link in compiled.chain.links if link.declared("stage") == "constraint"]


def _asked(value: Any) -> bool:
    # vLLM's StructuredOutputsParams may ask for nothing.
    nothing = getattr(value, "all_constraints_none", None)
    return bool(value) and not (callable(nothing) and nothing())


def _any_allowed(first: bytes, ids: Sequence[int]) -> bool:
    bits = np.unpackbits(np.frombuffer(first, dtype=np.uint8))
    index = np.asarray(ids, dtype=np.int64)
    return bool(bits[index[(index >= 0) & (index < len(bits))]].any())


def _names(labels: Sequence[str]) -> str:
    return " and ".join(repr(label) for label in labels)


def _shown(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids[:5])) + (", ..." if len(ids) > 5 else "")
