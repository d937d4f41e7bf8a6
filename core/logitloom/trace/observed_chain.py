"""A chain with a last processor that records what the others do."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Self

from logitloom.arguments import instance
from logitloom.chain import Chain
from logitloom.chain.links import Link
from logitloom.chain.state import ChainFingerprint
from logitloom.errors import OptionError, StateMismatch

__all__ = ["ObservedChain"]


class ObservedChain(Chain):
    """A chain with a last link that records what the other links do. The chain of these is in ``_inner``."""

    _inner: Chain

    @property
    def unrecorded(self) -> Chain:
        """The chain that is recorded."""
        return self._inner

    @functools.cached_property
    def fingerprint(self) -> ChainFingerprint:
        """None: no other process has the record that states refer to.

        Raises:
            StateMismatch: naming the remedy.
        """
        raise StateMismatch(
            f"The state of a {type(self).__name__} refers to the record of this process, so it cannot be pickled or "
            f"saved. Send states of its attribute 'unrecorded', or send the tokens and make the state with replay."
        )

    def _recordable(self, chain: Chain) -> None:
        """Raise unless a chain can be recorded.

        Raises:
            OptionError: for what is no chain, and for a chain that is recorded already.
        """
        instance(chain, Chain, "chain", OptionError)
        if isinstance(chain, ObservedChain):
            raise OptionError(
                f"A {type(self).__name__} cannot record a {type(chain).__name__}: each records by its own steps, so "
                f"one of both would miss them. Give the attribute 'unrecorded' of the {type(chain).__name__}, the "
                f"chain itself."
            )

    def again(self, chain: Chain) -> Self:
        """The observed chain of another chain, which writes into the same record."""
        raise NotImplementedError(f"{type(self).__name__} must define again(chain).")

    def configure(self, *, tokenizer: Any = None, model: Any = None, **options: dict[str, Any]) -> Self:
        """As :meth:`Chain.configure`; the new chain writes into the same record."""
        return self.again(self._inner.configure(tokenizer=tokenizer, model=model, **options))

    def part(self, links: Sequence[Link]) -> Chain:
        """As :meth:`Chain.part`; if the link that records is among the links, the new chain writes into its record."""
        others = [link for link in links if link is not self.links[-1]]
        part = self._inner.part(others)
        return part if len(others) == len(links) else self.again(part)
