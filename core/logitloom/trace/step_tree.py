"""The tree of steps of a generation: one branch per row, and the generated sequences."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, cast

from logitloom.arguments import instance
from logitloom.errors import GenerationError
from logitloom.generation.generator import Generated
from logitloom.generation.loop import Emission
from logitloom.trace.automaton_states import AutomatonState
from logitloom.trace.distribution import Change, ChosenToken, Distribution, Row, chosen
from logitloom.vocabulary import Vocabulary

__all__ = ["Origin", "Step", "StepTree", "TracedSequence"]

Origin = Literal["sampled", "forced", "drafted"]

#: Least number of steps that keep their probabilities until their token is known.
_LEAST_OPEN: Final = 32


@dataclass(frozen=True, slots=True)
class Step:
    """One row at one step.

    Attributes:
        number: its index in the record.
        parent: the step before it, or ``-1 - row`` for the first step of a row.
        accepted: the tokens that the row accepted since the parent.
        before: the distribution that the model gave.
        changes: what each processor did to the distribution, in the order of the chain.
    """

    number: int
    parent: int
    accepted: tuple[int, ...]
    before: Distribution
    changes: tuple[Change, ...]

    @property
    def after(self) -> Distribution:
        """The distribution that was left to choose from."""
        return self.changes[-1].after if self.changes else self.before


@dataclass(frozen=True, slots=True)
class TracedSequence:
    """One sequence and the steps that it went through.

    Attributes:
        name: for people.
        prompt: ids of the prompt.
        steps: of the record, in order.
        chosen: per step, the tokens that the row accepted after it: a sampled or drafted token, then forced tokens.
        origins: per step, the origin of each of these tokens.
        choices: per step how likely the first token after it was; None if nothing was chosen, or it is no longer known.
        leading: tokens that were forced before the first step.
        finish: why it ended, if it did.
        text: the generated text, if a vocabulary is known.
    """

    name: str
    prompt: tuple[int, ...]
    steps: tuple[Step, ...]
    chosen: tuple[tuple[int, ...], ...]
    origins: tuple[tuple[Origin, ...], ...]
    choices: tuple[ChosenToken | None, ...]
    leading: tuple[int, ...]
    finish: str | None
    text: str | None


class StepTree:
    """The steps that a traced chain saw, as a tree.

    Rejected drafts and abandoned beams are branches that belong to no sequence.

    Args:
        labels: the processors' labels, in order.
        limit: how many steps are kept.

    Attributes:
        vocabulary: what the ids stand for, if it is known.
        steps: all kept steps, each step before its successors.
        missed: how many steps there were beyond the limit.
        prompts: ids per row.
        automata: of the processors that are constraints, by label: the states that were visited, by number.
    """

    def __init__(self, labels: Iterable[str], limit: int) -> None:
        self.labels = tuple(labels)
        self.limit = limit
        self.vocabulary: Vocabulary | None = None
        self.steps: list[Step] = []
        self.missed = 0
        self.prompts: list[tuple[int, ...]] = []
        self.automata: dict[str, dict[int, AutomatonState]] = {}
        self._attached: list[TracedSequence] = []
        self._origins: dict[int, list[Origin]] = {}
        self._choices: dict[tuple[int, int], ChosenToken] = {}
        # Of steps whose token may still come: the probabilities before the chain and after it.
        self._open: OrderedDict[int, tuple[Row, Row]] = OrderedDict()

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        through = " -> ".join(self.labels) or "an empty chain"
        return f"<{type(self).__name__} of {len(self.steps)} steps through {through}>"

    # -- recording ------------------------------------------------------------------------------------

    def start(self, prompts: list[list[int]]) -> None:
        """A generation begins; what was recorded before is dropped."""
        self.prompts = [tuple(prompt) for prompt in prompts]
        self.steps, self.missed, self._attached, self._origins = [], 0, [], {}
        self._choices, self._open, self.automata = {}, OrderedDict(), {}

    def keep(self, number: int, before: Row, after: Row) -> None:
        """Keep the probabilities of a step until its token is known; those of the oldest steps go first.

        Args:
            number: of the step.
            before: ``[vocab]``, what the model gave.
            after: ``[vocab]``, what the chain left.
        """
        self._open[number] = before, after
        while len(self._open) > max(_LEAST_OPEN, 4 * len(self.prompts)):
            self._open.popitem(last=False)

    def _choice(self, number: int, token: int) -> ChosenToken | None:
        """How likely a token was after a step, if that is still known."""
        known = self._choices.get((number, token))
        if known is None and number in self._open:
            known = self._choices[number, token] = chosen(token, *self._open[number])
            # Others are sooner asked for, unless drafts or beams come back.
            self._open.move_to_end(number, last=False)
        return known

    def add(self, parent: int, accepted: list[int], before: Distribution, changes: tuple[Change, ...]) -> int:
        """Keep a step; returns the number of the step, or of its parent beyond the limit."""
        if len(self.steps) >= self.limit:
            self.missed += 1
            return parent
        if accepted:
            self._choice(parent, accepted[0])
        self.steps.append(Step(len(self.steps), parent, tuple(accepted), before, changes))
        return len(self.steps) - 1

    def note(self, emission: Emission) -> None:
        """Keep where a row's new tokens came from: pass this as ``on_emission`` of a generator."""
        sampled = len(emission.tokens) - emission.drafted - emission.forced
        origins = ["drafted"] * emission.drafted + ["sampled"] * sampled + ["forced"] * emission.forced
        self._origins.setdefault(emission.row, []).extend(cast("list[Origin]", origins))

    # -- sequences -------------------------------------------------------------------------------------

    def attach(self, generated: Iterable[Generated] | Generated) -> None:
        """Attach the generated sequences, so that the last choices and rejected branches are known.

        Args:
            generated: what a :class:`logitloom.generation.Generator` returned, or one of its sequences. For rows of an
                engine, make :class:`logitloom.generation.Generated` of the tokens before end-of-sequence.

        Raises:
            GenerationError: it is something else.
        """
        given = list(generated) if isinstance(generated, Iterable) else [generated]
        remedy = "Give the list that the generator returned, or make a Generated of the tokens that an engine returned."
        generated = [instance(g, Generated, "generated", GenerationError, remedy) for g in given]
        samples = max((g.sample for g in generated), default=0) + 1
        rows = len(self.prompts) // (max((g.prompt for g in generated), default=0) + 1)
        self._attached = []
        for g in generated:
            name = f"prompt {g.prompt}" + (f", sequence {g.sample}" if samples > 1 else "")
            path = self._path(g.tokens, range(g.prompt * rows, (g.prompt + 1) * rows), g.sample)
            if path:
                origins = self._origins.get(g.prompt * samples + g.sample)
                self._attached.append(self._sequence(name, path, g.tokens, g.finish, g.text, origins))

    @property
    def sequences(self) -> list[TracedSequence]:
        """The attached sequences; without them one sequence per leaf of the tree, along the path to the leaf."""
        if self._attached:
            return list(self._attached)
        parents = {step.parent for step in self.steps}
        leaves = [step for step in self.steps if step.number not in parents]
        found = []
        for number, leaf in enumerate(leaves):
            path = list(self._upwards(leaf))[::-1]
            tokens = tuple(token for step in path for token in step.accepted)
            text = self.vocabulary.decode(tokens) if self.vocabulary is not None else None
            found.append(self._sequence(f"row {number}", path, tokens, None, text))
        return found

    def _upwards(self, step: Step) -> Iterator[Step]:
        while True:
            yield step
            if step.parent < 0:
                return
            step = self.steps[step.parent]

    def _path(self, tokens: tuple[int, ...], rows: range, preferred: int) -> list[Step]:
        """The steps along which these tokens were accepted: as far as the record goes, of equals the first row's."""
        children: dict[int, list[Step]] = {}
        for step in self.steps:
            children.setdefault(step.parent, []).append(step)
        order = sorted(rows, key=lambda row: row - rows.start != preferred)
        going = [(step, 0) for row in order for step in children.get(-1 - row, ())]
        best: Step | None = None
        most = -1
        for step, before in going:  # grows while it is walked
            taken = before + len(step.accepted)
            # A row that has ended stays in a round of speculation without accepting anything.
            idle = before > 0 and not step.accepted
            if idle or step.accepted != tokens[before:taken]:
                continue
            if taken > most:
                best, most = step, taken
            going += [(child, taken) for child in children.get(step.number, ())]
        return [] if best is None else list(self._upwards(best))[::-1]

    def _sequence(
        self,
        name: str,
        path: list[Step],
        tokens: tuple[int, ...],
        finish: str | None,
        text: str | None,
        origins: list[Origin] | None = None,
    ) -> TracedSequence:
        leading = path[0].accepted
        ends = [*itertools.accumulate(len(step.accepted) for step in path), len(tokens)]
        spans = list(itertools.pairwise(ends))
        # Without recorded origins: the tokens accepted in one step are one sampled token and forced tokens after it.
        firsts = {begin for begin, _ in spans}
        known: list[Origin] = ["sampled" if position in firsts else "forced" for position in range(len(tokens))]
        if origins is not None and len(origins) >= len(tokens):
            known = origins
        row = -1 - path[0].parent
        takings = [tokens[begin:end] for begin, end in spans]
        return TracedSequence(
            name=name,
            prompt=self.prompts[row] if row < len(self.prompts) else (),
            steps=tuple(path),
            chosen=tuple(takings),
            choices=tuple(
                self._choice(step.number, taken[0]) if taken else None
                for step, taken in zip(path, takings, strict=True)
            ),
            origins=tuple(tuple(known[begin:end]) for begin, end in spans),
            leading=leading,
            finish=finish,
            text=text,
        )
