"""A chain that somebody gave to an engine as if it were the engine's own kind of processor.

Every engine's processors are called with ids and logits, in shapes and types by which the engine can be known. The
caller is told which adapter makes what the engine takes. llama-cpp-python would print such an error and go on without
the chain, so there the adapter is put in between.
"""

from __future__ import annotations

import weakref
from typing import Any, Final, NoReturn

from logitloom.chain.links import Link
from logitloom.errors import LogitloomError, NeedsNotMet
from logitloom.processor import Processor
from logitloom.registry import load_plugin

__all__ = ["call_directly"]

_ADAPTERS: Final = (
    "transformers: to_transformers(chain, model, tokenizer); mlx-lm: to_mlx_lm(chain, tokenizer=tokenizer); "
    "llama-cpp-python: to_llama_cpp(chain, llama); vLLM: SamplingParams(extra_args=to_vllm(chain))"
)
_IN_LLAMA_CPP: Final[weakref.WeakKeyDictionary[Any, Any]] = weakref.WeakKeyDictionary()


def call_directly(chain: Any, given: tuple[Any, ...], more: dict[str, Any]) -> Any:
    """What a chain answers when it is called as an engine calls its own processors.

    Returns:
        llama-cpp-python's scores, processed.

    Raises:
        NeedsNotMet: naming the adapter.
    """
    kinds = [(type(each).__module__.split(".")[0], getattr(each, "ndim", -1)) for each in given]
    if not more and kinds == [("numpy", 1), ("numpy", 1)]:
        member = _IN_LLAMA_CPP.get(chain)
        if member is None:
            member = _IN_LLAMA_CPP[chain] = _in_llama_cpp(chain)
        return member(*given)
    engine = {"torch": "transformers", "mlx": "mlx_lm"}.get(kinds[0][0]) if kinds else None
    if engine is None:
        raise NeedsNotMet(
            f"{chain!r} was called as if it were an engine's processor. Make one of it with the engine's adapter, of "
            f"logitloom_contrib.engines ({_ADAPTERS}); a loop of your own calls chain.process(logits, state, context)."
        )
    raise NeedsNotMet(
        f"{chain!r} was given to {'mlx-lm' if engine == 'mlx_lm' else engine} as if it were one of its processors. "
        f"Give to_{engine}(chain, {'model, tokenizer' if engine == 'transformers' else 'tokenizer=tokenizer'}) of "
        f"logitloom_contrib.engines.{engine} instead."
    )


def _in_llama_cpp(chain: Any) -> Any:
    adapter: Any = load_plugin("engines", "llama_cpp")
    try:
        return adapter(chain)
    except LogitloomError as error:
        # The library would swallow it here; the adapter knows how to raise it.
        return adapter(chain.part([Link("refused", None, None, processor=_Refused(error))]))


class _Refused(Processor):
    """A processor that raises."""

    def __init__(self, error: LogitloomError) -> None:
        self._error = error

    def process(self, logits: Any, state: Any, context: Any) -> NoReturn:
        raise self._error
