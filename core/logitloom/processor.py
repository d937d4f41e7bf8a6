"""What a processor declares about itself, with the defaults; deriving from :class:`Processor` is optional."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Literal, Protocol

from logitloom.effect import Effect
from logitloom.host import options
from logitloom.host.entry_points import PluginName
from logitloom.vocabulary import Vocabulary

__all__ = ["NEEDS", "STAGES", "Need", "Processing", "Processor", "Stage"]

#: Where in a chain a processor belongs.
Stage = Literal["guidance", "penalty", "constraint", "warp"]

#: All stages, in their order in a chain.
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
    """Base class for processors that are frozen dataclasses of options; checks the options on construction.

    The host reads these attributes from any object, derived from this class or not; they may also be properties
    that depend on the options. A first processor declares none of them: what is not declared is not promised, so the
    host asks, restores or leaves out, and the result is the same.

    Attributes:
        stage: where the processor belongs: ``guidance``, ``penalty``, ``constraint`` or ``warp``.
        needs: a subset of :data:`NEEDS`.
        branches: rows of logits per sequence that ``process`` takes (2 for one-pass guidance); it returns one.
        effect: how the processor changes a row of logits: an :class:`logitloom.Effect`, usually one of the presets.
        sees_every_step: its state depends on the logits of every step, not on the tokens alone, as that of a sampler
            with feedback does. Such a state cannot be rebuilt from tokens: loops ask the model for forced tokens as
            well, and engines that cannot keep states refuse the processor when the chain is bound. A processor that
            needs ``chosen_logprob`` declares ``sees_every_step`` by this need.
        compilable: works inside compiled loops (array operations only; no host objects, no values read back).
    """

    stage: ClassVar[Stage] = "warp"
    needs: ClassVar[frozenset[Need]] = frozenset()
    branches: ClassVar[int] = 1
    effect: ClassVar[Effect] = Effect()
    sees_every_step: ClassVar[bool] = False
    compilable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        options.settle(self, PluginName(type(self)))

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise if the processor cannot work with a vocabulary; called when a chain is made with one."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled are the options. What was made of them (automata, tables, locks) is made again at the other end."""
        if not dataclasses.is_dataclass(self):
            return super().__reduce_ex__(protocol)
        return functools.partial(type(self), **options.values(self)), ()


def declaration(processor: Any, name: str) -> Any:
    """A declared attribute of any processor object or class, or its default.

    A property of a class depends on options that are not known yet, so the class has the default.
    """
    default = getattr(Processor, name)
    found = getattr(processor, name, default)
    return default if isinstance(found, property) else found
