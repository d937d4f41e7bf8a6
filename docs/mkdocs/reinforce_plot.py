"""REINFORCE on a tiny policy that samples with top-p and a JSON schema; draws docs/images/reinforce.svg.

Run: ``python docs/mkdocs/reinforce_plot.py``. Needs PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from logitloom import Chain, Context, Vocabulary, processors

__all__ = ["Policy", "Round", "draw", "main", "rollout", "train"]

TARGET = Path(__file__).parent.parent / "images" / "reinforce.svg"
PIECES = ("", "{", '"n"', ":", "}", " ", *"0123456789", "-", "[", "]", ",", '"', "n", "true", ".5")
VOCABULARY = Vocabulary([piece.encode() for piece in PIECES], eos=[0], name="pieces")
SCHEMA = {
    "type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 999}}, "required": ["n"],
    "additionalProperties": False,
}  # fmt: skip
BATCH, LENGTH, ROUNDS = 48, 12, 80


class Policy(torch.nn.Module):
    """Logits from the last token and the position."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.token = torch.nn.Embedding(len(PIECES), 32)
        self.place = torch.nn.Embedding(LENGTH, 32)
        self.head = torch.nn.Linear(32, len(PIECES))

    def forward(self, last: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """``[..., vocab]`` logits."""
        logits: torch.Tensor = self.head(torch.tanh(self.token(last) + self.place(place)))
        return logits


class Round(NamedTuple):
    """One round of training, means over its texts.

    Attributes:
        reward: the number that was written, over 999; 0 for a text that was not finished.
        sampled: log-probability of a text, as the sampler chose it.
        score: what ``chain.score`` says.
        naive: what the model's own logits say.
    """

    reward: float
    sampled: float
    score: float
    naive: float


def chain_of() -> Chain:
    """The processors that the texts are sampled with."""
    return processors.load(
        ("json", {"schema": SCHEMA}), ("temperature", {"temperature": 1.2}), ("top_p", {"p": 0.8}), tokenizer=VOCABULARY
    )


@torch.no_grad()
def rollout(policy: Policy, chain: Chain, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample texts: tokens ``[batch, time]``, -1 behind the end, and the log-probabilities they were chosen with."""
    draws = torch.Generator().manual_seed(seed)
    last = torch.zeros(BATCH, dtype=torch.long)
    open_ = torch.ones(BATCH, dtype=torch.bool)
    tokens, logprobs = [], []
    context = state = given = None
    for step in range(LENGTH):
        logits = policy(last, torch.full_like(last, step))
        if context is None:
            context = given = Context.start(logits, vocabulary=VOCABULARY)
            state = chain.init_state(context)
        assert given is not None
        out, state = chain.process(logits, state, given)
        terms = torch.log_softmax(out, -1)
        last = torch.multinomial(terms.exp(), 1, generator=draws)[:, 0]
        chosen = torch.where(open_, last, -1)
        tokens.append(chosen)
        logprobs.append(torch.where(open_, terms.gather(1, last[:, None])[:, 0], 0.0))
        given = context.accept(chosen.int()[:, None])
        open_ = open_ & (last != 0)
    return torch.stack(tokens, 1), torch.stack(logprobs, 1)


def reward_of(ids: Sequence[int]) -> float:
    """The number in a text, over 999."""
    if 0 not in ids:
        return 0.0
    written = "".join(PIECES[i] for i in ids if i > 0)
    return float(json.loads(written)["n"]) / 999


def train(rounds: int, learn_from: str, seed: int = 0) -> list[Round]:
    """Train a policy by REINFORCE, and tell what each round was like.

    Args:
        rounds: how many.
        learn_from: ``"score"`` or ``"naive"``: which log-probability the gradient is taken of.
        seed: of the policy and the draws.
    """
    policy, chain = Policy(seed), chain_of()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    told = []
    for number in range(rounds):
        tokens, sampled = rollout(policy, chain, 1000 * seed + number)
        # What a trainer does: one pass over the finished texts, with gradients.
        before = torch.cat([torch.zeros_like(tokens[:, :1]), tokens[:, :-1]], 1).clamp(min=0)
        logits = policy(before, torch.arange(LENGTH).expand(BATCH, -1))
        score = chain.score(logits, tokens.numpy(), Context.start(logits[:, 0].detach(), vocabulary=VOCABULARY))
        own = torch.log_softmax(logits, -1).gather(2, tokens.clamp(min=0)[..., None])[..., 0]
        naive = torch.where(tokens >= 0, own, 0.0)
        rewards = torch.tensor([reward_of(ids) for ids in tokens.tolist()])
        advantage = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        logprob = {"score": score, "naive": naive}[learn_from].sum(1)
        optimizer.zero_grad()
        (-(advantage * logprob).mean()).backward()
        optimizer.step()
        each = (x.sum(1).mean().item() for x in (sampled, score, naive))
        told.append(Round(float(rewards.mean()), *each))
    return told


_STYLE = """
    .axis { stroke: #57606a; stroke-width: 1; fill: none }
    .line { stroke-width: 2; fill: none }
    .score { stroke: #0969da } .naive { stroke: #cf222e }
    .sampled { stroke: #1f2328; stroke-width: 3; stroke-dasharray: 3 6 }
    text { fill: #1f2328; font: 13px system-ui, sans-serif }
    .head { text-anchor: middle; font-weight: 600 } .small { font-size: 11px; fill: #57606a } .end { text-anchor: end }
    @media (prefers-color-scheme: dark) {
      .axis { stroke: #9198a1 } .score { stroke: #4493f8 } .naive { stroke: #ff7b72 } .sampled { stroke: #f0f6fc }
      text { fill: #f0f6fc } .small { fill: #9198a1 }
    }
  """


def draw(score: Sequence[Round], naive: Sequence[Round]) -> str:
    """Two panels: log-probabilities of the texts of one training, and the rewards of both."""
    low = min(min(r.naive, r.sampled) for r in score)
    left = [
        ("naive", "the model's own", [r.naive for r in score]), ("score", "chain.score", [r.score for r in score]),
        ("sampled", "as sampled", [r.sampled for r in score]),
    ]  # fmt: skip
    right = [
        ("naive", "learning from the model's own", [r.reward for r in naive]),
        ("score", "learning from chain.score", [r.reward for r in score]),
    ]
    panels = [
        _panel(50, "Log-probability of a text", left, low, 0.0), _panel(410, "Reward", right, 0.0, 1.0),
    ]  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 280" role="img" aria-label="Log-probabilities and '
        f'rewards over rounds of REINFORCE"><style>{_STYLE}</style>{"".join(panels)}</svg>\n'
    )


def _panel(x: int, title: str, lines: Sequence[tuple[str, str, Sequence[float]]], low: float, high: float) -> str:
    width, top, height = 290, 40, 170

    def y(value: float) -> float:
        return top + height * (1 - (value - low) / (high - low))

    parts = [
        f'<text class="head" x="{x + width / 2}" y="22">{title}</text>',
        f'<path class="axis" d="M{x},{top} V{top + height} H{x + width}"/>',
        *(
            f'<text class="small end" x="{x - 5}" y="{y(v) + 4:.0f}">{v:.3g}</text>'
            for v in (low, (low + high) / 2, high)
        ),
        f'<text class="small end" x="{x + width}" y="{top + height + 15}">round {len(lines[0][2])}</text>',
    ]
    for place, (kind, says, values) in enumerate(lines):
        points = " ".join(f"{x + width * i / (len(values) - 1):.1f},{y(v):.1f}" for i, v in enumerate(values))
        parts.append(f'<polyline class="line {kind}" points="{points}"/>')
        at = top + height + 32 + 16 * place
        parts.append(
            f'<path class="line {kind}" d="M{x},{at - 4} h24"/><text class="small" x="{x + 30}" y="{at}">{says}</text>'
        )
    return "".join(parts)


def main() -> dict[str, Any]:
    """Train both ways and write the figure."""
    runs = {kind: train(ROUNDS, kind) for kind in ("score", "naive")}
    TARGET.write_text(draw(runs["score"], runs["naive"]), encoding="utf-8")
    return runs


if __name__ == "__main__":
    for name, told in main().items():
        print(name, told[0], told[-1], f"most |score - sampled| {max(abs(r.score - r.sampled) for r in told):.1e}")
