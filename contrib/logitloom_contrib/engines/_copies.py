"""Copies of adapters: each is made anew of the same things, and has rows of its own."""

from __future__ import annotations

from typing import Any, Self

from logitloom import Chain

__all__ = ["MadeAnew"]


class MadeAnew:
    """An adapter of a chain; its copies and pickles are made again from its arguments, and know no rows.

    Callers copy the objects that they pass to engines (``copy.deepcopy`` of generation options), and send them to other
    processes. A copy in the same process shares the chain and the model. A pickle contains the model, if there is one,
    as the model's library pickles it.
    """

    chain: Chain
    _arguments: tuple[Any, ...]

    def __new__(cls, *arguments: Any) -> Self:
        made = super().__new__(cls)
        made._arguments = arguments
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.chain!r}>"

    def __reduce__(self) -> Any:
        return type(self), self._arguments

    def __copy__(self) -> Self:
        return type(self)(*self._arguments)

    def __deepcopy__(self, memo: Any) -> Self:
        return type(self)(*self._arguments)
