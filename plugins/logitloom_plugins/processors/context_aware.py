"""Context-aware decoding: trust the given context over what the model remembers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from logitloom import REWEIGHT, Array, Context, Processor, option
from logitloom.errors import InvalidContext, MissingOption, OptionError
from logitloom_plugins.processors import _branch, _branch_prompt
from logitloom_plugins.processors._branch import Branch
from logitloom_plugins.processors._branch_prompt import BranchPrompt, Prompt
from logitloom_plugins.processors._contrast import contrast, like

__all__ = ["ContextAware"]

OWNER = "context_aware"


@dataclass(frozen=True)
class ContextAware(Processor):
    """Subtract the log-probabilities after the same prompt without its context.

    ``out = (1 + alpha) * log p(y | context, question) - alpha * log p(y | question)``. At 0 the result is the plain
    log-probabilities and nothing is computed for the second branch. The prompt of the generation holds context and
    question; the question alone is given as ``question``, or as the number of tokens at the start of the prompt that
    are the context. The result is not normalised again; arithmetic is float32.

    The forms ``two_pass`` and ``one_pass`` are the forms of ``cfg``: this processor is ``cfg`` with
    ``scale = 1 + alpha`` and the question as the unconditional prompt.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("context_aware", {"alpha": 1.0, "context_tokens": 2, "form": "one_pass"}))
        >>> logits = np.log(np.array([[0.5, 0.5], [0.2, 0.8]], dtype=np.float32))  # with the context; without it
        >>> context = Context.start(logits, prompt=[[7, 8, 3, 1]], branches=chain.branches)
        >>> chain.branch_prompts(context)
        [[[3, 1]]]
        >>> scores, _ = chain.process(logits, chain.init_state(context), context)
        >>> np.exp(scores).round(4)
        array([[1.25  , 0.3125]], dtype=float32)

    References:
        W. Shi et al., "Trusting Your Evidence: Hallucinate Less with Context-aware Decoding", 2023.
    """

    stage = "guidance"
    effect = REWEIGHT

    alpha: float = option(0.5, help="Strength of the contrast; 0 leaves the logits as they are.", ge=0.0, le=100.0)
    question: BranchPrompt | None = option(
        None,
        help="The prompt without the context: text or ids, one for all or one per prompt, or a table with input_ids "
        "and attention_mask.",
    )
    context_tokens: int | tuple[int, ...] | None = option(
        None,
        help="How many tokens at the start of the prompt are the context, one number for all or one per prompt; "
        "replaces 'question'.",
        ge=0,
        unit="tokens",
    )
    form: Literal["two_pass", "one_pass"] = option(
        "two_pass", help="Whether the processor runs the model itself, or the loop feeds both branches together."
    )
    _prompts: tuple[Prompt, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.question is not None and self.context_tokens is not None:
            raise OptionError(
                f"Both options of {OWNER!r} that give the prompt without its context are set, question and "
                f"context_tokens. Give one of them."
            )
        if self.question is not None:
            object.__setattr__(self, "_prompts", _branch_prompt.normalized(self.question, "question", OWNER))

    @property
    def branches(self) -> int:  # type: ignore[override]
        """Two in the one-pass form."""
        return 2 if self.form == "one_pass" and self.alpha else 1

    @property
    def compilable(self) -> bool:  # type: ignore[override]
        """Running a model is the host's work."""
        return self.form == "one_pass" or not self.alpha

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """A model to run or to encode text, and the prompt to take the context from."""
        if not self.alpha:
            return frozenset()
        found = {
            "model": self.form == "two_pass" or _branch_prompt.has_text(self._prompts),
            "prompt": not self._prompts,
        }
        return frozenset(need for need, wanted in found.items() if wanted)

    def init_state(self, context: Context) -> Branch | tuple[()]:
        """The branch without the context, before its first pass; an empty state in the one-pass form."""
        if not self.alpha or self.form == "one_pass":
            return ()
        _branch.check_model(context.model, context, OWNER)
        return _branch.start(context.model, self._rows(context))

    def branch_prompts(self, context: Context) -> list[list[list[int]]]:
        """The prompts without the context, for a loop that feeds both branches."""
        return [self._rows(context)]

    def process(self, logits: Array, state: Branch | tuple[()], context: Context) -> tuple[Array, Branch | tuple[()]]:
        """One pass of the other branch (in the two-pass form) and a weighted difference, normalised if need be."""
        if not self.alpha:
            if context.shift_free:
                return logits, state
            return like(context.backend.log_softmax(logits), logits, context), state
        if isinstance(state, Branch):
            tokens = _branch.accepted(context, int(logits.shape[0]))
            informed = logits
            blind, state = _branch.advance(context.model, state, tokens, context.backend)
        else:
            informed, blind = _branch.split(logits, context, OWNER)
        return like(contrast(informed, blind, 1.0 + self.alpha, self.alpha, context), logits, context), state

    def _rows(self, context: Context) -> list[list[int]]:
        if self._prompts:
            return _branch_prompt.per_row(self._prompts, context, context.model, "question", OWNER)
        if self.context_tokens is None:
            raise MissingOption(
                f"{OWNER!r} needs the prompt without its context. Give one of the options question and context_tokens."
            )
        assert context.prompt is not None
        given = self.context_tokens if isinstance(self.context_tokens, tuple) else (self.context_tokens,)
        lengths = _branch_prompt.shared_out(given, context, "context_tokens", OWNER)
        rows = [list(prompt[n:]) for prompt, n in zip(context.prompt, lengths, strict=True)]
        for row, question in enumerate(rows):
            if not question:
                raise InvalidContext(
                    f"{OWNER!r}: row {row} has {lengths[row]} context tokens, but its prompt has only "
                    f"{len(context.prompt[row])} tokens, so no question is left."
                )
        return rows
