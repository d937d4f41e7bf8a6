"""The processor under test: its author's settings for the checks, and the stories of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from logitloom import processors
from logitloom.arrays.backend import NEG_INF, Backend
from logitloom.chain import Chain
from logitloom.host import registry
from logitloom.processor import Processing
from logitloom.testing.conformance import Conformance
from logitloom.testing.stories import Story, StoryRun, accepting, logits_of
from logitloom.vocabulary import Vocabulary

#: Steps of a story, and after how many of them siblings part.
STEPS, SHARED = 5, 2

#: The tolerance between results of one library for one row, in batches of any size, eager or compiled.
TOLERANCE = 2e-5


class ProcessorSubject(Conformance):
    """An author's settings for the checks of a processor; see :class:`logitloom.testing.ProcessorConformance`."""

    kind = "processors"
    _named_by = "processor"

    processor: ClassVar[str | Processing | type[Processing] | None] = None
    cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}
    vocabulary: ClassVar[Vocabulary | None] = None
    vocab_size: ClassVar[int] = 24
    max_length: ClassVar[int] = 48
    prompt_lengths: ClassVar[Sequence[int]] = (5, 0, 2, 4)
    has_effect: ClassVar[bool] = True
    in_documents: ClassVar[bool] = True

    _told: ClassVar[dict[Any, tuple[Story, ...]]] = {}

    def model(self, backend: Backend) -> Any:
        """A model adapter on a backend, for processors that run one; it gives logits of ``vocab_size`` columns."""
        del backend
        return None

    def choose(self, allowed: Sequence[int], dice: np.random.Generator) -> int:
        """Which of the allowed tokens a row accepts; override it to lead rows to where something happens."""
        few = [token for token in allowed if token < 8]
        return int(dice.choice(few or allowed))

    def options(self, case: str, backend: Backend) -> Mapping[str, Any]:
        """The options of a case; override it for options that are objects on a backend, such as a second model."""
        del backend
        options: Mapping[str, Any] = self.cases[case]
        return options

    def chain(self, case: str, backend: Backend, times: int = 1, **more: Any) -> Chain:
        """A chain of this processor alone, ``times`` times."""
        assert self.processor is not None, f"Set {type(self).__name__}.processor to the name (or class) to test."
        chosen: list[list[Any]] = [[self.processor, dict(self.options(case, backend))]] * times
        return processors.load(
            *chosen, tokenizer=self.vocabulary, model=self.model(backend), **{"debug": False, **more}
        )

    def declared(self, case: str, name: str) -> Any:
        """What the processor declares with the options of a case."""
        return self.chain(case, registry.load_backend("numpy")).links[0].declared(name)

    # -- stories ---------------------------------------------------------------------------------------

    def stories(self, case: str) -> tuple[Story, ...]:
        """Stories for a case: tokens are such as the processor allows. The last two begin as the first two do."""
        key = (type(self), self.processor, case)
        if key not in self._told:
            whole = [self._tell(case, number, ()) for number in range(len(self.prompt_lengths))]
            parted = [self._tell(case, number, whole[number].blocks[:SHARED]) for number in (0, 1)]
            self._told[key] = (*whole, *parted)
        return self._told[key]

    def _tell(self, case: str, number: int, begun: Sequence[tuple[int, ...]]) -> Story:
        dice = np.random.default_rng([number, len(begun)])
        ids = min(8, self.vocab_size if self.vocabulary is None else self.vocabulary.size)
        prompt = np.random.default_rng(number).integers(0, ids, self.prompt_lengths[number])
        story = Story(tuple(prompt.tolist()), 1000 + 7 * number, tuple(begun))
        backend = registry.load_backend("numpy")
        chain = self.chain(case, backend)
        run = self.run(chain, backend, [story])
        for _ in range(len(begun) + 1):
            processed = run.step()
        blocks = list(begun)
        width = [1, 1, 0, 1, 1] if chain.sees_every_step else [1, 2, 0, 3, 1]
        while len(blocks) < STEPS:
            block: list[int] = []
            for _ in range(width[(len(blocks) + number) % len(width)]):
                allowed = np.flatnonzero(np.asarray(processed)[0] > NEG_INF).tolist()
                if not allowed:
                    break
                block.append(self.choose(allowed, dice))
                now = Story(story.prompt, story.seed, (*blocks, tuple(block)))
                logits = logits_of(now, self.vocab_size, chain.branches)
                context = accepting(chain, run.context, [[block[-1]]])
                processed, run.state = chain.process(logits, run.state, context)
            if len(block) > 1 and dice.random() < 0.5:
                block.insert(1, -1)
            blocks.append(tuple(block))
        return Story(story.prompt, story.seed, tuple(blocks))

    def run(self, chain: Chain, backend: Backend, stories: Sequence[Story], **more: Any) -> StoryRun:
        """A batch of stories on a chain."""
        fields = {"max_length": self.max_length, **more}
        return StoryRun(chain, backend, stories, self.vocab_size, **fields)

    def alone(self, chain: Chain, backend: Backend, story: Story, **more: Any) -> list[Any]:
        """The processed logits of each step of a story that is decoded in a batch of one, ``[vocab]`` each."""
        run = self.run(chain, backend, [story], **more)
        return [np.array(backend.to_numpy(run.step()))[0] for _ in range(len(story.blocks) + 1)]
