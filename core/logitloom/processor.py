"""What a processor declares about itself, with the defaults; deriving from :class:`Processor` is optional."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Literal, Protocol

from logitloom import options
from logitloom.row_operations import RowOperation
from logitloom.vocabulary import Vocabulary

__all__ = ["NEEDS", "STAGES", "Need", "Processing", "Processor", "Stage"]

#: Where in a chain a processor belongs.
Stage = Literal["guidance", "penalty", "constraint", "warp"]

#: Stages in the order in which they belong.
STAGES: tuple[Stage, ...] = ("guidance", "penalty", "constraint", "warp")

#: The name of something that a processor may need.
Need = Literal["prompt", "length", "history", "vocabulary", "model", "chosen_logprob"]

#: What a processor may need, and how the need is met.
NEEDS: dict[Need, str] = {
    "prompt": "the prompt's token ids per row (context.prompt)",
    "length": "the number of tokens per row, which the chain counts (context.length, context.step)",
    "history": "the tokens of each row, which the chain keeps (context.sequence); the caller must say max_length",
    "vocabulary": "a tokenizer (load(..., tokenizer=...)) or context.vocabulary",
    "model": "a model adapter (load(..., model=...)) or context.model",
    "chosen_logprob": "the log-probability with which the sampler chose each token (context.chosen_logprob)",
}


class OfLogits(Protocol):
    """A processor without state that looks at nothing but the logits."""

    def process(self, *, logits: Any) -> Any:
        """The new logits."""


class OfLogitsAndContext(Protocol):
    """A processor without state."""

    def process(self, *, logits: Any, context: Any) -> Any:
        """The new logits."""


class OfLogitsAndState(Protocol):
    """A processor with a state that looks at nothing else."""

    def process(self, *, logits: Any, state: Any) -> tuple[Any, Any]:
        """The new logits and the new state."""


class OfAll(Protocol):
    """A processor with a state."""

    def process(self, *, logits: Any, state: Any, context: Any) -> tuple[Any, Any]:
        """The new logits and the new state."""


#: What has a method ``process``: arguments go by their names, in any order, and any but the logits may be left out.
Processing = OfLogits | OfLogitsAndContext | OfLogitsAndState | OfAll


class Processor:
    """Base class for processors that are frozen dataclasses of options; checks them on construction.

    The host reads these attributes from any object, derived from this class or not; they may also be properties
    that depend on the options. A first processor declares none of them: what is not declared is not promised, so the
    host asks, restores or leaves out, and the result is the same.

    Attributes:
        stage: where the processor belongs: ``guidance``, ``penalty``, ``constraint`` or ``warp``.
        needs: a subset of :data:`NEEDS`.
        branches: rows of logits per sequence that ``process`` takes (2 for one-pass guidance); it returns one.
        mask_only: sets entries to -inf and changes no other.
        preserves_masked: an entry that comes in as -inf goes out as -inf; so it is if ``mask_only``. Where a processor
            does not promise this, the chain restores what a constraint before it forbade.
        keeps_last: never forbids the only legal token of a row that it gets (as samplers that keep at least one
            token, biases and penalties do, and constraints do not).
        argmax_invariant: never changes which token is the most likely.
        shift_invariant: adding a number to all logits of a row leaves the row's resulting distribution as it is. So
            it is for what goes by probabilities, adds, or forbids by tokens, not for what asks for a logit's sign.
        ignores_ids: what becomes of a token depends on its logit and on the other logits of the row that are not -inf:
            not on ids, nor on how many tokens are -inf. Such a processor may be given the survivors of a truncation
            alone, in the order of their ids; ``context.vocab_size`` is their number then.
        keeps_order: a token that was at most as likely as another is so afterwards, and what becomes of the likelier
            tokens does not depend on the others.
        keeps_at_most: how many tokens it leaves, the most likely ones, with those that tie; None: no fixed number.
        changes_only_seen: changes only logits of tokens that the row has had, prompt included, and goes by which tokens
            are equal, not by their ids. Such a processor may be given the columns of these tokens alone, with numbers
            in the order of the ids in place of the ids; ``context.vocab_size`` is the number of columns then.
        any_library: goes by ``context.backend`` and names no library, and its states are tuples of arrays. In a library
            that shares its memory with NumPy and takes longer for a call than for the work, as PyTorch does on the CPU,
            it may be given NumPy's views of logits, state and context, and makes the same of them.
        row_operation: what ``process`` does to rows of float32 logits, as an operation that compiled loops know (a
            :class:`logitloom.row_operations.RowOperation`); None: no such operation. If it goes by a table, that is
            the one array of the state, and a method ``next_state(state, context)`` returns the state after the newly
            accepted tokens. Where the state may be overwritten, the loop enters them into the table itself.
        uses_buffer_pool: may return its logits in a buffer of ``context.pool``, and does not write to them afterwards.
        sees_every_step: its state depends on the logits of every step, not on the tokens alone, as that of a sampler
            with feedback does. Such a state cannot be rebuilt from tokens: loops ask the model for forced tokens as
            well, and engines that cannot keep states refuse the processor when the chain is bound. Who needs
            ``chosen_logprob`` declares it by that.
        reports_illegal: raises ``IllegalToken`` in host memory for rows that were fed a token which the processor had
            forbidden, before it writes anything.
        writes_last: writes to logits that it may overwrite with its last operation, so that they are what they were if
            it raises. Engines then lend it their own logits without a copy.
        differentiable: gradients pass from the result to the logits wherever the formula has one; through masks they
            pass straight. Without, the result is a constant.
        compilable: works inside compiled loops (array operations only; no host objects, no values read back).
    """

    stage: ClassVar[Stage] = "warp"
    needs: ClassVar[frozenset[Need]] = frozenset()
    branches: ClassVar[int] = 1
    mask_only: ClassVar[bool] = False
    preserves_masked: ClassVar[bool] = False
    keeps_last: ClassVar[bool] = False
    argmax_invariant: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = False
    ignores_ids: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = False
    keeps_at_most: ClassVar[int | None] = None
    changes_only_seen: ClassVar[bool] = False
    any_library: ClassVar[bool] = False
    row_operation: ClassVar[RowOperation | None] = None
    uses_buffer_pool: ClassVar[bool] = False
    sees_every_step: ClassVar[bool] = False
    differentiable: ClassVar[bool] = True
    reports_illegal: ClassVar[bool] = False
    writes_last: ClassVar[bool] = False
    compilable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        owner = type(self).__name__
        given = options.values(self)
        for name, value in options.check(self, given, owner).items():
            if value is not given[name]:
                object.__setattr__(self, name, value)

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise if the processor cannot work with a vocabulary; called when a chain is made with one."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled are the options. What was made of them (automata, tables, locks) is made again at the other end."""
        if not dataclasses.is_dataclass(self):
            return super().__reduce_ex__(protocol)
        return functools.partial(type(self), **options.values(self)), ()


def declaration(processor: Any, name: str) -> Any:
    """A declared attribute of any processor object or class, or its default; what only masks keeps what is masked.

    A property of a class depends on options that are not known yet, so the class has the default.
    """
    default = getattr(Processor, name)
    found = getattr(processor, name, default)
    if isinstance(found, property):
        return default
    return declaration(processor, "mask_only") if name == "preserves_masked" and found is False else found
