"""What a processor does to a row of logits: one value from which the host derives every optimisation of a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from logitloom.arrays.row_operations import RowOperation
from logitloom.errors import InvalidSignature

__all__ = ["BIAS", "MASK", "PENALTY", "REWEIGHT", "SCALE", "TRUNCATION", "Effect"]

#: How logits are changed.
Write = Literal["forbids", "adds", "scales", "replaces"]
#: What the change of a token's logit depends on.
Read = Literal["logit", "higher", "distribution", "ids", "seen"]
#: What stays as it was.
Keep = Literal["order", "forbidden", "last"]


@dataclass(frozen=True)
class Effect:
    """What a processor does to a row of logits. The default promises nothing, and every processor may declare it.

    A chain relies on each promise and the conformance kit checks each. A promise that is not made costs time only.

    Attributes:
        writes: how logits are changed. ``forbids``: some become -inf, the others stay. ``adds``: finite numbers are
            added. ``scales``: they are multiplied by finite positive numbers. ``replaces``: in another way.
        reads: what the change of a token's logit depends on, besides options, the row's seed and its length.
            ``logit``: the value of the token's own logit, for example its sign. Without ``logit``, adding one number to
            all logits of a row leaves the row's resulting distribution as it is. ``higher``: the logits of tokens that
            are at least as likely. ``distribution``: all logits of the row. ``ids``: the ids of tokens, how many tokens
            there are, or how many of them are forbidden. ``seen``: where the row has had tokens, prompt included.
            Without ``ids`` and ``seen``, a processor that keeps ``forbidden`` may be given the survivors of a
            truncation alone, in the order of their ids; ``context.vocab_size`` is their number then.
        keeps: the properties of the row that the change preserves. ``order``: a token that was less likely than another
            one is not more likely afterwards. ``forbidden``: what comes in as -inf goes out as -inf. ``last``: the only
            legal token of a row stays legal. Every effect but ``replaces`` implies ``forbidden``; ``adds`` and
            ``scales`` also imply ``last``.
        at_most: how many of the most likely tokens stay legal, besides ties with the last of them; None: no fixed
            number.
        operation: the whole change as an operation that compiled loops know; None: there is none. A processor with an
            operation goes by ``context.backend`` and names no array library. If the operation has a table, that is the
            one array of the processor's state, and a method ``next_state(state, context)`` returns the state after the
            newly accepted tokens. Where the state may be overwritten, the loop enters them into the table itself.

    Raises:
        InvalidSignature: if a field has a word that is not listed above.

    Example:
        >>> TRUNCATION.but(at_most=5).at_most, MASK.keeps_forbidden, Effect().keeps_forbidden
        (5, True, False)
    """

    writes: Write = "replaces"
    reads: tuple[Read, ...] | frozenset[Read] = frozenset(get_args(Read))
    keeps: tuple[Keep, ...] | frozenset[Keep] = frozenset()
    at_most: int | None = None
    operation: RowOperation | None = None

    def __post_init__(self) -> None:
        given = {"writes": ([self.writes], Write), "reads": (self.reads, Read), "keeps": (self.keeps, Keep)}
        for field, (words, known) in given.items():
            unknown = sorted(set(words) - set(get_args(known)))
            if unknown:
                raise InvalidSignature(
                    f"An effect cannot have {field}={unknown[0]!r}. Known are {', '.join(map(repr, get_args(known)))}."
                )
        implied: set[Keep] = set() if self.writes == "replaces" else {"forbidden"}
        implied |= {"last"} if self.writes in ("adds", "scales") else set()
        object.__setattr__(self, "reads", frozenset(self.reads))
        object.__setattr__(self, "keeps", frozenset(self.keeps) | implied)

    def but(self, **changes: Any) -> Effect:
        """The effect with other fields; what the old ``writes`` implied for ``keeps`` stays."""
        return dataclasses.replace(self, **changes)

    @property
    def forbids_only(self) -> bool:
        """Whether logits become -inf or stay."""
        return self.writes == "forbids"

    @property
    def ignores_logits(self) -> bool:
        """Whether it forbids tokens, whatever their logits are."""
        return self.forbids_only and set(self.reads) <= {"ids", "seen"}

    @property
    def keeps_forbidden(self) -> bool:
        """Whether what comes in as -inf goes out as -inf."""
        return "forbidden" in self.keeps

    @property
    def keeps_last(self) -> bool:
        """Whether the only legal token of a row stays legal."""
        return "last" in self.keeps

    @property
    def keeps_order(self) -> bool:
        """Whether the order of the tokens stays, and with it the most likely token."""
        return "order" in self.keeps

    @property
    def ignores_shifts(self) -> bool:
        """Whether adding one number to all logits of a row leaves the row's resulting distribution as it is."""
        return "logit" not in self.reads

    @property
    def ignores_ids(self) -> bool:
        """Whether it may be given the survivors of a truncation alone."""
        return self.keeps_forbidden and not {"ids", "seen"} & set(self.reads)

    @property
    def ignores_less_likely(self) -> bool:
        """Whether it keeps the order, and less likely tokens make no difference to a token."""
        return self.keeps_order and "distribution" not in self.reads

    @staticmethod
    def of(effects: Iterable[Effect]) -> Effect:
        """The effect of several processors of which each may change a row; that of none changes nothing."""
        each = list(effects)
        if not each:
            return Effect("forbids", (), ("order", "last"))
        writes: set[Write] = {effect.writes for effect in each}
        return Effect(
            writes=writes.pop() if len(writes) == 1 else "replaces",
            reads=frozenset().union(*(effect.reads for effect in each)),
            keeps=frozenset(get_args(Keep)).intersection(*(effect.keeps for effect in each)),
        )


#: Forbid tokens, whatever their logits are. A constraint.
MASK: Final = Effect("forbids", reads=("ids", "seen"))
#: Add numbers to the logits of tokens, whatever those are.
BIAS: Final = Effect("adds", reads=("ids", "seen"))
#: Add numbers to the logits of tokens that the row has had, whatever these logits are.
PENALTY: Final = Effect("adds", reads=("seen",))
#: Multiply all logits of a row by one number.
SCALE: Final = Effect("scales", reads=(), keeps=("order",))
#: Forbid the less likely tokens, and never all.
TRUNCATION: Final = Effect("forbids", reads=("distribution",), keeps=("order", "last"))
#: Give the legal tokens other probabilities.
REWEIGHT: Final = Effect("replaces", reads=("distribution", "ids", "seen"), keeps=("forbidden", "last"))
