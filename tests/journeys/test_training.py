"""The journey of a trainer: sample under a chain, score what was sampled, and take a gradient through the scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys.fresh import WEIGHTS, require, script

LOOP = """
import torch

from logitloom import Context, Vocabulary, processors

torch.manual_seed(0)
words = Vocabulary([bytes([number]) for number in range(256)] + [b""], eos=[256])
chain = processors.load(
    ("regex", {"pattern": "[a-d]{2,5}"}), ("repetition_penalty", {"penalty": 1.2}), ("top_p", {"p": 0.9}),
    tokenizer=words,
)
policy = torch.randn(3, 6, 257, requires_grad=True)  # stands for a model: [batch, time, vocab]
prompt = [[1, 2], [3], []]
start = Context.start(policy[:, 0].detach(), prompt=prompt, max_length=20)
context, state, tokens, sampled, kept = start, chain.init_state(start), [], [], []
ended = torch.zeros(3, dtype=torch.bool)
with torch.no_grad():
    for step in range(6):
        processed, state = chain.process(policy[:, step].clone(), state, context)
        logprobs = torch.log_softmax(processed, dim=-1)
        token = torch.multinomial(logprobs.exp(), 1)
        sampled.append(torch.where(ended, 0.0, logprobs.gather(1, token)[:, 0]))
        token = torch.where(ended[:, None], -1, token)
        tokens.append(token)
        kept.append(processed > -torch.inf)
        ended = ended | (token[:, 0] == 256)
        context = start.accept(torch.where(token == 256, -1, token))
tokens, sampled, kept = torch.cat(tokens, 1), torch.stack(sampled, 1), torch.stack(kept, 1)
for given in (None, kept, kept.numpy()):
    policy.grad = None
    scored = chain.score(policy, tokens, start, kept=given)
    torch.testing.assert_close(scored.detach(), sampled)
    scored.sum().backward()
    assert torch.isfinite(policy.grad).all() and (policy.grad != 0).any()
print(ended.tolist())
"""


@pytest.mark.extras
def test_what_was_sampled_is_scored_alike_with_and_without_its_masks(tmp_path: Path) -> None:
    require(*WEIGHTS, "torch")
    assert script(LOOP, tmp_path) == "[True, True, True]\n"
