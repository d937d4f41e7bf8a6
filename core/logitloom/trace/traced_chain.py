"""A chain that records the changes of its processors."""

from __future__ import annotations

import functools
import time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import whole
from logitloom.arrays.backend import Array
from logitloom.chain import Chain
from logitloom.chain.links import Link
from logitloom.chain.steps import Step
from logitloom.context import Context
from logitloom.effect import Effect
from logitloom.errors import OptionError
from logitloom.processor import Processor
from logitloom.trace.automaton_states import StateNumbers
from logitloom.trace.distribution import Change, Distribution, changed, described, probabilities
from logitloom.trace.observed_chain import ObservedChain
from logitloom.trace.record import Record

__all__ = ["TracedChain"]

_LABEL: Final = "trace"


class TracedChain(ObservedChain):
    """A chain that also records the changes of each processor at each step, in its attribute ``record``.

    A traced chain gives the very logits of the chain it was made of. Its state also has one number per row, the index
    of the row's last step in the record. So rows may be reordered, duplicated, rolled back and dropped, and the record
    is a tree. Values are copied to the host at every step, and one chain records one thread's work.

    Args:
        chain: the chain to record; it is not changed.
        top: how many of the most probable ids to keep per distribution.
        limit: steps of rows to keep; later steps are counted and not kept.

    Raises:
        OptionError: for a negative ``top`` or ``limit``, or a chain that is recorded already.
    """

    def __init__(self, chain: Chain, *, top: int = 8, limit: int = 20_000) -> None:
        self._recordable(chain)
        for name, value in {"top": top, "limit": limit}.items():
            if whole(value, name, OptionError) < 0:
                raise OptionError(f"A trace keeps a number of {name} that is not negative, but {name} is {value}.")
        self._hold(chain, Record(chain.labels, limit), top)

    def _hold(self, chain: Chain, record: Record, top: int) -> None:
        self.record, self._inner = record, chain
        processors = {link.label: link.processor for link in chain.links}
        self._recorder = _StepRecorder(self.record, processors, top, chain.branches)
        recorder = Link(_LABEL, None, None, processor=self._recorder)
        super().__init__([*chain.links, recorder], vocabulary=chain.vocabulary, model=chain.model, debug=chain.debug)
        #: Makes a chain that records the same of the same.
        self._again = functools.partial(TracedChain, chain, top=top, limit=record.limit)

    def again(self, chain: Chain) -> TracedChain:
        """The traced chain of another chain, which writes into the same record."""
        traced = TracedChain.__new__(TracedChain)
        traced._hold(chain, self.record, self._recorder.top)
        return traced

    def __reduce__(self) -> Any:
        """A copy records anew."""
        return self._again, ()

    def __deepcopy__(self, memo: Any) -> TracedChain:
        """A copy records anew."""
        return self._again()

    def _assemble(self) -> None:
        super()._assemble()
        if len(self._steps) == len(self.links):  # else options are missing, and the chain cannot run
            *steps, closing = self._steps
            watched = (self._recorder.watching(step, self.links[i], i) for i, step in enumerate(steps))
            self._steps = (*watched, closing)
            self._plan_steps()
            # Each processor is watched on whole rows: none runs in a loop over rows, or on survivors alone.
            self._plan = self._whole


class _StepRecorder(Processor):
    """Stands last in the chain: closes the record of a step, and keeps its number in the state of each row."""

    stage = "warp"
    effect = Effect("forbids", keeps=("order", "last"))
    compilable = False

    def __init__(self, record: Record, processors: dict[str, Any], top: int, branches: int) -> None:
        self.record, self.processors, self.top, self.branches_in = record, processors, top, branches
        #: Of the current step, per row: the logits so far and their probabilities; below, the model's distribution and
        #: probabilities, and the changes.
        self._rows: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._first: list[Distribution] = []
        self._given: list[NDArray[Any]] = []
        self._changes: list[list[Change]] = []
        self._numbers: dict[str, StateNumbers] = {}

    def init_state(self, context: Context) -> Array:
        """``[rows] int32``: ``-1 - row``, where a row starts."""
        if context.vocabulary is not None:
            self.record.vocabulary = context.vocabulary
        self.record.labels = tuple(self.processors)
        self.record.start([list(prompt) for prompt in context.prompt or [()] * context.batch])
        self._numbers = {
            label: StateNumbers(processor.constraint_for(context), self.record.automata.setdefault(label, {}))
            for label, processor in self.processors.items()
            if hasattr(processor, "constraint_for")
        }
        return context.backend.asarray(-1 - np.arange(context.batch, dtype=np.int32))

    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        """Close the step."""
        backend = context.backend
        if not self.processors:
            self._open(logits, 1, context)
        parents = backend.to_numpy(state).tolist()
        accepted: list[list[int]] = [[] for _ in parents]
        if context.tokens is not None:
            accepted = [[t for t in row if t >= 0] for row in backend.to_numpy(context.tokens).tolist()]
        numbers = [
            self.record.add(parent, tokens, first, tuple(changes))
            for parent, tokens, first, changes in zip(parents, accepted, self._first, self._changes, strict=True)
        ]
        for number, before, (_, after) in zip(numbers, self._given, self._rows, strict=True):
            if number >= 0:
                self.record.keep(number, before.astype(np.float32), after.astype(np.float32))
        return logits, backend.asarray(np.asarray(numbers, dtype=np.int32))

    def watching(self, step: Step, link: Link, index: int) -> Step:
        """The step of one processor of the chain, with a record of its changes."""

        def watched(logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
            if index == 0:
                self._open(logits, self.branches_in, context)
            context.backend.synchronize(logits)
            begin = time.perf_counter()
            logits, state = step(logits, state, context)
            context.backend.synchronize(logits)
            seconds = time.perf_counter() - begin
            self._note(logits, self._automaton_states(link, state, context), seconds, context)
            return logits, state

        return watched

    def _automaton_states(self, link: Link, state: Any, context: Context) -> list[int] | None:
        """The number of each row's state, of a processor that is a constraint."""
        numbers = self._numbers.get(link.label)
        if numbers is None:
            return None
        return numbers.of(link.processor.host_states(state, context.with_fields(tokens=None)))

    def _open(self, logits: Array, branches: int, context: Context) -> None:
        # Guidance takes several rows per sequence; the sequences' own come first.
        own = _host(logits, context)[: logits.shape[0] // branches]
        self._rows = [(row, probabilities(row)) for row in own]
        self._first = [described(row, p, self.top) for row, p in self._rows]
        self._given = [p for _, p in self._rows]
        self._changes = [[] for _ in self._rows]

    def _note(self, logits: Array, states: list[int] | None, seconds: float, context: Context) -> None:
        new = [(row, probabilities(row)) for row in _host(logits, context)]
        for i, ((before, p), (after, q)) in enumerate(zip(self._rows, new, strict=True)):
            state = None if states is None else states[i]
            self._changes[i].append(changed(before, after, p, q, self.top, seconds, state))
        self._rows = new


def _host(logits: Array, context: Context) -> NDArray[Any]:
    """A copy in host memory, float32 at least."""
    wide = logits if logits.dtype == context.backend.xp.float64 else context.backend.cast(logits, "float32")
    return np.array(context.backend.to_numpy(wide))
