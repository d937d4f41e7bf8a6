"""Mistakes that a type checker finds: each on a line that is marked. Nobody imports this file."""

from __future__ import annotations

from dataclasses import dataclass

from logitloom import Array, Context, Processor, option, processors
from logitloom.testing import ProcessorConformance


class Sound(Processor):
    needs = frozenset({"length"})

    def process(self, logits: Array, context: Context) -> Array:
        return logits + context.length[:, None]


class AnyOrder(Processor):
    def process(self, context: Context, logits: Array, state: Array, extra: int = 3) -> tuple[Array, Array]:
        return logits * extra, state


class WrongNames(Processor):
    def process(self, scores: Array, input_ids: Array) -> Array:
        return scores + input_ids


class TooMany(Processor):
    def process(self, logits: Array, state: Array, context: Context, step: int) -> tuple[Array, Array]:
        return logits * step, state


class StateIsLost(Processor):
    def process(self, logits: Array, state: Array) -> int:
        return len(logits) + len(state)


def halved(logits: Array) -> Array:
    return logits / 2


processors.load(Sound(), AnyOrder(), "top_k", ("top_p", {"p": 0.5}), halved, Sound, ["min_p", {"p": 0.1}])
processors.load(WrongNames())  # wrong
processors.load(TooMany())  # wrong
processors.load(StateIsLost())  # wrong


class OfSound(ProcessorConformance):
    processor = Sound


class OfWrong(ProcessorConformance):
    processor = WrongNames  # wrong


class UnknownNeed(Sound):
    needs = frozenset({"historie"})  # wrong, for mypy


class UnknownStage(Sound):
    stage = "sampling"  # wrong


@dataclass(frozen=True)
class Defaults(Sound):
    fine: float = option(1, help="An integer will do.")
    names: tuple[str, ...] = option((), help="Some.")
    perhaps: int | None = option(None, help="Maybe.")
    required: int = option(help="No default.")
    strength: float = option("strong", help="How much.", ge=0.0)  # wrong
