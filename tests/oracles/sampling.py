"""Processors in plain Python, token by token and row by row: slow, obvious, written from the definitions."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

INF = math.inf


def softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    weights = [math.exp(x - top) if x > -INF else 0.0 for x in logits]
    return [w / sum(weights) for w in weights]


def top_n_sigma(logits: Sequence[float], n: float) -> list[float]:
    """C. Tang et al. 2024: what lies more than n standard deviations below the maximum goes."""
    present = [x for x in logits if x > -INF]
    mean = sum(present) / len(present)
    sigma = math.sqrt(sum((x - mean) ** 2 for x in present) / len(present))
    return [x if x >= max(present) - n * sigma else -INF for x in logits]


def xtc(logits: Sequence[float], threshold: float, keep: Collection[int] = ()) -> list[float]:
    """P. E. Weidmann 2024, when the dice say so: of all tokens that reach the threshold only the least likely stay."""
    probabilities = softmax(logits)
    top = [x for x, p in zip(logits, probabilities, strict=True) if p >= threshold]
    if not top:
        return list(logits)
    return [-INF if x > min(top) and i not in keep else x for i, x in enumerate(logits)]


def repetition_penalty(logits: Sequence[float], seen: Collection[int], penalty: float) -> list[float]:
    """N. Keskar et al. 2019, in the form for logits of either sign."""
    return [(x / penalty if x > 0 else x * penalty) if i in set(seen) else x for i, x in enumerate(logits)]


def presence_penalty(logits: Sequence[float], seen: Collection[int], penalty: float) -> list[float]:
    return [x - penalty if i in set(seen) else x for i, x in enumerate(logits)]


def frequency_penalty(logits: Sequence[float], seen: Sequence[int], penalty: float) -> list[float]:
    return [x - penalty * list(seen).count(i) for i, x in enumerate(logits)]


def no_repeat_ngram(logits: Sequence[float], tokens: Sequence[int], n: int) -> list[float]:
    known = {tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}
    end = tuple(tokens[len(tokens) - n + 1 :])
    if len(tokens) < n - 1:
        return list(logits)
    return [-INF if (*end, i) in known else x for i, x in enumerate(logits)]


def dry(
    logits: Sequence[float],
    tokens: Sequence[int],
    multiplier: float,
    base: float,
    allowed_length: int,
    breakers: Collection[int] = (),
    window: int | None = None,
    max_match: int = 50,
) -> list[float]:
    """P. E. Weidmann 2024, as described with the pull request that introduced it to text-generation-webui.

    For every earlier place that ends like the text: how many tokens before it (itself included) equal those that
    end the text, up to a breaker; the longest such match decides about the token that follows.
    """
    text = list(tokens)[-window:] if window else list(tokens)
    longest: dict[int, int] = {}
    for place in range(len(text) - 1):
        match = 0
        while (
            match < max_match
            and match <= place
            and text[place - match] == text[-1 - match]
            and text[-1 - match] not in breakers
        ):
            match += 1
        following = text[place + 1]
        if match and following not in breakers:
            longest[following] = max(longest.get(following, 0), match)
    out = list(logits)
    for token, match in longest.items():
        if match >= allowed_length:
            out[token] -= multiplier * base ** (match - allowed_length)
    return out
