"""Copies of adapters: each is made anew of the same things, and has rows of its own."""

from __future__ import annotations

from typing import Any

__all__ = ["MadeAnew"]


class MadeAnew:
    """An adapter whose copies and pickles are made again from the adapter's arguments, and know no rows.

    Callers copy the objects that they pass to engines (``copy.deepcopy`` of generation options), and send them to other
    processes. A copy in the same process shares the chain and the model. A pickle contains the model, if there is one,
    as the model's library pickles it.
    """

    def _made_of(self) -> tuple[Any, ...]:
        """The arguments of the class."""
        raise NotImplementedError

    def __reduce__(self) -> Any:
        return type(self), self._made_of()

    def __copy__(self) -> Any:
        return type(self)(*self._made_of())

    def __deepcopy__(self, memo: Any) -> Any:
        return type(self)(*self._made_of())
