"""Checking, when a chain is bound to an engine, that the engine can run it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from logitloom.arguments import shown
from logitloom.chain import Chain
from logitloom.errors import NeedsNotMet

__all__ = ["DirectCall", "EngineAdapter", "bind"]


class EngineAdapter(Protocol):
    """What an entry point of the group ``logitloom.engines`` names: a function that makes a chain ready for an engine.

    The function has a parameter ``chain``. Its other parameters (a model, a tokenizer, the name of a request) and its
    result depend on the engine: the result is the engine's processor object, its request parameters, or nothing if the
    function registers the chain. The function calls :func:`bind` first, so that a chain which the engine cannot run is
    refused with a sentence.
    """

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Adapt a chain.

        Raises:
            ChainIncomplete: options of the chain are missing.
            NeedsNotMet: a processor needs what the engine does not give.
        """
        ...


class DirectCall(Protocol):
    """A function ``direct_call`` in the module of an adapter: it answers calls of chains given to the engine itself.

    The function is optional. A chain that is called asks the plug-in of each imported engine; an engine's plug-in has
    the name of the engine's package. The first answer that is not None wins.
    """

    def __call__(self, chain: Chain, given: tuple[Any, ...], more: dict[str, Any]) -> Any:
        """Answer a call.

        Args:
            chain: the chain.
            given: the positional arguments.
            more: the other arguments.

        Returns:
            The result that the engine expects from its own processor; None if the engine makes no calls with such
            arguments.

        Raises:
            NeedsNotMet: the engine makes such calls, but needs its adapter; the sentence names the adapter.
        """
        ...


def bind(chain: Chain, engine: str, gives: Collection[str], *, tokenizer: Any = None, model: Any = None) -> Chain:
    """The chain with a tokenizer's vocabulary, after checking that an engine can run all of it.

    Args:
        chain: the processors.
        engine: the engine's name, for messages.
        gives: the values of :data:`logitloom.processor.NEEDS` that the engine gives; and ``every_step`` if the engine
            calls the chain once per token and row, and keeps the chain's states as long as their rows.
        tokenizer: any tokenizer; default: the chain's vocabulary stays.
        model: a model, or the adapter of one, that the engine gives as well.

    Raises:
        ChainIncomplete: options are missing.
        NeedsNotMet: a processor needs what the engine does not give, or there is no chain.
    """
    if not isinstance(chain, Chain):
        raise NeedsNotMet(f"{engine} runs a chain, but was given {shown(chain)}. Give what processors.load returns.")
    if tokenizer is not None:
        chain = chain.configure(tokenizer=tokenizer)
    if chain.branches > 1:
        raise NeedsNotMet(
            f"{engine} feeds one branch of each sequence, but the chain takes {chain.branches} rows of logits per "
            f"sequence. Configure its guidance with form='two_pass'."
        )
    watchful = [link.label for link in chain.links if link.sees_every_step]
    if watchful and "every_step" not in gives:
        raise NeedsNotMet(
            f"{engine} may rebuild a row from its tokens, or show the chain several tokens at once, but "
            f"{', '.join(map(repr, watchful))} must see the logits of every step. Decode with logitloom.generation, or "
            f"leave the processor out of the chain."
        )
    chain.require({*gives, "model"} if model is not None else gives, engine=engine)
    return chain
