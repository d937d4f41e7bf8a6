"""DoLa: contrast the last layer of a model with the early layer that differs most from it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

from logitloom import REWEIGHT, Array, Backend, Context, Processor, option
from logitloom.errors import NeedsNotMet, OptionError
from logitloom_plugins.processors import _branch
from logitloom_plugins.processors._branch import Branch
from logitloom_plugins.processors._contrast import plausible_contrast

__all__ = ["Dola", "DolaState"]

OWNER = "dola"


class DolaState(NamedTuple):
    """State: a row tree.

    Attributes:
        layers: per early layer the model's cache for the rows.
    """

    layers: tuple[Branch, ...]


@dataclass(frozen=True)
class Dola(Processor):
    """Subtract the log-probabilities of an early layer, among the tokens that the last layer finds plausible.

    ``out = log p_N - log p_j`` where ``p_N >= alpha * max p_N``, else -inf: ``p_N`` comes from the last layer, ``p_j``
    from the output head on layer ``j``. Each row takes at each step the layer of ``layers`` whose distribution is
    farthest from the last layer's, by the Jensen-Shannon divergence (transformers takes one layer for the whole batch).
    Facts enter in late layers, so the contrast favours them.

    The model of the generation must have a method ``first_layers(n)``, which gives an adapter that runs the model's
    first ``n`` layers and the output head. Each of ``layers`` is run beside the model and has a cache in the state.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> from logitloom_contrib.llama import random_model
        >>> model = random_model("numpy", vocab=8, layers=3)
        >>> chain = processors.load(("dola", {"layers": [1, 2], "alpha": 0.5}), model=model)
        >>> logits, _ = model.forward(np.array([[3, 1]], dtype=np.int32), model.empty_cache(1))
        >>> context = Context.start(logits, prompt=[[3, 1]])
        >>> scores, _ = chain.process(logits, chain.init_state(context), context)
        >>> bool(np.isfinite(scores).any())
        True

    References:
        Y.-S. Chuang et al., "DoLa: Decoding by Contrasting Layers Improves Factuality in Large Language
        Models", 2024.
    """

    stage = "guidance"
    compilable = False
    needs = frozenset({"prompt", "model"})
    effect = REWEIGHT

    layers: tuple[int, ...] = option(
        help="The numbers of layers after which early distributions are computed.", ge=1, unit="layers"
    )
    alpha: float = option(
        0.1, help="Tokens less likely than this share of the likeliest are forbidden.", ge=0.0, le=1.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.layers:
            raise OptionError(f"Option 'layers' of {OWNER!r} is empty. Name at least one early layer to contrast with.")
        object.__setattr__(self, "_cut", weakref.WeakKeyDictionary())

    def init_state(self, context: Context) -> DolaState:
        """The early layers before their first pass, with the prompts of the generation.

        Raises:
            NeedsNotMet: if the model cannot run its first layers.
            InvalidContext: if a prompt is empty.
            ModelError: if the model has fewer layers.
        """
        prompts = _branch.prompts(context, "the layers", OWNER)
        early = self._early(context.model)
        for model in early:
            _branch.check_model(model, context, OWNER)
        return DolaState(tuple(_branch.start(model, prompts) for model in early))

    def process(self, logits: Array, state: DolaState, context: Context) -> tuple[Array, DolaState]:
        """A pass of each early layer, a divergence for each, a difference and a masked fill."""
        backend, xp = context.backend, context.backend.xp
        tokens = _branch.accepted(context, int(logits.shape[0]))
        last, after = backend.at_least_float32(logits), []
        farthest: Array = None
        chosen: Array = None
        for model, branch in zip(self._early(context.model), state.layers, strict=True):
            early, branch = _branch.advance(model, branch, tokens, backend)
            after.append(branch)
            distance = divergence(backend, last, early) if len(self.layers) > 1 else None
            if chosen is None:
                farthest, chosen = distance, early
            else:
                assert distance is not None
                chosen = xp.where(distance > farthest, early, chosen)
                farthest = xp.maximum(farthest, distance)
        out = plausible_contrast(logits, chosen, 1.0, 1.0, self.alpha, context)
        return out, DolaState(tuple(after))

    def _early(self, model: Any) -> tuple[Any, ...]:
        """The first layers of the model, the same objects for one model."""
        known: Any = self.__dict__["_cut"]
        found: tuple[Any, ...] | None = known.get(model)
        if found is None:
            cut = getattr(model, "first_layers", None)
            if cut is None:
                raise NeedsNotMet(
                    f"Processor {OWNER!r} needs a model that can run its first layers alone, but "
                    f"{type(model).__name__} has no method first_layers(n). Take 'contrastive' with a smaller model."
                )
            found = known[model] = tuple(cut(layers) for layers in self.layers)
        return found


def divergence(backend: Backend, first: Array, second: Array) -> Array:
    """The Jensen-Shannon divergence of two distributions, ``[rows, 1]``, in nats.

    Args:
        backend: the backend of the arrays.
        first: ``[rows, vocab]`` logits.
        second: ``[rows, vocab]`` logits.
    """
    xp = backend.xp
    total = 0.0
    p, q = backend.softmax(first), backend.softmax(second)
    middle = (p + q) / 2
    for each in (p, q):
        possible = each > 0
        ratio = xp.where(possible, each, xp.ones_like(each)) / xp.where(possible, middle, xp.ones_like(middle))
        total = total + xp.sum(each * xp.log(ratio), axis=-1, keepdims=True) / 2
    return total
