"""The distribution of texts that weighted sequences stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logitloom.arguments import instance
from logitloom.display.html_table import html_table
from logitloom.errors import GenerationError
from logitloom.generation.generator import Generated

__all__ = ["Posterior", "posterior"]


@dataclass(frozen=True)
class Posterior:
    """The texts of a prompt and their probabilities under the target, as its particles estimate them.

    Attributes:
        prompt: number of the prompt.
        probabilities: text -> probability, the most probable first; they add up to 1.
        log_evidence: the natural logarithm of the evidence: the estimated probability that a text of the target's
            chain is one that the constraints allow.
        effective_samples: the effective sample size of the particles, from 1 to their number.
    """

    prompt: int
    probabilities: dict[str, float]
    log_evidence: float
    effective_samples: float

    def _repr_html_(self) -> str:
        """An HTML table of the texts, for notebooks."""
        rows = [(text, f"{probability:.3f}") for text, probability in self.probabilities.items()]
        return html_table([f"text of prompt {self.prompt}", "probability"], rows)


def posterior(found: Sequence[Generated]) -> list[Posterior]:
    """The distribution of the texts of each prompt.

    Equal texts are one text, in whatever tokens they were written.

    Args:
        found: what a :class:`Generator` with the strategy :class:`Particles` returned.

    Returns:
        One per prompt, in the order of the prompts.

    Raises:
        GenerationError: for sequences without weights or without texts.
    """
    prompts: dict[int, list[Generated]] = {}
    remedy = "Give what a Generator with the strategy Particles returned."
    instance(found, (list, tuple), "found", GenerationError, remedy)
    for one in found:
        instance(one, Generated, "found", GenerationError, remedy)
        prompts.setdefault(one.prompt, []).append(one)
    return [_of_prompt(prompt, sequences) for prompt, sequences in sorted(prompts.items())]


@np.errstate(under="ignore")
def _of_prompt(prompt: int, sequences: list[Generated]) -> Posterior:
    log_weights: list[float] = []
    for one in sequences:
        if one.log_weight is None:
            raise GenerationError(
                f"Sequence {one.sample} of prompt {prompt} has no weight. Decode with Generator(strategy=Particles())."
            )
        if one.text is None:
            raise GenerationError(
                f"Sequence {one.sample} of prompt {prompt} has no text, because no vocabulary is known. Give "
                f"Generator(vocabulary=...) or a tokenizer."
            )
        log_weights.append(one.log_weight)
    largest = max(log_weights)
    weights = np.exp(np.asarray(log_weights) - largest)
    total = float(weights.sum())
    shares: dict[str, float] = {}
    for one, weight in zip(sequences, weights.tolist(), strict=True):
        assert one.text is not None
        shares[one.text] = shares.get(one.text, 0.0) + weight / total
    ordered = dict(sorted(shares.items(), key=lambda item: -item[1]))
    return Posterior(prompt, ordered, largest + float(np.log(total)), total**2 / float((weights**2).sum()))
