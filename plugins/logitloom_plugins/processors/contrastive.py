"""Contrastive decoding: prefer tokens that a strong model finds likelier than a weak model does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from logitloom import REWEIGHT, Array, Context, Processor, option
from logitloom_plugins.processors import _branch
from logitloom_plugins.processors._branch import Branch
from logitloom_plugins.processors._contrast import plausible_contrast

__all__ = ["Contrastive"]

OWNER = "contrastive"


@dataclass(frozen=True)
class Contrastive(Processor):
    """Subtract the log-probabilities of an amateur model, among the tokens that the expert finds plausible.

    ``out = (1 + beta) * log p_e - beta * log p_a`` where ``p_e >= alpha * max p_e``, else -inf. The expert is the
    model of the generation; the amateur is a smaller one with the same vocabulary, which reads the same prompt and the
    same generated tokens. With ``weighting="difference"`` the score is ``log p_e - log p_a``, as first proposed.
    ``amateur_temperature`` divides the amateur's logits. The result is not normalised again; arithmetic is float32.

    The processor runs the amateur and keeps its cache in its state.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> from logitloom_contrib.llama import random_model
        >>> chain = processors.load(("contrastive", {"model": random_model("numpy", vocab=8), "alpha": 0.5}))
        >>> logits = np.arange(8, dtype=np.float32)[None]
        >>> context = Context.start(logits, prompt=[[3, 1]])
        >>> scores, _ = chain.process(logits, chain.init_state(context), context)
        >>> np.isfinite(scores).sum()
        np.int64(1)

    References:
        X. L. Li et al., "Contrastive Decoding: Open-ended Text Generation as Optimization", 2023;
        S. O'Brien, M. Lewis, "Contrastive Decoding Improves Reasoning in Large Language Models", 2023.
    """

    stage = "guidance"
    compilable = False
    needs = frozenset({"prompt"})
    effect = REWEIGHT

    model: Any = option(help="Model adapter of the amateur, of the same vocabulary.")
    alpha: float = option(
        0.1, help="Tokens less likely than this share of the likeliest are forbidden.", ge=0.0, le=1.0
    )
    beta: float = option(0.5, help="Strength of the contrast; 0 keeps the expert's own scores.", ge=0.0, le=100.0)
    weighting: Literal["beta", "difference"] = option(
        "beta", help="'beta': (1 + beta) * expert - beta * amateur; 'difference': expert - amateur."
    )
    amateur_temperature: float = option(1.0, help="Divisor of the amateur's logits.", ge=1e-4, le=1e4)

    def __post_init__(self) -> None:
        super().__post_init__()
        _branch.check_adapter(self.model, OWNER)

    def init_state(self, context: Context) -> Branch:
        """The amateur before its first pass, with the prompts of the generation.

        Raises:
            InvalidContext: if the amateur has another vocabulary.
        """
        _branch.check_model(self.model, context, OWNER)
        return _branch.start(self.model, _branch.prompts(context, "the amateur", OWNER))

    def process(self, logits: Array, state: Branch, context: Context) -> tuple[Array, Branch]:
        """One pass of the amateur, a weighted difference (normalised if need be) and a masked fill."""
        backend = context.backend
        tokens = _branch.accepted(context, int(logits.shape[0]))
        amateur, state = _branch.advance(self.model, state, tokens, backend)
        if self.amateur_temperature != 1.0:
            amateur = backend.divide(backend.cast(amateur, "float32"), self.amateur_temperature)
        gain, against = (1.0 + self.beta, self.beta) if self.weighting == "beta" else (1.0, 1.0)
        return plausible_contrast(logits, amateur, gain, against, self.alpha, context), state
