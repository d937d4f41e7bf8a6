"""Heal: the text begins with the text removed from the prompt's end, so that a token may span that end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logitloom import Context, Vocabulary, option
from logitloom.automata import DenseAutomaton, any_bytes
from logitloom.constraints import Constraint, ConstraintProcessor, State, lift
from logitloom.errors import NeedsNotMet, OptionError
from logitloom_plugins.combinators import Inner
from logitloom_plugins.processors._after_prompt import AfterPrompt, Rest
from logitloom_plugins.processors._token_table import check_ids

__all__ = ["Heal"]

_Ids = tuple[int, ...]


@dataclass(frozen=True)
class Heal(ConstraintProcessor):
    """Write the text of given tokens first, in any tokens, then what an inner constraint allows.

    This processor is the second half of token healing: the removed tokens were at the end of a prompt, where a longer
    token may cover their text and the text after it. ``logitloom.generation.heal`` decides which tokens, and puts this
    processor around each constraint of a chain. A token is allowed if its bytes are a beginning of the rest of the
    removed text, or if they are the whole rest, followed by a beginning of a text that the inner constraint allows. So
    the possible texts are the removed text followed by the texts of the inner constraint, in all their tokenizations.
    Special tokens and end-of-sequence are not allowed before the removed text is written.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> words = Vocabulary([b"</s>", b"http", b":", b"://", b"/", b"x"], eos=[0])
        >>> chain = processors.load(("heal", {"removed": [[2]]}), tokenizer=words)
        >>> context = Context.start(np.zeros((1, 6), dtype=np.float32), vocabulary=words, prompt=[[1]])
        >>> chain.process(np.zeros((1, 6), dtype=np.float32), chain.init_state(context), context)[0]
        array([[-inf, -inf,   0.,   0., -inf, -inf]], dtype=float32)

    References:
        S. Lundberg, "The art of prompt design: prompt boundaries and token healing", 2023.
    """

    compilable = False

    removed: tuple[_Ids, ...] = option(help="Per prompt the ids that were taken from its end.", ge=0, unit="id")
    prompts: tuple[_Ids, ...] = option(
        (), help="Per prompt the ids that are left of it; needed with several prompts.", ge=0, unit="id"
    )
    inner: Any = option((), help="The constraints of the text after the prompt, as combinators take them.")
    in_order: bool = option(
        False, help="Rows stand in the order of the prompts, equally many for each; else they are found by their ids."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.removed or (len(self.prompts) != len(self.removed) and (self.prompts or len(self.removed) > 1)):
            raise OptionError(
                f"Option 'removed' of 'heal' has the ends of {len(self.removed)} prompts, and 'prompts' has "
                f"{len(self.prompts)}. Give both for each prompt; with one prompt 'removed' is enough."
            )
        found = Inner(self.inner, "heal", "inner")
        if found.others is not None:
            raise OptionError(
                f"Option 'inner' of 'heal' takes constraints, but {found.others.labels[0]!r} is none. Put it into the "
                f"chain itself."
            )
        inner = found if found.constraints else None
        self.__dict__["_inner"] = inner
        if inner is not None and any(getattr(one, "finish_within", None) == 0 for one in inner.constraints):
            self.__dict__["finish_within"] = 0  # its texts may be cut

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """A vocabulary, the prompts if there are several, and what the inner constraints need."""
        inner: Inner | None = self.__dict__.get("_inner")
        needs = [] if inner is None else [link.declared("needs") for link in inner.links]
        return frozenset({"vocabulary"}).union({"prompt"} if self.prompts else (), *needs)

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """The inner constraint, with states in which bytes of the prompt are left to write."""
        check_ids([token for ids in self.removed for token in ids], vocab_size, "removed", "heal")
        inner: Inner | None = self.__dict__["_inner"]
        found = None if inner is None else inner.constraint(vocabulary, vocab_size)
        anything = DenseAutomaton(any_bytes())
        return AfterPrompt(lift(anything, vocabulary, vocab_size, restricts=False) if found is None else found)

    def start_states(self, constraint: Constraint, context: Context) -> Sequence[State]:
        """Per row the text that its prompt has lost, and the start of the inner constraint after the whole prompt."""
        inner: Inner | None = self.__dict__["_inner"]
        rows = self._prompts_of_rows(context)
        then: Sequence[State] = [constraint.start()] * context.batch
        if inner is not None:
            begins: Any = constraint
            if context.prompt is not None:
                whole = tuple((*ids, *self.removed[n]) for ids, n in zip(context.prompt, rows, strict=True))
                context = context.with_fields(prompt=whole)
            then = inner.start_states(begins.inner, context)
        texts = [constraint.vocabulary.text_bytes(ids) for ids in self.removed]
        return [Rest(texts[n], state) if texts[n] else state for n, state in zip(rows, then, strict=True)]

    def _prompts_of_rows(self, context: Context) -> list[int]:
        """The number of the prompt of each row."""
        count = len(self.removed)
        if not self.prompts:
            return [0] * context.batch
        if self.in_order and context.batch % count == 0:
            return [row // (context.batch // count) for row in range(context.batch)]
        numbers = {ids: n for n, ids in enumerate(self.prompts)}
        prompts = () if context.prompt is None else context.prompt
        unknown = next((row for row, ids in enumerate(prompts) if tuple(ids) not in numbers), None)
        if len(prompts) != context.batch or unknown is not None:
            raise NeedsNotMet(
                f"'heal' knows {count} shortened prompts, and the prompt of row {unknown or 0} is none of them. Give "
                f"the model the prompts that heal returned."
            )
        return [numbers[tuple(ids)] for ids in prompts]
