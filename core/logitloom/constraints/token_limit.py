"""Limits on the number of tokens of a row, as :class:`.ConstraintProcessor` keeps them.

The limit is the option ``finish_within``, or what the loop or the engine tells (``Context.max_new_tokens``). The state
of a row is then the constraint's state and the number of tokens that are left. A token is allowed only if the text
after it can still be completed, end-of-sequence included, in the tokens that are left. While more tokens are left than
:meth:`Constraint.most_after` says, nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from logitloom.arrays.backend import Array, Backend
from logitloom.context import Context
from logitloom.contract import UNKNOWN, Constraint, State
from logitloom.display.warning import warn
from logitloom.errors import GenerationError, OptionError
from logitloom.host.entry_points import PluginName
from logitloom.rows.tree import Rows

__all__ = ["LimitedState", "host_list", "row_limits", "tokens_left", "unlimited"]


class LimitedState(NamedTuple):
    """The state of rows with a limit.

    Attributes:
        states: the constraint's states, as of rows without a limit.
        left: tokens that each row may still take: ``[rows] int32`` where a step runs on the device, else ``Rows``.
    """

    states: Any
    left: Any


def unlimited(state: Any) -> Any:
    """The constraint's states of a processor's state, with or without a limit."""
    return state.states if isinstance(state, LimitedState) else state


def row_limits(
    name: str | PluginName,
    constraint: Constraint,
    starts: Sequence[State],
    own: int | None,
    context: Context,
    *,
    has_option: bool = True,
) -> list[int] | None:
    """The tokens that each row may take; ``None`` if there is no limit, or if the constraint does not know how many
    tokens a text still needs.

    Args:
        name: of the processor, for messages.
        constraint: the constraint.
        starts: the start state of each row.
        own: the option ``finish_within``; 0 for no limit.
        context: of the start; ``max_new_tokens`` is the limit of the loop or the engine.
        has_option: whether the processor has the option ``finish_within``, for messages.

    Raises:
        OptionError: if ``finish_within`` is too small for a row, or the constraint cannot tell what is left.
        GenerationError: if the limit of the loop or the engine is too small for a row.

    Warns:
        LogitloomWarning: if a constraint says why it cannot keep to the limit of the loop or the engine, or has no
            method ``least_tokens``.
    """
    known = context.max_new_tokens
    if own == 0 or (own is None and (known is None or not constraint.restricts or not constraint.vocabulary.eos)):
        return None
    tells = type(constraint).least_tokens is not Constraint.least_tokens
    setting = f"the option 'finish_within' of {name}" if has_option else f"'finish_within' in the class of {name}"
    told = [known] * len(starts) if known is None or isinstance(known, int) else [int(each) for each in known]
    smallest = min(each for each in (own, *told) if each is not None)
    # From each start, some token leads to a state that needs at most ``most_after`` tokens.
    most = {start: constraint.most_after(start, max(smallest - 2, 0)) for start in dict.fromkeys(starts)}
    least = {start: None if most[start] + 2 <= smallest else constraint.least_tokens(start) for start in most}
    unbounded = [start for start in most if least[start] is None and most[start] == UNKNOWN]
    unknown = [start for start in unbounded if constraint.most_after(start) == UNKNOWN]
    if unknown or (own is None and not tells):
        silent = "" if tells else f"The class {type(constraint).__name__} does not define the method 'least_tokens'."
        because = constraint.unlimited_because or silent
        if own is None:
            if because:
                warn(
                    f"Texts of {name} may be cut at the limit of {smallest} tokens, because it is unknown how many "
                    f"tokens complete them. {because} Set {setting} to 0 if they may be cut.",
                )
            return None
        raise OptionError(
            f"Option 'finish_within' of {name}: it is unknown how many tokens this constraint needs, so no text is "
            f"sure to be complete within {own}. {because + ' ' if because else ''}Leave the option out, or use a "
            f"constraint that can tell."
        )
    about = "" if constraint.exact_least else "about "
    limits = []
    for row, start in enumerate(starts):
        needed = (least[start] or 0) + 1
        if own is not None and needed > own:
            raise OptionError(
                f"Option 'finish_within' of {name}: {own} is too few, because the shortest text needs {about}{needed} "
                f"tokens, end-of-sequence included. Give at least {needed}."
            )
        limit = told[row]
        if limit is not None and needed > limit:
            raise GenerationError(
                f"Row {row} may generate {limit} tokens, but the shortest text that {name} allows needs "
                f"{about}{needed}, end-of-sequence included. Allow at least {needed} tokens (max_tokens, "
                f"max_new_tokens or max_length), or set {setting} to 0 for texts that may be cut."
            )
        limits.append(min(each for each in (own, limit) if each is not None))
    return limits


def tokens_left(left: Any, context: Context) -> Any:
    """The tokens that each row may still take after the accepted tokens."""
    tokens = context.tokens
    if tokens is None:
        return left
    if not isinstance(left, Rows):
        taken = context.backend.xp.sum(context.backend.cast(tokens >= 0, "int32"), axis=1)
        return left - context.backend.cast(taken, "int32")
    listed = host_list(context.backend, tokens)
    # Ids are not negative, and -1 stands for no token.
    return Rows([have - len(row) + row.count(-1) for have, row in zip(left, listed, strict=True)])


def host_list(backend: Backend, array: Array) -> list[Any]:
    """The values of an array as a list; those of NumPy and PyTorch in host memory make it with nothing in between."""
    if not backend.on_host or not backend.has_values(array):
        array = backend.to_numpy(array)
    listed: list[Any] = array.tolist()
    return listed
