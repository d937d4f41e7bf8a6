"""Stories: the accepted tokens of a row, and the logits that a model would give it. Functions of the row alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import Array, Backend
from logitloom.chain import Chain
from logitloom.context import Context

__all__ = ["Story", "accepting", "logits_of", "siblings", "telling"]

#: Kinds of logits: half of the rows with ties, entries that came in forbidden, or neither.
KINDS = ("plain", "ties", "holes")


@dataclass(frozen=True)
class Story:
    """The prompt, the seed and the accepted tokens of one row.

    Attributes:
        prompt: its prompt.
        seed: its seed.
        blocks: the tokens that it accepts in each step: none, one or several; -1 stands for no token.
    """

    prompt: tuple[int, ...]
    seed: int
    blocks: tuple[tuple[int, ...], ...] = ()

    def until(self, age: int) -> Story:
        """The story before its step ``age``."""
        return Story(self.prompt, self.seed, self.blocks[:age])

    def block(self, age: int) -> tuple[int, ...]:
        """The tokens that are accepted in step ``age``, counted from 0; none after the last step."""
        return self.blocks[age] if age < len(self.blocks) else ()

    @property
    def tokens(self) -> list[int]:
        """All accepted tokens."""
        return [token for block in self.blocks for token in block if token >= 0]


def siblings(stories: Sequence[Story], index: int, age: int) -> list[int]:
    """The indices of the stories that equal story ``index`` before its step ``age``, itself included."""
    wanted = stories[index].until(age)
    return [i for i, story in enumerate(stories) if story.until(age) == wanted]


def accepting(chain: Chain, context: Context, blocks: Sequence[Sequence[int]], *, other: bool = False) -> Context:
    """The context after each row accepted a block, as :func:`telling` gives it.

    Args:
        chain: the processors.
        context: of the start.
        blocks: per row its tokens; -1 stands for none.
        other: make up other probabilities.
    """
    return telling(chain, context.accept([list(block) for block in blocks]), other=other)


def telling(chain: Chain, context: Context, *, other: bool = False) -> Context:
    """The context with made-up probabilities of its tokens, if the chain needs those; a function of each token."""
    if "chosen_logprob" not in chain.needs or context.tokens is None:
        return context
    backend, tokens = context.backend, context.tokens
    made_up = backend.cast((tokens + int(other)) % 7 + 1, "float32") * -0.3
    return context.with_fields(chosen_logprob=backend.xp.where(tokens >= 0, made_up, backend.xp.zeros_like(made_up)))


@lru_cache(128)
def logits_of(story: Story, vocab: int, branches: int = 1, kind: str = "plain") -> NDArray[np.float32]:
    """The logits after a story, ``[branches, vocab]`` float32: random, and a function of the story alone.

    Args:
        story: the story so far.
        vocab: the width.
        branches: how many rows of logits a sequence has.
        kind: ``plain``; with ``ties``; with ``holes`` (-inf at random, and never in the first place).

    Returns:
        An array that cannot be written to, because equal calls return the same one.
    """
    seen = [story.seed & 0xFFFF, len(story.blocks), *story.prompt, 99, *(t + 1 for t in story.tokens)]
    dice = np.random.default_rng(seen)
    logits = dice.normal(scale=2.5, size=(branches, vocab)).astype(np.float32)
    if kind == "ties":
        logits = np.round(logits * 2) / np.float32(2)
    if kind == "holes":
        logits[dice.random(logits.shape) < 0.3] = -np.inf
        logits[:, 0] = 0.25
    logits.flags.writeable = False
    return logits


def stacked(
    backend: Backend, stories: Sequence[Story], vocab: int, branches: int, kind: str = "plain", dtype: str = "float32"
) -> Array:
    """The logits of a batch, ``[branches * rows, vocab]``: all rows of the first branch, then of the next."""
    each = [logits_of(story, vocab, branches, kind) for story in stories]
    together = np.zeros((0, vocab), np.float32)
    if each:
        together = np.concatenate([np.stack([own[branch] for own in each]) for branch in range(branches)])
    return backend.asarray(together, dtype)


class StoryRun:
    """A batch of stories that is decoded step by step, each row in its own story.

    Args:
        chain: the processors.
        backend: where.
        stories: one per row.
        vocab: the width of the logits.
        kind: of the logits.
        dtype: of the logits.
        fields: more fields of the context.
    """

    def __init__(
        self,
        chain: Chain,
        backend: Backend,
        stories: Sequence[Story],
        vocab: int,
        *,
        kind: str = "plain",
        dtype: str = "float32",
        **fields: Any,
    ) -> None:
        self.chain, self.backend, self.stories, self.vocab = chain, backend, list(stories), vocab
        self.kind, self.dtype = kind, dtype
        given = {"prompt": [story.prompt for story in stories], "seed": [story.seed for story in stories], **fields}
        logits = stacked(backend, self._now(0), vocab, chain.branches, kind, dtype)
        self.context = Context.start(logits, branches=chain.branches, **given)
        self.state = chain.init_state(self.context)
        self.age = 0

    def _now(self, age: int) -> list[Story]:
        return [story.until(age) for story in self.stories]

    def logits(self) -> Array:
        """The logits of the next step."""
        return stacked(self.backend, self._now(self.age), self.vocab, self.chain.branches, self.kind, self.dtype)

    def step_context(self) -> Context:
        """The context of the next step: in the first one nothing was accepted yet."""
        if self.age == 0:
            return self.context
        return accepting(self.chain, self.context, [story.block(self.age - 1) for story in self.stories])

    def step(self) -> Array:
        """Process the next step; the state moves on."""
        logits, context = self.logits(), self.step_context()
        processed, self.state = self.chain.process(logits, self.state, context)
        self.age += 1
        return processed
