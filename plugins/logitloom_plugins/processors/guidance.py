"""Classifier-free guidance: push the distribution away from what the model says without the prompt."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Literal

from logitloom import REWEIGHT, Array, Context, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import InvalidContext, OptionError
from logitloom_plugins.processors import _branch, _branch_prompt
from logitloom_plugins.processors._branch import Branch
from logitloom_plugins.processors._branch_prompt import BranchPrompt, Prompt
from logitloom_plugins.processors._contrast import contrast, like

__all__ = ["Guidance"]

OWNER = "cfg"


@dataclass(frozen=True)
class Guidance(Processor):
    """Move the distribution from that of an unconditional branch towards, and beyond, that of the prompt.

    ``out = log p_u + scale * (log p_c - log p_u)`` with ``p_c`` after the prompt and ``p_u`` after the
    unconditional prompt, each followed by the same generated tokens. Above 1 the prompt counts more, between 0 and
    1 less; at 1 the result is ``log p_c`` (of the ``top_k`` best tokens) and nothing is computed for the other
    branch. With ``center="conditional"`` the sum starts from ``log p_c``, so that 0 changes nothing. The result is
    not normalised again; where only each row's distribution counts (``context.shift_free``) it may differ from the
    formula by a number per row.

    In the form ``two_pass`` the processor runs the model a second time and keeps the other branch's cache in its
    state; in the form ``one_pass`` the loop feeds both branches together and gives ``[2 * rows, vocab]`` logits. Both
    give the same scores.

    A token at -inf after the prompt stays -inf. A token that only the unconditional branch rules out keeps its
    conditional score. Arithmetic is float32 whatever the logits are.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("cfg", {"scale": 2.0, "form": "one_pass"}))
        >>> logits = np.log(np.array([[0.5, 0.5], [0.2, 0.8]], dtype=np.float32))  # with the prompt; without it
        >>> context = Context.start(logits, prompt=[[3, 1]], branches=chain.branches)
        >>> guided, _ = chain.process(logits, chain.init_state(context), context)
        >>> np.exp(guided).round(4)
        array([[1.25  , 0.3125]], dtype=float32)

    References:
        G. Sanchez et al., "Stay on topic with Classifier-Free Guidance", 2023;
        J. Ho, T. Salimans, "Classifier-Free Diffusion Guidance", 2022.
    """

    stage = "guidance"
    effect = REWEIGHT

    scale: float = option(1.5, help="Weight of the prompt; 1 is no guidance.", ge=0.0, le=100.0)
    negative_prompt: BranchPrompt | None = option(
        None,
        help="Prompt of the unconditional branch: text or ids, one for all or one per prompt, or a table with "
        "input_ids and attention_mask; default: the last token of the prompt.",
    )
    form: Literal["two_pass", "one_pass"] = option(
        "two_pass", help="Whether the processor runs the model itself, or the loop feeds both branches together."
    )
    mix: float = option(
        0.0, help="Share of the conditional distribution, mixed in log space after guidance.", ge=0.0, le=1.0
    )
    center: Literal["unconditional", "conditional"] = option(
        "unconditional",
        help="The distribution to which the scaled difference is added; with 'conditional' a scale of 0 is no "
        "guidance.",
    )
    top_k: int | None = option(
        None,
        help="Keep the conditional scores of the k tokens with the highest guided scores, and forbid the others; "
        "without it, use the guided scores.",
        ge=1,
        unit="tokens",
    )
    schedule: tuple[tuple[int, float], ...] | None = option(
        None,
        help="Pairs (step, scale) that replace 'scale'; the scale is linear between two steps, and constant "
        "before the first and after the last.",
        ge=0.0,
    )
    normalize: bool | None = option(
        None,
        help="Whether log-probabilities are combined; if not, the one-pass form combines logits, and scores differ by "
        "a constant per row. Default: where that constant can make a difference.",
    )
    model: Any = option(
        None,
        help="Model adapter of the unconditional branch, of the same vocabulary; default: the model that generates.",
    )
    _prompts: tuple[Prompt, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule is not None:
            steps = [step for step, _ in self.schedule]
            if not steps or any(a >= b for a, b in itertools.pairwise(steps)):
                raise OptionError(
                    f"Option 'schedule' of {OWNER!r} has the steps {steps}; give at least one pair (step, scale), and "
                    f"each step once, in increasing order."
                )
            if max(scale for _, scale in self.schedule) > 100:
                raise OptionError(f"Option 'schedule' of {OWNER!r} has scales above 100: {self.schedule!r}.")
        if self.model is not None and self.form == "one_pass":
            raise OptionError(
                f"{OWNER!r} in its one-pass form runs in the generation's own model, so it takes no option 'model'. "
                f"Use form='two_pass' for another model."
            )
        if self.model is not None:
            _branch.check_adapter(self.model, OWNER)
        if self.negative_prompt is not None:
            prompts = _branch_prompt.normalized(self.negative_prompt, "negative_prompt", OWNER)
            object.__setattr__(self, "_prompts", prompts)

    # -- what the host reads -------------------------------------------------------------------------

    @property
    def neutral(self) -> bool:
        """Whether the options say that nothing is guided at any step."""
        scales = {self.scale} if self.schedule is None else {scale for _, scale in self.schedule}
        return {self._weight(scale) for scale in scales} == {1.0}

    @property
    def branches(self) -> int:  # type: ignore[override]
        """Two in the one-pass form."""
        return 2 if self.form == "one_pass" and not self.neutral else 1

    @property
    def compilable(self) -> bool:  # type: ignore[override]
        """Running a model is the host's work."""
        return self.neutral or self.form == "one_pass"

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """A model to run or to encode text, the prompt for its last token, and lengths for a schedule."""
        if self.neutral:
            return frozenset()
        runs = self.model is None and (self.form == "two_pass" or _branch_prompt.has_text(self._prompts))
        found = {"model": runs, "prompt": not self._prompts, "length": self.schedule is not None}
        return frozenset(need for need, wanted in found.items() if wanted)

    # -- hooks ---------------------------------------------------------------------------------------

    def init_state(self, context: Context) -> Branch | tuple[()]:
        """The unconditional branch before its first pass; an empty state in the one-pass form."""
        if self.neutral or self.form == "one_pass":
            return ()
        model = self._model(context)
        _branch.check_model(model, context, OWNER)
        return _branch.start(model, self._rows(context))

    def branch_prompts(self, context: Context) -> list[list[list[int]]]:
        """The unconditional prompts, for a loop that feeds both branches."""
        return [self._rows(context)]

    def process(self, logits: Array, state: Branch | tuple[()], context: Context) -> tuple[Array, Branch | tuple[()]]:
        """One pass of the other branch (in the two-pass form) and a weighted difference, normalised if need be."""
        backend = context.backend
        if self.neutral:
            return self._selected(logits, logits, context), state
        weight = self._weight(self.scale) if self.schedule is None else self._scheduled(context)
        if isinstance(state, Branch):
            conditional, tokens = logits, _branch.accepted(context, int(logits.shape[0]))
            if self.schedule is not None and bool((backend.to_numpy(weight) == 1.0).all()):
                return self._selected(logits, logits, context), _branch.defer(state, tokens)
            unconditional, state = _branch.advance(self._model(context), state, tokens, backend)
        else:
            conditional, unconditional = _branch.split(logits, context, OWNER)
        if self.mix or self.top_k is not None:
            # The conditional branch is needed once more.
            context = context.with_fields(donate=False)
        guided = contrast(conditional, unconditional, weight, weight - 1.0, context, normalize=self.normalize)
        if self.mix:
            # Interpolating with weights that sum to 1 is the same arithmetic, signs apart.
            guided = contrast(guided, conditional, 1.0 - self.mix, -self.mix, context, normalize=self.normalize)
        if self.top_k is not None:
            return self._selected(conditional, guided, context), state
        return like(guided, logits, context), state

    # -- parts ---------------------------------------------------------------------------------------

    def _selected(self, logits: Array, guided: Array, context: Context) -> Array:
        """The conditional scores, of the ``top_k`` best tokens by their guided scores alone if the option is given."""
        backend = context.backend
        kept = self._unguided(logits, context)
        if self.top_k is None:
            return kept
        threshold = backend.kth_largest(guided, min(self.top_k, guided.shape[-1]))
        return backend.masked_fill(kept, guided < threshold, NEG_INF)

    def _unguided(self, logits: Array, context: Context) -> Array:
        normalize = not context.shift_free if self.normalize is None else self.normalize
        return like(context.backend.log_softmax(logits), logits, context) if normalize else logits

    def _weight(self, scale: Any) -> Any:
        """The weight of the conditional log-probabilities; the weight of the unconditional ones is one less,
        negated.
        """
        return scale + 1.0 if self.center == "conditional" else scale

    def _scheduled(self, context: Context) -> Array:
        """``[rows, 1] float32``: the weight at each row's own step."""
        assert self.schedule is not None
        backend, xp = context.backend, context.backend.xp
        step = backend.cast(context.step, "float32")[:, None]
        weight = xp.zeros_like(step) + float(self._weight(self.schedule[0][1]))
        for (begin, low), (end, high) in itertools.pairwise(self.schedule):
            passed = xp.clip((step - begin) / (end - begin), 0.0, 1.0)
            weight = weight + passed * (high - low)
        return weight

    def _model(self, context: Context) -> Any:
        return self.model if self.model is not None else context.model

    def _rows(self, context: Context) -> list[list[int]]:
        if self._prompts:
            return _branch_prompt.per_row(self._prompts, context, self._model(context), "negative_prompt", OWNER)
        assert context.prompt is not None
        for row, prompt in enumerate(context.prompt):
            if not prompt:
                raise InvalidContext(
                    f"{OWNER!r}: the prompt of row {row} has no tokens, so it has no last one to begin the "
                    f"unconditional branch with. Give the option negative_prompt."
                )
        return [[int(prompt[-1])] for prompt in context.prompt]
